# SPDX-License-Identifier: MIT
"""safe_open: tensors and slices of one file, as a program asks for them."""

import contextlib
import errno
import json
import operator
import os

from ..checkpoint import Checkpoint
from ..load import load_all, of_all
from .files import SafetensorError, code_of, errors

_FRAMEWORKS = {"pt": "pt", "torch": "pt", "pytorch": "pt", "np": "np", "numpy": "np"}
_DEVICES = ("cpu", "cuda", "mps", "npu", "xpu", "xla", "mlu", "musa", "hpu")

# Tensors that get memory of their own: smaller ones, and those that the page cache holds, are copied
# from the map of the file, as a load would take longer to set up.
_LOAD_FROM = 8 << 20

# The kernel reads ahead of who touches a map, by less than this.
_ADVISE_FROM = 128 << 10


def _need_str(value, what):
    if not isinstance(value, str):
        raise TypeError(f"argument {what!r}: {type(value).__name__!r} object is not an instance of "
                        "'str'")
    return value


def device_of(device):
    """The device as torch calls it: "cpu", "cuda:1".  Raises SafetensorError."""
    if device is None or device == "cpu":
        return "cpu"
    if not isinstance(device, str):
        try:
            number = operator.index(device)
        except TypeError:
            number = -1
        if not 0 <= number < 2**63:
            raise SafetensorError(f"device {device!r} is invalid")
        return f"cuda:{number}"
    kind, colon, number = device.partition(":")
    if kind not in _DEVICES or kind == "cpu":
        raise SafetensorError(f"device {device} is invalid")
    if colon and not (number.isascii() and number.isdigit()):
        raise ValueError(f"the device {device!r} has no number")
    return f"{kind}:{int(number or 0)}"


class _Numpy:
    """Tensors as NumPy arrays, which own their memory."""

    def __init__(self, device, backend):
        if device != "cpu":
            raise SafetensorError(f"Device {device} is not supported for framework numpy")
        import numpy  # pylint: disable=import-outside-toplevel
        from .. import numpy as own  # pylint: disable=import-outside-toplevel
        self._numpy, self._asarray = numpy, own.asarray
        self.is_mapped = self.is_device = False

    def whole(self, buffer):
        """The array of a mapped buffer."""
        return self._numpy.array(self._asarray(buffer))

    def load(self, checkpoint, tensors=None):
        """{name: array}"""
        return of_all(self._asarray, load_all(checkpoint, tensors=tensors))

    def part(self, buffer, index):
        """The elements of a mapped buffer that `index` selects, by the package's rules."""
        index = _checked(index, buffer.shape)
        return self._numpy.array(self._asarray(buffer)[index])


class _Torch:
    """Tensors of torch, on any device."""

    def __init__(self, device, backend):
        import torch  # pylint: disable=import-outside-toplevel
        from .. import torch as own  # pylint: disable=import-outside-toplevel
        self._torch, self._tensor, self._load_file = torch, own.tensor, own.load_file
        self._device, self._maps = device, backend == "mmap"
        self.is_device = device != "cpu"
        self.is_mapped = self._maps and not self.is_device
        self._spec = None
        if device.startswith("cuda"):
            self._spec = device.replace("cuda", "hip") if torch.version.hip else device

    def _placed(self, tensor):
        return tensor if self._device == "cpu" else tensor.to(self._device)

    def whole(self, buffer):
        """The tensor of a mapped buffer."""
        tensor = self._tensor(buffer)
        return self._placed(tensor if self._maps or self._device != "cpu" else tensor.clone())

    def load(self, checkpoint, tensors=None):
        """{name: tensor}"""
        if self._spec is not None:
            self._torch.empty(0, device=self._device)  # torch's own words, where it has no device
            return of_all(self._tensor, load_all(checkpoint, self._spec, tensors=tensors))
        io = "adaptive" if self._maps else "auto"
        loaded = self._load_file(checkpoint, tensors=tensors, io=io)
        return loaded if not self.is_device else \
            {name: self._placed(tensor) for name, tensor in loaded.items()}

    def part(self, buffer, index):
        """The elements of a mapped buffer that `index` selects, by torch's rules."""
        part = self._tensor(buffer)[index]
        return self._placed(part if self._maps or self._device != "cpu" else part.clone())


