# SPDX-License-Identifier: MIT
"""NumPy arrays: over buffers of the host, and of whole checkpoints.

Types that NumPy lacks (bf16, fp8) come as ml_dtypes' types, where that package is installed.
"""

import numpy

from . import _hoist
from .load import load_all
from .save import save


def _dtype_of(name):
    info = _hoist.dtype_info(name)
    if info["numpy_native"]:
        return numpy.dtype(info["numpy"])
    try:
        import ml_dtypes  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise TypeError(f"NumPy has no {name}: install ml_dtypes, or take the bytes with "
                        'view("u8")') from error
    if info["numpy"] is None or info["bits"] % 8:
        raise TypeError(f"no type of NumPy or ml_dtypes is {name}; view(\"u8\") gives the bytes")
    return numpy.dtype(getattr(ml_dtypes, info["numpy"]))


_SAME_SIZE = {8: "u8", 16: "u16"}


def asarray(buffer):
    """An array over the elements of a host buffer, without a copy.  The array keeps the buffer."""
    info = _hoist.dtype_info(buffer.dtype)
    if info["numpy_native"]:
        return numpy.asarray(buffer)
    dtype = _dtype_of(buffer.dtype)
    return numpy.asarray(buffer.view(_SAME_SIZE[info["bits"]])).view(dtype)


def load_file(source, **options):
    """Loads all tensors to the host: a dict of names and arrays.

    The options are those of `hoist.load()`, without `device`, `stream`, `window` and `order`.
    """
    return {name: asarray(buffer) for name, buffer in load_all(source, **options).items()}


def save_file(tensors, path, **options):
    """Saves a dict of names and arrays, and returns when the file is at its path.

    The arrays may have any strides and byte order, types of ml_dtypes, and be read-only.  The
    options are those of `hoist.save()`.  Returns None.
    """
    save(tensors, path, **options).wait()
