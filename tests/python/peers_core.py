# SPDX-License-Identifier: MIT
"""hoist.core beside cuda.core: the same random calls on both, and the same answers.

Both use the stand-in for libcuda, so that the test needs no GPU:

    hoist emulate --devices cuda:1 -- python -m unittest tests/python/peers_core.py

Skipped where cuda-core or NumPy is not installed.  HOIST_TEST_SEED repeats a run, HOIST_TEST_ROUNDS
(400) says how many calls are made of each kind.  WANTED has the differences that are meant.
"""

import os
import random
import unittest

try:
    import numpy as np
    import cuda.core as theirs
    from cuda.core import utils as their_utils
    from cuda.core._layout import _StridedLayout as TheirLayout
    MISSING = None
except ImportError as error:
    MISSING = f"{error}; pip install --no-deps cuda-core cuda-bindings cuda-pathfinder numpy"

if MISSING is None:
    import hoist.core as ours

SEED = int(os.environ.get("HOIST_TEST_SEED") or random.randrange(1 << 31))
ROUNDS = int(os.environ.get("HOIST_TEST_ROUNDS") or 400)

KINDS = (BufferError, OverflowError, TypeError, KeyError, IndexError, NotImplementedError, ValueError,
         AttributeError, RuntimeError)


def is_strides(call, args, one, other):
    """The vectors of the specification say None for C order.  cuda.core has followed DLPack 1.2 since,
    which always gives strides; and the stride of an axis of one element, or of no elements, leads
    nowhere."""
    if call != "see.strides" or one is None:
        return False
    array = args[0]
    return array.flags.c_contiguous if other is None else 1 in array.shape or array.size == 0


# The differences that are meant: (reason, whether a call with these arguments and answers is one).
WANTED = [
    ("strides of a view in C order, and of axes of one element", is_strides),
    ("hoist fills host memory that no driver knows; the driver refuses to",
     lambda call, args, one, other: call == "fill" and isinstance(one, Failed) and "driver" in one.kinds and args[0] == 3),
    ("a max_version that is no tuple: BufferError in hoist, as in older releases of cuda.core",
     lambda call, args, one, other: call == "export" and args[1] == {"max_version": 1} and
     isinstance(other, Failed)),
    ("a size below 0: ValueError in hoist, OverflowError in cuda.core",
     lambda call, args, one, other: call == "misuse" and args[1] == "negative" and
     isinstance(other, Failed)),
    ("a descriptor of a virtual block: RuntimeError in hoist, AttributeError in cuda.core",
     lambda call, args, one, other: call == "misuse" and args[1] == "descriptor" and
     isinstance(other, Failed) and isinstance(one, Failed)),
    ("a stream for memory of the CPU: BufferError in hoist; cuda.core lets the producer answer",
     lambda call, args, one, other: call == "see" and args[1] == 5 and isinstance(one, Failed) and
     isinstance(other, Failed)),
    ("the stand-in has no copies of batches, which hoist makes one by one",
     lambda call, args, one, other: call == "copy_batch" and isinstance(one, Failed) and
     "NOT_SUPPORTED" in one.text and args[0] != ()),
]


class Failed:
    """An exception, by the kinds that it is of; `driver`: an error of the driver's alone."""

    def __init__(self, error):
        self.kinds = {kind.__name__ for kind in KINDS if isinstance(error, kind)} or {"driver"}
        self.text = f"{type(error).__name__}: {error}"

    def __eq__(self, other):
        return isinstance(other, Failed) and bool(self.kinds & other.kinds)

    def __repr__(self):
        return f"<{self.text}>"


