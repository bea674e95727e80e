# SPDX-License-Identifier: MIT
from collections.abc import Sequence
from typing import Any

NAMES: tuple[str, ...]

class Settings:
    way: str | None
    window: int | str | None
    group: str | None
    device_direct: bool | None
    load: dict[str, Any]
    others: dict[str, Any]
    def __init__(self, given: Any, others: Sequence[str] = ()) -> None: ...
    @property
    def may_map(self) -> bool: ...
    def way_of(self, n_ranks: int) -> str: ...
