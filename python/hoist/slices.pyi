# SPDX-License-Identifier: MIT
from types import EllipsisType
from typing import Any, SupportsIndex

from ._hoist import Buffer
from .checkpoint import Checkpoint, Tensor

_Item = SupportsIndex | slice | EllipsisType | None

class Slice:
    tensor: Tensor
    def __init__(self, checkpoint: Checkpoint, tensor: Tensor, device: Any,
                 options: dict[str, Any]) -> None: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def __getitem__(self, index: _Item | tuple[_Item, ...]) -> Buffer: ...
