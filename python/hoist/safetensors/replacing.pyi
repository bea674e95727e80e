# SPDX-License-Identifier: MIT
from contextlib import AbstractContextManager

def replacing() -> AbstractContextManager[None]: ...
