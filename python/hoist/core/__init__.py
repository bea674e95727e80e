# SPDX-License-Identifier: MIT
"""The interface of cuda.core's memory and views, over hoist."""

from .._hoist import StridedLayout
from . import utils
from .utils import StridedMemoryView, args_viewable_as_strided_memory

__all__ = ["StridedLayout", "StridedMemoryView", "args_viewable_as_strided_memory", "utils"]
