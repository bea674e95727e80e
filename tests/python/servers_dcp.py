# SPDX-License-Identifier: MIT
"""hoist.dcp: torch.distributed.checkpoint's saves and loads, by one process and by several."""

import contextlib
import glob
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
import types
import unittest
from unittest import mock

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.api import CheckpointException

import hoist
import hoist.dcp
from hoist.servers.reading import Facts
import servers_ranks
from servers_models import Folder

HERE = os.path.dirname(os.path.abspath(__file__))

# Saves the state "new" over a checkpoint, and ends at a call of the system's.
DYING = """
import os, sys
import torch, torch.distributed.checkpoint as dcp
import hoist.dcp
where, folder = sys.argv[1:]
def die(*_, **__):
    os._exit(9)
if where == "after the data":
    hoist.dcp.HoistStorageWriter.finish = die
elif where == "before the exchange":
    os.replace = die
elif where == "after the exchange":
    os.unlink = die
dcp.save({"weight": torch.full((1000,), 2.0)}, storage_writer=hoist.dcp.HoistStorageWriter(folder))
"""


class Ranks(Folder):
    def ranks(self, *more):
        """What each of four ranks says, and its status."""
        ranks = [subprocess.Popen([sys.executable, os.path.join(HERE, "servers_ranks.py"), self.folder, str(rank), *more],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(4)]
        return [rank.communicate(timeout=600) for rank in ranks], [rank.returncode for rank in ranks]

    def test_a_rank_that_is_killed_leaves_the_old_checkpoint(self):
        for dead, where in ((2, "within the data"), (1, "after the data"), (0, "at the end")):
            with self.subTest(dead=dead, where=where):
                shutil.rmtree(self.folder)
                os.mkdir(self.folder)
                outputs, statuses = self.ranks(str(dead), where)
                self.assertEqual(statuses, [-9 if rank == dead else 3 for rank in range(4)], outputs[dead][1][-3000:])
                for rank in set(range(4)) - {dead}:
                    self.assertIn("RANKS 2 ", outputs[rank][0])  # in the second save
                path = os.path.join(self.folder, "by4")
                self.assertGreater(len(glob.glob(path + "/hoist-*")), 4)
                self.check_state(path, 1)
                dcp.save(servers_ranks.state(3, None), storage_writer=hoist.dcp.HoistStorageWriter(path))
                self.assertEqual(len(os.listdir(path)), 2)  # what the dead save has left is gone
                self.check_state(path, 3)

    def check_state(self, path, seed):
        """The checkpoint is the whole one of that seed."""
        found = servers_ranks.state(seed, None, empty=True)
        dcp.load(found, storage_reader=hoist.dcp.HoistStorageReader(path))
        self.assertEqual((found["step"], found["nested"]), (seed, {"list": [seed, "text"]}))
        self.check_tensors({name: found[name] for name in servers_ranks.tensors(seed)},
                           {name: tensor for name, (tensor, _) in servers_ranks.tensors(seed).items()})

    def test_round_trips_between_1_2_and_4_ranks(self):
        outputs, statuses = self.ranks()
        self.assertEqual(statuses, [0] * 4, outputs[0][1][-3000:])
        said = [json.loads(line[6:]) for line in outputs[0][0].split("\n") if line.startswith("RANKS ")]
        self.assertEqual(len(said), 18)
        for one in said:
            with self.subTest(**one):
                self.assertTrue(one["equal"])
                # Each rank reads its part, and what is on every rank; blocks of the disk are read whole.
                share = 1 / one["loaded"]
                for read in one["read"]:
                    self.assertLess(read, 1.15 * share * one["bytes"] + 100_000)
        self.assertEqual({(one["saved"], one["loaded"]) for one in said}, {(a, b) for a in (1, 2, 4) for b in (1, 2, 4)})
        # The first save's files are gone.
        for n in (1, 2, 4):
            self.assertEqual(len(glob.glob(os.path.join(self.folder, f"by{n}", "hoist-*"))), n)


@contextlib.contextmanager
def one_tensor(folder, tensor):
    """A file of one tensor, and a reader that knows it as number 0."""
    path = os.path.join(folder, "t.safetensors")
    os.makedirs(folder, exist_ok=True)
    hoist.torch.save_file({"t": tensor}, path)
    reader = hoist.dcp.HoistStorageReader(folder)
    reader._places = {0: hoist.dcp._Place("t.safetensors", "t", "tensor")}
    with hoist.open(path) as checkpoint:
        yield checkpoint, reader


class One(Folder):
    def save(self, state, **options):
        dcp.save(state, storage_writer=hoist.dcp.HoistStorageWriter(self.folder, **options))

    def load(self, state, **options):
        reader = hoist.dcp.HoistStorageReader(self.folder, **options)
        dcp.load(state, storage_reader=reader)
        return reader

    def test_a_module_and_its_optimizer(self):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 8))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(16, 64)).sum().backward()
        optimizer.step()
        self.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, digest=True)
        wanted = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        moments = optimizer.state_dict()["state"][0]["exp_avg"].clone()
        for tensor in model.state_dict().values():
            tensor.zero_()
        optimizer.state_dict()["state"][0]["exp_avg"].zero_()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        self.load(state, budget="8M")
        for name, tensor in wanted.items():
            self.assertTrue(torch.equal(model.state_dict()[name], tensor), name)
        self.assertTrue(torch.equal(optimizer.state_dict()["state"][0]["exp_avg"], moments))

    def test_tensors_of_all_kinds(self):
        tensors = {"fp8": torch.randn(40).to(torch.float8_e4m3fn), "bool": torch.tensor([True, False]),
                   "complex": torch.randn(9, dtype=torch.complex64), "wide": torch.randn(3, dtype=torch.complex128),
                   "empty": torch.zeros(0, 3), "scalar": torch.tensor(4), "turned": torch.randn(30, 20).t(),
                   "steps": torch.randn(50)[::3]}
        self.save(tensors)
        found = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
        self.load(found)
        for name, tensor in tensors.items():
            self.assertTrue(torch.equal(found[name].view(torch.uint8) if name == "fp8" else found[name],
                                        tensor.view(torch.uint8) if name == "fp8" else tensor), name)

    def test_a_load_of_some_tensors_reads_these(self):
        self.save({f"t{number}": torch.full((1 << 18,), float(number)) for number in range(8)})
        found = {"t5": torch.zeros(1 << 18)}
        with self.assertLogs("hoist.dcp", "INFO") as log:
            reader = self.load(found)
        self.assertRegex(log.output[0], r"hoist has read 0\.001 of 0\.008 GB, 1 tensors, by parts: 1 loads, 0\.\d+ s, \w+ ")
        self.assertTrue(bool((found["t5"] == 5).all()))
        self.assertLess(reader.read_bytes, (1 << 20) + 16384)

    def test_another_dtype(self):
        self.save({"t": torch.arange(100, dtype=torch.float32)})
        found = {"t": torch.zeros(100, dtype=torch.float64)}
        self.load(found)
        self.assertTrue(torch.equal(found["t"], torch.arange(100, dtype=torch.float64)))

    def test_an_asynchronous_save(self):
        state = {"t": torch.arange(1000.0)}
        dcp.async_save(state, storage_writer=hoist.dcp.HoistStorageWriter(self.folder),
                       process_group=None, no_dist=True).result()
        found = {"t": torch.zeros(1000)}
        self.load(found)
        self.assertTrue(torch.equal(found["t"], state["t"]))

    def test_a_save_that_dies_leaves_a_whole_checkpoint(self):
        for where, value, n_files in (("after the data", 1.0, 2), ("before the exchange", 1.0, 2),
                                      ("after the exchange", 2.0, 2)):
            with self.subTest(where=where):
                shutil.rmtree(self.folder)
                self.save({"weight": torch.ones(1000)})
                run = subprocess.run([sys.executable, "-c", DYING, where, self.folder], capture_output=True,
                                     text=True, check=False)
                self.assertEqual(run.returncode, 9, run.stderr)
                self.assertEqual(len(glob.glob(self.folder + "/hoist-*")), n_files)
                found = {"weight": torch.zeros(1000)}
                self.load(found)
                self.assertTrue(bool((found["weight"] == value).all()))
                # The next save takes away what the dead one has left.
                self.save({"weight": torch.full((1000,), 3.0)})
                self.assertEqual(sorted(os.listdir(self.folder))[0], ".metadata")
                self.assertEqual(len(os.listdir(self.folder)), 2)
                self.load(found)
                self.assertTrue(bool((found["weight"] == 3).all()))

    def test_a_save_that_fails_leaves_the_old_one(self):
        self.save({"weight": torch.ones(1000)})
        with mock.patch("hoist.dcp.save", side_effect=OSError("the disk is full")), \
                self.assertRaises(CheckpointException):
            self.save({"weight": torch.zeros(1000)})
        found = {"weight": torch.zeros(1000)}
        self.load(found)
        self.assertTrue(bool((found["weight"] == 1).all()))

    def test_a_kept_plan_does_not_name_an_old_file(self):
        def planner():
            return DefaultSavePlanner(enable_plan_caching=True)
        dcp.save({"weight": torch.ones(1000)}, storage_writer=hoist.dcp.HoistStorageWriter(self.folder),
                 planner=planner())
        with mock.patch("hoist.dcp.HoistStorageWriter.finish", side_effect=OSError("died")), \
                self.assertRaises(CheckpointException):
            dcp.save({"weight": torch.zeros(1000)}, storage_writer=hoist.dcp.HoistStorageWriter(self.folder),
                     planner=planner())
        found = {"weight": torch.full((1000,), 7.0)}
        self.load(found)
        self.assertTrue(bool((found["weight"] == 1).all()))

    def test_other_files_stay(self):
        mine = os.path.join(self.folder, "hoist-mine.safetensors")
        os.makedirs(self.folder, exist_ok=True)
        with open(mine, "w", encoding="ascii") as file:
            file.write("x")
        self.save({"t": torch.zeros(10)})
        self.save({"t": torch.ones(10)})
        self.assertTrue(os.path.exists(mine))
        self.assertEqual(len(os.listdir(self.folder)), 3)

    def test_options_that_would_break_a_checkpoint_are_refused(self):
        for options in ({"shard_bytes": "400K"}, {"format": "npy"}, {"sync": False}):
            with self.subTest(options=options), self.assertRaisesRegex(TypeError, "budget, digest"):
                hoist.dcp.HoistStorageWriter(self.folder, **options)

    def test_many_parts_of_one_tensor(self):
        with one_tensor(self.folder, torch.arange(4000.0).reshape(40, 100)) as (checkpoint, reader):
            parts = [torch.zeros(1, 100) for _ in range(40)]
            items = [(types.SimpleNamespace(storage_index=0, storage_offsets=(row, 0), lengths=(1, 100)), part)
                     for row, part in enumerate(parts)]
            reader._read_parts(checkpoint, items, Facts("parts", logging.getLogger()))
        self.assertTrue(torch.equal(torch.cat(parts), torch.arange(4000.0).reshape(40, 100)))

    def test_other_checkpoints_and_broken_ones_are_refused(self):
        dcp.save({"t": torch.zeros(4)}, checkpoint_id=self.folder)  # torch's own
        with self.assertRaisesRegex(CheckpointException, "FileSystemReader"):
            self.load({"t": torch.zeros(4)})
        shutil.rmtree(self.folder)
        self.save({"t": torch.zeros(4000)})
        path = glob.glob(self.folder + "/hoist-*")[0]
        os.truncate(path, os.path.getsize(path) - 100)
        with self.assertRaises(CheckpointException) as caught:
            self.load({"t": torch.zeros(4000)})
        self.assertIn(os.path.basename(path), str(caught.exception))
        self.assertFalse(hoist.dcp.HoistStorageReader.validate_checkpoint_id("s3://bucket/x"))
        with open(self.folder + "/.metadata", "rb") as file:
            self.assertEqual(len(pickle.load(file).storage_data), 1)


if __name__ == "__main__":
    unittest.main()
