# SPDX-License-Identifier: MIT
from .files import SafetensorError as SafetensorError
from .files import TensorSpec as TensorSpec
from .files import deserialize as deserialize
from .files import serialize as serialize
from .files import serialize_file as serialize_file
from .opening import safe_open as safe_open
from .replacing import replacing as replacing

__version__: str
__all__ = ["SafetensorError", "TensorSpec", "deserialize", "replacing", "safe_open", "serialize",
           "serialize_file"]
