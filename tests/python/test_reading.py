# SPDX-License-Identifier: MIT
"""hoist.servers.reading: each way gives the file's tensors; files that the page cache has are mapped; ranks
share one read."""

import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import hoist
from hoist.servers import needed
import files

try:
    import torch
    from hoist.servers.ranks import Ranks
    from hoist.servers.reading import Facts, read
    from hoist.servers.settings import NAMES, Settings
except ImportError:
    torch = None

# A range that is mapped has 2 MiB or more.
MODEL = {"a": ("F32", (1024, 1024)), "b": ("BF16", (2048, 1024)), "small": ("F32", (3,)), "empty": ("F32", (0, 3))}
MANY = {**{f"t{number}": ("U8", (1 << 20,)) for number in range(96)}, "odd": ("F32", (7, 1001)), **MODEL}
HERE = os.path.dirname(os.path.abspath(__file__))
PAGES = os.path.join(HERE, "..", "..", "doc", "python", "servers")
N_TRIES = 50  # the kernel may take pages back at any time


def every(name):
    del name
    return True


def log_of(lines):
    """A logger that adds to a list."""
    return types.SimpleNamespace(info=lambda text, *args: lines.append(text % args))


@unittest.skipIf(torch is None, "no torch")
class Ways(files.WithModel):
    model = MODEL

    def given(self, settings, wanted=every):
        """({name: tensor}, facts)"""
        self.lines = []
        facts = Facts(Settings(settings).way_of(1), log_of(self.lines))
        return dict(read([self.path], wanted, Settings(settings), facts)), facts

    def check(self, found, names=tuple(MODEL)):
        self.assertEqual(sorted(found), sorted(names))
        for name in names:
            flat = found[name].reshape(-1)
            self.assertEqual(tuple(found[name].shape), MODEL[name][1])
            if flat.numel() > 0:
                self.assertTrue(bytes(flat.view(torch.uint8).numpy()) == self.bytes[name], name)

    def given_hot(self, settings, maps, wanted=every):
        """As `given()`, of a file that the page cache has."""
        for _ in range(N_TRIES):
            with open(self.path, "rb") as file:
                while file.read(1 << 20):
                    pass
            found, facts = self.given(settings, wanted)
            if facts["mapped_bytes"] > 0 or not maps:
                return found, facts
        if hoist.plan(self.path).resident_bytes >= sum(map(len, self.bytes.values())):
            self.fail(f"{settings}: the page cache has the file, and nothing was mapped")
        self.skipTest("the kernel does not keep the file in the page cache, or does not say so")

    def test_hot_files_are_mapped_unless_a_setting_says_otherwise(self):
        n_bytes = sum(map(len, self.bytes.values()))
        for settings, maps in (({}, True), ({"budget": "8M"}, True), ({"way": "map"}, True), ({"engine": "threads"}, True),
                               ({"way": "map", "budget": "8M"}, True), ({"way": "stream"}, False), ({"window": "16M"}, False),
                               ({"io": "cached"}, False), ({"depth": 2}, False)):
            with self.subTest(settings=settings):
                found, facts = self.given_hot(settings, maps)
                self.check(found)
                self.assertEqual(facts["mapped_bytes"] > 0, maps)
                self.assertGreaterEqual(facts["mapped_bytes"] + facts["read_bytes"], n_bytes)
                self.assertAlmostEqual(sum(facts["stages"].values()) / 1e9, facts["seconds"], places=6)
                self.assertGreater(min(facts["stages"]["open_ns"], facts["stages"]["plan_ns"]), 0)
                self.assertEqual((facts["plan"]["n_files"], facts["plan"]["bytes"]), (1, n_bytes))
                self.assertEqual(facts["plan"]["mapped_bytes"], facts["mapped_bytes"])
                facts.end()
                line, end = self.lines
                self.assertRegex(line, r"^hoist takes 0\.008 GB of 1 files by \w+: 0\.\d+ direct, 0\.\d+ cached, "
                                       f"0.00{8 if maps else 0} mapped; 0.008 in the page cache now$")
                if maps:
                    self.assertLess(facts["read_bytes"], n_bytes // 2)
                    self.assertIn("and mapped 0.008 of 0.008 GB", end)

    def test_what_is_written_to_a_mapped_tensor_stays_private(self):
        found, _ = self.given_hot({}, True)
        for tensor in found.values():
            tensor.zero_()
        self.check(self.given({"way": "stream"})[0])

    def test_tensors_that_are_not_wanted_are_left_out(self):
        for settings in ({}, {"way": "map"}, {"way": "stream"}):
            with self.subTest(settings=settings):
                found, facts = self.given_hot(settings, False, lambda name: name != "b")
                self.check(found, ("a", "small", "empty"))
                self.assertEqual(facts["n_tensors"], 3)

    def test_cold_files_are_read(self):
        for settings in ({}, {"way": "map"}):
            for _ in range(N_TRIES):
                with open(self.path, "rb") as file:
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                # The header is read again, and what the kernel reads ahead of it: less than is mapped.
                if hoist.plan(self.path).resident_bytes < 1 << 20:
                    break
            else:
                self.skipTest("the kernel keeps the file in the page cache, or does not say so")
            with self.subTest(settings=settings):
                found, facts = self.given(settings)
                self.check(found)
                self.assertEqual((facts["mapped_bytes"], facts["plan"]["mapped_bytes"]), (0, 0))
                self.assertGreaterEqual(facts["read_bytes"], sum(map(len, self.bytes.values())))
                self.assertLess(facts["plan"]["resident_bytes"], 1 << 20)

    def test_settings_that_do_not_go_with_maps_are_refused(self):
        for settings, words in (({"way": "map", "io": "direct"}, "io does not go with the way map"),
                                ({"way": "map", "drop_cache": True}, "drop_cache does not go with the way map"),
                                ({"way": "map", "window": "1M"}, "a window belongs to the ways stream"),
                                ({"way": "group", "io": "map"}, "the way map maps"),
                                ({"way": "group", "chunk_bytes": "4M"}, "chunk_bytes is 2 MiB at most"),
                                ({"group": "dir:/a"}, '"way": "group"'),
                                ({"way": "group", "group": "shm:a"}, "tcp://HOST:PORT or dir:FOLDER"),
                                ({"way": "group", "group": 7}, "tcp://HOST:PORT or dir:FOLDER"),
                                ({"way": "cache", "depth": 2}, "depth does not go with the way cache"),
                                ({"way": "cache", "chunk_bytes": "1M"}, "chunk_bytes does not go with the way cache"),
                                ({"device_direct": "yes"}, "device_direct is true or false, not 'yes'"),
                                ({"device_direct": True, "way": "stream"}, "device_direct belongs to the way slices"),
                                ({"device_direct": False, "window": "1G"}, "device_direct belongs to the way slices"),
                                ({"io": "map"}, "the way map maps")):
            with self.subTest(settings=settings), self.assertRaisesRegex(ValueError, words):
                Settings(settings)

    def test_straight_to_a_device_is_by_slices(self):
        for given, way, may_map in (({}, "stream", True), ({"device_direct": False}, "stream", True),
                                    ({"device_direct": True}, "slices", False)):
            settings = Settings(given)
            self.assertEqual((settings.way_of(1), settings.way_of(2), settings.may_map), (way, "slices", may_map))

    @unittest.skipUnless(os.path.isdir(PAGES), "the documentation is not beside these tests")
    def test_the_pages_have_each_setting(self):
        with open(os.path.join(PAGES, "settings.inc"), encoding="utf-8") as file:
            terms = re.findall(r"^``.*$", file.read(), re.MULTILINE)
        self.assertEqual(sorted(re.findall("``(.*?)``", " ".join(terms))), sorted(NAMES))


class Needed(unittest.TestCase):
    """A server that is not as hoist knows it."""

    def test_a_module_that_fails_is_a_lack(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder, *sys.path]):
            with open(os.path.join(folder, "hoist_broken_server.py"), "w", encoding="ascii") as module:
                module.write("raise RuntimeError('no driver')\n")
            self.assertRaisesRegex(ImportError, "has no hoist_broken_server", needed.check, "X", ["x"], "1",
                                   {"hoist_broken_server": ()})


