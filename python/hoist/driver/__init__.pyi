# SPDX-License-Identifier: MIT
from .._hoist import Device as Device
from .._hoist import Event as DeviceEvent
from .._hoist import Flag as CompletionFlag
from .._hoist import Stream as DeviceQueue
from .._hoist import Stream as DeviceStream
from ..errors import DeviceError as HostHazardError
from ..dtypes import DType as DType
from .buffer import Buffer as Buffer
from .buffer import DevicePinnedBuffer as DevicePinnedBuffer
from .buffer import DLPackArray as DLPackArray
from .buffer import OutOfDeviceMemoryError as OutOfDeviceMemoryError
from .buffer import Usage as Usage
from .buffer import batch_inplace_copy as batch_inplace_copy
from .buffer import copy_pinned_to_destinations as copy_pinned_to_destinations
from .buffer import load_max_buffer as load_max_buffer
from .devices import CPU as CPU
from .devices import Accelerator as Accelerator
from .devices import DeviceSpec as DeviceSpec
from .devices import accelerator_api as accelerator_api
from .devices import accelerator_architecture_name as accelerator_architecture_name
from .devices import accelerator_count as accelerator_count
from .devices import calculate_virtual_device_count as calculate_virtual_device_count
from .devices import (
    calculate_virtual_device_count_from_cli as calculate_virtual_device_count_from_cli)
from .devices import devices_exist as devices_exist
from .devices import enable_all_peer_access as enable_all_peer_access
from .devices import get_virtual_device_api as get_virtual_device_api
from .devices import get_virtual_device_count as get_virtual_device_count
from .devices import get_virtual_device_target_arch as get_virtual_device_target_arch
from .devices import is_virtual_device_mode as is_virtual_device_mode
from .devices import load_devices as load_devices
from .devices import scan_available_devices as scan_available_devices
from .devices import set_virtual_device_api as set_virtual_device_api
from .devices import set_virtual_device_count as set_virtual_device_count
from .devices import set_virtual_device_target_arch as set_virtual_device_target_arch

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
