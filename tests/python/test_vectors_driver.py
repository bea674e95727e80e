# SPDX-License-Identifier: MIT
"""The specification's vectors of max.driver.Buffer: V001 to V105."""

import ctypes
import threading
import time

import numpy as np

import hoist
from hoist import driver as d
from hoist.driver import DType
import consumer
from vectors import ALL, GPUS, run_alone, vectors

try:
    import torch
except ImportError:
    torch = None

Driver, vector = vectors("Vectors_driver")

NATIVE = [x for x in DType if x is DType.bool or x.size_in_bits >= 8 and
          x.name.rstrip("0123456789") in ("int", "uint", "float")]


def on(spec):
    return hoist.Device(spec)


def filled(array, spec="cpu"):
    return d.Buffer.from_numpy(np.array(array)).to(on(spec))


def values(buffer):
    return buffer.to(d.CPU()).to_numpy().tolist() if buffer.is_contiguous else \
        buffer.copy(d.CPU()).to_numpy().tolist()


def one_element(dtype, value):
    """Its bytes."""
    b = d.Buffer.zeros((1,), dtype)
    b[0] = value
    return b.tobytes()


def need_torch(t):
    if torch is None:
        t.skipTest("torch is not installed")


@vector("V001", on=ALL)
def dtype_shape_and_rank(t, spec):
    b = d.Buffer(DType.float32, (3, 4, 5), on(spec))
    t.assertEqual((b.dtype, str(b.dtype), b.shape, b.rank),
                  (DType.float32, "DType.float32", (3, 4, 5), 3))


@vector("V002", on=ALL)
def the_shape_is_copied(t, spec):
    shape = [2, 3]
    b = d.Buffer(DType.float32, shape, on(spec))
    shape[0] = 1
    t.assertEqual(b.shape, (2, 3))


@vector("V003", on=ALL)
def every_dtype_can_be_allocated(t, spec):
    for dtype in DType:
        b = d.Buffer(shape=[2], dtype=dtype, device=on(spec))
        t.assertEqual((b.dtype, b.shape), (dtype, (2,)))


@vector("V004", on=ALL)
def an_element(t, spec):
    b = d.Buffer(DType.int32, (3, 4, 5), on(spec))
    b[0, 1, 3] = 68
    e = b[0, 1, 3]
    t.assertEqual((e.rank, e.shape, e.dtype, e.item()), (0, (), DType.int32, 68))


@vector("V005", on=ALL)
def negative_indices(t, spec):
    b = d.Buffer(DType.int32, (3, 4, 5), on(spec))
    b[0, 1, 3] = 68
    b[-1, -1, -1] = 72
    at = (2, 3, 4)
    t.assertEqual((b[2, 3, 4].item(), b[at].item(), b[0, 1, 3].item()), (72, 72, 68))


@vector("V006", on=ALL)
def outside_an_axis(t, spec):
    b = d.Buffer(DType.int32, (3, 4, 5), on(spec))
    with t.assertRaises(IndexError):
        b[5, 2, 2] = 1


@vector("V007", on=ALL)
def below_an_axis(t, spec):
    b = d.Buffer(DType.int32, (3, 4, 5), on(spec))
    with t.assertRaises(IndexError):
        b[-4, -3, -3] = 1


@vector("V008", on=ALL)
def too_few_indices(t, spec):
    b = d.Buffer(DType.int32, (3, 4, 5), on(spec))
    with t.assertRaises(ValueError):
        b[2, 2] = 1


@vector("V010", on=ALL)
def item_of_many(t, spec):
    t.assertRaises(ValueError, d.Buffer(DType.int32, (3, 4, 5), on(spec)).item)


@vector("V011", on=ALL)
def a_slice_aliases(t, spec):
    b = d.Buffer(DType.int32, (3, 3, 3), on(spec))
    part = b[:2, :2, :2]
    part[0, 0, 0] = 25
    t.assertEqual((part.shape, b[0, 0, 0].item()), ((2, 2, 2), 25))


