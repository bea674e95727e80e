# SPDX-License-Identifier: MIT
"""Differential tests: the same calls on another package's API and on hoist's, and what must agree.

A call is a function of a World, which has one package's names.  Its outcome is a value, as plain facts,
or an exception: the built-in class, and the kind of the message, by KINDS.  The outcomes of the two
worlds agree if the facts are equal, or if hoist's exception also is the peer's and the messages are of
one kind.

A difference has a name: (the case, the peer's outcome, hoist's outcome).  A table lists the differences
that are wanted, each with its reason.  A difference that the table lacks fails the test, and so does
one of the table that no call shows.
"""

import builtins
import re

import numpy as np

# The kind of a message: the first pattern that the message has.
KINDS = (
    ("no memory", r"allocation failed|not enough data|exceeds every address space"),
    ("the number of indices", r"number of indices|too many indices|indices for a buffer"),
    ("one element", r"expected only 1|needs exactly 1"),
    ("outside", r"out of bounds|outside axis|index 0 alone|out of range|no last axis|rank 0; its only"),
    ("the step", r"step size|slice step|the step in axis"),
    ("do not match", r"sizes don't match|different sizes|different dtypes|size mismatch|both must agree|"
                     r"bytes, the buffer|larger than the initial|leaves its buffer|a divisor of|not a multiple of|same length|"
                     r"destinations and"),
    ("not contiguous", r"contiguous|packed|must keep dimension|does not fit; copy the buffer"),
    ("the mode", r"mode must be one of|is no mode"),
    ("the file's size", r"length is greater|cannot mmap an empty|file is shorter|is longer|is empty"),
    ("no file", r"No such file or directory$|No such file or directory: '"),
    ("read-only", r"read-?only"),
    ("the number", r"bad_cast|is complex and|is no whole number|is outside [uif]\d|must be real number"),
    ("no such type", r"unsupported DLDataTypeCode|native byte order|DLPack only supports|DLPack has no|"
                     r"no complex types|Unsupported dtype in DLTensor|does not support|not implemented for "
                     r"dtype|cannot be converted|NumPy has no"),
    ("no such device", r"No supported|no supported|no devices were found|there is no accelerator"),
    ("the id", r"must always be greater|0 or more"),
    ("of an accelerator", r"Not implemented for device: cpu|is an accelerator's"),
    ("copy=", r"copy=|`copy` flag"),
    ("the export", r"unsupported dl_device|stream 1:|no driver library|not supported"),
    ("the argument", r"incompatible function arg|unsupported index type|an index is an|interpreted as an|"
                     r"one element is stored|is needed|takes a device|is no number|is an? hoist|positional|keyword|has no (attribute|"
                     r"len)|int too big|fit 'int'|waits for a|not iterable|must be a s|invalid literal|"
                     r"not 'Buffer'|not subscriptable|only integer scalar|not negative|axes; hoist has|"
                     r"a device is|constructor defined|DType|pickle|bytes-like|one alignment|"
                     r"power of two|63 bits|ambiguous|only a buffer of rank 0"),
)


class World:
    """One package's names: `driver`, `DType`, `B` (its Buffer), `cpu`."""

    def __init__(self, driver, dtype):
        self.driver, self.DType = driver, dtype
        self.B = driver.Buffer
        self.cpu = driver.CPU()

    def dtype(self, name):
        return getattr(self.DType, name)


def kind_of(error):
    text = str(error)
    for kind, pattern in KINDS:
        if re.search(pattern, text):
            return kind
    return f"unknown: {text.splitlines()[0] if text else ''}"


class Raised:
    """An exception, as far as it is compared."""

    def __init__(self, error):
        classes = [c for c in type(error).__mro__ if getattr(builtins, c.__name__, None) is c]
        # The first built-in one is what a program catches; hoist's may have several.
        self.classes = [c for c in classes if c not in (Exception, BaseException, object)]
        self.kind = kind_of(error)

    def __str__(self):
        return f"{self.classes[0].__name__}: {self.kind}"

    def agrees(self, other):
        return self.classes[0] in other.classes and self.kind == other.kind


def outcome(call, world):
    """The call's facts, or what it raised."""
    try:
        return call(world)
    except Exception as error:  # pylint: disable=broad-exception-caught
        return Raised(error)


def facts(value):
    """A value that can be compared between the worlds."""
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        return buffer_facts(value)
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "shape": value.shape, "elements": value.tobytes(),
                "writable": value.flags.writeable}
    if isinstance(value, (list, tuple)):
        return [facts(item) for item in value]
    if isinstance(value, dict):
        return {name: facts(item) for name, item in value.items()}
    if isinstance(value, (int, float, str, bytes, type(None))):
        return repr(value) if isinstance(value, float) else value
    return type(value).__name__


def buffer_facts(buffer, elements=True):
    ret = {"dtype": str(buffer.dtype), "shape": buffer.shape, "rank": buffer.rank,
           "count": buffer.num_elements, "element_size": buffer.element_size,
           "is_contiguous": buffer.is_contiguous, "is_host": buffer.is_host, "pinned": buffer.pinned,
           "device": str(buffer.device), "usage": buffer.usage.name, "place": buffer.__dlpack_device__()}
    if buffer.num_elements > 0:  # the stride of an axis of extent 1 says nothing
        ret["strides"] = [s for s, n in zip(buffer.strides, buffer.shape) if n != 1]
    if elements:
        ret["elements"] = elements_of(buffer)
    return ret


def elements_of(buffer):
    """One by one, by item(): to_numpy() is a call with cases of its own."""
    at = [tuple(int(i) for i in where) for where in np.ndindex(*buffer.shape)]
    return [repr(buffer[index].item()) for index in at]


def difference(case, peer, ours):
    """The name of the difference between two outcomes; None: they agree."""
    if isinstance(peer, Raised) and isinstance(ours, Raised):
        return None if peer.agrees(ours) else (case, str(peer), str(ours))
    if isinstance(peer, Raised):
        return (case, str(peer), "a value")
    if isinstance(ours, Raised):
        return (case, "a value", str(ours))
    if peer == ours:
        return None
    if isinstance(peer, dict) and isinstance(ours, dict) and peer.keys() == ours.keys():
        names = [name for name in peer if peer[name] != ours[name]]
        return (case, "a value", "another " + ", ".join(names))
    return (case, "a value", "another value")


class Comparison:
    """Runs calls on both worlds, and keeps the differences: one example of each."""

    def __init__(self, peer, ours):
        self.peer, self.ours = peer, ours
        self.n_calls = 0
        self.seen = {}

    def run(self, case, call, about=""):
        """One call on both.  `about`: what a report says of its arguments."""
        peer, ours = (outcome(lambda w: facts(call(w)), world) for world in (self.peer, self.ours))
        self.n_calls += 1
        name = difference(case, peer, ours)
        if name is not None and name not in self.seen:
            show = [f"{x}" if isinstance(x, Raised) else repr(x)[:600] for x in (peer, ours)]
            self.seen[name] = f"{about}\n    peer:  {show[0]}\n    hoist: {show[1]}"

    def report(self, wanted):
        """Text about differences that `wanted` lacks, and about those of it that no call showed."""
        lines = [f"not listed: {name!r}:\n    {self.seen[name]}" for name in self.seen
                 if name not in wanted]
        lines += [f"listed, but it does not occur: {name!r}" for name in wanted
                  if name not in self.seen]
        return "\n".join(lines)
