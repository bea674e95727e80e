# SPDX-License-Identifier: MIT
"""Buffers: properties, indexing as NumPy's, exchange with other libraries."""

import copy
import gc
import pickle
import random
import threading
import unittest
import zlib

import numpy as np

import hoist

TYPES = {"bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I",
         "u64": "Q", "f16": "e", "f32": "f", "f64": "d", "c64": "F", "c128": "D"}


def counted(*shape, dtype="f32"):
    """A buffer of 0, 1, 2, ... and the same array."""
    array = np.arange(int(np.prod(shape)), dtype=TYPES[dtype]).reshape(shape)
    buffer = hoist.Buffer(dtype, shape)
    np.asarray(buffer)[...] = array
    return buffer, array


def random_index(r, shape):
    """An index of any kind that basic indexing has; sometimes a wrong one."""
    items = []
    for extent in shape[:r.randint(0, len(shape))]:
        kind = r.randrange(6)
        if kind == 0:
            items.append(r.randint(-extent - 1, extent))
        elif kind == 1:
            items.append(np.int64(r.randint(0, max(0, extent - 1))))
        else:
            items.append(slice(*(r.choice([None, r.randint(-9, 9)]) for _ in range(2)),
                               r.choice([None, 1, 2, -1, -3, 0 if r.random() < 0.05 else 1])))
    for _ in range(r.randint(0, 2)):
        items.insert(r.randint(0, len(items)), None)
    if r.random() < 0.4:
        items.insert(r.randint(0, len(items)), Ellipsis)
    return items[0] if len(items) == 1 and r.random() < 0.5 else tuple(items)


class Making(unittest.TestCase):
    def test_properties(self):
        b = hoist.Buffer("f16", (3, 0, 5), zero=True)
        self.assertEqual((b.shape, b.dtype, b.ndim, b.size, b.nbytes), ((3, 0, 5), "f16", 3, 0, 0))
        self.assertEqual(hoist.Buffer("i64", (3, 4, 5)).strides, (20, 5, 1))
        b = hoist.Buffer("float32", 4, zero=True)
        self.assertEqual((b.shape, b.dtype, len(b), b.tobytes()), ((4,), "f32", 4, bytes(16)))
        self.assertIs(b.device, hoist.Device("cpu"))
        self.assertTrue(b.is_contiguous)
        self.assertFalse(b.is_read_only or b.closed or b.is_pinned)
        self.assertIn("dtype=f32, shape=(4,)", repr(b))
        self.assertIn("[0.0, 0.0, 0.0, 0.0]", str(b))

    def test_dtypes_of_numpy(self):
        for dtype in (np.float16, np.dtype("float16"), "float16", "f16"):
            with self.subTest(dtype=dtype):
                self.assertEqual(hoist.Buffer(dtype, ()).dtype, "f16")
        self.assertRaisesRegex(ValueError, "float", hoist.Buffer, float, ())

    def test_wrong_arguments(self):
        table = [
            (("f99", (2,)), {}, ValueError, "f99"), (("f32", (-1,)), {}, ValueError, ""),
            (("f32", "no"), {}, TypeError, ""), (("f32", (2**62, 2**62)), {}, OverflowError, ""),
            (("f32", (1,) * 65), {}, ValueError, "65 axes"), (("f32", (2**50,)), {}, MemoryError, ""),
            (("f32", (2,), 3), {}, TypeError, "a device is"), (("f32", (2,), "tpu"), {}, ValueError, ""),
            (("f32", (2,)), {"stream": 1}, TypeError, "a stream is"),
        ]
        for args, keywords, kind, text in table:
            with self.subTest(args=args), self.assertRaisesRegex(kind, text):
                hoist.Buffer(*args, **keywords)

    def test_errors_are_of_both_kinds(self):
        with self.assertRaises(hoist.Error) as caught:
            hoist.Buffer("f32", (2**50,))
        self.assertIsInstance(caught.exception, MemoryError)
        self.assertIn(caught.exception.errno, (12, 28))
        self.assertEqual(caught.exception.driver_error, 0)

    def test_close(self):
        b, _ = counted(4)
        view = b[1:]
        with memoryview(b):
            self.assertRaisesRegex(BufferError, "in use", b.close)
        b.close()
        b.close()
        self.assertTrue(b.closed)
        for use in (lambda: b.shape, lambda: b[0], lambda: len(b), b.tobytes, lambda: b.copy(),
                    lambda: np.frombuffer(b), lambda: b.__dlpack__(), lambda: b.reshape((2, 2))):
            with self.assertRaises((ValueError, BufferError)):
                use()
        self.assertIn("closed", repr(b))
        self.assertEqual(view.item() if view.size == 1 else view[2].item(), 3.0)


