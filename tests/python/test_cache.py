# SPDX-License-Identifier: MIT
"""Images that processes share, and the doctor."""

import ctypes
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import numpy as np

import hoist
import files


class Cache(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "model.safetensors")
        self.bytes = files.write(self.path, files.MODEL, {"made by": "a test"})
        # The holder's folder is this test's own; a socket's path must be short.
        runtime = tempfile.mkdtemp(prefix="hc", dir="/tmp")
        self.addCleanup(self.remove, runtime)
        changed = mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": runtime})
        changed.start()
        self.addCleanup(changed.stop)
        self.addCleanup(self.drop_all)

    @staticmethod
    def remove(folder):
        """The holder, which ends with its last image, removes its own folder in there."""
        until = time.monotonic() + 100
        while os.listdir(folder) and time.monotonic() < until:
            time.sleep(0.01)
        os.rmdir(folder)

    def test_ctrl_c_ends_an_addition(self):
        """The signal comes while the addition reads; no code in Python runs that would see the signal."""
        files.write(self.path, {f"t{number}": ("U8", (1 << 20,)) for number in range(64)})
        old = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, old)
        kill = functools.partial(ctypes.CDLL(None).kill, os.getpid(), int(signal.SIGINT))
        self.assertRaises(KeyboardInterrupt, hoist.cache.add, self.path, progress=kill)
        self.assertEqual(hoist.cache.list(), [])

    @staticmethod
    def drop_all():
        if hoist.cache.list():
            hoist.cache.drop()

    def test_a_life(self):
        self.assertEqual(hoist.cache.list(), [])
        self.assertRaises(FileNotFoundError, hoist.cache.attach, self.path)
        with hoist.cache.add(self.path) as image:
            self.check(image)
        self.assertTrue(image.closed)
        self.assertRaises(hoist.errors.ClosedError, lambda: image["ids"])
        with hoist.cache.attach(self.path) as image:
            self.check(image)
            ids = image["ids"]
            ids[0] = 77  # this process's own
        self.assertEqual(ids[0].item(), 77)
        with hoist.cache.attach(self.path, read_only=True) as image:
            self.check(image)
            self.assertTrue(image["ids"].is_read_only)
        info, = hoist.cache.list()
        self.assertEqual((info.path, info.n_tensors, info.tensor_bytes),
                         (os.path.realpath(self.path), len(self.bytes), sum(map(len, self.bytes.values()))))
        self.assertGreaterEqual(info.n_attached, 2)
        code = "import hoist, sys; print(sum(hoist.cache.attach(sys.argv[1])['bytes'].tobytes()))"
        out = subprocess.run([sys.executable, "-c", code, self.path], capture_output=True, check=True)
        self.assertEqual(int(out.stdout), sum(self.bytes["bytes"]))
        self.assertEqual(hoist.cache.drop(self.path), 1)
        self.assertRaises(FileNotFoundError, hoist.cache.drop, self.path)

    def test_in_a_child_of_fork(self):
        for read_only in (False, True):
            with hoist.cache.add(self.path, read_only=read_only) as image:
                ids = image["ids"]
                child = os.fork()
                if child == 0:  # no test framework here: the status tells
                    status = 1
                    try:
                        self.check(image)
                        assert ids.tobytes() == self.bytes["ids"]
                        if read_only:
                            self.assertRaises(BufferError, ids.fill, 1)
                        else:
                            ids.fill(1)
                        image.close()
                        assert read_only or ids[999].item() == 1
                        with hoist.cache.attach(self.path) as again:
                            self.check(again)
                        status = 0
                    finally:
                        os._exit(status)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
                self.check(image)
            self.assertEqual(ids.tobytes(), self.bytes["ids"])

    def check(self, image):
        self.assertEqual(list(image), list(files.MODEL))
        self.assertEqual(len(image), len(files.MODEL))
        self.assertIn("ids", image)
        self.assertNotIn("nothing", image)
        self.assertNotIn(3, image)
        self.assertRaises(KeyError, lambda: image["nothing"])
        self.assertEqual(image.metadata, {"made by": "a test"})
        self.assertEqual((image.tensor("ids").dtype, image.tensor("ids").shape), ("i64", (1000,)))
        self.assertEqual(image.info.format, "safetensors")
        self.assertIn("model.safetensors", repr(image))
        for name, buffer in image.items():
            self.assertEqual(buffer.tobytes(), self.bytes[name], name)

    def test_a_change(self):
        hoist.cache.add(self.path).close()
        self.bytes = files.write(self.path, {"other": ("I64", (7,))}, {"made by": "a test"})
        self.assertRaisesRegex(hoist.errors.StaleError, "was cached", hoist.cache.attach, self.path)
        with hoist.cache.add(self.path) as image:
            self.assertEqual(image["other"].tobytes(), self.bytes["other"])

    def test_progress(self):
        seen = []
        hoist.cache.add(self.path, progress=lambda done, total: seen.append((done, total))).close()
        self.assertTrue(all(done <= total for done, total in seen), seen)

    def test_progress_that_raises(self):
        def fail(done, total):
            raise RuntimeError("stop")

        # A load that ends at once may tell nothing: the text of the exception is what counts.
        try:
            hoist.cache.add(self.path, progress=fail).close()
        except RuntimeError as error:
            self.assertEqual(str(error), "stop")
            self.assertEqual(hoist.cache.list(), [])

    def test_arrays(self):
        with hoist.cache.add(self.path, pages="small", engine="threads", io="cached") as image:
            np.testing.assert_array_equal(hoist.numpy.asarray(image["ids"]),
                                          np.frombuffer(self.bytes["ids"], "q"))
            self.assertEqual(image.info.pages, "small")

    def test_wrong_arguments(self):
        table = [({"engine": "x"}, ValueError, "engine"), ({"io": "map"}, ValueError, ""),
                 ({"pages": "big"}, ValueError, "pages is one of"), ({"node": "a"}, TypeError, ""),
                 ({"node": 9999}, ValueError, ""), ({"holder": "/no/such"}, FileNotFoundError, "/no/such"),
                 ({"budget": 3.5}, TypeError, ""), ({"wrong": 1}, TypeError, "wrong")]
        for options, kind, text in table:
            with self.subTest(options=options), self.assertRaisesRegex(kind, text):
                hoist.cache.add(self.path, **options)
        self.assertRaises(FileNotFoundError, hoist.cache.add, self.path + ".no")
        self.assertRaises(TypeError, hoist.cache.attach, 5)
        self.assertEqual(hoist.cache.list(), [])


class Doctor(unittest.TestCase):
    def test_findings(self):
        with tempfile.TemporaryDirectory() as folder:
            found = hoist.doctor(folder)
        names = [finding.name for finding in found]
        self.assertIn("io_uring", names)
        self.assertEqual(len(names), len(set(names)))
        for finding in found[:-1]:
            self.assertIn(finding.level, ("ok", "warning"))
            self.assertTrue(finding.text)
            self.assertEqual(bool(finding.remedy), finding.level == "warning", finding)
        advice = found[-1]
        self.assertEqual((advice.name, advice.level, advice.options), ("advice", "advice", {}))
        self.assertTrue(advice.text)  # why nothing was measured
        self.assertRaises(FileNotFoundError, hoist.doctor, "/no/such")
        self.assertRaises(TypeError, hoist.doctor, 5)

    def test_advice_is_options(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            files.write(path, {"big": ("U8", (33 << 20,))})
            advice = hoist.doctor(path)[-1]
            self.assertEqual(set(advice.options), {"io", "chunk_bytes", "depth"}, advice)
            self.assertEqual(list(hoist.load_all(path, **advice.options)), ["big"])


if __name__ == "__main__":
    unittest.main()
