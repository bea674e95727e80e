# SPDX-License-Identifier: MIT
"""Fork, the end of the interpreter, leaks, sub-interpreters, reference cycles.

HOIST_TEST_FORM=long repeats what chance decides.
"""

import asyncio
import copy
import ctypes
import gc
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import weakref

import numpy as np

import hoist
import hoist.safetensors.numpy as safetensors_numpy
from hoist import _hoist, core, driver
import consumer
import files

LONG = os.environ.get("HOIST_TEST_FORM") == "long"
FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()
HERE = os.path.dirname(os.path.abspath(__file__))


class WithModel(files.WithModel):
    model = {n: s for n, s in files.MODEL.items() if n != "big"}


class Fork(WithModel):
    def in_child(self, check):
        """Forks a child, which runs check(), and fails with its text."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            text = "nothing"
            try:
                text = str(check() or "")
            except BaseException as error:  # pylint: disable=broad-exception-caught
                text = repr(error)
            finally:
                os.write(write, text.encode()[:4000])
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as said:
            self.assertEqual(said.read(), "")
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_memory_of_the_host_lives_on(self):
        plain = hoist.load_all(self.path)
        mapped = hoist.load_all(self.path, io="map")
        adaptive = hoist.load_all(self.path, io="adaptive")
        views = {name: buffer[1:] for name, buffer in plain.items() if buffer.shape and buffer.shape[0]}
        array = np.asarray(plain["ids"])
        done = hoist.load(self.path)
        done.wait()
        ckpt = hoist.open(self.path)

        def check():
            for got in (plain, mapped, adaptive, dict(done), hoist.load_all(ckpt)):
                if {n: b.tobytes() for n, b in got.items()} != self.bytes:
                    return "other bytes"
            plain["ids"][:] = 7
            if array.sum() != 7000 or views["ids"][0].item() != 7:
                return "not the same memory"
            with hoist.load(self.path) as load:  # a load of the child's own
                return "" if len(dict(load)) == len(self.bytes) else "not all"

        self.in_child(check)
        self.assertEqual(plain["ids"].tobytes(), self.bytes["ids"])

    def test_what_a_child_cannot_use(self):
        """Threads and drivers do not live in a child."""
        stream = hoist.Stream("cuda:0")
        there = hoist.Buffer("f32", (4,), "cuda:0", zero=True)
        waiting = hoist.load(self.path, group=f"shm:test-fork-{os.getpid()}", rank="0/2")
        running = hoist.load(self.path, "cuda:0")
        cpu = hoist.load_all(self.path)["ids"]
        uses = [stream.synchronize, there.tobytes, there.copy, lambda: there[0].item(), lambda: str(there),
                lambda: there.__setitem__(0, 5), lambda: cpu.to("cuda:0"), running.wait, running.fileno,
                lambda: next(running), waiting.wait, waiting.fileno,
                lambda: hoist.Buffer("f32", (4,), "cuda:0"), lambda: hoist.Device("cuda:1"),
                lambda: hoist.load_all(self.path, "cuda:0")]

        def check():
            for number, use in enumerate(uses):
                try:
                    use()
                    return f"{number} works"
                except hoist.errors.StaleError as error:
                    if "spawn" not in str(error):
                        return f"{number}: {error}"
            for thing in (running, waiting, there):  # no hang, no crash
                thing.close()

        self.in_child(check)
        self.assertEqual({n: b.tobytes() for n, b in running}, self.bytes)
        waiting.close()

    def test_multiprocessing(self):
        import multiprocessing
        buffer = hoist.load_all(self.path)["ids"]
        with multiprocessing.get_context("fork").Pool(2, initializer=_keep, initargs=(buffer,)) as pool:
            want = int(np.asarray(buffer).sum())
            self.assertEqual(pool.map(_sum_of_kept, range(8)), [want] * 8)


_kept = []


def _keep(buffer):
    _kept.append(buffer)


def _sum_of_kept(_):
    return int(np.asarray(_kept[0]).sum())


# Work of all kinds, which the process's end interrupts.
BUSY = """
import os, signal, sys, threading, hoist
import numpy as np
how, seconds, path = sys.argv[1], float(sys.argv[2]), sys.argv[3]
kept = []
def work():
    stream = hoist.Stream("cuda:0")
    while True:
        load = hoist.load(path, "cuda:0", stream=stream, window="8M")
        kept.append((load, [next(load)]))
        kept.append(hoist.load(path, into={"ids": np.zeros(1000, "q")}))  # NumPy's deleter
        kept.append(hoist.load(path, group="shm:busy-%d-%d" % (os.getpid(), len(kept)), rank="0/2"))
        a = hoist.Buffer("f32", (1 << 16,), stream=stream, zero=True)
        b = hoist.from_dlpack(a.to("cpu"))
        a.copy_from(b)
        a.copy_from(hoist.from_dlpack(np.ones(1 << 16, "f")))
        kept.append(b)
        hoist.load_all(path, progress=lambda done, total: None)
        if len(kept) > 40:
            del kept[:20]
