# SPDX-License-Identifier: MIT
"""Memory resources as cuda.core has them."""

import dataclasses
import typing
import weakref

from .. import _hoist
from ..errors import InvalidError, UnsupportedError
from .buffer import Buffer


def _option(options, name, default=None):
    if options is None:
        return default
    return options.get(name, default) if isinstance(options, dict) else getattr(options, name,
                                                                                default)


@dataclasses.dataclass
class DeviceMemoryResourceOptions:
    """The options of a DeviceMemoryResource; all `options` may also be a dict.

    Parameters
    ----------
    ipc_enabled : bool
    max_size : int
        Bytes; 0: no limit.
    """

    ipc_enabled: bool = False
    max_size: int = 0


@dataclasses.dataclass
class PinnedMemoryResourceOptions:
    """The options of a PinnedMemoryResource.

    Parameters
    ----------
    ipc_enabled : bool
        True is refused: hoist shares no pinned memory.
    max_size : int
        Bytes; 0: no limit.
    numa_id : int, optional
        The NUMA node of the memory; None or -1: one that is near the device.
    """

    ipc_enabled: bool = False
    max_size: int = 0
    numa_id: typing.Optional[int] = None


@dataclasses.dataclass
class ManagedMemoryResourceOptions:
    """The options of a ManagedMemoryResource.

    Parameters
    ----------
    preferred_location : int, optional
    preferred_location_type : {"device", "host", "host_numa"}, optional
        As ManagedMemoryResource says.
    """

    preferred_location: typing.Optional[int] = None
    preferred_location_type: typing.Optional[str] = None


@dataclasses.dataclass
class VirtualMemoryResourceOptions:
    """The options of a VirtualMemoryResource, which says what they mean.

    Parameters
    ----------
    allocation_type, location_type, handle_type, granularity : str
    gpu_direct_rdma : bool
    addr_hint : int
    addr_align : int, optional
    peers : iterable of int or Device
    self_access, peer_access : {"rw", "r"}, optional
    """

    allocation_type: str = "pinned"
    location_type: str = "device"
    handle_type: typing.Optional[str] = "posix_fd"
    granularity: str = "recommended"
    gpu_direct_rdma: bool = False
    addr_hint: int = 0
    addr_align: typing.Optional[int] = None
    peers: typing.Any = ()
    self_access: typing.Optional[str] = "rw"
    peer_access: typing.Optional[str] = "rw"


class MemoryResource:
    """What buffers come from; a program may inherit from it and say how.

    A class of a program's has allocate(), which returns Buffer.from_handle(ptr, size, mr=self),
    deallocate(), is_device_accessible, is_host_accessible and device_id.
    """

    def allocate(self, size, stream=None):
        """A Buffer from this resource.

        Parameters
        ----------
        size : int
            Bytes.
        stream : Stream, optional
            The stream that orders the block.

        Returns
        -------
        Buffer
        """
        raise TypeError("MemoryResource.allocate must be implemented by subclasses")

    def deallocate(self, ptr, size, stream=None):
        """Gives a block back.

        Parameters
        ----------
        ptr : int
        size : int
            Bytes.
        stream : Stream, optional
            Behind the work on this stream.
        """
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
        """A Buffer from this resource.

        Parameters
        ----------
        size : int
            Bytes.
        stream : Stream, optional
            The stream that orders the block; None: the block is ready for all streams.

        Returns
        -------
        Buffer

        Raises
        ------
        OutOfMemoryError
            The memory, or the resource's limit, is exhausted.
        RuntimeError
            The resource is closed.
        """
        return Buffer._make(self._open().alloc(size, stream), self)

    def deallocate(self, ptr, size, stream=None):
        """Is refused: blocks of hoist's resources are given back by `Buffer.close()`.

        Parameters
        ----------
        ptr, size, stream
            Have no effect.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError("close the Buffer: it gives its block back")

    def close(self):
        """Lets go of the resource; buffers keep what they need."""
        self._memory = None

    @property
    def is_closed(self):
        """True after close()."""
        return self._memory is None

    is_device_accessible = property(lambda self: self._info["is_device_accessible"],
                                    doc="Whether an accelerator can access the memory.")
    is_host_accessible = property(lambda self: self._info["is_host_accessible"],
                                  doc="Whether the CPU can access the memory.")
    is_managed = property(lambda self: self._info["is_managed"],
                          doc="Whether the driver moves the memory.")
    device_id = property(lambda self: self._info["device_id"],
                         doc="The device's number, as the driver counts; -1: the CPU's memory.")
    device = property(lambda self: self._info["device"],
                      doc="The hoist.Device that the resource is for.")


class _Attributes:
    """The attributes of a pool, asked from the driver each time."""

    __slots__ = ("_resource",)

    # In the order of hoist/memory-driver.h; the first are True or False.
    _NAMES = ("reuse_follow_event_dependencies", "reuse_allow_opportunistic",
              "reuse_allow_internal_dependencies", "release_threshold", "reserved_mem_current",
              "reserved_mem_high", "used_mem_current", "used_mem_high")
    _N_BOOLS = 3

    def __init__(self, resource):
        object.__setattr__(self, "_resource", weakref.ref(resource))

    def _memory(self):
        resource = self._resource()
        if resource is None or resource._memory is None:
            raise RuntimeError("the memory resource is expired")
        return resource._memory

    def _index(self, name):
        if name not in self._NAMES:
            raise AttributeError(f"the memory has no attribute {name!r}")
        return _Attributes._NAMES.index(name)

    def __getattr__(self, name):
        index = self._index(name)
        value = self._memory().get_attribute(index)
        return bool(value) if index < self._N_BOOLS else value

    def __setattr__(self, name, value):
        self._memory().set_attribute(self._index(name), int(value))

    def __dir__(self):
        return self._NAMES

    def __repr__(self):
        return f"<attributes of {self._resource()!r}>"


class _GraphAttributes(_Attributes):
    """The attributes of a device's memory of graphs."""

    __slots__ = ()
    _NAMES = _Attributes._NAMES[-4:]


