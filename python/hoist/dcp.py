# SPDX-License-Identifier: MIT
"""torch.distributed.checkpoint over hoist.

>>> import torch.distributed.checkpoint as dcp
>>> dcp.save(state, storage_writer=hoist.dcp.HoistStorageWriter("ckpt/"))
>>> dcp.load(state, storage_reader=hoist.dcp.HoistStorageReader("ckpt/"))

A checkpoint is a folder with a safetensors file of each rank's tensors and `.metadata`, which names these
files: torch's own facts, pickled, as torch pickles them.  So a checkpoint is to be trusted as much as the
program that loads it.
"""

import collections
import contextlib
import dataclasses
import io
import logging
import os
import pickle
import re
import time
import uuid

import torch
from torch.distributed.checkpoint import Metadata, StorageReader, StorageWriter
from torch.distributed.checkpoint.metadata import StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from . import _hoist
from .checkpoint import Checkpoint
from .errors import FormatError
from .lazy import dtype_of
from .load import load
from .options import Target
from .save import save
from .servers.reading import Facts

_log = logging.getLogger(__name__)

__all__ = ["HoistStorageReader", "HoistStorageWriter"]

_METADATA = ".metadata"
_FILE = re.compile(r"hoist-[0-9a-f]{32}\.safetensors")  # hoist's own names; a program's file stays
_OPTIONS = ("budget", "digest", "io", "engine", "progress")
_MOST_TARGETS = 16  # of a load


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where an item lies.  kind: "tensor", "bytes", or "pickled", a tensor of a type that files lack."""

    file: str
    name: str
    kind: str


def _done(value):
    ret = Future()
    ret.set_result(value)
    return ret


def _fits(tensor):
    """Whether safetensors files and hoist have the tensor's type."""
    try:
        name = _hoist.dtype_from_numpy(str(tensor.dtype).rpartition(".")[2])
        return tensor.layout == torch.strided and dtype_of(name) is tensor.dtype and \
            _hoist.dtype_info(name)["safetensors"] is not None
    except ValueError:
        return False


def _pickled(tensor):
    file = io.BytesIO()
    torch.save(tensor.detach().cpu().clone(), file)
    return file.getvalue()


class _InFolder:
    """What a writer and a reader of a folder have in common: each rank does what torch has planned."""

    def prepare_local_plan(self, plan):
        """The plan as it is.

        Parameters
        ----------
        plan : SavePlan or LoadPlan

        Returns
        -------
        SavePlan or LoadPlan
        """
        return plan

    def prepare_global_plan(self, plans):
        """The plans as they are.

        Parameters
        ----------
        plans : list of SavePlan or LoadPlan

        Returns
        -------
        list of SavePlan or LoadPlan
        """
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        """Whether the place is a path of this machine.

        Parameters
        ----------
        checkpoint_id : str or os.PathLike

        Returns
        -------
        bool
        """
        return "://" not in os.fspath(checkpoint_id)