@vector("V012", on=ALL)
def a_slice_of_a_slice(t, spec):
    b = d.Buffer(DType.int32, (3, 3, 3), on(spec))
    part = b[:2, :2, :2]
    part[:1, :1, :1][0, 0, 0] = 37
    t.assertEqual((part[0, 0, 0].item(), b[0, 0, 0].item()), (37, 37))


@vector("V013", on=ALL)
def steps(t, spec):
    b = d.Buffer(DType.int32, (3, 3, 3), on(spec))
    part = b[1::2, 1::2, 1::2]
    part[0, 0, 0] = 256
    t.assertEqual((part.shape, b[1, 1, 1].item()), ((1, 1, 1), 256))


@vector("V015", on=ALL)
def an_axis_is_dropped(t, spec):
    b = d.Buffer(DType.int32, (5, 5, 5), on(spec))
    part = b[:, 2, :]
    t.assertEqual(part.shape, (5, 5))
    for i in range(4):
        part[i, i] = i
    part[-1, -1] = 4
    t.assertEqual([b[i, 2, i].item() for i in range(5)], [0, 1, 2, 3, 4])


@vector("V016", on=ALL)
def reversed_axes(t, spec):
    b = filled(np.arange(1, 10, dtype="i4").reshape(3, 3), spec)[::-1, ::-1]
    t.assertEqual([b[i, j].item() for i in range(3) for j in range(3)], list(range(9, 0, -1)))


@vector("V017", on=ALL)
def bounds_are_clipped(t, spec):
    t.assertEqual(d.Buffer(DType.int32, (3, 3, 3), on(spec))[4:, :2, 8:10:-1].shape, (0, 2, 0))


@vector("V019", on=ALL)
def one_axis(t, spec):
    b = d.Buffer(DType.int32, (10,), on(spec))
    for i in range(10):
        b[i] = i
    t.assertEqual([b[i].item() for i in range(10)], list(range(10)))


@vector("V020", on=ALL)
def a_new_one_is_contiguous(t, spec):
    t.assertIs(d.Buffer(DType.int32, (3, 3), on(spec)).is_contiguous, True)


@vector("V021", on=ALL)
def a_block_is_not(t, spec):
    t.assertIs(d.Buffer(DType.int32, (3, 3), on(spec))[:2, :2].is_contiguous, False)


@vector("V023", on=ALL)
def contiguous_copies(t, spec):
    c = filled(np.arange(1, 10, dtype="i4").reshape(3, 3), spec)[:2, :2].contiguous()
    t.assertEqual((c.shape, c.is_contiguous, values(c)), ((2, 2), True, [[1, 2], [4, 5]]))


@vector("V024", on=ALL)
def a_contiguous_copy_is_apart(t, spec):
    b = filled(np.ones((3, 3), "i4"), spec)
    c = b.contiguous()
    b[0, 0], c[1, 1] = 5, 6
    t.assertEqual((c[0, 0].item(), b[1, 1].item()), (1, 1))


@vector("V025", on=ALL)
def a_row(t, spec):
    row = filled(np.zeros((2, 3), "i4"), spec)[0, :]
    t.assertEqual((row.shape, row.is_contiguous), ((3,), True))


@vector("V027", on=ALL)
def a_range(t, spec):
    part = d.Buffer(DType.int32, (10,), on(spec))[2:5]
    t.assertEqual((part.shape, part.is_contiguous), ((3,), True))


@vector("V028")
def from_numpy(t):
    b = d.Buffer.from_numpy(np.array([[1, 2, 3], [4, 5, 6]], "i4"))
    t.assertEqual((b.shape, b.dtype, values(b)), ((2, 3), DType.int32, [[1, 2, 3], [4, 5, 6]]))


@vector("V029")
def from_numpy_rank_0(t):
    t.assertEqual(d.Buffer.from_numpy(np.array(1, "f4")).shape, ())


@vector("V030")
def the_cpu_is_host(t):
    t.assertIs(d.Buffer(DType.int32, (3,)).is_host, True)


