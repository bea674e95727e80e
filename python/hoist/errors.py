# SPDX-License-Identifier: MIT
"""The exceptions of hoist.

Each is an `hoist.Error`, and also the built-in exception that a Python program would expect:
`except FileNotFoundError` and `except hoist.Error` both catch a missing file.  The text is the
library's: what failed, why, and the remedy.
"""

import errno as _errno


class Error(Exception):
    """The base of all exceptions of hoist.

    Attributes
    ----------
    errno : int
        The library's code, a positive errno value; 0: none.
    driver_error : int
        The number that a driver gave, a CUresult or a hipError_t; 0: none.
    driver_api : {"cuda", "hip"} or None
        The driver.
    into_states : dict, list of dict or None
        After a load in place that failed: which buffers are untouched, torn and whole (`hoist.Load`).
    """

    errno = 0
    driver_error = 0
    driver_api = None
    into_states = None

    def __str__(self):
        return str(self.args[-1]) if self.args else ""


class NotFoundError(Error, FileNotFoundError):
    """A file, a tensor or a library does not exist."""


class MissingError(Error, KeyError):
    """A checkpoint, a load or an image has no tensor of this name."""


class AccessError(Error, PermissionError):
    """The system forbids the operation."""


class OutOfMemoryError(Error, MemoryError):
    """Memory, of the host or of a device, or a limit, is exhausted."""


class InvalidError(Error, ValueError):
    """An argument is wrong; the machine has fewer devices than a device's number says."""


class FormatError(Error, ValueError):
    """A file is malformed, or changed while hoist read it."""


class ClosedError(Error, ValueError, RuntimeError):
    """The object was closed: a ValueError as files have it, a RuntimeError as cuda.core has it."""


class RangeError(Error, IndexError):
    """An index is outside its axis."""


class DTypeError(Error, TypeError):
    """The elements have another dtype."""


class ReadOnlyError(Error, BufferError):
    """The bytes are read-only."""


class LargeError(Error, OverflowError):
    """A number does not fit."""


class UnsupportedError(Error, NotImplementedError):
    """This build, kernel, driver or file system cannot do the operation."""


class DeviceError(Error, RuntimeError):
    """There is no driver or no such device, or the driver failed."""


class CancelledError(Error, RuntimeError):
    """The operation was cancelled."""


class ExistsError(Error, FileExistsError):
    """A file, or a rank of a group, exists already."""


class BusyError(Error, RuntimeError):
    """The object is in use, or its work is not done yet."""


class WindowError(Error, BufferError):
    """The window of a load is full of buffers that the program holds."""


class KernelError(Error, OSError):
    """Another failure of the operating system."""


class StaleError(Error, OSError):
    """The object belongs to another process, which forked this one, or its files have changed."""


class PeerError(Error, ConnectionError):
    """Another process failed: a rank of a group, or the holder of the cache."""


class TimedOutError(Error, TimeoutError):
    """The time is over."""


_CLASSES = {
    _errno.ENOENT: NotFoundError,
    _errno.EPERM: AccessError,
    _errno.EACCES: AccessError,
    _errno.ENOMEM: OutOfMemoryError,
    _errno.ENOSPC: OutOfMemoryError,
    _errno.EDQUOT: OutOfMemoryError,
    _errno.EINVAL: InvalidError,
    _errno.EBADMSG: FormatError,
    _errno.ENODATA: FormatError,
    _errno.EBADF: ClosedError,
    _errno.ERANGE: RangeError,
    _errno.EPROTOTYPE: DTypeError,
    _errno.EROFS: ReadOnlyError,
    _errno.EDOM: LargeError,
    _errno.EOVERFLOW: LargeError,
    _errno.ENOTSUP: UnsupportedError,
    _errno.ENODEV: DeviceError,
    _errno.EREMOTEIO: DeviceError,
    _errno.ECANCELED: CancelledError,
    _errno.EEXIST: ExistsError,
    _errno.EBUSY: BusyError,
    _errno.EAGAIN: BusyError,
    _errno.EDEADLK: BusyError,
    _errno.ENOBUFS: WindowError,
    _errno.ETIMEDOUT: TimedOutError,
    _errno.ESTALE: StaleError,
    _errno.ECONNRESET: PeerError,
    _errno.EPROTO: PeerError,
    _errno.EPIPE: PeerError,
    _errno.ECHILD: PeerError,
}


def make(number, text, driver_error=0, driver_api=None):
    """The exception for an errno value of the library.

    Parameters
    ----------
    number : int
        A positive errno value.
    text : str
    driver_error : int
        The number that a driver gave; 0: none.
    driver_api : {"cuda", "hip"}, optional

    Returns
    -------
    Error
        Of the class that fits the number; KernelError for numbers that have none.
    """
    cls = _CLASSES.get(number, KernelError)
    if number == _errno.ESTALE and "fork" in text:
        text += '; start processes by multiprocessing.get_context("spawn")'
    error = cls(number, text) if issubclass(cls, OSError) else cls(text)
    error.errno = number
    error.driver_error = driver_error
    error.driver_api = driver_api
    return error


def missing(name, others):
    """The exception for a tensor that is looked up by its name.

    Parameters
    ----------
    name : str
    others : str
        The end of the text: what lacks the tensor.

    Returns
    -------
    MissingError
        Its `args` are the name, as a KeyError has it, and the text.
    """
    error = MissingError(name, f"there is no tensor {name!r}: {others}")
    error.errno = _errno.ENOENT
    return error
