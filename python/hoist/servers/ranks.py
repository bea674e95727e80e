# SPDX-License-Identifier: MIT
"""The ranks of a server that share one machine, and read as a group there."""

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


class Ranks:
    """This rank among those of its machine, for one load.  All ranks of the server make one together.

    Each rank has a socket with a random name for as long as the rank reads.  The others learn by it that a
    rank has ended, although the rank never came to a group's load.

    Parameters
    ----------
    gather : callable
        gather(said) gives what each rank said, in one order in all ranks.

    Raises
    ------
    PeerError
        A rank cannot take part.
    OSError
        This rank cannot.
    """

    def __init__(self, gather):
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
        self._tokens = [theirs for there, theirs in said if there == where]
        self.number = self._tokens.index(token)
        self.n_ranks = len(self._tokens)

    @staticmethod
    def _address(token):
        return f"\0hoist-rank-{token}"

    def options(self, name):
        """Options of `hoist.load()` for a load of the group; `name` tells it from other loads."""
        return {"group": f"shm:{self._tokens[0]}-{name}", "rank": (self.number, self.n_ranks)}

    def gone(self):
        """The number of a rank that reads no longer; None."""
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
