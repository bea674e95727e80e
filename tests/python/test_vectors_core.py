# SPDX-License-Identifier: MIT
"""The specification's vectors of cuda.core's Buffer and resources: V131 to V160."""

import ctypes
import mmap
import multiprocessing
import os
import pickle
import sys

import hoist
from hoist import core
from vectors import GPUS, vectors

Core, vector = vectors("Vectors_core")


def pointer_to(block):
    """As a program has it: the CPU's pointer where there is one.  HIP's devices have another."""
    if not block.is_host_accessible:
        return block.address
    return ctypes.addressof((ctypes.c_char * block.nbytes).from_buffer(block))


class Resource(core.MemoryResource):
    """A user's resource in Python: blocks of one of hoist's kinds of memory."""

    def __init__(self, kind, device, host=None, on_device=None):
        self.memory = hoist._hoist.Memory(kind, hoist.Device(device))
        info = self.memory.info()
        self.host = info["is_host_accessible"] if host is None else host
        self.on_device = info["is_device_accessible"] if on_device is None else on_device
        self.id, self.blocks, self.freed = info["device_id"], {}, []

    def allocate(self, size, stream=None):
        block = self.memory.alloc(size)
        ptr = pointer_to(block)
        self.blocks[ptr] = block
        return core.Buffer.from_handle(ptr, size, mr=self)

    def deallocate(self, ptr, size, stream=None):
        self.freed.append((ptr, size))
        del self.blocks[ptr]

    is_host_accessible = property(lambda self: self.host)
    is_device_accessible = property(lambda self: self.on_device)
    device_id = property(lambda self: self.id)


KINDS = ("device", "managed", "pinned")


def stream_of(spec):
    return hoist.Device(spec).default_stream


def content(buffer, stream):
    stream.synchronize()
    return buffer._buffer.tobytes()


def address_of(data):
    return ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data))


@vector("V131", on=GPUS)
def initialization(t, spec):
    for kind in (*KINDS, "host"):
        mr = Resource(kind, spec if kind != "host" else "cpu")
        b = mr.allocate(1024)
        t.assertNotEqual(b.handle, 0)
        t.assertEqual((b.size, b.is_mapped), (1024, False))
        t.assertIs(b.memory_resource, mr)
        t.assertEqual((b.is_host_accessible, b.is_device_accessible), (mr.host, mr.on_device))
        b.close()
        t.assertEqual(len(mr.freed), 1)


@vector("V132", on=GPUS)
def copies(t, spec):
    stream = stream_of(spec)
    for kind in KINDS:
        mr = Resource(kind, spec)
        a, b, c = (mr.allocate(1024) for _ in range(3))
        a.fill(b"\x01\x02\x03\x04", stream=stream)
        t.assertIs(a.copy_to(b, stream=stream), b)
        c.copy_from(b, stream=stream)
        new = c.copy_to(stream=stream)
        for one in (b, c, new):
            t.assertEqual(content(one, stream), b"\x01\x02\x03\x04" * 256)
        with t.assertRaisesRegex(ValueError, "1024.*100"):
            a.copy_to(mr.allocate(100), stream=stream)
        stream.synchronize()


