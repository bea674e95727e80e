# SPDX-License-Identifier: MIT
"""Streams of other libraries, and waits that Ctrl-C ends."""

import gc
import os
import signal
import tempfile
import threading
import time
import unittest
import weakref

import numpy as np

import hoist
from hoist import driver, streams
import files


class Foreign:
    """A stream as cuda.core has it."""

    def __init__(self, spec="cuda:0", version=0, native=None):
        self._own = hoist.Stream(spec) if native is None else None
        self._native = self._own.native if native is None else native
        self._version = version
        self.device = spec

    def __eq__(self, other):
        return self._native == other._native

    def __cuda_stream__(self):
        return (self._version, self._native)


class Unlimited(Foreign):
    """Of no device."""

    device = property(lambda self: None, lambda self, value: None)


class CudaCore(Foreign):
    """Whose device has a number."""

    device = property(lambda self: type("D", (), {"device_id": 1}), lambda self, value: None)


class OldTorch:
    """As torch before it had `__cuda_stream__`."""

    def __init__(self):
        self._own = hoist.Stream("cuda:1")
        self.cuda_stream, self.device = self._own.native, "cuda:1"


class OtherLibraries(unittest.TestCase):
    def test_each_call_that_takes_a_stream(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.safetensors")
            want = files.write(path, files.MODEL)
            s = Foreign()
            on = hoist.Buffer("f32", (4,), stream=s, zero=True)
            self.assertEqual(on.stream.native, s._native)
            on.fill(2.0, stream=s)
            self.assertIs(on.on_stream(s).stream, streams.of(s))
            self.assertEqual(on.copy(stream=s).tobytes(), on.tobytes())
            other = hoist.Buffer("f32", (4,), "cuda:0", zero=True)
            other.copy_from(on, stream=s)
            streams.of(s).synchronize()
            self.assertEqual(other.tobytes(), on.tobytes())
            other.close(s)
            got = hoist.load_all(path, stream=s, tensors="ids")["ids"]
            self.assertEqual((got.device.spec, got.tobytes()), ("cuda:0", want["ids"]))
            hoist.save({"a": on}, os.path.join(folder, "out.npy"), stream=s).wait()
            self.assertEqual(np.load(os.path.join(folder, "out.npy")).tolist(), [2.0] * 4)

    def test_what_is_a_stream(self):
        self.assertEqual(streams.of(CudaCore("cuda:1")).device.spec, "cuda:1")
        old = OldTorch()
        self.assertEqual((streams.of(old).native, streams.of(old).device.spec), (old.cuda_stream, "cuda:1"))
        own = hoist.Stream("cpu")
        self.assertIs(streams.of(own), own)
        self.assertEqual(streams.of(Foreign(native=0)).device.spec, "cuda:0")
        for wrong in (3, "cuda:0", object(), Foreign(version=1), Unlimited()):
            with self.subTest(wrong=wrong), self.assertRaises(TypeError):
                hoist.Buffer("f32", (4,), stream=wrong)

    def test_wrappers_live_as_long_as_their_streams(self):
        a, b = Foreign(), Foreign()
        same = Foreign(native=a._native)
        self.assertIs(streams.of(a), streams.of(a))
        self.assertIsNot(streams.of(a), streams.of(b))
        self.assertIsNot(streams.of(a), streams.of(same))  # equal, but with an end of its own
        n, seen = len(streams._of_others), weakref.ref(same)
        del same
        gc.collect()
        self.assertIsNone(seen())
        self.assertEqual(len(streams._of_others), n - 1)


@unittest.skipUnless(threading.current_thread() is threading.main_thread(), "signals go to the main thread")
class Interrupts(unittest.TestCase):
    def setUp(self):
        # A shell starts jobs in the background with SIGINT ignored, and Python leaves that so.
        old = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, old)

    def held(self, spec):
        """A stream that waits for a flag, which the test's end signals."""
        stream = hoist.Stream(spec)
        flag = driver.CompletionFlag(hoist.Device(spec))
        stream.wait_for_host_value(flag, 1)
        self.addCleanup(stream.synchronize)
        self.addCleanup(flag.signal, 1)
        return stream

    def interrupted(self, call):
        files.interrupted(self, call)

    def test_ctrl_c_ends_waits(self):
        for spec in ("cuda:0", "hip:0", "cpu"):
            stream = self.held(spec)
            with self.subTest(spec=spec, call="synchronize"):
                self.interrupted(stream.synchronize)
            with self.subTest(spec=spec, call="event"):
                self.interrupted(stream.record_event().synchronize)
            buffer = hoist.Buffer("f32", (4,), stream=stream)
            calls = [buffer.tobytes, buffer[0].item, buffer.copy,
                     lambda: buffer.copy_from(hoist.Buffer("f32", (4,), zero=True))]
            calls += [lambda: memoryview(buffer)] if spec == "cpu" else [lambda: buffer.to("cpu")]
            for number, call in enumerate(calls):
                with self.subTest(spec=spec, call=number):
                    self.interrupted(call)

    def test_a_wait_goes_on_after_another_signal(self):
        seen = []
        old = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        self.addCleanup(signal.signal, signal.SIGUSR1, old)
        stream = hoist.Stream("cuda:0")
        flag = driver.CompletionFlag(hoist.Device("cuda:0"))
        stream.wait_for_host_value(flag, 1)

        def act():
            os.kill(os.getpid(), signal.SIGUSR1)
            while not seen:
                time.sleep(0.001)
            flag.signal(1)

        thread = threading.Thread(target=act)
        thread.start()
        stream.synchronize()
        thread.join()
        self.assertEqual(seen, [1])

    def test_waits_in_other_threads(self):
        stream = hoist.Stream("cuda:0")
        flag = driver.CompletionFlag(hoist.Device("cuda:0"))
        stream.wait_for_host_value(flag, 1)
        done = []
        thread = threading.Thread(target=lambda: done.append(stream.synchronize()))
        thread.start()
        flag.signal(1)
        thread.join()
        self.assertEqual(done, [None])


if __name__ == "__main__":
    unittest.main()
