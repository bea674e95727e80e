# SPDX-License-Identifier: MIT
"""Loads: from files to buffers on a device."""

import collections
import os
import time

from . import _hoist
from .checkpoint import Checkpoint
from .errors import OutOfMemoryError, WindowError
from .sizes import size

# A wait is made in steps of this length, between which signals are handled.
_STEP_NS = 50_000_000

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
_SLICE_END = 2**63 - 1


class Budget(_hoist.Budget):
    """A limit in bytes that loads share: `hoist.Budget("1G")`."""

    def __new__(cls, limit):
        return super().__new__(cls, size(limit))


def _choice(table, value, what):
    if value not in table:
        raise ValueError(f"{what} is one of {', '.join(table)}, not {value!r}")
    return table[value]


def _slices(slices):
    """{tensor: (axis, rank, n_ranks) or (axis, slice)} as the extension takes them.

    A list of such tuples slices several axes of one tensor.
    """
    ret = []
    for name, value in (slices or {}).items():
        for one in value if isinstance(value, list) else [value]:
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


def _options(device, stream, tensors, slices, dtype, budget, io, engine, digest, verify, drop_cache):
    if isinstance(tensors, str):
        tensors = [tensors]
    if budget is not None and not isinstance(budget, _hoist.Budget):
        budget = Budget(budget)
    flags = _hoist.LOAD_DIGEST if digest else 0
    flags |= _hoist.LOAD_VERIFY if verify else 0
    flags |= _hoist.LOAD_DROP_CACHE if drop_cache else 0
    return {
        "device": device,
        "stream": stream,
        "tensors": None if tensors is None else list(tensors),
        "slices": _slices(slices),
        "dtype": dtype,
        "budget": budget,
        "io": _choice(_IO, io, "io"),
        "engine": _choice(_ENGINES, engine, "engine"),
        "flags": flags,
    }


class _Progress:
    """Calls `told(done, total)`, or shows a bar by tqdm, as often as there is something new."""

    def __init__(self, told):
        self._bar = None
        self._told = told
        if told is True:
            try:
                import tqdm  # pylint: disable=import-outside-toplevel
            except ImportError as error:
                raise ImportError("progress=True needs the package tqdm; a function of "
                                  "(done, total) does without") from error
            self._bar = tqdm.tqdm(unit="B", unit_scale=True)
            self._told = self._move
        self._last = None

    def _move(self, done, total):
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def __call__(self, load):
        if self._told is None:
            return
        now = load.progress()
        if now != self._last:
            self._last = now
            self._told(*now)

    def close(self):
        if self._bar is not None:
            self._bar.close()


