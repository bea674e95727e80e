# SPDX-License-Identifier: MIT
"""Saves: from buffers, arrays and tensors to files that appear whole or not at all."""

import collections.abc
import os
import sys
import time
import warnings

from . import _hoist, streams, waiting
from .load import _Progress
from .options import Budget
from .sizes import size

# A wait is made in steps of this length, between which progress is told and signals are handled.
_STEP_NS = 50_000_000

_IO = {"auto": _hoist.IO_AUTO, "direct": _hoist.IO_DIRECT, "cached": _hoist.IO_CACHED}
_ENGINES = {"auto": _hoist.ENGINE_AUTO, "io_uring": _hoist.ENGINE_URING,
            "threads": _hoist.ENGINE_THREADS}

# The letters of the buffer protocol -> hoist's dtypes.
_FORMATS = {"?": "bool", "b": "i8", "h": "i16", "i": "i32", "l": "i64", "q": "i64", "n": "i64",
            "B": "u8", "c": "u8", "H": "u16", "I": "u32", "L": "u64", "Q": "u64", "N": "u64",
            "e": "f16", "f": "f32", "d": "f64", "Zf": "c64", "Zd": "c128"}

def _choice(table, value, what):
    if value not in table:
        raise ValueError(f"{what} is one of {', '.join(table)}, not {value!r}")
    return table[value]


# --- sources ---


def _add_memory(to, name, source):
    """Adds an object with the buffer protocol."""
    view = memoryview(source)
    letters = view.format.lstrip("@=<" if sys.byteorder == "little" else "@=>")
    if letters not in _FORMATS:
        raise TypeError(f"tensor {name!r}: hoist has no elements of the format {view.format!r}")
    to._add_memory(name, view, _FORMATS[letters])