@vector("V133", on=GPUS)
def fills(t, spec):
    stream = stream_of(spec)
    for value, width in ((0x42, 1), (0x1234, 2), (0xDEADBEEF, 4)):
        b = core.DeviceMemoryResource(hoist.Device(spec)).allocate(1024, stream)
        b.fill(value, width, stream=stream)
        t.assertEqual(content(b, stream), value.to_bytes(width, "little") * (1024 // width))


@vector("V135", on=GPUS)
def fills_that_do_not_divide(t, spec):
    mr = core.DeviceMemoryResource(hoist.Device(spec))
    for size, width in ((1025, 2), (1026, 4)):
        with t.assertRaisesRegex(ValueError, "divisible"):
            mr.allocate(size).fill(1, width, stream=stream_of(spec))


@vector("V136", on=GPUS)
def close(t, spec):
    for kind in KINDS:
        b = Resource(kind, spec).allocate(100)
        b.close()
        b.close()
        t.assertEqual((b.handle, b.size, b.memory_resource, b.is_closed), (0, 0, None, True))


@vector("V137")
def host_memory_of_others(t):
    data = bytearray(20)
    b = core.Buffer.from_handle(address_of(data), 20, owner=data)
    t.assertEqual((b.is_host_accessible, b.is_device_accessible, b.device_id), (True, False, -1))
    t.assertIs(b.owner, data)


@vector("V139", on=GPUS)
def memory_of_drivers(t, spec):
    for kind in ("pinned", "managed"):
        block = Resource(kind, spec).memory.alloc(64)
        b = core.Buffer.from_handle(pointer_to(block), 64, owner=block)
        t.assertEqual((b.is_host_accessible, b.is_device_accessible, b.device_id), (True, True, 0))


def registering(spec):
    """The driver's calls as a program beside hoist makes them: register, unregister; the error of
    making the device current."""
    driver = ctypes.CDLL(hoist.Device(spec).info()["library"])
    if spec[0] == "h":
        return driver.hipHostRegister, driver.hipHostUnregister, driver.hipSetDevice(0)
    context = ctypes.c_void_p()
    err = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or driver.cuCtxSetCurrent(context)
    return driver.cuMemHostRegister_v2, driver.cuMemHostUnregister, err


@vector("V140", on=GPUS)
def host_memory_that_is_registered_later(t, spec):
    data = mmap.mmap(-1, 4096)
    address = ctypes.c_void_p(address_of(data))

    def where():
        b = core.Buffer.from_handle(address.value, 4096, owner=data)
        return b.is_host_accessible, b.is_device_accessible, b.device_id

    register, unregister, err = registering(spec)
    t.assertEqual(err, 0)
    t.assertEqual(where(), (True, False, -1))
    t.assertEqual(register(address, ctypes.c_size_t(4096), 0), 0)
    there = where()
    t.assertEqual(unregister(address), 0)
    t.assertEqual(there, (True, True, 0))
    t.assertEqual(where(), (True, False, -1))


@vector("V141")
def two_owners(t):
    with t.assertRaises(ValueError):
        core.Buffer.from_handle(0, 0, mr=Resource("host", "cpu"), owner=object())


@vector("V142")
def the_owner_is_kept(t):
    owner = bytearray(20)
    before = sys.getrefcount(owner)
    b = core.Buffer.from_handle(address_of(owner), 20, owner=owner)
    t.assertGreater(sys.getrefcount(owner), before)
    b.close()
    t.assertEqual(sys.getrefcount(owner), before)


@vector("V143", on=GPUS)
def dlpack(t, spec):
    for b in (core.DeviceMemoryResource(hoist.Device(spec)).allocate(1024),
              Resource("host", "cpu").allocate(1024)):
        t.assertIn('"dltensor"', repr(b.__dlpack__()))
        t.assertIn('"dltensor_versioned"', repr(b.__dlpack__(max_version=(1, 0))))
        for wrong in ({"dl_device": ()}, {"copy": True}, {"max_version": ()},
                      {"max_version": (9, 8, 7)}):
            t.assertRaises(BufferError, lambda wrong=wrong, b=b: b.__dlpack__(**wrong))


@vector("V144", on=GPUS)
def dlpack_device(t, spec):
    device, pinned = ((2, 0), (3, 0)) if spec[0] == "c" else ((10, 0), (11, 0))
    for kind, want in (("device", device), ("managed", pinned), ("pinned", pinned)):
        t.assertEqual(Resource(kind, spec).allocate(1024).__dlpack_device__(), want)
    t.assertEqual(Resource("host", "cpu").allocate(1024).__dlpack_device__(), (1, 0))


@vector("V145")
def memory_that_nobody_can_access(t):
    b = Resource("host", "cpu", host=False, on_device=False).allocate(64)
    before = sys.getrefcount(b)
    t.assertRaises(BufferError, b.__dlpack_device__)
    with t.assertRaisesRegex(BufferError, "invalid buffer"):
        b.__dlpack__()
    t.assertEqual(sys.getrefcount(b), before)


@vector("V147", on=GPUS)
def pools(t, spec):
    for which in (hoist.Device(spec), *([0] if spec == "cuda:0" else [])):
        mr = core.DeviceMemoryResource(which)
        t.assertEqual((mr.is_device_accessible, mr.is_host_accessible, mr.is_ipc_enabled,
                       mr.device_id), (True, False, False, 0))
        t.assertEqual(mr.allocate(1024).size, 1024)


@vector("V148", on=GPUS)
def blocks_differ(t, spec):
    mr = core.DeviceMemoryResource(hoist.Device(spec))
    a, b = mr.allocate(1024), mr.allocate(2048)
    t.assertNotEqual(a.handle, b.handle)
    t.assertEqual((a.size, b.size), (1024, 2048))


@vector("V149", on=GPUS)
def without_ipc(t, spec):
    mr = core.DeviceMemoryResource(hoist.Device(spec), {})
    b = mr.allocate(64)
    for call in (mr.get_allocation_handle, b.get_ipc_descriptor,
                 lambda: core.Buffer.from_ipc_descriptor(mr, None)):
        with t.assertRaisesRegex(RuntimeError, "Memory resource is not IPC-enabled"):
            call()


@vector("V150", on=GPUS)
def attributes(t, spec):
    mr = core.DeviceMemoryResource(hoist.Device(spec), {"max_size": 1 << 20})
    a = mr.attributes
    for name in a._NAMES[:3]:
        t.assertIs(type(getattr(a, name)), bool)
    for name in a._NAMES[3:]:
        t.assertGreaterEqual(getattr(a, name), 0)
    t.assertGreaterEqual(a.used_mem_high, a.used_mem_current)
    t.assertGreaterEqual(a.reserved_mem_high, a.reserved_mem_current)
    mr.close()
    other = core.DeviceMemoryResource(hoist.Device(spec), {})
    with t.assertRaisesRegex(RuntimeError, "is expired"):
        _ = a.used_mem_high
    t.assertGreaterEqual(other.attributes.used_mem_high, 0)


@vector("V151", on=GPUS)
def one_resource_for_graphs(t, spec):
    a = core.GraphMemoryResource(hoist.Device(spec))
    t.assertIs(core.GraphMemoryResource(hoist.Device(spec)), a)
    if spec == "cuda:0":  # the ordinal 0
        t.assertIs(core.GraphMemoryResource(0), a)


@vector("V153")
def no_rdma(t):
    for spec in ("cuda:1", "hip:0"):
        with t.assertRaises(RuntimeError):
            core.VirtualMemoryResource(hoist.Device(spec), {"gpu_direct_rdma": True})


def shareable(spec):
    return core.DeviceMemoryResource(hoist.Device(spec), {"ipc_enabled": True})


@vector("V154", on=GPUS)
def wrong_descriptors(t, spec):
    mr = shareable(spec)
    b = mr.allocate(1024)
    good = b.get_ipc_descriptor()
    make = core.IPCBufferDescriptor._init
    t.assertRaises(ValueError, core.Buffer.from_ipc_descriptor, mr, make(bytes(8), 1024))
    with t.assertRaisesRegex(ValueError, "exceeds .* mapped allocation extent"):
        core.Buffer.from_ipc_descriptor(mr, make(good._payload, 102400))
    t.assertRaises(RuntimeError, core.IPCBufferDescriptor)


@vector("V155", on=GPUS)
def another_pool(t, spec):
    mr = shareable(spec)
    b = mr.allocate(64)
    t.assertRaises(hoist.Error, core.Buffer.from_ipc_descriptor, shareable(spec), b.get_ipc_descriptor())
    t.assertRaises(TypeError, core.Buffer.from_ipc_descriptor, mr, b)


def take(pipe):
    """In another process: what it is asked to do with what it is sent."""
    try:
        mr = pipe.recv()
        first, again = pipe.recv(), pipe.recv()
        answer = {"size": first.size, "is_mapped": first.is_mapped,
                  "same": first.handle == again.handle, "seen": first._buffer.tobytes()}
        try:
            mr.allocate(10)
        except TypeError:
            answer["allocate"] = "TypeError"
        first.fill(b"B", stream=mr.device.default_stream)
        mr.device.synchronize()
        first.close()
        again.close()
        pipe.send(answer)
    except BaseException as error:  # the parent tells
        pipe.send({"error": repr(error)})
        raise


def child(t, spec):
    """A child that has a pool's buffer twice: what it says, and what the parent sees then."""
    mr = shareable(spec)
    b = mr.allocate(1024)
    b.fill(b"A", stream=mr.device.default_stream)
    mr.device.synchronize()
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=take, args=(theirs,))
    process.start()
    theirs.close()
    ours.send(mr)
    ours.send(b)
    ours.send(b)
    answer = ours.recv() if ours.poll(60) else {"error": "no answer"}
    process.join(30)
    t.assertEqual(process.exitcode, 0)
    return answer, b._buffer.tobytes()


@vector("V156", on=GPUS)
def a_mapped_pool(t, spec):
    answer, _ = child(t, spec)
    t.assertEqual(answer.get("allocate"), "TypeError")
    text = pickle.dumps(shareable(spec).allocate(10))
    core.ipc._registry.clear()
    with t.assertRaisesRegex(RuntimeError, "was not found"):
        pickle.loads(text)


@vector("V157", on=GPUS)
def two_processes(t, spec):
    answer, seen = child(t, spec)
    t.assertEqual((answer.get("size"), answer.get("is_mapped"), answer.get("seen")),
                  (1024, True, b"A" * 1024))
    t.assertEqual(seen, b"B" * 1024)


@vector("V159", on=GPUS)
def imported_twice(t, spec):
    t.assertIs(child(t, spec)[0].get("same"), True)


@vector("V160", on=GPUS)
def handles(t, spec):
    handle = shareable(spec).get_allocation_handle()
    t.assertGreaterEqual(int(handle), 0)
    os.fstat(handle.handle)
    handle.close()
    handle.close()
    t.assertTrue(handle.is_closed and bool(handle))
    t.assertRaises(ValueError, int, handle)
    t.assertRaises(ValueError, core.IPCAllocationHandle._init, -1, None)
