# SPDX-License-Identifier: MIT
"""hoist.driver and the objects under it: identity, lifetimes, exchange with NumPy, what is left."""

import copy
import gc
import pickle
import sys
import threading
import unittest

import numpy as np

import hoist
from hoist import core
from hoist import driver as d
from hoist.driver import DType
from vectors import ALL, GPUS, run_alone

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


class Identity(unittest.TestCase):
    def test_streams(self):
        for spec in ALL:
            with self.subTest(spec=spec):
                device = hoist.Device(spec)
                default = device.default_stream
                self.assertIs(device.default_queue, default)
                self.assertTrue(default.is_default)
                own = d.DeviceStream(device)
                self.assertNotEqual(own, default)
                self.assertIs(own.device, device)
                b = d.Buffer(DType.float32, (3,), own)
                self.assertIs(b.stream, own)
                self.assertIs(b[1:].stream, own)
                moved = b.to(default)
                self.assertIs(moved.stream, default)
                self.assertEqual((moved.address, moved.device), (b.address, device))
                self.assertIs(moved.to(default), moved)
                self.assertIs(b.to([own])[0], b)

    def test_no_stale_object(self):
        """A new stream at the address of one that ended has an object of its own."""
        device = hoist.Device("cuda:0")
        for _ in range(200):
            stream = d.DeviceStream(device)
            b = hoist.Buffer("u8", (4,), stream=stream)
            del stream
            self.assertIs(b.stream.device, device)
            self.assertFalse(b.stream.is_default)
            del b

    def test_kinds_of_devices(self):
        self.assertIsInstance(d.CPU(), d.Device)
        self.assertIsInstance(d.CPU(), d.CPU)
        self.assertNotIsInstance(d.CPU(), d.Accelerator)
        self.assertIsInstance(d.Accelerator(1), d.Accelerator)
        self.assertIs(d.Accelerator(), d.Accelerator(0))
        self.assertIs(d.Device.cpu(7), d.CPU())
        self.assertEqual((str(d.CPU()), d.CPU().id, d.Accelerator(1).id), ("Device(type=cpu,id=0)", 0, 1))
        self.assertRaises(ValueError, d.Accelerator, 99)
        self.assertRaises(ValueError, lambda: d.CPU().architecture_name)
        self.assertGreater(d.Accelerator().stats["total_memory"], 0)

    def test_names_of_26_7(self):
        usage = d.Usage
        for given, pinned in ((usage.DEFAULT, False), (usage.UNTRACKED, False), (usage.STAGING, True),
                              (usage.STAGING | usage.UNTRACKED, True), (True, True)):
            self.assertIs(d.Buffer(DType.int8, (3,), d.Accelerator(), given).pinned, pinned)
            self.assertIs(d.Buffer.zeros((3,), DType.int8, d.Accelerator(), given).pinned, pinned)
        source = d.Buffer.from_numpy(np.arange(3, dtype="i4"))
        to = [d.Buffer(DType.int32, (3,), hoist.Device(spec)) for spec in ALL]
        d.copy_pinned_to_destinations(source, to)
        self.assertEqual([b.to(d.CPU()).to_numpy().tolist() for b in to], [[0, 1, 2]] * 3)
        for kind in (ValueError, MemoryError):
            with self.assertRaisesRegex(kind, "Memory allocation failed"):
                d.Buffer(DType.int8, (1 << 50,))
        self.assertRaises(IndexError, to[0][0].view, DType.int32)
        self.assertGreater(d.Accelerator().max_single_alloc_size, 0)
        self.assertTrue(str(source).endswith("device=Device(type=cpu,id=0))"))
        for array, kind in ((np.zeros(2, "c8"), TypeError), (np.zeros(2, ">f4"), BufferError),
                            (np.array(["a"]), BufferError)):
            self.assertRaises(kind, d.Buffer.from_dlpack, array)
        run_alone(self, """
d.enable_all_peer_access()
assert d.Accelerator(0).can_access(d.Accelerator(1))
""", "cuda:2")

    def test_classes_of_views_and_copies(self):
        class Own(d.Buffer):
            pass
        b = Own(DType.int32, (4, 4))
        self.assertIsInstance(b[1:], Own)
        self.assertIsInstance(b.view(DType.int8), Own)
        self.assertIs(type(b.copy()), d.Buffer)
        self.assertIs(type(hoist.Buffer("f32", (2,))[1:]), hoist.Buffer)


