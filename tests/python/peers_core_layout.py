# SPDX-License-Identifier: MIT
"""hoist.core.StridedLayout beside cuda.core's layouts: the same random chains of calls, the same answers.

Needs no device and no driver.  Skipped where cuda-core is not installed.  HOIST_TEST_SEED repeats a
run, HOIST_TEST_ROUNDS (400) says how many chains are made.  WANTED has the differences that are meant.
"""

import itertools
import os
import random
import unittest

try:
    from cuda.core._layout import _StridedLayout as Theirs
    MISSING = None
except ImportError as error:
    MISSING = f"{error}; pip install --no-deps cuda-core cuda-bindings cuda-pathfinder numpy"

if MISSING is None:
    from hoist.core import StridedLayout as Ours

SEED = int(os.environ.get("HOIST_TEST_SEED") or random.randrange(1 << 31))
ROUNDS = int(os.environ.get("HOIST_TEST_ROUNDS") or 400)

PROPERTIES = ("shape", "strides", "strides_in_bytes", "itemsize", "ndim", "volume", "slice_offset",
              "slice_offset_in_bytes", "stride_order", "is_contiguous_c", "is_contiguous_f",
              "is_contiguous_any", "is_dense", "is_unique", "min_offset", "max_offset", "offset_bounds")
QUESTIONS = ("required_size_in_bytes", "flattened_axis_mask", "max_compatible_itemsize")
LONGEST = 5  # calls of a chain


def offsets(layout):
    """Of each element, in C order, from strides alone."""
    strides = layout.strides
    if strides is None:
        strides, step = [0] * layout.ndim, 1
        for axis in reversed(range(layout.ndim)):
            strides[axis] = step
            step *= layout.shape[axis]
    return [sum(i * stride for i, stride in zip(index, strides))
            for index in itertools.product(*map(range, layout.shape))]


# The differences that are meant: (reason, whether the call with these answers is one; `before` is
# hoist's layout before the call).
WANTED = [
    ("hoist reshapes where axes of one element are in the way; cuda.core refuses",
     lambda call, before, one, other: call[0] == "reshaped" and isinstance(one, Failed) and
     "incompatible" in one.text and not isinstance(other, Failed) and
     (1 in before.shape or 1 in other.shape) and offsets(before) == offsets(other)),
    ("a repacking to bytes of which neither size is a multiple: ValueError in hoist; cuda.core answers",
     lambda call, before, one, other: call[0] == "repacked" and isinstance(other, Failed) and
     not isinstance(one, Failed) and "multiple of the other" in other.text),
]


class Failed:
    """An exception, by its kind."""

    def __init__(self, error):
        self.kind = next(k.__name__ for k in (OverflowError, TypeError, IndexError, ValueError,
                                              AttributeError, Exception) if isinstance(error, k))
        self.text = f"{type(error).__name__}: {error}"

    def __eq__(self, other):
        return isinstance(other, Failed) and self.kind == other.kind

    def __repr__(self):
        return f"<{self.text}>"


def attempt(function, *args, **keywords):
    """What a call answers, or how it fails."""
    try:
        return function(*args, **keywords)
    except Exception as error:  # pylint: disable=broad-except
        return Failed(error)


def describe(layout):
    """All that a layout says of itself."""
    ret = {name: attempt(getattr, layout, name) for name in PROPERTIES}
    ret |= {name: attempt(getattr(layout, name)) for name in QUESTIONS}
    ret["equal"] = attempt(lambda: layout == type(layout)(layout.shape, layout.strides, layout.itemsize))
    return ret