class DeviceMemoryResource(_Native):
    """A pool of a device, ordered by streams.

    Parameters
    ----------
    device_id : int, str or Device
    options : object or dict, optional
        `ipc_enabled` (bool), `max_size` (bytes; 0: no limit).  None: the device's current pool, which
        outlives the resource.

    Raises
    ------
    ValueError
        There is no such device.
    UnsupportedError
        The driver has no pools, or none for other processes.
    """

    def __init__(self, device_id, options=None):
        device = _hoist.Device(device_id)
        if options is None:
            memory = _hoist.Memory("pool", device, current_pool=True)
        else:
            memory = _hoist.Memory("pool", device, shareable=_option(options, "ipc_enabled", False),
                                   limit=_option(options, "max_size", 0))
        super().__init__(memory)

    def allocate(self, size, stream=None):
        """A Buffer from this pool.

        Parameters
        ----------
        size : int
            Bytes.
        stream : Stream, optional
            The stream that orders the block; None: the block is ready for all streams.

        Returns
        -------
        Buffer

        Raises
        ------
        TypeError
            The pool is another process's.
        OutOfMemoryError
            The device's memory, or the pool's limit, is exhausted.
        """
        if self.is_mapped:
            raise TypeError("another process's pool allocates nothing here")
        return super().allocate(size, stream)

    is_ipc_enabled = property(lambda self: self._info["is_shareable"],
                              doc="Whether other processes can use the pool.")
    is_mapped = property(lambda self: self._info["is_mapped"],
                         doc="Whether the pool is another process's.")
    is_handle_owned = property(lambda self: self._info["is_own"],
                               doc="Whether the pool ends with the resource.")

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

    @property
    def allocation_handle(self):
        """As get_allocation_handle()."""
        return self.get_allocation_handle()

    @property
    def peer_accessible_by(self):
        """The ordinals of the other devices that may access the pool; set to any such numbers or
        Devices.  Raises Error for a device that cannot."""
        memory, own = self._open(), self.device
        found = (_hoist.Device(i) for i in range(_hoist.accelerator_count()))
        return frozenset(peer.id for peer in found
                         if peer.api == own.api and peer is not own and memory.get_peer_access(peer))

    @peer_accessible_by.setter
    def peer_accessible_by(self, devices):
        own = self.device
        wanted = {getattr(device, "id", device) for device in devices} - {own.id}
        for ordinal in sorted(wanted ^ self.peer_accessible_by):
            self._open().set_peer_access(_hoist.Device(f"{own.api}:{ordinal}"), ordinal in wanted)

    @classmethod
    def from_allocation_handle(cls, device_id, alloc_handle):
        """The pool of another process.

        Parameters
        ----------
        device_id : int, str or Device
        alloc_handle : IPCAllocationHandle or int
            An integer is a file descriptor, which the caller keeps.

        Returns
        -------
        DeviceMemoryResource
        """
        from . import ipc  # pylint: disable=import-outside-toplevel
        return ipc.from_allocation_handle(cls, _hoist.Device(device_id), alloc_handle)

    def register(self, uuid):
        """Registers the pool under a name, for pickles.

        Parameters
        ----------
        uuid : uuid.UUID or str

        Returns
        -------
        DeviceMemoryResource
            The one that is registered: an earlier one, if there is.

        Raises
        ------
        RuntimeError
            The pool is not IPC-enabled.
        """
        from . import ipc  # pylint: disable=import-outside-toplevel
        return ipc.register(self, uuid)

    @classmethod
    def from_registry(cls, uuid):
        """The pool that is registered under a name.

        Parameters
        ----------
        uuid : uuid.UUID

        Returns
        -------
        DeviceMemoryResource

        Raises
        ------
        RuntimeError
            There is none.
        """
        from . import ipc  # pylint: disable=import-outside-toplevel
        return ipc.from_registry(uuid)

    def __reduce__(self):
        return DeviceMemoryResource.from_registry, (self.uuid,)