class Events(unittest.TestCase):
    def test_events(self):
        for spec in ALL:
            with self.subTest(spec=spec):
                device = hoist.Device(spec)
                stream, other = d.DeviceQueue(device), d.DeviceQueue(device)
                start, end = (d.DeviceEvent(device, enable_timing=True) for _ in range(2))
                self.assertIs(stream.record_event(start), start)
                flag = d.CompletionFlag(device)
                stream.wait_for_host_value(flag, 3)
                stream.record_event(end)
                other.wait_for(stream)
                flag.signal(2)
                self.assertFalse(end.is_ready() or stream.is_ready())
                flag.signal(3)
                other.synchronize()
                end.synchronize()
                self.assertTrue(end.is_ready())
                self.assertGreaterEqual(start.elapsed_time(end), 0)
                plain = stream.record_event()
                self.assertRaises(RuntimeError, plain.elapsed_time, end)
                flag.reset()
                self.assertEqual(flag.load(), 0)
                self.assertNotEqual(flag.device_ptr, 0)
        self.assertRaises(TypeError, stream.wait_for, 3)
        self.assertRaises(TypeError, stream.record_event, 3)

    def test_a_flag_that_ends_lets_streams_go_on(self):
        stream = d.DeviceQueue(hoist.Device("cuda:0"))
        stream.wait_for_host_value(d.CompletionFlag(hoist.Device("cuda:0")), 1)
        stream.synchronize()

    def test_exit_with_busy_streams(self):
        for spec in ("cpu", "cuda:0"):
            run_alone(self, f"""
device = hoist.Device("{spec}")
flag = d.CompletionFlag(device)
stream = d.DeviceQueue(device)
stream.wait_for_host_value(flag, 1)
b = hoist.Buffer("f32", (1000,), stream=stream, zero=True)
""", "cuda:1")


class Exchange(unittest.TestCase):
    def test_read_only_never_becomes_writable(self):
        array = np.frombuffer(b"12345678", "u4")
        b = d.Buffer(array, d.CPU())
        self.assertTrue(b.is_read_only)
        self.assertEqual(b.address, array.ctypes.data)
        with self.assertRaises(BufferError):
            b[0] = 1
        self.assertRaises(BufferError, b.__dlpack__)
        self.assertFalse(np.asarray(b).flags.writeable)
        self.assertFalse(np.asarray(b[1:].view(DType.uint8)).flags.writeable)
        self.assertTrue(b.to_numpy().flags.writeable)  # a copy
        self.assertNotEqual(b.to_numpy().ctypes.data, b.address)
        copied = d.Buffer.from_dlpack(array)
        self.assertNotEqual(copied.address, array.ctypes.data)
        self.assertRaises(BufferError, lambda: d.Buffer.from_dlpack(array, copy=False))
        self.assertTrue(hoist.Buffer("u8", (3,)).read_only().__array_interface__["data"][1])

    def test_array_interfaces(self):
        b = hoist.Buffer("i16", (4, 6), zero=True)
        fields = b[::2, 1:].__array_interface__
        self.assertEqual((fields["typestr"], fields["shape"], fields["strides"]),
                         ("<i2", (2, 5), (24, 2)))

        class Only:
            __array_interface__ = fields
            keep = b

        self.assertEqual(np.asarray(Only()).ctypes.data, b.address + 2)
        self.assertFalse(hasattr(hoist.Buffer("bf16", (2,)), "__array_interface__"))
        self.assertFalse(hasattr(b.to("cuda:0"), "__array_interface__"))
        self.assertFalse(hasattr(b, "__cuda_array_interface__"))
        self.assertRaises(TypeError, np.asarray, b.to("cuda:0"))

    def test_cuda_array_interface(self):
        b = hoist.Buffer("f32", (3, 4), "cuda:0", zero=True)

        class Producer:
            __cuda_array_interface__ = b.__cuda_array_interface__

        producer = Producer()
        before = sys.getrefcount(producer)
        back = hoist.Buffer.from_cuda_array_interface(producer)
        self.assertEqual((back.address, back.shape, back.dtype), (b.address, (3, 4), "f32"))
        self.assertIs(back.device, b.device)
        self.assertGreater(sys.getrefcount(producer), before)
        del back
        b.device.synchronize()
        hoist.Buffer("u8", (1,), "cuda:0").tobytes()
        for wrong in ({"version": 2}, {"mask": producer}, {"typestr": "<V2"}, {"stream": 0}):
            class Wrong:
                __cuda_array_interface__ = {**b.__cuda_array_interface__, **wrong}
            with self.subTest(wrong=wrong), self.assertRaises(hoist.Error):
                hoist.Buffer.from_cuda_array_interface(Wrong())

    def test_from_buffer(self):
        for data in (bytearray(b"abcdef"), np.arange(6, dtype="f4").reshape(2, 3)[:, ::-1],
                     np.array(5), np.ones((0, 3)), memoryview(b"xyz"), np.ones(3, "F")):
            b = hoist.Buffer.from_buffer(data)
            np.testing.assert_array_equal(np.asarray(b), np.asarray(data))
        array = np.ones(100)
        before = sys.getrefcount(array)
        b = hoist.Buffer.from_buffer(array)
        self.assertGreater(sys.getrefcount(array), before)
        view = b[5:]
        del b
        self.assertEqual(view[0].item(), 1.0)
        del view
        self.assertEqual(sys.getrefcount(array), before)
        for wrong, kind in ((np.array(["a"]), TypeError), (np.ones(2, ">f4"), TypeError), (3, TypeError)):
            self.assertRaises(kind, hoist.Buffer.from_buffer, wrong)

    def test_release_in_another_thread(self):
        """The last reference goes where no lock of Python's is held."""
        ended = []
        b = hoist.Buffer.from_address(0, 0, "u8", (0,), release=lambda: ended.append(1))
        box = [b]
        del b
        thread = threading.Thread(target=box.clear)
        thread.start()
        thread.join()
        self.assertEqual(ended, [1])

    @unittest.skipUnless(ml_dtypes, "ml_dtypes is not installed")
    def test_ml_dtypes(self):
        for dtype in (DType.bfloat16, DType.float8_e4m3fn, DType.float8_e5m2):
            b = d.Buffer(dtype, (2, 2))
            b[1, 1] = 1.5
            for array in (b.to_numpy(), np.asarray(b)):
                self.assertEqual(array.dtype, np.dtype(getattr(ml_dtypes, dtype.name)))
                self.assertEqual(float(array[1, 1]), 1.5)
                self.assertEqual(array.ctypes.data, b.address)
            self.assertEqual(d.Buffer.from_numpy(b.to_numpy()).address, b.address)

    def test_types_that_numpy_lacks(self):
        """Without ml_dtypes the bits."""
        b = d.Buffer(DType.float8_e8m0fnu, (2,))
        b[0] = 1.0
        self.assertEqual(b.to_numpy().view("u1")[0], 127)


