# SPDX-License-Identifier: MIT
"""Loads into memory of the program's, to several targets, and of groups of processes."""

import hashlib
import os
import subprocess
import sys
import threading
import unittest

import numpy as np

import hoist
import files

try:
    import torch
except ImportError:
    torch = None


def f32(data, shape):
    return np.frombuffer(data, "f").reshape(shape)


class InPlace(files.WithModel):
    def test_arrays_of_all_kinds(self):
        q, k = hoist.Buffer("f32", (64, 64)), np.zeros((16, 64), "e")
        fused = np.zeros((128, 1000), "q")
        mask, scalar = np.zeros((7, 5), "?"), np.zeros((), "f")
        into = {"layers.0.q": q, "layers.0.*k": k, "ids": fused[3], "mask": mask, "scalar": scalar,
                "empty": np.zeros((0, 3), "q")}
        with hoist.load(self.path, into=into) as load:
            self.assertTrue(load.wait(60))
            self.assertEqual({name for name, _ in load},
                             {"layers.0.q", "layers.0.k", "ids", "mask", "scalar", "empty"})
        self.assertEqual(q.tobytes(), self.bytes["layers.0.q"])
        for array, name in ((k, "layers.0.k"), (fused[3], "ids"), (mask, "mask"), (scalar, "scalar")):
            self.assertEqual(array.tobytes(), self.bytes[name], name)
        self.assertFalse(fused[:3].any() or fused[4:].any())

    def test_strides_types_and_slices(self):
        want = f32(self.bytes["layers.0.q"], (64, 64))
        transposed, halves = np.zeros((64, 64), "f").T, np.zeros((64, 16), "e")
        hoist.load_all(self.path, into={"layers.0.q": transposed})
        np.testing.assert_array_equal(transposed, want)
        with np.errstate(all="ignore"):
            hoist.numpy.load_into({"layers.0.q": halves}, self.path, slices={"layers.0.q": (1, 1, 4)})
            np.testing.assert_array_equal(halves, want[:, 16:32].astype("e"))

    def test_a_device(self):
        stream = hoist.Stream("cuda:1")
        q = hoist.Buffer("f32", (64, 64), "cuda:1")
        got = hoist.load_all(self.path, stream=stream, into={"layers.1.q": q})
        self.assertEqual(list(got), ["layers.1.q"])
        self.assertEqual(got["layers.1.q"].address, q.address)
        self.assertEqual(q.tobytes(), self.bytes["layers.1.q"])

    def test_what_is_refused(self):
        """Before a byte moves."""
        a, b = np.zeros((64, 64), "f"), hoist.Buffer("f32", (64, 64))
        fixed, ids = np.zeros((64, 64), "f"), np.zeros(1000, "q")
        fixed.flags.writeable = False
        table = [
            ({"into": {"layers.0.q": a[:5]}}, ValueError, r"layers.0.q"),
            ({"into": {"nothing": a}}, FileNotFoundError, "nothing"),
            ({"into": {"layers.*.q": a}}, ValueError, "layers"),
            ({"into": {"layers.0.q": a, "layers.1.q": a}}, ValueError, "overlap"),
            ({"into": {"layers.0.q": fixed}}, BufferError, "read-only"),
            ({"into": {"layers.0.q": b.read_only()}}, BufferError, "read-only"),
            ({"into": {"layers.0.q": np.broadcast_to(a[0], (64, 64)).copy()[::-1]}}, None, ""),
            ({"into": {"ids": a.astype("i4").ravel()[:1000]}}, ValueError, "ids"),
            ({"into": {"ids": ids.astype(">i8")}}, BufferError, ""),
            ({"into": {"ids": 5}}, TypeError, "'int'"), ({"into": [("ids", ids)]}, TypeError, "a dict"),
            ({"into": {}}, ValueError, "empty"), ({"into": {3: ids}}, TypeError, ""),
            ({"into": {"ids": ids}, "tensors": ["ids"]}, ValueError, "tensors"),
            ({"into": {"ids": ids}, "dtype": "f16"}, ValueError, "dtype"),
            ({"into": {"ids": ids}, "window": "1M"}, ValueError, "window"),
            ({"into": {"ids": ids}, "io": "map"}, ValueError, ""),
            ({"into": {"ids": ids}, "into_states": 1}, TypeError, "no option"),
            ({"into": {"ids": ids}, "targets": [hoist.Target()]}, ValueError, "each hoist.Target"),
        ]
        for options, kind, text in table:
            with self.subTest(options=list(options)):
                if kind is None:
                    hoist.load(self.path, **options).close()
                    continue
                with self.assertRaisesRegex(kind, text):
                    hoist.load(self.path, **options)
        self.assertFalse(ids.any())

    def test_states_after_a_failure(self):
        """The file is shorter than its header says by the time it is read."""
        short = os.path.join(self.folder.name, "short.safetensors")
        files.write(short, files.MODEL)
        keys = {"layers.0.q": np.zeros((64, 64), "f"), "bytes": np.zeros(99999, "B"),
                "empty": np.zeros((0, 3), "q")}
        for wait in (lambda load: load.wait(), dict, lambda load: load["bytes"]):
            with hoist.open(short) as ckpt:
                os.truncate(short, ckpt["bytes"].offset + 5000)
                with hoist.load(ckpt, into=keys) as load:
                    with self.assertRaises(hoist.errors.FormatError) as caught:
                        wait(load)
            states = caught.exception.into_states
            self.assertEqual(list(states), list(keys))
            self.assertTrue(set(states.values()) <= {"untouched", "torn", "whole"})
            self.assertNotEqual(states["bytes"], "whole")
            files.write(short, files.MODEL)
        with hoist.open(short) as ckpt:
            os.truncate(short, ckpt["bytes"].offset + 5000)
            with self.assertRaises(hoist.errors.FormatError) as caught:
                hoist.load_all(ckpt, targets=[hoist.Target(into={"bytes": keys["bytes"]}),
                                              hoist.Target(tensors="ids")])
        self.assertEqual([list(s) for s in caught.exception.into_states], [["bytes"], []])

    def test_states_after_a_cancel(self):
        big = np.zeros((1200, 1024), "f")
        with hoist.load(self.path, into={"big": big}) as load:
            load.cancel()
            try:
                load.wait()
                self.assertEqual(big.tobytes(), self.bytes["big"])
            except hoist.errors.CancelledError as error:
                self.assertIn(error.into_states["big"], ("untouched", "torn", "whole"))

    def test_threads_share_a_load(self):
        for _ in range(20):
            into = {name: hoist.Buffer(b.dtype, b.shape) for name, b in hoist.load_all(self.path).items()}
            got = []
            with hoist.load(self.path, into=into) as load:
                threads = [threading.Thread(target=lambda: got.extend(load)) for _ in range(3)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            self.assertEqual(sorted(name for name, _ in got), sorted(self.bytes))

    def test_arrays_live_as_long_as_the_load(self):
        load = hoist.load(self.path, into={"big": np.zeros((1200, 1024), "f")})
        got = dict(load)
        load.close()
        self.assertEqual(got["big"].tobytes(), self.bytes["big"])


@unittest.skipIf(torch is None, "no torch")
class Torch(files.WithModel):
    def module(self):
        names = [n for n in files.MODEL if n != "scale" or hasattr(torch, "float8_e4m3fn")]
        return hoist.torch.load_file(self.path, tensors=names)

    def bits(self, value):
        return value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""

    def test_a_dict(self):
        state = {name: torch.zeros_like(value) for name, value in self.module().items()}
        if "scale" in state:
            result = hoist.torch.load_into(state, self.path)
            self.assertEqual(result[:2], ([], []))
        else:
            self.assertRaisesRegex(ValueError, "scale", hoist.torch.load_into, state, self.path)
            result = hoist.torch.load_into(state, self.path, strict=False)
            self.assertEqual((result.missing, result.unexpected), ([], ["scale"]))
        for name, value in state.items():
            self.assertEqual(self.bits(value), self.bytes[name], name)

    def test_a_module(self):
        path = os.path.join(self.folder.name, "module.safetensors")
        blobs = files.write(path, {"one.weight": ("F32", (8, 4)), "one.bias": ("F32", (8,)),
                                   "tied.weight": ("F32", (8, 4))})
        net = torch.nn.ModuleDict({"one": torch.nn.Linear(4, 8), "tied": torch.nn.Linear(4, 8, bias=False)})
        net["tied"].weight = net["one"].weight
        place = net["one"].weight.data_ptr()
        result = hoist.torch.load_into(net, path)
        self.assertEqual(result[:3], ([], [], []))
        self.assertEqual((result.report["bytes"], result.report["n_tensors"]), (8 * 4 * 4 + 8 * 4, 2))
        self.assertEqual(net["one"].weight.data_ptr(), place)
        self.assertEqual(self.bits(net["one"].weight.detach()), blobs["one.weight"])
        self.assertEqual(self.bits(net["one"].bias.detach()), blobs["one.bias"])
        half = torch.nn.ModuleDict({"one": torch.nn.Linear(4, 8).half()})
        before = half["one"].weight.clone()
        with self.assertRaisesRegex(hoist.errors.InvalidError, r"tied.weight.*strict=False"):
            hoist.torch.load_into(half, path)
        self.assertTrue(torch.equal(half["one"].weight, before))
        result = hoist.torch.load_into(half, path, strict=False)
        self.assertEqual(result.unexpected, ["tied.weight"])
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(half["one"].weight.detach().numpy(),
                                          f32(blobs["one.weight"], (8, 4)).astype("e"))
        self.assertRaisesRegex(TypeError, "meta", hoist.torch.load_into,
                               {"one.bias": torch.zeros(8, device="meta")}, path, strict=False)

    def test_into_takes_tensors(self):
        value = torch.zeros(64, 64, requires_grad=True)
        hoist.load_all(self.path, into={"layers.0.q": value})
        self.assertEqual(self.bits(value.detach()), self.bytes["layers.0.q"])

    def test_read_only_memory_stays_so(self):
        with hoist.load(self.path, tensors="ids", io="map", map="readonly") as load:
            buffer = load["ids"]
        self.assertTrue(buffer.is_read_only)
        self.assertRaisesRegex(BufferError, "read-only", hoist.torch.tensor, buffer)
        self.assertEqual(hoist.torch.tensor(buffer.copy()).numpy().tobytes(), self.bytes["ids"])


class Targets(files.WithModel):
    TARGETS = (hoist.Target(tensors="layers.*", slices={"layers.*": (0, 0, 2)}),
               hoist.Target("cuda:0", tensors=["layers.*"], slices={"layers.*": (0, 1, 2)}),
               hoist.Target("cuda:1", tensors=["ids", "layers.0.q"], dtype="f16"))

    def check(self, got):
        self.assertEqual([set(one) for one in got], [{"layers.0.q", "layers.0.k", "layers.1.q"}] * 2 +
                         [{"ids", "layers.0.q"}])
        for name in got[0]:
            self.assertEqual(got[0][name].tobytes() + got[1][name].tobytes(), self.bytes[name])
        self.assertEqual(got[2]["ids"].tobytes(), self.bytes["ids"])
        self.assertEqual((got[2]["layers.0.q"].dtype, got[2]["ids"].device.spec), ("f16", "cuda:1"))

    def test_whole(self):
        self.check(hoist.load_all(self.path, targets=self.TARGETS))

    @unittest.skipIf(torch is None, "no torch")
    def test_torch(self):
        both = [hoist.Target(tensors="ids", slices={"ids": (0, half, 2)}) for half in range(2)]
        got = hoist.torch.load_file(self.path, targets=both)
        self.assertEqual([list(tensors) for tensors in got], [["ids"]] * 2)
        whole = b"".join(tensors["ids"].numpy().tobytes() for tensors in got)
        self.assertEqual(whole, self.bytes["ids"])

    def test_as_they_come(self):
        got = [{}, {}, {}]
        with hoist.load(self.path, targets=self.TARGETS, window="64M") as load:
            self.assertEqual(load[2, "ids"].shape, (1000,))
            for target, name, buffer in load:
                got[target][name] = buffer
        got[2]["ids"] = hoist.load_all(self.path, "cuda:1", tensors="ids")["ids"]
        self.check(got)

    def test_wrong_targets(self):
        table = [(["cuda:0"], TypeError, "hoist.Target"), ([], ValueError, "empty"), (5, TypeError, ""),
                 ([hoist.Target("cuda:0"), hoist.Target("hip:0")], NotImplementedError, ""),
                 ([hoist.Target(tensors="no")], FileNotFoundError, "no"),
                 ([hoist.Target()] * 17, ValueError, ""), ([hoist.Target(stream=3)], TypeError, "stream")]
        for targets, kind, text in table:
            with self.subTest(targets=targets), self.assertRaisesRegex(kind, text):
                hoist.load(self.path, targets=targets)
        self.assertRaisesRegex(ValueError, "each hoist.Target", hoist.load, self.path, "cuda:0",
                               targets=[hoist.Target()])


RANK = """
import hashlib, sys, hoist
try:
    got = hoist.load_all(sys.argv[1], group=sys.argv[2], rank=sys.argv[3], group_timeout=60,
                         slices={"ids": (0, int(sys.argv[3][0]), 2)}, tensors=["ids", "big"])
except hoist.Error as error:
    print(type(error).__name__, error)
else:
    print(hashlib.sha256(got["ids"].tobytes() + got["big"].tobytes()).hexdigest())
"""


class Groups(files.WithModel):
    def name(self):
        return f"shm:test-{os.getpid()}-{self.id()[-30:]}"

    def test_two_ranks(self):
        ranks = [subprocess.Popen([sys.executable, "-c", RANK, self.path, self.name(), f"{r}/2"],
                                  stdout=subprocess.PIPE, text=True) for r in range(2)]
        ids, big = self.bytes["ids"], self.bytes["big"]
        self.assertEqual([rank.communicate()[0].strip() for rank in ranks],
                         [hashlib.sha256(part + big).hexdigest() for part in (ids[:4000], ids[4000:])])

    def test_in_the_background(self):
        with hoist.load(self.path, group=self.name(), rank=(0, 1)) as load:
            self.assertEqual({n for n, b in load if b.tobytes() == self.bytes[n]}, set(self.bytes))

    def test_a_rank_takes_tensors_while_another_has_not_begun_to(self):
        options = {"group": self.name(), "split": True}
        with hoist.load(self.path, rank="0/2", **options) as first, \
                hoist.load(self.path, rank="1/2", **options) as second:
            name, buffer = next(first)
            self.assertFalse(first._all_given)
            self.assertEqual(buffer.tobytes(), self.bytes[name])
            self.assertEqual({n for n, b in first if b.tobytes() == self.bytes[n]}, set(self.bytes) - {name})
            self.assertEqual({n: b.tobytes() for n, b in second}, self.bytes)

    def test_tensors_outlive_a_rank_that_fails(self):
        options = {"group": self.name(), "group_timeout": 1}
        with hoist.load(self.path, rank="0/2", **options) as load:
            hoist.load(self.path, rank="1/2", **options).close()
            got = {}
            try:
                got.update(load)
            except hoist.Error as error:  # unless the load was over before close()
                self.assertIsInstance(error, (ConnectionError, TimeoutError))
            self.assertEqual({n: b.tobytes() for n, b in got.items()}, {n: self.bytes[n] for n in got})

    def test_in_place_and_with_digests(self):
        options = {"group": self.name(), "digest": True}
        arrays = [np.zeros(1000, "q") for _ in range(2)]
        loads = [hoist.load(self.path, rank=(r, 2), into={"ids": arrays[r]}, **options)
                 for r in range(2)]
        for load, array in zip(loads, arrays):
            load.wait()
            self.assertEqual(array.tobytes(), self.bytes["ids"])
        with hoist.load(self.path, digest=True) as plain:
            plain.wait()
            self.assertEqual({load.digest("ids") for load in loads}, {plain.digest("ids")})
        for load in loads:
            load.close()

    def test_a_rank_that_does_not_come(self):
        with hoist.load(self.path, group=self.name(), rank="1/2", group_timeout=0.2) as load:
            self.assertRaisesRegex(TimeoutError, "rank 0", load.wait)

    def test_a_rank_that_dies(self):
        options = {"group": self.name(), "tensors": "ids", "group_timeout": 1}
        with hoist.load(self.path, rank="0/2", **options) as load:
            hoist.load(self.path, rank="1/2", **options).close()
            try:
                load.wait()
            except hoist.Error as error:  # unless the load was over before close()
                self.assertIsInstance(error, (ConnectionError, TimeoutError))
                self.assertIn("rank 1", str(error))

    def test_wrong_groups(self):
        table = [({"group": "shm:a"}, ValueError, "a name and a rank"),
                 ({"rank": "0/2"}, ValueError, "a name and a rank"),
                 ({"group": "shm:a", "rank": "2/2"}, ValueError, "no rank"),
                 ({"group": "shm:a", "rank": "x"}, ValueError, "no rank"),
                 ({"group": "shm:a", "rank": 1}, ValueError, "no rank"),
                 ({"group": "shm:a", "rank": "0/65"}, ValueError, "65"),
                 ({"group": "tcp:a", "rank": "0/2"}, NotImplementedError, "tcp:a"),
                 ({"group": "shm:a", "rank": "0/2", "order": ["ids"]}, NotImplementedError, "order"),
                 ({"group": "shm:a", "rank": "0/2", "io": "map"}, NotImplementedError, "map"),
                 ({"group": "shm:a", "rank": "0/2", "window": "1M"}, NotImplementedError, "window")]
        for options, kind, text in table:
            with self.subTest(options=options), self.assertRaisesRegex(kind, text):
                hoist.load(self.path, **options)


class Options(files.WithModel):
    def test_maps(self):
        for kind, read_only in (("copyonwrite", False), ("readonly", True)):
            with hoist.load(self.path, tensors="ids", io="map", map=kind, populate=True) as load:
                ids = load["ids"]
                self.assertEqual((ids.is_read_only, ids.tobytes()), (read_only, self.bytes["ids"]))
        self.assertRaisesRegex(ValueError, "map is one of", hoist.load, self.path, map="rw")

    def test_digests(self):
        with hoist.load(self.path, digest=True) as load:
            load.wait()
            digests = {name: load.digest(name) for name in self.bytes}
            self.assertRaises(KeyError, load.digest, "nothing")
        self.assertEqual({len(d) for d in digests.values()}, {16})
        self.assertGreater(len(set(digests.values())), len(digests) - 2)
        with hoist.load(self.path, tensors=["ids"], digest=True) as load:
            load.wait()
            self.assertEqual(load.digest("ids"), digests["ids"])
        with hoist.load(self.path) as load:
            load.wait()
            self.assertRaises(KeyError, load.digest, "ids")

    def test_sizes(self):
        for options in ({"depth": 3}, {"chunk_bytes": "64K"}, {"tensor_align": 4096}, {"split": True}):
            got = hoist.load_all(self.path, dtype="f32", **options)
            self.assertEqual(got["ids"].tobytes(), self.bytes["ids"])
        for options in ({"depth": -1}, {"depth": 5000}, {"chunk_bytes": 5}, {"tensor_align": 3}):
            with self.subTest(options=options), self.assertRaises(ValueError):
                hoist.load(self.path, **options)

    def test_a_stream_names_the_device(self):
        stream = hoist.Stream("hip:0")
        self.assertEqual(hoist.load_all(self.path, stream=stream)["ids"].device.spec, "hip:0")

    def test_budget(self):
        budget = hoist.Budget("64M")
        self.assertEqual((budget.limit, budget.used), (64 << 20, 0))
        hoist.load_all(self.path, "cuda:0", budget=budget)
        self.assertEqual(budget.used, 0)
        self.assertTrue(0 < budget.peak <= budget.limit)
        self.assertIn(str(64 << 20), repr(budget))
        self.assertRaises(ValueError, hoist.Budget, 0)
        self.assertRaises(TypeError, hoist.Budget, None)

    def test_progress_needs_tqdm(self):
        from unittest import mock
        with mock.patch.dict(sys.modules, {"tqdm": None}):
            self.assertRaisesRegex(ImportError, "tqdm", hoist.load, self.path, progress=True)
        fake = mock.MagicMock()
        bar = fake.tqdm.return_value
        bar.n = 0
        with mock.patch.dict(sys.modules, {"tqdm": fake}):
            hoist.load_all(self.path, progress=True)
        self.assertEqual(bar.total, sum(map(len, self.bytes.values())))
        bar.close.assert_called()


if __name__ == "__main__":
    unittest.main()