class PinnedMemoryResource(_Native):
    """Host memory that a device copies from and to directly.

    Parameters
    ----------
    options : object or dict, optional
        `max_size` (bytes; 0: no limit), `numa_id` (the node of the memory).
    device : int, str or Device

    Raises
    ------
    UnsupportedError
        `ipc_enabled` is true.
    InvalidError
        There is no such node.
    """

    is_ipc_enabled = property(lambda self: False, doc="False: hoist shares no pinned memory.")
    numa_id = property(lambda self: self._node,
                       doc="The node that was asked for; -1: one that is near the device.")

    def __init__(self, options=None, device=0):
        if _option(options, "ipc_enabled", False):
            raise UnsupportedError("hoist shares no pinned memory with other processes: leave out "
                                   "ipc_enabled, or share a buffer by hoist.Buffer(shareable=True)")
        node = _option(options, "numa_id")
        self._node = -1 if node is None else node
        if self._node < -1:
            raise InvalidError(f"numa_id is {node}; it is the number of a node, or -1: one that is near the device")
        super().__init__(_hoist.Memory("pinned", _hoist.Device(device), node=self._node,
                                       limit=_option(options, "max_size", 0)))

    device_id = property(lambda self: -1, doc="-1: the memory is the CPU's.")


class LegacyPinnedMemoryResource(PinnedMemoryResource):
    """As `hoist.core.PinnedMemoryResource`; `device_id` is a RuntimeError.

    Parameters
    ----------
    options, device
        As there.
    """

    @property
    def device_id(self):
        """Pinned memory belongs to no device."""
        raise RuntimeError("pinned memory belongs to no device")


class SynchronousMemoryResource(MemoryResource):
    """Memory of a device without pools: cuda.core's `_SynchronousMemoryResource`.

    A block is ready for all streams.  Its end waits for the stream that is named last.

    Parameters
    ----------
    device_id : int, str or Device
    """

    is_device_accessible = property(lambda self: True, doc="True.")
    is_host_accessible = property(lambda self: False, doc="False.")
    device_id = property(lambda self: self._id, doc="The device's number, as the driver counts.")

    def __init__(self, device_id):
        device = _hoist.Device(device_id)
        self._memory, self._id, self._blocks = _hoist.Memory("device", device), device.id, {}

    def allocate(self, size, stream=None):
        """A Buffer of the device's memory.

        Parameters
        ----------
        size : int
            Bytes.
        stream : Stream, optional
            Has no effect.

        Returns
        -------
        Buffer

        Raises
        ------
        OutOfMemoryError
            The device's memory is exhausted.
        """
        block = self._memory.alloc(size)
        if block.address:  # none has no bytes
            self._blocks[block.address] = block
        return Buffer.from_handle(block.address, size, mr=self)

    def deallocate(self, ptr, size, stream=None):
        """Gives a block back, behind a wait for `stream`.

        Parameters
        ----------
        ptr : int
        size : int
            Bytes.
        stream : Stream, optional
        """
        if stream is not None:
            stream.synchronize()
        if ptr:
            self._blocks.pop(ptr).close()


