# SPDX-License-Identifier: MIT
"""The differences between hoist.driver and max.driver 26.7 that are wanted, and why.

REASONS: a reason, and the differences by name: (the case or the call, max.driver's outcome, hoist's), as
peers.py makes them.
"""

ARGUMENT = "TypeError: the argument"
COUNT = "ValueError: the number of indices"
NUMBER = "RuntimeError: the number"
LAYOUT = "ValueError: not contiguous"
IS_CONTIGUOUS = ("a value", "another is_contiguous")

REASONS = (
    ("hoist takes what NumPy takes: one integer as a shape, the name of a dtype, an array without a device", (
        ("B(T.float32, 5)", ARGUMENT, "a value"),
        ('B("float32", (2,))', ARGUMENT, "a value"),
        ("B(np.zeros((2, 3)))", ARGUMENT, "a value"),
        ("B.zeros(3, T.int32)", ARGUMENT, "a value"),
        ("b.view(T.float32, 24)", ARGUMENT, "a value"),
        ("B.from_numpy(np.array(True))", "IndexError: outside", "a value"),
    )),
    ("a number of the right type and a wrong value is a ValueError or OverflowError in hoist; max.driver "
     "finds no overload for it", (
        ("B(T.float32, (-1, 3))", ARGUMENT, "ValueError: the argument"),
        ("B(T.float32, (1 << 64,))", ARGUMENT, "OverflowError: the argument"),
        ("b.view(T.float32, (-1,))", ARGUMENT, "ValueError: the argument"),
        ("B.from_dlpack(None)", ARGUMENT, "AttributeError: the argument"),
    )),
    ("hoist has at most 64 axes", (
        ("B(T.float32, (1,) * 70).rank", "a value", "ValueError: the argument"),
    )),
    ("a wrong number to store is a Python exception that says what is wrong, where max.driver lets the "
     "text of a C++ exception out", (
        ('B.scalar("x", T.int32)', NUMBER, "TypeError: the number"),
        ('b.__setitem__((0, 0, 0), "x")', NUMBER, "TypeError: the number"),
        ("b.__setitem__((0, 0, 0), 1j)", NUMBER, "ValueError: the number"),
        ("b.__setitem__((0, 0, 0), None)", ARGUMENT, "TypeError: the number"),
        ("scalar(), float as an integer", NUMBER, "ValueError: the number"),
        ("scalar(), int as an integer, outside", NUMBER, "OverflowError: the number"),
    )),
    ("a number that is not 0 is true, and a bool is stored as 1: max.driver stores 57 as the byte 57", (
        ("B.scalar(0.7, T.bool).item()", "a value", "another value"),
        ("[] =, inside, bool", "a value", "another elements"),
    )),
    ("vector V042 allows both: hoist cuts bf16 off, so that a huge number becomes the largest", (
        ("B.scalar(1e39, T.bfloat16).item()", "a value", "another value"),
    )),
    ("hoist stores, and shows NumPy, types that max.driver does not", (
        ("B.scalar(2, T.float4_e2m1fn).item()", "TypeError: no such type", "a value"),
        ("B.zeros((2,), T.bfloat16).to_numpy()", "RuntimeError: no such type", "a value"),
        ('B.mmap("/none", T.bfloat16, 3)', "ValueError: the argument", "FileNotFoundError: no file"),
    )),
    ("indices are NumPy's: fewer than the axes, Ellipsis, None", (
        ("[], fewer", COUNT, "a value"),
        ("b[...]", ARGUMENT, "a value"),
        ("b[..., 0]", COUNT, "a value"),
        ("b[0, ..., 0]", "a value",
         "another shape, rank, count, is_contiguous, strides, elements"),
        ("b[None]", ARGUMENT, "a value"),
        ("b[0, None]", COUNT, "a value"),
    )),
    ("too many indices are an IndexError, as in NumPy", (
        ("[], more", COUNT, "IndexError: the number of indices"),
        ("b[0, 0, 0].__setitem__(1, 5)", COUNT, "IndexError: outside"),
    )),
    ("an index is an integer: max.driver takes 1.0 and 10**30 for 0, and an array for a sequence", (
        ("b[1.0, 0, 0]", "a value", "TypeError: the argument"),
        ("b[10**30, 0, 0]", "a value", "IndexError: the argument"),
        ("b[np.array([0, 1])]", COUNT, "TypeError: the argument"),
    )),
    ("buffers without elements are contiguous in hoist, and axes of extent 1 do not count, as in NumPy", (
        ("b[-10**30::2, 0, 0]", *IS_CONTIGUOUS),
        ("[], NumPy's integers, empty", *IS_CONTIGUOUS),
        ("[], inside, empty", *IS_CONTIGUOUS),
        ("[], inside, extent 1", *IS_CONTIGUOUS),
        ("[], list, empty", *IS_CONTIGUOUS),
        ("[], list, extent 1", *IS_CONTIGUOUS),
        ("to, empty", *IS_CONTIGUOUS),
        ("to, extent 1", *IS_CONTIGUOUS),
        ("inplace_copy_from(), empty or extent 1", LAYOUT, "ValueError: do not match"),
        ("inplace_copy_from(), empty or extent 1", LAYOUT, "a value"),
    )),
    ("max.driver forgets the strides of a view: the elements that it copies and exports are others", (
        ("copy, gaps", "a value", "another elements"),
        ("to_numpy, gaps", "a value", "another elements"),
        ("__dlpack__(), gaps", "a value", "another value"),
        ("str(), gaps", "a value", "another value"),
        ("copy, empty", "RuntimeError: no memory", "a value"),
    )),
    ("hoist views the bytes of the last axis wherever that axis is packed", (
        ("b[:, :, :2].view(T.float64)", LAYOUT, "a value"),
        ("b[:, :, ::-1].view(T.int32)", LAYOUT, "a value"),
    )),
    ("hoist keeps the interface of the releases up to 25.x, too, which have streams here", (
        ("b.to(d.CPU().default_queue)", ARGUMENT, "a value"),
        ("b.copy(d.CPU().default_queue)", ARGUMENT, "a value"),
        ("Buffer(), staging", "a value", "another pinned"),  # V033
        ("d.DeviceQueue(d.CPU()) == d.CPU().default_queue", "a value", "another value"),  # S1.10
    )),
    ("Usage.UNTRACKED is without effect, and not kept", (
        ("Buffer(), untracked", "a value", "another usage"),
    )),
    ("Python's enum does not list the flag that is 0", (
        ("[u.name for u in d.Usage]", "a value", "another value"),
        ("[u.value for u in d.Usage]", "a value", "another value"),
    )),
    ("a DType equals its own name", (
        ('T.x == "x"', "a value", "another value"),
    )),
    ("an argument that is no Buffer is a TypeError", (
        ("b.inplace_copy_from(3)", "AttributeError: not contiguous", ARGUMENT),
        ("d.batch_inplace_copy([b], [3])", "AttributeError: the argument", ARGUMENT),
    )),
    ("a batch compares dtypes, as inplace_copy_from() does", (
        ("batch_inplace_copy(), other dtypes", "a value", "ValueError: do not match"),
    )),
    ("a hoist Buffer also is an array of Python's: a length, numbers, the buffer protocol, pickles", (
        ("len(b)", ARGUMENT, "a value"),
        ("list(b)", COUNT, "TypeError: the argument"),
        ("bool(b)", "a value", "ValueError: one element"),
        ("float(b[0, 0, 1])", ARGUMENT, "a value"),
        ("b[0, 0, 1].__index__()", "AttributeError: the argument", "TypeError: the argument"),
        ("memoryview(b).nbytes", ARGUMENT, "a value"),
        ("pickle.loads(pickle.dumps(b)).shape", ARGUMENT, "a value"),
        ("np.asarray(b).dtype.str", "a value", "another value"),
    )),
    ("an alignment is a power of two", (
        ("b._aligned(3)", "a value", "ValueError: the argument"),
    )),
    ("DLPack: the CPU has no stream 1, and a copy can be had", (
        ("b.__dlpack__(stream=1) is None", "a value", "ValueError: the export"),
        ("b.__dlpack__(copy=True) is None", "BufferError: copy=", "a value"),
    )),
    ("a device reaches its own memory", (
        ("d.CPU().can_access(d.CPU())", "a value", "another value"),
    )),
    ("hoist.Device() is the CPU; max.driver's base class cannot be made", (
        ("d.Device()", ARGUMENT, "a value"),
    )),
    ("record_event(event) gives the event back", (
        ("d.CPU().default_queue.record_event(d.DeviceEvent(d.CPU()))", "a value", "another value"),
    )),
    ("flags work on streams of the CPU, too", (
        ("d.CompletionFlag(d.CPU()).load()", "RuntimeError: no memory", "a value"),
    )),
    ("a map of no bytes: the rules are those of the NumPy that the specification names (S0.33)", (
        ("mmap(), r+, fits, an empty file", "a value", "ValueError: the file's size"),
        ("mmap(), w+, fits, an empty file", "a value", "ValueError: the file's size"),
        ("mmap(), w+, fits, no elements", "a value", "ValueError: the file's size"),
    )),
)

WANTED = {name: reason for reason, names in REASONS for name in names}
