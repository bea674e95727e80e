# SPDX-License-Identifier: MIT
from collections.abc import Mapping, Sequence

def check(server: str, packages: Sequence[str], known: str,
          names: Mapping[str, Sequence[str]]) -> None: ...
