from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import _hoist
from .load import _Device, _Engine, _Io, _Map, _Names, _Slices, _Source
from .options import Budget, Target

class _Plan(NamedTuple):
    bytes: int
    n_tensors: int
    n_files: int
    direct_bytes: int
    cached_bytes: int
    mapped_bytes: int
    resident_bytes: int | None
    n_reads: int
    straight_bytes: int
    staged_bytes: int
    converted_bytes: int
    slot_bytes: int
    n_slots: int
    budget_bytes: int
    fits: bool
    io_reason: str
    targets: list[dict[str, Any]]
    line: str

class Plan(_Plan):
    def __str__(self) -> str: ...
    def as_dict(self) -> dict[str, Any]: ...
    def json(self) -> str: ...

def plan(source: _Source, device: _Device = None, *, window: int | str | None = None,
         stream: _hoist.Stream | None = None, tensors: _Names = None, slices: _Slices = None,
         dtype: str | None = None, into: Mapping[str, Any] | None = None,
         targets: Sequence[Target] | None = None, budget: Budget | int | str | None = None,
         io: _Io = "auto", engine: _Engine = "auto", map: _Map = "copyonwrite", order: _Names = None,
         tensor_align: int | str = 0, chunk_bytes: int | str = 0, depth: int = 0,
         digest: bool = False, verify: bool = False, drop_cache: bool = False,
         populate: bool = False, split: bool = False) -> Plan: ...