class Late:
    def __del__(self):  # runs while the interpreter ends
        try:
            hoist.load(path).cancel()
        except BaseException:
            pass
late = Late()
if how == "daemon":
    for _ in range(2):
        threading.Thread(target=work, daemon=True).start()
    threading.Event().wait(seconds)
    sys.exit(3)
if how == "interrupt":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
elif how == "killed":
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM)).start()
try:
    if how == "exit":
        done = threading.Timer(seconds, lambda: kept.append(None))
        done.start()
        while None not in kept:
            kept[:] = kept[-5:]
            kept.append(hoist.load(path, "cuda:0"))
            kept.append(hoist.load(path, into={"ids": hoist.Buffer("i64", (1000,))}))
        sys.exit(3)
    work()
except KeyboardInterrupt:
    sys.exit(3)
"""


class Exit(WithModel):
    def test_at_random_points(self):
        """No crash and no hang, however the process ends."""
        seed = int(os.environ.get("HOIST_TEST_SEED") or random.randrange(10**6))
        r = random.Random(seed)
        for n in range(200 if LONG else 12):
            how = ("daemon", "interrupt", "exit", "killed")[n % 4]
            seconds = r.random() * 0.6
            out = subprocess.run([sys.executable, "-X", "faulthandler", "-c", BUSY, how, str(seconds),
                                  self.path], capture_output=True, text=True, timeout=300, check=False)
            with self.subTest(how=how, seconds=seconds, seed=seed):
                self.assertEqual(out.returncode, -signal.SIGTERM if how == "killed" else 3, out.stderr)
                self.assertNotIn("Fatal", out.stderr)

    def test_finalizers_at_the_end(self):
        """Calls that another thread makes otherwise: no other thread runs any more."""
        code = ("import sys, hoist\nclass Late:\n def __del__(self, hoist=hoist, sys=sys, path=sys.argv[1], device=hoist."
                "Device('cuda:0')):\n  assert sys.is_finalizing()\n  device.synchronize()\n  hoist.open(path).close()\n"
                "  sys.stdout.write('done')\n  sys.stdout.flush()\nlate = Late()\n")
        out = subprocess.run([sys.executable, "-c", code, self.path], capture_output=True, text=True, timeout=100,
                             check=False)
        self.assertEqual((out.returncode, out.stdout, out.stderr), (0, "done", ""))

    def test_killed_at_once(self):
        """Nothing of a killed process is left: no memory in /dev/shm, no socket's file."""
        before = set(os.listdir("/dev/shm"))
        child = subprocess.Popen([sys.executable, "-c", BUSY, "daemon", "100", self.path])
        time.sleep(0.3)
        child.kill()
        child.wait()
        left = {name for name in set(os.listdir("/dev/shm")) - before if str(child.pid) in name}
        self.assertEqual(left, set())


class Info(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks "
                "fsmblks uordblks fordblks keepcost".split()]


_ask = ctypes.CDLL(None).mallinfo2
_ask.restype = Info


