# SPDX-License-Identifier: MIT
"""Files of safetensors, in memory and on disk."""

import contextlib
import ctypes
import functools
import json
import operator
import os

from .. import _hoist
from ..checkpoint import Checkpoint
from ..errors import Error
from ..save import Save, _add

_NAMES = ("bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 bfloat16 "
          "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
          "float4_e2m1fn_x2 complex64").split()

# Codes in the order of the tensors of a file, which puts wide elements first.
_ORDER = ("U64 I64 F64 C64 F32 U32 I32 BF16 F16 U16 I16 F8_E5M2FNUZ F8_E4M3FNUZ F8_E8M0 F8_E4M3 "
          "F8_E5M2 I8 U8 F6_E3M2 F6_E2M3 F4 BOOL").split()

_quoted = json.encoder.encode_basestring


class SafetensorError(Error):
    """A file, a dtype, an index or a name that safetensors does not allow."""


@contextlib.contextmanager
def errors():
    """Failures of the library become SafetensorError."""
    try:
        yield
    except SafetensorError:
        raise
    except Error as error:
        raise SafetensorError(str(error)) from error


@functools.cache
def dtype_of(name):
    """hoist's dtype of a name that NumPy and torch give, such as "float32"."""
    if name not in _NAMES:
        raise SafetensorError(f'Unknown dtype "{name}". Supported dtypes: {", ".join(_NAMES)}')
    return "f4_e2m1fn" if name.endswith("_x2") else _hoist.dtype_from_numpy(name)


@functools.cache
def code_of(dtype):
    """safetensors' code of one of hoist's dtypes: "BF16"; None."""
    return _hoist.dtype_info(dtype)["safetensors"]


class TensorSpec:
    """A tensor that is to be saved.

    Parameters
    ----------
    dtype : str
        A name such as "bfloat16"; the attribute of this name is the file's code, "BF16".
    shape : sequence of int
    data_ptr : int
        The address of contiguous host memory, which the caller keeps until it has been saved.
    data_len : int
        Bytes.

    Raises
    ------
    SafetensorError
        safetensors has no such dtype.
    TypeError, OverflowError
        The shape is no sequence; a number is negative.
    """

    __slots__ = ("_dtype", "_shape", "_data_ptr", "_data_len")

    def __init__(self, *, dtype, shape, data_ptr, data_len):
        if isinstance(shape, str) or not hasattr(shape, "__len__"):
            raise TypeError(f"argument 'shape': {type(shape).__name__!r} object is not a sequence")
        extents = [operator.index(extent) for extent in shape]
        if any(extent < 0 for extent in extents + [data_ptr, data_len]):
            raise OverflowError("can't convert negative int to unsigned")
        self._dtype = dtype_of(dtype)
        if dtype == "float4_e2m1fn_x2" and extents:
            extents[-1] *= 2
        self._shape, self._data_ptr, self._data_len = extents, data_ptr, data_len

    @property
    def dtype(self):
        """The code in the file."""
        return code_of(self._dtype)

    @property
    def shape(self):
        """The extents, a list: of elements, also where torch packs two in a byte."""
        return list(self._shape)

    @property
    def data_ptr(self):
        """The address."""
        return self._data_ptr

    @property
    def data_len(self):
        """Bytes."""
        return self._data_len

    def __repr__(self):
        return (f"TensorSpec(dtype={self.dtype!r}, shape={self._shape}, data_ptr={self._data_ptr}, "
                f"data_len={self._data_len})")

    def memory(self):
        """A memoryview of the bytes."""
        n = 1
        for extent in self._shape:
            n *= extent
        if n * _hoist.dtype_info(self._dtype)["bits"] != 8 * self._data_len:
            raise SafetensorError("Error while serializing: the shape and the dtype of the tensor do "
                                  f"not match its {self._data_len} bytes")
        if self._data_len == 0:
            return memoryview(b"")
        return memoryview((ctypes.c_ubyte * self._data_len).from_address(self._data_ptr)).cast("B")


def _check(tensors, metadata):
    for name in tensors:
        if not isinstance(name, str):
            raise TypeError(f"the name of a tensor is a str, not {type(name).__name__}")
        if name in ("", "__metadata__"):
            raise SafetensorError(f"Error while serializing: no tensor can be called {name!r}")
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        raise TypeError(f"argument 'metadata': {type(metadata).__name__!r} object is not a dict")
    for text in (*metadata.keys(), *metadata.values()):
        if not isinstance(text, str):
            raise TypeError(f"argument 'metadata': {type(text).__name__!r} object is not a str")


@functools.cache
def _place(dtype):
    return _ORDER.index(code_of(dtype))


def _sorted(entries):
    """{name: (dtype, shape, source)} in the order of a file."""
    return sorted(entries.items(), key=lambda item: (_place(item[1][0]), item[0]))


