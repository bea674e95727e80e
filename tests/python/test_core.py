# SPDX-License-Identifier: MIT
"""hoist.core: the resources' options, and memory that is named by an address."""

import ctypes
import threading
import time
import unittest

import hoist
from hoist import core, driver

GPUS = ("cuda:0", "hip:0")


def content(buffer, stream):
    stream.synchronize()
    return buffer._buffer.tobytes()


class Resources(unittest.TestCase):
    """What resources take, and what they say of themselves."""

    def test_virtual_options(self):
        for spec in GPUS:
            device = hoist.Device(spec)
            usual = core.VirtualMemoryResource(device).allocate(1)
            small = core.VirtualMemoryResource(device, {"granularity": "minimum"}).allocate(1)
            self.assertLess(small.size, usual.size)
            aligned = core.VirtualMemoryResource(device, {"addr_align": 1 << 26}).allocate(1)
            self.assertEqual(aligned.handle % (1 << 26), 0)
            hint = aligned.handle + (1 << 30)
            hinted = core.VirtualMemoryResource(device, {"addr_hint": hint}).allocate(1)
            self.assertEqual(hinted.handle, hint)
            for buffer in (usual, small, aligned, hinted):
                buffer.close()

    def test_virtual_options_that_are_refused(self):
        for config in ({"granularity": "large"}, {"allocation_type": "managed"},
                       {"location_type": "host"}, {"handle_type": "fabric"}, {"self_access": "w"},
                       {"peer_access": "x"}, {"addr_align": 3}, {"peers": [object()]}):
            with self.assertRaises((ValueError, TypeError), msg=config):
                core.VirtualMemoryResource("cuda:0", config)
        with self.assertRaisesRegex(hoist.Error, "hip:0 cannot access memory of cuda:0"):
            core.VirtualMemoryResource("cuda:0", {"peers": ["hip:0"]})

    def test_access_of_virtual_memory(self):
        writable = core.VirtualMemoryResource("cuda:0", {"peers": ["cuda:1"], "peer_access": "r"})
        with writable.allocate(64) as buffer:
            buffer.fill(3, stream=None)
        closed = core.VirtualMemoryResource("cuda:0", {"self_access": None}).allocate(64)
        with self.assertRaises(hoist.Error):
            closed.fill(3, stream=None)
        closed.close()

    def test_peers_of_a_pool(self):
        pool = core.DeviceMemoryResource("cuda:0", {"max_size": 1 << 20})
        pool.peer_accessible_by = []
        self.assertEqual(pool.peer_accessible_by, frozenset())
        pool.peer_accessible_by = [0, hoist.Device("cuda:1")]
        self.assertEqual(pool.peer_accessible_by, frozenset([1]))
        pool.peer_accessible_by = []
        self.assertEqual(pool.peer_accessible_by, frozenset())
        with self.assertRaises((ValueError, hoist.Error)):
            pool.peer_accessible_by = [7]
        self.assertFalse(pool.is_closed)
        pool.close()
        self.assertTrue(pool.is_closed)
        with self.assertRaises(RuntimeError):
            pool.peer_accessible_by  # pylint: disable=pointless-statement

    def test_attributes_of_graph_memory(self):
        for spec in GPUS:
            attributes = core.GraphMemoryResource(hoist.Device(spec)).attributes
            self.assertEqual((attributes.used_mem_current, attributes.reserved_mem_high), (0, 0))
            attributes.used_mem_high = 0
            with self.assertRaises(ValueError):
                attributes.used_mem_high = 1
            with self.assertRaises(AttributeError):
                attributes.release_threshold  # pylint: disable=pointless-statement
            with self.assertRaises(AttributeError):
                attributes.release_threshold = 1

    def test_where_managed_memory_is_preferred(self):
        for options, device, location in ((None, -1, None), ({"preferred_location": 1}, 1,
                                                             ("device", 1)),
                                          ({"preferred_location": -1}, -1, ("host", None)),
                                          ({"preferred_location_type": "host"}, -1, ("host", None)),
                                          ({"preferred_location_type": "host_numa",
                                            "preferred_location": 0}, -1, ("host_numa", 0))):
            mr = core.ManagedMemoryResource(options, "cuda:0")
            self.assertEqual((mr.device_id, mr.preferred_location), (device, location))
        with self.assertRaises(ValueError):
            core.ManagedMemoryResource({"preferred_location_type": "moon"}, "cuda:0")


