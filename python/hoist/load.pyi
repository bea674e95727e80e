# SPDX-License-Identifier: MIT
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal
from typing_extensions import Self, TypeAlias

from . import _hoist
from .checkpoint import Checkpoint

_Source: TypeAlias = str | bytes | os.PathLike[str] | Checkpoint
_Device: TypeAlias = _hoist.Device | str | None
_Slice: TypeAlias = tuple[int, int, int] | tuple[int, slice]
_Slices: TypeAlias = Mapping[str, _Slice | list[_Slice]]
_Io: TypeAlias = Literal["auto", "direct", "cached", "map", "adaptive"]
_Engine: TypeAlias = Literal["auto", "io_uring", "threads"]
_Told: TypeAlias = Callable[[int, int], object] | Literal[True]

class Budget(_hoist.Budget):
    def __new__(cls, limit: int | str) -> Self: ...

class Load(_hoist.Load):
    def __new__(cls, checkpoint: Checkpoint, *, progress: _Told | None = None,
                window: int | str | None = None, owned: bool = False, **options: Any) -> Self: ...
    def __init__(self, checkpoint: Checkpoint, **options: Any) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> tuple[str, _hoist.Buffer]: ...
    def __getitem__(self, name: str) -> _hoist.Buffer: ...
    def __await__(self) -> Generator[Any, None, Self]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def close(self) -> None: ...

def load(source: _Source, device: _Device = None, *, stream: _hoist.Stream | None = None,
         tensors: str | Sequence[str] | None = None, slices: _Slices | None = None,
         dtype: str | None = None, budget: Budget | int | str | None = None,
         window: int | str | None = None, order: str | Sequence[str] | None = None,
         io: _Io = "auto", engine: _Engine = "auto", digest: bool = False, verify: bool = False,
         drop_cache: bool = False, progress: _Told | None = None) -> Load: ...

def load_all(source: _Source, device: _Device = None, *, stream: _hoist.Stream | None = None,
             tensors: str | Sequence[str] | None = None, slices: _Slices | None = None,
             dtype: str | None = None, budget: Budget | int | str | None = None, io: _Io = "auto",
             engine: _Engine = "auto", digest: bool = False, verify: bool = False,
             drop_cache: bool = False,
             progress: _Told | None = None) -> dict[str, _hoist.Buffer]: ...
