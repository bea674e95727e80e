# SPDX-License-Identifier: MIT
import os
from collections.abc import Mapping
from typing import Any

__all__ = ["from_pretrained"]

def from_pretrained(model: Any, path: str | os.PathLike[str], *, config: Any = None,
                    load: Mapping[str, Any] | None = None, **options: Any) -> Any: ...
