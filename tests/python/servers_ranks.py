# SPDX-License-Identifier: MIT
"""Saves and loads by 1, 2 and 4 ranks, for servers_dcp.py: each of four processes runs this program.

    servers_ranks.py FOLDER RANK [DEAD WHERE]

Rank 0 prints a line of JSON for each load: who saved, who loaded, whether all was equal, the bytes that
each rank has read.  With DEAD, four ranks save twice to FOLDER/by4, and rank DEAD is killed in the second save,
"within the data", "after the data" or "at the end", which is rank 0's.
"""

import json
import os
import signal
import sys
import types

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import hoist.dcp

COUNTS = (1, 2, 4)


def tensors(seed):
    """{name: (tensor, placement)}"""
    generator = torch.Generator().manual_seed(seed)

    def made(*shape):
        return torch.randn(*shape, generator=generator)
    return {"rows": (made(64, 1 << 15), Shard(0)), "columns": (made(32, 1 << 19).bfloat16(), Shard(1)),
            "uneven": (made(131, 40), Shard(0)), "same": (made(64, 33), Replicate()),
            "numbers": (torch.arange(5000) + seed, Shard(0)), "wide": (made(40, 8).to(torch.complex128), Shard(0)),
            "scalar": (torch.tensor(float(seed)), Replicate())}


def state(seed, mesh, empty=False, other=False):
    """A state_dict over the ranks of a mesh; `other`: sharded along the other axis."""
    ret = {"step": 0 if empty else seed, "nested": {"list": [0, None] if empty else [seed, "text"]}}
    for name, (tensor, placement) in tensors(seed).items():
        tensor = torch.zeros_like(tensor) if empty else tensor
        if other and tensor.ndim == 2 and not isinstance(placement, Replicate):
            placement = Shard(1 - placement.dim)
        ret[name] = tensor if mesh is None else distribute_tensor(tensor, mesh, [placement])
    return ret


def full(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def die_at(where):
    """Kills this process at a place in its next save."""
    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)
    writer = hoist.dcp.HoistStorageWriter
    begin, write = hoist.dcp.save, writer.write_data
    if where == "within the data":
        hoist.dcp.save = lambda *given, **named: types.SimpleNamespace(running=begin(*given, **named), wait=die)
    elif where == "after the data":
        writer.write_data = lambda *given: (write(*given), die())
    else:
        writer.finish = die


def save_and_die(path, rank, dead, where):
    """A whole save of the seed 1, and one of the seed 2 that ends early, an error in the ranks that live."""
    mesh = DeviceMesh("cpu", list(range(4)))
    for seed in (1, 2):
        if seed == 2 and rank == dead:
            die_at(where)
        try:
            dcp.save(state(seed, mesh), storage_writer=hoist.dcp.HoistStorageWriter(path))
        except (CheckpointException, RuntimeError) as error:
            print(f"RANKS {seed} {type(error).__name__}: {error}", flush=True)
            os._exit(3)  # gloo would wait for a rank that is gone


def main():
    folder, rank = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=4)
    if len(sys.argv) > 3:
        save_and_die(os.path.join(folder, "by4"), rank, int(sys.argv[3]), sys.argv[4])
        return
    groups = {n: dist.new_group(list(range(n)), backend="gloo") for n in COUNTS}
    meshes = {n: DeviceMesh("cpu", list(range(n))) for n in COUNTS}
    for n_saved in COUNTS:
        path = os.path.join(folder, f"by{n_saved}")
        for seed in (1, n_saved + 10):  # the second in the place of the first
            if rank < n_saved:
                dcp.save(state(seed, meshes[n_saved]), storage_writer=hoist.dcp.HoistStorageWriter(path),
                         process_group=groups[n_saved])
        dist.barrier()
        for n_loaded in COUNTS:
            for other in (False, True):
                if rank < n_loaded:
                    check(path, n_saved + 10, n_saved, n_loaded, other, meshes[n_loaded], groups[n_loaded])
        dist.barrier()
    dist.destroy_process_group()


def check(path, seed, n_saved, n_loaded, other, mesh, group):
    """One load, and what it gave."""
    found, wanted = state(seed, mesh, empty=True, other=other), tensors(seed)
    reader = hoist.dcp.HoistStorageReader(path)
    dcp.load(found, storage_reader=reader, process_group=group)
    is_equal = found["step"] == seed and found["nested"] == {"list": [seed, "text"]} and \
        all(torch.equal(full(found[name]), tensor) for name, (tensor, _) in wanted.items())
    said = [None] * n_loaded
    dist.all_gather_object(said, (is_equal, reader.read_bytes), group=group)
    if dist.get_rank() == 0:
        print("RANKS " + json.dumps({"saved": n_saved, "loaded": n_loaded, "other": other,
                                     "equal": all(one[0] for one in said), "read": [one[1] for one in said],
                                     "bytes": sum(tensor.nbytes for tensor, _ in wanted.values())}), flush=True)


if __name__ == "__main__":
    main()
