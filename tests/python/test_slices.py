# SPDX-License-Identifier: MIT
"""Checkpoint.get_slice(): NumPy's indices, of which only the ranges are read; names that are not there."""

import os
import pickle
import random
import unittest

import numpy as np

import hoist
import files
from test_buffer import random_index
from vectors import GPUS


class WithModel(files.WithModel):
    model = {**files.MODEL, "odd[0]*": ("I32", (3, 4, 5))}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.checkpoint = hoist.open(cls.path)

    @classmethod
    def tearDownClass(cls):
        cls.checkpoint.close()
        super().tearDownClass()


class Slices(WithModel):
    def array(self, name, dtype, shape):
        return np.frombuffer(self.bytes[name], dtype).reshape(shape)

    def test_as_numpy(self):
        r = random.Random(11)
        known = [("layers.0.q", "f4", (64, 64)), ("odd[0]*", "i4", (3, 4, 5)), ("ids", "i8", (1000,)),
                 ("empty", "i8", (0, 3)), ("layers.0.k", "f2", (16, 64)), ("mask", "?", (7, 5))]
        n_right = 0
        for _ in range(400):
            name, dtype, shape = r.choice(known)
            array, part = self.array(name, dtype, shape), self.checkpoint.get_slice(name)
            index = random_index(r, shape)
            try:
                want = array[index]
            except (IndexError, ValueError) as error:
                with self.subTest(name=name, index=index), self.assertRaises(type(error)):
                    part[index]
                continue
            with self.subTest(name=name, index=index):
                got = part[index]
                self.assertEqual((got.shape, got.tobytes()), (want.shape, want.tobytes()))
                self.assertTrue(got.is_contiguous)
                self.assertFalse(got.is_read_only)
            n_right += 1
        self.assertGreater(n_right, 200)

    def test_facts(self):
        part = self.checkpoint.get_slice("layers.0.k")
        self.assertEqual((part.shape, part.dtype, part.tensor), ((16, 64), "f16",
                                                                self.checkpoint["layers.0.k"]))
        self.assertIn("layers.0.k", repr(part))
        scalar = self.checkpoint.get_slice("scalar")
        for index in ((), Ellipsis, (Ellipsis,), (None, ...)):
            self.assertEqual(scalar[index].tobytes(), self.bytes["scalar"])

    def test_only_the_ranges_are_read(self):
        def read_by_this_process():
            with open("/proc/self/io", encoding="ascii") as file:
                return int(file.readline().split()[1])

        path = os.path.join(self.folder.name, "large.safetensors")
        want = np.frombuffer(files.write(path, {"a": ("F32", (1 << 20, 4))})["a"], "f4").reshape(-1, 4)
        with hoist.open(path) as checkpoint:
            part = checkpoint.get_slice("a", io="cached", engine="threads")
            for index, most in (((slice(100, 200, 3)), 1 << 20), ((7, slice(1, 3)), 1 << 20),
                                (slice(9, 9), 1 << 20), (slice(1000, 100, -1), 1 << 20)):
                before = read_by_this_process()
                self.assertEqual(part[index].tobytes(), want[index].tobytes())
                self.assertLess(read_by_this_process() - before, most)
            before = read_by_this_process()
            part[...]
            self.assertGreaterEqual(read_by_this_process() - before, want.nbytes)

    def test_devices_and_dtypes(self):
        array = self.array("layers.0.k", "f2", (16, 64))
        for spec in GPUS:
            part = self.checkpoint.get_slice("layers.0.k", spec, dtype="f32")[3:9, ::-2]
            self.assertEqual((part.device.spec, part.dtype), (spec, "f32"))
            np.testing.assert_array_equal(np.asarray(part.to("cpu")), array[3:9, ::-2].astype("f4"))

    def test_a_tensor_with_strides_in_its_file(self):
        path = os.path.join(self.folder.name, "f.npy")
        array = np.asfortranarray(np.arange(24, dtype="i4").reshape(4, 6))
        np.save(path, array)
        with hoist.open(path) as checkpoint:
            part = checkpoint.get_slice(next(iter(checkpoint)))
            for index in (slice(1, 3), (slice(None, None, -1), 2), (3, slice(0, 0)), ...):
                got = part[index]
                self.assertEqual((got.shape, got.tobytes()), (array[index].shape, array[index].tobytes()))

    def test_what_is_no_index(self):
        part = self.checkpoint.get_slice("layers.0.q")
        for index in ("a", 1.5, np.array([1, 2]), [0, 1], (0, "b")):
            with self.subTest(index=index), self.assertRaisesRegex(TypeError, "an index has"):
                part[index]
        for index in ((..., ...), (0, 0, 0), 64, (0, -65)):
            with self.subTest(index=index), self.assertRaises(hoist.errors.RangeError):
                part[index]
        self.assertRaises(TypeError, self.checkpoint.get_slice, "ids", quick=True)
        self.assertRaises(TypeError, self.checkpoint.get_slice, "ids", tensors="x")

    def test_after_the_end_of_the_checkpoint(self):
        with hoist.open(self.path) as checkpoint:
            part = checkpoint.get_slice("ids")
        self.assertRaises(hoist.errors.ClosedError, lambda: part[0])
        self.assertRaises(hoist.errors.ClosedError, checkpoint.get_slice, "ids")


class Missing(WithModel):
    def check(self, look, name="nope"):
        for kind in (KeyError, hoist.Error, hoist.errors.MissingError):
            with self.assertRaisesRegex(kind, f"there is no tensor '{name}'") as caught:
                look()
        self.assertEqual((caught.exception.args[0], caught.exception.errno), (name, 2))
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((type(again), str(again), again.errno),
                         (hoist.errors.MissingError, str(caught.exception), 2))

    def test_checkpoints(self):
        self.check(lambda: self.checkpoint["nope"])
        self.check(lambda: self.checkpoint.get_slice("nope"))
        self.assertIsNone(self.checkpoint.get("nope"))

    def test_loads(self):
        with hoist.load(self.path, tensors="ids", digest=True) as load:
            self.check(lambda: load["nope"])
            self.check(lambda: load["embed"], "embed")
            self.check(lambda: load.digest("embed"), "embed")
            self.assertEqual([name for name, _ in load], ["ids"])
            self.check(lambda: load["ids"], "ids")


if __name__ == "__main__":
    unittest.main()
