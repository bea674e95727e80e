# SPDX-License-Identifier: MIT
"""NumPy arrays: over buffers of the host, and of whole checkpoints.

Types that NumPy lacks (bf16, fp8) come as ml_dtypes' types, where that package is installed.
"""

import functools

import numpy

from . import _hoist
from .buffer import tell_numpy
from .errors import ReadOnlyError
from .load import load, load_all, of_all
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
    tell_numpy()
    if info["bits"] % 8 or not hasattr(ml_dtypes, info["numpy"] or ""):
        raise TypeError(f"no type of NumPy or ml_dtypes is {name}; view(\"u8\") gives the bytes")
    return numpy.dtype(getattr(ml_dtypes, info["numpy"]))


_SAME_SIZE = {8: "u8", 16: "u16"}


@functools.cache
def _way_of(name):
    """(None, NumPy's dtype), or (the dtype that NumPy has in its place, ml_dtypes' dtype)."""
    info, dtype = _hoist.dtype_info(name), _dtype_of(name)
    return None if info["numpy_native"] else _SAME_SIZE[info["bits"]], dtype


def asarray(buffer):
    """An array over the elements of a host buffer, without a copy.  The array keeps the buffer.

    Parameters
    ----------
    buffer : hoist.Buffer
        On the host, or pinned.  Work on the buffer's stream is waited for.

    Returns
    -------
    numpy.ndarray
        Read-only if the buffer is.

    Raises
    ------
    TypeError
        NumPy lacks the dtype, and ml_dtypes is not installed or lacks it, too; the elements are in
        device memory.
    """
    bits, dtype = _way_of(buffer.dtype)
    return numpy.asarray(buffer) if bits is None else numpy.asarray(buffer.view(bits)).view(dtype)


def as_buffer(array):
    """A Buffer over the memory of an array, without a copy.  The buffer keeps the array.

    Parameters
    ----------
    array : numpy.ndarray
        Of any strides that are whole elements.

    Returns
    -------
    hoist.Buffer

    Raises
    ------
    ReadOnlyError
        The array cannot be written to.
    InvalidError
        hoist lacks the dtype.
    BufferError
        The array has another byte order, or strides that are no whole elements.
    """
    if not array.flags.writeable:
        raise ReadOnlyError("the array is read-only; give one that can be written to")
    name = _hoist.dtype_from_numpy(array.dtype.name)
    info = _hoist.dtype_info(name)
    if not array.dtype.isnative:
        raise BufferError(f"the array has the byte order {array.dtype.byteorder!r}, and hoist the "
                          "machine's; astype() makes a copy")
    if not info["numpy_native"]:  # NumPy's buffers have none of ml_dtypes' types
        array = array.view(f"u{info['bits'] // 8}")
    # Not by DLPack: Python's collector would not see that the buffer keeps the array.
    try:
        return _hoist.Buffer.from_buffer(array, name)
    except ValueError as error:
        raise BufferError(str(error)) from error


def load_file(source, **options):
    """Loads all tensors to the host.

    Ranges of the files that the page cache holds are mapped, copy-on-write (`io` "adaptive", the
    default here): the files must not shrink, or be written to, while the arrays live.  With
    `io="auto"` the arrays own their memory.

    Parameters
    ----------
    source : str, os.PathLike or hoist.Checkpoint
    **options
        Those of `hoist.load()`, without `device`, `stream`, `targets` and `window`.

    Returns
    -------
    dict of str and numpy.ndarray

    Raises
    ------
    TypeError
        NumPy lacks a dtype, as in `hoist.numpy.asarray()`; an option that a load to the host has not.
    hoist.Error, ValueError
        As `hoist.load()`.
    """
    for name in ("device", "stream", "targets"):
        if options.get(name) is not None:
            raise TypeError(f"arrays are on the host: load_file() has no option {name!r}")
    if not options.get("drop_cache"):
        options.setdefault("io", "adaptive")
    return of_all(asarray, load_all(source, **options))


def load_into(arrays, source, **options):
    """Loads tensors into arrays, where they are.

    Parameters
    ----------
    arrays : dict of str and numpy.ndarray
        Names, or globs that match one tensor, and the arrays, each with the shape of its tensor, any
        strides, and its dtype or another one of f32, f16 and bf16.
    source : str, os.PathLike or hoist.Checkpoint
    **options
        Those of `hoist.load()`, without `tensors`, `dtype`, `targets` and `window`.

    Raises
    ------
    hoist.Error, ValueError, TypeError
        As `hoist.load()` with `into`.  After a failure the exception has `into_states` (`hoist.Load`).
    """
    load_all(source, into=arrays, **options)


def iter(source, **options):  # pylint: disable=redefined-builtin
    """Gives tensors as they arrive; with `window`, arrays that the program drops make room.

    The load runs beside the program, and is cancelled when the generator is closed.

    Parameters
    ----------
    source : str, os.PathLike or hoist.Checkpoint
    **options
        Those of `hoist.load()`, without `device`, `targets` and `into`.

    Yields
    ------
    name : str
    array : numpy.ndarray

    Raises
    ------
    WindowError
        The window is full of arrays that the program holds.
    hoist.Error, ValueError, TypeError
        As `hoist.load()`.
    """
    with load(source, **options) as running:
        for name, buffer in running:
            box = [asarray(buffer)]
            del buffer  # the window counts what this generator holds, too
            yield name, box.pop()


def save_file(tensors, path, **options):
    """Saves arrays, and returns when the file is at its path.

    Parameters
    ----------
    tensors : dict of str and numpy.ndarray
        Of any strides and byte order, of NumPy's types and ml_dtypes'; read-only ones, too.
    path : str or os.PathLike
    **options
        Those of `hoist.save()`.

    Raises
    ------
    hoist.Error, ValueError, TypeError
        As `hoist.save()` and `hoist.Save.wait()`.  The old file is at the path.
    """
    save(tensors, path, **options).wait()
