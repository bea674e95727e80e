# SPDX-License-Identifier: MIT
from collections.abc import Iterable, Sequence

import torch

from .checkpoint import Checkpoint

_Content = tuple[bytes, str, tuple[int, ...], tuple[int, ...] | None]

def content(checkpoint: Checkpoint, name: str) -> _Content | None: ...
def holds(tensors: Sequence[torch.Tensor], wanted: _Content | None) -> bool: ...
def note(filled: Iterable[tuple[Sequence[torch.Tensor], _Content | None]]) -> None: ...
