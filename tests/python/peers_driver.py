# SPDX-License-Identifier: MIT
"""hoist.driver beside max.driver 26.7 on the CPU: the same calls, with random arguments, on both.

`./check peers` runs this.  HOIST_TEST_SEED repeats a run with the seed that the run printed.  The table of
the differences that are wanted is in peers_driver_wanted.py; peers.py says how outcomes are compared.

Left out, because max.driver reads or writes outside its memory: copies of reversed views by copy() and
batch_inplace_copy(), and writes by DLPack to views with gaps.  Left out, because max.driver never returns: a queue of the CPU that waits
for the CPU.
"""

import os
import random
import tempfile
import unittest

import numpy as np

os.environ.pop("HOIST_EMULATE", None)  # the peer finds no accelerator, and hoist must find none

# pylint: disable=wrong-import-position
import max.driver
import max.dtype

from hoist import driver
from peers import Comparison, World, buffer_facts
from peers_driver_calls import CALLS, DTYPES
from peers_driver_wanted import WANTED

NATIVE = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
          "float32", "float64")
OTHER = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz",
         "float8_e5m2fnuz", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn")
ROUNDS = 400  # of each case


# --- random arguments ---

def random_array(r, rank=None, least=0, dtype=None):
    rank = r.randrange(5) if rank is None else rank
    shape = [r.randint(least, 4) for _ in range(rank)]
    name = dtype or r.choice(NATIVE if rank else NATIVE[1:])  # max.driver takes no bool of rank 0
    values = [r.randrange(0, 100) for _ in range(int(np.prod(shape)))]
    return np.array(values).reshape(shape).astype("?" if name == "bool" else name)


def bound(r, extent):
    return r.choice((None, None, r.randint(-extent - 2, extent + 2)))


def random_slice(r, extent, reverse=True):
    step = r.choice((None, 1, 2, 3, -1, -2) if reverse else (None, 1, 2))
    return slice(bound(r, extent), bound(r, extent), step)


def random_key(r, shape, reverse=True):
    """An integer or a slice for each axis, inside."""
    return tuple(r.randint(-n, n - 1) if n and r.random() < 0.3 else random_slice(r, n, reverse)
                 for n in shape)


def layout_of(a):
    if a.size == 0:
        return "empty"
    packed = np.cumprod((1,) + a.shape[:0:-1])[::-1] * a.itemsize if a.ndim else ()
    if tuple(packed) == a.strides:
        return "packed"
    return "extent 1" if a.flags.c_contiguous else "gaps"


class Recipe:
    """How a buffer is made: over a copy of an array, then views of views; `array` is NumPy's view."""

    def __init__(self, r, rank=None, reverse=True, least=0, dtype=None):
        self.base = random_array(r, rank, least, dtype)
        self.array, self.keys = self.base, []
        for _ in range(r.randrange(3)):
            if self.array.ndim:
                self.keys.append(random_key(r, self.array.shape, reverse))
                self.array = self.array[self.keys[-1]]

    def make(self, world):
        """(the view, the buffer that it is a view of)."""
        base = ret = world.B.from_numpy(self.base.copy())
        for key in self.keys:
            ret = ret[key]
        return ret, base

    @property
    def layout(self):
        return layout_of(self.array)

    def __str__(self):
        return f"{self.base.dtype}{self.base.shape}{self.keys}"


# --- the cases: each makes (its name, a call, what a report says) of random numbers ---

def construct(r):
    name = r.choice(NATIVE + OTHER)
    shape = [r.randint(0, 4) for _ in range(r.randrange(5))]
    shape = tuple(shape) if r.random() < 0.5 else shape
    form = r.choice(("plain", "keywords", "device", "queue", "staging", "untracked"))

    def call(w):
        dtype, usage = w.dtype(name), w.driver.Usage
        made = {"plain": lambda: w.B(dtype, shape), "keywords": lambda: w.B(shape=shape, dtype=dtype),
                "device": lambda: w.B(dtype, shape, w.cpu),
                "queue": lambda: w.B(dtype, shape, w.cpu.default_queue),
                "staging": lambda: w.B(dtype, shape, w.cpu, usage.STAGING),
                "untracked": lambda: w.B(dtype, shape, w.cpu, usage.UNTRACKED)}[form]()
        return buffer_facts(made, elements=False)
    return f"Buffer(), {form}", call, f"{name} {shape}"


def zeros(r):
    name = r.choice(NATIVE + OTHER[:6])
    shape = [r.randint(0, 3) for _ in range(r.randrange(4))]
    return "zeros()", lambda w: w.B.zeros(shape, w.dtype(name), w.cpu), f"{name} {shape}"


