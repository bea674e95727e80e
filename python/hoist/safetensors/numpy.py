# SPDX-License-Identifier: MIT
"""safetensors.numpy: files and bytes to dicts of arrays, and back."""

import functools

import numpy

from ..numpy import _way_of
from ..save import _add
from .files import dtype_of, read_bytes, write_bytes, write_file
from .opening import safe_open


@functools.cache
def _known(dtype):
    """For NumPy's dtype: (hoist's dtype, whether the bytes in memory are those of a file)."""
    return dtype_of(dtype.name), dtype.isnative


def _entries(tensor_dict):
    """{name: (dtype, shape, array)}"""
    ret = {}
    for name, array in tensor_dict.items():
        dtype, _ = _known(array.dtype)
        if array.__class__ is not numpy.ndarray:
            array.ctypes  # pylint: disable=pointless-statement  # numbers have none, and are refused
        ret[name] = dtype, array.shape, array
    return ret


def _is_plain(array):
    """Whether the array's memory has the bytes of a file in their order."""
    return array.__class__ is numpy.ndarray and _known(array.dtype)[1] and array.flags.c_contiguous


def _read(array):
    if not _is_plain(array):
        array = numpy.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return array, array.nbytes


def _add_array(save, name, array):
    if _is_plain(array):
        save._add_memory(name, array, _known(array.dtype)[0], array.shape)
    else:
        _add(save, name, array)


def save(tensor_dict, metadata=None):
    """The bytes of a file.

    Parameters
    ----------
    tensor_dict : dict of str and numpy.ndarray
    metadata : dict of str, optional

    Returns
    -------
    bytes

    Raises
    ------
    SafetensorError
        safetensors has no such dtype; a name is not allowed.
    TypeError
        The metadata are no dict of str.
    """
    return write_bytes(_entries(tensor_dict), metadata, _read)


def save_file(tensor_dict, filename, metadata=None):
    """Writes a file, which appears whole or not at all.

    Parameters
    ----------
    tensor_dict : dict of str and numpy.ndarray
    filename : str or os.PathLike
    metadata : dict of str, optional

    Raises
    ------
    SafetensorError
        safetensors has no such dtype; a name is not allowed; writing failed.
    TypeError
        The metadata are no dict of str.
    """
    write_file(_entries(tensor_dict), filename, metadata, _add_array)


def load(data):
    """The arrays of the bytes of a file.

    Parameters
    ----------
    data : bytes

    Returns
    -------
    dict of str and numpy.ndarray

    Raises
    ------
    SafetensorError
        The bytes are malformed.
    """
    return {tensor.name: numpy.frombuffer(content, _way_of(tensor.dtype)[1]).reshape(tensor.shape)
            for tensor, content in read_bytes(data)}


def load_file(filename, *, backend="mmap"):
    """The arrays of a file, which own their memory.

    Parameters
    ----------
    filename : str or os.PathLike
    backend : {"mmap", "pread"}
        Has no effect on the result.

    Returns
    -------
    dict of str and numpy.ndarray

    Raises
    ------
    SafetensorError, FileNotFoundError
        The file is malformed, or does not exist.
    """
    with safe_open(filename, framework="np", backend=backend) as f:
        return f.get_tensors()
