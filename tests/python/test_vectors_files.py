# SPDX-License-Identifier: MIT
"""The specification's vectors of files, specs and virtual devices: V047 to V053, V106 to V130, V226."""

import json
import os
import struct
import tempfile

import numpy as np

import hoist
from hoist import driver as d
from hoist.driver import DeviceSpec, DType
from vectors import run_alone, vectors

Files, vector = vectors("Vectors_files")


def temporary(t, content=None):
    """A path; its folder goes with the test."""
    folder = tempfile.TemporaryDirectory()
    t.addCleanup(folder.cleanup)
    path = os.path.join(folder.name, "file")
    if content is not None:
        with open(path, "wb") as file:
            file.write(content)
    return path


def content_of(path):
    with open(path, "rb") as file:
        return file.read()


EIGHT = bytes(range(8))


@vector("V047")
def a_map(t):
    b = d.Buffer.mmap(temporary(t, EIGHT), DType.int8, (2, 4))
    t.assertEqual([b[i, j].item() for i in range(2) for j in range(4)], list(range(8)))


@vector("V048")
def a_map_with_an_offset(t):
    b = d.Buffer.mmap(temporary(t, EIGHT), DType.int8, (2, 3), mode="r", offset=2)
    t.assertEqual([b[i, j].item() for i in range(2) for j in range(3)], list(range(2, 8)))


@vector("V049")
def a_copy_is_written_to(t):
    path = temporary(t, EIGHT)
    copied, mapped = d.Buffer.mmap(path, DType.int8, (2, 4), "r"), d.Buffer.mmap(path, DType.int8,
                                                                                 (2, 4))
    copied[0, 0] = 9
    copied[0, 1] = 0
    t.assertEqual((copied[0, 0].item(), mapped[0, 1].item(), content_of(path)), (9, 1, EIGHT))


@vector("V052")
def numpy_takes_a_map(t):
    b = d.Buffer.mmap(temporary(t, EIGHT), DType.int8, (2, 4))
    array = np.from_dlpack(b)
    b[0, 0] = 50
    t.assertEqual((array.dtype, array.shape, array[0, 0]), (np.int8, (2, 4), 50))


@vector("V053")
def numpy_takes_a_view_of_a_map(t):
    b = d.Buffer.mmap(temporary(t, EIGHT), DType.int8, (2, 4))
    array = np.from_dlpack(b.view(DType.uint8))
    b[1, 1] = 99
    t.assertEqual((array.shape, array[1, 1]), ((2, 4), 99))


@vector("V106")
def all_of_four(t):
    run_alone(t, 'assert d.calculate_virtual_device_count_from_cli("gpu:all") == 4', "cuda:4")


@vector("V107")
def all_of_none(t):
    run_alone(t, 'assert d.calculate_virtual_device_count_from_cli("gpu:all") == 1')


@vector("V108")
def ids_in_a_text(t):
    t.assertEqual(d.calculate_virtual_device_count_from_cli("gpu:0,3"), 4)


@vector("V109")
def lists_and_words(t):
    for value, n in (([], 1), ([0, 1, 2], 3), ("gpu", 1), ("cpu", 1)):
        t.assertEqual(d.calculate_virtual_device_count_from_cli(value), n)
    t.assertRaises(ValueError, d.calculate_virtual_device_count_from_cli, "gpu:x")


@vector("V111")
def counts_of_specs(t):
    gpu, count = DeviceSpec.accelerator, d.calculate_virtual_device_count
    t.assertEqual((count([DeviceSpec.cpu(-1)]), count([gpu(0)]), count([gpu(0), gpu(3)], [gpu(5)]),
                   count()), (1, 1, 6, 1))


@vector("V112")
def specs(t):
    t.assertRaises(ValueError, DeviceSpec.accelerator, -1)
    t.assertEqual((DeviceSpec.cpu().id, DeviceSpec.cpu().device_type), (-1, "cpu"))
    t.assertEqual(DeviceSpec.accelerator().id, 0)
    t.assertEqual(len({DeviceSpec.cpu(), DeviceSpec(-1), DeviceSpec.accelerator()}), 2)
    with t.assertRaises(AttributeError):
        DeviceSpec.cpu().id = 3


@vector("V114")
def scans(t):
    run_alone(t, "assert d.scan_available_devices() == [d.DeviceSpec.cpu(-1)]")
    for emulate in ("cuda:2", "hip:2"):
        run_alone(t, "gpu = d.DeviceSpec.accelerator\n"
                     "assert d.scan_available_devices() == [gpu(0), gpu(1)]", emulate)


