# SPDX-License-Identifier: MIT
"""Loads: from files to buffers on a device."""

import atexit
import collections
import os
import threading
import time

from . import _hoist, waiting
from .checkpoint import Checkpoint
from .errors import OutOfMemoryError, WindowError, missing
from .options import Options
from .sizes import size

# A wait is made in steps of this length, between which signals are handled.
_STEP_NS = 50_000_000


def _new_lock():
    try:
        return threading.Lock()
    except RuntimeError as error:  # Python's word for a lack of memory
        raise MemoryError(str(error)) from None


_STATES = ("untouched", "torn", "whole")


class _Progress:
    """Calls `told(done, total)`, or shows a bar by tqdm, as often as there is something new.

    `step` is the longest time in seconds between two looks; None: there is nobody to tell.
    """

    def __init__(self, told):
        self._bar = None
        self.step = None if told is None else _STEP_NS / 1e9
        self.told = told
        if told is True:
            try:
                import tqdm  # pylint: disable=import-outside-toplevel
            except ImportError as error:
                raise ImportError("progress=True needs the package tqdm; a function of "
                                  "(done, total) does without") from error
            self._bar = tqdm.tqdm(unit="B", unit_scale=True)
            self.told = self._move
        self._last = None

    def _move(self, done, total):
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def __call__(self, load):
        if self.told is None:
            return
        now = load.progress()
        if now != self._last:
            self._last = now
            self.told(*now)

    def close(self):
        if self._bar is not None:
            self._bar.close()


