# SPDX-License-Identifier: MIT
"""The command `hoist`, as the package carries it."""

import os
import sys


def main():
    """Becomes the command, with the package's own library."""
    package = os.path.dirname(os.path.abspath(__file__))
    program = os.path.join(package, "bin", "hoist")
    known = os.environ.get("LD_LIBRARY_PATH")
    library = os.path.join(package, "lib")
    os.environ["LD_LIBRARY_PATH"] = library + (":" + known if known else "")
    os.execv(program, [program, *sys.argv[1:]])
