# SPDX-License-Identifier: MIT
"""Runs the tests of the Python package, and reports them as tests/ does.

    run.py LOG-WITHOUT-ENDING [PATTERN]

PATTERN: of the files of tests; without it test*.py.  Each file has an interpreter of its own, and
twice as many run at a time as there are processors, as tests wait.  The log ends with what failed: the
tests' names and tracebacks once more.
"""

import concurrent.futures
import glob
import os
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
LONGEST = ["test_reading.py", "test_failing.py", "test_robust.py", "test_streams.py", "test_cache.py",
           "test_docs.py", "test_types.py"]  # these begin first


class Result(unittest.TextTestResult):
    """One line for each test that was skipped, with its reason."""

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.stream.writeln(f"ok {test.id()} # SKIP {reason}")


SAID = "= said of what failed ="  # before what the log is to end with


def run_one(name):
    """The tests of one file.  The last line of the output has the counts."""
    suite = unittest.defaultTestLoader.discover(HERE, name)
    result = unittest.TextTestRunner(sys.stdout, resultclass=Result, verbosity=2).run(suite)
    n_failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    print(SAID)
    for test, trace in result.failures + result.errors:
        print(f"FAILED: {test.id()}\n{trace}")
    for test in result.unexpectedSuccesses:
        print(f"FAILED: {test.id()}\nan unexpected success\n")
    print("counts", result.testsRun, n_failed, len(result.skipped), flush=True)


def run_file(name):
    """The same in an interpreter of its own.

    Returns: its output; what it said of failures; tests, failed and skipped ones.
    """
    begun = time.monotonic()
    run = subprocess.run([sys.executable, os.path.abspath(__file__), "--one", name], text=True, check=False,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _, last = run.stdout.rstrip("\n").rpartition("\n")
    words = last.split()
    if run.returncode != 0 or len(words) != 4 or words[0] != "counts":
        said = f"{name}: the interpreter ended with status {run.returncode}\n"
        end = "\n".join(run.stdout.splitlines()[-40:])
        return f"{run.stdout}\n{said}", f"FAILED: {said}{end}\n", (1, 1, 0)
    output, _, said = output.rpartition(SAID)
    said = said.strip("\n") + "\n" if said else ""
    return f"{output}{name}: {time.monotonic() - begun:.1f} s\n", said, tuple(map(int, words[1:]))


def main():
    if sys.argv[1] == "--one":
        run_one(sys.argv[2])
        return 0
    names = sorted(os.path.basename(path) for path in glob.glob(
        os.path.join(HERE, sys.argv[2] if len(sys.argv) > 2 else "test*.py")))
    names.sort(key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))
    n_run = n_failed = n_skipped = 0
    with open(sys.argv[1] + ".log", "w", encoding="utf-8") as log:
        with concurrent.futures.ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
            ended = []
            for output, said, (run, failed, skipped) in pool.map(run_file, names):
                log.write(output)
                ended.append(said)
                n_run, n_failed, n_skipped = n_run + run, n_failed + failed, n_skipped + skipped
        log.writelines(ended)
        print(f"wrap: {n_run - n_failed - n_skipped} passed, {n_failed} failed, {n_skipped} skipped",
              file=log)
    with open(sys.argv[1] + ".trs", "w", encoding="utf-8") as trs:
        print(":test-result:", "FAIL" if n_failed else "PASS", file=trs)
    return 1 if n_failed else 0


if __name__ == "__main__":
    os.environ["HOIST_EMULATE"] = "cuda:2,hip:1"
    sys.exit(main())
