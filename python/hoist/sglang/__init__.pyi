# SPDX-License-Identifier: MIT
from typing import Any

__all__ = ["register", "report"]

def register() -> None: ...
def report() -> dict[str, Any]: ...
