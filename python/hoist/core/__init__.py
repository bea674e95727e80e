# SPDX-License-Identifier: MIT
"""The interface of cuda.core's memory and views, over hoist."""

from .._hoist import Device, Event, Stream, StridedLayout
from . import utils
from .buffer import Buffer
from .memory import (DeviceMemoryResource, DeviceMemoryResourceOptions, GraphMemoryResource,
                     LegacyPinnedMemoryResource, ManagedMemoryResource, ManagedMemoryResourceOptions,
                     MemoryResource, PinnedMemoryResource,
                     PinnedMemoryResourceOptions, SynchronousMemoryResource, VirtualMemoryResource,
                     VirtualMemoryResourceOptions)
from .utils import StridedMemoryView, args_viewable_as_strided_memory
from .ipc import IPCAllocationHandle, IPCBufferDescriptor

__all__ = ["Buffer", "Device", "DeviceMemoryResource", "DeviceMemoryResourceOptions", "Event",
           "GraphMemoryResource", "IPCAllocationHandle", "IPCBufferDescriptor",
           "LegacyPinnedMemoryResource", "ManagedMemoryResource", "ManagedMemoryResourceOptions",
           "MemoryResource", "PinnedMemoryResource", "PinnedMemoryResourceOptions", "Stream",
           "StridedLayout", "StridedMemoryView", "SynchronousMemoryResource", "VirtualMemoryResource",
           "VirtualMemoryResourceOptions", "args_viewable_as_strided_memory", "utils"]