def _add_numpy(to, name, array):
    """Adds a NumPy array, with the types of ml_dtypes; others have no format for a memoryview."""
    try:
        dtype = _hoist.dtype_from_numpy(array.dtype.name)
        bits = _hoist.dtype_info(dtype)["bits"]
    except ValueError:
        bits = None
    if bits != 8 * array.dtype.itemsize:
        raise TypeError(f"tensor {name!r}: no dtype of hoist is NumPy's {array.dtype}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if any(stride % array.itemsize for stride in array.strides):  # a field of records
        array = array.copy()
    if _hoist.dtype_info(dtype)["numpy_native"] == 0:
        array = array.view(f"u{array.itemsize}")
    to._add_memory(name, memoryview(array), dtype)


def _add_cai(to, name, array):
    """Adds an object with the CUDA Array Interface."""
    fields = array.__cuda_array_interface__
    if fields.get("mask") is not None:
        raise TypeError(f"tensor {name!r} has a mask, which no file holds")
    # A dict may name memory that its owner makes for it: both live until the save has ended.
    to._add_cai(name, (array, fields), fields["typestr"], fields["data"][0], fields["shape"],
                fields.get("strides"), fields.get("stream"))


def _is_a(value, package, kind):
    """Whether `value` is of a class of a package, which is not imported for that."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, getattr(module, kind, ()))


def _add(to, name, value):
    if not isinstance(name, str):
        raise TypeError(f"the name of a tensor is a str, not {type(name).__name__}")
    if _is_a(value, "torch", "Tensor"):
        from .torch import as_buffer  # pylint: disable=import-outside-toplevel
        value = as_buffer(value.resolve_conj().resolve_neg())
    if isinstance(value, _hoist.Buffer):
        to._add(name, value)
    elif _is_a(value, "numpy", "ndarray") or _is_a(value, "numpy", "generic"):
        _add_numpy(to, name, sys.modules["numpy"].asarray(value))
    elif hasattr(value, "__dlpack__"):
        to._add(name, _hoist.Buffer.from_dlpack(value))
    elif hasattr(value, "__cuda_array_interface__"):
        _add_cai(to, name, value)
    else:
        try:
            _add_memory(to, name, value)
        except TypeError as error:
            if hasattr(value, "__buffer__") or isinstance(value, (bytes, bytearray, memoryview)):
                raise
            raise TypeError(f"tensor {name!r}: a {type(value).__name__} is no hoist.Buffer and has "
                            "none of DLPack, the CUDA Array Interface and the buffer protocol"
                            ) from error


def _fill(to, tensors, metadata):
    if isinstance(tensors, _hoist.Checkpoint):
        for index, name in enumerate(tensors._names()):
            to._add_tensor(name, tensors, index)
        to._metadata_of(tensors)
    elif isinstance(tensors, collections.abc.Mapping):
        for name, value in tensors.items():
            _add(to, name, value)
    else:
        raise TypeError(f"{type(tensors).__name__} names no tensors; give a dict of names and tensors, "
                        "or a Checkpoint")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError("metadata is a dict of str and str, not of "
                            f"{type(key).__name__} and {type(value).__name__}")
        to._metadata(key, value)


# --- saves ---


class Save(_hoist.Save):
    """A save that runs: `hoist.save()` makes it.

    `wait()` and `await save` end when the files are at their paths, or raise what the save failed
    with.  Ctrl-C during `wait()` cancels the save.  A `with` block waits for the save at its end;
    a block that an exception leaves cancels it.  A Save that is dropped before its end is
    cancelled, with a ResourceWarning.  Until the end the program must not write to the tensors;
    the save keeps them.  A child of fork cannot wait for its parent's saves.
    """

    def __new__(cls, path, *, progress=None, **options):
        self = super().__new__(cls, path, **options)
        self._format_name = self._format
        self._progress = _Progress(progress)
        self._outcome = None  # True: saved; an exception: failed
        self._facts = None
        self._is_started = False
        return self

    def __init__(self, path, **options):
        pass

    @property
    def format(self):
        """The format of the files: "safetensors", "gguf", "npy" or "max"."""
        return self._format_name

    def _begin(self, stream):
        if stream is not None:
            streams.of(stream).synchronize()
        self._start()
        self._is_started = True

    def _end(self, outcome):
        """Keeps the outcome, and lets go of the tensors."""
        self._outcome = outcome
        self._progress.close()
        try:
            super().close()
        except ValueError:  # another thread waits, too: its end lets go of them
            pass

    def _ended(self):
        """Whether the outcome is known; raises it if it is a failure."""
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome is True

    def _take(self, timeout_ns):
        """True: the save has ended well; False: not yet.  Any exception ends the save."""
        if self._ended():
            return True
        try:
            done = self._wait_for(timeout_ns)
            self._progress(self)
            if done:
                self._facts = self._report()
        except BaseException:
            if self._ended():  # another thread has waited, too, and was quicker
                return True
            self._settle()
            raise
        if done:
            self._end(True)
        return done

    def _wait_for(self, timeout_ns):
        """Whether the save has ended well, after so long a wait at most.  Raises what it failed with."""
        if not self._is_done():
            if timeout_ns > 0:
                waiting.poll(self.fileno(), timeout_ns)
            if not self._is_done():
                return False
        self._wait()
        return True

    def _settle(self):
        """Cancels the save, and waits for its end."""
        self.cancel()
        try:
            self._wait()
            self._facts = self._report()
            self._end(True)  # it was too late to cancel
        except Exception as error:  # pylint: disable=broad-exception-caught
            self._end(error)

    def wait(self, timeout=None):
        """Waits until the files are at their paths.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None: no limit.

        Returns
        -------
        bool
            False: the time is over, and the save goes on.

        Raises
        ------
        CancelledError
            cancel() was called.
        OutOfMemoryError
            The disk, or a quota, is full; the budget is below the least that works.
        hoist.Error
            Other failures of writing, or of reading a source.  The old file is at the path.
        """
        until = None if timeout is None else time.monotonic_ns() + int(timeout * 1e9)
        while True:
            left = _STEP_NS if until is None else max(0, until - time.monotonic_ns())
            if self._take(min(_STEP_NS, left)):
                return True
            if left == 0:
                return False

    async def _wait_async(self):
        while not self._take(0):
            await waiting.readable(self.fileno(), self._progress.step)
        return self

    def __await__(self):
        return self._wait_async().__await__()

    def report(self):
        """The facts of a save that has ended well, as a dict.

        bytes of all files, n_tensors, n_files, ns, cpu_ns, sync_ns (waiting for the disk),
        direct_bytes, cached_bytes, straight_bytes (written from the tensors' own memory),
        staging_peak_bytes, budget_bytes, engine, engine_reason, io_reason.
        """
        return dict(self._facts) if self._facts is not None else self._report()

    def progress(self):
        """(bytes written, bytes in all)."""
        if self._facts is not None:
            return self._facts["bytes"], self._facts["bytes"]
        return super().progress()

    def close(self):
        """Cancels the save if it still runs, and lets go of the tensors."""
        if self._outcome is None and not self.closed:
            self._settle()
        super().close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.wait()
        finally:
            self.close()

    def __del__(self):
        if self.closed or not getattr(self, "_is_started", False) or self._outcome is not None:
            return
        warnings.warn(f"{self!r} was dropped before its end, and is cancelled: call wait()",
                      ResourceWarning, source=self)
        self.close()

    def __repr__(self):
        state = "saved" if self._outcome is True else "failed" if self._outcome else \
            "closed" if self.closed else "running"
        return f"<hoist.Save: {self._format_name}, {state}>"


def _file_of(path):
    """(path of the file, folder to make or None): in a folder, model.safetensors."""
    path = os.fspath(path)
    slash = b"/" if isinstance(path, bytes) else "/"
    is_folder = os.path.isdir(path)
    if not path.endswith(slash) and not is_folder:
        return path, None
    name = b"model.safetensors" if slash == b"/" else "model.safetensors"
    return os.path.join(path, name), None if is_folder else path


def save(tensors, path, *, format=None, shard_bytes=None,  # pylint: disable=redefined-builtin
         digest=False, metadata=None, stream=None, budget=None, io="auto", engine="auto", sync=True,
         replace=True, progress=None):
    """Starts to save tensors to `path`.  The file appears whole or not at all.

    Parameters
    ----------
    tensors : mapping or Checkpoint
        {name: hoist.Buffer, torch tensor, NumPy array, or any object with DLPack, the CUDA Array
        Interface or the buffer protocol}, in the order of the file.  Strides are any; elements are
        written in C order, and read from their memory without a copy of the tensor.  Tensors that
        share memory are written each for itself.  A Checkpoint is read from its files as it is
        written: a conversion of formats.
    path : str or os.PathLike
        The file.  A folder, or a path that ends in "/": model.safetensors in it; the folder is made
        if its parent exists.
    format : {"safetensors", "gguf", "npy", "max"}, optional
        None: by the path's ending, else safetensors.
    shard_bytes : int or str, optional
        "5G": the most bytes of tensors in one file; more go to NAME-00001-of-0000N.safetensors and
        so on, with an index.  None: one file.
    digest : bool
        Keep an XXH3-128 of each tensor in the file, which loads compare with `verify=True`.
    metadata : dict of str, optional
        Texts beside the tensors.
    stream : Stream, optional
        The save begins when all work on this stream is done.  The streams of Buffers, and those
        that arrays give by DLPack, are waited for in any case.
    budget : Budget, int or str, optional
        Of the staging memory: "256M".
    io : {"auto", "direct", "cached"}
    engine : {"auto", "io_uring", "threads"}
    sync : bool
        False: does not wait for the disk.
    replace : bool
        False: a file that exists is an error.
    progress : callable or True, optional
        Called with (bytes done, bytes in all) during wait(); True: a bar by tqdm.

    Returns
    -------
    Save
        It runs already.  Keep it, and wait for it.

    Raises
    ------
    InvalidError
        The format cannot hold a tensor: the text names the tensor and the reason.
    TypeError
        An object that is no tensor, or whose elements hoist has no dtype for.
    OutOfMemoryError, NotFoundError, AccessError
        The disk is too full; the folder does not exist, or forbids the file.

    Examples
    --------
    >>> with hoist.save({"weight": buffer}, "out/", shard_bytes="5G") as save:
    ...     work()                          # the block's end waits for the files
    """
    if budget is not None and not isinstance(budget, _hoist.Budget):
        budget = Budget(budget)
    flags = _hoist.SAVE_DIGEST if digest else 0
    flags |= 0 if sync else _hoist.SAVE_NO_SYNC
    flags |= 0 if replace else _hoist.SAVE_NO_REPLACE
    options = {"format": format, "shard_bytes": 0 if shard_bytes is None else size(shard_bytes),
               "budget": budget, "io": _choice(_IO, io, "io"),
               "engine": _choice(_ENGINES, engine, "engine"), "flags": flags}
    path, folder = _file_of(path)
    running = Save(path, progress=progress, **options)
    try:
        if folder is not None:
            os.mkdir(folder)
            running._made_folder(os.path.abspath(folder))
        _fill(running, tensors, metadata)
        running._begin(stream)
    except BaseException:
        _hoist.Save.close(running)
        raise
    return running
