# SPDX-License-Identifier: MIT
"""Checkpoints for the tests, written and read without hoist."""

import contextlib
import json
import os
import random
import signal
import struct
import tempfile
import threading
import time
import unittest

SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "I32": 4}
NAMES = {"F32": "f32", "F16": "f16", "BF16": "bf16", "I64": "i64", "U8": "u8", "BOOL": "bool",
         "F8_E4M3": "f8_e4m3fn", "I32": "i32"}


def has_ucx():
    """Whether groups of several machines can be tried here."""
    import hoist  # pylint: disable=import-outside-toplevel
    return any((finding.name, finding.level) == ("across machines", "ok") for finding in hoist.doctor())


def content(seed, kind, n):
    """Pseudo-random bytes of `n` elements."""
    data = random.Random(seed).randbytes(n * SIZES[kind])
    return bytes(b & 1 for b in data) if kind == "BOOL" else data


def write(path, tensors, metadata=None):
    """Writes a safetensors file.  `tensors`: {name: (kind, shape)}.  Returns: {name: bytes}."""
    header, blobs, at = {}, {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (kind, shape) in tensors.items():
        n = 1
        for extent in shape:
            n *= extent
        blobs[name] = content(name, kind, n)
        header[name] = {"dtype": kind, "shape": list(shape),
                        "data_offsets": [at, at + len(blobs[name])]}
        at += len(blobs[name])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs.values():
            file.write(blob)
    return blobs


MODEL = {
    "embed": ("BF16", (300, 64)), "layers.0.q": ("F32", (64, 64)), "layers.0.k": ("F16", (16, 64)),
    "layers.1.q": ("F32", (64, 64)), "scalar": ("F32", ()), "empty": ("I64", (0, 3)),
    "mask": ("BOOL", (7, 5)), "ids": ("I64", (1000,)), "scale": ("F8_E4M3", (33,)),
    "big": ("F32", (1200, 1024)), "bytes": ("U8", (99999,)),
}


def spoil_kept(path):
    """Changes each digest that is kept beside the file."""
    with open(path + ".xxh3", "r+", encoding="ascii") as file:
        first, second, digits = file.read().split("\n")[:3]
        file.seek(0)
        file.write("\n".join((first, second, digits[::-1], "")))


def interrupted(test, call, until=lambda: time.sleep(0.2)):
    """`call` raises KeyboardInterrupt for a SIGINT that comes while it waits, or just before it on a slow machine.

    `until` runs in another thread, and returns when the SIGINT is to be sent.  A shell starts jobs in the
    background with SIGINT ignored, and Python leaves that so: meanwhile the signal has Python's handler.
    """
    begun = threading.Event()

    def interrupt():
        begun.wait()
        until()
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        with test.assertRaises(KeyboardInterrupt):
            begun.set()
            call()
    finally:
        while thread.is_alive():
            with contextlib.suppress(KeyboardInterrupt):  # where the call ended before the SIGINT came
                thread.join()
        signal.signal(signal.SIGINT, before)


class WithModel(unittest.TestCase):
    """Tests that read one checkpoint, `path`, of the tensors `model`, whose `bytes` are {name: bytes}."""

    model, metadata = MODEL, None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "model.safetensors")
        cls.bytes = write(cls.path, cls.model, cls.metadata)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()
