# SPDX-License-Identifier: MIT
"""The interface of max.driver, over hoist.

The names are those of MAX, of the releases up to 25.x (DeviceStream, default_stream, pinned) and of
26.7 (DeviceQueue, default_queue, Usage, CompletionFlag).  Devices, streams and dtypes are hoist's
own objects: `hoist.driver.CPU() is hoist.Device("cpu")`.

Names of max.driver 26.7 that are not here:

SymmetricPool
    Memory that a switch between the devices reduces through; only kernels use the memory, and hoist
    has none.
begin_launch_trace, take_launch_trace, launch_trace, LaunchTraceEntry
    hoist launches no kernels, and keeps no list of its copies; HOIST_DEBUG=device logs them.
get_virtual_cpu_target, set_virtual_cpu_target
    They choose the CPU that kernels are compiled for; hoist compiles nothing.
HostHazardError is another name of hoist.errors.DeviceError
    A host access waits for the work on the buffer's stream, and raises the error of that work.
"""

from .._hoist import Device
from .._hoist import Event as DeviceEvent
from .._hoist import Flag as CompletionFlag
from .._hoist import Stream as DeviceQueue
from .._hoist import Stream as DeviceStream
from ..errors import DeviceError as HostHazardError
from ..dtypes import DType
from .buffer import (Buffer, DevicePinnedBuffer, DLPackArray, OutOfDeviceMemoryError, Usage,
                     batch_inplace_copy, copy_pinned_to_destinations, load_max_buffer)
from .devices import (CPU, Accelerator, DeviceSpec, accelerator_api, accelerator_architecture_name,
                      accelerator_count, calculate_virtual_device_count,
                      calculate_virtual_device_count_from_cli, devices_exist,
                      enable_all_peer_access, get_virtual_device_api, get_virtual_device_count,
                      get_virtual_device_target_arch, is_virtual_device_mode, load_devices,
                      scan_available_devices, set_virtual_device_api, set_virtual_device_count,
                      set_virtual_device_target_arch)

__all__ = [
    "Accelerator", "Buffer", "CPU", "CompletionFlag", "DLPackArray", "DType", "Device", "DeviceEvent",
    "DevicePinnedBuffer", "DeviceQueue", "DeviceSpec", "DeviceStream", "HostHazardError",
    "OutOfDeviceMemoryError", "Usage", "accelerator_api", "accelerator_architecture_name", "accelerator_count",
    "batch_inplace_copy", "calculate_virtual_device_count",
    "calculate_virtual_device_count_from_cli", "copy_pinned_to_destinations", "devices_exist",
    "enable_all_peer_access", "get_virtual_device_api",
    "get_virtual_device_count", "get_virtual_device_target_arch", "is_virtual_device_mode",
    "load_devices", "load_max_buffer", "scan_available_devices", "set_virtual_device_api",
    "set_virtual_device_count", "set_virtual_device_target_arch",
]
