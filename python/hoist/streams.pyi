# SPDX-License-Identifier: MIT
from typing import Any

from ._hoist import Stream

def of(stream: Any) -> Stream: ...
