# SPDX-License-Identifier: MIT
"""Plans of loads, and the loads that then do the same."""

import json
import unittest

import hoist
import files


class Plans(files.WithModel):
    def setUp(self):
        super().setUp()
        self.all = sum(len(data) for data in self.bytes.values())

    def test_facts(self):
        plan = hoist.plan(self.path, "cuda:0")
        self.assertEqual((plan.bytes, plan.n_tensors, plan.n_files), (self.all, len(files.MODEL), 1))
        self.assertGreaterEqual(plan.direct_bytes + plan.cached_bytes, self.all)
        self.assertEqual((plan.mapped_bytes, plan.straight_bytes, plan.staged_bytes), (0, 0, self.all))
        self.assertGreaterEqual(plan.n_slots, 2)
        self.assertTrue(plan.fits)
        target, = plan.targets
        self.assertEqual((target["device"], target["emulated"]), ("cuda:0", True))
        self.assertGreaterEqual(target["bytes"], self.all)
        self.assertGreater(target["free_bytes"], self.all)
        with hoist.load(self.path, "cuda:0") as load:
            load.wait()
            report = load.report()
        for key in "bytes", "n_tensors", "mapped_bytes", "budget_bytes":
            self.assertEqual(report[key], getattr(plan, key), key)
        self.assertLessEqual(report["staging_peak_bytes"], plan.slot_bytes * plan.n_slots)

    def test_line_and_json(self):
        plan = hoist.plan(self.path, "cuda:0", tensors="embed", dtype="f16")
        self.assertEqual(str(plan), plan.line)
        self.assertNotIn("\n", str(plan))
        self.assertIn("to cuda:0 (emulated)", str(plan))
        self.assertEqual(json.loads(plan.json()), plan.as_dict())
        self.assertEqual(plan.as_dict()["bytes"], len(self.bytes["embed"]))
        with self.assertRaises(AttributeError):
            plan.bytes = 1

    def test_options(self):
        self.assertEqual(hoist.plan(self.path, io="map").mapped_bytes, self.all)
        with hoist.open(self.path) as ckpt:
            plan = hoist.plan(ckpt, targets=[hoist.Target("cpu"), hoist.Target("cuda:1")])
            self.assertEqual([target["device"] for target in plan.targets], ["cpu", "cuda:1"])
            self.assertEqual(list(ckpt), list(files.MODEL))  # still open
        window = hoist.plan(self.path, "cuda:0", window=1).targets[0]["bytes"]
        self.assertLess(window, hoist.plan(self.path, "cuda:0").targets[0]["bytes"])
        budget = hoist.Budget("256K")
        self.assertEqual(hoist.plan(self.path, "cuda:0", budget=budget).budget_bytes, 256 << 10)
        self.assertEqual(budget.used, 0)

    def test_into(self):
        kind, shape = files.MODEL["embed"]
        buffer = hoist.Buffer(files.NAMES[kind], shape)
        plan = hoist.plan(self.path, into={"embed": buffer})
        self.assertEqual((plan.bytes, plan.targets[0]["bytes"]), (len(self.bytes["embed"]), 0))

    def test_refusals(self):
        for error, options in [
                (hoist.errors.NotFoundError, {"tensors": "nothing"}),
                (ValueError, {"group": "shm:plan", "rank": "0/2"}),
                (ValueError, {"chunk_bytes": 4095}),
                (TypeError, {"progress": True}),
                (hoist.errors.OutOfMemoryError, {"device": "cuda:0", "budget": 4096}),
                (hoist.errors.UnsupportedError, {"io": "map", "dtype": "f16"})]:
            with self.subTest(options=options), self.assertRaises(error):
                hoist.plan(self.path, **options)
        with self.assertRaises(FileNotFoundError):
            hoist.plan(self.path + ".none")


if __name__ == "__main__":
    unittest.main()
