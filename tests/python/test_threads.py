# SPDX-License-Identifier: MIT
"""Threads that share objects: each call gives the right answer, or an exception that says why.

The interpreter switches threads as often as it can, or has no GIL: then the threads run at once.
HOIST_TEST_FORM=long takes 100 times as many calls; ./check pysan runs this under ThreadSanitizer.
HOIST_TEST_SEED repeats the choices.
"""

import contextlib
import ctypes
import gc
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import numpy as np

import hoist
from hoist import core, driver, streams
import files

SEED = int(os.environ.get("HOIST_TEST_SEED") or random.randrange(1 << 31))
ROUNDS = 20000 if os.environ.get("HOIST_TEST_FORM") == "long" else 200
TIMES = ROUNDS // 4
N_THREADS = 6
DEVICES = ("cpu", "cuda:0", "cuda:1", "hip:0")


def is_meant(error):
    """Another thread has closed the object, has cancelled the load, or is at work with either."""
    return isinstance(error, (hoist.errors.ClosedError, hoist.errors.CancelledError, hoist.errors.BusyError)) \
        or "another thread" in str(error) or "was closed" in str(error)


@contextlib.contextmanager
def switching():
    """The interpreter switches threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


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
        with switching(), tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            content = files.write(path, {n: s for n, s in files.MODEL.items() if n != "big"})
            shared = Shared(path, content)
            workers = [Worker(shared, SEED + i) for i in range(N_THREADS)]
            for worker in workers:
                worker.thread.start()
            for worker in workers:
                worker.thread.join()
            shared.close()
        for worker in workers:
            if worker.failure is not None:
                raise AssertionError(f"HOIST_TEST_SEED={SEED}") from worker.failure
        calls = [name for name in dir(Worker) if name.startswith("do_")]
        for name in calls:
            self.assertGreater(sum(worker.counts.get(name, 0) for worker in workers), 0, name)


class Team:
    """Threads that begin their calls at once, again and again."""

    def __init__(self, n):
        self.n, self.calls, self.results = n, None, [None] * n
        self.begin, self.end = threading.Barrier(n + 1), threading.Barrier(n + 1)
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(n)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        while True:
            self.begin.wait()
            if self.calls is None:
                return
            try:
                self.results[number] = self.calls[number]()
            except Exception as error:  # pylint: disable=broad-exception-caught
                self.results[number] = error
            self.end.wait()

    def together(self, *calls):
        """The results of calls, or the exceptions that say that another thread was first."""
        self.calls = calls
        self.begin.wait()
        self.end.wait()
        ret, self.results, self.calls = self.results, [None] * self.n, None
        for one in ret:
            if isinstance(one, Exception) and not is_meant(one):
                raise AssertionError("what no call may raise") from one
        return ret

    def close(self):
        self.begin.wait()
        for thread in self.threads:
            thread.join()


class Together(files.WithModel):
    """One object, and calls that begin at once, one of which ends the object in three rounds of four."""

    model = {n: s for n, s in files.MODEL.items() if n != "big"}

    @staticmethod
    def end_of(one, number):
        """What ends the object in round `number`."""
        return one.close if number % 4 else lambda: None

    def team(self, n):
        context = switching()
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        team = Team(n)
        self.addCleanup(team.close)
        return team.together

    def good(self, results):
        return [one for one in results if not isinstance(one, Exception)]

    # --- buffers ---

    def test_a_buffer_that_closes(self):
        uses = [lambda b: b.tobytes() == bytes(64), lambda b: b[2:6, ::-1].shape == (4, 2), lambda b: b.shape == (8, 2),
                lambda b: b.copy().tobytes() == bytes(64), lambda b: memoryview(b).tobytes() == bytes(64),
                lambda b: bytes(np.from_dlpack(b)) == bytes(64), lambda b: b.reshape((16,)).view("u8").nbytes == 64,
                lambda b: "Buffer" in repr(b), lambda b: b.device is hoist.Device("cpu"),
                lambda b: b.stream is hoist.Device("cpu").default_stream, lambda b: b[3, 1].item() == 0,
                lambda b: b.storage_nbytes in (0, 64), lambda b: b.__dlpack_device__() == (1, 0),
                lambda b: hoist.Buffer("i32", (8, 2)).copy_from(b) is None,
                lambda b: hoist.Buffer("i32", (8, 2)).__setitem__(..., b) is None,
                lambda b: hoist.Buffer.fork([b])[0].tobytes() == bytes(64),
                lambda b: hoist._hoist.copy_batch([hoist.Buffer("i32", (8, 2))], [b]) is None,
                lambda b: hoist.save({"a": b}, os.path.join(self.folder.name, "b.npy"), sync=False).wait(),
                lambda b: b.to("cuda:0").tobytes() == bytes(64), lambda b: b.is_aligned() in (True, False)]
        together = self.team(4)
        for number in range(TIMES):
            buffer = hoist.Buffer("i32", (8, 2), zero=True)
            several = [uses[(number + k) % len(uses)] for k in (0, 7, 13)]
            got = together(self.end_of(buffer, number), *(lambda use=use: use(buffer) for use in several))
            self.assertNotIn(False, got)
            if number % 4 == 0:
                self.assertEqual(self.good(got), got)

    def test_memory_in_place_that_closes(self):
        together = self.team(3)
        for number in range(TIMES):
            array = np.zeros(1000, "q")
            buffer = hoist.Buffer.from_buffer(array)
            got = together(self.end_of(buffer, number), lambda: hoist.load_all(self.path, into={"ids": buffer})["ids"],
                           lambda: buffer[1:].shape == (999,))
            if not isinstance(got[1], Exception):
                self.assertIs(got[1], buffer)
                self.assertEqual(array.tobytes(), self.bytes["ids"])
            self.assertIsNot(got[2], False)
            if number % 4 == 0:
                self.assertEqual(self.good(got), got)

    def test_owners_end_once(self):
        together, ended = self.team(4), []
        for number in range(TIMES):
            memory = ctypes.create_string_buffer(64)
            buffer = hoist.Buffer.from_address(ctypes.addressof(memory), 64, "u8", 64, owner=memory,
                                               release=lambda number=number: ended.append(number))
            boxes = [[buffer[i:]] for i in range(4)]
            del buffer
            together(*(box.clear for box in boxes))
        self.assertEqual(ended, list(range(TIMES)))

    def test_a_capsule_is_taken_once(self):
        class Same:
            """Gives the same capsule to all."""

            def __init__(self):
                self.array = np.arange(10)
                self.capsule = self.array.__dlpack__()

            def __dlpack__(self, **_):
                return self.capsule

            def __dlpack_device__(self):
                return 1, 0

        together = self.team(4)
        for _ in range(TIMES):
            same = Same()

            def take(same=same):
                try:
                    return hoist.from_dlpack(same).tobytes()
                except ValueError as error:
                    return str(error)
            got = together(take, take, take, take)
            self.assertEqual(sorted(map(type, got), key=str), [bytes, str, str, str])

    # --- identity ---

    def test_one_object_for_a_device(self):
        """In an interpreter that has met none of the devices."""
        program = """if 1:
            import threading, hoist
            specs = [f"{api}:{i}" for api in ("cuda", "hip") for i in range(8)]
            barrier, seen = threading.Barrier(6), [[] for _ in range(6)]
            def run(number):
                for spec in specs:
                    barrier.wait()
                    seen[number].append(hoist.Device(spec))
            threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
            for one in threads: one.start()
            for one in threads: one.join()
            for several in zip(*seen):
                assert len(set(map(id, several))) == 1, several"""
        for _ in range(1 + TIMES // 50):
            subprocess.run([sys.executable, "-c", program], check=True, stdin=subprocess.DEVNULL,
                           env={**os.environ, "HOIST_EMULATE": "cuda:8,hip:8"})

    def test_one_object_for_a_stream(self):
        together = self.team(4)
        for _ in range(TIMES):
            buffer = hoist.Buffer("i32", (4,), stream=hoist.Stream("cpu"))
            gc.collect(0)
            got = together(*[lambda: buffer.stream] * 4)
            self.assertEqual(len(set(map(id, got))), 1)

    def test_the_object_of_a_stream_that_ends(self):
        """Each thread drops the object, while others look for it."""
        together = self.team(4)
        buffer = hoist.Buffer("i32", (4,), stream=hoist.Stream("cpu"))

        def look():
            for _ in range(20):
                assert buffer.stream.device is buffer.device
            return True
        for _ in range(TIMES):
            self.assertEqual(together(*[look] * 4), [True] * 4)

    def test_another_librarys_stream(self):
        class Foreign:
            """A stream of a library that hoist knows by its protocol."""

            def __init__(self, own):
                self.own, self.device = own, "cuda:0"

            def __cuda_stream__(self):
                return 0, self.own.native

        together, own = self.team(4), hoist.Stream("cuda:0")
        for _ in range(TIMES):
            foreign = Foreign(own)
            got = together(*[lambda: streams.of(foreign)] * 3, lambda: hoist.Buffer("i32", (4,), stream=foreign).fill(0))
            self.assertEqual(len(set(map(id, got[:3]))), 1)

    # --- loads and saves ---

    def test_a_load_that_several_iterate(self):
        together = self.team(3)
        for number in range(TIMES // 4):
            options = [{}, {"window": "1M"}, {"device": "cuda:0"}][number % 3]

            def take(load):
                ret = []
                for name, buffer in load:
                    ret.append((name, buffer.tobytes()))
                    del buffer
                return ret
            with hoist.load(self.path, **options) as load:
                got = together(*[lambda: take(load)] * 3)
            taken = [pair for part in got for pair in part]
            self.assertEqual(len(taken), len(self.bytes))
            self.assertEqual(dict(taken), self.bytes)

    def test_a_load_that_closes(self):
        uses = [lambda load: load.wait() and load["ids"].tobytes() == self.bytes["ids"], lambda load: dict(load) is not None,
                lambda load: len(load.progress()) == 2, lambda load: load.fileno() >= 0, lambda load: load.report()["ns"] > 0,
                lambda load: "bytes" in load.explain() or True, lambda load: load.wait(0) in (True, False),
                lambda load: load._is_done() in (True, False), lambda load: load.cancel() is None,
                lambda load: load.digest("ids") != b""]
        together = self.team(4)
        for number in range(TIMES):
            load = hoist.load(self.path, digest=True, into={"ids": np.zeros(1000, "q")} if number % 2 else None)
            several = [uses[(number + k) % len(uses)] for k in (0, 3, 7)]

            def use(one, load=load):
                try:
                    return one(load)
                except (hoist.errors.MissingError, hoist.errors.BusyError):  # too early
                    return True
            got = together(self.end_of(load, number), *(lambda one=one: use(one) for one in several))
            self.assertNotIn(False, got)
            load.cancel()
            with contextlib.suppress(ValueError):
                load.close()

    def test_a_save_that_several_wait_for(self):
        together, path = self.team(4), os.path.join(self.folder.name, "out.npy")
        array = np.arange(1000)
        for _ in range(TIMES // 4):
            save = hoist.save({"a": array}, path, sync=False)
            got = together(save.wait, save.wait, save.report, save.progress)
            self.assertEqual(got[:2], [True, True])
            self.assertTrue((np.load(path) == array).all())
            save = hoist.save({"a": array}, path, sync=False)
            together(save.close, save.wait, save.progress, lambda: save.format)

    def test_what_tells_of_progress(self):
        """One function for several loads, and one load that several wait for."""
        together, told = self.team(3), []
        for _ in range(TIMES // 4):
            load = hoist.load(self.path, progress=lambda *pair: told.append(pair))
            together(load.wait, load.wait, lambda: hoist.load_all(self.path, progress=lambda *pair: told.append(pair)))
            load.close()
        self.assertTrue(all(0 <= done <= total for done, total in told))
        self.assertTrue(gc.isenabled())

    # --- checkpoints and images ---

    def test_a_checkpoint_that_closes(self):
        uses = [lambda c: len(list(c)) == len(self.bytes), lambda c: c["ids"].nbytes == 8000, lambda c: dict(c.items()) != {},
                lambda c: c.metadata == {}, lambda c: c.files[0][0] == self.path, lambda c: c.skipped == [],
                lambda c: "ids" in c, lambda c: c.digest("ids") is None, lambda c: c.nbytes > 0, lambda c: c._matching("i*") == ["ids"],
                lambda c: hoist.load_all(c, tensors=["ids"])["ids"].tobytes() == self.bytes["ids"],
                lambda c: hoist.plan(c).n_tensors == len(self.bytes), lambda c: "Checkpoint" in repr(c)]
        together = self.team(4)
        for number in range(TIMES):
            checkpoint = hoist.open(self.path)
            several = [uses[(number + k) % len(uses)] for k in (0, 4, 9)]
            got = together(self.end_of(checkpoint, number), *(lambda use=use: use(checkpoint) for use in several))
            if number % 4 == 0:
                self.assertEqual(got[1:], [True] * 3)

    def test_an_image_that_closes(self):
        together = self.team(4)
        with tempfile.TemporaryDirectory(prefix="hc", dir="/tmp") as runtime, \
                mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": runtime}):
            hoist.cache.add(self.path).close()
            for _ in range(TIMES):
                image = hoist.cache.attach(self.path)
                got = together(image.close, lambda: image["ids"].tobytes(), lambda: image.tensor("ids").nbytes,
                               lambda: (image.metadata, image.info.n_tensors, "ids" in image))
                for one, want in zip(got[1:], (self.bytes["ids"], 8000, ({}, len(self.bytes), True))):
                    self.assertTrue(isinstance(one, Exception) or one == want or one[-1] is False, one)
            hoist.cache.drop()
            until = time.monotonic() + 100
            while os.listdir(runtime) and time.monotonic() < until:  # the holder removes its folder
                time.sleep(0.01)

    # --- memory, flags, events ---

    def test_a_resource_in_python(self):
        class Mine(core.MemoryResource):
            """Memory of ctypes."""

            is_device_accessible, is_host_accessible, device_id = False, True, -1

            def __init__(self):
                self.blocks, self.n_given = {}, 0

            def allocate(self, size, stream=None):
                block = ctypes.create_string_buffer(size)
                self.blocks[ctypes.addressof(block)] = block
                return core.Buffer.from_handle(ctypes.addressof(block), size, mr=self)

            def deallocate(self, ptr, size, stream=None):
                del self.blocks[ptr]  # a KeyError if it is given back twice

        together, mine = self.team(4), Mine()
        for _ in range(TIMES):
            buffer = mine.allocate(64)
            together(buffer.close, buffer.close, lambda: mine.allocate(32).close(), lambda: bytes(np.from_dlpack(buffer)))
        del buffer
        gc.collect()
        self.assertEqual(mine.blocks, {})

    def test_flags(self):
        together, device = self.team(4), hoist.Device("cuda:0")
        own = [hoist.Stream(device) for _ in range(4)]
        for _ in range(TIMES):
            flag = driver.CompletionFlag(device)

            def wait(stream, flag=flag):
                stream.wait_for_host_value(flag, 7)
                driver.CompletionFlag(device).signal(1)
                return True
            got = together(lambda: wait(own[0]), lambda: wait(own[1]), lambda: flag.signal(7), lambda: driver.CompletionFlag(device).load())
            self.assertEqual((got[0], got[1], got[3]), (True, True, 0))
            del flag, wait
        for stream in own:
            stream.synchronize()

    def test_events(self):
        together, stream = self.team(4), hoist.Stream("cuda:0")
        event = driver.DeviceEvent("cuda:0")
        for _ in range(TIMES):
            got = together(lambda: stream.record_event(event), event.synchronize, lambda: event.is_ready(),
                           lambda: stream.wait_for(event))
            self.assertIs(got[0], event)

    # --- the end ---

    def test_the_interpreter_ends_under_threads(self):
        """Threads that are at work in loads and buffers when the interpreter ends."""
        program = """if 1:
            import sys, threading, hoist
            path = sys.argv[1]
            buffer, begun = hoist.Buffer("i32", (1000,), zero=True), threading.Barrier(4)
            def run():
                begun.wait()
                while True:
                    load = hoist.load(path)
                    load.progress(), load.fileno(), buffer[5:].tobytes(), load.wait()
            for _ in range(3): threading.Thread(target=run, daemon=True).start()
            begun.wait()
            load = hoist.load(path)"""
        for _ in range(1 + TIMES // 10):
            run = subprocess.run([sys.executable, "-c", program, self.path], check=False, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
            self.assertEqual(run.returncode, 0, run.stdout)


if __name__ == "__main__":
    unittest.main()
