# SPDX-License-Identifier: MIT
"""Groups of several machines: the rank and the door that torchrun, mpirun or srun gives this process.

doc/group.md has the rule; tools/launcher.c is the same for the command.
"""

import os

# mpirun's and torchrun's processes have Slurm's variables, too, where these run in a job.
_LAUNCHERS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
              ("SLURM_PROCID", "SLURM_NTASKS"))
_PORT = 7117


def is_far(group):
    """True for "tcp://..." and "dir:..."."""
    return group.startswith(("tcp://", "dir:"))


def rank():
    """(rank, number of ranks) that a launcher gave this process; (0, 0): there is no launcher."""
    for names in _LAUNCHERS:
        values = [os.environ.get(name) for name in names]
        if not all(values):
            continue
        if all(value.isascii() and value.isdigit() for value in values) and \
                int(values[0]) < int(values[1]) < 2**31:
            return int(values[0]), int(values[1])
        raise ValueError(f'{names[0]}={values[0]} and {names[1]}={values[1]} are no rank of a group; give '
                         'rank="R/N", or unset both')
    return 0, 0


def name(group):
    """ "tcp://HOST:PORT/NAME" of "tcp:///NAME"; other names stay."""
    if not group.startswith("tcp:///"):
        return group
    nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")
    host = os.environ.get("MASTER_ADDR") or nodes and _first_host(nodes)
    port = os.environ.get("HOIST_GROUP_PORT") or str(_PORT)
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ValueError(f"HOIST_GROUP_PORT={port} is no port; give a number from 1 to 65535")
    if not host:
        raise ValueError(f"{group} names no host, and neither MASTER_ADDR nor SLURM_JOB_NODELIST is set; write "
                         "tcp://HOST:PORT/NAME, with the host of one of the ranks")
    if ":" in host and not host.startswith("["):  # IPv6
        host = f"[{host}]"
    return f"tcp://{host}:{port}/{group[len('tcp:///'):]}"


def _first_host(nodes):
    """node003 of "node[003-007,12],gpu1", in the grammar of Slurm."""
    first, *parts = nodes.split("[")
    host = first
    for part in parts:
        if "," in first:
            break
        inside, _, first = part.partition("]")
        host += inside.replace("-", ",").split(",", 1)[0] + first
    return host.split(",", 1)[0]
