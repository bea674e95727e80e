# SPDX-License-Identifier: MIT
"""Names and tensors of a checkpoint's files in the five ways that servers take them."""

import contextlib
import threading
import time

from .. import cache
from .._hoist import Memory
from ..checkpoint import Checkpoint
from ..errors import PeerError, WindowError
from ..lazy import Source
from ..load import load
from ..plan import plan
from ..sizes import size
from ..torch import tensor

# A smaller tensor is not worth a load of its own: all of a file come by one load.
_LAZY_FROM = 64 << 10
_WINDOW = 1 << 30
# A file of which the page cache lacks a larger part is read, not mapped.
_COLD_PART = 16
# Seconds between two looks whether all ranks live, and in which a group's load ends in a rank after it has
# ended in another.
_LOOK, _GRACE = 0.5, 5
# Figures of a plan (hoist.plan()) that are summed.
_PLANNED = ("bytes", "direct_bytes", "cached_bytes", "mapped_bytes", "resident_bytes")
# Stages of a load's report (hoist.Load.report()): where its time went.
_STAGES = frozenset(f"{name}_ns" for name in (
    "read", "copy", "convert", "pages", "caller", "group", "budget", "plan", "allocate", "work"))
_counting = threading.Lock()  # any thread may use a Lazy


class Facts(dict):
    """What a load has read so far.

    Parameters
    ----------
    way : str
    log : logging.Logger
        Takes a line of what is about to be read, and one at the end.
    """

    def __init__(self, way, log):
        super().__init__(way=way, file_bytes=0, read_bytes=0, mapped_bytes=0, n_tensors=0, n_loads=0,
                         seconds=0.0, stages={}, plan={})
        self._log = log

    def planned(self, plans):
        """Takes what is planned of each file, and says so."""
        sums = {name: sum(getattr(one, name) or 0 for one in plans) for name in _PLANNED}
        with _counting:
            self["plan"] = {"n_files": len(plans), **sums}
        most = {"slices": " at most", "group": " with the other ranks"}.get(self["way"], "")
        ways = ", ".join(f"{sums[name + '_bytes'] / 1e9:.3f} {name}" for name in ("direct", "cached", "mapped"))
        self.say(f"hoist takes {sums['bytes'] / 1e9:.3f} GB of {len(plans)} files by {self['way']}{most}: {ways}; "
                 f"{sums['resident_bytes'] / 1e9:.3f} in the page cache now")

    def say(self, line):
        """Adds a line to the log."""
        self._log.info("%s", line)

    @contextlib.contextmanager
    def stage(self, name):
        """Counts the time of a block as that of a stage."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            self.add_stage(name, time.monotonic_ns() - began)

    def add_stage(self, name, n_ns):
        """Counts time as that of a stage."""
        with _counting:
            self["seconds"] += n_ns / 1e9
            self["stages"][f"{name}_ns"] = self["stages"].get(f"{name}_ns", 0) + n_ns

    def add(self, report):
        """Counts a load by its report."""
        self.add_part(report["direct_bytes"] + report["cached_bytes"], report["ns"] / 1e9)
        with _counting:
            self["mapped_bytes"] += report["mapped_bytes"]
            for name in report.keys() & _STAGES:
                self["stages"][name] = self["stages"].get(name, 0) + report[name]

    def add_part(self, n_bytes, seconds=0.0):
        """Counts a load, which may have ended early."""
        with _counting:
            self["read_bytes"] += n_bytes
            self["n_loads"] += 1
            self["seconds"] += seconds

    def end(self):
        """Says what has been read."""
        mapped = f" and mapped {self['mapped_bytes'] / 1e9:.3f}" if self["mapped_bytes"] else ""
        total = sum(self["stages"].values()) or 1
        shares = sorted(((ns / total, name[:-3]) for name, ns in self["stages"].items()), reverse=True)
        stages = "".join(f", {name} {share:.0%}" for share, name in shares if share >= 0.01)
        self.say(f"hoist has read {self['read_bytes'] / 1e9:.3f}{mapped} of "
                 f"{self['file_bytes'] / 1e9:.3f} GB, {self['n_tensors']} tensors, by {self['way']}: "
                 f"{self['n_loads']} loads, {self['seconds']:.2f} s{stages}")


def _streamed(checkpoint, names, settings, facts):
    """Whole tensors as they arrive, read ahead of the server by a window at most."""
    window = settings.window or max(_WINDOW, 3 * max(checkpoint[name].nbytes for name in names))
    left = dict.fromkeys(names)
    while left:
        n_left = len(left)
        with load(checkpoint, tensors=list(left), window=window, **settings.load) as running:
            try:
                for name, buffer in running:
                    box = [tensor(buffer)]
                    del buffer, left[name]  # the window counts what this generator holds, too
                    yield name, box.pop()
                running.wait()
                facts.add(running.report())
            except WindowError:
                # The server keeps what fills the window: another window goes on.
                facts.add_part(running.progress()[0])
                if len(left) == n_left:
                    raise


def _batches(checkpoint, settings):
    """The names of all tensors, cut where half a window is full: the same in all ranks.

    A batch is handed over while the next one is read, so two are in memory.
    """
    largest = max(checkpoint, key=lambda name: checkpoint[name].nbytes)
    least = 2 * checkpoint[largest].nbytes
    window = max(_WINDOW, least) if settings.window is None else size(settings.window)
    if window < least:
        raise ValueError(f"a window of {window} bytes is too small for a group, which keeps two batches of whole "
                         f"tensors in it: {largest!r} needs a window of {least} bytes")
    ret, n_bytes = [[]], 0
    for name in checkpoint:
        n_bytes += checkpoint[name].nbytes
        if ret[-1] and n_bytes > window // 2:
            ret.append([])
            n_bytes = checkpoint[name].nbytes
        ret[-1].append(name)
    return ret


def _wait_for(running, ranks):
    """Waits for a load of the group.  Raises PeerError where a rank will not come to it."""
    while not running.wait(_LOOK):
        gone = ranks.gone()
        # After the last load, a rank may have left before this one knows that all have all.
        if gone is not None and not running.wait(_GRACE):
            raise PeerError(f"rank {gone} of {ranks.n_ranks} that read together on this machine has died, or "
                            "failed and left the load; its own log says why")


def _grouped(checkpoint, number, wanted, settings, facts, ranks):
    """Whole tensors that the ranks read once for all."""
    batches = _batches(checkpoint, settings)

    def begin(batch):
        # A rank that wants nothing of a batch reads its share for the others.
        return load(checkpoint, tensors=[name for name in batches[batch] if name in wanted],
                    **ranks.options(f"{number}.{batch}"), **settings.load)
    ahead = begin(0)
    try:
        for batch in range(len(batches)):
            running = ahead
            try:
                _wait_for(running, ranks)
                report = running.report()
                facts.add(report)
                ranks.note(report)
                if batch + 1 < len(batches):
                    ahead = begin(batch + 1)
                for name, buffer in running:
                    box = [tensor(buffer)]
                    del buffer  # a tensor that the server has dropped is not kept here
                    yield name, box.pop()
            finally:
                running.close()
    finally:
        ahead.close()


def _sliced(checkpoint, names, settings, facts):
    """Tensors that are read when the server uses them, and of which only that part is read."""
    source = Source(checkpoint, facts.add, device_direct=settings.device_direct is not False, **settings.load)
    lazies = {name: source.lazy(name) for name in names if checkpoint[name].nbytes >= _LAZY_FROM}
    small = source.tensors([name for name in names if lazies.get(name) is None])
    for name in names:
        yield name, small.pop(name) if name in small else lazies.pop(name)


def _mapped(checkpoint, names, settings, facts):
    """Tensors over the page cache's own pages, private where they are written to; what the page cache
    lacks is read first."""
    source = Source(checkpoint, facts.add, io="adaptive", **settings.load)
    found = source.tensors(names)
    for name in names:
        yield name, found.pop(name)


def _plan(checkpoint, names, settings, facts):
    """What a load of the tensors would read from where, if it began now."""
    if facts["way"] == "map" or settings.may_map:
        ret = plan(checkpoint, tensors=names, io="adaptive", **settings.load)
        # Mapped where the page cache has nearly all of the tensors.
        if facts["way"] == "map" or (ret.bytes - ret.mapped_bytes) * _COLD_PART <= ret.bytes:
            return ret
    return plan(checkpoint, tensors=names, **settings.load)


def _way(checkpoint, names, settings, facts):
    """How to read a file whose turn has come."""
    if facts["way"] == "map":
        return _mapped
    if settings.may_map:
        with facts.stage("plan"):
            if _plan(checkpoint, names, settings, facts).mapped_bytes > 0:
                return _mapped
    return _sliced if facts["way"] == "slices" else _streamed


def _cached(path, is_wanted, settings, facts):
    """Tensors of a file's image in memory, which the first process makes and all share."""
    began = time.monotonic_ns()
    options = {name: settings.load[name] for name in ("budget", "engine", "io") if name in settings.load}
    with cache.add(path, **options) as image:
        n_ns = time.monotonic_ns() - began
        is_new = image.info.age <= n_ns / 1e9  # another process, or an earlier load, may have read it
        facts.add_stage("read" if is_new else "open", n_ns)
        facts["n_loads"] += is_new
        facts["read_bytes"] += image.info.tensor_bytes if is_new else 0
        facts["file_bytes"] += image.info.tensor_bytes
        for name in image:
            if is_wanted(name):
                facts["n_tensors"] += 1
                yield name, tensor(image[name])