class Buffers(unittest.TestCase):
    """Buffers over memory of others, and buffers that are closed."""

    def test_either_address_of_pinned_memory(self):
        for spec in GPUS:
            pinned = core.PinnedMemoryResource(device=hoist.Device(spec)).allocate(64)
            again = core.Buffer.from_handle(pinned.handle, 64, owner=pinned)
            self.assertEqual(again.handle, pinned.handle)
            pinned.fill(7, stream=None)
            host = bytearray(64)
            core.Buffer.from_handle(hoist.Buffer.from_buffer(host).address, 64,
                                    owner=host).copy_from(again, stream=hoist.Stream(spec))
            hoist.Device(spec).synchronize()
            self.assertEqual(bytes(host), b"\7" * 64)
            self.assertEqual(bytes(memoryview(again._buffer)), b"\7" * 64)

    def test_a_closed_buffer_refuses_what_it_is_asked(self):
        buffer = core.DeviceMemoryResource("cuda:0").allocate(4)
        other = core.DeviceMemoryResource("cuda:0").allocate(4)
        buffer.close()
        for ask in (lambda: buffer.device_id, lambda: buffer.is_managed,
                    lambda: buffer.__dlpack__(), lambda: buffer.fill(0, stream=None),
                    lambda: buffer.copy_to(other, stream=None),
                    lambda: other.copy_to(buffer, stream=None),
                    lambda: other.copy_from(buffer, stream=None)):
            with self.assertRaisesRegex(RuntimeError, "was closed"):
                ask()
        self.assertEqual((buffer.handle, buffer.size, buffer.memory_resource), (0, 0, None))

    def test_views_of_shape_and_strides(self):
        buffer = core.PinnedMemoryResource(device="cuda:0").allocate(64)
        view = core.StridedMemoryView.from_buffer(buffer, (2, 3), "i32", strides=(4, 1))
        self.assertEqual((view.shape, view.strides, view.layout.itemsize), ((2, 3), (4, 1), 4))
        self.assertEqual((view.device_id, view.is_device_accessible), (-1, True))
        for keywords in ({}, {"itemsize": 32}, {"dtype": "i32", "itemsize": 8},
                         {"dtype": "i32", "strides": (1,)}):
            with self.assertRaises(ValueError, msg=keywords):
                core.StridedMemoryView.from_buffer(buffer, (2, 3), **keywords)
        with self.assertRaises(BufferError):
            core.StridedMemoryView.from_any_interface(object(), -1)


class Examples(unittest.TestCase):
    """The memory examples of cuda.core, as they stand there."""

    def test_a_program_of_cuda_core(self):
        dev = core.Device(0)
        dev.set_current()
        self.assertIs(dev, hoist.Device("cuda:0"))
        self.assertEqual((dev.device_id, core.Device(1).device_id), (0, 1))
        stream = dev.create_stream()
        options = core.DeviceMemoryResourceOptions(max_size=1 << 20)
        pool = core.DeviceMemoryResource(dev.device_id, options=options)
        pinned = core.PinnedMemoryResource(core.PinnedMemoryResourceOptions())
        a, b = pool.allocate(256, stream=stream), pinned.allocate(256, stream=stream)
        a.fill(7, stream=stream)
        a.copy_to(b, stream=stream)
        stream.sync()
        self.assertEqual(b._buffer.tobytes(), b"\7" * 256)
        other = dev.create_stream()
        a.set_deallocation_stream(other)
        self.assertFalse(a.is_closed)
        a.close()
        b.close(stream)
        dev.sync()
        self.assertEqual((stream.handle, stream.__cuda_stream__()), (stream.native, (0, stream.native)))
        stream.close()
        stream.synchronize()
        self.assertRaises(hoist.errors.OutOfMemoryError, pool.allocate, 2 << 20)
        self.assertRaises(ValueError, core.Device, 9)
        self.assertRaises(ValueError, core.Device, -1)

    def test_options(self):
        pinned = core.PinnedMemoryResource({"numa_id": -1})
        self.assertEqual((pinned.is_ipc_enabled, pinned.numa_id), (False, -1))
        with self.assertRaisesRegex(ValueError, "numa_id is -5"):
            core.PinnedMemoryResource({"numa_id": -5})
        node = core.PinnedMemoryResource({"numa_id": 0})
        self.assertEqual(node.numa_id, 0)
        with node.allocate(8) as b:
            memoryview(b._buffer)[:] = b"12345678"
        with self.assertRaisesRegex(hoist.errors.InvalidError, "500"):
            core.PinnedMemoryResource({"numa_id": 500})
        for wrong in (core.PinnedMemoryResourceOptions(ipc_enabled=True),):
            with self.subTest(wrong=wrong), self.assertRaises(NotImplementedError):
                core.PinnedMemoryResource(wrong)
        managed = core.ManagedMemoryResource(core.ManagedMemoryResourceOptions(0, "device"))
        self.assertEqual(managed.preferred_location, ("device", 0))
        self.assertGreaterEqual(core.VirtualMemoryResource(
            0, core.VirtualMemoryResourceOptions(peers=[1], granularity="minimum")).allocate(1).size, 1)
        self.assertTrue(core.DeviceMemoryResource(0, core.DeviceMemoryResourceOptions(True)).is_ipc_enabled)

    def test_the_deallocation_stream(self):
        given = []

        class Mine(core.MemoryResource):
            def deallocate(self, ptr, size, stream=None):
                given.append(stream)

        stream = hoist.Stream("cuda:0")
        memory = ctypes.create_string_buffer(8)
        buffer = core.Buffer.from_handle(ctypes.addressof(memory), 8, mr=Mine())
        buffer.set_deallocation_stream(stream)
        self.assertRaises(TypeError, buffer.set_deallocation_stream, None)
        buffer.close()
        self.assertEqual(given, [stream])
        self.assertRaises(RuntimeError, buffer.set_deallocation_stream, stream)