@vector("V031")
def to_where_it_is(t):
    b = d.Buffer(DType.int32, (3,))
    t.assertIs(b.to(d.CPU()), b)
    many = b.to([d.CPU()])
    t.assertEqual(len(many), 1)
    t.assertIs(many[0], b)


@vector("V032", on=ALL)
def copies_are_deep(t, spec):
    b = filled(np.array([1, 2, 3], "i4"), spec)
    c = b.copy(on(spec))
    on(spec).synchronize()
    b[0] = 0
    t.assertEqual((values(c), values(b.copy())), ([1, 2, 3], [0, 2, 3]))


@vector("V033")
def pinned(t):
    t.assertIs(d.Buffer(DType.int32, (3,)).pinned, False)
    t.assertIs(d.Buffer(DType.int32, (3,), pinned=True).pinned, True)
    t.assertEqual(d.Buffer(DType.int32, (3,), usage=d.Usage.STAGING).usage, d.Usage.STAGING)


@vector("V034", on=GPUS)
def copies_are_not_pinned(t, spec):
    there = d.Buffer(DType.int32, (3,)).to(on(spec))
    t.assertEqual((there.pinned, there.to(d.CPU()).pinned), (False, False))


@vector("V035")
def from_dlpack_aliases(t):
    for dtype in NATIVE:
        array = np.array([0, 1, 2, 3]).astype(dtype.to_numpy())
        b = d.Buffer.from_dlpack(array)
        t.assertEqual((b.dtype, b.shape), (dtype, (4,)))
        b[0] = True if dtype is DType.bool else 7
        t.assertEqual(array[0], True if dtype is DType.bool else 7)


@vector("V036", on=ALL)
def from_dlpack_of_a_buffer(t, spec):
    b = d.Buffer(DType.int32, (2, 3), on(spec))
    t.assertIs(d.Buffer.from_dlpack(b), b)
    c = d.Buffer.from_dlpack(b, copy=True)
    t.assertIsNot(c, b)
    t.assertEqual((c.dtype, c.shape), (b.dtype, b.shape))


@vector("V038")
def to_numpy_is_writable(t):
    t.assertTrue(d.Buffer(DType.int32, (20, 10)).to_numpy().flags.writeable)


@vector("V039")
def dlpack_device_of_the_cpu(t):
    got = d.Buffer(DType.int32, (3,)).__dlpack_device__()
    t.assertEqual((got, [type(x) for x in got]), ((1, 0), [int, int]))


@vector("V040")
def numpy_takes_the_capsule(t):
    for dtype in NATIVE:
        if dtype is DType.bool:
            continue
        b = d.Buffer.zeros((1, 4), dtype)
        array = np.from_dlpack(b)
        b[0, 1] = 7
        t.assertEqual((array.dtype, array.shape, array[0, 1]), (dtype.to_numpy(), (1, 4), 7))


@vector("V041")
def torch_and_back(t):
    need_torch(t)
    tensor = torch.arange(1, 11, dtype=torch.int32).reshape(2, 5)
    back = torch.from_dlpack(d.Buffer.from_dlpack(tensor))
    t.assertTrue(torch.equal(back, tensor))
    b = d.Buffer.from_dlpack(torch.tensor([True, False, True, True]))
    t.assertEqual((b.dtype, values(b)), (DType.bool, [True, False, True, True]))


@vector("V042", on=ALL)
def doubles_as_bf16(t, spec):
    b = d.Buffer(DType.bfloat16, (1,), on(spec))
    biggest = (2 - 2**-7) * 2.0**127
    b[0] = float("nan")
    t.assertNotEqual(b[0].item(), b[0].item())
    for value in (1e300, -1e300, 3.4e38):
        b[0] = value
        t.assertIn(abs(b[0].item()), (biggest, float("inf")))
    for value in np.random.default_rng(1).normal(size=50):
        b[0] = value
        t.assertLessEqual(abs(b[0].item() - value), abs(value) * 2**-7)


@vector("V043", on=ALL)
def bf16_reads_exactly(t, spec):
    b = d.Buffer(DType.bfloat16, (3,), on(spec))
    for i, value in enumerate((1.5, -0.0078125, 3.0 * 2.0**100)):
        b[i] = value
        t.assertEqual(b[i].item(), value)


