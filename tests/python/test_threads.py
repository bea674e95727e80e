# SPDX-License-Identifier: MIT
"""Threads that share objects: each call gives the right answer, or an exception that says why.

The interpreter switches threads as often as it can.  HOIST_TEST_FORM=long takes 100 times as many
calls; ./check pysan runs this under ThreadSanitizer.  HOIST_TEST_SEED repeats the choices.
"""

import gc
import os
import random
import sys
import tempfile
import threading
import unittest

import numpy as np

import hoist
import files

SEED = int(os.environ.get("HOIST_TEST_SEED") or random.randrange(1 << 31))
ROUNDS = 20000 if os.environ.get("HOIST_TEST_FORM") == "long" else 200
N_THREADS = 6
DEVICES = ("cpu", "cuda:0", "cuda:1", "hip:0")


def is_meant(error):
    """Another thread has closed the object, has cancelled the load, or is at work with either."""
    return isinstance(error, (hoist.errors.ClosedError, hoist.errors.CancelledError, hoist.errors.BusyError)) \
        or "another thread" in str(error)


class Shared:
    """What all threads use.  A slot is a list of one object, which any thread replaces or closes.

    hoist orders no threads that write to the same bytes: one thread at a time writes to `written`,
    which nobody reads, and nobody writes to `buffers`.
    """

    def __init__(self, path, content):
        self.path, self.content = path, content
        self.checkpoint = hoist.open(path)
        self.devices = {spec: hoist.Device(spec) for spec in DEVICES}
        self.streams = [hoist.Stream(self.devices[spec]) for spec in DEVICES]
        self.buffers = [[hoist.Buffer("i32", (16,), zero=True)] for _ in range(4)]
        self.written = [[hoist.Buffer("i32", (16,), zero=True)] for _ in range(2)]
        self.writing = threading.Lock()
        self.virtual = hoist._hoist.Memory("virtual", self.devices["cuda:0"])
        self.growing = [self.virtual.alloc(64)]
        self.loads = [[hoist.load(path)] for _ in range(2)]
        self.budget = hoist.Budget("64M")

    def close(self):
        for (load,) in self.loads:
            load.close()


class Worker:
    """One thread: random calls.  `failure` is what no call may raise."""

    def __init__(self, shared, seed):
        self.shared, self.random, self.failure = shared, random.Random(seed), None
        self.counts = {}
        self.thread = threading.Thread(target=self.run)

    def run(self):
        calls = [getattr(self, name) for name in dir(self) if name.startswith("do_")]
        try:
            for _ in range(ROUNDS):
                call = self.random.choice(calls)
                try:
                    call()
                except Exception as error:  # pylint: disable=broad-exception-caught
                    if not is_meant(error):
                        raise
                    continue
                self.counts[call.__name__] = self.counts.get(call.__name__, 0) + 1
        except BaseException as error:  # pylint: disable=broad-exception-caught
            self.failure = error

    def slot(self):
        return self.random.choice(self.shared.buffers)

    def any_slot(self):
        return self.random.choice(self.shared.buffers + self.shared.written)

    # --- the calls ---

    def do_replace(self):
        spec = self.random.choice(DEVICES)
        self.any_slot()[0] = hoist.Buffer("i32", (16,), device=spec, zero=True)

    def do_close(self):
        self.any_slot()[0].close()

    def do_fill_a_view(self):
        """Of a buffer of its own, so that the content is known."""
        spec, value = self.random.choice(DEVICES), self.random.randrange(100)
        own = hoist.Buffer("i32", (4, 8), device=spec, zero=True)
        view = own[1:3, ::2]
        view.fill(value)
        got = np.frombuffer(own.tobytes(), "i4").reshape(4, 8)
        want = np.zeros((4, 8), "i4")
        want[1:3, ::2] = value
        assert (got == want).all(), got

    def do_read_a_shared_one(self):
        assert len(self.slot()[0].tobytes()) == 64

    def do_slice_a_shared_one(self):
        buffer = self.slot()[0]
        view = buffer[4:12]
        assert view.shape == (8,) and view.device is buffer.device

    def do_copy_between_shared_ones(self):
        with self.shared.writing:
            self.random.choice(self.shared.written)[0].copy_from(self.slot()[0])

    def do_copy_of_a_shared_one(self):
        own = hoist.Buffer("i32", (16,), device=self.random.choice(DEVICES))
        own.copy_from(self.slot()[0])
        assert own.tobytes() == bytes(64)

    def do_grow_a_shared_one(self):
        """Nobody wrote to it: its bytes are undefined."""
        slot = self.shared.growing
        slot[0] = self.shared.virtual.grow(slot[0], self.random.randrange(64, 1 << 22))

    def do_read_a_growing_one(self):
        buffer = self.shared.growing[0]
        assert len(buffer.tobytes()) == buffer.nbytes >= 64

    def do_identity(self):
        spec = self.random.choice(DEVICES)
        assert hoist.Device(spec) is self.shared.devices[spec]

    def do_numpy(self):
        array = np.arange(20, dtype="i4")
        buffer = hoist.Buffer.from_dlpack(array)
        assert (np.from_dlpack(buffer) == array).all()
        del array
        assert buffer.tobytes() == np.arange(20, dtype="i4").tobytes()

    def do_stream(self):
        stream = self.random.choice(self.shared.streams)
        event = stream.record_event()
        if stream.device.api == "cuda":
            self.shared.streams[1 + self.random.randrange(2)].wait_for(event)
        stream.synchronize()

    def do_list(self):
        name = self.random.choice(list(self.shared.checkpoint))
        assert self.shared.checkpoint[name].nbytes == len(self.shared.content[name])

    def do_load(self):
        with hoist.load(self.shared.path, self.random.choice(DEVICES), budget=self.shared.budget,
                        tensors=["layers.*", "ids"]) as load:
            for name, buffer in load:
                assert buffer.tobytes() == self.shared.content[name], name

    def do_take_of_a_shared_load(self):
        load = self.random.choice(self.shared.loads)[0]
        name = self.random.choice(list(self.shared.content))
        load.wait()
        assert load[name].tobytes() == self.shared.content[name], name

    def do_begin_a_shared_load(self):
        slot = self.random.choice(self.shared.loads)
        before, slot[0] = slot[0], hoist.load(self.shared.path)
        before.cancel() if self.random.random() < 0.5 else before.close()

    def do_collect(self):
        gc.collect(0)


class Threads(unittest.TestCase):
    def test_they_share_everything(self):
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            content = files.write(path, {n: s for n, s in files.MODEL.items() if n != "big"})
            shared = Shared(path, content)
            workers = [Worker(shared, SEED + i) for i in range(N_THREADS)]
            try:
                for worker in workers:
                    worker.thread.start()
                for worker in workers:
                    worker.thread.join()
            finally:
                sys.setswitchinterval(before)
            shared.close()
        for worker in workers:
            if worker.failure is not None:
                raise AssertionError(f"HOIST_TEST_SEED={SEED}") from worker.failure
        calls = [name for name in dir(Worker) if name.startswith("do_")]
        for name in calls:
            self.assertGreater(sum(worker.counts.get(name, 0) for worker in workers), 0, name)


if __name__ == "__main__":
    unittest.main()
