# SPDX-License-Identifier: MIT
"""The interface of max.driver, over hoist.

The names are those of MAX, of the releases up to 25.x (DeviceStream, default_stream, pinned) and of
26.7 (DeviceQueue, default_queue, Usage, CompletionFlag).  Devices, streams and dtypes are hoist's
own objects: `hoist.driver.CPU() is hoist.Device("cpu")`.
"""

from .._hoist import Device
from .._hoist import Event as DeviceEvent
from .._hoist import Flag as CompletionFlag
from .._hoist import Stream as DeviceQueue
from .._hoist import Stream as DeviceStream
from ..dtypes import DType
from .buffer import (Buffer, DevicePinnedBuffer, DLPackArray, OutOfDeviceMemoryError, Usage,
                     batch_inplace_copy, load_max_buffer)
from .devices import (CPU, Accelerator, DeviceSpec, accelerator_api, accelerator_architecture_name,
                      accelerator_count, calculate_virtual_device_count,
                      calculate_virtual_device_count_from_cli, devices_exist,
                      get_virtual_device_api, get_virtual_device_count,
                      get_virtual_device_target_arch, is_virtual_device_mode, load_devices,
                      scan_available_devices, set_virtual_device_api, set_virtual_device_count,
                      set_virtual_device_target_arch)

__all__ = [
    "Accelerator", "Buffer", "CPU", "CompletionFlag", "DLPackArray", "DType", "Device", "DeviceEvent",
    "DevicePinnedBuffer", "DeviceQueue", "DeviceSpec", "DeviceStream", "OutOfDeviceMemoryError",
    "Usage", "accelerator_api", "accelerator_architecture_name", "accelerator_count",
    "batch_inplace_copy", "calculate_virtual_device_count",
    "calculate_virtual_device_count_from_cli", "devices_exist", "get_virtual_device_api",
    "get_virtual_device_count", "get_virtual_device_target_arch", "is_virtual_device_mode",
    "load_devices", "load_max_buffer", "scan_available_devices", "set_virtual_device_api",
    "set_virtual_device_count", "set_virtual_device_target_arch",
]
