# SPDX-License-Identifier: MIT
"""The exceptions of hoist.

Each is an `Error`, and also the built-in exception that a Python program would expect:
`except FileNotFoundError` and `except hoist.Error` both catch a missing file.

Attributes of each: `errno` (positive), `driver_error` (the number that a driver gave; 0: none) and
`driver_api` ("cuda", "hip" or None); after a load in place, `into_states` (`hoist.Load`).  The text is the library's: what failed, why, and the remedy.
"""

import errno as _errno


class Error(Exception):
    """The base of all exceptions of hoist."""

    errno = 0
    driver_error = 0
    driver_api = None
    into_states = None

    def __str__(self):
        return str(self.args[-1]) if self.args else ""


class NotFoundError(Error, FileNotFoundError):
    """A file, a tensor or a library does not exist."""


class AccessError(Error, PermissionError):
    """The system forbids the operation."""


class OutOfMemoryError(Error, MemoryError):
    """Memory, of the host or of a device, or a limit, is exhausted."""


class InvalidError(Error, ValueError):
    """An argument is wrong."""


class FormatError(Error, ValueError):
    """A file is malformed, or changed while hoist read it."""


class ClosedError(Error, ValueError):
    """The object was closed."""


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
    """There is no such device, or its driver failed."""


class CancelledError(Error, RuntimeError):
    """The operation was cancelled."""


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
    _errno.ENOBUFS: WindowError,
    _errno.ETIMEDOUT: TimedOutError,
    _errno.ESTALE: StaleError,
    _errno.ECONNRESET: PeerError,
    _errno.EPROTO: PeerError,
    _errno.EPIPE: PeerError,
    _errno.ECHILD: PeerError,
}


def make(number, text, driver_error=0, driver_api=None):
    """The exception for an errno value."""
    cls = _CLASSES.get(number, KernelError)
    if number == _errno.ESTALE and "fork" in text:
        text += '; start processes by multiprocessing.get_context("spawn")'
    error = cls(number, text) if issubclass(cls, OSError) else cls(text)
    error.errno = number
    error.driver_error = driver_error
    error.driver_api = driver_api
    return error
