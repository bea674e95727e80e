# SPDX-License-Identifier: MIT
"""Every allocation and system call of libhoist and the extension fails once, and so does every
allocation of Python's: the exception is the right one, and nothing is left behind."""

import asyncio
import ctypes
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
import unittest

import hoist
import files

HERE = os.path.dirname(os.path.abspath(__file__))
MEMORY, SYSTEM = 1, 2  # the kinds of failing.c

# --- what is done while calls fail ---


def use(pairs):
    return [(name, buffer.tobytes()) for name, buffer in pairs]


def opened(path):
    with hoist.open(path) as ckpt:
        return list(ckpt.items()), ckpt.metadata, ckpt.files, repr(ckpt)


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
            return use([item async for item in load])
    return asyncio.run(take())


def a_group(path):
    with hoist.load(path, tensors="ids", group=f"shm:failing-{os.getpid()}", rank="0/1") as load:
        return use(load)


def buffers(_):
    buffer = hoist.Buffer("f32", (4, 6), zero=True)
    buffer[1:, ::2] = 5.0
    again = hoist.from_dlpack(buffer.permute((1, 0)))
    memoryview(buffer).tobytes()
    return again.copy().tobytes(), buffer[..., None, 3].shape, str(buffer), buffer.to("cuda:0").tobytes()


def cached(path):
    try:
        return hoist.cache.list(), hoist.cache.attach(path)
    except hoist.errors.NotFoundError:  # no image: as it should be
        return None


SCENARIOS = {f.__name__: f for f in (opened, streamed, on_a_device, whole, in_place, awaited, a_group,
                                     buffers, cached)}

# --- the process in which calls fail ---


class Calls:
    """Those of libhoist and the extension, by failing.c."""

    def __init__(self, kind):
        library = ctypes.CDLL(None)
        self.arm = lambda n: library.failing_arm(kind, n)
        self.disarm = library.failing_disarm
        assert self.arm(0) == 2, "the libraries were not found"
        self.disarm()


class Allocations:
    """Python's own."""

    def __init__(self):
        import _testcapi
        self._capi = _testcapi
        self._n = 0

    def arm(self, n):
        self._n = n
        if n > 0:
            self._capi.set_nomemory(n, n + 1)

    def disarm(self):
        self._capi.remove_mem_hooks()
        return self._n


# Where a scenario's allocations end is not known: after so many failures that changed nothing.
ENOUGH = 100


def is_python_itself(error, name):
    """CPython 3.11 loses the exception where a frame finds no memory.  A function of the extension that
    did so would be named; a slot would not be, and only `buffers` uses slots.
    """
    return isinstance(error, SystemError) and name != "buffers" and \
        str(error).startswith(("error return without", "<function "))


def is_right(error):
    if isinstance(error, hoist.Error):
        return bool(str(error)) and error.errno > 0 and \
            isinstance(error, hoist.errors._CLASSES.get(error.errno, hoist.errors.KernelError))
    return isinstance(error, MemoryError)


def holds():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def sweep(name, kind, path):
    """One failure after the other.  Prints: how many failed, and how many could not be helped."""
    scenario = SCENARIOS[name]
    want = scenario(path)
    scenario(path)
    failing = Allocations() if kind == "python" else Calls(MEMORY if kind == "memory" else SYSTEM)
    before, at, n_raised, n_same = holds(), 0, 0, 0
    while n_same < ENOUGH:
        at += 1
        error = got = None
        failing.arm(at)
        try:
            got = scenario(path)
        except BaseException as caught:  # pylint: disable=broad-exception-caught
            error = caught
        n = failing.disarm()
        if error is None:
            assert got == want, f"call {at}: another result"
            n_same += 1
        else:
            n_raised, n_same = n_raised + 1, 0
            assert is_right(error) or (kind == "python" and is_python_itself(error, name)), f"call {at}: " + "".join(traceback.format_exception(error))
        if n < at:
            break
        error = got = None
        assert holds()[0] <= before[0] + 2, f"call {at}: descriptors are left"
    assert scenario(path) == want
    print(at - 1, n_raised)


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

    def sweep(self, kind, name):
        environment = {**os.environ, "XDG_RUNTIME_DIR": self.folder.name}
        if kind != "python":
            environment["LD_PRELOAD"] = self.library
        out = subprocess.run([sys.executable, "-X", "faulthandler", os.path.abspath(__file__), "sweep",
                              name, kind, self.path], capture_output=True, text=True, timeout=1000,
                             env=environment, check=False)
        self.assertEqual(out.returncode, 0, out.stdout + out.stderr)
        return tuple(map(int, out.stdout.split()))

    def sweep_all(self, kind):
        n_failed = n_raised = 0
        for name in SCENARIOS:
            if kind == "python" and name == "awaited":
                continue  # asyncio itself does not bear a failure
            with self.subTest(scenario=name):
                failed, raised = self.sweep(kind, name)
                n_failed, n_raised = n_failed + failed, n_raised + raised
        self.assertGreater(n_raised, 0)
        self.assertGreater(n_failed, n_raised)

    def test_memory_of_hoist(self):
        self.sweep_all("memory")

    def test_system_calls_of_hoist(self):
        self.sweep_all("system")

    def test_memory_of_python(self):
        try:
            import _testcapi  # noqa: F401
        except ImportError:
            self.skipTest("this Python has no _testcapi")
        self.sweep_all("python")


if __name__ == "__main__":
    if sys.argv[1:2] == ["sweep"]:
        sweep(*sys.argv[2:])
    else:
        unittest.main()
