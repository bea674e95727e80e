#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""python.py [--many MANY] [--file FILE] - what the Python package costs.

   import hoist     in a process of its own, which imports nothing before
   MANY             a safetensors file of very many tensors:
     listing        hoist.open() until a list of all its tensors is there
     loading        hoist.torch.load_file(), or hoist.numpy.load_file() where torch is not installed,
                    beside the same load without a Python object for any tensor
   FILE             any file: the most memory that load_file() and touching every byte after it add to
                    the process, to the bytes of the tensors

Each is measured in processes of their own, in turn; figures are medians.  `tests/mkcheckpoint --bytes 200000000
--tensors 100000 --equal FOLDER` makes MANY.  The package hoist must be installed for the Python that runs this.
bench/peers.py --python compares its loads with other packages'.
"""
import argparse
import json
import statistics
import subprocess
import sys

FRAMEWORK = """
import importlib.util
import hoist, numpy
name = "torch" if importlib.util.find_spec("torch") else "numpy"
package = getattr(hoist, name)
module = importlib.import_module(name)
"""

# Each prints one number.
IMPORT = """
import time
begin = time.perf_counter()
import hoist
print(time.perf_counter() - begin)
"""

LIST = """
import time
import hoist
begin = time.perf_counter()
with hoist.open({path!r}) as checkpoint:
    tensors = list(checkpoint.values())
print(time.perf_counter() - begin)
"""

BARE = FRAMEWORK + """
import time
from hoist import _hoist
begin = time.perf_counter()
with hoist.open({path!r}) as checkpoint:
    load = _hoist.Load(checkpoint, io=_hoist.IO_ADAPTIVE if name == "torch" else _hoist.IO_AUTO,
                       flags=_hoist.LOAD_CALLER_DRIVEN)
    load._wait()
print(time.perf_counter() - begin)
"""

LOAD = FRAMEWORK + """
import time
begin = time.perf_counter()
tensors = package.load_file({path!r})
print(time.perf_counter() - begin)
"""

MEMORY = FRAMEWORK + """
def kept(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) << 10
numpy.ones(1 << 20, numpy.uint8).sum()
open("/proc/self/clear_refs", "w").write("5")
before = kept("VmRSS")
tensors = package.load_file({path!r})
for tensor in tensors.values():
    if tensor.nbytes > 0:
        flat = tensor.reshape(-1)
        (flat.view(module.uint8).numpy() if name == "torch" else flat.view(module.uint8)).sum()
print((kept("VmHWM") - before) / sum(t.nbytes for t in tensors.values()))
"""


def once(code, path):
    out = subprocess.run([sys.executable, "-c", code.format(path=path)], check=True,
                         capture_output=True, text=True).stdout
    return float(out)


def interleaved(runs, path, *codes):
    """The median of each code's figures."""
    figures = [[once(code, path) for code in codes] for _ in range(runs)]
    return [statistics.median(column) for column in zip(*figures)]


def count(path):
    return int(once("import hoist; print(len(hoist.open({path!r})))", path))


def row(work, value, unit, bar):
    return {"work": work, "value": value, "unit": unit, "bar": bar, "met": None if bar is None else value <= bar}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--many", help="a safetensors file of very many tensors")
    parser.add_argument("--file", help="a safetensors file")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [row("import hoist", interleaved(arguments.runs, None, IMPORT)[0] * 1e3, "ms", 40)]
    if arguments.many:
        n = count(arguments.many)
        seconds, = interleaved(arguments.runs, arguments.many, LIST)
        rows.append(row(f"listing {n} tensors", seconds, "s", 3e-6 * n))
        bare, whole = interleaved(arguments.runs, arguments.many, BARE, LOAD)
        rows.append(row(f"the load of {n} tensors, no objects", bare, "s", None))
        rows.append(row(f"the load of {n} tensors, load_file()", whole, "s", 1.5 * bare + 2e-6 * n))
    if arguments.file:
        peak, = interleaved(arguments.runs, arguments.file, MEMORY)
        rows.append(row("the most memory / bytes of the tensors", peak, "x", 1.02))
    if arguments.json:
        print(json.dumps({"bench": "python", "rows": rows}, indent=1))
        return
    for r in rows:
        bar = "" if r["bar"] is None else \
            f"  at most {r['bar']:.4g}: {'met' if r['met'] else 'NOT MET'}"
        print(f"{r['work']:44} {r['value']:10.4g}  {r['unit']}{bar}")


if __name__ == "__main__":
    main()
