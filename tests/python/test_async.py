# SPDX-License-Identifier: MIT
"""Loads in event loops, and loads that are interrupted."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import hoist
import files

try:
    import trio
except ImportError:
    trio = None
try:
    import anyio
except ImportError:
    anyio = None


class Async(files.WithModel):
    async def use(self):
        """All that a program can do in a loop."""
        async with hoist.load(self.path, "cuda:0", window="16M") as load:
            got = {}
            async for name, buffer in load:
                got[name] = buffer.tobytes()
                del buffer
            self.assertEqual(got, self.bytes)
        ids = np.zeros(1000, "q")
        with await hoist.load(self.path, into={"ids": ids}) as load:
            self.assertEqual(ids.tobytes(), self.bytes["ids"])
            self.assertEqual([name for name, _ in load], ["ids"])
        with hoist.load(self.path) as load:
            self.assertIs(await load, load)
            self.assertIs(await load, load)  # once more: nothing is left to wait for
            self.assertEqual({n: b.tobytes() for n, b in load}, self.bytes)
        with hoist.load(self.path, targets=[hoist.Target(tensors="ids"), hoist.Target("hip:0", tensors="i*")]) as load:
            self.assertEqual(sorted([item[:2] async for item in load]), [(0, "ids"), (1, "ids")])
        with hoist.open(self.path) as ckpt, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            told = []
            save = hoist.save(ckpt, path, progress=lambda *now: told.append(now))
            self.assertIs(await save, save)
            self.assertEqual(told[-1], (os.path.getsize(path),) * 2)
            self.assertEqual({n: b.tobytes() for n, b in hoist.load_all(path).items()}, self.bytes)
            load = hoist.load(ckpt)
            load.close()
            with self.assertRaises(hoist.errors.ClosedError):
                await load

        out, into = os.pipe()
        await hoist.waiting.readable(out, 0.001)  # nobody writes to it
        os.write(into, b"x")
        await hoist.waiting.readable(out)
        os.close(out)
        os.close(into)

    def test_asyncio(self):
        asyncio.run(self.use(), debug=True)

    @unittest.skipIf(trio is None, "no trio")
    def test_trio(self):
        trio.run(self.use)

    @unittest.skipIf(anyio is None, "no anyio")
    def test_anyio(self):
        anyio.run(self.use)
        if trio is not None:
            anyio.run(self.use, backend="trio")

    def test_no_threads_and_descriptors_are_left(self):
        async def many():
            loads = [hoist.load(self.path) for _ in range(8)]
            before = threading.active_count()
            await asyncio.gather(*loads)
            self.assertEqual(threading.active_count(), before)
            for load in loads:
                load.close()

        asyncio.run(many())
        before = len(os.listdir("/proc/self/fd"))
        asyncio.run(many())
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_a_group_waits_in_the_loop(self):
        """The first rank's wait leaves the loop to the task that starts the second."""
        async def both():
            name = f"shm:test-async-{os.getpid()}"
            first = asyncio.ensure_future(hoist.load(self.path, group=name, rank="0/2")._wait_async())
            await asyncio.sleep(0)
            second = hoist.load(self.path, group=name, rank="1/2")
            for load in await asyncio.gather(first, second):
                self.assertEqual({n: b.tobytes() for n, b in load}, self.bytes)
                load.close()

        asyncio.run(both())

    def waiting(self):
        """A load that waits for a rank that does not come."""
        return hoist.load(self.path, tensors="ids", group=f"shm:test-{os.getpid()}-{self.id()[-20:]}",
                          rank="0/2", group_timeout=300)

    def test_a_cancelled_task(self):
        async def cancel():
            with self.waiting() as load:
                task = asyncio.ensure_future(load._wait_async())
                await asyncio.sleep(0)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                load.cancel()
                with self.assertRaises(hoist.errors.CancelledError):
                    await load

        asyncio.run(cancel())

    def test_close_ends_the_waits(self):
        async def close():
            load = self.waiting()
            tasks = [asyncio.ensure_future(load._wait_async()) for _ in range(2)]
            await asyncio.sleep(0)
            load.close()
            for task in tasks:
                with self.assertRaises(hoist.errors.ClosedError):
                    await task

        asyncio.run(close())

    def test_a_failure(self):
        async def fail():
            with hoist.load(self.path, tensors="ids", group="shm:test-no-one", rank="1/2",
                            group_timeout=0.1) as load:
                with self.assertRaises(hoist.errors.TimedOutError):
                    await load
                with self.assertRaises(hoist.errors.TimedOutError):
                    async for _ in load:
                        pass

        asyncio.run(fail())


# An interrupt that comes between two steps of a wait is raised there, and cancels nothing: once more.
INTERRUPTED = """
import asyncio, os, signal, sys, threading, time, hoist
signal.signal(signal.SIGINT, signal.default_int_handler)
load = hoist.load(sys.argv[1], tensors="ids", group="shm:test-int-" + str(os.getpid()), rank="0/2",
                  group_timeout=300)
async def use(load):
    try:
        await load
    finally:
        load.cancel()
def waits():
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None and frame.f_code.co_name not in ("_take", "_run_once"):
        frame = frame.f_back
    return frame is not None
def interrupt():
    while not waits():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
for _ in range(20):
    thread = threading.Thread(target=interrupt, daemon=True)
    try:
        thread.start()
        {wait}
    except KeyboardInterrupt:
        pass
    thread.join()
    try:
        assert not load.wait(5)
    except hoist.errors.CancelledError:
        print("cancelled")
        break
"""


class Interrupts(files.WithModel):
    def test_each_wait(self):
        for wait in ("load.wait()", "next(load)", "load['ids']", "dict(load)", "load.wait(200)",
                     "asyncio.run(use(load))"):
            with self.subTest(wait=wait):
                out = subprocess.run([sys.executable, "-c", INTERRUPTED.format(wait=wait), self.path],
                                     capture_output=True, text=True, timeout=250, check=False)
                self.assertEqual(out.stdout, "cancelled\n", out.stderr)

    def test_in_place(self):
        """Nothing writes to the buffers once KeyboardInterrupt is raised, and it tells their states."""
        def interrupt(done, total):
            if not told:
                told.append(True)
                os.kill(os.getpid(), signal.SIGINT)

        told, big = [], np.zeros((1200, 1024), "f")
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with self.assertRaises(KeyboardInterrupt) as caught:
            hoist.load_all(self.path, into={"big": big}, progress=interrupt)
        now = big.tobytes()
        state = caught.exception.into_states["big"]
        self.assertIn(state, ("untouched", "torn", "whole"))
        if state != "torn":
            self.assertEqual(now, self.bytes["big"] if state == "whole" else bytes(len(now)))


if __name__ == "__main__":
    unittest.main()
