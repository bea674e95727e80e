# SPDX-License-Identifier: MIT
from typing import NamedTuple

_Group = tuple[str, int, int, int, str | None]

def group_of(group: str | None, rank: str | tuple[int, int] | None = None,
             timeout: float | None = None, secret: str | None = None) -> _Group | None: ...

class Member(NamedTuple):
    id: int
    address: str
    has_files: bool
    begun: bool
    bytes: int
    done_bytes: int
    storage_bytes: int
    received_bytes: int
    sent_bytes: int
    rank: int
    n_ranks: int

def group_look(group: str, *, group_secret: str | None = None, group_timeout: float = 5) -> list[Member]: ...
