# SPDX-License-Identifier: MIT
"""The stubs (*.pyi): every module has one, and each says what is there at run time."""

import importlib
import importlib.util
import os
import pkgutil
import subprocess
import sys
import tempfile
import unittest

import hoist

SETTINGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mypy.ini")

# What a program writes, and the types that a checker must see.
PROGRAM = """
import hoist
from hoist import numpy as hnp

with hoist.open("model/") as ckpt:
    shapes: dict[str, tuple[int, ...]] = {name: t.shape for name, t in ckpt.items()}
with hoist.load("model/", device="cuda:0", slices={"*.q": (1, 0, 2)}, io="direct") as load:
    for name, buffer in load:
        text: str = name + buffer.dtype
        part: hoist.Buffer = buffer[..., 1:2]
total: int = sum(array.nbytes for array in hnp.load_file("model/").values())
hoist.load("model/", io="quick")  # wrong
hoist.Buffer("f32")  # wrong
"""


def mypy(*arguments):
    run = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True,
                         check=False)
    return run.returncode, run.stdout + run.stderr


class Stubs(unittest.TestCase):
    def test_every_module_has_one(self):
        folder = os.path.dirname(hoist.__file__)
        self.assertTrue(os.path.exists(os.path.join(folder, "py.typed")))
        for module in pkgutil.walk_packages(hoist.__path__, "hoist."):
            path = os.path.join(os.path.dirname(folder), *module.name.split("."))
            path = os.path.join(path, "__init__") if module.ispkg else path
            with self.subTest(module=module.name):
                self.assertTrue(os.path.exists(path + ".pyi"), path)

    def setUp(self):
        if importlib.util.find_spec("mypy") is None and "every" not in self.id():
            self.skipTest("mypy is not installed")

    @staticmethod
    def not_importable():
        """Modules that import what is not installed."""
        needs = {"numpy": "numpy", "torch": "torch", "lazy": "torch", "servers.reading": "torch",
                 "sglang.hooks": "torch",
                 "dcp": "torch.distributed.checkpoint", "vllm.loader": "vllm"}
        for name, package in needs.items():
            try:
                importlib.import_module(package)
            except ImportError:
                yield name

    def test_they_say_what_is_there(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as allowed:
            for name in self.not_importable():
                allowed.write(f"hoist.{name}\n")
            allowed.write("hoist.lazy.Lazy\n")  # its metaclass, which is torch's, no stub has
            allowed.flush()
            # Which classes cannot be bases together, stubs say since 2025: older checkers stumble.
            newer = ["--ignore-disjoint-bases"]
            newer = newer if newer[0] in mypy("mypy.stubtest", "--help")[1] else []
            status, text = mypy("mypy.stubtest", "--mypy-config-file", SETTINGS, "--allowlist",
                                allowed.name, "--ignore-unused-allowlist", *newer, "hoist")
        self.assertEqual(status, 0, text)

    def test_programs_are_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(PROGRAM)
            status, text = mypy("mypy", "--config-file", SETTINGS, "--cache-dir", folder, path)
        wrong = [n for n, line in enumerate(PROGRAM.split("\n"), 1) if line.endswith("# wrong")]
        found = [int(line.split(":")[1]) for line in text.splitlines() if ": error: " in line]
        self.assertEqual((status, found), (1, wrong), text)


if __name__ == "__main__":
    unittest.main()
