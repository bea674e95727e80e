# SPDX-License-Identifier: MIT
"""NumPy arrays: over buffers of the host, and of whole checkpoints.

Types that NumPy lacks (bf16, fp8) come as ml_dtypes' types, where that package is installed.
"""

import numpy

from . import _hoist
from .errors import ReadOnlyError
from .load import load, load_all
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
    if info["bits"] % 8 or not hasattr(ml_dtypes, info["numpy"] or ""):
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


def as_buffer(array):
    """A Buffer over the memory of an array, without a copy.  The buffer keeps the array.

    Raises ReadOnlyError for an array that cannot be written to, TypeError for a dtype that hoist
    lacks, and BufferError for one of another byte order.
    """
    if not array.flags.writeable:
        raise ReadOnlyError("the array is read-only; give one that can be written to")
    name = _hoist.dtype_from_numpy(array.dtype.name)
    info = _hoist.dtype_info(name)
    if info["numpy_native"] and name != "bool":
        return _hoist.Buffer.from_dlpack(array)
    # NumPy exports neither ml_dtypes' types nor, before release 1.25, bool.
    bits = (array if array.ndim else array.reshape(1)).view(f"u{info['bits'] // 8}")
    buffer = _hoist.Buffer.from_dlpack(bits).view(name)
    return buffer if array.ndim else buffer.reshape(())


def load_file(source, **options):
    """Loads all tensors to the host: a dict of names and arrays.

    Ranges of the files that the page cache holds are mapped, copy-on-write (`io` "adaptive", the
    default here): the files must not shrink, or be written to, while the arrays live.  With
    `io="auto"` the arrays own their memory.  The options are those of `hoist.load()`, without
    `device`, `stream`, `targets` and `window`.
    """
    if not options.get("drop_cache"):
        options.setdefault("io", "adaptive")
    return {name: asarray(buffer) for name, buffer in load_all(source, **options).items()}


def load_into(arrays, source, **options):
    """Loads tensors into arrays: `arrays` is a dict of names, or globs, and arrays.

    Each array has the shape of its tensor, and its dtype or another one of f32, f16 and bf16.  After
    a failure the exception has `into_states` (`hoist.Load`).  The options are those of
    `hoist.load()`, without `tensors`, `dtype`, `targets` and `window`.
    """
    load_all(source, into=arrays, **options)


def iter(source, **options):  # pylint: disable=redefined-builtin
    """Gives (name, array) as tensors arrive; with `window`, arrays that are dropped make room."""
    with load(source, **options) as running:
        for name, buffer in running:
            box = [asarray(buffer)]
            del buffer  # the window counts what this generator holds, too
            yield name, box.pop()


def save_file(tensors, path, **options):
    """Saves a dict of names and arrays, and returns when the file is at its path.

    The arrays may have any strides and byte order, types of ml_dtypes, and be read-only.  The
    options are those of `hoist.save()`.  Returns None.
    """
    save(tensors, path, **options).wait()
