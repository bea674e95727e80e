# SPDX-License-Identifier: MIT
"""Test vectors of the specification, by their numbers: each becomes tests of a TestCase.

    @vector("V004", on=ALL)
    def elements_are_stored(t, device): ...

`on`: the vector is one test for each of the devices; a vector without `on` is one test.
"""

import os
import subprocess
import sys
import unittest

ALL = ("cpu", "cuda:0", "hip:0")
GPUS = ("cuda:0", "hip:0")

held = {}  # the number of each vector that some file has: the devices that its tests are for


def vectors(name):
    """A TestCase, and the decorator that adds vectors to it."""
    case = type(name, (unittest.TestCase,), {"__module__": f"test_{name.lower()}"})

    def vector(number, on=None):
        held.setdefault(number, set()).update(on or ())

        def add(function):
            title = f"test_{number}_{function.__name__}"
            if on is None:
                setattr(case, title, lambda self: function(self))
            for device in on or ():
                setattr(case, f"{title}_{device.replace(':', '')}",
                        lambda self, device=device: function(self, device))
            return function
        return add
    return case, vector


def run_alone(test, code, emulate=None):
    """Runs `code` in an interpreter of its own, with these emulated devices, or none."""
    env = {k: v for k, v in os.environ.items() if k != "HOIST_EMULATE"}
    if emulate:
        env["HOIST_EMULATE"] = emulate
    text = "import hoist\nimport hoist.driver as d\n" + code
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True,
                          timeout=60, check=False)
    test.assertEqual((done.returncode, done.stderr[-2000:]), (0, ""))