# --- indices ---


def _bound(value):
    if value is None:
        return None
    value = operator.index(value)
    if value < 0:
        raise OverflowError("can't convert negative int to unsigned")
    if value >= 2**64:
        raise OverflowError("int too big to convert")
    return value


def _part(one, at):
    """An int, a slice of ints, or an ellipsis."""
    if one is Ellipsis:
        return one
    if isinstance(one, slice):
        begin, end = _bound(one.start), _bound(one.stop)
        step = 1 if one.step is None else operator.index(one.step)
        if not -(2**63) <= step < 2**63:
            raise OverflowError("Python int too large to convert to C long")
        if step <= 0:
            raise SafetensorError(f"Slice step must be a positive integer, got {step}")
        return slice(begin, end, step)
    try:
        one = operator.index(one)
    except TypeError:
        one = 2**63
    if not -(2**63) <= one < 2**63:
        raise SafetensorError(f"Unsupported slice index at position {at}: expected slice, int, or "
                              "ellipsis")
    return one


def _axis(one, axis, size):
    """An int or a slice, checked against the axis."""
    if not isinstance(one, slice):
        if not -size <= one < size:
            raise SafetensorError(f"index {one} out of bounds for tensor dimension #{axis} of size "
                                  f"{size}")
        return one
    begin = 0 if one.start is None else one.start
    end = size if one.stop is None else one.stop
    if begin >= size or end > size or begin > end:
        raise SafetensorError(f"slice {begin}:{end} out of bounds for tensor dimension #{axis} of "
                              f"size {size}")
    return slice(begin, end, one.step)


