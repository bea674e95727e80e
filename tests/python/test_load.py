# SPDX-License-Identifier: MIT
"""Checkpoints and loads, against files that the tests write."""

import argparse
import asyncio
import errno
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import unittest
import unittest.mock
import zipfile

import numpy as np

import hoist
from hoist.load import load_as
import files


class WithModel(files.WithModel):
    metadata = {"made by": "a test", "é": "ü"}

    def check(self, got):
        self.assertEqual(set(got), set(self.bytes))
        for name, buffer in got.items():
            kind, shape = files.MODEL[name]
            with self.subTest(name=name):
                self.assertEqual((buffer.shape, buffer.dtype), (shape, files.NAMES[kind]))
                self.assertEqual(buffer.tobytes(), self.bytes[name])


class Owned:
    """A class that no other program has."""


class Checkpoints(WithModel):
    def test_model_in_hugging_face_cache(self):
        model = os.path.join(self.folder.name, "hub", "models--org--name")
        for part in "blobs", "refs", "snapshots/c0":
            os.makedirs(os.path.join(model, part))
        os.link(self.path, os.path.join(model, "blobs", "b0"))
        os.symlink("../../blobs/b0", os.path.join(model, "snapshots/c0/model.safetensors"))
        with open(os.path.join(model, "refs", "main"), "w", encoding="ascii") as ref:
            ref.write("c0")
        with unittest.mock.patch.dict(os.environ, HF_HUB_CACHE=os.path.dirname(model)):
            for path in "hf://org/name", "hf://org/name@c0", model:
                with hoist.open(path, follow_links=False) as ckpt:
                    self.assertEqual(list(ckpt), list(files.MODEL))
            with hoist.load("hf://org/name", tensors=["embed"]) as load:
                self.assertEqual(load["embed"].tobytes(), self.bytes["embed"])
            with self.assertRaisesRegex(FileNotFoundError, "it has c0"):
                hoist.open("hf://org/name@other")

    def test_keep_digests(self):
        with hoist.open(self.path) as ckpt:
            self.assertIsNone(ckpt.digest("embed"))
            self.assertRaises(TypeError, ckpt.keep_digests, window="1G")
            ckpt.keep_digests(io="cached", budget="1M")
        with hoist.open(self.path) as ckpt, hoist.load(ckpt, verify=True) as load:
            load.wait()
            for name in ckpt:
                self.assertEqual(load.digest(name), ckpt.digest(name))
        files.spoil_kept(self.path)
        self.addCleanup(os.unlink, self.path + ".xxh3")
        with self.assertRaisesRegex(hoist.errors.FormatError, "is damaged"):
            with hoist.load(self.path, verify=True) as load:
                load.wait()
        os.utime(self.path)
        with hoist.open(self.path) as ckpt:
            self.assertIsNone(ckpt.digest("embed"))

    def test_skip_unsupported(self):
        path = os.path.join(self.folder.name, "training.pt")
        saved = {"args": argparse.Namespace(lr=0.5), "seen": {1, 2}, "self": Owned(),
                 "step": np.int64(7)}
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("training/data.pkl", pickle.dumps(saved, 2))
        with self.assertRaisesRegex(hoist.errors.UnsupportedError, "--skip-unsupported"):
            hoist.open(path)
        with hoist.open(path, skip_unsupported=True) as ckpt:
            self.assertEqual(len(ckpt), 0)
            self.assertEqual(ckpt.metadata, {"args.lr": "0.5", "step": "7"})
            self.assertEqual([(s.name, s.file) for s in ckpt.skipped], [("seen", 0), ("self", 0)])
            self.assertIn('"Owned" of the Python module', ckpt.skipped[1].reason)
        with hoist.open(self.path, skip_unsupported=True) as ckpt:
            self.assertEqual((list(ckpt), ckpt.skipped), (list(files.MODEL), []))

    def test_mapping(self):
        with hoist.open(self.path) as ckpt:
            self.assertEqual(list(ckpt), list(files.MODEL))
            self.assertEqual(len(ckpt), len(files.MODEL))
            self.assertIn("embed", ckpt)
            self.assertNotIn("nothing", ckpt)
            self.assertNotIn(3, ckpt)
            t = ckpt["layers.0.k"]
            self.assertEqual((t.name, t.dtype, t.shape, t.nbytes, t.file, t.strides),
                             ("layers.0.k", "f16", (16, 64), 2048, 0, None))
            with open(self.path, "rb") as file:
                file.seek(t.offset)
                self.assertEqual(file.read(t.nbytes), self.bytes["layers.0.k"])
            self.assertRaises(KeyError, lambda: ckpt["nothing"])
            self.assertIsNone(ckpt.get("nothing"))
            self.assertEqual(list(ckpt.values()), [ckpt[name] for name in ckpt])
            self.assertEqual(dict(ckpt.items()), {name: ckpt[name] for name in ckpt})
            self.assertIn(t, ckpt.values())
            self.assertIn((t.name, t), ckpt.items())
            self.assertEqual(ckpt.metadata, {"made by": "a test", "é": "ü"})
            self.assertEqual(ckpt.files, ((self.path, os.path.getsize(self.path)),))
            self.assertEqual((ckpt.format, ckpt.nbytes),
                             ("safetensors", sum(map(len, self.bytes.values()))))
        self.assertTrue(ckpt.closed)
        self.assertRaisesRegex(hoist.errors.ClosedError, "was closed", len, ckpt)
        self.assertIn("closed", repr(ckpt))

    def test_errors(self):
        bad = os.path.join(self.folder.name, "bad.safetensors")
        with open(bad, "wb") as file:
            file.write(b"\xff" * 100)
        table = [("nothing.safetensors", FileNotFoundError), (bad, hoist.errors.FormatError),
                 (3.5, TypeError), ("a\0b", ValueError)]
        for path, kind in table:
            with self.subTest(path=path), self.assertRaises(kind):
                hoist.open(path)
        with hoist.open(self.path) as checkpoint:
            self.assertRaisesRegex(TypeError, "is a str", lambda: checkpoint[0])
            for option in ({"targets": [hoist.Target("cpu")]}, {"device": "cuda:0"}):
                self.assertRaisesRegex(TypeError, "host", hoist.numpy.load_file, checkpoint, **option)
        with self.assertRaises(FileNotFoundError) as caught:
            hoist.load("nothing.safetensors")
        self.assertEqual(caught.exception.errno, 2)
        self.assertIsInstance(hoist.errors.make(errno.EAGAIN, "later"), RuntimeError)
        self.assertIn("nothing.safetensors", str(caught.exception))