class Indexing(unittest.TestCase):
    def test_as_numpy(self):
        r = random.Random(7)
        n_right = 0
        for _ in range(3000):
            shape = tuple(r.randint(0, 5) for _ in range(r.randint(0, 4)))
            buffer, array = counted(*shape, dtype=r.choice(list(TYPES)[1:]))
            index = random_index(r, shape)
            try:
                want = array[index]
            except (IndexError, ValueError) as error:
                with self.subTest(shape=shape, index=index), self.assertRaises(type(error)):
                    buffer[index]
                continue
            got = buffer[index]
            with self.subTest(shape=shape, index=index):
                self.assertEqual(got.shape, want.shape)
                np.testing.assert_array_equal(np.asarray(got), want)
            n_right += 1
        self.assertGreater(n_right, 1000)

    def test_storing(self):
        r = random.Random(8)
        for _ in range(500):
            shape = tuple(r.randint(1, 5) for _ in range(r.randint(1, 3)))
            buffer, array = counted(*shape)
            index = [slice(r.randint(0, 2), None, r.choice([1, 2, -1])) if r.random() < 0.7 else r.randrange(extent)
                     for extent in shape]
            if r.random() < 0.4:
                first = r.randint(0, len(index))
                index[first:r.randint(first, len(index))] = [...]
            for _ in range(r.choice([0, 0, 1, 2])):
                index.insert(r.randint(0, len(index)), None)
            index = tuple(index) if len(index) != 1 or r.random() < 0.5 else index[0]
            value = r.randint(-5, 5)
            buffer[index] = value
            array[index] = value
            np.testing.assert_array_equal(np.asarray(buffer), array)
            other = hoist.Buffer("f32", buffer[index].shape, zero=True)
            buffer[index] = other
            array[index] = 0
            np.testing.assert_array_equal(np.asarray(buffer), array)

    def test_what_cannot_be_stored(self):
        b = hoist.Buffer("u8", (4,), zero=True)
        for value, kind in ((256, OverflowError), (-1, OverflowError), (0.5, ValueError),
                            ("x", TypeError), (2**70, OverflowError), (-(2**70), OverflowError)):
            with self.subTest(value=value), self.assertRaises(kind):
                b[:] = value
        with self.assertRaises(BufferError):
            b.read_only()[0] = 1
        with self.assertRaises(TypeError):
            del b[0]
        self.assertRaises(TypeError, lambda: b["a"])
        self.assertEqual(b.tobytes(), bytes(4))

    def test_views(self):
        b, a = counted(4, 6)
        np.testing.assert_array_equal(np.asarray(b.permute((1, 0))), a.T)
        np.testing.assert_array_equal(np.asarray(b.reshape((3, -1))), a.reshape(3, -1))
        self.assertEqual(b.view("u8").shape, (4, 24))
        self.assertEqual(b.view("i32", (2, 12)).shape, (2, 12))
        self.assertRaises(ValueError, b.permute, (0,))
        self.assertRaises(ValueError, b.permute, (0, 2**40))
        self.assertRaises(ValueError, b.reshape, (5, 5))
        self.assertRaises(ValueError, b.permute((1, 0)).reshape, (24,))