def _checked(index, shape):
    """An index that NumPy takes, and that means the same there.  Raises SafetensorError; TypeError
    and OverflowError for bounds of slices."""
    if isinstance(index, list):
        if index:
            raise SafetensorError("Non empty lists are not implemented")
        index = slice(0, 0)
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = [_part(one, at) for at, one in enumerate(parts)]
    n_ellipses = sum(one is Ellipsis for one in parts)
    if n_ellipses > 1:
        raise SafetensorError("Only one ellipsis (...) is allowed in slice index")
    if n_ellipses == 1:
        at = next(i for i, one in enumerate(parts) if one is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (len(shape) - len(parts) + 1)
    if len(parts) > len(shape):
        raise SafetensorError(f"more slicing indexes than dimensions in tensor: {len(parts)} for "
                              f"shape {list(shape)}")
    return tuple(_axis(one, axis, shape[axis]) for axis, one in enumerate(parts))


# --- files ---


class PySafeSlice:
    """A tensor of which parts can be taken: `f.get_slice(name)[:, ::8]`.  It outlives its file."""

    def __init__(self, buffer, framework):
        self._buffer, self._framework = buffer, framework

    def get_shape(self):
        """The extents, a list."""
        return list(self._buffer.shape)

    def get_dtype(self):
        """safetensors' code: "F32"."""
        return code_of(self._buffer.dtype)

    def __getitem__(self, index):
        return self._framework.part(self._buffer, index)


class safe_open:  # pylint: disable=invalid-name
    """safe_open(filename, framework, device="cpu", *, backend="mmap")

    Opens a file of safetensors, of which tensors are read when they are asked for.

    Parameters
    ----------
    filename : str or os.PathLike
    framework : str
        "pt", "torch" or "pytorch"; "np" or "numpy".
    device : str or int
        Of torch: "cpu", "cuda:0", 0.
    backend : {"mmap", "pread"}
        See the module's text.

    Raises
    ------
    SafetensorError
        The file is malformed; an argument is wrong; after the file was closed, by each method.
    FileNotFoundError, PermissionError, IsADirectoryError
    """

    def __init__(self, filename, framework, device="cpu", *, backend="mmap"):
        self._checkpoint = None
        if isinstance(filename, bytes):
            raise TypeError("argument 'filename': 'bytes' object is not an instance of 'str'")
        path = os.fspath(filename)
        _need_str(framework, "framework")
        _need_str(backend, "backend")
        if framework not in _FRAMEWORKS:
            raise SafetensorError(f"framework {framework} is invalid: hoist has pt and np")
        if backend not in ("mmap", "pread"):
            raise SafetensorError(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
        kind = _Torch if _FRAMEWORKS[framework] == "pt" else _Numpy
        self._framework = kind(device_of(device), backend)
        self._path = path
        self._mapped = None
        self._checkpoint = self._opened(path)

    @staticmethod
    def _opened(path):
        if not os.path.lexists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        try:
            with errors():
                checkpoint = Checkpoint._open_here(path)
        except SafetensorError as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            raise
        if checkpoint.format != "safetensors" or not os.path.samefile(checkpoint.files[0][0], path):
            checkpoint.close()
            raise SafetensorError(f"Error while deserializing header: {path} is no safetensors file")
        return checkpoint

    def _open(self):
        if self._checkpoint is None:
            raise SafetensorError("File is closed")
        return self._checkpoint

    def _map(self):
        if self._mapped is None:
            with errors():
                self._mapped = load_all(self._checkpoint, io="map")
        return self._mapped

    def _mapped_tensor(self, name):
        """The buffer of the tensor in the map of the file."""
        _need_str(name, "name")
        self._open()
        try:
            return self._map()[name]
        except KeyError:
            raise SafetensorError(f"File does not contain tensor {name}") from None

    def _is_loaded(self, name, nbytes):
        """Whether a tensor is better loaded than touched in the map: it goes to a device, or to memory
        of its own and is not in the page cache.

        Else the kernel is asked for all of it that is not there, and not waited for: alone it would
        fetch some 100 KiB at a time while the tensor is touched.  A file system that cannot be
        asked is left to that.
        """
        if nbytes >= _LOAD_FROM and self._framework.is_device:
            return True
        if nbytes < _ADVISE_FROM:
            return False
        begin = self._checkpoint[name].offset
        with contextlib.suppress(OSError), open(self._path, "rb", buffering=0) as file:
            fd = file.fileno()
            try:
                os.preadv(fd, [bytearray(1)], begin + nbytes - 1, os.RWF_NOWAIT)
            except BlockingIOError:
                if nbytes >= _LOAD_FROM and not self._framework.is_mapped:
                    return True
                os.posix_fadvise(fd, begin, nbytes, os.POSIX_FADV_WILLNEED)
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._checkpoint is not None:
            self._checkpoint.close()
        self._checkpoint = self._mapped = None

    def keys(self):
        """The names of the tensors, sorted: a list."""
        return sorted(self._open())

    def offset_keys(self):
        """The names of the tensors in the order of their bytes: a list."""
        return list(self._open())

    def metadata(self):
        """The texts beside the tensors, a dict; None: the file has no such entry."""
        known = self._open().metadata
        if known:
            return known
        with open(self._path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        return None if header.get("__metadata__") is None else {}

    def get_tensor(self, name):
        """The tensor called `name`.

        Parameters
        ----------
        name : str

        Returns
        -------
        torch.Tensor or numpy.ndarray

        Raises
        ------
        SafetensorError
            There is no such tensor, or the file is closed.
        """
        buffer = self._mapped_tensor(name)
        if self._is_loaded(name, buffer.nbytes):
            with errors():
                return self._framework.load(self._checkpoint, [name])[name]
        return self._framework.whole(buffer)

    def get_tensors(self):
        """All tensors, a dict in the order of their bytes."""
        checkpoint = self._open()
        with errors():
            return self._framework.load(checkpoint)

    def get_slice(self, name):
        """The tensor called `name`, to be indexed.  Only what is taken is read.

        Parameters
        ----------
        name : str

        Returns
        -------
        PySafeSlice
            With `get_shape()`, `get_dtype()` and indices.  It outlives the file.

        Raises
        ------
        SafetensorError
            There is no such tensor, or the file is closed.
        """
        return PySafeSlice(self._mapped_tensor(name), self._framework)
