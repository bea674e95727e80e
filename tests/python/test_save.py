# SPDX-License-Identifier: MIT
"""Saves: from every kind of tensor, failures, interruption, cleaning up."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
import weakref

import numpy as np

import files
import hoist

try:
    import torch
except ImportError:
    torch = None

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hoist-python-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "model.safetensors")

    def loaded(self, path=None, verify=False):
        """{name: (dtype, shape, bytes)} of a file."""
        return {name: (b.dtype, b.shape, b.tobytes())
                for name, b in hoist.load_all(path or self.path, verify=verify).items()}


class Only:
    """An object that has one protocol of another's, and no more."""

    def __init__(self, of, *names):
        self.of = of
        for name in names:
            setattr(self, name, getattr(of, name))


class OnlyDLPack(Only):
    def __dlpack__(self, **options):
        return self.of.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.of.__dlpack_device__()


class OnlyCAI:
    """Memory of a device, described by the CUDA Array Interface."""

    def __init__(self, buffer, **fields):
        self.buffer = buffer
        self.fields = fields

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.buffer.shape, "typestr": "<f4", "data": (self.buffer.address, False),
                "version": 3, **self.fields}


def array(*shape, dtype="f"):
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


def read_only(of):
    of.flags.writeable = False
    return of


def on_device(of, device):
    return hoist.from_dlpack(of).to(device)


def sources():
    """(what, tensor, dtype, shape, bytes)"""
    a = array(4, 6)
    records = np.zeros(5, dtype=[("a", "u1"), ("b", "<f4")])
    records["b"] = range(5)
    yield "an array", a, "f32", (4, 6), a.tobytes()
    yield "a transposed array", a.T, "f32", (6, 4), a.T.tobytes()
    yield "steps backwards", a[::-1, ::-2], "f32", (4, 3), a[::-1, ::-2].tobytes()
    yield "a broadcast array", np.broadcast_to(a[0], (3, 6)), "f32", (3, 6), 3 * a[0].tobytes()
    yield "a read-only array", read_only(a.copy()), "f32", (4, 6), a.tobytes()
    yield "the other byte order", a.astype(">f4"), "f32", (4, 6), a.tobytes()
    yield "a field of records", records["b"], "f32", (5,), array(5).tobytes()
    yield "a number", np.float16(2.5), "f16", (), np.float16(2.5).tobytes()
    yield "nothing", np.zeros((0, 3)), "f64", (0, 3), b""
    for name in ("bool", "int8", "uint16", "int64", "uint64", "float64", "complex64"):
        one = array(7, dtype="u1").astype(name)
        yield name, one, hoist._hoist.dtype_from_numpy(name), (7,), one.tobytes()
    yield "bytes", b"abc", "u8", (3,), b"abc"
    yield "a bytearray", bytearray(b"abc"), "u8", (3,), b"abc"
    yield "a memoryview", memoryview(a)[1:3], "f32", (2, 6), a[1:3].tobytes()
    yield "a Buffer", hoist.from_dlpack(a), "f32", (4, 6), a.tobytes()
    yield "a Buffer's part", hoist.from_dlpack(a)[::2, 1], "f32", (2,), a[::2, 1].tobytes()
    yield "DLPack", OnlyDLPack(a), "f32", (4, 6), a.tobytes()
    for device in ("cuda:0", "hip:0"):
        yield device, on_device(a, device), "f32", (4, 6), a.tobytes()
        yield device + ", a part", on_device(a, device)[1:, ::3], "f32", (3, 2), a[1:, ::3].tobytes()
    yield "CUDA Array Interface", OnlyCAI(on_device(a, "cuda:0")), "f32", (4, 6), a.tobytes()
    yield ("CUDA Array Interface with strides", OnlyCAI(on_device(a, "cuda:0"), shape=(6, 4),
                                                        strides=(4, 24)),
           "f32", (6, 4), a.T.tobytes())
    if ml_dtypes is not None:
        for name, dtype in (("bfloat16", "bf16"), ("float8_e4m3fn", "f8_e4m3fn")):
            one = array(3, 4).astype(getattr(ml_dtypes, name))
            yield name, one, dtype, (3, 4), one.tobytes()
            yield name + " transposed", one.T, dtype, (4, 3), one.T.tobytes()


