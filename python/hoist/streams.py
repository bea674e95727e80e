# SPDX-License-Identifier: MIT
"""Streams of other libraries: torch.cuda.Stream, cuda.core.Stream, and what has `__cuda_stream__`."""

import os
import sys
import threading
import weakref

from . import _hoist

# The end of a wrapper waits for its stream's work, and a wrapper must end before its stream.  torch's
# streams never end, and each call of torch.cuda.current_stream() makes another object: their wrappers
# stay.  Other libraries' streams end with their object, and so do their wrappers.
_of_torch = {}
_of_others = {}  # id of the object: (weak reference to it, wrapper)
# One wrapper for one stream; re-entrant, as the collector may call of() meanwhile.
_lock = threading.RLock()


def _renew_lock():
    """In a child of fork: another thread may have held the lock."""
    global _lock  # pylint: disable=global-statement
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _device_of(stream):
    """The device of a stream, by the words of torch or of cuda.core; None: the stream has none."""
    device = getattr(stream, "device", None)
    number = getattr(device, "device_id", None)
    if number is not None:
        return _hoist.Device(f"cuda:{number}")
    if device is None:
        return None
    torch = sys.modules.get("torch")
    spec = str(device)
    is_hip = torch is not None and getattr(torch.version, "hip", None)
    return _hoist.Device(spec.replace("cuda", "hip") if is_hip else spec)


def _wrap(stream, handle):
    device = _device_of(stream)
    if device is None:
        raise TypeError(f"{type(stream).__name__!r} does not say which device its stream is of: give "
                        f'hoist.Stream("cuda:0", native={handle:#x})')
    return _hoist.Stream(device, handle)


def of(stream):
    """The hoist.Stream over another library's stream.

    Parameters
    ----------
    stream : object
        With `__cuda_stream__()`, or an attribute `cuda_stream`, and with `device`.

    Returns
    -------
    hoist.Stream
        It lives as long as `stream`.

    Raises
    ------
    TypeError
        The object is no stream, does not name its device, or has no weak references.
    """
    if isinstance(stream, _hoist.Stream):
        return stream
    protocol = getattr(type(stream), "__cuda_stream__", None)
    handle = protocol(stream) if protocol is not None else (0, getattr(stream, "cuda_stream", None))
    if not isinstance(handle, tuple) or len(handle) != 2 or not isinstance(handle[1], int):
        raise TypeError("a stream is a hoist.Stream, None, or an object with __cuda_stream__(), not "
                        f"{type(stream).__name__!r}")
    if handle[0] != 0:
        raise TypeError(f"__cuda_stream__() has version {handle[0]}; hoist knows version 0")
    # torch's own streams live as long as the process; those that it wraps do not.
    if type(stream).__module__.split(".")[0] == "torch" and type(stream).__name__ != "ExternalStream":
        key = (str(stream.device), handle[1])
        with _lock:
            if key not in _of_torch:
                _of_torch[key] = _wrap(stream, handle[1])
            return _of_torch[key]
    number = id(stream)
    with _lock:
        known = _of_others.get(number)
        if known is None or known[1].native != handle[1]:
            known = _of_others[number] = (weakref.ref(stream, lambda _: _of_others.pop(number, None)),
                                          _wrap(stream, handle[1]))
        return known[1]
