# SPDX-License-Identifier: MIT
"""The ranks of a server that read as a group: those of one machine, or all."""

import errno
import os
import secrets
import socket

from ..errors import PeerError


def _machine():
    """Names this machine's network namespace, within which the ranks of a group meet."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip(), os.readlink("/proc/self/ns/net")


def gatherer(process_group):
    """`gather` of Ranks, by a process group of torch's for the CPU."""
    def gather(said):
        import torch.distributed as dist  # pylint: disable=import-outside-toplevel
        ret = [None] * dist.get_world_size(process_group)
        dist.all_gather_object(ret, said, group=process_group)
        return ret
    return gather


# Seconds that a group waits for a rank that is busy with what it has.  On several machines the others go on
# without it then.  At a folder they hardly wait for it in the loads that follow; a door may still be that of
# a load before.
_PATIENCE, _FAR_PATIENCE, _LATE_PATIENCE = 600, 60, 0.5


class Ranks:
    """This rank among those that read together, for one load.  All ranks of the server make one together.

    Each rank has a socket with a random name for as long as the rank reads.  The others of its machine learn by
    it that a rank has ended, although the rank never came to a group's load.

    Parameters
    ----------
    gather : callable
        gather(said) gives what each rank said, in one order in all ranks.
    group : str, optional
        "tcp://HOST:PORT" or "dir:FOLDER": where all ranks meet.  None: those of each machine are a group.

    Raises
    ------
    PeerError
        A rank cannot take part.
    OSError
        This rank cannot.
    """

    def __init__(self, gather, group=None):
        where = error = None
        token = secrets.token_hex(16)
        self._socket = None
        try:
            where = _machine()
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.bind(self._address(token))
        except OSError as failure:
            error = failure
        # A rank that failed says so: the others would wait for its word.
        said = gather((None if error else where, token))
        if error is None and any(there is None for there, _ in said):
            error = PeerError("a rank of the server failed before the group's load began; its own log says why")
        if error is not None:
            self.close()
            raise error
        self._group = group
        self._patience = _PATIENCE if group is None else _FAR_PATIENCE
        self._tokens = [theirs for there, theirs in said if group is not None or there == where]
        self.number = self._tokens.index(token)
        self.n_ranks = len(self._tokens)

    @staticmethod
    def _address(token):
        return f"\0hoist-rank-{token}"

    def options(self, name):
        """Options of `hoist.load()` for a load of the group; `name` tells it from other loads."""
        place = "shm:" if self._group is None else self._group.removesuffix("/") + "/"
        return {"group": f"{place}{self._tokens[0]}-{name}", "rank": (self.number, self.n_ranks),
                "group_timeout": self._patience}

    def note(self, report):
        """Takes the report of a load of the group."""
        if "group" in report and report["group"]["members"] < self.n_ranks and self._group.startswith("dir:"):
            self._patience = _LATE_PATIENCE

    def gone(self):
        """The number of a rank that reads no longer, and without which the others cannot go on; None."""
        if self._group is not None:
            return None
        for number, token in enumerate(self._tokens):
            if number == self.number:
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
                if probe.connect_ex(self._address(token)) == errno.ECONNREFUSED:
                    return number
        return None

    def close(self):
        """This rank reads no longer."""
        if self._socket is not None:
            self._socket.close()
