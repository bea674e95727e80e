import os
from typing import Any, NamedTuple

class Finding(NamedTuple):
    name: str
    level: str
    text: str
    remedy: str
    options: dict[str, Any]

def doctor(path: str | os.PathLike[str] | None = None) -> list[Finding]: ...