class Numbers(unittest.TestCase):
    def test_one_element(self):
        for spec in ALL:
            b = d.Buffer.scalar(3, DType.int32, hoist.Device(spec))
            self.assertEqual([10, 11, 12, 13][b], 13)
            self.assertEqual((int(b), float(b), bool(b)), (3, 3.0, True))
        self.assertEqual(float(hoist.Buffer("f16", (1, 1), zero=True)), 0.0)
        self.assertRaises(TypeError, lambda: [1][hoist.Buffer("f32", (), zero=True)])
        self.assertRaises(TypeError, lambda: [1][hoist.Buffer("i32", (1,), zero=True)])
        self.assertRaises(ValueError, bool, hoist.Buffer("i32", (2,)))
        b = d.Buffer(DType.float64, (4,))
        for value in (np.float32(1.5), np.int8(-3), np.bool_(True), True, 7):
            b[np.int64(-1)] = value
            self.assertEqual(b[3].item(), float(value))

    def test_pickle_and_copy(self):
        r = np.random.default_rng(1)
        for spec in ALL:
            for dtype in ("f32", "bf16", "i64", "f4_e2m1fn", "bool"):
                for shape in ((), (3, 4), (0, 3)):
                    if dtype == "f4_e2m1fn" and shape == ():
                        continue
                    bits = hoist.Buffer("u8", (400,))
                    np.asarray(bits)[:] = r.integers(0, 2, 400)
                    made = hoist.Buffer(dtype, shape)
                    if made.nbytes:
                        made.copy_from(bits[:made.nbytes].view(dtype, shape))
                    b = made.to(spec)
                    for other in (copy.deepcopy(b), copy.copy(b), *(pickle.loads(pickle.dumps(
                            b, protocol)) for protocol in (2, 4, 5))):
                        with self.subTest(spec=spec, dtype=dtype, shape=shape):
                            self.assertEqual((other.dtype, other.shape, other.tobytes()),
                                             (b.dtype, b.shape, b.tobytes()))
                            self.assertIs(other.device, b.device)
                            self.assertFalse(other.is_read_only)
        out = []
        b = hoist.Buffer("f32", (1000,), zero=True)
        text = pickle.dumps(b[::2], 5, buffer_callback=out.append)
        self.assertEqual((len(out), len(text) < 500), (1, True))
        self.assertEqual(pickle.loads(text, buffers=out).tobytes(), bytes(2000))
        pinned = hoist.Buffer("f32", (2,), "cuda:0", pinned=True)
        self.assertTrue(pickle.loads(pickle.dumps(pinned)).is_pinned)
        self.assertTrue(copy.deepcopy(pinned).is_pinned)

    def test_sizes(self):
        b = hoist.Buffer("u8", (100000,))
        self.assertGreaterEqual(sys.getsizeof(b), 100000)
        self.assertLess(sys.getsizeof(b.to("cuda:0")), 1000)

    def test_wrong_arguments(self):
        b = d.Buffer(DType.int32, (2, 3))
        for call, kind in ((lambda: b.view(DType.int64, (5,)), ValueError),
                           (lambda: b.view(DType.int32, (2, 2)), ValueError),
                           (lambda: b.__setitem__(slice(None), 1), TypeError),
                           (lambda: b.__setitem__((0, 0), 2**40), OverflowError),
                           (lambda: b.__setitem__((0, 0), "x"), TypeError),
                           (lambda: d.Buffer("complex64", (2,)), ValueError),
                           (lambda: d.Buffer(DType.int32, (2,), 5), TypeError),
                           (lambda: b.to(5), TypeError), (lambda: b[0, 0, 0], IndexError),
                           (lambda: d.batch_inplace_copy([b], []), ValueError),
                           (lambda: d.batch_inplace_copy([b], [3]), TypeError),
                           (lambda: core.Buffer(), RuntimeError),
                           (lambda: core.MemoryResource().allocate(3), TypeError),
                           (lambda: hoist._hoist.Memory("stone"), ValueError)):
            with self.assertRaises(kind):
                call()
        self.assertEqual(b[[1, 2]].shape, ())
        self.assertEqual(b[..., None].shape, (2, 3, 1))


