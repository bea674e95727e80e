# SPDX-License-Identifier: MIT
from . import utils as utils
from .._hoist import Device as Device
from .._hoist import Event as Event
from .._hoist import Stream as Stream
from .._hoist import StridedLayout as StridedLayout
from .buffer import Buffer as Buffer
from .ipc import IPCAllocationHandle as IPCAllocationHandle
from .ipc import IPCBufferDescriptor as IPCBufferDescriptor
from .memory import DeviceMemoryResource as DeviceMemoryResource
from .memory import GraphMemoryResource as GraphMemoryResource
from .memory import LegacyPinnedMemoryResource as LegacyPinnedMemoryResource
from .memory import ManagedMemoryResource as ManagedMemoryResource
from .memory import MemoryResource as MemoryResource
from .memory import PinnedMemoryResource as PinnedMemoryResource
from .memory import SynchronousMemoryResource as SynchronousMemoryResource
from .memory import VirtualMemoryResource as VirtualMemoryResource
from .memory import DeviceMemoryResourceOptions as DeviceMemoryResourceOptions
from .memory import ManagedMemoryResourceOptions as ManagedMemoryResourceOptions
from .memory import PinnedMemoryResourceOptions as PinnedMemoryResourceOptions
from .memory import VirtualMemoryResourceOptions as VirtualMemoryResourceOptions
from .utils import StridedMemoryView as StridedMemoryView
from .utils import args_viewable_as_strided_memory as args_viewable_as_strided_memory

__all__ = ["Buffer", "Device", "DeviceMemoryResource", "DeviceMemoryResourceOptions", "Event",
           "GraphMemoryResource", "IPCAllocationHandle", "IPCBufferDescriptor",
           "LegacyPinnedMemoryResource", "ManagedMemoryResource", "ManagedMemoryResourceOptions",
           "MemoryResource", "PinnedMemoryResource", "PinnedMemoryResourceOptions", "Stream",
           "StridedLayout", "StridedMemoryView", "SynchronousMemoryResource", "VirtualMemoryResource",
           "VirtualMemoryResourceOptions", "args_viewable_as_strided_memory", "utils"]