def tensors_of_torch():
    t = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    yield "a tensor", t, "f32", (3, 4), t.numpy().tobytes()
    yield "transposed", t.t(), "f32", (4, 3), t.t().contiguous().numpy().tobytes()
    yield "expanded", t[:1].expand(2, 4), "f32", (2, 4), 2 * t[0].numpy().tobytes()
    yield "a parameter", torch.nn.Parameter(t), "f32", (3, 4), t.numpy().tobytes()
    yield "bf16", t.to(torch.bfloat16), "bf16", (3, 4), t.numpy().view("u2")[:, 1::2].tobytes()
    yield "bool", t > 5, "bool", (3, 4), (t > 5).numpy().tobytes()
    yield "bool transposed", (t > 5).t(), "bool", (4, 3), (t > 5).numpy().T.tobytes()
    yield "a number", torch.tensor(True), "bool", (), b"\1"
    yield "empty", torch.zeros((0, 2)), "f32", (0, 2), b""
    z = torch.tensor([1 + 2j], dtype=torch.complex64)
    yield "a conjugate", z.conj(), "c64", (1,), np.array([1 - 2j], "c8").tobytes()
    for name, dtype in (("float8_e4m3fn", "f8_e4m3fn"), ("float8_e5m2", "f8_e5m2")):
        if hasattr(torch, name):
            one = t.to(getattr(torch, name))
            yield name, one, dtype, (3, 4), one.view(torch.uint8).numpy().tobytes()


class Sources(WithFolder):
    def check(self, table):
        table = list(table)
        want = {what: (dtype, shape, content) for what, _, dtype, shape, content in table}
        with hoist.save({what: tensor for what, tensor, *_ in table}, self.path, digest=True):
            del table
            gc.collect()
        got = self.loaded(verify=True)
        self.assertEqual(list(got), list(want))
        for what in want:
            with self.subTest(what):
                self.assertEqual(got[what], want[what])

    def test_every_kind(self):
        self.check(sources())

    @unittest.skipIf(torch is None, "no torch")
    def test_torch(self):
        self.check(tensors_of_torch())

    def test_refused(self):
        table = [("an int", 1, TypeError, "DLPack"), ("a list", [1.0], TypeError, "DLPack"),
                 ("text", np.array(["a"]), TypeError, "NumPy's <U1"),
                 ("objects", np.array([None]), TypeError, "NumPy's object"),
                 ("a mask", OnlyCAI(hoist.Buffer("f32", (2,), "cuda:0"), mask=1), TypeError, "mask"),
                 ("a strange CAI", OnlyCAI(hoist.Buffer("f32", (2,), "cuda:0"), typestr="<V16"),
                  hoist.errors.UnsupportedError, "V16"),
                 ("c128", np.zeros(1, "c16"), hoist.errors.InvalidError, "safetensors has no dtype c128")]
        closed = hoist.Buffer("f32", (2,))
        closed.close()
        table.append(("a closed Buffer", closed, hoist.errors.ClosedError, "closed"))
        if torch is not None:
            table += [("sparse", torch.ones(2, 2).to_sparse(), TypeError, "sparse"),
                      ("meta", torch.ones(2, device="meta"), TypeError, "meta"),
                      ("quantised", torch.quantize_per_tensor(torch.ones(2), 1, 0, torch.qint8),
                       TypeError, "qint8")]
        for what, tensor, error, text in table:
            with self.subTest(what), self.assertRaisesRegex(error, text):
                hoist.save({"name": tensor}, self.path)
        for what, tensors, options, error in (
                ("a name that is no str", {1: array(1)}, {}, TypeError),
                ("a list of tensors", [array(1)], {}, TypeError),
                ("metadata", {"a": array(1)}, {"metadata": {"k": 1}}, TypeError),
                ("a format", {"a": array(1)}, {"format": "zip"}, ValueError),
                ("io", {"a": array(1)}, {"io": "map"}, ValueError),
                ("a size", {"a": array(1)}, {"shard_bytes": "x"}, ValueError)):
            with self.subTest(what), self.assertRaises(error):
                hoist.save(tensors, self.path, **options)
        self.assertEqual(os.listdir(self.folder), [])

    def test_tied_tensors_are_written_each(self):
        a = array(5)
        hoist.numpy.save_file({"a": a, "b": a, "c": a[1:3]}, self.path)
        self.assertEqual({n: v[2] for n, v in self.loaded().items()},
                         {"a": a.tobytes(), "b": a.tobytes(), "c": a[1:3].tobytes()})

    def test_a_checkpoint_is_converted(self):
        blobs = files.write(self.path, {"x": ("F32", (10, 3)), "y": ("F16", (4,))}, {"k": "v"})
        out = os.path.join(self.folder, "out.gguf")
        with hoist.open(self.path) as model, hoist.save(model, out, metadata={"more": "text"}) as save:
            self.assertEqual(save.format, "gguf")
        self.assertEqual({n: v[2] for n, v in self.loaded(out).items()}, blobs)
        with hoist.open(out) as model:
            self.assertEqual((model.metadata["k"], model.metadata["more"]), ("v", "text"))