class Exchange(unittest.TestCase):
    def test_buffer_protocol(self):
        for dtype, letter in TYPES.items():
            with self.subTest(dtype=dtype):
                b = hoist.Buffer(dtype, (2, 3), zero=True)
                array = np.asarray(b)
                self.assertEqual(array.dtype.char.lower() if dtype != "i64" else "q",
                                 np.dtype(letter).char.lower() if dtype != "i64" else "q")
                self.assertEqual(array.ctypes.data, b.address)
                self.assertTrue(array.flags.writeable)
                self.assertFalse(np.asarray(b.read_only()).flags.writeable)
        self.assertRaisesRegex(BufferError, "bf16", memoryview, hoist.Buffer("bf16", (2,)))
        self.assertRaisesRegex(BufferError, "gaps", zlib.crc32, hoist.Buffer("u8", (4, 4))[:, 1])
        self.assertEqual(zlib.crc32(hoist.Buffer("u8", (4, 4), zero=True)), zlib.crc32(bytes(16)))

    def test_memory_outlives_the_buffer(self):
        array = np.asarray(counted(1000)[0])
        gc.collect()
        self.assertEqual(array[999], 999.0)

    def test_dlpack_to_numpy_and_back(self):
        for dtype in list(TYPES)[1:12]:
            b, a = counted(3, 4, dtype=dtype)
            with self.subTest(dtype=dtype):
                np.testing.assert_array_equal(np.from_dlpack(b[:, ::2]), a[:, ::2])
                back = hoist.from_dlpack(a[1:])
                self.assertEqual(back.address, a[1:].ctypes.data)
                np.testing.assert_array_equal(np.asarray(back), a[1:])
        self.assertEqual(b.__dlpack_device__(), (1, 0))

    def test_dlpack_keeps_the_producer(self):
        class Producer:
            alive = 0

            def __init__(self):
                self.array = np.ones(5, "f")
                Producer.alive += 1

            def __del__(self):
                Producer.alive -= 1

            def __dlpack_device__(self):
                return (1, 0)

            def __dlpack__(self, stream=None):  # an old one: TypeError for max_version
                return hoist.from_dlpack(self.array).__dlpack__()

        b = hoist.from_dlpack(Producer())
        gc.collect()
        self.assertEqual(b[4].item(), 1.0)

    def test_dlpack_capsules(self):
        b, _ = counted(4)
        legacy, versioned = b.__dlpack__(), b.__dlpack__(max_version=(1, 0))
        self.assertIn('"dltensor"', repr(legacy))
        self.assertIn('"dltensor_versioned"', repr(versioned))
        self.assertIn('"dltensor"', repr(b.__dlpack__(max_version=(0, 8))))
        copied = b.__dlpack__(max_version=(1, 0), copy=True, dl_device=(1, 0))
        del legacy, versioned, copied
        self.assertRaises(BufferError, b.read_only().__dlpack__)
        self.assertRaises(BufferError, hoist.Buffer("f4_e2m1fn", (4,))[1:3].__dlpack__)
        self.assertRaises(ValueError, b.__dlpack__, stream=5)
        self.assertRaises(AttributeError, hoist.from_dlpack, 3)

    def test_failing_producers(self):
        class Wrong:
            def __init__(self, device, result):
                self.device, self.result = device, result

            def __dlpack_device__(self):
                return self.device

            def __dlpack__(self, **_):
                if isinstance(self.result, Exception):
                    raise self.result
                return self.result

        table = [((1, 0), 3, ValueError), ((1, 0), RuntimeError("x"), RuntimeError), (5, 3, TypeError),
                 ((99, 0), 3, BufferError), (("a", 0), 3, TypeError), ((1,), 3, IndexError)]
        for device, answer, kind in table:
            with self.subTest(device=device), self.assertRaises((kind, ValueError)):
                hoist.from_dlpack(Wrong(device, answer))


class Devices(unittest.TestCase):
    def test_identity_and_pickle(self):
        cpu = hoist.Device()
        self.assertIs(hoist.Device("cpu"), cpu)
        self.assertIs(pickle.loads(pickle.dumps(cpu)), cpu)
        self.assertIs(copy.deepcopy(cpu), cpu)
        self.assertEqual(cpu.spec, "cpu")
        self.assertTrue(cpu.info()["is_host"])

    def test_emulated(self):
        """The runner asks for emulated devices."""
        for spec in ("cuda:0", "cuda:1", "hip:0"):
            device = hoist.Device(spec)
            self.assertTrue(device.info()["emulated"])
            b, a = counted(5, 7)
            there = b.to(device)
            self.assertIs(there.device, device)
            self.assertIs(there.to(device), there)
            np.testing.assert_array_equal(np.asarray(there[1:, ::2].to("cpu")), a[1:, ::2])
            self.assertRaisesRegex(BufferError, "device memory", memoryview, there)
            self.assertEqual(there[2, 3].item(), a[2, 3])
            self.assertEqual(there.__dlpack_device__()[0], 2 if spec[0] == "c" else 10)
            stream = hoist.Stream(device)
            self.assertIs(stream.device, device)
            on = hoist.Buffer("f32", (3,), stream=stream, zero=True)
            stream.synchronize()
            self.assertEqual(on.tobytes(), bytes(12))
            again = hoist.from_dlpack(there)
            self.assertEqual(again.address, there.address)
            on.close(stream)
        self.assertRaisesRegex(hoist.Error, "cuda:9", hoist.Device, "cuda:9")
        self.assertEqual(hoist.device_count("cuda"), 2)

    def test_threads(self):
        """Copies of one buffer by several threads, while others make views."""
        b, a = counted(300, 1000)
        wrong = []

        def work():
            for _ in range(20):
                if b[::2].copy().tobytes() != a[::2].tobytes():
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
