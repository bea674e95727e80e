# SPDX-License-Identifier: MIT
"""The options of loads, as programs give them and as the extension takes them."""

import collections
import collections.abc
import importlib
import sys

from . import _hoist, held, streams
from .groups import group_of
from .sizes import size

_IO = {
    "auto": _hoist.IO_AUTO,
    "direct": _hoist.IO_DIRECT,
    "cached": _hoist.IO_CACHED,
    "map": _hoist.IO_MAP,
    "adaptive": _hoist.IO_ADAPTIVE,
}
_ENGINES = {
    "auto": _hoist.ENGINE_AUTO,
    "io_uring": _hoist.ENGINE_URING,
    "threads": _hoist.ENGINE_THREADS,
}
_MAPS = {
    "copyonwrite": _hoist.MAP_COPY_ON_WRITE,
    "readonly": _hoist.MAP_READ_ONLY,
    "readwrite": _hoist.MAP_READ_WRITE,
}
_FLAGS = {
    "digest": _hoist.LOAD_DIGEST,
    "verify": _hoist.LOAD_VERIFY,
    "drop_cache": _hoist.LOAD_DROP_CACHE,
    "populate": _hoist.LOAD_POPULATE,
    "split": _hoist.LOAD_SPLIT,
}
_SLICE_END = 2**63 - 1


class Budget(_hoist.Budget):
    """A limit in bytes that several loads and saves share: those that find too few bytes left wait.

    Any thread may use a budget.  Each load and save that has the budget keeps it.

    Parameters
    ----------
    limit : int or str
        Bytes, 1 or more; "1G", "256M".

    Raises
    ------
    ValueError
        The limit is 0, or a text that is no size.
    """

    def __new__(cls, limit):
        self = super().__new__(cls, size(limit))
        self._limit = size(limit)
        return self

    @property
    def limit(self):
        """The most bytes that can be charged at a time."""
        return self._limit

    def __repr__(self):
        return f"<hoist.Budget: {self.used} of {self._limit} bytes are used>"


Target = collections.namedtuple("Target", "device stream tensors slices dtype into", defaults=(None,) * 6)
Target.__doc__ = """One of several destinations of a load, with tensors, slices and a dtype of its own.

The targets of a load are on devices of one API and on the CPU; several may be on one device.

Attributes
----------
device, stream, tensors, slices, dtype, into
    As the parameters of `hoist.load()` with these names.
"""


def choose(table, value, what):
    """The value of a choice that has a name.  Raises ValueError, which lists the names."""
    if value not in table:
        raise ValueError(f"{what} is one of {', '.join(table)}, not {value!r}")
    return table[value]


def io_of(name):
    """The extension's number of a way of reading."""
    return choose(_IO, name, "io")


def io_name(number):
    """The name of a way of reading."""
    return next(name for name, value in _IO.items() if value == number)


def engine_of(name):
    """The extension's number of an engine."""
    return choose(_ENGINES, name, "engine")


def budget_of(budget):
    """A Budget, as it is or made of a size; None."""
    return budget if budget is None or isinstance(budget, _hoist.Budget) else Budget(budget)


def as_buffer(array):
    """A Buffer over the memory of `array`: a Buffer, a torch tensor, a NumPy array, or anything with
    `__dlpack__`.  Nothing is copied.

    Raises TypeError for other objects and types that hoist lacks, BufferError for memory that the
    owner does not export, and ReadOnlyError for a NumPy array that cannot be written to.
    """
    if isinstance(array, _hoist.Buffer):
        return array
    for name, kind in (("torch", "Tensor"), ("numpy", "ndarray")):
        package = sys.modules.get(name)
        if package is not None and isinstance(array, getattr(package, kind, ())):
            module = sys.modules.get(f"{__package__}.{name}")
            if not hasattr(module, "as_buffer"):  # None, or another thread imports the module now
                module = importlib.import_module("." + name, __package__)
            return module.as_buffer(array)
    if not hasattr(array, "__dlpack__"):
        raise TypeError(f"a tensor is loaded into a hoist.Buffer or an array with __dlpack__, not into "
                        f"{type(array).__name__!r}")
    return _hoist.Buffer.from_dlpack(array)


