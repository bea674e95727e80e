# SPDX-License-Identifier: MIT
from . import errors as errors
from . import numpy as numpy
from . import torch as torch
from ._hoist import Buffer as Buffer
from ._hoist import Device as Device
from ._hoist import Stream as Stream
from ._hoist import _DLPackArray
from ._hoist import device_count as device_count
from .checkpoint import Checkpoint as Checkpoint
from .checkpoint import Skipped as Skipped
from .checkpoint import Tensor as Tensor
from .checkpoint import open as open
from .doctor import Finding as Finding
from .doctor import doctor as doctor
from .errors import Error as Error
from .groups import Member as Member
from .groups import group_look as group_look
from .load import Load as Load
from .load import load as load
from .load import load_all as load_all
from .options import Budget as Budget
from .options import Target as Target
from .plan import Plan as Plan
from .plan import plan as plan
from .save import Save as Save
from .save import save as save
from .slices import Slice as Slice

__version__: str
__all__ = ["Budget", "Buffer", "Checkpoint", "Device", "Error", "Finding", "Load", "Member", "Plan", "Save",
           "Skipped", "Slice", "Stream", "Target", "Tensor", "device_count", "doctor", "errors",
           "from_dlpack", "group_look", "load", "load_all", "open", "plan", "save"]

def from_dlpack(array: _DLPackArray, *, copy: bool | None = None) -> Buffer: ...
