# SPDX-License-Identifier: MIT
from typing import Any

import numpy

from . import _hoist
from .load import _Source

def asarray(buffer: _hoist.Buffer) -> numpy.ndarray[Any, Any]: ...
def load_file(source: _Source, **options: Any) -> dict[str, numpy.ndarray[Any, Any]]: ...
