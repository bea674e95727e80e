from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from . import _hoist

_T = TypeVar("_T")

class Budget(_hoist.Budget):
    def __new__(cls, limit: int | str) -> Budget: ...
    @property
    def limit(self) -> int: ...

class Target(NamedTuple):
    device: str | _hoist.Device | None = None
    stream: _hoist.Stream | None = None
    tensors: str | Sequence[str] | None = None
    slices: Mapping[str, Any] | None = None
    dtype: str | None = None
    into: Mapping[str, Any] | None = None

def choose(table: Mapping[str, _T], value: str, what: str) -> _T: ...
def io_of(name: str) -> int: ...
def io_name(number: int) -> str: ...
def engine_of(name: str) -> int: ...
def budget_of(budget: _hoist.Budget | int | str | None) -> _hoist.Budget | None: ...
def slices_of(slices: Mapping[str, Any] | None) -> list[tuple[str, int, int, int, int, int]] | None: ...
def as_buffer(array: Any) -> _hoist.Buffer: ...

class Options:
    given: dict[str, Any]
    targets: int | None
    into: list[list[str]]
    in_place: bool
    streams: bool
    def __init__(self, device: str | _hoist.Device | None = None, *,
                 stream: _hoist.Stream | None = None, tensors: str | Sequence[str] | None = None,
                 slices: Mapping[str, Any] | None = None, dtype: str | None = None,
                 into: Mapping[str, Any] | None = None, targets: Sequence[Target] | None = None,
                 budget: _hoist.Budget | int | str | None = None, io: str = "auto",
                 engine: str = "auto", map: str = "copyonwrite",
                 order: str | Sequence[str] | None = None, group: str | None = None,
                 rank: str | tuple[int, int] | None = None, group_timeout: float | None = None,
                 group_secret: str | None = None,
                 tensor_align: int | str = 0, chunk_bytes: int | str = 0, depth: int = 0,
                 **flags: bool) -> None: ...
    def begin(self) -> None: ...
    @property
    def has_digests(self) -> bool: ...