class Side:
    """One of the two packages: the device, the stream, the resources, the buffers that live."""

    def __init__(self, module, device, stream, wait, layout, view):
        self.module, self.device, self.stream, self.wait = module, device, stream, wait
        self.layout, self.view = layout, view
        self.resources = {
            "device": module.DeviceMemoryResource(device),
            "own": module.DeviceMemoryResource(device, {"max_size": 1 << 20}),
            "pinned": module.PinnedMemoryResource(),
            "managed": module.ManagedMemoryResource(),
            "virtual": module.VirtualMemoryResource(device, {"handle_type": None}),
        }
        self.buffers = []

    def read(self, buffer):
        """The bytes of any buffer, through memory that the host can touch."""
        if buffer.size == 0:
            return b""
        copy = self.resources["pinned"].allocate(buffer.size, stream=self.stream)
        buffer.copy_to(copy, stream=self.stream)
        self.wait()
        ret = np.from_dlpack(copy).tobytes()
        copy.close(self.stream)
        return ret

    def allocate(self, kind, size, value):
        """A buffer whose bytes are all the same; what it says of itself."""
        buffer = self.resources[kind].allocate(size, stream=self.stream)
        self.buffers.append(buffer)
        buffer.fill(value, stream=self.stream)
        return self.ask(-1)

    def wrap(self, array, how):
        """A buffer over an array of NumPy's."""
        address, mr = array.ctypes.data, self.resources["device"]
        keywords = {"plain": {}, "owner": {"owner": array}, "both": {"mr": mr, "owner": array},
                    "stream": {"stream": self.stream}}[how]
        buffer = self.module.Buffer.from_handle(address, array.nbytes, **keywords)
        self.buffers.append(buffer)
        return self.ask(-1) | {"same owner": buffer.owner is array}

    def ask(self, i):
        """The properties of a buffer, those that fail included."""
        buffer = self.buffers[i]
        names = ("size", "is_device_accessible", "is_host_accessible", "is_managed", "is_mapped",
                 "is_closed", "device_id")
        ret = {name: attempt(getattr, buffer, name) for name in names}
        ret["handle"] = attempt(lambda: int(buffer.handle) != 0)
        ret["resource"] = attempt(lambda: buffer.memory_resource is not None)
        ret["owner"] = attempt(lambda: buffer.owner is not None)
        ret["dlpack_device"] = attempt(lambda: tuple(map(int, buffer.__dlpack_device__())))
        ret["equal"] = attempt(lambda: (buffer == buffer, buffer == 1, buffer == self.buffers[0]))
        ret["hash"] = attempt(lambda: hash(buffer) == hash(buffer))
        return ret

    def fill(self, i, value):
        """Fills, and reads the bytes back."""
        ret = self.buffers[i].fill(value, stream=self.stream)
        return ret, self.read(self.buffers[i])[:16]

    def copy_to(self, i, j):
        """Copies to another buffer; to a new one where j is None."""
        to = None if j is None else self.buffers[j]
        got = self.buffers[i].copy_to(to, stream=self.stream)
        ret = (got is to, got.size, self.read(got)[:16])
        if to is None:
            got.close(self.stream)
        return ret

    def copy_from(self, i, j):
        """Copies from another buffer."""
        got = self.buffers[i].copy_from(self.buffers[j], stream=self.stream)
        return got, self.read(self.buffers[i])[:16]

    def close(self, i, on_stream):
        """Closes a buffer, which stays in the list."""
        self.wait()
        return self.buffers[i].close(*([self.stream] if on_stream else []))

    def export(self, i, keywords):
        """What NumPy would see, or the failure."""
        buffer = self.buffers[i]
        capsule = buffer.__dlpack__(**keywords)
        ret = [repr(capsule).split('"')[1]]
        if buffer.is_host_accessible and not keywords:
            self.wait()
            array = np.from_dlpack(buffer)
            ret += [array.dtype.name, array.shape, array.tobytes()[:16]]
        return ret

    def copy_batch(self, sources, targets):
        """Copies of several buffers at once."""
        copy = (theirs if self.module is theirs else ours).utils.copy_batch
        ret = copy(self.stream, [self.buffers[i] for i in sources], [self.buffers[i] for i in targets])
        return ret, [self.read(self.buffers[i])[:16] for i in targets]

    def misuse(self, i, what):
        """Calls that both refuse."""
        buffer = self.buffers[i]
        return {"no stream": lambda: buffer.copy_to(buffer),
                "stream by position": lambda: buffer.copy_from(buffer, self.stream),
                "fill with nothing": lambda: buffer.fill(None, stream=self.stream),
                "fill with a float": lambda: buffer.fill(1.5, stream=self.stream),
                "call the class": lambda: self.module.Buffer(),
                "descriptor": lambda: buffer.ipc_descriptor,
                "buffer protocol": lambda: memoryview(buffer),
                "negative": lambda: self.resources["device"].allocate(-1, stream=self.stream),
                "too large": lambda: self.resources["own"].allocate(1 << 22, stream=self.stream),
                "no class": lambda: self.module.MemoryResource().allocate(1, stream=self.stream),
                }[what]()

    # --- views ---

    def see(self, array, stream_ptr):
        """A view of an array."""
        return self.describe(self.view.from_any_interface(array, stream_ptr=stream_ptr), array)

    def see_buffer(self, i, shape, itemsize, dtype):
        """A view of a buffer in C order."""
        view = self.view.from_buffer(self.buffers[i], shape, itemsize=itemsize, dtype=dtype)
        return self.describe(view, self.buffers[i])

    @staticmethod
    def describe(view, obj):
        """All that a view says of itself."""
        return {"shape": tuple(view.shape), "size": view.size, "readonly": view.readonly,
                "strides": None if view.strides is None else tuple(view.strides),
                "dtype": None if view.dtype is None else np.dtype(view.dtype).str,
                "accessible": view.is_device_accessible, "device": view.device_id,
                "object": view.exporting_obj is obj,
                "array": attempt(lambda: np.from_dlpack(view).tolist())}