class Files(WithFolder):
    def test_a_folder_and_shards(self):
        out = os.path.join(self.folder, "out/")
        tensors = {f"t{i}": np.full((64, 1024), i, "f") for i in range(8)}
        hoist.numpy.save_file(tensors, out, shard_bytes="512K", metadata={"format": "pt"})
        self.assertIn("model.safetensors.index.json", os.listdir(out))
        with hoist.open(out) as model:
            self.assertEqual((len(model.files), model.metadata["format"]), (4, "pt"))
        got = hoist.numpy.load_file(out)
        for name, value in tensors.items():
            np.testing.assert_array_equal(got[name], value)
        hoist.numpy.save_file({"one": array(3)}, out)
        self.assertEqual(os.listdir(out), ["model.safetensors"])

    def test_a_folder_of_a_failed_save_goes(self):
        out = os.path.join(self.folder, "out/")
        self.assertRaises(TypeError, hoist.save, {"a": 1}, out)
        self.assertRaises(hoist.errors.InvalidError, hoist.save, {"a": np.zeros(1, "c16")}, out)
        self.assertRaises(FileNotFoundError, hoist.save, {"a": array(1)},
                          os.path.join(self.folder, "no/out/"))
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_failed_save_leaves_the_old_file(self):
        hoist.numpy.save_file({"old": array(2)}, self.path)
        with open(self.path, "rb") as file:
            before = file.read()
        self.assertRaises(FileExistsError, hoist.save, {"a": array(2)}, self.path, replace=False)
        self.assertRaises(hoist.errors.OutOfMemoryError, hoist.numpy.save_file,
                          {"a": array(9)[::2]}, self.path, budget=1)
        save = hoist.save({"a": array(9)[::2]}, self.path, budget=Held(self).budget)
        save.cancel()
        self.assertRaises(hoist.errors.CancelledError, save.wait)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(os.listdir(self.folder), ["model.safetensors"])

    def test_report_and_progress(self):
        told = []
        save = hoist.save({"a": array(300000)}, self.path,
                          progress=lambda done, total: told.append((done, total)))
        self.assertTrue(save.wait())
        self.assertTrue(save.wait(0))
        bytes_ = os.path.getsize(self.path)
        self.assertEqual(told[-1], (bytes_, bytes_))
        self.assertEqual(save.progress(), (bytes_, bytes_))
        report = save.report()
        self.assertEqual((report["bytes"], report["n_tensors"], report["n_files"]), (bytes_, 1, 1))
        self.assertIn("saved", repr(save))

    @unittest.skipIf(torch is None, "no torch")
    def test_torch_files_say_so(self):
        hoist.torch.save_file({"a": torch.ones(2)}, self.path, digest=True)
        with hoist.open(self.path) as model:
            self.assertEqual(model.metadata["format"], "pt")
        self.assertTrue(torch.equal(hoist.torch.load_file(self.path, verify=True)["a"], torch.ones(2)))
        hoist.torch.save_file({"a": torch.ones(2)}, os.path.join(self.folder, "a.npy"))


class Held:
    """A budget that is used up: a save with it waits.  A load whose window is full keeps its slots."""

    def __init__(self, test):
        self.folder = tempfile.TemporaryDirectory(prefix="hoist-python-")
        path = os.path.join(self.folder.name, "x.safetensors")
        files.write(path, {f"t{i}": ("U8", (4 << 20,)) for i in range(4)})
        self.budget = hoist.Budget("4M")
        self.load = hoist.load(path, "cuda:0", budget=self.budget, window="5M")
        self.kept = next(self.load)
        while self.budget.used < 4 << 20:
            time.sleep(0.001)
        test.addCleanup(self.drop)

    def drop(self):
        self.kept = None
        self.load.close()
        self.folder.cleanup()


SLEEPER = """
import hoist, sys, os, signal, test_save
signal.signal(signal.SIGINT, signal.default_int_handler)
class Test:
    def addCleanup(self, call): pass
held = test_save.Held(Test())
save = hoist.save({"a": bytearray(1 << 20)}, sys.argv[1], budget=held.budget, io="cached",
                  engine="threads", format="safetensors")
if sys.argv[2] == "wait":
    print("waiting", flush=True)
    save.wait()
elif sys.argv[2] == "fork":
    child = os.fork()
    if child == 0:
        try:
            save.wait()
        except hoist.Error as error:
            os._exit(7 if not isinstance(error, hoist.errors.CancelledError) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert not save.wait(0.01)
"""


