# SPDX-License-Identifier: MIT
"""The command `hoist`, as the package carries it."""

import os
import sys


def main():
    """Becomes the command, which finds the package's own library beside itself."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "hoist")
    os.execv(program, [program, *sys.argv[1:]])
