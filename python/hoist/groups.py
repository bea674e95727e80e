# SPDX-License-Identifier: MIT
"""The group that a load belongs to, as programs name it and as the extension takes it."""

import collections

from . import _hoist, launcher, waiting

Member = collections.namedtuple("Member", "id address has_files begun bytes done_bytes storage_bytes "
                                          "received_bytes sent_bytes rank n_ranks")
Member.__doc__ = """A rank of a group on several machines that loads now.

Attributes
----------
id : int
    A random number.
address : str
    At which the rank listens, "10.0.0.1:34567".
has_files : bool
    Its machine has files of the checkpoint: all, or some.
begun : bool
    False: it waits for others.
bytes : int
    Bytes of the checkpoint, in cells of 2 MiB.
done_bytes : int
    Those of them that the rank has, or does not want.
storage_bytes : int
    Bytes that it read from storage.
received_bytes : int
    Bytes that it got from others.
sent_bytes : int
    Bytes that it gave to others.
rank : int
    The member's rank, below `n_ranks`.
n_ranks : int
    The number of ranks of the group; 0: unknown, and `rank` says nothing.
"""


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


def group_look(group, *, group_secret=None, group_timeout=5):
    """The ranks of a group on several machines that loads now, as `hoist group status` shows them.

    Two looks give rates.  The rank that is asked comes first; figures are at most 100 ms old.

    Parameters
    ----------
    group : str
        "tcp://HOST:PORT/NAME", "tcp:///NAME" where a launcher says the host, or "dir:FOLDER/NAME".
    group_secret : str, optional
        The group's secret; None: that of the environment.
    group_timeout : float
        Seconds to wait for an answer.

    Returns
    -------
    list of Member

    Raises
    ------
    ConnectionRefusedError, TimeoutError
        No rank of the group is there, or none answers.
    AccessError
        The secret is not the group's.
    ValueError
        At the address is another group.
    Error
        A group of one machine, "shm:".

    Examples
    --------
    >>> for member in hoist.group_look("tcp://10.0.0.1:7117/llama"):
    ...     print(member.address, member.done_bytes / member.bytes)
    """
    if not isinstance(group, str):
        raise TypeError(f"a group is a str, not {type(group).__name__!r}")
    given = launcher.name(group), 0, 0, max(1, int(group_timeout * 1e9)), group_secret
    return [Member(*member) for member in waiting.in_thread(lambda: _hoist.group_look(given))]
