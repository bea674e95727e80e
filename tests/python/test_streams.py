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
from unittest import mock

import numpy as np

import hoist
from hoist import _hoist, checkpoint, driver, streams, waiting
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
    def hold(self, stream):
        """The stream waits for a flag, which the test's end signals."""
        flag = driver.CompletionFlag(stream.device)
        stream.wait_for_host_value(flag, 1)
        self.addCleanup(stream.synchronize)
        self.addCleanup(flag.signal, 1)
        return stream

    def held(self, spec):
        return self.hold(hoist.Stream(spec))

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
            host = hoist.Buffer("f32", (4,), zero=True)
            calls = {
                "device": stream.device.synchronize, "device.sync": stream.device.sync,
                "tobytes": buffer.tobytes, "item": buffer[0].item, "copy": buffer.copy,
                "copy_from": lambda: buffer.copy_from(host), "fill": lambda: buffer.fill(1),
                "copy_batch": lambda: _hoist.copy_batch([host], [buffer]),
                "fork": lambda: hoist.Buffer.fork([buffer]),
                "store": lambda: buffer.__setitem__(0, 1), "store all": lambda: buffer.__setitem__(..., 1),
                "store a buffer": lambda: host.__setitem__(..., buffer),
                "_set": lambda: buffer._set((0,), 1),
                "str": lambda: str(buffer), "repr": lambda: repr(buffer),
                "describe": lambda: buffer.describe(True), "__dlpack__": buffer.__dlpack__,
            }
            calls |= {"memoryview": lambda: memoryview(buffer)} if spec == "cpu" else {
                "to": lambda: buffer.to("cpu"),
                "copy_from on a stream": lambda: buffer.copy_from(host, stream=stream),
                "copy to a stream": lambda: host.copy(stream=stream), "to a stream": lambda: host.to(stream),
                "copy_batch on a stream": lambda: _hoist.copy_batch([buffer], [host], stream),
                "host and host on a stream": lambda: host.copy_from(hoist.Buffer("f32", (4,)), stream=stream),
                "fill on a stream": lambda: buffer[::2].fill(1, stream=stream),
                "__dlpack__ to the host": lambda: buffer.__dlpack__(stream=stream.native, dl_device=(1, 0)),
            }
            for name, call in calls.items():
                with self.subTest(spec=spec, call=name):
                    self.interrupted(call)

    def test_a_stream_without_a_number_in_the_array_interface(self):
        stream = hoist.Stream("hip:0", native=0)
        buffer = hoist.Buffer("f32", (4,), stream=stream)
        self.hold(stream)
        self.interrupted(lambda: buffer.__cuda_array_interface__)

    def test_exported_memory_that_went_back(self):
        memory = _hoist.Memory("device", hoist.Device("cuda:0"))
        buffer = memory.alloc(1 << 20)
        self.assertTrue(buffer.__cuda_array_interface__["data"])
        del buffer  # parked, until a wait for the device
        self.held("cuda:0")
        self.interrupted(memory.trim)

    def test_calls_that_another_thread_makes(self):
        # The functions that they call have no end that this test could delay.
        for name, call in (("doctor", hoist.doctor), ("Checkpoint._open_here", lambda: hoist.open("nothing")),
                           ("Checkpoint._open_here", lambda: hoist.Checkpoint("nothing")),
                           ("Checkpoint._open_here", lambda: hoist.load("nothing"))):
            may_end, threads = threading.Event(), []

            def wait(*_, may_end=may_end, threads=threads, **__):
                threads.append(threading.get_ident())
                may_end.wait()
                raise FileNotFoundError

            owner, attribute = (checkpoint.Checkpoint, "_open_here") if "." in name else (_hoist, name)
            with self.subTest(call=name), mock.patch.object(owner, attribute, wait):
                try:
                    self.interrupted(call)
                    self.assertNotIn(threading.get_ident(), threads)
                finally:
                    may_end.set()
                threads.clear()
                self.assertRaises(FileNotFoundError, call)

    def test_in_thread(self):
        self.assertEqual(waiting.in_thread(lambda: threading.get_ident() == threading.main_thread().ident), False)
        with self.assertRaises(KeyError):
            waiting.in_thread(lambda: {}["a"])
        with mock.patch("_thread.start_new_thread", side_effect=RuntimeError("can't start new thread")):
            self.assertEqual(waiting.in_thread(threading.get_ident), threading.get_ident())
        seen = []
        thread = threading.Thread(target=lambda: seen.append(waiting.in_thread(threading.get_ident)))
        thread.start()
        thread.join()
        self.assertEqual(seen, [thread.ident])

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