class Chain:
    """Random calls, made on layouts of both packages."""

    def __init__(self, rng):
        self.random = rng
        self.calls = []
        self.pair = (None, None)
        self.before = None  # hoist's layout before the last call

    def axes(self, n):
        """A permutation, or what is none."""
        ret = list(range(n))
        self.random.shuffle(ret)
        if n and self.random.random() < 0.1:
            ret[0] = self.random.choice((-1, n, ret[-1]))
        return tuple(ret)

    def extents(self, n=None):
        n = self.random.randrange(5) if n is None else n
        return tuple(self.random.choice((1, 1, 2, 3, 4, 6, 0)) if self.random.random() < 0.9 else 8
                     for _ in range(n))

    def index(self):
        """Of one axis."""
        number = self.random.randrange(-5, 6)
        end = self.random.choice((None, self.random.randrange(-5, 6)))
        step = self.random.choice((None, 1, 1, 2, -1, -2, 3, 0))
        return number if self.random.random() < 0.3 else slice(self.random.choice((None, number)), end, step)

    def regrouped(self, shape):
        """Another shape of as many elements, often."""
        volume = 1
        for extent in shape:
            volume *= extent
        ret = []
        while volume > 1 and len(ret) < 4:
            divisor = self.random.choice([d for d in range(1, volume + 1) if volume % d == 0])
            ret.append(divisor)
            volume //= divisor
        ret.append(volume)
        if self.random.random() < 0.2:
            ret[self.random.randrange(len(ret))] = -1
        return tuple(ret)

    def begin(self):
        """A layout of each package."""
        kind = self.random.choice(("plain", "strides", "dense"))
        shape, itemsize = self.extents(), self.random.choice((1, 2, 4, 8, 16))
        if kind == "plain":
            self.make("new", lambda cls: cls(shape, None, itemsize), shape, itemsize)
        elif kind == "dense":
            order = self.random.choice(("C", "F", self.axes(len(shape))))
            self.make("dense", lambda cls: cls.dense(shape, itemsize, order), shape, itemsize, order)
        else:
            strides = tuple(self.random.choice((0, 1, 2, 3, 4, 8, 12, 24, -1, -4)) for _ in shape)
            divide = self.random.random() < 0.3
            self.make("strided", lambda cls: cls(shape, strides, itemsize, divide), shape, strides,
                      itemsize, divide)

    def make(self, name, function, *args):
        self.calls.append((name, *args))
        self.pair = tuple(attempt(function, cls) for cls in (Theirs, Ours))

    def go_on(self):
        """One more call on both."""
        shape = self.pair[0].shape
        n, pick = len(shape), self.random.choice
        name = pick(("sliced", "sliced", "permuted", "reshaped", "reshaped", "broadcast_to", "squeezed",
                     "unsqueezed", "flattened", "repacked", "to_dense"))
        args = {
            "sliced": lambda: (tuple(self.index() for _ in range(self.random.randrange(n + 1)))
                               if self.random.random() < 0.8 else self.index(),),
            "permuted": lambda: (self.axes(n),),
            "reshaped": lambda: (self.regrouped(shape),),
            "broadcast_to": lambda: (self.extents(self.random.randrange(3)) + tuple(
                extent if extent != 1 or self.random.random() < 0.5 else 5 for extent in shape),),
            "squeezed": lambda: (),
            "unsqueezed": lambda: (pick((self.random.randrange(-1, n + 2), (0,), (n,), (0, n + 1))),),
            "flattened": lambda: pick(((), (0, n - 1), (self.random.randrange(n + 1),))),
            "repacked": lambda: (pick((1, 2, 4, 8, 16, 3)), 0, pick((-1, 0, n - 1))),
            "to_dense": lambda: pick(((), ("C",), ("F",), ("K",), (self.axes(n),), ("X",))),
        }[name]()
        self.calls.append((name, *args))
        self.before = self.pair[1]
        self.pair = tuple(attempt(getattr(layout, name), *args) for layout in self.pair)


@unittest.skipIf(MISSING, MISSING)
class Layouts(unittest.TestCase):
    """The same chains on both sides."""

    def setUp(self):
        self.found = {}

    def tearDown(self):
        lines = [f"{name}.{key}: cuda.core {one!r}, hoist.core {other!r}: {calls}"
                 for (name, key, *_), (one, other, calls) in self.found.items()]
        self.assertFalse(lines, "\n" + "\n".join(lines) + f"\nHOIST_TEST_SEED={SEED}")

    def compare(self, chain):
        """Notes the first difference of each kind that is not wanted."""
        call = chain.calls[-1]
        if any(isinstance(layout, Failed) for layout in chain.pair):
            answers = {"itself": chain.pair}
        else:
            theirs, ours = (describe(layout) for layout in chain.pair)
            answers = {key: (theirs[key], ours[key]) for key in theirs}
        for key, (one, other) in answers.items():
            if one != other and not any(is_one(call, chain.before, one, other)
                                        for _, is_one in WANTED):
                kinds = tuple(repr(a) if isinstance(a, Failed) else type(a).__name__ for a in (one, other))
                self.found.setdefault((call[0], key, *kinds), (one, other, list(chain.calls)))

    def test_each_wanted_difference_is_there(self):
        """A call for each entry of WANTED."""
        for (reason, is_one), begin, call in zip(WANTED, (
                lambda cls: cls((8, 1, 4), (4, 32, 1), 2), lambda cls: cls((6,), None, 8)), (
                ("reshaped", (32, 1)), ("repacked", 3, 0, 0)), strict=True):
            with self.subTest(reason=reason):
                theirs, ours = begin(Theirs), begin(Ours)
                answers = [attempt(getattr(layout, call[0]), *call[1:]) for layout in (theirs, ours)]
                self.assertNotEqual(*answers)
                self.assertTrue(is_one(call, ours, *answers))

    def test_chains(self):
        rng = random.Random(SEED)
        for _ in range(ROUNDS):
            chain = Chain(rng)
            chain.begin()
            self.compare(chain)
            for _ in range(rng.randrange(LONGEST)):
                if any(isinstance(layout, Failed) for layout in chain.pair):
                    break
                chain.go_on()
                self.compare(chain)


if __name__ == "__main__":
    unittest.main()