def slices_of(slices):
    """{tensor: (axis, rank, n_ranks) or (axis, slice)} as the extension takes them.

    A list of such tuples slices several axes of one tensor.
    """
    ret = []
    if slices is not None and not isinstance(slices, collections.abc.Mapping):
        raise TypeError(f"slices is a dict of names and parts, not {type(slices).__name__!r}")
    for name, value in (slices or {}).items():
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, tuple) or len(one) not in (2, 3) or \
                    (len(one) == 2 and not isinstance(one[1], slice)):
                raise TypeError(f"the slice of {name!r} is {one!r}; give (axis, rank, n_ranks), or "
                                "(axis, slice(begin, end))")
            if len(one) == 3:
                axis, rank, n_ranks = one
                if n_ranks < 1:
                    raise ValueError(f"the slice of {name!r} is of {n_ranks} ranks; give 1 or more")
                ret.append((name, axis, rank, n_ranks, 0, 0))
                continue
            axis, part = one
            if part.step not in (None, 1):
                raise ValueError(f"the slice of {name!r} has a step of {part.step}; loads have none")
            begin = 0 if part.start is None else part.start
            end = _SLICE_END if part.stop is None else part.stop
            ret.append((name, axis, 0, 0, begin, end))
    return ret or None


def _list_of(names):
    if names is None:
        return None
    ret = [names] if isinstance(names, str) else list(names)
    for name in ret:
        if not isinstance(name, str):
            raise TypeError(f"a name or glob of tensors is a str, not {type(name).__name__!r}")
    return ret


def _into_of(into):
    """{name or glob: array} as [(name, Buffer)]."""
    if into is not None and not isinstance(into, collections.abc.Mapping):
        raise TypeError(f"into is a dict of names and buffers, not {type(into).__name__!r}")
    if into is not None and not into:
        raise ValueError("into is an empty dict; name the tensors to load")
    return None if into is None else [(name, as_buffer(array)) for name, array in into.items()]


def _destination(target):
    device, stream = target.device, target.stream
    if stream is not None:
        stream = streams.of(stream)
        device = stream.device if device is None and not target.into else device
    return {"device": device, "stream": stream, "tensors": _list_of(target.tensors),
            "slices": slices_of(target.slices), "dtype": target.dtype, "into": _into_of(target.into)}


def _targets_of(targets):
    ret = []
    for target in targets:
        if not isinstance(target, Target):
            raise TypeError(f"targets is a list of hoist.Target, not of {type(target).__name__!r}")
        ret.append(tuple(_destination(target).values()))
    if not ret:
        raise ValueError("targets is an empty list; give at least one hoist.Target")
    return ret


class Options:
    """The options that all loads have, checked: `given` are the arguments of `hoist._hoist.Load`.

    `targets` is the number of targets, None without that option; `streams`: tensors are given as they
    arrive; `into` lists, for each target, the
    keys of its dict `into`; `buffers` keeps the arrays that are loaded into.
    """

    def __init__(self, device=None, *, stream=None, tensors=None, slices=None, dtype=None, into=None,
                 targets=None, budget=None, io="auto", engine="auto", map="copyonwrite",
                 order=None, group=None, rank=None, group_timeout=None, group_secret=None,
                 tensor_align=0, chunk_bytes=0, depth=0, **flags):
        self.given = _destination(Target(device, stream, tensors, slices, dtype, into))
        self.targets = None
        destinations = [self.given["into"]]
        if targets is not None:
            if any(value is not None for value in self.given.values()):
                raise ValueError("with targets, device, stream, tensors, slices, dtype and into are "
                                 "given to each hoist.Target")
            self.given["targets"] = _targets_of(targets)
            self.targets = len(self.given["targets"])
            destinations = [target[5] for target in self.given["targets"]]
        self.into = [list(dict(into or ())) for into in destinations]
        self.in_place = any(self.into)
        self.given.update(
            budget=budget_of(budget), io=io_of(io), engine=engine_of(engine),
            map=choose(_MAPS, map, "map"), order=_list_of(order), depth=depth,
            group=group_of(group, rank, group_timeout, group_secret),
            tensor_align=size(tensor_align), chunk_bytes=size(chunk_bytes), flags=0)
        for name, value in flags.items():
            if name not in _FLAGS:
                raise TypeError(f"loads have no option {name!r}")
            if value:
                self.given["flags"] |= _FLAGS[name]
        self._destinations = destinations
        self.streams = not self.in_place

    def begin(self):
        """A load begins, and writes to what it loads into."""
        for into in self._destinations:
            held.forget(buffer for _, buffer in into or ())

    @property
    def has_digests(self):
        """True: the load computes digests."""
        return bool(self.given["flags"] & (_hoist.LOAD_DIGEST | _hoist.LOAD_VERIFY))