class Loads(WithModel):
    def test_all(self):
        for engine in ("auto", "threads"):
            for io in ("auto", "direct", "cached", "map", "adaptive"):
                self.check(hoist.load_all(self.path, engine=engine, io=io))
        self.check(hoist.load_all(self.path, budget="64M", digest=True))

    def test_as_they_come(self):
        with hoist.load(self.path) as load:
            self.check(dict(load))
            self.assertEqual(list(load), [])
            report = load.report()
            self.assertEqual(report["n_tensors"], len(files.MODEL))
            self.assertEqual(report["ns"], sum(report[stage + "_ns"] for stage in (
                "plan", "allocate", "caller", "read", "convert", "copy", "pages", "group", "budget", "work")))
            self.assertRegex(load.explain(), r"^\d\.\d{3} GB to cpu in .*: \d+ % .*; opened in \d\.\d{3} s$")
        self.assertTrue(load.closed)
        self.assertEqual(list(load), [])
        with hoist.load(self.path) as load:
            pass
        self.assertRaisesRegex(hoist.errors.ClosedError, "closed", next, load)

    def test_by_name_and_wait(self):
        with hoist.load(self.path) as load:
            self.assertEqual(load["ids"].tobytes(), self.bytes["ids"])
            self.assertTrue(load.wait())
            got = dict(load)
            self.assertEqual(set(got), set(self.bytes))
            self.assertRaises(KeyError, lambda: load["ids"])
        with hoist.load(self.path) as load:
            self.assertRaises(KeyError, lambda: load["nothing"])
            load.wait()
        self.assertRaises(hoist.errors.ClosedError, lambda: load["ids"])

    def test_threads_iterate_one_load(self):
        """Each tensor goes to one of them, and all of them end."""
        for _ in range(20):
            got = []
            with hoist.load(self.path) as load:
                threads = [threading.Thread(target=lambda: got.extend(load)) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(60)
                    self.assertFalse(thread.is_alive())
            self.check(dict(got))
            self.assertEqual(len(got), len(self.bytes))

    def test_the_collector_stays_as_it_was(self):
        seen = []
        with hoist.open(self.path) as checkpoint:
            def take(load, target, names):
                seen.append(gc.isenabled())
                return load._buffers(target, names)

            for is_on in (True, False):
                (gc.enable if is_on else gc.disable)()
                try:
                    self.check(load_as(take, checkpoint))
                    self.assertEqual(gc.isenabled(), is_on)
                    self.assertRaises(ZeroDivisionError, load_as, lambda *_: 1 // 0, checkpoint)
                    self.assertEqual(gc.isenabled(), is_on)
                finally:
                    gc.enable()
        self.assertEqual(seen, [False, False])

    def test_wait_is_timed(self):
        with hoist.load(self.path) as load:
            while not load.wait(0.0):
                pass
            self.check(dict(load))

    def test_window(self):
        """Tensors pass through a window, and a program that keeps them is told."""
        window = max(map(len, self.bytes.values())) + (1 << 16)
        with hoist.load(self.path, window=window) as load:
            n = 0
            for name, buffer in load:
                n += buffer.tobytes() == self.bytes[name]
                del buffer  # else the loop's variable holds it while the next one needs room
            self.assertEqual(n, len(self.bytes))
            self.assertLessEqual(load.report()["window_peak_bytes"], window)
        with hoist.load(self.path, window="64K") as load:
            with self.assertRaises(hoist.errors.WindowError):
                kept = dict(load)
                del kept

    def test_order(self):
        with hoist.load(self.path, order=["scale", "layers.*"]) as load:
            names = [name for name, _ in load if name != "empty"]
        self.assertEqual(names[0], "scale")
        self.assertEqual(sorted(names[1:4]), ["layers.0.k", "layers.0.q", "layers.1.q"])
        self.assertRaises(FileNotFoundError, hoist.load, self.path, order="nothing")

    def test_selection(self):
        got = hoist.load_all(self.path, tensors=["layers.*", "ids"], dtype="f32",
                             slices={"layers.*.q": (1, 1, 4), "ids": (0, slice(10, 20))})
        self.assertEqual(set(got), {"layers.0.q", "layers.0.k", "layers.1.q", "ids"})
        whole = np.frombuffer(self.bytes["layers.0.q"], "f").reshape(64, 64)
        np.testing.assert_array_equal(np.asarray(got["layers.0.q"]), whole[:, 16:32])
        ids = np.frombuffer(self.bytes["ids"], "q")
        np.testing.assert_array_equal(np.asarray(got["ids"]), ids[10:20])
        halves = np.frombuffer(self.bytes["layers.0.k"], "e").astype("f").reshape(16, 64)
        np.testing.assert_array_equal(np.asarray(got["layers.0.k"]), halves)

    def test_wrong_options(self):
        table = [
            ({"io": "fast"}, ValueError, "io is one of"), ({"engine": "x"}, ValueError, "engine"),
            ({"tensors": ["no.*"]}, FileNotFoundError, "no"), ({"window": "2X"}, ValueError, "size"),
            ({"slices": {"ids": (0, 1, 0)}}, ValueError, "ranks"), ({"dtype": "i8"}, ValueError, ""),
            ({"slices": {"ids": (0, slice(0, 9, 2))}}, ValueError, "step"), ({"window": -1}, ValueError, ""),
            ({"slices": {"ids": (5, 0, 2)}}, ValueError, "ids"), ({"budget": object()}, TypeError, ""),
            ({"tensors": [3]}, TypeError, ""), ({"device": "cuda:9"}, ValueError, "cuda:9"),
            ({"stream": "s"}, TypeError, "stream"), ({"tensors": 5}, TypeError, ""),
            ({"tensors": ["ids", 3]}, TypeError, "is a str"), ({"slices": [1]}, TypeError, "dict"),
            ({"slices": {"ids": 3}}, TypeError, "n_ranks"), ({"slices": {"ids": (0, 3)}}, TypeError, "slice"),
            ({"slices": {"ids": (0,)}}, TypeError, "n_ranks"), ({"chunk_bytes": -1}, ValueError, "size"),
        ]
        for options, kind, text in table:
            with self.subTest(options=options), self.assertRaisesRegex(kind, text):
                hoist.load(self.path, **options)

    def test_devices(self):
        for spec in ("cuda:1", "hip:0"):
            got = hoist.load_all(self.path, spec)
            self.assertIs(got["ids"].device, hoist.Device(spec))
            self.check(got)
            stream = hoist.Stream(spec)
            with hoist.load(self.path, spec, stream=stream, window="16M") as load:
                self.assertEqual({n for n, b in load if b.tobytes() == self.bytes[n]}, set(self.bytes))

    def test_buffers_outlive_everything(self):
        with hoist.open(self.path) as ckpt, hoist.load(ckpt) as load:
            load.wait()
            got = dict(load)
        self.check(got)

    def test_progress(self):
        seen = []
        hoist.load_all(self.path, progress=lambda done, total: seen.append((done, total)))
        total = sum(map(len, self.bytes.values()))
        self.assertEqual(seen[-1], (total, total))
        self.assertEqual(seen, sorted(seen))

    def test_progress_that_raises(self):
        def fail(done, total):
            raise RuntimeError("stop")

        for call in (lambda: hoist.load_all(self.path, progress=fail),
                     lambda: dict(hoist.load(self.path, progress=fail))):
            self.assertRaisesRegex(RuntimeError, "stop", call)

    def test_interrupt(self):
        """Ctrl-C while a load runs."""
        sent = []

        def interrupt(done, total):
            if not sent:
                sent.append(True)  # before the signal, whose handler raises in here
                os.kill(os.getpid(), signal.SIGINT)

        # A job in the background of a shell ignores the signal.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with hoist.load(self.path, progress=interrupt) as load:
            self.assertRaises(KeyboardInterrupt, load.wait)
            with self.assertRaises((hoist.errors.CancelledError, StopIteration)):
                while True:
                    next(load)

    def test_asyncio(self):
        async def both():
            first, second = hoist.load(self.path), hoist.load(self.path, window="16M")
            return await asyncio.gather(first, second)

        for load in asyncio.run(both()):
            self.check(dict(load))
            load.close()

    def test_two_tasks_await_one_load(self):
        async def both():
            with hoist.load(self.path) as load:
                first, second = asyncio.ensure_future(load._wait_async()), load._wait_async()
                await asyncio.wait_for(second, 60)
                await asyncio.wait_for(first, 60)
                self.check(dict(load))

        asyncio.run(both())

    def test_a_full_window_is_no_end(self):
        """A program that is told so drops what it has, and goes on."""
        window, got, n_told = max(map(len, self.bytes.values())) + 4096, {}, 0
        with hoist.load(self.path, window=window) as load:
            held = []
            while True:
                try:
                    held.append(next(load))
                except StopIteration:
                    break
                except hoist.errors.WindowError:
                    n_told += 1
                    got.update((name, buffer.tobytes()) for name, buffer in held)
                    held.clear()
            got.update((name, buffer.tobytes()) for name, buffer in held)
            held.clear()
        self.assertGreater(n_told, 0)
        self.assertEqual(got, self.bytes)

    def test_threads_share_a_load(self):
        got, lock = [], threading.Lock()

        def take(load):
            for item in load:
                with lock:
                    got.append(item)

        with hoist.load(self.path) as load:
            threads = [threading.Thread(target=take, args=(load,)) for _ in range(3)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        self.assertEqual(len(got), len(files.MODEL))
        self.check(dict(got))

    def test_nothing_is_left(self):
        def once():
            with hoist.load(self.path, "cuda:0", window="16M") as load:
                next(load)
            hoist.load_all(self.path)
            try:
                hoist.load(self.path, tensors=["no"])
            except hoist.Error:
                pass

        once()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(100):
            once()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)


class Arrays(WithModel):
    def test_numpy(self):
        with self.subTest("a type that NumPy lacks"):
            try:
                import ml_dtypes  # noqa: F401
            except ImportError:
                self.assertRaisesRegex(TypeError, "ml_dtypes", hoist.numpy.load_file, self.path)
        got = hoist.numpy.load_file(self.path, tensors=["ids", "mask", "big", "scalar", "empty"])
        np.testing.assert_array_equal(got["ids"], np.frombuffer(self.bytes["ids"], "q"))
        self.assertEqual((got["mask"].dtype, got["scalar"].shape, got["empty"].shape),
                         (np.dtype(bool), (), (0, 3)))
        self.assertEqual(got["big"].tobytes(), self.bytes["big"])

    def torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")
        return torch

    def check_torch(self, names):
        torch = self.torch()
        got = hoist.torch.load_file(self.path, tensors=names)
        self.assertEqual(set(got), set(names))
        for name in names:
            bits = got[name].contiguous().reshape(-1).view(torch.uint8) if got[name].numel() else None
            self.assertEqual(tuple(got[name].shape), files.MODEL[name][1])
            if bits is not None:
                self.assertEqual(bits.numpy().tobytes(), self.bytes[name])
        return got

    def test_torch(self):
        torch = self.torch()
        got = self.check_torch([name for name in files.MODEL if name != "scale"])
        self.assertEqual((got["embed"].dtype, got["mask"].dtype), (torch.bfloat16, torch.bool))
        streamed = dict(hoist.torch.iter(self.path, tensors=["ids"], window="16M"))
        self.assertTrue(torch.equal(streamed["ids"], got["ids"]))

    def test_torch_float8(self):
        torch = self.torch()
        if not hasattr(torch, "float8_e4m3fn"):
            self.assertRaisesRegex(TypeError, "float8_e4m3fn", self.check_torch, ["scale"])
            self.skipTest(f"torch {torch.__version__} has no float8_e4m3fn")
        self.assertEqual(self.check_torch(["scale"])["scale"].dtype, torch.float8_e4m3fn)


class Importing(unittest.TestCase):
    def test_import_is_light(self):
        """NumPy, torch, and what else takes milliseconds, come when they are used."""
        code = "import sys, hoist; heavy = 'numpy', 'torch', 'asyncio', 'tqdm', 'ctypes', 'typing', " \
               "'dataclasses', 'inspect', 'enum', 're', 'json'; print([m for m in heavy if m in sys.modules])"
        place = os.path.dirname(os.path.dirname(hoist.__file__))  # -S: site may import anything
        out = subprocess.run([sys.executable, "-S", "-c", code], env={**os.environ, "PYTHONPATH": place},
                             capture_output=True, text=True, check=True)
        self.assertEqual(out.stdout.strip(), "[]")

    def test_the_command(self):
        out = subprocess.run([sys.executable, "-c", "from hoist.command import main; main()", "--version"],
                             capture_output=True, text=True, check=True)
        self.assertIn(hoist.__version__, out.stdout)

    def test_fork(self):
        """Host buffers live on in a child; a load says that it is the parent's."""
        buffer = hoist.Buffer("f32", (4,), zero=True)
        child = os.fork()
        if child == 0:
            os._exit(0 if buffer.tobytes() == bytes(16) else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class Sizes(unittest.TestCase):
    def test_sizes(self):
        from hoist.sizes import size
        for text, want in (("256M", 256 << 20), ("2G", 2 << 30), ("1.5GiB", 3 << 29), ("10", 10),
                           (7, 7), ("4 k", 4096), ("3B", 3), (np.int64(5), 5)):
            self.assertEqual(size(text), want)
        for text in ("", "G", "-1", "2X", "1e999", "nan", "5IB"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                size(text)
        self.assertRaises(TypeError, size, 1.5)
        self.assertRaisesRegex(ValueError, "-5", size, -5)


if __name__ == "__main__":
    unittest.main()
