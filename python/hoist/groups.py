# SPDX-License-Identifier: MIT
"""The group that a load belongs to, as programs name it and as the extension takes it."""

from . import launcher


def _rank_of(rank):
    """(R, N) of "R/N" or (R, N)."""
    try:
        number, n_ranks = map(int, rank.split("/") if isinstance(rank, str) else rank)
    except (TypeError, ValueError):
        number = n_ranks = -1
    if not 0 <= number < n_ranks < 2**31:
        raise ValueError(f'{rank!r} is no rank; give "R/N" or (R, N): R from 0 to N - 1')
    return number, n_ranks


def group_of(group, rank=None, timeout=None, secret=None):
    """(name, rank, n_ranks, timeout in ns, secret or None) of a group; None."""
    if group is None and rank is None and secret is None:
        return None
    if group is not None and not isinstance(group, str):
        raise TypeError(f"a group is a str, not {type(group).__name__!r}")
    is_far = group is not None and launcher.is_far(group)
    if group is None or rank is None and not is_far:
        raise ValueError('a group has a name and a rank: group="shm:NAME", rank="R/N"; on several machines '
                         'group="tcp://HOST:PORT/NAME" or group="dir:FOLDER/NAME"')
    if secret is not None and not is_far:
        raise ValueError("group_secret is for groups of several machines, tcp: and dir:; leave it out")
    number, n_ranks = _rank_of(rank) if rank is not None else launcher.rank()
    name = launcher.name(group)
    return name, number, n_ranks, 0 if timeout is None else max(1, int(timeout * 1e9)), secret


def shows(group):
    """True where ranks of the group that `group_of()` gave show others their checkpoint."""
    return group is not None and launcher.is_far(group[0])
