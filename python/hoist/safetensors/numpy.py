# SPDX-License-Identifier: MIT
"""safetensors.numpy: files and bytes to dicts of arrays, and back."""

import numpy

from ..numpy import _dtype_of
from .files import dtype_of, read_bytes, write_bytes, write_file
from .opening import safe_open


def _entries(tensor_dict):
    """{name: (dtype, shape, array)}"""
    ret = {}
    for name, array in tensor_dict.items():
        dtype = dtype_of(array.dtype.name)
        array.ctypes  # pylint: disable=pointless-statement  # numbers have none, and are refused
        ret[name] = dtype, array.shape, array
    return ret


def _reader(array):
    return lambda: (array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
                    ).tobytes()


def save(tensor_dict, metadata=None):
    """The bytes of a file of {name: array}; metadata: a dict of str, or None."""
    return write_bytes({name: (dtype, shape, _reader(array))
                        for name, (dtype, shape, array) in _entries(tensor_dict).items()}, metadata)


def save_file(tensor_dict, filename, metadata=None):
    """Writes a file of {name: array}; metadata: a dict of str, or None."""
    write_file(_entries(tensor_dict), filename, metadata)


def load(data):
    """{name: array} of the bytes of a file."""
    return {tensor.name: numpy.frombuffer(content, _dtype_of(tensor.dtype)).reshape(tensor.shape)
            for tensor, content in read_bytes(data)}


def load_file(filename, *, backend="mmap"):
    """{name: array} of a file.  The arrays own their memory."""
    with safe_open(filename, framework="np", backend=backend) as f:
        return f.get_tensors()
