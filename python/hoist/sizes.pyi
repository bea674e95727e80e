# SPDX-License-Identifier: MIT
from typing import SupportsIndex

def size(value: SupportsIndex | str) -> int: ...
