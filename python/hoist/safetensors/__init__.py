# SPDX-License-Identifier: MIT
"""The interface of the safetensors package, release 0.8, over hoist.

A program that was written for that package changes its import line, and nothing else:

>>> from hoist.safetensors import safe_open
>>> from hoist.safetensors.torch import load_file, save_file

For a program that cannot be changed there is `hoist.safetensors.replacing()`.

Names, signatures and exceptions are that package's; `SafetensorError` is a `hoist.Error`, too.
What differs is wanted:

- Frameworks are "pt" and "np", with their other names.
- A file that is saved appears whole or not at all, and is on the disk when the call returns.  If
  it has 1 MiB of tensors or more, their bytes begin at a multiple of 4096.
- NumPy arrays of any strides are saved with their elements in C order.
- `load()` for NumPy gives bf16 and fp8 as types of ml_dtypes, where that package is installed.
- A slice that ends before it begins is a SafetensorError, and a tensor cannot be called
  "__metadata__" or "".
- `backend` is "mmap" or "pread".  With "mmap", torch's tensors on the CPU are private maps of the
  file, which must not be written to in place, or be cut, while they live.  `load_file()` maps what
  the page cache holds, and reads the rest directly.  With "pread" tensors own their memory.
"""

from .files import SafetensorError, TensorSpec, deserialize, serialize, serialize_file
from .opening import safe_open
from .replacing import replacing

__version__ = "0.8.0"
__all__ = ["SafetensorError", "TensorSpec", "deserialize", "replacing", "safe_open", "serialize",
           "serialize_file"]
