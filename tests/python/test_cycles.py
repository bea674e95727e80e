# SPDX-License-Identifier: MIT
"""Reference cycles through memory that Python objects own, and through loads and saves, are collected."""

import ctypes
import gc
import os
import threading
import time
import unittest
import weakref

import numpy as np

import hoist
from hoist import core, driver
import files


class Array(np.ndarray):
    """An array with attributes."""


class Owner:
    """Memory with attributes."""

    def __init__(self):
        self.memory = ctypes.create_string_buffer(64)
        self.address = ctypes.addressof(self.memory)


def an_array():
    x = np.zeros(1000, "i8").view(Array)
    x.buffer = hoist.Buffer.from_buffer(x)
    return x


def of_a_class():
    x = np.zeros(1000, "i8").view(Array)
    x.buffer = driver.Buffer.from_buffer(x)
    return x


def an_owner():
    x = Owner()
    x.buffer = hoist.Buffer.from_address(x.address, 64, "u8", 64, owner=x)
    return x


def a_view_alone():
    x = an_owner()
    x.buffer = x.buffer[1:]
    return x


def a_function(ended):
    x = Owner()
    x.buffer = hoist.Buffer.from_address(x.address, 64, "u8", 64, owner=x.memory,
                                         release=lambda: ended.append(x.address))
    return x


def a_resource(given_back):
    class Mine(core.MemoryResource):
        is_device_accessible, is_host_accessible, device_id = False, True, -1

        def __init__(self):
            self.kept, self.blocks = [], {}

        def allocate(self, size, stream=None):
            block = ctypes.create_string_buffer(size)
            self.blocks[ctypes.addressof(block)] = block
            self.kept.append(core.Buffer.from_handle(ctypes.addressof(block), size, mr=self))
            return self.kept[-1]

        def deallocate(self, ptr, size, stream=None):
            del self.blocks[ptr]
            given_back.append(size)

    x = Mine()
    x.allocate(32)
    x.allocate(48)
    return x


class Cycles(files.WithModel):
    def assertCollected(self, make):
        gc.disable()
        self.addCleanup(gc.enable)
        x = make()
        seen = weakref.ref(x)
        del x
        self.assertIsNotNone(seen(), "there was no cycle")
        gc.collect()
        self.assertIsNone(seen())
        gc.enable()

    def test_memory_of_objects(self):
        for make in (an_array, of_a_class, an_owner, a_view_alone):
            with self.subTest(make=make.__name__):
                self.assertCollected(make)

    def test_functions_are_called_while_their_objects_are_whole(self):
        ended, given_back = [], []
        self.assertCollected(lambda: a_function(ended))
        self.assertEqual(len(ended), 1)
        self.assertCollected(lambda: a_resource(given_back))
        self.assertEqual(sorted(given_back), [32, 48])

    def load(self, *, take=None):
        x = np.zeros(1000, "i8").view(Array)
        x.load = hoist.load(self.path, into={"ids": x})
        if take is not None:
            x.taken = take(x.load)
            self.assertEqual(x.tobytes(), self.bytes["ids"])
        return x

    def test_loads_in_place(self):
        for take in (None, hoist.Load.wait, list, dict, lambda load: load["ids"], hoist.Load.report):
            with self.subTest(take=take):
                self.assertCollected(lambda: self.load(take=take and (lambda load: (load.wait(), take(load)))))

    def test_a_load_that_runs_ends_first(self):
        for _ in range(20):
            self.assertCollected(self.load)

    def test_a_load_in_place_gives_the_buffer_that_it_got(self):
        buffer = hoist.Buffer.from_buffer(np.zeros(1000, "i8"))
        got = hoist.load_all(self.path, into={"ids": buffer})
        self.assertIs(got["ids"], buffer)

    def test_callbacks(self):
        def make():
            def told(*_):
                return load
            load = hoist.load(self.path, progress=told)
            load.wait()
            return load
        self.assertCollected(make)

        def save():
            x = an_array()
            x.save = hoist.save({"a": x.buffer}, os.path.join(self.folder.name, "out.npy"))
            x.save.wait()
            x.save.close()
            return x
        self.assertCollected(save)

    def test_memory_that_others_use_stays(self):
        """What is garbage but for an export is whole as long as the export lives."""
        exports = [lambda b: b.__dlpack__(), lambda b: b.__dlpack__(max_version=(1, 0)), memoryview, np.asarray,
                   lambda b: np.from_dlpack(b), lambda b: core.StridedMemoryView(b, -1),
                   lambda b: hoist.from_dlpack(b)]
        for number, export in enumerate(exports):
            with self.subTest(number=number):
                x = an_owner()
                x.memory.raw = bytes(range(64))
                kept = export(x.buffer)
                seen = weakref.ref(x)
                del x
                gc.collect()
                self.assertEqual(bytes(seen().memory.raw), bytes(range(64)))
                self.assertEqual(seen().buffer.tobytes(), bytes(range(64)))
                del kept
                gc.collect()
                self.assertIsNone(seen())

    def test_the_collector_beside_work(self):
        """Collections in one thread, while others copy out of buffers of garbage and make views.

        The others wait for the next collection after so many arrays: a slow collector has no more to collect.
        """
        stop, wrong, n_collected = threading.Event(), [], [0]

        def work():
            n_made = 0
            while not stop.is_set():
                if n_made == 100 * (n_collected[0] + 1):
                    time.sleep(0.001)
                    continue
                n_made += 1
                x = an_array()
                x[:] = 7
                view = x.buffer[10:20]
                del x
                if view.copy().tobytes() != b"\x07\0\0\0\0\0\0\0" * 10:
                    wrong.append(view)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for _ in range(100):
            gc.collect()
            n_collected[0] += 1
        stop.set()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
