# SPDX-License-Identifier: MIT
"""Every allocation and system call of libhoist and the extension fails once, and so does every
fourth allocation of Python's: the exception is the right one, and nothing is left behind."""

import asyncio
import concurrent.futures
import contextlib
import copy
import ctypes
import gc
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

import hoist
from hoist import _hoist, core, driver
import consumer
import files
from test_vectors_files import ONE as MAX_FILE

HERE = os.path.dirname(os.path.abspath(__file__))
MEMORY, SYSTEM = 1, 2  # the kinds of failing.c
# Every fourth of Python's allocations fails, from a random one on; HOIST_TEST_FORM=long: every one.
PYTHON_STRIDE = 1 if os.environ.get("HOIST_TEST_FORM") == "long" else 4

# --- what is done while calls fail ---


def use(pairs):
    return [(name, buffer.tobytes()) for name, buffer in pairs]


def beside(path):
    """Where scenarios save: in a folder of its own."""
    return os.path.join(os.path.dirname(path), "out", "saved.safetensors")


def check_beside(path):
    """Each save leaves a file that can be read, or the one before, and no other file."""
    out = beside(path)
    left = os.listdir(os.path.dirname(out))
    assert left in ([], [os.path.basename(out)]), left
    if left:
        with open(out, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
            assert os.fstat(file.fileno()).st_size == file.tell() + end, "the file is not whole"


def opened(path):
    with hoist.open(path) as ckpt:
        return list(ckpt.items()), ckpt.metadata, ckpt.files, repr(ckpt), ckpt.digest("ids")


def streamed(path):
    with hoist.load(path, tensors="layers.*", order=["layers.1.q"], slices={"*.q": (1, 0, 2)}) as load:
        return use(load)


def on_a_device(path):
    with hoist.load(path, "cuda:0", tensors=["ids", "embed"], window="16M", dtype="f32") as load:
        return use(load)


def whole(path):
    return use(hoist.load_all(path, io="adaptive", budget="64M", tensors=["i*", "bytes"]).items())


def in_place(path):
    ids = hoist.Buffer("i64", (1000,), zero=True)
    with hoist.load(path, targets=[hoist.Target(into={"ids": ids}), hoist.Target(tensors="scale")]) as load:
        load.wait()
        return [(name, buffer.tobytes()) for _, name, buffer in load]


def awaited(path):
    async def take():
        with hoist.load(path, tensors="layers.0.*") as load:
            loaded = [item async for item in load]
        await hoist.save(dict(loaded), beside(path))
        return use(loaded)
    return asyncio.run(take())


def saved(path):
    """From a device, from the memory of an object, and from a checkpoint."""
    buffer = hoist.Buffer("f32", (300, 70), "cuda:0", zero=True)
    out = beside(path)
    with hoist.save({"a": buffer, "b": bytes(9999), "c": hoist.Buffer("u8", (5, 4), zero=True)[:, ::2]}, out,
                    digest=True, metadata={"k": "v"}):
        pass
    hoist.save({"a": buffer}, out, engine="threads", io="cached").wait()
    with hoist.open(path) as ckpt:
        hoist.save(ckpt, out, sync=False, shard_bytes="1G").wait()


def a_group(path):
    with hoist.load(path, tensors="ids", group=f"shm:failing-{os.getpid()}", rank="0/1") as load:
        return use(load)


def buffers(_):
    buffer = hoist.Buffer("f32", (4, 6), zero=True)
    buffer[1:, ::2] = 5.0
    again = hoist.from_dlpack(buffer.permute((1, 0)))
    memoryview(buffer).tobytes()
    return again.copy().tobytes(), buffer[..., None, 3].shape, str(buffer), buffer.to("cuda:0").tobytes()


def written(path, content):
    """Python's own open() fails in other ways."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
    return path


def mapped(path):
    beside_it = written(os.path.join(os.path.dirname(path), "mapped.bin"), bytes(range(256)))
    buffer = hoist.Buffer.mmap(beside_it, "u8", (16, 16), "readwrite")
    buffer[1:3].fill(7)
    buffer.flush()
    return buffer.tobytes(), hoist.Buffer.mmap(beside_it, "i16", (8,), "copyonwrite", offset=16).tobytes()


def waiting_streams(_):
    """Streams, events and flags, of each API."""
    got = []
    for spec in ("cuda:0", "hip:0", "cpu"):
        device = hoist.Device(spec)
        first, second = hoist.Stream(device), hoist.Stream(device)
        flag = driver.CompletionFlag(device)
        try:
            first.wait_for_host_value(flag, 1)
            event = first.record_event()
            second.wait_for(event)
        finally:  # nobody else would signal
            flag.signal(1)
        second.wait_for(first)
        second.synchronize()
        got.append((event.is_ready(), flag.load()))
    return got


def resources(_):
    """Memory of each kind, and a buffer for another process."""
    got = []
    for kind in ("host", "pinned", "device", "managed", "pool"):
        buffer = _hoist.Memory(kind, "cuda:0").alloc(4096)
        buffer.fill(3)
        got.append(buffer.tobytes())
    shared = hoist.Buffer("u8", (64,), shareable=True, zero=True)
    payload, fd = _hoist.Memory.ipc_export(shared)
    try:
        got.append(_hoist.Memory.ipc_import(payload, fd).tobytes())
    finally:
        os.close(fd)
    return got


def layouts(_):
    layout = core.StridedLayout((4, 6), None, 4)
    base = hoist.Buffer("i32", (4, 6), zero=True)
    view = core.StridedMemoryView.from_buffer(base, layout.permuted((1, 0)), "i32")
    return view.shape, view.strides, repr(layout), hoist.from_dlpack(view).tobytes()


def of_max(_):
    """hoist.driver, on CUDA and HIP."""
    got = []
    for device in (driver.Accelerator(1), hoist.Device("hip:0")):
        buffer = driver.Buffer.zeros((3, 4), driver.DType.float32, device)
        buffer.inplace_copy_from(driver.Buffer.zeros((3, 4), driver.DType.float32))
        got.append((buffer.device.spec, bytes(buffer.to(driver.CPU()).tobytes())))
    return got


def of_cuda_core(_):
    stream = hoist.Stream("cuda:0")
    pool = core.DeviceMemoryResource("cuda:0", {"ipc_enabled": True})
    with pool.allocate(256, stream=stream) as a, pool.allocate(256, stream=stream) as b:
        a.fill(5, stream=stream)
        a.copy_to(b, stream=stream)
        stream.synchronize()
        return b._buffer.tobytes()


def sliced(path):
    with hoist.open(path) as ckpt:
        return ckpt.get_slice("layers.0.q")[3:9, ::-2].tobytes()


def doctored(path):
    return len(hoist.doctor(os.path.dirname(path))) > 3


def added(path):
    """The holder stays until the end of the sweep."""
    with hoist.cache.add(path, replace=True) as image:
        return image["ids"].tobytes(), image.tensor("ids"), len(image), image.info.n_tensors


def cached(path):
    try:
        return hoist.cache.list(), hoist.cache.attach(path)
    except hoist.errors.NotFoundError:  # no image: as it should be
        return None


def planned(path):
    with hoist.open(path) as ckpt:
        plan = hoist.plan(ckpt, device="cuda:0", tensors="layers.*")
    return plan.n_tensors, len(str(plan)) > 100


def reported(path):
    with hoist.load(path, tensors="layers.*") as load:
        load.wait()
        explained = load.explain()
        return use(load), load.report()["bytes"], explained != ""


def kept_digests(path):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + ".xxh3")
    with hoist.open(path) as ckpt:
        ckpt.keep_digests()
    with hoist.open(path) as ckpt:
        return ckpt.digest("ids")


def forked(_):
    buffer = hoist.Buffer("f32", (4, 6), "cuda:0", zero=True)
    first, second = hoist.Buffer.fork([buffer, buffer[1:]])
    first.fill(3)
    return second.tobytes(), buffer.tobytes()


def exchanged(_):
    c, flags = consumer.library(), ctypes.c_uint64()
    buffer = hoist.Buffer("f32", (2, 3), zero=True)
    view = core.StridedMemoryView.from_buffer(buffer, (3, 2), "f32")
    got = [c.around(consumer.table_of(type(one)), ctypes.py_object(one), ctypes.byref(flags)).shape
           for one in (buffer, view)]
    return got, c.add(consumer.table_of(type(view)), ctypes.py_object(view), ctypes.c_float(2)), buffer.tobytes()


def array_interface(_):
    there = hoist.Buffer("f32", (2, 3), "cuda:0", zero=True)
    got = hoist.Buffer.from_cuda_array_interface(there[:, ::2])
    return got.shape, got.strides, got.tobytes()


def max_file(path):
    file = written(os.path.join(os.path.dirname(path), "one.max"), MAX_FILE)
    buffer = driver.load_max_buffer(file)
    return buffer.shape, buffer.tobytes()


def pools(_):
    """Attributes, handles, descriptors, and memory that grows and goes back."""
    pool = core.DeviceMemoryResource("cuda:0", {"ipc_enabled": True})
    stream = hoist.Stream("cuda:0")
    block = pool.allocate(64, stream=stream)
    pool.attributes.reuse_allow_opportunistic = False
    handle = pool.get_allocation_handle()
    try:
        other = core.DeviceMemoryResource.from_allocation_handle("cuda:0", handle)
        again = core.Buffer.from_ipc_descriptor(other, block.get_ipc_descriptor())
        block.fill(4, stream=stream)
        stream.synchronize()
        got = [again._buffer.tobytes(), pool.attributes.reuse_allow_opportunistic, pool.attributes.used_mem_high > 0]
        again.close()
    finally:
        handle.close()
    block.close(stream)
    pool._memory.trim()
    large = core.VirtualMemoryResource("cuda:0")
    block = large.allocate(4096)
    block.fill(1, stream=stream)
    return got, large.modify_allocation(block, 3 << 20).size


def pickled(_):
    buffer = hoist.Buffer("f32", (4, 6), "cuda:0", zero=True)
    buffer[1] = 2
    parts = []
    text = pickle.dumps(buffer, 5, buffer_callback=parts.append)
    return [pickle.loads(text, buffers=parts).tobytes(), pickle.loads(pickle.dumps(buffer)).tobytes(),
            copy.deepcopy(buffer).tobytes()]


SCENARIOS = {f.__name__: f for f in (planned, reported, kept_digests, forked, exchanged, array_interface, max_file,
                                     pools, pickled, opened, streamed, on_a_device, whole, in_place, awaited, saved, a_group,
                                     buffers, mapped, waiting_streams, resources, layouts, of_max,
                                     of_cuda_core, sliced, doctored, cached, added)}

# --- the process in which calls fail ---


class Calls:
    """Those of libhoist and the extension, by failing.c."""

    def __init__(self, kind):
        library = ctypes.CDLL(None)
        self.arm = lambda n: library.failing_arm(kind, n)
        self.disarm = library.failing_disarm
        assert self.arm(0) == 2, "the libraries were not found"
        self.disarm()


class DriverCalls:
    """Those of a stand-in for a driver."""

    def __init__(self, api):
        folder = os.path.join(os.path.dirname(hoist.__file__), "lib", "hoist")
        self._library = ctypes.CDLL(os.path.join(folder, f"libhoist-emulated-{api}.so"), os.RTLD_NOLOAD)
        self._before = 0

    def _count(self):
        counters = (ctypes.c_uint64 * 200)()  # "calls" is the first
        self._library.hoist_emulator_counters(counters)
        return counters[0]

    def arm(self, n):
        self._before = self._count()
        assert self._library.hoist_emulator_fail(f"any:{n}".encode()) == 0

    def disarm(self):
        self._library.hoist_emulator_fail(None)
        return self._count() - self._before


class Allocations:
    """Python's own."""

    def __init__(self):
        import _testcapi
        self._capi = _testcapi
        self._n = 0
        self._known = set(os.listdir("/proc/self/task"))

    def arm(self, n):
        self._n = n
        if n > 0:
            self._capi.set_nomemory(n, n + 1)

    @staticmethod
    def _is_python(thread):
        """Whether the thread runs, and is neither libhoist's nor a stand-in's: these block all signals."""
        try:
            with open(f"/proc/self/task/{thread}/status", "rb", buffering=0) as file:
                blocked = int(file.read().partition(b"SigBlk:")[2].split(None, 1)[0], 16)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return blocked & 1 << signal.SIGTERM - 1 == 0

    def _settle(self):
        """Python's threads end: one that frees memory while the hooks go would call half a hook."""
        until = time.monotonic() + 60  # detects a hang
        for thread in set(os.listdir("/proc/self/task")) - self._known:
            while self._is_python(thread):
                assert time.monotonic() < until, f"thread {thread} of Python's does not end"
                time.sleep(0.0005)

    def disarm(self):
        try:
            self._settle()
        except MemoryError:  # the one that fails had not come yet
            self._settle()
        self._capi.remove_mem_hooks()
        return self._n


# Where a scenario's allocations end is not known: after so many failures that changed nothing.
ENOUGH = 100


# Generator expressions that find no memory, without hoist.  CPython 3.12.1 and 3.13.0 crash.
GENERATORS = """
import _testcapi
def has_any(values):
    return any(value is not None for value in values)
for at in range(1, 60):
    _testcapi.set_nomemory(at, at + 1)
    try:
        has_any([None] * 3)
    except MemoryError:
        pass
    finally:
        _testcapi.remove_mem_hooks()
"""


def is_python_itself(error, name):
    """CPython 3.11 loses the exception where a frame finds no memory.  A function of the extension that
    did so would be named; a slot would not be, and only `buffers` uses slots.
    """
    if isinstance(error, pickle.PicklingError):  # which takes any failure of an import for its own
        return name == "pickled"
    if isinstance(error, ctypes.ArgumentError):  # the test's own arguments
        return name == "exchanged" and "MemoryError" in str(error)
    return isinstance(error, SystemError) and name != "buffers" and \
        str(error).startswith(("error return without", "<function "))


def is_right(error, kind):
    if kind in ("cuda", "hip"):
        # A number of the driver's, beside the texts: of a failure, and of a lack of memory.
        return isinstance(error, hoist.Error) and str(error) and \
            (error.driver_error, error.driver_api) != (0, None) and error.driver_api == kind
    if isinstance(error, hoist.Error):
        return bool(str(error)) and error.errno > 0 and \
            isinstance(error, hoist.errors._CLASSES.get(error.errno, hoist.errors.KernelError))
    return isinstance(error, MemoryError)


def holds():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def falls_to(n_descriptors):
    """Where the wait for a call in another thread failed, that call ends in its own time."""
    until = time.monotonic() + 60
    while holds()[0] > n_descriptors:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def sweep(name, kind, path):
    """One failure after the other.  Prints: how many failed, and how many could not be helped."""
    scenario = SCENARIOS[name]
    want = scenario(path)
    scenario(path)
    if kind in ("cuda", "hip"):
        failing = DriverCalls(kind)
    else:
        failing = Allocations() if kind == "python" else Calls(MEMORY if kind == "memory" else SYSTEM)
    stride = PYTHON_STRIDE if kind == "python" else 1
    gc.collect()
    gc.freeze()  # holds() looks for cycles among the objects that come from now on
    before, at, n_failed, n_raised, n_same = holds(), random.randrange(stride) + 1 - stride, 0, 0, 0
    while n_same < ENOUGH:
        at += stride
        error = got = None
        failing.arm(at)
        try:
            got = scenario(path)
        except BaseException as caught:  # pylint: disable=broad-exception-caught
            error = caught
        n = failing.disarm()
        check_beside(path)
        if error is None:
            assert got == want, f"call {at}: another result"
            n_same += 1
        else:
            n_raised, n_same = n_raised + 1, 0
            assert is_right(error, kind) or (kind == "python" and is_python_itself(error, name)), f"call {at}: " + "".join(traceback.format_exception(error))
        if n < at:
            break
        error = got = None
        n_failed += 1
        assert falls_to(before[0] + 2), f"call {at}: descriptors are left"
    assert scenario(path) == want
    if name == "added":
        hoist.cache.drop()
    print(n_failed, n_raised)


class Failing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "model.safetensors")
        files.write(cls.path, {n: s for n, s in files.MODEL.items() if n != "big"})
        cls.library = os.path.join(cls.folder.name, "failing.so")
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise unittest.SkipTest("no C compiler")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", cls.library,
                        os.path.join(HERE, "failing.c"), "-ldl"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_sweep(self, what):
        """In a process and a folder of its own."""
        kind, name = what
        folder = os.path.join(self.folder.name, f"{kind}-{name}")
        path = os.path.join(folder, os.path.basename(self.path))
        os.makedirs(os.path.dirname(beside(path)))
        shutil.copyfile(self.path, path)  # another link would change the file, for digests that are kept
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder}
        if kind in ("memory", "system"):
            environment["LD_PRELOAD"] = self.library
        return subprocess.run([sys.executable, "-X", "faulthandler", os.path.abspath(__file__), "sweep",
                               name, kind, path], capture_output=True, text=True, timeout=1000,
                              env=environment, check=False)

    def sweep(self, sweeps):
        """(kind, scenario) each, as many at a time as there are processors.  Returns: how many calls
        failed, and how many could not be helped."""
        n_failed = n_raised = 0
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for (kind, name), out in zip(sweeps, pool.map(self.run_sweep, sweeps)):
                with self.subTest(scenario=name, kind=kind):
                    self.assertEqual(out.returncode, 0, out.stdout + out.stderr)
                    failed, raised = map(int, out.stdout.split())
                    n_failed, n_raised = n_failed + failed, n_raised + raised
        return n_failed, n_raised

    def sweep_all(self, kind):
        # asyncio itself does not bear a failure of Python's memory.
        n_failed, n_raised = self.sweep([(kind, name) for name in SCENARIOS
                                         if kind != "python" or name != "awaited"])
        self.assertGreater(n_raised, 0)
        self.assertGreater(n_failed, n_raised)

    def test_memory_of_hoist(self):
        self.sweep_all("memory")

    def test_system_calls_of_hoist(self):
        self.sweep_all("system")

    def test_calls_of_drivers(self):
        of_cuda = ("on_a_device", "saved", "buffers", "waiting_streams", "resources", "of_max", "of_cuda_core",
                   "planned", "forked", "array_interface", "pools", "pickled")
        of_hip = ("waiting_streams", "of_max")  # the others use CUDA alone
        sweeps = [("cuda", name) for name in of_cuda] + [("hip", name) for name in of_hip]
        self.assertGreater(self.sweep(sweeps)[1], 50)

    def test_memory_of_python(self):
        try:
            import _testcapi  # noqa: F401
        except ImportError:
            self.skipTest("this Python has no _testcapi")
        if subprocess.run([sys.executable, "-c", GENERATORS], capture_output=True, check=False).returncode < 0:
            self.skipTest("this Python crashes where a generator expression finds no memory")
        self.sweep_all("python")


if __name__ == "__main__":
    if sys.argv[1:2] == ["sweep"]:
        sweep(*sys.argv[2:])
    else:
        unittest.main()
