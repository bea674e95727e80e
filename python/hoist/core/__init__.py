# SPDX-License-Identifier: MIT
"""The interface of cuda.core's memory and views, over hoist."""

from .._hoist import Device, Event, Stream, StridedLayout
from . import utils
from .buffer import Buffer
from .memory import (DeviceMemoryResource, GraphMemoryResource, LegacyPinnedMemoryResource,
                     ManagedMemoryResource, MemoryResource, PinnedMemoryResource,
                     VirtualMemoryResource)
from .utils import StridedMemoryView, args_viewable_as_strided_memory
from .ipc import IPCAllocationHandle, IPCBufferDescriptor

__all__ = ["Buffer", "Device", "DeviceMemoryResource", "Event", "GraphMemoryResource",
           "IPCAllocationHandle", "IPCBufferDescriptor", "LegacyPinnedMemoryResource",
           "ManagedMemoryResource", "MemoryResource", "PinnedMemoryResource", "Stream",
           "StridedLayout", "StridedMemoryView", "VirtualMemoryResource",
           "args_viewable_as_strided_memory", "utils"]