def scalar(r):
    name = r.choice(NATIVE[1:] + OTHER[:3])
    value = r.choice((r.randint(0, 100), r.randint(-200, -1), 2**40, r.random() * 10, True))
    is_float = name.startswith(("float", "bf"))
    kind = "a bool" if value is True else type(value).__name__
    if is_float:
        of = "a float"
    elif isinstance(value, float):
        of = "an integer"
    else:
        info = np.iinfo(name)
        of = "an integer" if info.min <= value <= info.max else "an integer, outside"
    return f"scalar(), {kind} as {of}", lambda w: w.B.scalar(value, w.dtype(name)).item(), \
        f"{value} {name}"


def from_numpy(r):
    recipe = Recipe(r)
    while recipe.array.dtype == bool and not recipe.array.ndim:  # as in random_array()
        recipe = Recipe(r)
    entry = r.choice(("from_numpy", "from_dlpack"))
    writable = r.random() < 0.7
    copy = r.choice((None, None, True, False)) if entry == "from_dlpack" else None

    def call(w):
        array = recipe.base.copy()
        for key in recipe.keys:
            array = array[key]
        array = np.asarray(array)
        array.flags.writeable = writable
        ret = getattr(w.B, entry)(array, **({} if copy is None else {"copy": copy}))
        alias = False
        if writable and array.size and array.flags.c_contiguous:
            array.flat[0] = not array.flat[0] if array.dtype == bool else array.flat[0] + 1
            alias = ret.to_numpy().flat[0] == array.flat[0]
        return {"buffer": buffer_facts(ret), "alias": bool(alias)}
    kind = "" if writable else ", read-only"
    return f"{entry}(), {recipe.layout}{kind}, copy={copy}", call, str(recipe)


def index(r):
    recipe = Recipe(r, rank=r.randint(1, 4))
    n = recipe.array.ndim
    form = r.choice(("inside", "inside", "inside", "outside", "fewer", "more", "list",
                     "NumPy's integers", "step 0"))
    shape = recipe.array.shape
    key = random_key(r, shape)
    if n == 0 and form in ("outside", "fewer", "list", "NumPy's integers", "step 0"):
        form = "inside"
    at = r.randrange(n) if n else 0
    if form == "outside":
        wrong = r.choice((shape[at] + r.randrange(3), -shape[at] - 1 - r.randrange(3)))
        key = key[:at] + (wrong,) + key[at + 1:]
    elif form == "fewer":
        key = key[:-1]
    elif form == "more":
        key = key + (0,)
    elif form == "list":
        key = list(key)
    elif form == "NumPy's integers":
        key = tuple(np.int64(0) if shape[i] else slice(None) for i in range(n))
        form = form if any(shape) else "inside"
    elif form == "step 0":
        key = key[:at] + (slice(None, None, 0),) + key[at + 1:]
    if form in ("inside", "list", "NumPy's integers"):
        form += ", " + layout_of(np.asarray(recipe.array[tuple(key)]))
    return f"[], {form}", lambda w: recipe.make(w)[0][key], f"{recipe} {key}"


def store(r):
    recipe = Recipe(r, rank=r.randint(0, 4), least=1)
    shape = recipe.array.shape
    form = r.choice(("inside", "inside", "outside", "fewer", "more", "a slice"))
    if (not shape and form in ("outside", "fewer", "a slice")) or 0 in shape:
        form = "more"
    key = tuple(r.randint(-n, n - 1) if n else 0 for n in shape)
    if form == "outside":
        key = key[:-1] + (shape[-1] + r.randrange(3),)
    elif form == "fewer":
        key = key[:-1]
    elif form == "more":
        key = key + (0, 1)
    elif form == "a slice":
        key = key[:-1] + (slice(None),)
    value = r.choice((r.randrange(100), np.int16(r.randrange(100)), True))

    def call(w):
        view, base = recipe.make(w)
        view[key] = value
        return base.to_numpy()
    form += ", bool" if recipe.base.dtype == bool else ""
    return f"[] =, {form}", call, f"{recipe} {key} {value!r}"


def item(r):
    recipe = Recipe(r, rank=r.randint(0, 3))
    return "item()", lambda w: recipe.make(w)[0].item(), str(recipe)