def write_bytes(entries, metadata, read):
    """The bytes of a file of {name: (dtype, shape, source)}.

    `read(source)` gives (what has the bytes of a source in the buffer protocol, their number).
    """
    _check(entries, metadata)
    header = [] if metadata is None else ['"__metadata__":' + json.dumps(metadata, ensure_ascii=False,
                                                                         separators=(",", ":"))]
    parts = [b"", b""]
    at = 0
    for name, (dtype, shape, source) in _sorted(entries):
        part, n = read(source)
        header.append(f'{_quoted(name)}:{{"dtype":"{code_of(dtype)}","shape":[{",".join(map(str, shape))}],'
                      f'"data_offsets":[{at},{at + n}]}}')
        at += n
        parts.append(part)
    text = f"{{{','.join(header)}}}".encode()
    text += b" " * (-len(text) % 8)
    parts[:2] = [len(text).to_bytes(8, "little"), text]
    return b"".join(parts)


def write_file(entries, filename, metadata, add=_add):
    """Writes a file of {name: (dtype, shape, source)}; `add(save, name, source)` adds a source."""
    if not isinstance(filename, str):
        if isinstance(filename, bytes):
            raise TypeError("argument 'filename': 'bytes' object is not an instance of 'str'")
        filename = os.fspath(filename)
    _check(entries, metadata)
    with errors():
        save = Save(filename, format="safetensors")
        for name, (_, _, source) in _sorted(entries):
            add(save, name, source)
        for key, value in (metadata or {}).items():
            save._metadata(key, value)
        save._begin(None)
        save.wait()


def _specs(tensor_dict):
    for spec in tensor_dict.values():
        if not isinstance(spec, TensorSpec):
            raise TypeError(f"argument 'tensor_dict': {type(spec).__name__!r} object is not an "
                            "instance of 'TensorSpec'")
    return tensor_dict.items()


def _read_spec(spec):
    return spec.memory(), spec._data_len


def _add_spec(save, name, spec):
    save._add_memory(name, spec.memory(), spec._dtype, spec._shape)


def serialize(tensor_dict, metadata=None):
    """The bytes of a file.

    Parameters
    ----------
    tensor_dict : dict of str and TensorSpec
    metadata : dict of str, optional

    Returns
    -------
    bytes

    Raises
    ------
    SafetensorError
        A shape and a dtype do not fit the bytes; a name is not allowed.
    TypeError
        A value is no TensorSpec; the metadata are no dict of str.
    """
    return write_bytes({name: (spec._dtype, spec._shape, spec) for name, spec in _specs(tensor_dict)},
                       metadata, _read_spec)


def serialize_file(tensor_dict, filename, metadata=None):
    """Writes a file, which appears whole or not at all.

    Parameters
    ----------
    tensor_dict : dict of str and TensorSpec
    filename : str or os.PathLike
    metadata : dict of str, optional

    Raises
    ------
    SafetensorError
        As `hoist.safetensors.serialize()`, or writing failed.
    TypeError
        As `hoist.safetensors.serialize()`.
    """
    write_file({name: (spec._dtype, spec._shape, spec) for name, spec in _specs(tensor_dict)},
               filename, metadata, _add_spec)


def deserialize(bytes):  # pylint: disable=redefined-builtin
    """The tensors of the bytes of a file.

    Parameters
    ----------
    bytes : bytes

    Returns
    -------
    list of tuple
        (name, {"dtype": code, "shape": list, "data": bytearray}).

    Raises
    ------
    SafetensorError
        The bytes are malformed.
    TypeError
        `bytes` are no bytes.
    """
    return [(tensor.name, {"dtype": code_of(tensor.dtype), "shape": list(tensor.shape), "data": data})
            for tensor, data in read_bytes(bytes)]


def read_bytes(data):
    """(Tensor, bytearray) of each tensor of the bytes of a file.

    The library checks the header, in a file of the same size that has the header alone: what lies
    behind it takes no memory there.
    """
    if not isinstance(data, bytes):
        raise TypeError(f"argument 'bytes': {type(data).__name__!r} object is not an instance of "
                        "'bytes'")
    if len(data) < 8:
        raise SafetensorError("Error while deserializing: header too small")
    fd = os.memfd_create("hoist.safetensors", os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb", buffering=0) as file, errors():
        view = memoryview(data)
        head = min(len(data), 8 + int.from_bytes(data[:8], "little"))
        done = 0
        while done < head:
            done += file.write(view[done:head])
        file.truncate(len(data))
        with Checkpoint._open_here(f"/proc/self/fd/{fd}") as checkpoint:
            if checkpoint.format != "safetensors":
                raise SafetensorError("Error while deserializing: these are no bytes of safetensors")
            return [(t, bytearray(view[t.offset : t.offset + t.nbytes])) for t in checkpoint.values()]
