# SPDX-License-Identifier: MIT
"""Checkpoints: files that name tensors."""

import collections
import collections.abc
import functools

from . import _hoist, groups
from .errors import missing
from .waiting import in_thread


Tensor = collections.namedtuple("Tensor", "name dtype shape nbytes file offset strides")
Tensor.__doc__ = """A tensor of a checkpoint: what its bytes are, and where they lie.

Attributes
----------
name : str
dtype : str
    "bf16", "f32", "q4_k", ...
shape : tuple of int
nbytes : int
    Bytes in the file.
file : int
    The number of the file in `Checkpoint.files`.
offset : int
    Bytes from the start of the file.
strides : tuple of int or None
    In elements; None: C order.
"""


Skipped = collections.namedtuple("Skipped", "name reason file")
Skipped.__doc__ = """A value that `hoist.open(skip_unsupported=True)` left out.

Attributes
----------
name : str
    As a tensor's; "object": all that the file holds; "": the whole file.
reason : str
    Why, and what helps.
file : int
    The number of the file in `Checkpoint.files`.
"""


class _Values(collections.abc.ValuesView):
    """All tensors in their order, none looked up by its name."""

    def __iter__(self):
        checkpoint = self._mapping
        return map(functools.partial(checkpoint._tensor, Tensor), range(len(checkpoint)))


class _Items(collections.abc.ItemsView):
    def __iter__(self):
        return zip(self._mapping, _Values(self._mapping))


def open_flags(follow_links, raw, skip_unsupported):
    """The flags of `hoist_checkpoint_open()`."""
    return ((_hoist.OPEN_FOLLOW_LINKS if follow_links else 0) | (_hoist.OPEN_RAW if raw else 0) |
            (_hoist.OPEN_SKIP_UNSUPPORTED if skip_unsupported else 0))


class Checkpoint(_hoist.Checkpoint, collections.abc.Mapping):
    """An opened checkpoint: a mapping from names to `hoist.Tensor`, in the order of the files.

    Only headers were read.  A checkpoint is a context manager; a load that was started on it goes on
    after its end.  Any thread may read a checkpoint.

    Parameters
    ----------
    path, follow_links, raw, skip_unsupported, group
        As in `hoist.open()`; `group` is what `groups.group_of()` made.
    """

    def __new__(cls, path, *, follow_links=True, raw=False, skip_unsupported=False, group=None):
        flags = open_flags(follow_links, raw, skip_unsupported)
        return in_thread(functools.partial(cls._open_here, path, flags, group))

    def __init__(self, path, *, follow_links=True, raw=False, skip_unsupported=False, group=None):
        pass

    @classmethod
    def _open_here(cls, path, flags=open_flags(True, False, False), group=None):
        """Opens in this thread: another takes 30 us, and more on a busy machine.  Ctrl-C does not end the wait."""
        self = super().__new__(cls, path, flags, group)
        self._path = path
        return self

    def _index(self, name):
        try:
            return self._find(name)
        except KeyError:
            raise missing(name, f"{self._path} has {len(self)} others") from None

    def __getitem__(self, name):
        return self._tensor(Tensor, self._index(name))

    def __iter__(self):
        return iter(self._names())

    def __contains__(self, name):
        try:
            self._find(name)
        except (KeyError, TypeError):
            return False
        return True

    def values(self):
        """A view of all tensors' facts, in their order."""
        return _Values(self)

    def items(self):
        """A view of all names and tensors' facts, in their order."""
        return _Items(self)

    # A mapping would compare and hash by its items.
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def get_slice(self, name, device=None, **options):
        """The tensor called `name`, to be indexed: each index reads a part of the tensor.

        Parameters
        ----------
        name : str
        device : str or Device, optional
            The destination of the parts; None: the CPU.
        **options
            Those of `hoist.load()` for one target, such as `dtype`, `io` and `budget`; without
            `tensors`, `slices`, `into` and `targets`.

        Returns
        -------
        Slice
            With `tensor`, `shape`, `dtype` and indices.

        Raises
        ------
        MissingError
            There is no such tensor.
        ValueError, TypeError
            An option is wrong.
        """
        from .slices import Slice  # pylint: disable=import-outside-toplevel
        return Slice(self, self[name], device, options)

    def digest(self, name):
        """The XXH3-128 that the checkpoint holds of a tensor's bytes (`hoist.save(digest=True)`), or that is
        kept beside the file (`keep_digests()`).

        Nothing is read, and nothing compared: loads with `verify=True` compare.

        Parameters
        ----------
        name : str

        Returns
        -------
        bytes or None
            16 bytes; None: the tensor's file holds no digests, and none are kept of it as it is now.

        Raises
        ------
        MissingError
            There is no such tensor.
        """
        return self._digest(self._index(name))

    def keep_digests(self, **options):
        """Reads all tensors once, and keeps digests beside the files that hold none: FILE.xxh3.

        Checkpoints that are opened afterwards have these digests until the files change (a copy has none):
        loads with `verify=True` compare them, and `hoist.torch.load_into(changed_only=True)` reads only
        what differs.

        Parameters
        ----------
        **options
            `budget`, `io`, `engine` and `progress` of `hoist.load()`.

        Raises
        ------
        UnsupportedError
            An index does not name all tensors of a file.
        AccessError, KernelError
            A folder cannot be written to.
        FormatError
            A file has changed since it was opened.
        """
        from .load import load  # pylint: disable=import-outside-toplevel
        unknown = set(options) - {"budget", "io", "engine", "progress"}
        if unknown:
            raise TypeError(f"keep_digests() takes no {sorted(unknown)[0]!r}; its options are budget, io, "
                            "engine and progress")
        digests = {}
        with load(self, digest=True, window="256M", **options) as running:
            for name, buffer in running:
                buffer.close()
                digests[name] = running.digest(name)
        self._keep_digests(b"".join(digests[name] for name in self))

    @property
    def path(self):
        """The path that was opened."""
        return self._path

    @property
    def files(self):
        """(path, bytes) of each file, a list."""
        return self._files()

    @property
    def skipped(self):
        """What `skip_unsupported` left out, a list of `hoist.Skipped`."""
        return self._skipped(Skipped)

    @property
    def metadata(self):
        """The texts that the files carry beside their tensors, a dict of str."""
        return self._metadata()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        state = "closed" if self.closed else f"{len(self)} tensors, {self.nbytes} bytes"
        return f"<hoist.Checkpoint {str(self._path)!r}: {state}>"