def give_back():
    """Gives back the host's memory that hoist has kept from loads, and that no tensor uses."""
    Memory.of_device("host", "cpu").trim()


def read(files, is_wanted, settings, facts, ranks=None, *, prefix=""):
    """Names and tensors of files, in the order of the files and of their bytes.

    The memory of tensors that the server keeps no longer is given back at the end.

    Parameters
    ----------
    files : list of str
    is_wanted : callable
        Whether a tensor of that name is needed at all.
    settings : Settings
    facts : Facts
        Counts what is read; `facts["way"]` is the way.
    ranks : Ranks, optional
        Those that share the reads, by the way "group".  Closed at the end.  Without them, or where this rank
        is the only one, the rank streams.
    prefix : str
        Stands before the names that the server gets.
    """
    try:
        for name, found in _read(files, is_wanted, settings, facts, ranks):
            box = [found]
            del found
            yield prefix + name, box.pop()
    finally:
        if ranks is not None:
            ranks.close()
        give_back()


def _opened(path, is_wanted, facts):
    """A checkpoint, which is not closed here, as a server may use lazy tensors later; the names that are wanted."""
    with facts.stage("open"):
        checkpoint = Checkpoint(path)
    names = [name for name in checkpoint if is_wanted(name)]
    facts["file_bytes"] += checkpoint.nbytes
    facts["n_tensors"] += len(names)
    return checkpoint, names


def _read(files, is_wanted, settings, facts, ranks):
    if facts["way"] == "cache":
        facts.say(f"hoist takes {len(files)} files by cache: those that have no image in memory are read into one")
        for path in files:
            yield from _cached(path, is_wanted, settings, facts)
        return
    opened = [_opened(path, is_wanted, facts) for path in files]
    with facts.stage("plan"):
        facts.planned([_plan(checkpoint, names, settings, facts) for checkpoint, names in opened if names])
    opened.reverse()
    for number in range(len(opened)):
        checkpoint, names = opened.pop()
        if ranks is not None and ranks.n_ranks > 1 and len(checkpoint) > 0:
            yield from _grouped(checkpoint, number, frozenset(names), settings, facts, ranks)
        elif names:
            yield from _way(checkpoint, names, settings, facts)(checkpoint, names, settings, facts)