@vector("V044")
def to_numpy_of_from_numpy(t):
    t.assertEqual(d.Buffer.from_numpy(np.array([1, 2, 3, 4, 5])).to_numpy().tolist(),
                  [1, 2, 3, 4, 5])


@vector("V045", on=ALL)
def zeros(t, spec):
    t.assertEqual(values(d.Buffer.zeros((3, 3), DType.int32, on(spec))), [[0] * 3] * 3)


@vector("V046", on=ALL)
def scalar(t, spec):
    s = d.Buffer.scalar(5, DType.int32, on(spec))
    t.assertEqual(s.item(), 5)
    s[0] = 8
    t.assertEqual(s.item(), 8)


@vector("V055", on=ALL)
def num_elements(t, spec):
    for shape, n in (((2, 4, 3), 24), ((1, 4), 4), ((), 1), ((1, 1, 1, 1, 1), 1)):
        t.assertEqual(d.Buffer(DType.int32, shape, on(spec)).num_elements, n)


@vector("V056", on=ALL)
def element_size(t, spec):
    for dtype in NATIVE:
        t.assertEqual(d.Buffer(dtype, (), on(spec)).element_size, dtype.to_numpy().itemsize)


@vector("V057", on=ALL)
def view_with_a_shape(t, spec):
    b = filled([[10 * i + j for j in range(6)] for i in range(2)], spec).to(d.CPU())
    b = d.Buffer.from_numpy(b.to_numpy().astype("i1")).to(on(spec)).view(DType.int8, (6, 2))
    t.assertEqual([b[i].item() for i in ((0, 0), (1, 0), (3, 1), (5, 1))], [0, 2, 11, 15])


@vector("V058", on=ALL)
def view_without_a_shape(t, spec):
    b = filled(np.ones((2, 4), "i1"), spec).view(DType.int16)
    t.assertEqual((b.shape, values(b)), ((2, 2), [[257] * 2] * 2))


@vector("V060", on=ALL)
def a_view_writes_through(t, spec):
    b = filled(np.ones((2, 4), "i1"), spec)
    b.view(DType.int16)[0, 0] = 0
    t.assertEqual(values(b), [[0, 0, 1, 1], [1, 1, 1, 1]])


@vector("V062")
def from_dlpack_wants_c_order(t):
    with t.assertRaisesRegex(ValueError, "contiguous"):
        d.Buffer.from_dlpack(np.ones((2, 2)).T)


@vector("V063")
def from_dlpack_of_torch_wants_c_order(t):
    need_torch(t)
    t.assertRaises(ValueError, d.Buffer.from_dlpack, torch.ones(3, 4).T)


@vector("V064", on=ALL)
def item_of_any_rank(t, spec):
    for rank in range(4):
        b = d.Buffer(DType.float32, (1,) * rank, on(spec))
        b[(0,) * rank] = 3.14
        t.assertAlmostEqual(b.item(), 3.14, 5)


@vector("V065", on=ALL)
def item_says_how_many(t, spec):
    with t.assertRaisesRegex(ValueError, "2"):
        d.Buffer(DType.int32, (2,), on(spec)).item()


@vector("V066", on=ALL)
def aligned(t, spec):
    b = d.Buffer(DType.int32, (5,), on(spec))
    byte = b.view(DType.uint8)[1]
    t.assertEqual((b._aligned(), b._aligned(4), byte._aligned(1), byte._aligned(4)),
                  (True, True, True, False))


@vector("V068", on=ALL)
def inplace_copy_wants_a_contiguous_source(t, spec):
    dst = d.Buffer(DType.int32, (3, 3), on(spec))
    with t.assertRaises(ValueError):
        dst.inplace_copy_from(d.Buffer(DType.int32, (3, 10, 3), on(spec))[:, 0, :])