class Load(_hoist.Load):
    """A load that runs: `hoist.load()` makes it.

    Iterating gives (name, buffer) as tensors arrive, or (target, name, buffer) with `targets`, where
    `target` is the number of the Target.  `load[name]`, or `load[target, name]`, waits for one
    tensor, `wait()` and `await load` for all; `async for` iterates in asyncio and trio.  Each tensor
    is given once: to the loop, or, if another call has taken it meanwhile, kept until the loop or
    `load[name]` asks.  A load in place (`into`) gives all tensors at its end.

    `cancel()` ends the load soon: calls that wait for it raise CancelledError.  `report()` has the
    facts of a load that is done: bytes and their ways (direct_bytes, cached_bytes, mapped_bytes),
    n_tensors, n_reads, n_copies, ns and cpu_ns (nanoseconds), staging_peak_bytes, pinned_peak_bytes,
    budget_bytes, window_peak_bytes, device, emulated, engine, engine_reason, io_reason, open_ns, and,
    with the sum `ns`, where the time went: plan_ns, allocate_ns, caller_ns, read_ns, convert_ns, copy_ns,
    pages_ns, group_ns, budget_ns, work_ns (include/hoist/load.h).  `explain()` tells these in a line.
    `group`, for "tcp:" and "dir:", is a dict: members, storage_bytes, received_bytes (from members), sent_bytes,
    refused, late, note, damaged, damage (members whose bytes were wrong, and what to do), way (by which
    the bytes went; include/hoist/group.h).

    After a failure of a load in place, the exception has `into_states`: a dict of the keys of `into`
    and "untouched", "whole" or "torn"; with `targets`, a list of such dicts.

    A load is a context manager, whose end cancels a load that still runs.  So does the end of the
    interpreter.  A child of fork cannot use the loads of its parent.  Several threads may take
    tensors of one load; each tensor goes to one of them.
    """

    def __new__(cls, checkpoint, options, *, progress=None, window=None, owned=False):
        taking = _new_lock()  # held from the library's answer until the tensor is kept
        bar = _Progress(progress)
        given = dict(options.given)
        if options.streams:
            given["flags"] |= _hoist.LOAD_STREAM
        options.begin()
        self = super().__new__(cls, checkpoint, window_bytes=0 if window is None else size(window),
                               **given)
        self._options = options
        self._names = checkpoint._names()
        self._kept = {}
        self._line = collections.deque()  # their keys, in order
        self._taking = taking
        self._digest_of = {}
        self._all_given = False
        self._progress = bar
        self._checkpoint = checkpoint if owned else None
        return self

    def __init__(self, checkpoint, options, **_):
        pass

    # --- taking tensors ---

    def _keep(self, item):
        target, tensor, index, buffer = item
        name = self._names[tensor]
        key = name if self._options.targets is None else (target, name)
        self._kept[key] = buffer
        self._line.append(key)
        if target == 0 and self._options.has_digests:
            self._digest_of[name] = index

    def _take_some(self, timeout_ns):
        """True: kept what has arrived; None: all were given, and are kept; (): nothing yet."""
        if self._options.streams:
            if timeout_ns == 0 and self._taking.locked():
                return ()
            with self._taking:
                got = self._next(timeout_ns)
                if got:
                    self._keep(got)
            return got and True
        if not self._is_done():
            if timeout_ns > 0:
                waiting.poll(self.fileno(), timeout_ns)
            return ()
        with self._taking:
            if not self._all_given:
                self._wait()
                for target in range(self._options.targets or 1):
                    for item in self._tensors(target):
                        self._keep(item)
                self._all_given = True
        return None

    def _take(self, timeout_ns):
        """As _take_some().  A full window, or a lack of memory, is no end of the load: the caller
        may drop buffers, and go on.  All else is: nobody will take what the load goes on to read.
        """
        try:
            got = self._take_some(timeout_ns)
            self._progress(self)
        except (WindowError, OutOfMemoryError) as error:
            if not self._options.streams:
                self._fail(error)
            raise
        except BaseException as error:  # Ctrl-C, too
            self._fail(error)
            raise
        if got is None:
            self._all_given = True
            self._progress.close()
        return got

    def _fail(self, error):
        """Ends the load, and tells what became of the buffers of a load in place."""
        self.cancel()
        if self.closed or not self._options.in_place:
            return
        while not self._is_done():
            waiting.poll(self.fileno(), _STEP_NS)
        error.into_states = self._into_states()

    def _into_states(self):
        states = [{name: _STATES[self._into_state(target, index)] for index, name in enumerate(names)}
                  for target, names in enumerate(self._options.into)]
        return states[0] if self._options.targets is None else states

    # --- calls that wait ---

    def __iter__(self):
        return self

    def _pop(self):
        """The first tensor that is kept; None: there is none."""
        try:
            key = self._line.popleft()
            buffer = self._kept.pop(key)
        except (IndexError, KeyError):  # KeyError: close() has just dropped it
            return None
        return (key, buffer) if self._options.targets is None else (*key, buffer)

    def __next__(self):
        while True:
            all_given = self._all_given  # another thread may keep the last tensor after _pop()
            item = self._pop()
            if item is not None:
                return item
            if all_given:
                raise StopIteration
            self._take(_STEP_NS)

    def __getitem__(self, name):
        while name not in self._kept and not self._all_given:
            self._take(_STEP_NS)
        try:
            return self._kept[name]
        except KeyError:
            self._is_done()  # ClosedError, where close() has dropped it
            raise missing(name, "the load does not give it, or has given it to the loop") from None

    def wait(self, timeout=None):
        """Waits until all tensors have arrived, and keeps them.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None: no limit.

        Returns
        -------
        bool
            False: the time is over, and the load goes on.

        Raises
        ------
        CancelledError
            cancel() was called.
        hoist.Error
            What the load failed with: see the notes of `hoist.load()`.
        """
        until = None if timeout is None else time.monotonic_ns() + int(timeout * 1e9)
        while not self._all_given:
            left = _STEP_NS if until is None else max(0, until - time.monotonic_ns())
            if self._take(min(_STEP_NS, left)) is not None and left == 0:
                return self._all_given
        return True

    def digest(self, name):
        """The XXH3-128 of a tensor's bytes in its file.

        Parameters
        ----------
        name : str
            With targets, of the tensors that the first target has.

        Returns
        -------
        bytes
            16 bytes.

        Raises
        ------
        MissingError
            The tensor has not arrived, or the load has neither `digest` nor `verify`.
        """
        if name not in self._digest_of:
            raise missing(name, "the tensor has not arrived, or the load computes no digests")
        return self._digest(self._digest_of[name])

    # --- event loops ---

    async def _take_async(self):
        if self._take(0) == ():
            await waiting.readable(self.fileno(), self._progress.step)

    async def _wait_async(self):
        while not self._all_given:
            await self._take_async()
        return self

    def __await__(self):
        return self._wait_async().__await__()

    def __aiter__(self):
        return self

    async def __anext__(self):
        while True:
            all_given = self._all_given
            item = self._pop()
            if item is not None:
                return item
            if all_given:
                raise StopAsyncIteration
            await self._take_async()

    # --- the end ---

    def close(self):
        """Cancels the load if it still runs.  Buffers that were given live on.

        Raises ValueError while another thread waits for the load; cancel() ends that wait.
        """
        super().close()
        self._kept.clear()
        self._line.clear()
        self._progress.close()
        if self._checkpoint is not None:
            self._checkpoint.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()


