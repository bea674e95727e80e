# SPDX-License-Identifier: MIT
"""Reads a file as one rank of a server does that shares its reads, for test_reading.py: a rank is a process.

    reading_rank.py FILE RANK N_RANKS MEETING SETTINGS NAMES END

NAMES: a JSON list of the tensors that the rank wants.  END: "whole", or how the rank ends after its third
tensor: "killed", "failed"; "absent": before its first one.  Prints a line of JSON for each of two reads: the
digests of the tensors, the facts, the most anonymous memory above that at the start; or the error.
"""

import hashlib
import json
import logging
import os
import signal
import sys

import torch
import torch.distributed as dist

import hoist
from hoist.servers import ranks as servers_ranks
from hoist.servers.ranks import Ranks, gatherer
from hoist.servers.reading import Facts, read
from hoist.servers.settings import Settings


def anonymous():
    """Bytes of this process's memory that no file stands behind."""
    with open("/proc/self/status", encoding="ascii") as file:
        return 1024 * sum(int(line.split()[1]) for line in file if line.startswith("RssAnon"))


def say(**said):
    print("RANK " + json.dumps(said), flush=True)


def consume(found, end):
    """What the tensors are, and the memory."""
    before, peak, digests = anonymous(), 0, {}
    for name, tensor in found:
        data = tensor.reshape(-1).view(torch.uint8).numpy() if tensor.numel() else b""
        digests[name] = hashlib.sha256(data).hexdigest()
        del data, tensor
        peak = max(peak, anonymous() - before)
        if len(digests) == 3 and end == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if len(digests) == 3 and end == "failed":
            found.close()
            break
    return digests, peak


def main():
    path, rank, n_ranks, meeting = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    settings, wanted, end = Settings(json.loads(sys.argv[5])), set(json.loads(sys.argv[6])), sys.argv[7]
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=n_ranks)
    servers_ranks._FAR_PATIENCE = 5 if end == "whole" else 60
    for _ in range(2):
        ranks = Ranks(gatherer(None), settings.group)
        if end == "absent":
            os.kill(os.getpid(), signal.SIGKILL)
        facts = Facts(settings.way_of(n_ranks), logging.getLogger())
        try:
            digests, peak = consume(read([path], wanted.__contains__, settings, facts, ranks), end)
        except (hoist.Error, ValueError) as error:
            say(error=f"{type(error).__name__}: {error}")
            break
        if end == "failed":
            break
        say(digests=digests, facts=facts, peak=peak)
    os._exit(0)  # gloo would wait for a rank that is gone


if __name__ == "__main__":
    main()