@vector("V069", on=ALL)
def inplace_copy_wants_one_count(t, spec):
    dst = d.Buffer(DType.int32, (3, 3), on(spec))
    with t.assertRaises(ValueError):
        dst.inplace_copy_from(d.Buffer(DType.int32, (3, 2), on(spec)))


@vector("V070", on=ALL)
def inplace_copy_wants_one_dtype(t, spec):
    dst = d.Buffer(DType.int32, (2, 3), on(spec))
    with t.assertRaises(ValueError):
        dst.inplace_copy_from(d.Buffer(DType.int16, (2, 3), on(spec)))


@vector("V071", on=ALL)
def inplace_copy_of_itself(t, spec):
    part = filled(np.arange(100, dtype="i4").reshape(10, 10), spec)[:3, :3]
    part.inplace_copy_from(part)
    t.assertEqual(part[2, 2].item(), 22)


@vector("V074", on=ALL)
def one_element_to_numpy(t, spec):
    array = d.Buffer.zeros([2], DType.uint32, on(spec))[1].to_numpy()
    t.assertEqual((array.shape, int(array)), ((), 0))


@vector("V075", on=ALL)
def rows_to_numpy(t, spec):
    b = filled(np.arange(10).reshape(2, 5), spec)
    t.assertEqual((b[0:1, :].to_numpy().tolist(), b[1:2, :].to_numpy().tolist()),
                  ([[0, 1, 2, 3, 4]], [[5, 6, 7, 8, 9]]))


@vector("V076", on=ALL)
def parts_to_numpy(t, spec):
    array = np.arange(20).reshape(4, 5)
    b = filled(array, spec)
    parts = [(slice(i, i + 1), slice(j, j + 1)) for i in range(4) for j in range(5)]
    for part in [*parts, (slice(-1, None), slice(None)), (slice(-2, -1), slice(None))]:
        np.testing.assert_array_equal(b[part].to_numpy(), array[part])


@vector("V078", on=ALL)
def texts(t, spec):
    text = repr(d.Buffer.zeros((3, 4), DType.float32, on(spec)))
    t.assertTrue(text.startswith("max.driver.Buffer("))
    t.assertTrue("float32" in text and "(3, 4)" in text and "[" not in text)
    text = str(d.Buffer.scalar(5, DType.int32, on(spec)))
    t.assertTrue("5" in text and "dtype=DType.int32" in text and "shape=()" in text)


@vector("V079", on=ALL)
def long_texts(t, spec):
    text = str(d.Buffer.zeros((100000,), DType.int32, on(spec)))
    t.assertTrue("..." in text and "shape=(100000,)" in text)
    b = d.Buffer(DType.bfloat16, (3,), on(spec))
    for i in range(3):
        b[i] = i + 1
    t.assertRegex(str(b), r"1.*2.*3")


@vector("V080")
def copy_is_not_for_torch(t):
    need_torch(t)
    t.assertRaises(ValueError, lambda: d.Buffer.from_dlpack(torch.ones(2), copy=False))


@vector("V082", on=ALL)
def a_view_of_rank_0(t, spec):
    t.assertRaises(IndexError, d.Buffer.scalar(5, DType.int32, on(spec)).view, DType.uint8)


@vector("V083", on=GPUS)
def contiguous_is_on_the_cpu(t, spec):
    t.assertIs(d.Buffer(DType.int32, (3,), on(spec)).contiguous().device, d.CPU())


@vector("V084", on=GPUS)
def there_and_back(t, spec):
    back = filled(np.array([1, 2, 3], "i4")).copy(on(spec)).copy(d.CPU())
    t.assertEqual((values(back), back.dtype), ([1, 2, 3], DType.int32))


@vector("V085", on=GPUS)
def a_copy_on_the_device(t, spec):
    b = filled(np.array([1, 2, 3], "i4"), spec)
    c = b.copy(on(spec))
    b[0] = 9
    on(spec).synchronize()
    t.assertEqual((values(c), c.device), ([1, 2, 3], on(spec)))


@vector("V086", on=GPUS)
def devices_of_buffers(t, spec):
    host = d.Buffer(DType.int32, (3,))
    t.assertEqual(host.to(on(spec)).device, on(spec))
    t.assertEqual(host.device, d.CPU())
    t.assertNotEqual(d.CPU(), on(spec))


