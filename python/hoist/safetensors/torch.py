# SPDX-License-Identifier: MIT
"""safetensors.torch: files and bytes to dicts of tensors, and back; whole modules."""

import collections

import torch

from .. import _hoist
from ..torch import _NAMES, as_buffer, tensor as _tensor
from .files import dtype_of, read_bytes, write_bytes, write_file
from .opening import safe_open

# --- tensors that share memory ---


def _storage(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def storage_ptr(tensor):
    """The address of the tensor's storage.

    Parameters
    ----------
    tensor : torch.Tensor

    Returns
    -------
    int
        0: the tensor has no storage.
    """
    try:
        return _storage(tensor).data_ptr()
    except NotImplementedError:  # a meta tensor
        return 0


def storage_size(tensor):
    """Bytes of the tensor's storage.

    Parameters
    ----------
    tensor : torch.Tensor

    Returns
    -------
    int
    """
    try:
        return _storage(tensor).nbytes()
    except NotImplementedError:
        return tensor.nelement() * tensor.element_size()


def _range(tensor):
    """(begin, end): the addresses of the tensor's elements lie in between."""
    begin = tensor.data_ptr()
    if tensor.nelement() == 0:
        return begin, begin
    far = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    return begin, begin + (far + 1) * tensor.element_size()


def _find_shared_tensors(state_dict):
    """Sets of names whose tensors overlap in memory; a tensor of its own is a set of one."""
    storages = collections.defaultdict(list)
    for name, tensor in state_dict.items():
        if tensor.device.type != "meta" and storage_ptr(tensor) != 0 and storage_size(tensor) != 0:
            key = tensor.device, storage_ptr(tensor), storage_size(tensor)
            storages[key].append((*_range(tensor), name))
    groups = []
    for ranges in storages.values():
        end = None
        for first, last, name in sorted(ranges):
            if end is None or first >= end:
                groups.append(set())
                end = last
            groups[-1].add(name)
            end = max(end, last)
    return groups


def _is_complete(tensor):
    """Whether the tensor is all of its storage."""
    return tensor.data_ptr() == storage_ptr(tensor) and \
        tensor.nelement() * tensor.element_size() == storage_size(tensor)


def _remove_duplicate_names(state_dict, *, preferred_names=None, discard_names=None):
    """{name to keep: names of the tensors that share its memory}."""
    ret = {}
    for names in _find_shared_tensors(state_dict):
        whole = sorted(name for name in names if _is_complete(state_dict[name]))
        if not whole:
            raise RuntimeError(f"The tensors {sorted(names)} share memory, and none of them is all of "
                               "it: no name is left to save them under")
        wanted = [name for name in whole if name not in set(discard_names or ())] or whole
        preferred = [name for name in whole if name in set(preferred_names or ())] or wanted
        if len(names) > 1:
            ret[preferred[0]] = sorted(names - {preferred[0]})
    return ret


# --- saving ---


def _check(tensors):
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received "
                             f"{type(tensor)}")
    sparse = [name for name, tensor in tensors.items() if tensor.layout != torch.strided]
    if sparse:
        raise ValueError(f"Tensors that are not strided cannot be saved: {sparse}; use .to_dense()")
    shared = [names for names in _find_shared_tensors(tensors) if len(names) > 1]
    if shared:
        raise RuntimeError(f"Some tensors share memory, and would be saved twice: {shared}. Use "
                           "save_model() for a module")
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(f"You are trying to save a non contiguous tensor: `{name}`. Call "
                             ".contiguous() first, or save the tensor that it is a part of")
        if tensor.device.type == "meta":
            raise NotImplementedError(f"`{name}` is a meta tensor, which has no data")


def _entries(tensors):
    """{name: (dtype, shape, Buffer)}"""
    _check(tensors)
    ret = {}
    for name, tensor in tensors.items():
        kind = str(tensor.dtype).rpartition(".")[2]
        if kind not in _NAMES:
            raise KeyError(tensor.dtype)
        if tensor.device.type not in ("cpu", "cuda"):
            tensor = tensor.cpu()
        ret[name] = dtype_of(kind), tuple(tensor.shape), as_buffer(tensor.resolve_conj().resolve_neg())
    return ret


def _read(buffer):
    part = buffer.tobytes()
    return part, len(part)


