# SPDX-License-Identifier: MIT
"""The specification's vectors of StridedMemoryView and of the Rust Buffer: V200 to V225."""

import os
import sys
import tempfile

import numpy as np

import hoist
from hoist import core
from hoist.core import StridedLayout, StridedMemoryView
from vectors import ALL, GPUS, vectors

Views, vector = vectors("Vectors_views")

ARRAYS = [np.arange(3, dtype="i4"), np.arange(36, dtype="f8").reshape(6, 6)[::2, ::2],
          np.ones((3, 4), "f4", order="F"), np.array(1, "f2"), np.frombuffer(b"12345678", "i4")]


def check(t, view, array):
    t.assertEqual((view.ptr, view.shape, view.size, view.dtype),
                  (array.ctypes.data, array.shape, array.size, array.dtype))
    want = None if array.flags.c_contiguous else tuple(s // array.itemsize for s in array.strides)
    t.assertEqual((view.strides, view.device_id, view.is_device_accessible, view.readonly),
                  (want, -1, False, not array.flags.writeable))
    t.assertIs(view.exporting_obj, array)


@vector("V200")
def numpy_arrays(t):
    for array in ARRAYS:
        check(t, StridedMemoryView(array, stream_ptr=-1), array)
        check(t, StridedMemoryView.from_array_interface(array), array)
        t.assertIn("StridedMemoryView(", repr(StridedMemoryView(array, -1)))


@vector("V201")
def a_decorator(t):
    @core.args_viewable_as_strided_memory((1,))
    def function(n, array):
        return n, array.view(-1)

    for array in ARRAYS:
        n, view = function(5, array)
        t.assertEqual(n, 5)
        check(t, view, array)
    t.assertRaises(RuntimeError, function, 1, object())


@vector("V202", on=GPUS)
def arrays_of_a_device(t, spec):
    b = hoist.Buffer("f32", (3, 4), spec)

    class ByCai:
        __cuda_array_interface__ = b.__cuda_array_interface__

    views = [StridedMemoryView(b, -1)]
    if spec[0] == "c":
        views.append(StridedMemoryView(ByCai(), -1))
    for view in views:
        t.assertEqual((view.ptr, view.shape, view.size, view.dtype, view.device_id,
                       view.is_device_accessible), (b.address, (3, 4), 12, np.float32, 0, True))


@vector("V203", on=ALL)
def views_of_buffers(t, spec):
    mr = core.DeviceMemoryResource(hoist.Device(spec)) if spec != "cpu" else None
    for shape in ((), (2, 3), (10, 10), (10, 13, 11)):
        for itemsize in (1, 4):
            for order in ("C", "F"):
                for readonly in (False, True):
                    layout = StridedLayout.dense(shape, itemsize, order)
                    n = layout.required_size_in_bytes()
                    t.assertEqual(n, layout.volume * itemsize)
                    b = mr.allocate(n) if mr else hoist.Buffer("u8", (n,))
                    view = StridedMemoryView.from_buffer(b, layout, is_readonly=readonly)
                    t.assertEqual((view.ptr, view.dtype, view.readonly),
                                  (b.handle if mr else b.address, None, readonly))
                    t.assertIs(view.layout, layout)
                    t.assertIs(view.exporting_obj, b)


@vector("V204", on=ALL)
def a_short_buffer(t, spec):
    with t.assertRaisesRegex(ValueError, "at least 40 bytes, got 20"):
        StridedMemoryView.from_buffer(hoist.Buffer("u8", (20,), spec),
                                      StridedLayout.dense((5, 4), 2))


@vector("V205")
def sliced_views(t):
    for order, offset, stride in (("C", 52, 1), ("F", 28, 5)):
        array = np.zeros((5, 6), "i4", order=order)
        view = StridedMemoryView(array, -1)
        part = view.view(view.layout[2, 1:-1])
        t.assertEqual((part.ptr - view.ptr, part.shape, part.strides, part.dtype),
                      (offset, (4,), (stride,), array.dtype))


@vector("V208")
def views_do_not_leak(t):
    array = np.ones(5, "i4")
    before = sys.getrefcount(array)
    for _ in range(10):
        StridedMemoryView(array, -1)
    t.assertEqual(sys.getrefcount(array), before)


@vector("V209", on=GPUS)
def views_want_a_stream(t, spec):
    t.assertRaises(BufferError, StridedMemoryView, np.ones(3))
    t.assertRaises(BufferError, StridedMemoryView, hoist.Buffer("f32", (3,), spec))
    t.assertRaises(RuntimeError, StridedMemoryView, object(), -1)


@vector("V210")
def the_same_view(t):
    view = StridedMemoryView(np.ones(3, "i4"), -1)
    t.assertIs(view.view(), view)
    t.assertEqual(view.view(dtype="f32").dtype, np.float32)
    t.assertRaises(ValueError, view.view, None, "f64")


# --- the Rust Buffer ---

@vector("V211", on=ALL)
def lazy(t, spec):
    b = hoist.Buffer("f32", (10,), spec, lazy=True)
    t.assertFalse(b.is_allocated)
    b.allocate()
    t.assertTrue(b.is_allocated)


@vector("V212", on=ALL)
def a_window(t, spec):
    b = hoist.Buffer("f32", (10,), spec, zero=True)
    view = b.view("f32", (4,), offset=4)
    t.assertEqual((view.offset, view.nbytes, view.shape, view.storage_nbytes >= 40),
                  (4, 16, (4,), True))
    t.assertEqual((view.storage_id, view.id == b.id), (b.storage_id, False))


def managed(spec):
    return hoist._hoist.Memory("managed", spec).alloc(40).view("f32")


@vector("V214", on=GPUS)
def unified_memory(t, spec):
    b = managed(spec)
    data = np.arange(10, dtype="f4")
    b.copy_from(hoist.Buffer.from_buffer(data))
    t.assertEqual(b.tobytes(), data.tobytes())
    t.assertEqual(np.asarray(b).tolist(), data.tolist())


@vector("V215", on=GPUS)
def unified_and_device(t, spec):
    data = np.arange(10, dtype="f4")
    source = hoist.Buffer.from_buffer(data).to(spec)
    for one, two in ((source, managed(spec)), (managed(spec), source), (managed(spec),
                                                                        managed(spec))):
        one.copy_from(hoist.Buffer.from_buffer(data))
        two.copy_from(one)
        t.assertEqual(two.tobytes(), data.tobytes())


@vector("V216", on=ALL)
def zeros(t, spec):
    t.assertEqual(hoist.Buffer("f32", (100,), spec, zero=True).tobytes(), bytes(400))


@vector("V217", on=ALL)
def blocks_are_used_again(t, spec):
    b = hoist.Buffer("u8", (64,), spec)
    address, storage = b.address, b.storage_id
    del b
    b = hoist.Buffer("f32", (4, 4), spec)
    t.assertEqual((b.address, b.dtype, b.shape, b.nbytes), (address, "f32", (4, 4), 64))
    t.assertNotEqual(b.storage_id, storage)


@vector("V219", on=ALL)
def blocks_that_are_used_again_are_zero(t, spec):
    b = hoist.Buffer("u8", (64,), spec)
    b.fill(7)
    address = b.address
    del b
    b = hoist.Buffer("u8", (64,), spec, zero=True)
    t.assertEqual((b.address, b.tobytes()), (address, bytes(64)))


@vector("V222")
def files(t):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data")
        with open(path, "wb") as file:
            file.write(bytes(range(40)))
        b = hoist.Buffer.mmap(path, "f32", (10,), "r", alias=True)
        with memoryview(b) as view:
            t.assertEqual((view.format, view.readonly, bytes(view)), ("f", True, bytes(range(40))))
        with t.assertRaises(BufferError):
            b.copy_from(hoist.Buffer("f32", (10,)))
        with t.assertRaises(BufferError):
            b[0] = 1


@vector("V222")
def another_type(t):
    b = hoist.Buffer("f32", (3,), zero=True)
    with t.assertRaisesRegex(ValueError, "i4 of float32"):
        b.__array__("i4", copy=False)
    t.assertEqual(b.__array__("i4").dtype, np.dtype("i4"))


@vector("V222", on=GPUS)
def the_cpu_cannot_touch_it(t, spec):
    b = hoist.Buffer("f32", (3,), spec, zero=True)
    with t.assertRaisesRegex(BufferError, "device memory"):
        memoryview(b)
    with t.assertRaisesRegex(TypeError, "device memory"):
        b.__array__()
    t.assertEqual(b.tobytes(), bytes(12))


@vector("V223", on=ALL)
def nothing_panics(t, spec):
    t.assertRaises(ValueError, hoist.Buffer("f32", (2,), spec).item)
    b = hoist.Buffer("f32", (2,), spec, lazy=True, zero=True)
    t.assertEqual(b.address, 0)
    t.assertEqual(b.tobytes(), bytes(8))


@vector("V225", on=ALL)
def one_object_for_a_device(t, spec):
    t.assertIs(hoist.Device(spec), hoist.Device(spec))
    t.assertEqual(hoist.Device("cpu").label, "cpu")
    t.assertIs(hoist.Buffer("f32", (2,), spec).device, hoist.Device(spec))