@vector("V115")
def devices_exist(t):
    run_alone(t, "s = d.DeviceSpec\nassert d.devices_exist([s.cpu(99)]) and d.devices_exist([])\n"
                 "assert not d.devices_exist([s.accelerator(0)])\n"
                 "try:\n d.load_devices([s.cpu(), s.accelerator(0)])\n raise SystemExit(1)\n"
                 "except ValueError as e: assert 'no devices were found' in str(e)")


@vector("V116")
def virtual_devices(t):
    for api in ("cuda", "hip"):
        arch = "sm_80" if api == "cuda" else "gfx942"
        run_alone(t, f"""
assert not d.is_virtual_device_mode() and d.get_virtual_device_api() == ""
d.set_virtual_device_api("{api}")
d.set_virtual_device_target_arch("{arch}")
d.set_virtual_device_count(2)
assert d.is_virtual_device_mode() and d.get_virtual_device_count() == 2
assert d.accelerator_count() == 2 and d.accelerator_api() == "{api}"
assert d.Accelerator(0).architecture_name == "{arch}" and d.Accelerator(1).id == 1
d.set_virtual_device_count(0)
assert d.accelerator_count() == 0 and not d.is_virtual_device_mode()
""")


MAGIC = bytes.fromhex("93f09f94a52b2b93")


def max_file(entries, magic=MAGIC):
    """(key, dtype, shape, bytes) of each entry, as MAX writes them."""
    size = sum(4 + len(key) + 2 + 4 * len(shape) + 8 for key, _, shape, _ in entries)
    at = 24 + size
    head, data = magic + struct.pack("<IIQ", 0, 1, size), b""
    for key, dtype, shape, content in entries:
        head += struct.pack("<I", len(key)) + key + bytes([dtype, len(shape)])
        head += struct.pack(f"<{len(shape)}IQ", *shape, at + len(data))
        data += content
    return head + data


ONE = max_file([(b"x", 81, (2, 3), np.arange(6, dtype="f4").tobytes())])


@vector("V117")
def a_max_file(t):
    t.assertEqual(len(ONE), 71)
    b = d.load_max_buffer(temporary(t, ONE))
    t.assertEqual((b.dtype, b.shape, b.to_numpy().tolist()),
                  (DType.float32, (2, 3), [[0, 1, 2], [3, 4, 5]]))


@vector("V118")
def no_max_file(t):
    for content in (b"\x92" + ONE[1:], MAGIC[:6]):
        t.assertRaises(ValueError, d.load_max_buffer, temporary(t, content))


@vector("V120")
def two_buffers_in_a_max_file(t):
    path = temporary(t, max_file([(b"x", 81, (1,), bytes(4)), (b"y", 81, (1,), bytes(4))]))
    t.assertRaises(ValueError, d.load_max_buffer, path)


@vector("V122")
def a_max_file_is_not_written(t):
    path = temporary(t, ONE)
    b = d.load_max_buffer(path)
    b[0, 0] = 100
    t.assertEqual((b[0, 0].item(), content_of(path)), (100, ONE))


@vector("V123")
def modes(t):
    with t.assertRaisesRegex(ValueError, "copyonwrite"):
        d.Buffer.mmap(temporary(t, EIGHT), DType.int8, (2,), mode="x")


@vector("V124")
def short_files(t):
    for mode in ("r", "c"):
        t.assertRaises(ValueError, d.Buffer.mmap, temporary(t, EIGHT), DType.int8, (16,), mode)


@vector("V126")
def a_new_file(t):
    path = temporary(t)
    d.Buffer.mmap(path, DType.int8, (4,), "w+")
    t.assertEqual(content_of(path), bytes(4))


@vector("V127")
def no_file(t):
    t.assertRaises(FileNotFoundError, d.Buffer.mmap, temporary(t), DType.int8, (4,), "r")


@vector("V129")
def nothing_of_a_file(t):
    t.assertEqual(d.Buffer.mmap(temporary(t, EIGHT), DType.int8, (0,)).num_elements, 0)
    t.assertRaises(ValueError, d.Buffer.mmap, temporary(t, b""), DType.int8, (0,))


@vector("V130")
def a_negative_offset(t):
    t.assertRaises(OverflowError, d.Buffer.mmap, temporary(t, EIGHT), DType.int8, (4,),
                   "c", -1)


@vector("V226")
def half_a_byte(t):
    head = json.dumps({"x": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}}).encode()
    head += b" " * (-len(head) % 8)
    path = temporary(t, struct.pack("<Q", len(head)) + head + bytes(2)) + ".safetensors"
    os.rename(path[:-len(".safetensors")], path)
    t.assertRaises(hoist.errors.FormatError, hoist.open, path)
