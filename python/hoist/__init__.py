# SPDX-License-Identifier: MIT
"""hoist: model weights from storage to where they run.

>>> import hoist
>>> for name, buffer in hoist.load("model/", device="cuda:0"):
...     use(name, buffer)
>>> state = hoist.torch.load_file("model/", device="cuda:0")

`hoist.torch`, `hoist.numpy` and `hoist.cache` are imported when they are first used: `import hoist`
imports neither torch nor NumPy.
"""

import importlib as _importlib

from . import errors
from ._hoist import Buffer, Device, Stream, device_count
from ._hoist import version as _version
from .checkpoint import Checkpoint, Skipped, Tensor, open  # pylint: disable=redefined-builtin
from .doctor import Finding, doctor
from .errors import Error
from .groups import Member, group_look
from .load import Load, load, load_all
from .options import Budget, Target
from .plan import Plan, plan
from .save import Save, save
from .slices import Slice

__version__ = _version()
__all__ = ["Budget", "Buffer", "Checkpoint", "Device", "Error", "Finding", "Load", "Member", "Plan", "Save",
           "Skipped", "Slice", "Stream", "Target", "Tensor", "device_count", "doctor", "errors",
           "from_dlpack", "group_look", "load", "load_all", "open", "plan", "save"]


def from_dlpack(array, *, copy=None):
    """A Buffer over the memory of another library's array, without a copy.  The buffer keeps the array.

    Parameters
    ----------
    array : object
        With `__dlpack__` and `__dlpack_device__`: a tensor of torch, an array of NumPy, JAX or CuPy.
    copy : bool, optional
        Handed to the producer: True: always a copy; False: never.  None: the producer is not asked.

    Returns
    -------
    Buffer

    Raises
    ------
    BufferError
        The producer does not export the array, or hoist cannot take it: the text says why.
    TypeError
        `copy` is given, and the producer does not know it.
    """
    return Buffer.from_dlpack(array, copy=copy)


def __getattr__(name):
    if name in ("cache", "core", "dcp", "driver", "lazy", "numpy", "safetensors", "sglang", "torch",
                "transformers", "vllm"):
        return _importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'hoist' has no attribute {name!r}")