class Leaks(unittest.TestCase):
    def test_nothing_is_left(self):
        """Rounds of everything leave objects and descriptors flat."""
        def round_of(spec):
            device = hoist.Device(spec)
            b = d.Buffer.from_numpy(np.arange(24, dtype="f4").reshape(4, 6)).to(device)
            stream = d.DeviceQueue(device)
            _ = (b[1:, ::2].copy(device), b.to(stream), b.view(DType.int8), repr(b), str(b[0]))
            pickle.loads(pickle.dumps(b, 5))
            b[0, 0] = 1
            for wrong in (lambda: b[9], lambda: b.view(DType.int64, (5,)), lambda: b.item()):
                try:
                    wrong()
                except (IndexError, ValueError):
                    pass
            stream.record_event().synchronize()
            core.StridedLayout.dense((3, 4), 4)[1:].to_dense()
            mr = core.DeviceMemoryResource(device) if not device.is_host else None
            if mr:
                mr.allocate(100).close()
            d.CompletionFlag(device).signal(1)
            if device.is_host:
                core.StridedMemoryView(b.to_numpy(), -1)
                np.asarray(b)

        def count():
            gc.collect()
            sys._clear_type_cache()  # it keeps names of attributes, up to some thousands of them
            return sys.getallocatedblocks()

        for spec in ALL:
            for _ in range(50):
                round_of(spec)
            before = count()
            for _ in range(300):
                round_of(spec)
            self.assertLess(count() - before, 150)

    def test_types(self):
        """Objects give their types' references back."""
        kinds = (hoist.Stream, hoist.Buffer, d.Buffer, core.StridedLayout, d.CompletionFlag,
                 d.DeviceEvent)
        before = [sys.getrefcount(kind) for kind in kinds]
        for _ in range(100):
            device = hoist.Device(GPUS[0])
            stream = d.DeviceQueue(device)
            _ = (hoist.Buffer("u8", (1,)), d.Buffer(DType.int8, (1,))[:], stream.record_event(),
                 core.StridedLayout((1,), None, 1), d.CompletionFlag(device))
        del _, stream
        gc.collect()
        after = [sys.getrefcount(kind) for kind in kinds]
        for kind, a, b in zip(kinds, before, after):
            self.assertLess(abs(a - b), 20, kind)


if __name__ == "__main__":
    unittest.main()