def copies(r):
    recipe = Recipe(r, reverse=False)
    form = r.choice(("copy", "copy(cpu)", "contiguous", "to", "to list", "to_numpy"))

    def call(w):
        b = recipe.make(w)[0]
        ret = {"copy": lambda: b.copy(), "copy(cpu)": lambda: b.copy(w.cpu),
               "contiguous": lambda: b.contiguous(), "to": lambda: b.to(w.cpu),
               "to list": lambda: b.to([w.cpu])[0], "to_numpy": lambda: b.to_numpy()}[form]()
        w.cpu.synchronize()
        return ret if form == "to_numpy" else {"same": ret is b, **buffer_facts(ret)}
    return f"{form.split(' ')[0].split('(')[0]}, {recipe.layout}", call, str(recipe)


def reversed_to_numpy(r):
    recipe = Recipe(r)
    return f"to_numpy, {recipe.layout}", lambda w: recipe.make(w)[0].to_numpy(), str(recipe)


def inplace(r):
    to = Recipe(r, least=1)
    same = r.random() < 0.6
    source = Recipe(r, rank=to.base.ndim, least=1, dtype=str(to.base.dtype) if same else None)
    source = to if r.random() < 0.2 else source
    if r.random() < 0.4:  # one that fits
        source = Recipe(r, dtype=str(to.base.dtype))
        source.base = source.array = np.zeros_like(np.ascontiguousarray(to.array)).reshape(-1)
        source.keys = []

    def call(w):
        view, base = to.make(w)
        src = view if source is to else source.make(w)[0]
        view.inplace_copy_from(src)
        w.cpu.synchronize()  # max.driver copies behind the call, and does not keep the source
        del src
        return base.to_numpy()
    odd = {"empty", "extent 1"} & {to.layout, source.layout}
    return f"inplace_copy_from(){', empty or extent 1' if odd else ''}", call, f"{to} <- {source}"


def batch(r):
    # Packed destinations alone, and as many as sources.
    pairs = []
    for _ in range(r.randint(1, 3)):
        array = random_array(r, least=1)
        pairs.append((array, random_array(r, rank=array.ndim, least=1) if r.random() < 0.2 else array + 0))
    sizes = {(a.nbytes == b.nbytes, a.dtype == b.dtype) for a, b in pairs}
    n = len(pairs) - (r.random() < 0.2)
    form = "wrong count" if n < len(pairs) else "wrong bytes" if any(not s for s, _ in sizes) else \
        "other dtypes" if any(not t for _, t in sizes) else "equal"

    def call(w):
        dsts = [w.B.from_numpy(np.zeros_like(a)) for a, _ in pairs]
        srcs = [w.B.from_numpy(b.copy()) for _, b in pairs[:n]]
        w.driver.batch_inplace_copy(dsts, srcs)
        w.cpu.synchronize()
        del srcs
        return [d.to_numpy() for d in dsts]
    return f"batch_inplace_copy(), {form}", call, str([(a.dtype, a.shape, b.dtype, b.shape) for a, b in pairs])


def view(r):
    recipe = Recipe(r)
    while recipe.layout != "packed":
        recipe = Recipe(r)
    name = r.choice(NATIVE[1:])
    n = recipe.array.nbytes // np.dtype(name).itemsize
    form = r.choice(("last axis", "shape", "wrong shape"))
    shape = {"last axis": None, "shape": (n,), "wrong shape": (n + r.choice((-1, 1, 3)),)}[form]
    form = "wrong shape" if shape and (shape[0] < 0 or n * np.dtype(name).itemsize !=
                                       recipe.array.nbytes) else form
    if shape and shape[0] < 0:
        shape = (3,)

    def call(w):
        return recipe.make(w)[0].view(*((w.dtype(name),) if shape is None else (w.dtype(name), shape)))
    form += "" if recipe.array.ndim else ", rank 0"
    return f"view(), {form}", call, f"{recipe} {name} {shape}"


def dlpack(r):
    recipe = Recipe(r)
    keywords = r.choice(({}, {"max_version": (1, 0)}, {"max_version": (0, 5)}, {"copy": False},
                         {"dl_device": (1, 0)}, {"max_version": None}, {"stream": None}))

    def call(w):
        view_, base = recipe.make(w)
        array = np.from_dlpack(view_)
        if recipe.layout == "packed":
            array[...] = 1
        capsule = repr(view_.__dlpack__(**keywords)).split('"')[1]
        return [capsule, array, base.to_numpy()]
    return f"__dlpack__(), {recipe.layout}", call, f"{recipe} {keywords}"


