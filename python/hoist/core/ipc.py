# SPDX-License-Identifier: MIT
"""Buffers and pools of other processes, as cuda.core has them."""

import multiprocessing.reduction
import os
import uuid as _uuid

from .. import _hoist
from .buffer import Buffer
from .memory import DeviceMemoryResource

_registry = {}  # the name of a pool -> the resource, for good: pickles name it
_crossing = {}  # the same -> its handle, for good


def _check(mr):
    if not getattr(mr, "is_ipc_enabled", False) and not getattr(mr, "is_mapped", False):
        raise RuntimeError("Memory resource is not IPC-enabled")


class IPCBufferDescriptor:
    """The description of a buffer for another process; it pickles."""

    __slots__ = ("_payload", "_size")

    def __init__(self, *_, **__):
        raise RuntimeError("a descriptor comes from Buffer.get_ipc_descriptor()")

    @classmethod
    def _init(cls, payload, size):
        self = cls.__new__(cls)
        self._payload, self._size = bytes(payload), size
        return self

    @property
    def size(self):
        """Bytes of the buffer."""
        return self._size

    def __reduce__(self):
        return IPCBufferDescriptor._init, (self._payload, self._size)


class IPCAllocationHandle:
    """A file descriptor that stands for a pool; `close()` closes it."""

    def __init__(self, *_, **__):
        raise RuntimeError("a handle comes from DeviceMemoryResource.get_allocation_handle()")

    @classmethod
    def _init(cls, fd, uuid):
        if fd < 0:
            raise ValueError(f"{fd} is no file descriptor")
        self = cls.__new__(cls)
        self._fd, self._uuid = fd, uuid
        return self

    def close(self):
        """Closes the file descriptor.  Closing again does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self):
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def __int__(self):
        if self._fd < 0:
            raise ValueError("the handle was closed")
        return self._fd

    handle = property(__int__, doc="The file descriptor.  Raises ValueError after close().")
    uuid = property(lambda self: self._uuid, doc="The pool's name.")
    is_closed = property(lambda self: self._fd < 0, doc="True after close().")

    def __bool__(self):
        return True


def describe(buffer):
    """The descriptor of a buffer."""
    _check(buffer.memory_resource)
    payload, fd = _hoist.Memory.ipc_export(buffer._buffer)
    if fd >= 0:
        os.close(fd)
    return IPCBufferDescriptor._init(payload, buffer.size)


def from_descriptor(cls, mr, descriptor):
    """The buffer of a descriptor."""
    _check(mr)
    if not isinstance(descriptor, IPCBufferDescriptor):
        raise TypeError(f"an IPCBufferDescriptor is needed, not {type(descriptor).__name__}")
    buffer = _hoist.Memory.ipc_import(descriptor._payload, -1, mr._open())
    if descriptor.size > buffer.nbytes:
        raise ValueError(f"the size, {descriptor.size}, exceeds the mapped allocation extent, "
                         f"{buffer.nbytes}")
    return cls._make(buffer, mr)


def uuid_of(mr):
    """The name of a pool."""
    _check(mr)
    return _uuid.UUID(bytes=mr._open().uuid())


def allocation_handle(mr):
    """A pool's handle."""
    _check(mr)
    ret = IPCAllocationHandle.__new__(IPCAllocationHandle)
    ret._fd, ret._uuid = -1, uuid_of(mr)
    ret._fd = mr._open().export_memory()  # needs no memory behind the call, which would lose the descriptor
    return ret


def from_allocation_handle(cls, device, handle):
    """The pool of a handle; of a file descriptor that a process got by other ways, too."""
    name = handle.uuid.bytes if isinstance(handle, IPCAllocationHandle) else bytes(16)
    self = cls.__new__(cls)
    self._set(_hoist.Memory.import_memory(device, int(handle), name))
    return self


def register(mr, uuid):
    """Registers a pool."""
    _check(mr)
    return _registry.setdefault(_uuid.UUID(str(uuid)), mr)


def from_registry(uuid):
    """The registered pool."""
    if uuid not in _registry:
        raise RuntimeError(f"Memory resource {uuid} was not found")
    return _registry[uuid]


def _rebuild(device, fd, uuid):
    """In the process that a pool was sent to."""
    if uuid not in _registry:
        handle = IPCAllocationHandle._init(fd.detach(), uuid)
        _registry.setdefault(uuid, from_allocation_handle(DeviceMemoryResource, device, handle))
        handle.close()
    return _registry[uuid]


def _reduce(mr):
    """The handle stays open: a process that is being started inherits the descriptor only later."""
    if mr.uuid not in _crossing:
        _crossing.setdefault(mr.uuid, allocation_handle(mr))
    handle = _crossing[mr.uuid]
    _registry.setdefault(mr.uuid, mr)
    return _rebuild, (mr.device.spec, multiprocessing.reduction.DupFd(int(handle)), mr.uuid)


multiprocessing.reduction.register(DeviceMemoryResource, _reduce)

__all__ = ["Buffer", "IPCAllocationHandle", "IPCBufferDescriptor"]