def their_side():
    """cuda.core's."""
    device = theirs.Device(0)
    device.set_current()
    stream = device.create_stream()
    return Side(theirs, device, stream, stream.sync, TheirLayout, their_utils.StridedMemoryView)


def our_side():
    """hoist.core's."""
    device = ours.Device("cuda:0")
    stream = ours.Stream(device)
    return Side(ours, device, stream, stream.synchronize, ours.StridedLayout, ours.StridedMemoryView)


MISUSES = ("no stream", "stream by position", "fill with nothing", "fill with a float",
           "call the class", "descriptor", "buffer protocol", "negative", "too large", "no class")
FILLS = (0, 7, 255, 256, -1, True, b"a", b"ab", b"abcd", b"abc", b"", b"12345678")
EXPORTS = ({}, {"max_version": (1, 0)}, {"max_version": (0, 9)}, {"max_version": 1}, {"copy": True},
           {"copy": False}, {"dl_device": (1, 0)}, {"stream": None})
SIZES = (1, 2, 3, 4, 7, 16, 100, 1024, 4096)


def attempt(function, *args, **keywords):
    """What a call answers, or how it fails."""
    try:
        return function(*args, **keywords)
    except Exception as error:  # pylint: disable=broad-except
        return Failed(error)


def shape_of(answer):
    """The kind of a failure, or the type of an answer: one difference is told once."""
    return repr(sorted(answer.kinds)) if isinstance(answer, Failed) else type(answer).__name__


def differences(call, expected, got):
    """(path, theirs, ours) for each part of two answers that differs."""
    if isinstance(expected, dict) and isinstance(got, dict):
        return [d for key in expected for d in differences(f"{call}.{key}", expected[key], got[key])]
    return [] if expected == got else [(call, expected, got)]