# The threads of loads and saves may not call into an interpreter that is gone.  The last is called first.
atexit.register(_hoist.end_drops)
atexit.register(_hoist.end_jobs)
os.register_at_fork(after_in_child=_hoist.collect_again)


def _open(source, options):
    """(checkpoint, whether it is the load's own)"""
    if isinstance(source, Checkpoint):
        return source, False
    path, group = os.fspath(source), options.given["group"]
    return Checkpoint(path, group=group), True


def load(source, device=None, *, window=None, progress=None, **options):
    """Starts to load tensors, and gives them as they arrive.

    Parameters
    ----------
    source : str, os.PathLike or Checkpoint
    device : str or Device, optional
        The destination; None: the device of `stream`, or the CPU.
    stream : Stream, optional
        Copies are queued here, and buffers are ordered behind them.
    tensors : list of str, optional
        Names or globs; None: all.
    slices : dict, optional
        {name or glob: (axis, rank, n_ranks)}, the part number `rank` of `n_ranks` equal ones, or
        (axis, slice(begin, end)).  A list of these slices several axes.
    dtype : str, optional
        "f32", "f16" or "bf16": tensors of these three are converted to this one.
    into : dict, optional
        {name, or glob that matches one tensor: array}: the tensors to load, each into memory of the
        program's: a Buffer, a torch tensor, a NumPy array, or anything with `__dlpack__`.  An array
        has the shape of its tensor, any strides, and the dtype or another one of f32, f16 and bf16.
        Nothing may use the arrays until the load has ended.  Not with `tensors`, `dtype`, `window`
        and `io="map"`.
    targets : list of Target, optional
        Several destinations, in place of the one of these options: the files are read once for all.
    budget : Budget, int or str, optional
        Of the staging memory: "256M".
    window : int or str, optional
        The most bytes of tensors that the program may hold at a time: a checkpoint of any size
        passes through.  A loop's variable holds one tensor while the next is loaded: either the
        window has room for both, or the loop ends with `del buffer`.
    order : list of str, optional
        Names or globs: tensors that match the first come first, and so on.
    io : {"auto", "direct", "cached", "map", "adaptive"}
        "map" maps the files, as `map` says.  "adaptive" maps what the page cache holds,
        copy-on-write, and reads the rest: to the host only, and not as tensors arrive, so it serves
        `load_all()` and `load_file()`.
    map : {"copyonwrite", "readonly", "readwrite"}
        Where a write to a mapped buffer goes; "readwrite": to the file.
    engine : {"auto", "io_uring", "threads"}
    group, rank : str, optional
        "shm:NAME", or for several machines "tcp://HOST:PORT/NAME" or "dir:FOLDER/NAME", a folder that
        all see (doc/group.md; "tcp:" below is both), and "R/N": this process is rank R of N that load
        together.  The group reads each byte once.  A rank may have tensors before the others have
        theirs.  At the end all ranks of "shm:" have succeeded, or none; those of "tcp:" go on without
        one that failed, and may leave out `rank`.  Where there is nothing at `source`, or files
        are missing there, the ranks of "tcp:" that have these files give their bytes.  Not with `order`, `window` and maps.
    group_timeout : float, optional
        Seconds that the ranks wait for one that has not come, or has stopped; None: 30.
    group_secret : str, optional
        "tcp:": a text of 16 bytes and more that all ranks know; None: the environment's
        (doc/group.md).
    digest, verify : bool
        Compute digests (`Load.digest()`); compare them with those in the checkpoint.
    drop_cache : bool
        No page of the files is left in the page cache.
    populate : bool
        With maps: all bytes are in memory before the load is done.
    split : bool
        A block of memory for each tensor, which goes back with the tensor's last buffer.  Loads that
        give tensors as they arrive always do so.
    tensor_align, chunk_bytes, depth : int, optional
        As in include/hoist/load.h; 0: hoist chooses.  Its `replicas` are `targets` here; and tensors
        come to the memory of a resource by `into`, with Buffers that the resource has allocated.
    progress : callable or True, optional
        Called with (bytes done, bytes in all) by the thread that takes tensors; True: a bar by tqdm
        (ImportError where tqdm is not installed).

    Returns
    -------
    Load

    Raises
    ------
    NotFoundError
        There is no such file; a name or glob matches no tensor.
    FormatError, AccessError
        A file is malformed, or may not be read.
    UnsupportedError
        A file, the kernel or the driver lacks what an option asks for.
    DeviceError
        There is no driver, or the driver failed.
    OutOfMemoryError
        The memory of the host or the device, or the budget, is exhausted.
    ValueError, TypeError
        An option is wrong, or does not go with another; the machine has no such device.
    ReadOnlyError
        An array of `into` is read-only.

    Notes
    -----
    What fails later is raised by the calls that take tensors: FormatError (a file changed or shrank,
    or a digest differs), DeviceError, KernelError (the system cannot read), PeerError and TimedOutError
    (a group), WindowError (the program holds what fills the window; drop buffers, and go on).

    Examples
    --------
    >>> with hoist.load("model/", device="cuda:0") as load:
    ...     for name, buffer in load:
    ...         use(name, buffer)
    """
    known = Options(device, **options)
    checkpoint, owned = _open(source, known)
    try:
        return Load(checkpoint, known, progress=progress, window=window, owned=owned)
    except BaseException:
        if owned:
            checkpoint.close()
        raise


