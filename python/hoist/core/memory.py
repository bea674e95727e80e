# SPDX-License-Identifier: MIT
"""Memory resources as cuda.core has them."""

import weakref

from .. import _hoist
from .buffer import Buffer


def _device(value):
    """A Device of a Device, an ordinal among the accelerators, or a spec."""
    return _hoist.Device(f"gpu:{value}" if isinstance(value, int) else value)


def _option(options, name, default=None):
    if options is None:
        return default
    return options.get(name, default) if isinstance(options, dict) else getattr(options, name,
                                                                                default)


class MemoryResource:
    """What buffers come from; a program may inherit from it and say how.

    A class of a program's has allocate(), which returns Buffer.from_handle(ptr, size, mr=self),
    deallocate(), is_device_accessible, is_host_accessible and device_id.
    """

    def allocate(self, size, stream=None):
        """A Buffer of `size` bytes."""
        raise TypeError("MemoryResource.allocate must be implemented by subclasses")

    def deallocate(self, ptr, size, stream=None):
        """Gives a block back, behind the work on `stream`."""
        raise TypeError("MemoryResource.deallocate must be implemented by subclasses")

    @property
    def is_device_accessible(self):
        """Whether an accelerator can access the memory."""
        raise TypeError("MemoryResource.is_device_accessible must be implemented by subclasses")

    @property
    def is_host_accessible(self):
        """Whether the CPU can access the memory."""
        raise TypeError("MemoryResource.is_host_accessible must be implemented by subclasses")

    @property
    def device_id(self):
        """As the driver counts; -1: the CPU's memory."""
        raise TypeError("MemoryResource.device_id must be implemented by subclasses")

    is_managed = False


class _Native(MemoryResource):
    """A resource of hoist's own."""

    def __init__(self, memory):
        self._set(memory)

    def _set(self, memory):
        self._memory = memory
        self._info = memory.info()

    def _open(self):
        if self._memory is None:
            raise RuntimeError(f"{type(self).__name__} is closed")
        return self._memory

    def allocate(self, size, stream=None):
        """A Buffer of `size` bytes; without a stream it is ready for all streams."""
        return Buffer._make(self._open().alloc(size, stream), self)

    def deallocate(self, ptr, size, stream=None):
        """Blocks of hoist's resources are given back by Buffer.close()."""
        raise TypeError("close the Buffer: it gives its block back")

    def close(self):
        """Lets go of the resource; buffers keep what they need."""
        self._memory = None

    is_device_accessible = property(lambda self: self._info["is_device_accessible"])
    is_host_accessible = property(lambda self: self._info["is_host_accessible"])
    is_managed = property(lambda self: self._info["is_managed"])
    device_id = property(lambda self: self._info["device_id"])
    device = property(lambda self: self._info["device"])


class _Attributes:
    """The attributes of a pool, asked from the driver each time."""

    __slots__ = ("_resource",)

    _BOOLS = ("reuse_follow_event_dependencies", "reuse_allow_opportunistic",
              "reuse_allow_internal_dependencies")
    _NUMBERS = ("release_threshold", "reserved_mem_current", "reserved_mem_high",
                "used_mem_current", "used_mem_high")

    def __init__(self, resource):
        object.__setattr__(self, "_resource", weakref.ref(resource))

    def _memory(self):
        resource = self._resource()
        if resource is None or resource._memory is None:
            raise RuntimeError("the memory resource is expired")
        return resource._memory

    def __getattr__(self, name):
        if name in self._BOOLS:
            return bool(self._memory().get_attribute(self._BOOLS.index(name)))
        if name in self._NUMBERS:
            return self._memory().get_attribute(3 + self._NUMBERS.index(name))
        raise AttributeError(f"a pool has no attribute {name!r}")

    def __setattr__(self, name, value):
        names = self._BOOLS + self._NUMBERS
        if name not in names:
            raise AttributeError(f"a pool has no attribute {name!r}")
        self._memory().set_attribute(names.index(name), int(value))

    def __repr__(self):
        return f"<attributes of {self._resource()!r}>"