@unittest.skipIf(MISSING, MISSING)
class Core(unittest.TestCase):
    """The same calls on both sides."""

    @classmethod
    def setUpClass(cls):
        cls.sides = their_side(), our_side()

    def setUp(self):
        self.random = random.Random(SEED)
        self.found, self.seen = {}, set()
        for side in self.sides:
            for buffer in side.buffers:
                attempt(buffer.close)
            del side.buffers[:]

    def tearDown(self):
        lines = [f"{call}: cuda.core {expected!r}, hoist.core {got!r}: {example}"
                 for (call, *_), (expected, got, example) in self.found.items()]
        self.assertFalse(lines, "\n" + "\n".join(lines) + f"\nHOIST_TEST_SEED={SEED}")

    def both(self, name, *args):
        """Calls both sides; notes the first difference of each kind that is not wanted."""
        expected, got = (attempt(getattr(side, name), *args) for side in self.sides)
        for call, one, other in differences(name, expected, got):
            wanted = [reason for reason, is_one in WANTED if is_one(call, args, one, other)]
            self.seen.update(wanted)
            if not wanted:
                self.found.setdefault((call, shape_of(one), shape_of(other)), (one, other, args))

    def any_buffer(self):
        """The index of a buffer, closed or open."""
        n = min(len(side.buffers) for side in self.sides)
        self.assertEqual(*(len(side.buffers) for side in self.sides))
        return self.random.randrange(n)

    def fresh(self):
        """Another buffer on both sides."""
        kind = self.random.choice(("device", "own", "pinned", "managed", "virtual"))
        self.both("allocate", kind, self.random.choice(SIZES), self.random.randrange(256))

    def test_random_calls(self):
        choose = self.random.choice
        for _ in range(3):
            self.fresh()
        self.both("wrap", np.arange(16, dtype="u1"), "owner")
        for _ in range(ROUNDS):
            what = choose(("fresh", "fill", "copy_to", "copy_from", "close", "export", "misuse",
                           "ask", "ask"))
            if what == "fresh":
                self.fresh()
            elif what == "fill":
                self.both("fill", self.any_buffer(), choose(FILLS))
            elif what == "copy_to":
                self.both(what, self.any_buffer(), choose((None, self.any_buffer())))
            elif what == "copy_from":
                self.both(what, self.any_buffer(), self.any_buffer())
            elif what == "close":
                self.both(what, self.any_buffer(), choose((False, True)))
            elif what == "export":
                self.both(what, self.any_buffer(), choose(EXPORTS))
            elif what == "misuse":
                self.both(what, self.any_buffer(), choose(MISUSES))
            else:
                self.both(what, self.any_buffer())

    def test_each_wanted_difference_is_there(self):
        """A call for each entry of WANTED, of which none is left over."""
        for kind in ("virtual", "own", "own"):
            self.both("allocate", kind, 64, 1)
        self.both("wrap", np.arange(16, dtype="u1"), "owner")
        self.both("see", np.ones((2, 3), "f4"), -1)
        self.both("see", np.ones(3, "f4"), 5)
        self.both("fill", 3, 7)
        self.both("copy_batch", (1,), (2,))
        self.both("export", 0, {"max_version": 1})
        self.both("misuse", 0, "negative")
        self.both("misuse", 0, "descriptor")
        self.assertEqual(self.seen, {reason for reason, _ in WANTED})

    def test_batches(self):
        for value in range(4):
            self.both("allocate", "own", 64, value)
        self.both("allocate", "own", 65, 9)
        for pairs in (((), ()), ((0, 1), (2, 3)), ((0,), (2, 3)), ((0, 1), (2, 4)), ((2,), (2,))):
            self.both("copy_batch", *pairs)
        for side in self.sides:
            copy = (theirs if side.module is theirs else ours).utils.copy_batch
            self.assertRaises(TypeError, copy, side.stream, side.buffers[0], side.buffers[1])

    def test_wraps(self):
        for how in ("plain", "owner", "both", "stream"):
            for size in (0, 1, 64):
                self.both("wrap", np.ones(size, "u1"), how)

    def test_views_of_arrays(self):
        for _ in range(ROUNDS):
            dtype = self.random.choice(("u1", "i4", "f2", "f8", "c8", "?", "i8"))
            shape = [self.random.randrange(5) for _ in range(self.random.randrange(4))]
            array = np.arange(int(np.prod(shape)) + 60).astype(dtype)[:int(np.prod(shape))]
            array = array.reshape(shape, order=self.random.choice("CF"))
            for axis, extent in enumerate(shape):
                step = self.random.choice((1, 1, 2, -1))
                index = (slice(None),) * axis + (slice(None, None, step),)
                array = array[index] if extent else array
            array.flags.writeable = self.random.random() < 0.7
            self.both("see", array, self.random.choice((-1, -1, -1, None, 0, 5)))
        for other in (None, 3, "text", [1], memoryview(b"abc")):
            self.both("see", other, -1)

    def test_views_of_buffers(self):
        for kind in ("device", "pinned", "managed"):
            self.both("allocate", kind, 64, 1)
        for side in self.sides:
            side.wait()  # a view of the host's waits for nothing
        for _ in range(ROUNDS):
            shape = tuple(self.random.randrange(6) for _ in range(self.random.randrange(4)))
            self.both("see_buffer", self.any_buffer(), shape, self.random.choice((1, 2, 4, 8)),
                      self.random.choice((None, np.dtype("u1"), np.dtype("i4"), np.dtype("f8"))))


if __name__ == "__main__":
    unittest.main()
