# SPDX-License-Identifier: MIT
"""DLPack: read-only memory never becomes writable, and the types that NumPy lacks."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import hoist
from hoist import core
import files
from vectors import GPUS

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

REGISTERS = hasattr(getattr(np, "dtypes", None), "register_dlpack_dtype")
NUMPY_HEEDS = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1)
# ml_dtypes' name, hoist's, and the pattern of 1.0.
TYPES = [("bfloat16", "bf16", b"\x80\x3f"), ("float8_e4m3fn", "f8_e4m3fn", b"\x38"),
         ("float8_e4m3fnuz", "f8_e4m3fnuz", b"\x40"), ("float8_e5m2", "f8_e5m2", b"\x3c"),
         ("float8_e5m2fnuz", "f8_e5m2fnuz", b"\x40")]


class Consumer:
    """Asks as another library does, through an object of its own."""

    def __init__(self, buffer, **request):
        self._buffer, self._request = buffer, request

    def __dlpack_device__(self):
        return self._buffer.__dlpack_device__()

    def __dlpack__(self, **_):
        return self._buffer.__dlpack__(**self._request)


AS_TORCH = [{"max_version": (1, 0)}, {"max_version": (1, 0), "stream": None},
            {"max_version": (1, 0), "copy": False}, {"max_version": (1, 0), "dl_device": (1, 0)},
            {"max_version": (1, 0), "dl_device": (1, 0), "copy": False}, {},
            {"max_version": (1, 0), "dl_device": None, "copy": None, "read_only": False}]
AS_NUMPY = [{"max_version": (1, 0), "dl_device": None, "copy": None},
            {"max_version": (1, 0), "dl_device": (1, 0), "copy": None},
            {"max_version": (1, 0), "dl_device": None, "copy": False},
            {"max_version": (1, 0), "read_only": True}]


def read_only_buffers(folder):
    """(kind, buffer): each way by which memory is read-only."""
    path = os.path.join(folder, "model.safetensors")
    files.write(path, {n: s for n, s in files.MODEL.items() if n != "big"})
    yield "a view", hoist.Buffer("f32", (3, 2), zero=True).read_only()
    frozen = hoist.Buffer("f32", (3, 2), zero=True)
    frozen.freeze()
    yield "frozen", frozen
    yield "bytes", hoist.Buffer.from_buffer(bytes(16))
    yield "a map", hoist.load_all(path, io="map", map="readonly")["ids"]
    yield "pages of a file", hoist.Buffer.mmap(path, "u8", (64,), "readonly", alias=True)
    yield "part of a map", hoist.load_all(path, io="map", map="readonly")["layers.0.q"][1:, ::2]


class ReadOnly(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.buffers = list(read_only_buffers(folder.name))

    def test_consumers_that_may_write_are_refused(self):
        for kind, buffer in self.buffers:
            for request in AS_TORCH:
                with self.subTest(kind=kind, request=request):
                    with self.assertRaisesRegex(BufferError, "read-only.*"):
                        buffer.__dlpack__(**request)
        with self.assertRaisesRegex(BufferError, r"copy\(\)"):
            buffer.__dlpack__(max_version=(1, 0))

    def test_consumers_that_heed_it_get_it_without_a_copy(self):
        for kind, buffer in self.buffers:
            for request in AS_NUMPY:
                with self.subTest(kind=kind, request=request):
                    back = hoist.from_dlpack(Consumer(buffer, **request))
                    self.assertTrue(back.is_read_only)
                    self.assertEqual((back.address, back.shape), (buffer.address, buffer.shape))
            with self.subTest(kind=kind):
                self.assertEqual(hoist.from_dlpack(buffer).address, buffer.address)
                if NUMPY_HEEDS:
                    array = np.from_dlpack(buffer)
                    self.assertFalse(array.flags.writeable)
                    self.assertEqual(array.ctypes.data, buffer.address)
                    for arguments in ({"device": "cpu"}, {"copy": False}):
                        array = np.from_dlpack(buffer, **arguments)
                        self.assertFalse(array.flags.writeable)
                        self.assertEqual(array.ctypes.data, buffer.address)

    def test_copies_are_given_to_all(self):
        for kind, buffer in self.buffers:
            for request in AS_TORCH:
                with self.subTest(kind=kind, request=request):
                    back = hoist.from_dlpack(Consumer(buffer, **{**request, "copy": True}))
                    self.assertFalse(back.is_read_only)
                    self.assertEqual(back.tobytes(), buffer.tobytes())
                    self.assertNotEqual(back.address, buffer.address)
        for spec in GPUS:
            there = hoist.from_dlpack(Consumer(buffer, max_version=(1, 0), copy=None, dl_device=(
                hoist.Buffer("u8", (1,), spec).__dlpack_device__())))
            self.assertFalse(there.is_read_only)
            self.assertEqual(there.to("cpu").tobytes(), buffer.tobytes())

    def test_what_can_be_written_to_is_given_to_all(self):
        buffer = hoist.Buffer("f32", (3, 2), zero=True)
        for request in AS_TORCH + AS_NUMPY:
            with self.subTest(request=request):
                back = hoist.from_dlpack(Consumer(buffer, **request))
                self.assertEqual((back.address, back.is_read_only), (buffer.address, False))

    def test_views_of_cuda_core(self):
        base = hoist.Buffer("f32", (3, 2), zero=True)
        for view in (core.StridedMemoryView.from_buffer(base, (3, 2), "f32", True),
                     core.StridedMemoryView(base.read_only(), -1)):
            self.assertTrue(view.readonly)
            self.assertRaisesRegex(BufferError, "read-only", view.__dlpack__, max_version=(1, 0))
            self.assertTrue(hoist.from_dlpack(view).is_read_only)

    def test_malformed_requests(self):
        buffer = hoist.Buffer("f32", (3, 2), zero=True)
        for request, kind in (({"max_version": [1, 0]}, TypeError), ({"max_version": 1}, TypeError),
                              ({"max_version": ("1", 0)}, TypeError), ({"dl_device": 3}, TypeError),
                              ({"dl_device": (1,), "copy": None}, IndexError),
                              ({"dl_device": ("a", 0)}, TypeError), ({"other": 1}, TypeError)):
            with self.subTest(request=request), self.assertRaises(kind):
                buffer.__dlpack__(**request)

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "torch is not installed")
    def test_torch(self):
        """In a process of its own: a write would be a signal."""
        program = """if True:
            import sys, torch, hoist, hoist.torch
            path = sys.argv[1]
            read_only = hoist.Buffer.mmap(path, "u8", (64,), "readonly", alias=True)
            for make in (torch.from_dlpack, torch.utils.dlpack.from_dlpack, hoist.torch.tensor):
                try:
                    make(read_only)[0] = 1
                    sys.exit(3)
                except BufferError as error:
                    assert "read-only" in str(error), error
            tensor = torch.from_dlpack(hoist.Buffer.mmap(path, "u8", (64,)))
            tensor[0] = 77
            if hasattr(torch, "float8_e4m3fn"):
                for arguments in ({"copy": False}, {"device": "cpu"}, {"device": "cpu", "copy": False}):
                    try:
                        torch.from_dlpack(read_only, **arguments)[0] = 1
                        sys.exit(4)
                    except BufferError:
                        pass
                torch.from_dlpack(read_only, copy=True)[0] = 1
            """
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(64))
            file.flush()
            run = subprocess.run([sys.executable, "-c", program, file.name], capture_output=True,
                                 text=True, check=False)
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            file.seek(0)
            self.assertEqual(file.read(), bytes(64))


@unittest.skipIf(ml_dtypes is None, "ml_dtypes is not installed")
class MlDtypes(unittest.TestCase):
    def array(self, name, shape):
        return np.ones(shape, getattr(ml_dtypes, name))

    def test_arrays_come_in_without_a_copy(self):
        for name, own, one in TYPES:
            for shape in ((), (3,), (4, 6)):
                array = self.array(name, shape)
                for make in (hoist.from_dlpack, hoist.Buffer.from_buffer, hoist.Buffer.from_dlpack,
                             hoist.numpy.as_buffer):
                    with self.subTest(name=name, shape=shape, make=make):
                        buffer = make(array)
                        self.assertEqual((buffer.dtype, buffer.shape, buffer.address),
                                         (own, shape, array.ctypes.data))
                        self.assertEqual(buffer.tobytes(), one * array.size)
                view = core.StridedMemoryView.from_any_interface(array, -1)
                self.assertEqual((view.ptr, view.shape, view.dtype), (array.ctypes.data, shape, array.dtype))
            part = hoist.from_dlpack(array[::-1, ::2])
            self.assertEqual((part.strides, part.dtype), ((-6, 2), own))
            copied = hoist.from_dlpack(array, copy=True)
            self.assertNotEqual(copied.address, array.ctypes.data)
            array.flags.writeable = False
            self.assertTrue(hoist.Buffer.from_buffer(array).is_read_only)

    def test_other_arrays_are_refused_as_before(self):
        for array in (np.zeros(3, "V2"), np.zeros(2, "U3"), np.zeros(2, "O"), np.zeros(2, ml_dtypes.int4)):
            with self.subTest(dtype=array.dtype):
                self.assertRaises((TypeError, ValueError, BufferError), hoist.from_dlpack, array)
                self.assertRaises((TypeError, ValueError, BufferError), hoist.Buffer.from_buffer, array)

    def test_numpy_takes_them(self):
        for name, own, _ in TYPES:
            buffer = hoist.Buffer(own, (2, 3), zero=True)
            with self.subTest(name=name):
                self.assertEqual(np.asarray(buffer).dtype, np.dtype(getattr(ml_dtypes, name)))
                if not REGISTERS:
                    continue
                array = np.from_dlpack(buffer)
                self.assertEqual((array.dtype, array.ctypes.data),
                                 (np.dtype(getattr(ml_dtypes, name)), buffer.address))
                self.assertFalse(np.from_dlpack(buffer.read_only()).flags.writeable)
        if not REGISTERS:
            self.skipTest(f"NumPy {np.__version__} has no register_dlpack_dtype()")

    @unittest.skipUnless(REGISTERS, f"NumPy {np.__version__} has no register_dlpack_dtype()")
    def test_numpy_is_told_when_it_is_first_needed(self):
        for first in ("np.from_dlpack(buffer)", "hoist.numpy.asarray(buffer)", "np.asarray(buffer)"):
            # Another package may have registered a type already, by this dtype or another.
            for before in ("", "import ml_dtypes; np.dtypes.register_dlpack_dtype((4, 16), np.dtype("
                           "ml_dtypes.bfloat16))", "np.dtypes.register_dlpack_dtype((12, 8), np.dtype('V1'))"):
                program = (f"import hoist, sys\nassert 'numpy' not in sys.modules\nimport numpy as np\n{before}\n"
                           f"buffer = hoist.Buffer('bf16', (2,), zero=True)\n{first}\n"
                           "assert hoist.from_dlpack(np.from_dlpack(buffer)).address == buffer.address\n")
                with self.subTest(first=first, before=before):
                    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                                         check=False)
                    self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_exports_import_neither_package(self):
        program = ("import hoist, sys\nhoist.Buffer('bf16', (2,)).__dlpack__(max_version=(1, 0))\n"
                   "assert not {'numpy', 'ml_dtypes'} & set(sys.modules)")
        subprocess.run([sys.executable, "-c", program], check=True)


if __name__ == "__main__":
    unittest.main()