class Synchronous(unittest.TestCase):
    def test_its_end_waits_for_the_stream(self):
        for spec in GPUS:
            with self.subTest(spec=spec):
                mr, stream = core.SynchronousMemoryResource(spec), hoist.Stream(spec)
                self.assertEqual((mr.is_device_accessible, mr.is_host_accessible, mr.is_managed, mr.device_id),
                                 (True, False, False, 0))
                flag = driver.CompletionFlag(hoist.Device(spec))
                a, b = mr.allocate(64), mr.allocate(64, stream=stream)
                self.assertNotEqual(a.handle, b.handle)
                a.fill(5, stream=stream)
                self.assertEqual(content(a, stream), b"\5" * 64)
                stream.wait_for_host_value(flag, 1)
                a.set_deallocation_stream(stream)
                ended = []
                closing = threading.Thread(target=lambda: (a.close(), ended.append(flag.load())))
                closing.start()
                time.sleep(0.05)
                flag.signal(1)
                closing.join()
                self.assertEqual((ended, a.is_closed), ([1], True))
                self.assertEqual(list(mr._blocks), [b.handle])
                b.close()
                self.assertEqual(mr._blocks, {})


class Batches(unittest.TestCase):
    def test_copies(self):
        stream = hoist.Stream("cuda:0")
        mr = core.DeviceMemoryResource("cuda:0", {})
        sources, targets = ([mr.allocate(64, stream=stream) for _ in range(3)] for _ in range(2))
        for value, source in enumerate(sources):
            source.fill(value, stream=stream)
        core.utils.copy_batch(stream, sources, targets)
        self.assertEqual([content(target, stream) for target in targets], [bytes([i]) * 64 for i in range(3)])
        for error, *wrong in ((ValueError, (), ()), (TypeError, sources[0], targets), (TypeError, sources, targets[0]),
                              (ValueError, sources, targets[1:]), (TypeError, [1], targets[:1]),
                              (ValueError, sources[:1], [mr.allocate(65, stream=stream)])):
            self.assertRaises(error, core.utils.copy_batch, stream, *wrong)
        self.assertRaises(TypeError, core.utils.copy_batch, None, sources, targets)
        with self.assertRaises(hoist.errors.UnsupportedError):
            core.utils.copy_batch(stream, sources, targets, options=object())

    def test_no_buffer_protocol(self):
        buffer = core.PinnedMemoryResource().allocate(8)
        self.assertRaises(NotImplementedError, buffer.__buffer__, 0)
        self.assertRaises((NotImplementedError, TypeError), memoryview, buffer)  # Python 3.11: no __buffer__


if __name__ == "__main__":
    unittest.main()