def load_all(source, device=None, *, progress=None, **options):
    """Loads tensors, and returns when all have arrived.

    The calling thread drives the load, which has no thread of its own.  Ctrl-C ends the call.

    Parameters
    ----------
    source, device, progress
        As in `hoist.load()`.
    **options
        Those of `hoist.load()`, without `window`.

    Returns
    -------
    dict or list of dict
        Names and Buffers; with `targets`, one such dict for each target.

    Raises
    ------
    hoist.Error, ValueError, TypeError
        As `hoist.load()`.  Failing halfway leaves nothing, except in place: there the exception has
        `into_states` (`hoist.Load`).
    """
    return load_as(_hoist.Load._buffers, source, device, progress=progress, **options)


def load_as(take, source, device=None, *, progress=None, **options):
    """As load_all(), with `take(load, target, names)` for the dict of a target; in place: Buffers."""
    known = Options(device, **options)
    checkpoint, owned = _open(source, known)
    try:
        if known.in_place:
            return _load_in_place(checkpoint, known, progress)
        return _load_driven(checkpoint, known, progress, take)
    finally:
        if owned:
            checkpoint.close()


def of_all(make, buffers):
    """{name: make(buffer)}, without Python's collector, which would find nothing."""
    return _hoist.uncollected(lambda: {name: make(buffer) for name, buffer in buffers.items()})


def _load_in_place(checkpoint, options, progress):
    with Load(checkpoint, options, progress=progress) as running:
        running.wait()
        if options.targets is None:
            return dict(running)
        ret = [{} for _ in range(options.targets)]
        for target, name, buffer in running:
            ret[target][name] = buffer
        return ret


def _load_driven(checkpoint, options, progress, take):
    """This thread drives the load: it has none of its own."""
    given = dict(options.given)
    given["flags"] |= _hoist.LOAD_CALLER_DRIVEN
    bar = _Progress(progress)
    options.begin()
    try:
        running = _hoist.Load(checkpoint, **given)
        try:
            while not running._step(_STEP_NS):
                bar(running)
            running._wait()
            bar(running)
            names = checkpoint._names()
            ret = [_hoist.uncollected(take, running, target, names)
                   for target in range(options.targets or 1)]
            return ret[0] if options.targets is None else ret
        finally:
            running.close()
    finally:
        bar.close()