def open(path, *, follow_links=True, raw=False,  # pylint: disable=redefined-builtin
         skip_unsupported=False, group=None, rank=None, group_timeout=None, group_secret=None):
    """Opens a checkpoint: reads headers, and no tensor.

    Parameters
    ----------
    path : str or os.PathLike
        A file or a folder: safetensors and its index, GGUF, .npy, .npz, .max, PyTorch's zip checkpoints,
        or a folder that holds one of these.  ``"hf://org/name@revision"`` is a model in Hugging
        Face's cache, which is found without the network.
    follow_links : bool
        Whether files of a folder may be links to any place.  Links from a snapshot in Hugging
        Face's cache to its model's blobs are followed in any case.
    raw : bool
        Opens a file of any kind as one tensor of u8 called "data".
    skip_unsupported : bool
        Leaves out what a PyTorch file has beside tensors and plain values, such as objects of a
        program's classes, sets and sparse tensors; `Checkpoint.skipped` lists it.  No code is
        executed.  The tensors of a module that was saved whole have the names of its state_dict(); some of
        its other attributes may be tensors, too.
    group, rank, group_timeout, group_secret
        Those of `hoist.load()`.  Where there is nothing at `path`, or files are missing there, a rank of
        a group of several machines that has all files shows the tensors and metadata.  Only a load of the same group reads such
        a checkpoint.

    Returns
    -------
    Checkpoint
        A mapping from names to `hoist.Tensor`.

    Raises
    ------
    FormatError
        A file is malformed: the text names file, tensor and byte.
    UnsupportedError
        A file has what hoist does not read, such as compressed entries, or, without
        `skip_unsupported`, objects of a program's classes.
    NotFoundError, AccessError
        A file does not exist, or may not be read; without `follow_links`, a link leads elsewhere; the
        group's secret is another one.
    PeerError, TimedOutError
        No rank of the group has shown the checkpoint within the timeout.
    """
    return Checkpoint(path, follow_links=follow_links, raw=raw, skip_unsupported=skip_unsupported,
                      group=groups.group_of(group, rank, group_timeout, group_secret))
