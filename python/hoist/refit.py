# SPDX-License-Identifier: MIT
"""Which tensor of a checkpoint the memory of a torch tensor holds, as far as loads in place and torch know."""

import collections
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .held import HELD

_MARK = "_hoist_mark"
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class _Mark:
    """An attribute of a torch tensor: with its place, it tells a tensor from a later one at that place.

    It stands for a weak reference to the tensor, which torch.utils.swap_tensors() would refuse.  In
    pickles and copies of the tensor an empty dict takes its place, so that no reader needs hoist.
    """

    __slots__ = ("__weakref__",)

    def __reduce__(self):
        return collections.OrderedDict, ()


# One tensor at a record's place.  `mark`: a weak reference; `place`: of torch's object in C++, which has
# the count of writes, `version`.  `storage`, a weak reference, tells another storage at the same address
# from the one that was filled.
_Witness = collections.namedtuple("_Witness", "mark place version storage")
_Record = collections.namedtuple("_Record", "content form witnesses")


def content(checkpoint, name, parts=None):
    """What a tensor of a checkpoint, or these parts of it, are, to be compared; None: the checkpoint holds no
    digest of the tensor.
    """
    digest = checkpoint.digest(name)
    if digest is None:
        return None
    tensor = checkpoint[name]
    return digest, tensor.dtype, tensor.shape, tensor.strides, parts


def uncounted(module):
    """The names of tensors that torch may write to without counting: running statistics.

    Of a module: all its buffers of one axis or none, as a module of any kind may normalise.  Of a dict:
    those with the names that torch's layers use.
    """
    if not isinstance(module, torch.nn.Module):
        return {name for name in module if name.rpartition(".")[2] in _STATISTICS}
    return {f"{prefix}.{name}" if prefix else name
            for prefix, layer in module.named_modules(remove_duplicate=False)
            for name, value in layer.named_buffers(recurse=False) if value.ndim < 2}


def is_marked(value):
    """Whether there has been a record of the tensor."""
    return isinstance(getattr(value, _MARK, None), _Mark)


def _form(value):
    return value.dtype, tuple(value.shape), value.stride()


def _storage(value):
    return StorageWeakRef(value.untyped_storage() if hasattr(value, "untyped_storage") else value.storage())


def _witness(value):
    if not is_marked(value):
        setattr(value, _MARK, _Mark())
    return _Witness(weakref.ref(getattr(value, _MARK)), value._cdata, value._version, _storage(value))


def _is_seen(value, witnesses):
    """Whether one of the witnesses says that the tensor is as it was."""
    return is_marked(value) and any(
        one.mark() is getattr(value, _MARK) and one.place == value._cdata and
        one.version == value._version and one.storage == _storage(value) for one in witnesses)


def holds(tensors, wanted):
    """Whether the memory of tensors, which all lie at one place, holds that content."""
    record = None if wanted is None else HELD.find(tensors[0].data_ptr())
    return record is not None and record.content == wanted and record.form == _form(tensors[0]) and \
        all(_is_seen(value, record.witnesses) for value in tensors)


def _is_over(record):
    """Whether no tensor is left that the record could be asked for."""
    return all(witness.mark() is None for witness in record.witnesses)


def _end(value):
    """The address behind the last element."""
    n = value.numel() if value.is_contiguous() else \
        1 + sum((extent - 1) * stride for extent, stride in zip(value.shape, value.stride()))
    return value.data_ptr() + n * value.element_size()


def overlapping(places):
    """The names of {name: tensors at one place} whose addresses lie between another's."""
    ret, end, last = set(), 0, None
    for begin, stop, name in sorted((values[0].data_ptr(), _end(values[0]), name)
                                    for name, values in places.items() if values[0].numel() > 0):
        if begin < end:
            ret.update((name, last))
        if stop > end:
            end, last = stop, name
    return ret


def note(filled):
    """Records what a load has filled: [(tensors at one place, content)].

    What has no digest, no bytes, or no count of writes (tensors made in torch's inference mode), is
    not recorded.
    """
    HELD.prune(_is_over)
    records = []
    for tensors, what in filled:
        first = tensors[0]
        if what is not None and first.numel() > 0 and not any(map(torch.Tensor.is_inference, tensors)):
            records.append((first.data_ptr(), _end(first),
                            _Record(what, _form(first), [_witness(value) for value in tensors])))
    HELD.put(records)
