# SPDX-License-Identifier: MIT
"""Runs the tests of the Python package, and reports them as tests/ does: run.py LOG-WITHOUT-ENDING."""

import os
import sys
import unittest

os.environ["HOIST_EMULATE"] = "cuda:2,hip:1"


class Result(unittest.TextTestResult):
    """One line for each test that was skipped, with its reason."""

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.stream.writeln(f"ok {test.id()} # SKIP {reason}")


def main():
    with open(sys.argv[1] + ".log", "w", encoding="utf-8") as log:
        suite = unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__)))
        runner = unittest.TextTestRunner(log, resultclass=Result, verbosity=2)
        result = runner.run(suite)
        n_failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
        n_skipped = len(result.skipped)
        print(f"wrap: {result.testsRun - n_failed - n_skipped} passed, {n_failed} failed, "
              f"{n_skipped} skipped", file=log)
    with open(sys.argv[1] + ".trs", "w", encoding="utf-8") as trs:
        print(":test-result:", "FAIL" if n_failed else "PASS", file=trs)
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
