# SPDX-License-Identifier: MIT
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

import torch

from . import _hoist
from .load import _Source
from .options import Target
from .save import _Path

class Loaded(NamedTuple):
    missing: list[str]
    unexpected: list[str]
    kept: list[str]
    report: _hoist._Report | None

def tensor(buffer: _hoist.Buffer) -> torch.Tensor: ...
@overload
def load_file(source: _Source, device: str | torch.device | None = None, *,
              targets: Sequence[Target], **options: Any) -> list[dict[str, torch.Tensor]]: ...
@overload
def load_file(source: _Source, device: str | torch.device | None = None, *,
              targets: None = None, **options: Any) -> dict[str, torch.Tensor]: ...
def iter(source: _Source, device: str | torch.device | None = None,
              **options: Any) -> Iterator[tuple[str, torch.Tensor]]: ...
def as_buffer(array: torch.Tensor) -> _hoist.Buffer: ...
def load_into(module: torch.nn.Module | Mapping[str, torch.Tensor], source: _Source, *,
              strict: bool = True, changed_only: bool = False,
              slices: Mapping[str, Any] | None = None, **options: Any) -> Loaded: ...
def save_file(tensors: Mapping[str, torch.Tensor], path: _Path, **options: Any) -> None: ...