@unittest.skipIf(torch is None or not torch.distributed.is_gloo_available(), "no torch with gloo")
class Groups(files.WithModel):
    """Two ranks, each a process; reading_rank.py says what they do."""
    model = MANY
    settings = {"way": "group", "window": "16M", "io": "direct", "budget": "24M"}
    numbers = itertools.count()

    def ranks(self, *each, **more):
        """What each rank says.  `each`: (the names that it wants, how it ends)."""
        meeting = os.path.join(self.folder.name, f"meeting-{next(self.numbers)}")
        settings = json.dumps({**self.settings, **more})
        runs = [subprocess.Popen([sys.executable, os.path.join(HERE, "reading_rank.py"), self.path, str(rank),
                                  str(len(each)), meeting, settings, json.dumps(sorted(names)), end],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                for rank, (names, end) in enumerate(each)]
        ret = []
        for run in runs:
            with run:
                text = run.communicate(timeout=300)[0]
            ret.append([json.loads(line[5:]) for line in text.split("\n") if line.startswith("RANK ")])
            if not ret[-1]:
                ret[-1] = text
        return ret

    def check(self, said, names):
        self.assertIsInstance(said, list, said)
        self.assertNotIn("error", said[0])
        self.assertEqual(len(said), 2)
        for one in said:
            self.assertEqual(one["digests"], {name: hashlib.sha256(self.bytes[name]).hexdigest() for name in names})
            self.assertEqual(one["facts"]["n_tensors"], len(names))

    def test_ranks_read_each_byte_once(self):
        n_bytes = sum(map(len, self.bytes.values()))
        first, second = self.ranks((MANY, "whole"), (MANY, "whole"))
        for said in (first, second):
            self.check(said, MANY)
            for one in said:
                self.assertGreater(one["facts"]["n_loads"], 8)
                self.assertLess(one["peak"], (16 + 24 + 8) << 20)
        for number in range(2):
            n_read = first[number]["facts"]["read_bytes"] + second[number]["facts"]["read_bytes"]
            self.assertGreaterEqual(n_read, n_bytes)
            self.assertLess(n_read, 1.02 * n_bytes)

    def test_ranks_want_different_tensors(self):
        some = {"t1", "t2", "t90", "odd", "small", "empty"}
        for one, other in ((some, set(MANY) - some), (some, MANY), (MANY, ())):
            with self.subTest(one=len(one), other=len(other)):
                first, second = self.ranks((one, "whole"), (other, "whole"))
                self.check(first, one)
                self.check(second, other)
                n_read = first[0]["facts"]["read_bytes"] + second[0]["facts"]["read_bytes"]
                self.assertLess(n_read, 1.02 * sum(map(len, self.bytes.values())))

    def test_ranks_verify_what_they_share(self):
        with hoist.open(self.path) as checkpoint:
            checkpoint.keep_digests()
        self.addCleanup(os.unlink, self.path + ".xxh3")
        for said in self.ranks((MANY, "whole"), (MANY, "whole"), verify=True, drop_cache=True):
            self.check(said, MANY)
        files.spoil_kept(self.path)
        said = self.ranks((MANY, "whole"), (MANY, "whole"), verify=True)
        errors = [rank[-1]["error"] for rank in said]
        self.assertTrue(any("damaged" in error for error in errors), errors)

    def test_a_rank_that_ends_is_an_error_in_the_other(self):
        for end in ("killed", "failed", "absent"):
            with self.subTest(end=end):
                first, _ = self.ranks((MANY, "whole"), (MANY, end))
                self.assertRegex(first[-1]["error"], "^PeerError: .*rank 1 ")

    @unittest.skipUnless(files.has_ucx(), "no UCX")
    def test_ranks_of_several_machines_are_one_group(self):
        """They go on without one that ends."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        for said in self.ranks((MANY, "whole"), (MANY, "whole"), group=f"dir:{folder}"):
            self.check(said, MANY)
            self.assertGreater(sum(one["facts"]["n_loads"] for one in said), 16)
        self.assertEqual(os.listdir(folder), [])
        first, _ = self.ranks((MANY, "whole"), (MANY, "failed"), group=f"dir:{folder}")
        self.assertNotIn("error", first[0])
        self.assertEqual(set(first[0]["digests"]), set(MANY))

    def test_the_window_has_room_for_two_of_the_largest_tensor(self):
        for said in self.ranks((MANY, "whole"), (MANY, "whole"), window="8388607"):
            self.assertRegex(said[-1]["error"], "^ValueError: a window of 8388607 bytes is too small for a group, .* needs "
                                                "a window of 8388608 bytes")
        for said in self.ranks((MANY, "whole"), (MANY, "whole"), window="8M"):
            self.check(said, MANY)

    def test_a_rank_that_cannot_take_part_is_an_error_in_the_other(self):
        with self.assertRaisesRegex(hoist.errors.PeerError, "failed before"):
            Ranks(lambda said: [(None, "x"), said])

    def test_ranks_of_other_machines_are_other_groups(self):
        def gather(said):
            return [(("other", "net"), "a"), said, (("other", "net"), "b")]
        ranks = Ranks(gather)
        self.assertEqual((ranks.number, ranks.n_ranks, ranks.gone()), (0, 1, None))
        settings = Settings({"way": "group"})
        facts = Facts(settings.way_of(3), log_of([]))
        found = dict(read([self.path], every, settings, facts, ranks))
        self.assertEqual(sorted(found), sorted(MANY))


if __name__ == "__main__":
    unittest.main()