class Load(_hoist.Load):
    """A load that runs: `hoist.load()` makes it.

    Iterating gives (name, buffer) as tensors arrive.  `load[name]` waits for one tensor, `wait()`
    and `await load` for all.  Each tensor is given once: to the loop, or, if another call has taken
    it meanwhile, kept until the loop or `load[name]` asks.
    """

    def __new__(cls, checkpoint, *, progress=None, window=None, owned=False, **options):
        bar = _Progress(progress)
        options["flags"] |= _hoist.LOAD_STREAM
        window_bytes = 0 if window is None else size(window)
        self = super().__new__(cls, checkpoint, window_bytes=window_bytes, **options)
        self._names = checkpoint._names()
        self._kept = collections.OrderedDict()
        self._all_given = False
        self._waiter = None
        self._progress = bar
        self._checkpoint = checkpoint if owned else None
        return self

    def __init__(self, checkpoint, **options):
        pass

    def _take(self, timeout_ns):
        """Takes the next tensor.  Returns: its name; None: all were given; (): nothing yet.

        The tensor is kept.  A full window, or a lack of memory, is no end of the load: the caller
        may drop buffers, and go on.
        """
        try:
            got = self._next(timeout_ns)
            if got:
                self._kept[self._names[got[1]]] = got[2]
            self._progress(self)
        except (WindowError, OutOfMemoryError):
            raise
        except BaseException:  # Ctrl-C, too: nobody will take what the load goes on to read
            self.cancel()
            raise
        if got is None:
            self._all_given = True
            self._progress.close()
        return self._names[got[1]] if got else got

    def _take_waiting(self):
        got = ()
        while got == ():
            got = self._take(_STEP_NS)
        return got

    def __iter__(self):
        return self

    def __next__(self):
        while True:
            try:
                return self._kept.popitem(last=False)
            except KeyError:  # nothing is kept, or another thread was quicker
                pass
            if self._all_given:
                raise StopIteration
            self._take_waiting()

    def __getitem__(self, name):
        while name not in self._kept and not self._all_given:
            self._take_waiting()
        return self._kept[name]

    def wait(self, timeout=None):
        """Waits until all tensors have arrived, and keeps them.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None: no limit.

        Returns
        -------
        bool
            False: the time is over.
        """
        until = None if timeout is None else time.monotonic_ns() + int(timeout * 1e9)
        while not self._all_given:
            left = _STEP_NS if until is None else max(0, until - time.monotonic_ns())
            if self._take(min(_STEP_NS, left)) is not None and left == 0:
                return self._all_given
        return True

    def _ready(self, loop):
        """A future for when a tensor can be taken, which all tasks of the event loop share."""
        if self._waiter is None or self._waiter.done() or self._waiter.get_loop() is not loop:
            self._waiter = waiter = loop.create_future()
            fd = self.fileno()

            def ready():
                loop.remove_reader(fd)
                if not waiter.done():
                    waiter.set_result(None)

            loop.add_reader(fd, ready)
        import asyncio  # pylint: disable=import-outside-toplevel
        return asyncio.shield(self._waiter)

    async def _wait_async(self):
        import asyncio  # pylint: disable=import-outside-toplevel  # takes 30 ms
        loop = asyncio.get_running_loop()
        while not self._all_given:
            if self._take(0) == ():
                await self._ready(loop)
        return self

    def __await__(self):
        return self._wait_async().__await__()

    def close(self):
        """Cancels the load if it still runs.  Buffers that were given live on."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done() and not waiter.get_loop().is_closed():
            waiter.get_loop().remove_reader(self.fileno())
            waiter.cancel()
        self._kept.clear()
        self._progress.close()
        super().close()
        if self._checkpoint is not None:
            self._checkpoint.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _open(source):
    """(checkpoint, whether it is the load's own)"""
    if isinstance(source, Checkpoint):
        return source, False
    return Checkpoint(os.fspath(source)), True


def load(source, device=None, *, stream=None, tensors=None, slices=None, dtype=None, budget=None,
         window=None, order=None, io="auto", engine="auto", digest=False, verify=False, drop_cache=False,
         progress=None):
    """Starts to load tensors, and gives them as they arrive.

    Parameters
    ----------
    source : str, os.PathLike or Checkpoint
    device : str or Device, optional
        The destination; None: the CPU.
    stream : Stream, optional
        Copies are queued here, and buffers are ordered behind them.
    tensors : list of str, optional
        Names or globs; None: all.
    slices : dict, optional
        {name or glob: (axis, rank, n_ranks)}, the part number `rank` of `n_ranks` equal ones, or
        (axis, slice(begin, end)).  A list of these slices several axes.
    dtype : str, optional
        "f32", "f16" or "bf16": tensors of these three are converted to this one.
    budget : Budget, int or str, optional
        Of the staging memory: "256M".
    window : int or str, optional
        The most bytes of tensors that the program may hold at a time: a checkpoint of any size
        passes through.  A loop's variable holds one tensor while the next is loaded: either the
        window has room for both, or the loop ends with `del buffer`.
    order : list of str, optional
        Names or globs: tensors that match the first come first, and so on.
    io : {"auto", "direct", "cached", "map", "adaptive"}
        "adaptive" maps what the page cache holds, copy-on-write, and reads the rest: to the host
        only, and not as tensors arrive, so it serves `load_all()` and `load_file()`.
    engine : {"auto", "io_uring", "threads"}
    digest, verify : bool
        Compute digests; compare them with those in the checkpoint.
    drop_cache : bool
        No page of the files is left in the page cache.
    progress : callable or True, optional
        Called with (bytes done, bytes in all); True: a bar by tqdm.

    Returns
    -------
    Load

    Examples
    --------
    >>> with hoist.load("model/", device="cuda:0") as load:
    ...     for name, buffer in load:
    ...         use(name, buffer)
    """
    options = _options(device, stream, tensors, slices, dtype, budget, io, engine, digest, verify,
                       drop_cache)
    if order is not None:
        options["order"] = [order] if isinstance(order, str) else list(order)
    checkpoint, owned = _open(source)
    try:
        return Load(checkpoint, progress=progress, window=window, owned=owned, **options)
    except BaseException:
        if owned:
            checkpoint.close()
        raise


def load_all(source, device=None, *, stream=None, tensors=None, slices=None, dtype=None,
             budget=None, io="auto", engine="auto", digest=False, verify=False, drop_cache=False,
             progress=None):
    """Loads tensors, and returns when all have arrived: a dict of names and buffers.

    The parameters are those of `load()`, without `window` and `order`.
    """
    options = _options(device, stream, tensors, slices, dtype, budget, io, engine, digest, verify,
                       drop_cache)
    options["flags"] |= _hoist.LOAD_CALLER_DRIVEN
    checkpoint, owned = _open(source)
    bar = _Progress(progress)
    try:
        running = _hoist.Load(checkpoint, **options)
        try:
            while not running._step(_STEP_NS):
                bar(running)
            running._wait()
            bar(running)
            names = checkpoint._names()
            return {names[index]: buffer for index, buffer in running._tensors()}
        finally:
            running.close()
    finally:
        bar.close()
        if owned:
            checkpoint.close()