@vector("V087", on=GPUS)
def an_accelerator_is_not_host(t, spec):
    t.assertIs(d.Buffer(DType.int32, (3,), on(spec)).is_host, False)


@vector("V088", on=GPUS)
def dlpack_device(t, spec):
    t.assertEqual(d.Buffer(DType.int32, (3,), on(spec)).__dlpack_device__(),
                  (2 if spec[0] == "c" else 10, 0))


@vector("V089", on=GPUS)
def dlpack_device_of_pinned(t, spec):
    t.assertEqual(d.Buffer(DType.int32, (3,), on(spec), pinned=True).__dlpack_device__(),
                  (3 if spec[0] == "c" else 11, 0))


@vector("V090", on=GPUS)
def memory_of_a_device_and_back(t, spec):
    """The consumer is C, with the driver's own copies: torch for the CPU takes no tensors of devices."""
    c, driver, kind = consumer.library(), consumer.Driver(spec), 2 if spec == "cuda:0" else 10
    table, n_dropped = consumer.table_of(d.Buffer), c.dropped()
    codes = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}
    for dtype in (*NATIVE, DType.bfloat16):
        seven, five = (one_element(dtype, value) for value in (7, 5))
        there = d.Buffer.zeros((1, 4), dtype, on(spec))
        t.assertEqual(c.write_first(table, ctypes.py_object(there), seven, ctypes.c_size_t(len(seven)),
                                    consumer.WRITE(driver.write)), 0)
        t.assertEqual(there[0, 0].to(d.CPU()).item(), 7 if dtype is not DType.bool else True)
        address = driver.allocate(4 * len(seven))
        code = codes[dtype.name.rstrip("0123456789")]
        lent = c.lend(table, ctypes.c_uint64(address), kind, code, 8 * len(seven))
        t.assertEqual((lent.shape, lent.device.spec, lent.address), ((1, 4), spec, address))
        driver.write(address, seven, len(seven))
        t.assertEqual(lent[0, 0].to("cpu").item(), 7 if dtype is not DType.bool else True)
        lent[0, 0] = 5
        lent.device.synchronize()
        t.assertEqual(driver.read(address, len(five)), five)
        del lent
        n_dropped += 1
        t.assertEqual(c.dropped(), n_dropped)
        driver.free(address)


@vector("V091", on=GPUS)
def a_scalar_there(t, spec):
    s = d.Buffer.scalar(5, DType.int32, device=on(spec))
    t.assertEqual((s.device, s.to(d.CPU()).item()), (on(spec), 5))


@vector("V092", on=GPUS)
def pinned_zeros(t, spec):
    b = d.DevicePinnedBuffer.zeros((2, 1), DType.int32, on(spec))
    t.assertEqual((b.pinned, b[0, 0].item()), (True, 0))
    b[1, 0] = 42
    t.assertEqual(b[1, 0].item(), 42)


@vector("V093", on=ALL)
def to_numpy_in_place(t, spec):
    b = d.Buffer(DType.int32, (4,), on(spec), pinned=spec != "cpu")
    array = b.to_numpy()
    t.assertFalse(array.flags.owndata)
    array[:] = [1, 2, 4, 8]
    t.assertEqual(b.to_numpy().tolist(), [1, 2, 4, 8])


@vector("V094", on=GPUS)
def inplace_copy_of_views(t, spec):
    array = np.arange(30, dtype="i4").reshape(5, 2, 3)
    host = filled(np.zeros((5, 2, 3), "i4"))
    host[1, :, :].inplace_copy_from(filled(array, spec)[3, :, :])
    np.testing.assert_array_equal(host.to_numpy()[1], array[3])
    t.assertEqual(int(host.to_numpy().sum()), int(array[3].sum()))


@vector("V096")
def pinned_for_the_cpu(t):
    for make in (lambda: d.DevicePinnedBuffer(DType.float32, [10], d.CPU()),
                 lambda: d.DevicePinnedBuffer.zeros([10], DType.float32, d.CPU())):
        with t.assertRaisesRegex(ValueError, "requires a non-host device"):
            make()