def text(r):
    recipe = Recipe(r, rank=r.randint(0, 2), dtype=r.choice(NATIVE[1:]))

    def call(w):
        b = recipe.make(w)[0]
        words = str(b)
        body = words[words.index("(") + 1:words.index("dtype")]
        numbers = [float(x) for x in "".join(c if c in "0123456789.e+-" else " " for c in body).split()]
        brackets = "".join(c for c in body if c in "[]")
        return [repr(b).split("(")[0], str(b.dtype) in repr(b), str(b.shape) in repr(b), numbers, brackets,
                words[words.index("dtype"):]]
    return f"str(), {recipe.layout}", call, str(recipe)


def mmap(r):
    n_bytes = r.choice((0, 0, 16, 64, 5000))
    name, offset = r.choice(NATIVE[1:]), r.choice((0, 0, 0, 4, 16, 4096))
    mode = r.choice(("r", "readonly", "c", "copyonwrite", "r+", "readwrite", "w+", "write", "x"))
    shape = (0,) if offset == 0 and r.random() < 0.3 else r.choice((2, (2,), (2, 3), [4]))
    fits = offset + int(np.prod(shape)) * np.dtype(name).itemsize <= n_bytes

    def call(w):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            with open(path, "wb") as file:
                file.write(bytes(i % 251 for i in range(n_bytes)))
            b = w.B.mmap(path, w.dtype(name), shape, mode, offset)
            before = buffer_facts(b)
            if b.num_elements:
                b[(0,) * b.rank] = 7
            if b.num_elements and mode in ("r+", "readwrite", "w+", "write"):
                with open(path, "rb") as file:
                    return [before, b.item() if b.num_elements == 1 else None, os.path.getsize(path), file.read(300)]
            return [before, os.path.getsize(path)]
    size = "fits" if fits else "short"
    kind = {"r": "r", "readonly": "r", "c": "c", "copyonwrite": "c", "r+": "r+", "readwrite": "r+",
            "x": "x"}.get(mode, "w+")
    none = f", {'an empty file' if n_bytes == 0 else 'no elements'}" if shape == (0,) else ""
    return f"mmap(), {kind}, {size}{none}", call, f"{n_bytes} {name} {offset} {shape}"


def cli(r):
    words = [r.choice(("gpu", "gpu:0", "gpu:3", "gpu:0, 5", "GPU:2", "gpu:all", "cpu", "default", "gpu:x",
                       "gpu:,2", "GPU", [], [0], [3, 1])) for _ in range(r.randint(0, 3))]
    return "calculate_virtual_device_count_from_cli()", \
        lambda w: w.driver.calculate_virtual_device_count_from_cli(*words), str(words)


def specs(r):
    lists = [[(r.randint(0, 6), r.choice(("cpu", "gpu"))) for _ in range(r.randrange(4))]
             for _ in range(r.randrange(3))]

    def call(w):
        made = [[w.driver.DeviceSpec(*spec) for spec in one] for one in lists]
        return [w.driver.calculate_virtual_device_count(*made), [w.driver.devices_exist(m) for m in made],
                [[(s.id, s.device_type, repr(s)) for s in m] for m in made]]
    return "DeviceSpec", call, str(lists)


CASES = (construct, zeros, scalar, from_numpy, index, store, item, copies, reversed_to_numpy, inplace,
         batch, view, dlpack, text, mmap, cli, specs)


def evaluate(expression):
    code = compile(expression, "<call>", "eval")

    def call(w):
        import pickle  # pylint: disable=import-outside-toplevel
        b = w.B.from_numpy(np.arange(24, dtype="f4").reshape(2, 3, 4))
        return eval(code, {"np": np, "d": w.driver, "B": w.B, "T": w.DType, "b": b, "pickle": pickle})
    return call


class Driver(unittest.TestCase):
    def test_as_max_driver(self):
        seed = int(os.environ.get("HOIST_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
        both = Comparison(World(max.driver, max.dtype.DType), World(driver, driver.DType))
        for call in CALLS:
            both.run(call, evaluate(call))
        for name in NATIVE + OTHER:
            for call in DTYPES:
                both.run(call.format("x"), evaluate(call.format(name)), name)
        for name in NATIVE:
            both.run("DType.to_numpy()", evaluate(f"T.from_numpy(T.{name}.to_numpy()) == T.{name}"), name)
        for case in CASES:
            for i in range(ROUNDS):
                both.run(*case(random.Random(f"{seed} {case.__name__} {i}")))
        print(f"seed {seed}: {both.n_calls} calls, {len(both.seen)} differences")
        text = both.report(WANTED)
        self.assertEqual(text, "", f"seed {seed}: {both.n_calls} calls\n{text}")


if __name__ == "__main__":
    unittest.main()
