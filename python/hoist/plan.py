# SPDX-License-Identifier: MIT
"""What a load would read from where, before it is started."""

import collections

from . import _hoist
from .load import _open
from .options import Options
from .sizes import size


class Plan(collections.namedtuple(
        "Plan", "bytes n_tensors n_files direct_bytes cached_bytes mapped_bytes resident_bytes n_reads "
        "straight_bytes staged_bytes converted_bytes slot_bytes n_slots budget_bytes fits io_reason "
        "targets line")):
    """What a load would do: `hoist.plan()` makes it.  `str(plan)` is one line for a log.

    Attributes
    ----------
    bytes, n_tensors, n_files : int
        Of the selected tensors in their files.
    direct_bytes, cached_bytes, mapped_bytes : int
        To be read past the page cache, through the page cache, and mapped.
    resident_bytes : int or None
        Of these: in the page cache now; None: the kernel does not say.
    n_reads : int
    straight_bytes, staged_bytes : int
        Of `bytes`: read straight to their place in host memory, and through staging slots.
    converted_bytes : int
        Of tensors that get another dtype.
    slot_bytes, n_slots, budget_bytes : int
        The staging slots, 0 if none are needed, and the budget's limit.
    fits : bool
        Each device has the memory free that its tensors take.
    io_reason : str
        Why bytes would be read that way.
    targets : list of dict
        For each destination: device, emulated, n_tensors, bytes (of memory for its tensors), and
        free_bytes (of the device's memory; None: unknown).
    line : str
        As `str(plan)`.
    """

    __slots__ = ()

    def __str__(self):
        return self.line

    def as_dict(self):
        """The facts as a new dict.

        Returns
        -------
        dict
        """
        return self._asdict()

    def json(self):
        """The facts as a JSON object.

        Returns
        -------
        str
        """
        import json  # pylint: disable=import-outside-toplevel
        return json.dumps(self._asdict())


def plan(source, device=None, *, window=None, **options):
    """Says what a load would read from where, without reading a tensor or taking memory for one.

    The answer is made by the code that a load runs until its first read, so a load that follows does
    the same, unless the page cache or the free memory has changed.

    Parameters
    ----------
    source, device, window
        As in `hoist.load()`.
    **options
        Those of `hoist.load()`, without `group` and `progress`.

    Returns
    -------
    Plan
        Without `window`, of a load as `hoist.load_all()` makes it.

    Raises
    ------
    hoist.Error, ValueError, TypeError
        As `hoist.load()`; ValueError also for a `group`, whose ranks divide the reads while they load.

    Examples
    --------
    >>> plan = hoist.plan("model/", device="cuda:0")
    >>> if not plan.fits:
    ...     print(plan)
    """
    known = Options(device, **options)
    if known.given["group"] is not None:
        raise ValueError("the ranks of a group divide the reads while they load: plan without group")
    given = dict(known.given)
    if window is not None:
        given["flags"] |= _hoist.LOAD_STREAM
    checkpoint, owned = _open(source, known)
    try:
        return Plan(**_hoist.forecast(checkpoint, window_bytes=0 if window is None else size(window),
                                      **given))
    finally:
        if owned:
            checkpoint.close()