class ManagedMemoryResource(_Native):
    """Memory that the driver moves between a device and the host.

    Parameters
    ----------
    options : object or dict, optional
        `preferred_location_type`: None, "device", "host" or "host_numa"; `preferred_location`: the
        number of the device or of the NUMA node.  A number alone is a device's, and -1 the host.
    device : int, str or Device

    Raises
    ------
    ValueError
        The type is none of these.
    UnsupportedError
        The driver has no such memory.
    """

    _TYPES = (None, "device", "host", "host_numa")

    def __init__(self, options=None, device=0):
        kind = _option(options, "preferred_location_type")
        number = _option(options, "preferred_location")
        if kind not in self._TYPES:
            raise ValueError(f"preferred_location_type is {kind!r}; give one of {self._TYPES}")
        if kind is None and number is not None:
            kind = "device" if number >= 0 else "host"
        if kind == "device" and number is not None:
            device = number
        super().__init__(_hoist.Memory("managed", _hoist.Device(device), prefer=self._TYPES.index(kind),
                                       node=(number or 0) if kind == "host_numa" else 0))
        self._kind, self._number = kind, number

    @property
    def device_id(self):
        """The preferred device, as the driver counts; -1: no device is preferred."""
        return self._info["device_id"] if self._kind == "device" else -1

    @property
    def preferred_location(self):
        """(type, number or None); None: the driver decides."""
        if self._kind is None:
            return None
        number = self.device_id if self._kind == "device" else self._number
        return (self._kind, number if self._kind != "host" else None)


class GraphMemoryResource(_Native):
    """Memory for graphs that streams capture: one resource for each device.

    Parameters
    ----------
    device_id : int, str or Device
    """

    _known = {}

    def __new__(cls, device_id):
        device = _hoist.Device(device_id)
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

    @property
    def attributes(self):
        """What the driver says of the memory of graphs; a high figure can be set to 0."""
        return _GraphAttributes(self)


class VirtualMemoryResource(_Native):
    """Blocks that can grow; sizes are rounded up to the driver's granularity.

    Parameters
    ----------
    device_id : int, str or Device
    config : object or dict, optional
        ==================  ============================================================
        granularity         "recommended" (the default) or "minimum"
        gpu_direct_rdma     whether network adapters may access the memory directly
        addr_hint           an address to begin at, if that is free; 0: the driver's choice
        addr_align          of blocks, a power of two; None: the granularity
        peers               other devices that may access the memory
        self_access         "rw" (the default), "r" or None, of the resource's device
        peer_access         the same, of the peers
        allocation_type     "pinned", which is all that drivers have
        location_type       "device", which is all that hoist has
        handle_type         None or "posix_fd": hoist exports no blocks, and makes no handle
        ==================  ============================================================

    Raises
    ------
    ValueError
        An option has another value.
    RuntimeError
        `gpu_direct_rdma`: the device lacks it.
    UnsupportedError
        The driver has no virtual memory.
    """

    _ACCESS = {"rw": 0, "r": 1, None: 2}

    def __init__(self, device_id, config=None):
        for name, known in (("allocation_type", ("pinned",)), ("location_type", ("device",)),
                            ("handle_type", (None, "posix_fd")),
                            ("granularity", ("recommended", "minimum")),
                            ("self_access", tuple(self._ACCESS)),
                            ("peer_access", tuple(self._ACCESS))):
            value = _option(config, name, known[0])
            if value not in known:
                raise ValueError(f"{name} is {value!r}; hoist has {', '.join(map(repr, known))}")
        super().__init__(_hoist.Memory(
            "virtual", _hoist.Device(device_id), rdma=bool(_option(config, "gpu_direct_rdma", False)),
            minimum_granularity=_option(config, "granularity") == "minimum",
            address_hint=_option(config, "addr_hint") or 0,
            address_align=_option(config, "addr_align") or 0,
            peers=[_hoist.Device(peer) for peer in _option(config, "peers", ())],
            self_access=self._ACCESS[_option(config, "self_access", "rw")],
            peer_access=self._ACCESS[_option(config, "peer_access", "rw")]))
        self._granularity = self._memory.granularity()

    def _rounded(self, size):
        return -(-size // self._granularity) * self._granularity

    def allocate(self, size, stream=None):
        """A Buffer from this resource.

        Parameters
        ----------
        size : int
            Bytes, which are rounded up.
        stream : Stream, optional
            The stream that orders the block; None: the block is ready for all streams.

        Returns
        -------
        Buffer

        Raises
        ------
        OutOfMemoryError
            The device's memory is exhausted.
        """
        return super().allocate(self._rounded(size), stream)

    def modify_allocation(self, buf, new_size, config=None):
        """The buffer, grown.  The old object is closed.

        Parameters
        ----------
        buf : Buffer
            Of this resource.
        new_size : int
            Bytes.  A size that is not larger gives the buffer as it is.
        config : object, optional
            Has no effect.

        Returns
        -------
        Buffer

        Raises
        ------
        hoist.Error
            The block cannot grow: views or exports share it, or memory is exhausted.
        """
        del config
        if new_size <= buf.size:
            return buf
        return Buffer._make(_hoist.Memory.grow(buf._buffer, self._rounded(new_size)), self)