class DeviceMemoryResource(_Native):
    """A pool of a device, ordered by streams.

    `options` (an object or a dict): `ipc_enabled`, `max_size`.  Without options it is the device's
    current pool, which outlives the resource.
    """

    def __init__(self, device_id, options=None):
        device = _device(device_id)
        if options is None:
            memory = _hoist.Memory("pool", device, current_pool=True)
        else:
            memory = _hoist.Memory("pool", device, shareable=_option(options, "ipc_enabled", False),
                                   limit=_option(options, "max_size", 0))
        super().__init__(memory)

    def allocate(self, size, stream=None):
        """A Buffer of `size` bytes.  Raises TypeError for another process's pool."""
        if self.is_mapped:
            raise TypeError("another process's pool allocates nothing here")
        return super().allocate(size, stream)

    is_ipc_enabled = property(lambda self: self._info["is_shareable"])
    is_mapped = property(lambda self: self._info["is_mapped"])
    is_handle_owned = property(lambda self: self._info["is_own"])

    @property
    def handle(self):
        """The driver's handle of the pool."""
        return self._open().native_pool()

    @property
    def attributes(self):
        """What the driver says of the pool.  Raises RuntimeError once the resource is closed."""
        return _Attributes(self)

    @property
    def uuid(self):
        """The name of an IPC-enabled pool."""
        from . import ipc  # pylint: disable=import-outside-toplevel
        return ipc.uuid_of(self)

    def get_allocation_handle(self):
        """A handle for another process.  Raises RuntimeError if the pool is not IPC-enabled."""
        from . import ipc  # pylint: disable=import-outside-toplevel
        return ipc.allocation_handle(self)

    @classmethod
    def from_allocation_handle(cls, device_id, alloc_handle):
        """The pool of another process."""
        from . import ipc  # pylint: disable=import-outside-toplevel
        return ipc.from_allocation_handle(cls, _device(device_id), alloc_handle)

    def register(self, uuid):
        """Registers the pool under its name, for pickles.  Returns the one that is registered."""
        from . import ipc  # pylint: disable=import-outside-toplevel
        return ipc.register(self, uuid)

    @classmethod
    def from_registry(cls, uuid):
        """The pool that is registered.  Raises RuntimeError if there is none."""
        from . import ipc  # pylint: disable=import-outside-toplevel
        return ipc.from_registry(uuid)

    def __reduce__(self):
        return DeviceMemoryResource.from_registry, (self.uuid,)


class PinnedMemoryResource(_Native):
    """Host memory that a device copies from and to directly."""

    def __init__(self, options=None, device=0):
        super().__init__(_hoist.Memory("pinned", _device(device),
                                       limit=_option(options, "max_size", 0)))

    device_id = property(lambda self: -1)


class LegacyPinnedMemoryResource(PinnedMemoryResource):
    """As PinnedMemoryResource; `device_id` is a RuntimeError."""

    @property
    def device_id(self):
        """Pinned memory belongs to no device."""
        raise RuntimeError("pinned memory belongs to no device")


class ManagedMemoryResource(_Native):
    """Memory that the driver moves between a device and the host."""

    def __init__(self, options=None, device=0):
        location = _option(options, "preferred_location_type")
        prefer = [None, "device", "host", "host_numa"].index(location)
        super().__init__(_hoist.Memory("managed", _device(device), prefer=prefer,
                                       node=_option(options, "preferred_location") or 0
                                       if location == "host_numa" else 0))


class GraphMemoryResource(_Native):
    """Memory for graphs that streams capture: one resource for each device."""

    _known = {}

    def __new__(cls, device_id):
        device = _device(device_id)
        if device not in cls._known:
            self = super().__new__(cls)
            self._set(_hoist.Memory.of_device("graph", device))
            cls._known[device] = self
        return cls._known[device]

    def __init__(self, device_id):
        pass

    def close(self):
        """Does nothing: the resource is its device's."""

    def trim(self):
        """Gives back memory that no graph uses."""
        self._memory.trim()


class VirtualMemoryResource(_Native):
    """Blocks that can grow; sizes are rounded up to the driver's granularity.

    `config` (an object or a dict): `granularity` ("recommended", "minimum"), `gpu_direct_rdma`.
    """

    def __init__(self, device_id, config=None):
        super().__init__(_hoist.Memory(
            "virtual", _device(device_id), rdma=bool(_option(config, "gpu_direct_rdma", False)),
            minimum_granularity=_option(config, "granularity") == "minimum"))
        self._granularity = self._memory.granularity()

    def _rounded(self, size):
        return -(-size // self._granularity) * self._granularity

    def allocate(self, size, stream=None):
        """A Buffer of `size` bytes, rounded up."""
        return super().allocate(self._rounded(size), stream)

    def modify_allocation(self, buf, new_size, config=None):
        """The buffer, grown to `new_size` bytes; the old object is closed.

        A size that is not larger gives the buffer as it is.
        """
        del config
        if new_size <= buf.size:
            return buf
        return Buffer._make(_hoist.Memory.grow(buf._buffer, self._rounded(new_size)), self)