class Leaks(WithModel):
    """Rounds of everything leave nothing.  Each part is measured by itself."""

    def setUp(self):
        # In memory, where there is such a folder: syncing takes no time there.
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.addCleanup(self.folder.cleanup)
        self.out = os.path.join(self.folder.name, "out.safetensors")

    def loads(self):
        with hoist.open(self.path) as ckpt:
            list(ckpt.items())
            with hoist.load(ckpt, "cuda:0", tensors=["layers.*"], window="8M") as load:
                next(load)
            hoist.load_all(ckpt, targets=[hoist.Target(tensors="ids"), hoist.Target(tensors="i*")])
            ckpt.get_slice("layers.0.q")[3:9, ::-2].tobytes()
            str(hoist.plan(ckpt))
        ids = np.zeros(1000, "q")
        with hoist.load(self.path, into={"ids": ids}) as load:
            dict(load)
        for wrong in ({"tensors": "no"}, {"into": {"ids": ids[:5]}}, {"targets": [hoist.Target()] * 17}):
            try:
                hoist.load(self.path, **wrong)
            except hoist.Error:
                pass

    def event_loops(self):
        async def take():
            with hoist.load(self.path, tensors="layers.0.*") as load:
                async for _, buffer in load:
                    del buffer
            with hoist.load(self.path, tensors="ids") as load:
                await load
        asyncio.run(take())

    def saves(self):
        hoist.save({"a": hoist.Buffer("f32", (30, 7), "cuda:0", zero=True), "b": bytes(99)}, self.out, sync=False,
                   digest=True, metadata={"k": "v"}).wait()
        hoist.numpy.save_file({"a": np.ones(9)}, self.out)
        try:
            hoist.save({"a": 3}, self.out)
        except TypeError:
            pass

    def packages(self):
        """NumPy's arrays, and safetensors' interface."""
        hoist.numpy.load_file(self.path)["ids"].sum()
        safetensors_numpy.save_file({"a": np.ones((3, 4))}, self.out)
        with hoist.safetensors.safe_open(self.out, "np") as file:
            file.get_slice("a")[1:].sum(), file.get_tensor("a"), file.keys()  # pylint: disable=expression-not-assigned
        safetensors_numpy.load(safetensors_numpy.save({"a": np.ones(3)}))
        try:
            safetensors_numpy.load(b"no file")
        except hoist.safetensors.SafetensorError:
            pass

    @staticmethod
    def buffers():
        buffer = hoist.Buffer("f32", (4, 6), zero=True)
        buffer[1:, ::2] = 5.0
        buffer[..., None] = 1
        hoist.from_dlpack(np.asarray(buffer)).to("cuda:0").copy().tobytes()
        memoryview(buffer).release()
        hoist.Buffer.fork([buffer, buffer[1:]])
        pickle.loads(pickle.dumps(buffer, 5)), copy.deepcopy(buffer)  # pylint: disable=expression-not-assigned
        hoist.Budget("1M").used, str(buffer), hoist.device_count("cuda")  # pylint: disable=pointless-statement
        memory = ctypes.create_string_buffer(8)
        ended = []
        hoist.Buffer.from_address(ctypes.addressof(memory), 8, "u8", 8, release=lambda: ended.append(memory)).close()
        assert ended == [memory]
        there = hoist.Buffer("f32", (4,), "cuda:0")
        hoist.Buffer.from_cuda_array_interface(there).close()
        del there  # exported memory is parked until a wait for the device
        hoist.Device("cuda:0").synchronize()
        for wrong in (lambda: buffer[9], lambda: buffer.read_only().fill(1), lambda: hoist.Buffer("f33", 3)):
            try:
                wrong()
            except (hoist.Error, IndexError):
                pass

    def exchanges(self):
        """DLPack's tables, and what consumers drop or never take."""
        c, flags = consumer.library(), ctypes.c_uint64()
        buffer = hoist.Buffer("f32", (2, 2), zero=True)
        view = core.StridedMemoryView(np.ones((2, 2), "f4"), -1)
        for one in (buffer, view):
            table = consumer.table_of(type(one))
            c.around(table, ctypes.py_object(one), ctypes.byref(flags))
            assert c.add(table, ctypes.py_object(one), ctypes.c_float(1)) == 0
            assert c.drop(table, ctypes.py_object(one)) == 0
            one.__dlpack__(), one.__dlpack__(max_version=(1, 0))  # pylint: disable=expression-not-assigned
        try:
            c.around(consumer.table_of(hoist.Buffer), ctypes.py_object(buffer.read_only()), ctypes.byref(flags))
        except BufferError:
            pass

    @staticmethod
    def streams():
        stream, other = hoist.Stream("cuda:0"), hoist.Stream("cpu")
        flag = driver.CompletionFlag(hoist.Device("cuda:0"))
        stream.wait_for_host_value(flag, 1)
        event = stream.record_event()
        other.wait_for(event)
        flag.signal(1)
        other.synchronize()
        hoist.Device("cuda:0").synchronize()
        buffer = driver.Buffer.zeros((3, 4), driver.DType.float32, hoist.Device("cuda:0"))
        buffer.inplace_copy_from(driver.Buffer.zeros((3, 4), driver.DType.float32))
        buffer[0, 0].item()

    @staticmethod
    def resources():
        """hoist.core, and memory of other processes."""
        stream = hoist.Stream("cuda:0")
        pool = core.DeviceMemoryResource("cuda:0", {"ipc_enabled": True})
        with pool.allocate(64, stream=stream) as a, pool.allocate(64, stream=stream) as b:
            a.fill(1, stream=stream)
            a.copy_to(b, stream=stream)
            core.Buffer.from_ipc_descriptor(pool, b.get_ipc_descriptor()).close(stream)
            pool.get_allocation_handle().close()
        for resource in (core.PinnedMemoryResource(), core.ManagedMemoryResource(),
                         core.SynchronousMemoryResource(0), core.VirtualMemoryResource(0)):
            resource.allocate(64, stream=stream).close(stream)
        shared = hoist.Buffer("u8", (64,), shareable=True)
        payload, fd = _hoist.Memory.ipc_export(shared)
        _hoist.Memory.ipc_import(payload, fd).close()
        os.close(fd)
        pool._memory.trim()

    def cached(self):
        with hoist.cache.attach(self.path) as image:
            image["ids"][0].item()
        hoist.cache.list()

    @staticmethod
    def allocated():
        """Bytes of malloc() and blocks of Python's allocator that are in use."""
        gc.collect()
        sys._clear_type_cache()  # it keeps names of attributes, up to some thousands of them
        info = _ask()
        return info.uordblks + info.hblkhd, sys.getallocatedblocks()

    def holds(self):
        gc.collect()
        counted = (hoist.Buffer, hoist.Load, hoist.Budget, hoist.Stream, hoist.errors)
        return [sys.getrefcount(one) for one in counted], len(gc.get_objects()), \
            len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def leave_nothing(self, part, n):
        """Four times n rounds."""
        for _ in range(20):
            part()
        before, grown = self.holds(), []
        for _ in range(4):
            memory = self.allocated()
            for _ in range(n):
                part()
            now = self.allocated()
            grown.append((now[0] - memory[0], now[1] - memory[1]))
        after = self.holds()
        if not FREE_THREADED:  # which counts a type's references in each thread by itself
            self.assertEqual(after[0], before[0])
        self.assertLess(abs(after[1] - before[1]), 50)
        self.assertLessEqual(after[2], before[2], "descriptors")
        self.assertLessEqual(after[3], before[3] + 2, "threads that the engine keeps")
        # A round that loses a block of 16 bytes, the least one, loses it in all parts of the test; a
        # pool that grows, or a cache that fills, does so in one.
        self.assertLess(min(lost for lost, _ in grown), 16 * n, grown)
        self.assertLess(min(lost for _, lost in grown), n // 2, grown)

    def test_rounds_leave_nothing(self):
        for part in (self.loads, self.event_loops, self.saves, self.packages, self.buffers, self.exchanges,
                     self.streams, self.resources):
            with self.subTest(part=part.__name__):
                self.leave_nothing(part, 2500 if LONG else 125)

    def test_rounds_with_an_image_leave_nothing(self):
        with tempfile.TemporaryDirectory(prefix="hc", dir="/tmp") as runtime, \
                unittest.mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": runtime}):
            hoist.cache.add(self.path).close()
            try:
                self.leave_nothing(self.cached, 2500 if LONG else 125)
            finally:
                hoist.cache.drop()


class Cycles(WithModel):
    def test_callbacks(self):
        """A load that its own progress function refers to."""
        class Told:
            def __call__(self, done, total):
                pass

        for options in ({}, {"group": f"shm:test-cycle-{os.getpid()}", "rank": "0/2"}):
            told = Told()
            told.load = hoist.load(self.path, progress=told, **options)
            alive = weakref.ref(told.load)
            del told
            gc.collect()
            self.assertIsNone(alive())

    def test_the_end_of_a_load_that_is_in_use(self):
        """A load that is collected while it runs stops."""
        before = len(os.listdir("/proc/self/task"))
        load = hoist.load(self.path, group=f"shm:test-gone-{os.getpid()}", rank="0/2", group_timeout=300)
        self.assertGreater(len(os.listdir("/proc/self/task")), before)
        del load
        gc.collect()
        self.assertLessEqual(len(os.listdir("/proc/self/task")), before + 1)


SECOND = """
import hoist
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
second = interpreters.create()
code = '''
try:
    import hoist
except ImportError as error:
    assert "sub-interpreter" in str(error) or "subinterpreter" in str(error), error
else:
    raise SystemError("imported")
'''
error = interpreters.run_string(second, code)
assert error is None, error
interpreters.destroy(second)
buffer = hoist.Buffer("f32", (4,), zero=True)
assert buffer.tobytes() == bytes(16)
"""


class Interpreters(unittest.TestCase):
    def test_a_second_one_is_refused_in_words(self):
        out = subprocess.run([sys.executable, "-X", "faulthandler", "-c", SECOND], capture_output=True,
                             text=True, check=False)
        if "No module named '_interpreters'" in out.stderr:
            self.skipTest("this Python has no sub-interpreters")
        self.assertEqual((out.returncode, out.stderr), (0, ""))

    def test_a_second_import(self):
        code = ("import sys, hoist\nfor name in list(sys.modules):\n if name.startswith('hoist'): "
                "del sys.modules[name]\ntry:\n import hoist\nexcept ImportError as error:\n print(error)")
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertIn("can be imported once", out.stdout)


class Owners(unittest.TestCase):
    """Threads that drop the owners of memory while the interpreter ends."""

    # Threads whose drops wait for a stream, which goes on when the interpreter ends.
    WAITING = """if True:
        import hoist, sys, threading, time
        from hoist import driver
        stream = hoist.Stream(sys.argv[1])
        flag = driver.CompletionFlag(hoist.Device(sys.argv[1]))
        stream.wait_for_host_value(flag, 1)
        to = hoist.Buffer("u8", (1 << 18,), stream=stream)
        begun = threading.Semaphore(0)

        def work():
            buffer = hoist.Buffer.from_buffer(bytearray(1 << 18))
            begun.release()
            to.copy_from(buffer, stream=stream)  # waits itself, where the memory is not pinned
            del buffer

        for _ in range(20):
            threading.Thread(target=work, daemon=True).start()
        for _ in range(20):
            begun.acquire()
        """

    AFTER = """if True:
        import ctypes, hoist, threading
        memory, ended = ctypes.create_string_buffer(8), []

        def drop(number):
            hoist.Buffer.from_address(ctypes.addressof(memory), 8, "u8", 8, release=lambda: ended.append(number))

        def in_a_thread(number):
            thread = threading.Thread(target=drop, args=(number,))
            thread.start()
            thread.join()

        in_a_thread(1)
        hoist._hoist.end_drops()  # as the end of the interpreter does
        in_a_thread(2)
        drop(3)
        assert ended == [1, 3], ended
        """

    def run_it(self, *command):
        run = subprocess.run([sys.executable, "-X", "faulthandler", "-c", *command], capture_output=True,
                             text=True, timeout=100, check=False)
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_the_end_of_the_interpreter(self):
        for spec in ("cpu", "cuda:0", "hip:0"):
            self.run_it(self.WAITING, spec)

    def test_only_the_thread_that_ends_it_drops_owners(self):
        self.run_it(self.AFTER)


if __name__ == "__main__":
    unittest.main()
