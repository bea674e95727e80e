# SPDX-License-Identifier: MIT
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .ranks import Ranks
from .settings import Settings

class Facts(dict[str, Any]):
    def __init__(self, way: str) -> None: ...
    def add(self, report: Any) -> None: ...
    def add_part(self, n_bytes: int, seconds: float = 0.0) -> None: ...
    def line(self) -> str: ...

def read(files: Iterable[str], is_wanted: Callable[[str], bool], settings: Settings,
         facts: Facts,
         ranks: Ranks | None = None) -> Iterator[tuple[str, torch.Tensor]]: ...