class Ending(WithFolder):
    def waiting(self, **options):
        """(a save that waits for memory, what makes it go on)"""
        held = Held(self)
        return hoist.save({"a": array(1 << 18)[::2]}, self.path, budget=held.budget, **options), held

    def nothing_is_left(self):
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_timeout(self):
        save, held = self.waiting()
        self.assertFalse(save.wait(0))
        self.assertFalse(save.wait(0.02))
        self.assertIn("running", repr(save))
        held.drop()
        self.assertTrue(save.wait(60))
        self.assertEqual(self.loaded()["a"][2], array(1 << 18)[::2].tobytes())

    def test_cancel(self):
        save, _ = self.waiting()
        save.cancel()
        for _ in range(2):
            self.assertRaises(hoist.errors.CancelledError, save.wait)
        save.close()
        save.close()
        self.nothing_is_left()

    def test_an_exception_leaves_the_block(self):
        save, _ = self.waiting()
        with self.assertRaises(ZeroDivisionError), save:
            raise ZeroDivisionError
        self.assertRaises(hoist.errors.CancelledError, save.wait)
        self.nothing_is_left()

    def test_ctrl_c(self):
        save, _ = self.waiting()
        files.interrupted(self, save.wait)
        self.assertRaises(hoist.errors.CancelledError, save.wait)
        self.nothing_is_left()

    def test_ctrl_c_in_another_process(self):
        child = subprocess.Popen([sys.executable, "-c", SLEEPER, self.path, "wait"],
                                 cwd=os.path.dirname(__file__), stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "waiting\n")
        child.send_signal(signal.SIGINT)
        err = child.communicate(timeout=60)[1]
        self.assertIn("KeyboardInterrupt", err)
        self.nothing_is_left()

    def test_exit_and_fork(self):
        for how, path in ("exit", self.path), ("exit", self.path + "/"), ("fork", self.path), \
                ("fork", self.path + "/"):
            with self.subTest(how, path=path):
                subprocess.run([sys.executable, "-c", SLEEPER, path, how], check=True, timeout=60,
                               cwd=os.path.dirname(__file__))
                self.nothing_is_left()

    def test_dropped(self):
        save, _ = self.waiting()
        with self.assertWarnsRegex(ResourceWarning, "wait()"):
            del save
            gc.collect()
        self.nothing_is_left()

    def test_progress_that_fails(self):
        save, held = self.waiting(progress=lambda done, total: 1 // 0)
        held.drop()
        self.assertRaises(ZeroDivisionError, save.wait)

    def test_await(self):
        async def run():
            save, held = self.waiting()
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(save._wait_async(), 0.05)
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    ticks += 1
                    if ticks == 3:
                        held.drop()
                    await asyncio.sleep(0.001)

            other = asyncio.ensure_future(tick())
            self.assertIs(await save, save)
            other.cancel()
            self.assertGreaterEqual(ticks, 3)

        asyncio.run(run())
        self.assertEqual(self.loaded()["a"][1], (1 << 17,))

    def test_threads_wait_for_one_save(self):
        save, held = self.waiting()
        got = []
        threads = [threading.Thread(target=lambda: got.append(save.wait(60))) for _ in range(4)]
        for thread in threads:
            thread.start()
        held.drop()
        for thread in threads:
            thread.join()
        self.assertEqual(got, [True] * 4)

    def test_sources_are_kept_and_dropped(self):
        class Array(np.ndarray):
            pass

        a = array(1 << 18).view(Array)[::2]
        known = weakref.ref(a)
        held = Held(self)
        save = hoist.save({"a": a, "b": memoryview(bytearray(9))}, self.path, budget=held.budget)
        del a
        gc.collect()
        self.assertIsNotNone(known())
        held.drop()
        save.wait()
        self.assertIsNone(known())
        self.assertEqual(save.report()["n_tensors"], 2)

    def test_a_source_that_refers_to_its_save_is_collected(self):
        class Bytes(bytearray):
            pass

        a = Bytes(1 << 18)
        known = weakref.ref(a)
        save, held = self.waiting()
        a.save = hoist.save({"a": a}, self.path + ".2", budget=held.budget)
        del a
        with self.assertWarnsRegex(ResourceWarning, "wait()"):
            gc.collect()
        self.assertIsNone(known())
        save.cancel()
        self.assertRaises(hoist.errors.CancelledError, save.wait)
        self.nothing_is_left()

    def test_a_buffer_that_is_closed_meanwhile(self):
        held = Held(self)
        buffer = hoist.from_dlpack(array(1 << 18)).copy()[::2]
        save = hoist.save({"a": buffer}, self.path, budget=held.budget)
        buffer.close()
        held.drop()
        save.wait()
        self.assertEqual(self.loaded()["a"][2], array(1 << 18)[::2].tobytes())

    def test_descriptors_stay_flat(self):
        def once():
            with hoist.save({"a": array(100)}, self.path):
                pass
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                hoist.save({"a": array(100)}, self.path)
            try:
                hoist.save({"a": array(3), "b": 1}, self.path)
            except TypeError:
                pass

        once()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            once()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)


if __name__ == "__main__":
    unittest.main()
