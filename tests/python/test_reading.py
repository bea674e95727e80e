# SPDX-License-Identifier: MIT
"""hoist.servers.reading: each way gives the file's tensors; files that the page cache has are mapped."""

import os
import unittest

import hoist
import files

try:
    import torch
    from hoist.servers.reading import Facts, read
    from hoist.servers.settings import Settings
except ImportError:
    torch = None

# A range that is mapped has 2 MiB or more.
MODEL = {"a": ("F32", (1024, 1024)), "b": ("BF16", (2048, 1024)), "small": ("F32", (3,)), "empty": ("F32", (0, 3))}
N_TRIES = 50  # the kernel may take pages back at any time


def every(name):
    del name
    return True


@unittest.skipIf(torch is None, "no torch")
class Ways(files.WithModel):
    model = MODEL

    def given(self, settings, wanted=every):
        """({name: tensor}, facts)"""
        facts = Facts(Settings(settings).way_of(1))
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
                if maps:
                    self.assertLess(facts["read_bytes"], n_bytes // 2)
                    self.assertIn("and mapped 0.008 of 0.008 GB", facts.line())

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
                self.assertEqual(facts["mapped_bytes"], 0)
                self.assertGreaterEqual(facts["read_bytes"], sum(map(len, self.bytes.values())))

    def test_settings_that_do_not_go_with_maps_are_refused(self):
        for settings, words in (({"way": "map", "io": "direct"}, "io does not go with the way map"),
                                ({"way": "map", "drop_cache": True}, "drop_cache does not go with the way map"),
                                ({"way": "map", "window": "1M"}, "a window belongs to the way stream"),
                                ({"io": "map"}, "the way map maps")):
            with self.subTest(settings=settings), self.assertRaisesRegex(ValueError, words):
                Settings(settings)


if __name__ == "__main__":
    unittest.main()
