# SPDX-License-Identifier: MIT
"""DLPack's exchange tables of hoist.Buffer and of hoist.core's views, used in C by exchanging.c."""

import ctypes
import sys
import unittest

import numpy as np

import hoist
from hoist import driver
from hoist.core.utils import StridedMemoryView
import consumer
from vectors import GPUS


class Table(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.c = consumer.library()
        cls.table = consumer.table_of(hoist.Buffer)

    def around(self, buffer):
        flags = ctypes.c_uint64()
        return self.c.around(self.table, ctypes.py_object(buffer), ctypes.byref(flags)), flags.value

    def test_the_version(self):
        fields = ctypes.cast(self.table, ctypes.POINTER(ctypes.c_uint32))
        self.assertEqual(fields[0], 1)
        self.assertGreaterEqual(fields[1], 1)
        self.assertIs(driver.Buffer.__dlpack_c_exchange_api__, hoist.Buffer.__dlpack_c_exchange_api__)

    def test_borrowing(self):
        array = np.arange(12, dtype="f4").reshape(3, 4)
        want = array.copy()
        want[::-1, 1::2] += 5
        for buffer in (hoist.Buffer.from_buffer(array), driver.Buffer.from_numpy(array.copy())):
            part = buffer[::-1, 1::2]
            self.assertEqual(self.c.add(self.table, ctypes.py_object(part), ctypes.c_float(5)), 0)
            np.testing.assert_array_equal(np.asarray(buffer), want)

    def test_around(self):
        for spec in ("cpu", *GPUS):
            with self.subTest(spec=spec):
                buffer = hoist.Buffer("bf16", (4, 6), spec, zero=True)[1:, ::2]
                back, flags = self.around(buffer)
                self.assertEqual((back.address, back.shape, back.strides, back.dtype, flags),
                                 (buffer.address, (3, 3), (6, 2), "bf16", 0))
                self.assertIs(back.device, buffer.device)
                del buffer
                back.fill(1.0)
                self.assertEqual(back.to("cpu").tobytes(), b"\x80\x3f" * 9)

    def test_read_only(self):
        buffer = hoist.Buffer("f32", (2, 2), zero=True).read_only()
        with self.assertRaisesRegex(BufferError, "read-only"):  # nobody says that the flag is heeded
            self.around(buffer)
        with self.assertRaisesRegex(BufferError, "read-only"):  # a borrowed tensor cannot say so
            self.c.add(self.table, ctypes.py_object(buffer), ctypes.c_float(1))

    def test_what_is_dropped(self):
        array = np.ones((2, 2), "f4")
        before = sys.getrefcount(array)
        buffer = hoist.Buffer.from_buffer(array)
        for _ in range(100):
            self.assertEqual(self.c.drop(self.table, ctypes.py_object(buffer)), 0)
            self.around(buffer)
        del buffer
        self.assertEqual(sys.getrefcount(array), before)

    def test_views(self):
        """hoist.core's views have a table of their own, which gives views back."""
        array = np.arange(12, dtype="f4").reshape(3, 4)
        view = StridedMemoryView(array[:, ::2], stream_ptr=-1)
        table = consumer.table_of(StridedMemoryView)
        self.assertNotEqual(table.value, self.table.value)
        for _ in range(2):
            self.assertEqual(self.c.add(table, ctypes.py_object(view), ctypes.c_float(5)), 0)
        self.assertEqual(array.tolist(), [[10, 1, 12, 3], [14, 5, 16, 7], [18, 9, 20, 11]])
        flags = ctypes.c_uint64()
        back = self.c.around(table, ctypes.py_object(view), ctypes.byref(flags))
        self.assertIs(type(back), StridedMemoryView)
        self.assertEqual((back.ptr, back.shape, back.strides, back.dtype, flags.value),
                         (view.ptr, (3, 2), (4, 2), np.dtype("f4"), 0))
        array.flags.writeable = False
        base = hoist.Buffer("u8", (16,))
        closed = hoist.Buffer("u8", (16,))
        over_closed = StridedMemoryView.from_buffer(closed, (16,), "u8")
        closed.close()
        for wrong, kind in ((StridedMemoryView(array, stream_ptr=-1), BufferError), (3, TypeError),
                            (StridedMemoryView(), BufferError),
                            (StridedMemoryView.from_buffer(base, (4,), itemsize=4), BufferError),
                            (over_closed, ValueError)):
            with self.subTest(wrong=wrong):
                self.assertRaises(kind, self.c.around, table, ctypes.py_object(wrong), ctypes.byref(flags))
                self.assertRaises(kind, self.c.add, table, ctypes.py_object(wrong), ctypes.c_float(1))
        dropped = ctypes.c_int()
        self.assertRaises(BufferError, self.c.refuse, table, ctypes.byref(dropped))
        self.assertEqual(dropped.value, 1)

    def test_the_older_name(self):
        for cls in (hoist.Buffer, driver.Buffer, StridedMemoryView):
            self.assertIs(cls.__c_dlpack_exchange_api__, cls.__dlpack_c_exchange_api__)

    def test_refusals(self):
        closed = hoist.Buffer("f32", (2, 2))
        closed.close()
        for wrong, kind in ((closed, ValueError), (3, TypeError), (np.ones(2), TypeError)):
            with self.subTest(wrong=type(wrong)):
                self.assertRaises(kind, self.around, wrong)
                self.assertRaises(kind, self.c.add, self.table, ctypes.py_object(wrong), ctypes.c_float(1))
        self.assertRaises(BufferError, self.around, hoist.Buffer("q8_0", (32,)))
        dropped = ctypes.c_int()
        self.assertRaises(BufferError, self.c.refuse, self.table, ctypes.byref(dropped))
        self.assertEqual(dropped.value, 1)

    def test_allocating(self):
        text = ctypes.create_string_buffer(200)

        def make(*arguments):
            made = ctypes.py_object()
            failed = self.c.make(self.table, *arguments, text, ctypes.byref(made))
            if failed:
                return None
            value = made.value
            ctypes.pythonapi.Py_DecRef(made)  # the reference that the call gave
            return value
        for place, spec in ((1, "cpu"), (2, "cuda:0"), (10, "hip:0")):
            made = make(place, ctypes.c_int64(7), 32)
            self.assertEqual((made.shape, made.dtype, made.device.spec), ((7,), "f32", spec))
            made.fill(2.0)
        self.assertIsNone(make(1, ctypes.c_int64(1 << 50), 64))
        self.assertTrue(text.value.startswith(b"MemoryError: "), text.value)
        self.assertIsNone(make(8, ctypes.c_int64(1), 32))
        self.assertTrue(text.value.startswith(b"BufferError: "), text.value)

    def test_streams(self):
        found = ctypes.c_void_p(5)
        self.assertEqual(self.c.stream(self.table, 1, 0, ctypes.byref(found)), 0)
        self.assertIsNone(found.value)
        self.assertEqual(self.c.stream(self.table, 2, 1, ctypes.byref(found)), 0)
        self.assertEqual(found.value or 0, hoist.Device("cuda:1").default_stream.native)
        self.assertRaises(RuntimeError, self.c.stream, self.table, 2, 99, ctypes.byref(found))


if __name__ == "__main__":
    unittest.main()