@vector("V097", on=GPUS)
def views_stay_pinned(t, spec):
    b = d.DevicePinnedBuffer(DType.float32, (4, 6), on(spec))
    for view in (b[:2], b[1:3, :], b.view(DType.uint8)):
        t.assertIsInstance(view, d.DevicePinnedBuffer)
        t.assertTrue(view.pinned)


@vector("V099")
def to_several(t):
    devices = [d.CPU(), on("cuda:0"), on("cuda:1"), on("hip:0")]
    b = filled(np.array([1, 2], "i4"), "cuda:0")
    all_of_them = b.to(devices)
    t.assertEqual([x.device for x in all_of_them], devices)
    t.assertIs(all_of_them[1], b)
    t.assertEqual([values(x) for x in all_of_them], [[1, 2]] * 4)


# The tests' own process has two devices of CUDA's, and one of HIP's.
@vector("V100")
def peer_access_is_symmetric(t):
    for api in ("cuda", "hip"):
        run_alone(t, f"""
a, b = hoist.Device("{api}:0"), hoist.Device("{api}:1")
assert a.can_access(b) is b.can_access(a) is True
""", f"{api}:2")


def gated(t, device, queue, read, want):
    """`read` does not return while what `queue` queued waits for a flag, and then returns `want`."""
    flag = d.CompletionFlag(device)
    stream = device.default_stream
    stream.wait_for_host_value(flag, 1)
    queue()
    got = []
    reader = threading.Thread(target=lambda: got.append(read()))
    reader.start()
    time.sleep(0.05)
    t.assertEqual(got, [])
    flag.signal(1)
    reader.join(30)
    t.assertEqual(got, [want])
    t.assertEqual(flag.load(), 1)


@vector("V101", on=GPUS)
def to_numpy_waits(t, spec):
    dst, src = filled(np.zeros(3, "i4"), spec), filled(np.array([1, 2, 3], "i4"), spec)
    gated(t, on(spec), lambda: dst.inplace_copy_from(src), lambda: dst.to_numpy().tolist(),
          [1, 2, 3])


@vector("V102", on=GPUS)
def item_of_pinned_waits(t, spec):
    dst = d.DevicePinnedBuffer.zeros((1,), DType.int32, on(spec))
    src = filled(np.array([7], "i4"), spec)
    gated(t, on(spec), lambda: dst.inplace_copy_from(src), dst.item, 7)


@vector("V103")
def a_batch_for_two_devices(t):
    for api in ("cuda", "hip"):
        run_alone(t, f"""
a, b = (d.Buffer.zeros((2,), d.DType.int32, hoist.Device(spec)) for spec in ("{api}:0", "{api}:1"))
source = d.Buffer.zeros((2,), d.DType.int32)
source[0] = source[1] = 1
try:
    d.Buffer.batch_inplace_copy_from([a, b], [source, source])
    raise SystemExit("no error")
except ValueError as error:
    assert "same device" in str(error), error
assert a.tobytes() == b.tobytes() == bytes(8)
""", f"{api}:2")


@vector("V104", on=ALL)
def a_batch(t, spec):
    s, dst, x = (filled(np.full(3, i, "i4"), spec) for i in range(3))
    d.batch_inplace_copy([s, dst], [s, x])
    t.assertEqual((values(s), values(dst)), ([0] * 3, [2] * 3))


@vector("V105")
def the_limit_of_a_device(t):
    for emulate in ("cuda:1", "hip:1"):
        run_alone(t, """
gpu = d.Accelerator(0, device_memory_limit=100 << 20)
try:
    d.Buffer(d.DType.uint8, (101 << 20,), gpu)
    raise SystemExit("no error")
except ValueError as error:
    text = str(error)
    assert text.startswith("Memory manager cannot satisfy allocation"), text
    assert "requested 101MB" in text and "free 0B" in text, text
    assert isinstance(error, MemoryError)
""", emulate)
