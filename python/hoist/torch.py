# SPDX-License-Identifier: MIT
"""torch tensors of whole checkpoints."""

import torch

from .load import load, load_all

# Types that older releases of torch do not take over DLPack: passed as bits of the same size.
_AS_BITS = {"bool": ("u8", "bool"), "u16": ("i16", "uint16"), "u32": ("i32", "uint32"),
            "u64": ("i64", "uint64"), "f8_e4m3fn": ("u8", "float8_e4m3fn"),
            "f8_e5m2": ("u8", "float8_e5m2"), "f8_e4m3fnuz": ("u8", "float8_e4m3fnuz"),
            "f8_e5m2fnuz": ("u8", "float8_e5m2fnuz"), "f8_e8m0fnu": ("u8", "float8_e8m0fnu")}


_DLPACK_CPU = 1


def _taken(buffer):
    """torch.from_dlpack(), which asks an array more than it needs to know of the host's memory."""
    on_host = buffer.__dlpack_device__()[0] == _DLPACK_CPU
    return torch.from_dlpack(buffer.__dlpack__() if on_host else buffer)


def tensor(buffer):
    """A tensor over the buffer's memory, on its device, without a copy."""
    bits, name = _AS_BITS.get(buffer.dtype, (None, None))
    if bits is None:
        return _taken(buffer)
    if not hasattr(torch, name):
        raise TypeError(f"torch {torch.__version__} has no {name}")
    shape = buffer.shape
    flat = _taken(buffer.view(bits) if shape else buffer.reshape((1,)).view(bits))
    return flat.view(getattr(torch, name)).reshape(shape)


def load_file(source, device=None, **options):
    """Loads all tensors: a dict of names and tensors on `device`.

    To the host, ranges of the files that the page cache holds are mapped, copy-on-write (`io`
    "adaptive", the default here): the files must not shrink, or be written to, while the tensors
    live.  With `io="auto"` the tensors own their memory.

    Parameters
    ----------
    source : str, os.PathLike or hoist.Checkpoint
    device : str, optional
        "cpu", "cuda:0", ...; a torch.device will do.
    **options
        Those of `hoist.load()`, without `window` and `order`.
    """
    spec = None if device is None else str(device)
    if not options.get("drop_cache"):
        options.setdefault("io", "adaptive")
    return {name: tensor(b) for name, b in load_all(source, spec, **options).items()}


def iter_file(source, device=None, **options):
    """Gives (name, tensor) as tensors arrive; with `window`, tensors that are dropped make room."""
    spec = None if device is None else str(device)
    with load(source, spec, **options) as running:
        for name, buffer in running:
            box = [tensor(buffer)]
            del buffer  # the window counts what this generator holds, too
            yield name, box.pop()