class HoistStorageWriter(_InFolder, StorageWriter):
    """Writes a checkpoint with `torch.distributed.checkpoint.save()` or `async_save()`.

    A save is whole or not at all: its files have new names, and `.metadata` is replaced last, after all
    ranks have their files on the disk.  A save that fails, or whose processes die, leaves the old
    checkpoint; the next one removes what it has left behind.  Two saves to one folder must not overlap.

    Parameters
    ----------
    path : str or os.PathLike
        The folder, which all ranks share.
    **options
        Those of `hoist.save()` that keep a rank's file whole: `budget`, `digest`, `io`, `engine`, `progress`.

    Raises
    ------
    TypeError
        There is no such option.
    """

    def __init__(self, path, **options):
        super().__init__()
        wrong = sorted(set(options).difference(_OPTIONS))
        if wrong:
            raise TypeError(f"HoistStorageWriter has no option {', '.join(wrong)}; it has {', '.join(_OPTIONS)}")
        self._path, self._options = os.fspath(path), options
        self._save, self._began = None, 0.0

    def reset(self, checkpoint_id=None):
        """Begins another save.

        Parameters
        ----------
        checkpoint_id : str or os.PathLike, optional
            Another folder.
        """
        if checkpoint_id is not None:
            self._path = os.fspath(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        """Makes the folder.

        Parameters
        ----------
        is_coordinator : bool
        *args
            Of other releases of torch.
        **kwargs
            Of other releases of torch.
        """
        os.makedirs(self._path, exist_ok=True)
        self._save, self._began = uuid.uuid4().hex, time.time()

    def write_data(self, plan, planner):
        """Writes the file of this rank, under a new name: planners keep plans for the next save.

        Parameters
        ----------
        plan : SavePlan
        planner : SavePlanner

        Returns
        -------
        torch.futures.Future
            Of a list of WriteResult; it is done.
        """
        file = f"hoist-{uuid.uuid4().hex}.safetensors"
        contents, results = {}, []
        for number, item in enumerate(plan.items):
            data = planner.resolve_data(item)
            name = f"{number}:{item.index.fqn}"
            if item.type == WriteItemType.BYTE_IO:
                kind, data = "bytes", data.getvalue()
            elif _fits(data):
                kind, data = "tensor", data.detach()
            else:
                kind, data = "pickled", _pickled(data)
            contents[name] = data
            nbytes = data.nbytes if kind == "tensor" else len(data)
            results.append(WriteResult(index=item.index, size_in_bytes=nbytes,
                                       storage_data=_Place(file, name, kind)))
        if contents:
            save(contents, os.path.join(self._path, file), **self._options).wait()
        return _done(results)

    def finish(self, metadata, results):
        """Puts the new checkpoint in the place of the old one.

        Parameters
        ----------
        metadata : Metadata
        results : list of list of WriteResult
        """
        metadata.storage_data = {one.index: one.storage_data for rank in results for one in rank}
        metadata.storage_meta = self.storage_meta()
        path = os.path.join(self._path, _METADATA)
        old = self._leftovers(path)
        with open(path + ".new", "wb") as file:
            pickle.dump(metadata, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
        folder = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        for name in old.difference(place.file for place in metadata.storage_data.values()):
            with contextlib.suppress(OSError):  # the save has succeeded
                os.unlink(os.path.join(self._path, name))

    def _leftovers(self, path):
        """Names of the old checkpoint's files, and of those that dead saves have left."""
        ret = set()
        with contextlib.suppress(Exception):  # there is none, or another writer's
            with open(path, "rb") as file:
                ret.update(place.file for place in pickle.load(file).storage_data.values()
                           if isinstance(place, _Place))
        for entry in os.scandir(self._path):
            with contextlib.suppress(OSError):
                if _FILE.fullmatch(entry.name) and entry.stat().st_mtime < self._began:
                    ret.add(entry.name)
        return {name for name in ret if _FILE.fullmatch(name)}

    def storage_meta(self):
        """Names the folder and the save.

        Returns
        -------
        StorageMeta
        """
        return StorageMeta(checkpoint_id=self._path, save_id=self._save)


class HoistStorageReader(_InFolder, StorageReader):
    """Reads a checkpoint of `HoistStorageWriter` with `torch.distributed.checkpoint.load()`.

    Each rank reads only the parts that its tensors need, straight into them; the number of ranks may
    differ from the save's.  `read_bytes` counts the bytes of tensors that were read.  A line in the log of
    "hoist.dcp" (INFO) says at the end of a load where its time went.

    Parameters
    ----------
    path : str or os.PathLike
        The folder.
    **options
        Those of `hoist.load()` that name neither tensors nor a destination: `budget`, `io`, ...
    """

    def __init__(self, path, **options):
        super().__init__()
        self._path, self._options = os.fspath(path), options
        self._places = {}
        self.read_bytes = 0

    def reset(self, checkpoint_id=None):
        """Begins another load.

        Parameters
        ----------
        checkpoint_id : str or os.PathLike, optional
            Another folder.
        """
        self._places = {}
        self.read_bytes = 0
        if checkpoint_id is not None:
            self._path = os.fspath(checkpoint_id)

    def read_metadata(self, *args, **kwargs):
        """The facts of the checkpoint.

        Parameters
        ----------
        *args
            Of other releases of torch.
        **kwargs
            Of other releases of torch.

        Returns
        -------
        Metadata

        Raises
        ------
        FormatError
            Another writer has made the checkpoint.
        """
        with open(os.path.join(self._path, _METADATA), "rb") as file:
            metadata = pickle.load(file)
        places = metadata.storage_data.values() if isinstance(metadata, Metadata) else [None]
        if not all(isinstance(place, _Place) for place in places):
            raise FormatError(f"{self._path} is no checkpoint of HoistStorageWriter; FileSystemReader "
                              "reads torch's own")
        return metadata

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        """Keeps where the tensors lie.

        Parameters
        ----------
        metadata : Metadata
        is_coordinator : bool
        *args
            Of other releases of torch.
        **kwargs
            Of other releases of torch.
        """
        self._places = metadata.storage_data

    def read_data(self, plan, planner):
        """Reads what this rank needs, each file by one load.

        Parameters
        ----------
        plan : LoadPlan
        planner : LoadPlanner

        Returns
        -------
        torch.futures.Future
            It is done.
        """
        files = collections.defaultdict(list)
        facts = Facts("parts", _log)
        for item in plan.items:
            files[self._places[item.storage_index].file].append(item)
        for file, items in files.items():
            with facts.stage("open"):
                checkpoint = Checkpoint(os.path.join(self._path, file))
            with checkpoint:
                facts["file_bytes"] += checkpoint.nbytes
                facts["n_tensors"] += len(items)
                self._read_file(checkpoint, items, planner, facts)
        self.read_bytes += facts["read_bytes"] + facts["mapped_bytes"]
        facts.end()
        return _done(None)

    def _read_file(self, checkpoint, items, planner, facts):
        whole, direct = [], []
        for item in items:
            kind = self._places[item.storage_index].kind
            if kind == "tensor":
                target = planner.resolve_tensor(item).detach()
                if target.shape != tuple(item.lengths):
                    raise ValueError(f"{item.dest_index.fqn}: a part of shape {tuple(target.shape)} is asked "
                                     f"for, and one of {tuple(item.lengths)} is stored")
                direct.append((item, target))
            else:
                whole.append(item)
        self._read_parts(checkpoint, direct, facts)
        for item, target in direct:
            planner.commit_tensor(item, target)
        if not whole:
            return
        names = list({self._places[item.storage_index].name for item in whole})
        with load(checkpoint, tensors=names, **self._options) as running:
            found = {name: buffer.tobytes() for name, buffer in running}
            facts.add(running.report())
        for item in whole:
            content = io.BytesIO(found[self._places[item.storage_index].name])
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, content)
                continue
            part = torch.load(content, map_location="cpu", weights_only=True)
            for axis, (begin, n) in enumerate(zip(item.storage_offsets, item.lengths)):
                part = part.narrow(axis, begin, n)
            target = planner.resolve_tensor(item).detach()
            target.copy_(part)
            planner.commit_tensor(item, target)

    def _read_parts(self, checkpoint, parts, facts):
        """Reads parts of stored tensors into tensors, in few loads.

        A target of the load has one part of a stored tensor, and tensors of one device.
        """
        targets, n_of_name, copies = {}, collections.Counter(), []
        for item, target in parts:
            if target.numel() == 0:
                continue
            name = self._places[item.storage_index].name
            stored = checkpoint[name]
            array = target
            if dtype_of(stored.dtype) is not target.dtype:  # torch converts it
                array = torch.empty(target.shape, dtype=dtype_of(stored.dtype), device=target.device)
                copies.append((target, array))
            key = target.device, n_of_name[name, target.device]
            n_of_name[name, target.device] += 1
            into, slices = targets.setdefault(key, ({}, {}))
            into[name] = array
            slices[name] = [(axis, slice(begin, begin + n)) for axis, (begin, n) in
                            enumerate(zip(item.storage_offsets, item.lengths)) if n < stored.shape[axis]]
        targets = [Target(into=into, slices={name: one for name, one in slices.items() if one})
                   for into, slices in targets.values()]
        for first in range(0, len(targets), _MOST_TARGETS):
            with load(checkpoint, targets=targets[first:first + _MOST_TARGETS], **self._options) as running:
                running.wait()
                facts.add(running.report())
        for target, array in copies:
            target.copy_(array)
