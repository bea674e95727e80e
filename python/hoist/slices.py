# SPDX-License-Identifier: MIT
"""Parts of one tensor, by NumPy's indices: only the rows and columns that an index names are read."""

import operator

from .errors import RangeError
from .load import load_all
from .options import Options


def _axes(index, rank):
    """The index with an item for each axis, beside those that make new axes."""
    items = list(index) if isinstance(index, tuple) else [index]
    n = sum(item is not None and item is not Ellipsis for item in items)
    n_ellipses = sum(item is Ellipsis for item in items)
    if n_ellipses > 1:
        raise RangeError("an index has one ellipsis (...) at most")
    if n > rank:
        raise RangeError(f"the index has {n} items for the tensor's {rank} axes")
    at = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    items[at:at + 1] = [slice(None)] * (rank - n)
    return items


def _range(item, axis, extent):
    """The range of an axis that an item names."""
    if isinstance(item, slice):
        return range(*item.indices(extent))
    try:
        at = operator.index(item)
    except TypeError:
        raise TypeError("an index has integers, slices, None and an ellipsis, not "
                        f"{type(item).__name__!r}") from None
    if not -extent <= at < extent:
        raise RangeError(f"{at} is outside axis {axis}, whose extent is {extent}")
    return range(at % extent, at % extent + 1)


class Slice:
    """A tensor of which parts are read: `checkpoint.get_slice(name)[:, 128:256]` is a Buffer.

    `hoist.Checkpoint.get_slice()` makes it.  Indices are NumPy's: integers, slices with steps of any
    sign, an ellipsis, None.  Of each axis, the range from the first to the last element that the
    index names is read.  The result has memory of its own, in C order.
    """

    __slots__ = {"tensor": "The facts of the tensor.", "_checkpoint": None, "_device": None,
                 "_options": None}

    def __init__(self, checkpoint, tensor, device, options):
        Options(device, tensors=[tensor.name], slices=None, **options)  # wrong ones fail now
        self.tensor = tensor
        self._checkpoint, self._device, self._options = checkpoint, device, options

    @property
    def shape(self):
        """The tensor's extents."""
        return self.tensor.shape

    @property
    def dtype(self):
        """The tensor's dtype."""
        return self.tensor.dtype

    def __getitem__(self, index):
        name, shape = self.tensor.name, self.tensor.shape
        items = _axes(index, len(shape))
        wanted, inner, axis = [], [], 0
        for item in items:
            if item is None:
                inner.append(None)
                continue
            part = _range(item, axis, shape[axis]) or range(0)
            begin, end = (min(part), max(part) + 1) if part else (0, 0)
            if self.tensor.strides is not None:  # such a tensor is read whole
                begin, end = 0, shape[axis]
            if end - begin < shape[axis]:
                wanted.append((axis, slice(begin, end)))
            stop = part.stop - begin
            inner.append(slice(part.start - begin, None if stop < 0 else stop, part.step)
                         if isinstance(item, slice) else part.start - begin)
            axis += 1
        buffer = load_all(self._checkpoint, self._device, tensors=[name],
                          slices={name: wanted} if wanted else None, **self._options)[name]
        ret = buffer[tuple(inner)]
        return ret if ret.size == buffer.size and ret.is_contiguous else ret.copy()

    def __repr__(self):
        return f"<hoist.Slice of {self.tensor.name!r}: {self.dtype}, shape {self.shape}>"
