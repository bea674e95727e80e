# SPDX-License-Identifier: MIT
"""torch tensors of a checkpoint that are read when they are used, and of which only that part is read.

Servers slice a checkpoint's tensors by their own rules, for each rank in another way.  They get Lazy
tensors, slice these, and copy what is left into a parameter: then the part is read, into the parameter.
"""

import threading

import torch
from torch.utils._pytree import tree_flatten, tree_map

from . import _hoist
from .load import _load_driven
from .options import Options
from .torch import _NAMES, as_buffer, tensor as _tensor

_ATEN = torch.ops.aten

# Results that are other views of the same elements: nothing is read.
_VIEWS = frozenset([
    _ATEN.alias.default, _ATEN.as_strided.default, _ATEN.detach.default, _ATEN.diagonal.default,
    _ATEN.expand.default, _ATEN.permute.default, _ATEN.select.int, _ATEN.slice.Tensor, _ATEN.split.Tensor,
    _ATEN.split_with_sizes.default, _ATEN.squeeze.default, _ATEN.squeeze.dim, _ATEN.t.default,
    _ATEN.transpose.int, _ATEN.unbind.int, _ATEN.unfold.default, _ATEN.unsqueeze.default, _ATEN.view.default,
    *([_ATEN.squeeze.dims] if "dims" in _ATEN.squeeze.overloads() else [])])  # torch 2

_DTYPES = {_hoist.dtype_info(known)["name"]: getattr(torch, known) for known in _NAMES if hasattr(torch, known)}


def dtype_of(name):
    """torch's type of that name of hoist's; None: torch has none."""
    return _DTYPES.get(name)


class Source:
    """A checkpoint whose tensors are read in parts.  Any thread may read.

    Parameters
    ----------
    checkpoint : hoist.Checkpoint
        Must not be closed while a Lazy of it is used.
    told : callable
        Called with the report of each load.
    device_direct : bool
        Whether a copy into a tensor on a GPU is a read into it; else torch copies what was read to the host.
    **options
        Those of `hoist.load()` for one target on the host.
    """

    def __init__(self, checkpoint, told, *, device_direct=True, **options):
        self._checkpoint, self._told, self._options = checkpoint, told, options
        self._devices = ("cpu", "cuda") if device_direct else ("cpu",)

    def can_write_to(self, device):
        """Whether a load can write to tensors on that device of torch's."""
        return device.type in self._devices

    def _run(self, take, **options):
        def taken(running, target, names):
            self._told(running.report())
            return take(running, target, names)
        return _load_driven(self._checkpoint, Options(**options, **self._options), None, taken)

    def tensors(self, names):
        """{name: tensor}, read whole, at once."""
        found = self._run(_hoist.Load._buffers, tensors=names) if names else {}
        return {name: _tensor(found[name]) for name in names}

    def lazy(self, name):
        """A Lazy of the tensor; None: torch lacks its type, or its elements are not in C order."""
        known = self._checkpoint[name]
        dtype = dtype_of(known.dtype)
        if dtype is None or known.strides is not None:
            return None
        return Lazy(_Stored(self, name, known.shape, dtype), torch.empty(known.shape, dtype=dtype, device="meta"))

    def _slices(self, name, box):
        shape = self._checkpoint[name].shape
        ret = [(axis, slice(*ends)) for axis, ends in enumerate(box) if ends != (0, shape[axis])]
        return {name: ret} if ret else None

    def part(self, name, box):
        """The elements in a box, [(begin, end)] of each axis; (): all."""
        found = self._run(_hoist.Load._buffers, tensors=[name], slices=self._slices(name, box))
        return _tensor(found[name])

    def into(self, name, box, array):
        """Reads the elements in a box into a tensor of the same shape and type."""
        self._run(lambda *_: None, into={name: as_buffer(array)}, slices=self._slices(name, box))


class _Stored:
    """A tensor in its file; once a program has written to a part of it, in memory."""

    def __init__(self, source, name, shape, dtype):
        self.source, self.name, self.shape, self.dtype = source, name, shape, dtype
        self._whole = None
        self._lock = threading.Lock()

    def whole(self):
        """The tensor in memory, for whoever writes to it."""
        with self._lock:
            if self._whole is None:
                self._whole = self.source.part(self.name, ())
            return self._whole

    def read(self, view, *, write=False):
        """The elements that `view`, a view of a tensor on the meta device, has of the tensor."""
        place = view.shape, view.stride(), view.storage_offset()
        if write or self._whole is not None:
            return self.whole().as_strided(*place).view(view.dtype)
        if view.numel() == 0:
            return torch.empty(view.shape, dtype=view.dtype)
        box, steps, offset = box_of(self.shape, *place)
        part = self.source.part(self.name, box)
        return part.as_strided(view.shape, _strides(steps, box), offset).view(view.dtype)

    def read_into(self, view, array):
        """Reads the elements of `view` to where `array` has them.  Returns: whether it was possible."""
        if self._whole is not None or view.numel() == 0 or array.shape != view.shape or \
                array.dtype != view.dtype or array.layout != torch.strided or array.is_conj() or array.is_neg() or \
                not self.source.can_write_to(array.device):
            return False
        box, steps, offset = box_of(self.shape, view.shape, view.stride(), view.storage_offset())
        strides = [0] * len(box)
        axes = set()
        for (axis, step), n, stride in zip(steps, view.shape, array.stride()):
            if n == 1:
                continue
            if step != 1 or axis in axes:
                return False
            axes.add(axis)
            strides[axis] = stride
        if offset != 0 or any(end - begin > 1 and axis not in axes for axis, (begin, end) in enumerate(box)):
            return False
        if array.device.type == "cuda":  # what is queued may still use the memory
            torch.cuda.current_stream(array.device).synchronize()
        shape = [end - begin for begin, end in box]
        part = array.detach().as_strided(shape, strides, array.storage_offset())
        self.source.into(self.name, box, part if part.dtype == self.dtype else part.view(self.dtype))
        return True