def save(tensors, metadata=None):
    """The bytes of a file.

    Parameters
    ----------
    tensors : dict of str and torch.Tensor
    metadata : dict of str, optional

    Returns
    -------
    bytes

    Raises
    ------
    ValueError, RuntimeError, KeyError
        As `hoist.safetensors.torch.save_file()`.
    """
    return write_bytes(_entries(tensors), metadata, _read)


def save_file(tensors, filename, metadata=None):
    """Writes a file, which appears whole or not at all.

    `hoist.torch.save_file()` takes all tensors but sparse ones.

    Parameters
    ----------
    tensors : dict of str and torch.Tensor
    filename : str or os.PathLike
    metadata : dict of str, optional

    Raises
    ------
    ValueError
        A tensor is sparse, or not contiguous.
    RuntimeError
        Tensors share memory.
    KeyError
        safetensors has no such dtype.
    SafetensorError
        Writing failed.
    """
    write_file(_entries(tensors), filename, metadata)


def save_model(model, filename, metadata=None, force_contiguous=True):
    """Writes the state of a module.

    Of tensors that share memory one is written, and the metadata name it for the others.

    Parameters
    ----------
    model : torch.nn.Module
    filename : str or os.PathLike
    metadata : dict of str, optional
        Gets the names of tensors that are left out.
    force_contiguous : bool
        Makes contiguous copies where they are needed.

    Raises
    ------
    ValueError, RuntimeError, SafetensorError
        As `hoist.safetensors.torch.save_file()`.
    """
    state = model.state_dict()
    for kept, others in _remove_duplicate_names(state).items():
        for name in others:
            metadata = {} if metadata is None else metadata
            metadata.setdefault(name, kept)
            del state[name]
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    try:
        save_file(state, filename, metadata)
    except ValueError as error:
        raise ValueError(f"{error} Or use save_model(..., force_contiguous=True)") from error


# --- loading ---


def load(data):
    """The tensors of the bytes of a file.

    Parameters
    ----------
    data : bytes

    Returns
    -------
    dict of str and torch.Tensor

    Raises
    ------
    SafetensorError
        The bytes are malformed.
    """
    return {tensor.name: _tensor(_buffer(tensor, content)) for tensor, content in read_bytes(data)}


def _buffer(tensor, content):
    buffer = _hoist.Buffer(tensor.dtype, tensor.shape)
    if tensor.nbytes > 0:
        flat = buffer if tensor.shape else buffer.reshape((1,))
        memoryview(flat.view("u8")).cast("B")[:] = content
    return buffer


def load_file(filename, device="cpu", *, backend="mmap"):
    """The tensors of a file.

    Parameters
    ----------
    filename : str or os.PathLike
    device : str or int
        "cpu", "cuda:0", 0.
    backend : {"mmap", "pread"}
        See the text of `hoist.safetensors`.

    Returns
    -------
    dict of str and torch.Tensor

    Raises
    ------
    SafetensorError, FileNotFoundError
        The file is malformed, or does not exist.
    """
    with safe_open(filename, framework="pt", device=device, backend=backend) as f:
        return f.get_tensors()


def load_model(model, filename, strict=True, device="cpu", *, backend="mmap"):
    """Loads a file into a module.

    Names that share memory with one that the file has are not missing.

    Parameters
    ----------
    model : torch.nn.Module
    filename : str or os.PathLike
    strict : bool
        Whether names that only one side has are an error.
    device : str or int
        Where the tensors of the file are loaded to first.
    backend : {"mmap", "pread"}

    Returns
    -------
    tuple
        (missing names, names that the module lacks).

    Raises
    ------
    RuntimeError
        `strict`, and a name is left.
    """
    state = load_file(filename, device=device, backend=backend)
    shared = _remove_duplicate_names(model.state_dict(), preferred_names=state.keys())
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = set(missing)
    for name in (name for others in shared.values() for name in others):
        if name in missing:
            missing.remove(name)
        else:
            unexpected.append(name)
    if strict and (missing or unexpected):
        text = f"Error(s) in loading state_dict for {type(model).__name__}:"
        for what, names in (("Missing", missing), ("Unexpected", unexpected)):
            if names:
                quoted = ", ".join(f'"{name}"' for name in sorted(names))
                text += f"\n    {what} key(s) in state_dict: {quoted}"
        raise RuntimeError(text)
    return missing, unexpected
