# SPDX-License-Identifier: MIT
from collections.abc import Iterator
from typing import Any

import torch

from . import _hoist
from .load import _Source

def tensor(buffer: _hoist.Buffer) -> torch.Tensor: ...
def load_file(source: _Source, device: str | torch.device | None = None,
              **options: Any) -> dict[str, torch.Tensor]: ...
def iter_file(source: _Source, device: str | torch.device | None = None,
              **options: Any) -> Iterator[tuple[str, torch.Tensor]]: ...