# --- which elements a view has ---


def _spans(shape):
    """The strides of C order."""
    ret = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        ret[axis] = ret[axis + 1] * shape[axis + 1]
    return ret


def _strides(steps, box):
    spans = _spans([end - begin for begin, end in box])
    return [0 if axis is None else step * spans[axis] for axis, step in steps]


def box_of(shape, sizes, strides, offset):
    """The part of a tensor of `shape`, in C order, that holds all elements of a view of it.

    Returns: [(begin, end)] of each axis; (axis, step) of each of the view's dimensions, where an axis
    None means a step of 0; the offset of the view's first element from the part's.
    """
    spans = _spans(shape)
    begins, rest = [], offset
    for span in spans:
        begins.append(rest // span)
        rest %= span
    ends = [begin + 1 for begin in begins]
    steps = []
    for n, stride in zip(sizes, strides):
        axis = next((axis for axis, span in enumerate(spans) if span <= stride and shape[axis] > 1), None)
        if n == 1 or stride == 0 or axis is None:
            steps.append((None, 0))
            continue
        if stride % spans[axis] != 0:
            return _rows(shape, sizes, strides, offset)
        steps.append((axis, stride // spans[axis]))
        ends[axis] += stride // spans[axis] * (n - 1)
        if ends[axis] > shape[axis]:
            return _rows(shape, sizes, strides, offset)
    return list(zip(begins, ends)), steps, 0


def _rows(shape, sizes, strides, offset):
    """As box_of(), of a view whose dimensions are not axes: whole rows of the first axis."""
    span = _spans(shape)[0]
    last = offset + sum((n - 1) * stride for n, stride in zip(sizes, strides))
    begin = offset // span
    box = [(begin, last // span + 1)] + [(0, n) for n in shape[1:]]
    return box, [(len(shape) - 1, stride) for stride in strides], offset - begin * span


# --- the tensors ---


def _is_as_large(tensor, dtype):
    return torch.empty(0, dtype=dtype).element_size() == tensor.element_size()


def _aliased(cls, func, args, kwargs):
    """The Lazy arguments that `func` writes to, and the ids of these and of those whose memory its result
    shares."""
    written, shared = [], set()
    for number, argument in enumerate(func._schema.arguments):
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        if argument.alias_info is None:
            continue
        for one in tree_flatten(value)[0]:
            if isinstance(one, cls):
                shared.add(id(one))
                if argument.alias_info.is_write:
                    written.append(one)
    return written, shared


class Lazy(torch.Tensor):
    """A tensor, or a view of one, in its file.  Views read nothing; all else reads what it has.

    A view as another type reads nothing where its elements are as large; else it reads what it has, too.
    `hoist.lazy.Source.lazy()` makes it.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, stored, view):
        ret = torch.Tensor._make_wrapper_subclass(
            cls, view.shape, strides=view.stride(), storage_offset=view.storage_offset(),
            dtype=view.dtype, device="cpu")
        ret._stored, ret._view = stored, view
        return ret

    def __init__(self, stored, view):
        pass

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _VIEWS or func is _ATEN.view.dtype and _is_as_large(*args):
            first = args[0]
            made = func(first._view, *args[1:], **kwargs)
            if isinstance(made, torch.Tensor):
                return cls(first._stored, made)
            return [cls(first._stored, one) for one in made]
        if func is _ATEN.copy_.default and not isinstance(args[0], cls):
            if args[0].is_meta:  # a rehearsal, such as vLLM's reload makes: there is nothing to read into
                return func(args[0], args[1]._view, **kwargs)
            if args[1]._stored.read_into(args[1]._view, args[0]):
                return args[0]
        written, shared = _aliased(cls, func, args, kwargs)

        def real(value):
            if isinstance(value, cls):
                return value._stored.read(value._view, write=id(value) in shared)
            return value
        ret = func(*tree_map(real, args), **tree_map(real, kwargs))
        if not written or not func._schema.returns:
            return ret
        return written[0] if len(written) == 1 else tuple(written)

    def _read(self):
        return self._stored.read(self._view)

    # Reads of memory behind the back of the dispatcher.

    def numpy(self, *, force=False):
        """The array of the elements, which are read now.

        Parameters
        ----------
        force : bool
            As for any tensor.

        Returns
        -------
        numpy.ndarray
        """
        return self._read().numpy(force=force)

    def tolist(self):
        """The elements as numbers, in lists."""
        return self._read().tolist()

    def __array__(self, *arguments, **named):
        return self._read().__array__(*arguments, **named)

    def __dlpack__(self, **named):
        return self._read().__dlpack__(**named)

    def __reduce_ex__(self, protocol):
        return self._read().__reduce_ex__(protocol)

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), self._read().clone())

    def data_ptr(self):
        """Not there: the elements are in the file.

        Raises
        ------
        RuntimeError
            Always; `clone()` gives a tensor in memory.
        """
        raise RuntimeError(f"{self._stored.name!r} is in its file, not in memory: take a clone() of it")

    share_memory_ = data_ptr

    def __repr__(self, *, tensor_contents=None):
        return f"<hoist.lazy.Lazy of {self._stored.name!r}: {self.dtype}, shape {tuple(self.shape)}>"
