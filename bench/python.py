#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""python.py [--many MANY] [--file FILE] [--refit FOLDER] [--max] - what the Python package costs.

   import hoist     in a process of its own, which imports nothing before
   MANY             a safetensors file of very many tensors:
     listing        hoist.open() until a list of all its tensors is there
     loading        hoist.torch.load_file(), or hoist.numpy.load_file() where torch is not installed,
                    beside the same load without a Python object for any tensor
   FILE             any file, cold and hot:
     memory         the most memory that load_file() and touching every byte after it add to the
                    process, to the bytes of the tensors
     a device       hoist.load_all() to cuda:0, emulated unless there is a GPU, until the device has
                    done all its work, beside `hoist load` of the command that is in the package
   FOLDER           has room for two checkpoints of 1 GB, which are made there and removed:
     refit          hoist.torch.load_into(changed_only=True) where 10 of 100 tensors have changed, beside
                    load_into() of all, and load_state_dict(load_file()) of the safetensors package where
                    that is installed; the modules must be equal at the end
   --max            calls on a small Buffer, beside the same calls of max.driver, where max 26.7 is installed

Each is measured in processes of their own, in turn; figures are medians.  `tests/mkcheckpoint --bytes 200000000
--tensors 100000 --equal FOLDER` makes MANY.  The package hoist must be installed for the Python that runs this.
bench/peers.py --python compares its loads with other packages'.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # into the sources
from peers import prepare

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
    load = _hoist.Load(checkpoint, io=_hoist.IO_ADAPTIVE, flags=_hoist.LOAD_CALLER_DRIVEN)
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


DEVICE = """
import time
import hoist
device = hoist.Device("cuda:0")
first = hoist.Buffer("u8", (1,), device, zero=True)  # makes the context
device.synchronize()
begin = time.perf_counter()
tensors = hoist.load_all({path!r}, device)
device.synchronize()
print(sum(buffer.nbytes for buffer in tensors.values()) / 1e9 / (time.perf_counter() - begin))
"""

WHERE = """
import os
import hoist
print(os.path.dirname(hoist.__file__), hoist.Device("cuda:0").info()["emulated"])
"""

# Prints a dict: the call -> (hoist's ns, max.driver's), medians of interleaved runs.
CALLS = """
import json, statistics, time
import numpy
import hoist.driver, max.driver
array = numpy.zeros((4, 8), numpy.float32)
def measured(call):
    n = 5000
    begin = time.perf_counter()
    for _ in range(n):
        call()
    return (time.perf_counter() - begin) / n * 1e9
def calls(driver):
    Buffer = driver.Buffer
    buffer = Buffer.from_numpy(array)
    ones = tuple([0, 1])
    part = tuple([slice(1, 3), slice(0, 8, 2)])
    return {{"Buffer.from_numpy(array).to_numpy()": lambda: Buffer.from_numpy(array).to_numpy(),
             "a slice, buffer[1:3, 0:8:2]": lambda: buffer[part],
             "an element, buffer[0, 1].item()": lambda: buffer[ones].item(),
             "np.from_dlpack(buffer)": lambda: numpy.from_dlpack(buffer)}}
ours, theirs = calls(hoist.driver), calls(max.driver)
ret = {{}}
for name in ours:
    rounds = [(measured(ours[name]), measured(theirs[name])) for _ in range(15)]
    ret[name] = [statistics.median(column) for column in zip(*rounds[2:])]
print(json.dumps(ret))
"""

# Two checkpoints, which differ in each tenth tensor.
REFIT_FILES = """
import os
import hoist, torch
tensors = {{f"t{{i}}": torch.randn(1024, 5120).bfloat16() for i in range(100)}}
for step in range(2):
    hoist.torch.save_file(tensors, os.path.join({path!r}, f"step-{{step}}.safetensors"), digest=True)
    tensors.update({{f"t{{i}}": tensors[f"t{{i}}"] + 1 for i in range(0, 100, 10)}})
"""

# Prints a dict: the call -> seconds of each round.  A round takes the file that is not loaded.
REFIT = """
import json, os, sys, time
folder, hot, runs, bench = {path!r}
sys.path.insert(0, bench)
from peers import prepare
import hoist, torch
files = [os.path.join(folder, f"step-{{step}}.safetensors") for step in range(2)]
calls = {{"changed_only": lambda net, path: hoist.torch.load_into(net, path, changed_only=True),
         "all": hoist.torch.load_into}}
try:
    from safetensors.torch import load_file
    calls["load_state_dict"] = lambda net, path: net.load_state_dict(load_file(path))
except ImportError:
    pass
nets = {{name: torch.nn.ParameterDict({{f"t{{i}}": torch.nn.Parameter(torch.zeros(1024, 5120).bfloat16())
                                      for i in range(100)}}) for name in calls}}
for path in files:  # the first call reads all
    for name, call in calls.items():
        call(nets[name], path)
ret = {{name: [] for name in calls}}
for run in range(runs):
    path = files[run % 2]
    for name in list(calls)[run % len(calls):] + list(calls)[:run % len(calls)]:
        prepare(path, hot)
        begin = time.perf_counter()
        result = calls[name](nets[name], path)
        ret[name].append(time.perf_counter() - begin)
        if name == "changed_only" and len(result.kept) != 90:
            sys.exit(f"{{len(result.kept)}} tensors were kept, not 90")
    for name, net in nets.items():
        if not all(torch.equal(a, b) for a, b in zip(net.values(), nets["all"].values())):
            sys.exit(f"{{name}}: another tensor")
print(json.dumps(ret))
"""


def printed(code, path):
    return subprocess.run([sys.executable, "-c", code.format(path=path)], check=True,
                          capture_output=True, text=True).stdout


def once(code, path):
    return float(printed(code, path))


def series(runs, path, *codes):
    """The figures of each code, which run in turn."""
    return list(zip(*[[once(code, path) for code in codes] for _ in range(runs)]))


def row(work, subject, values, unit, bar=None, more=False, emulated=False):
    """As bench/results.h has them."""
    value = statistics.median(values)
    met = None if bar is None else value >= bar if more else value <= bar
    return {"work": work, "threads": 1, "subject": subject, "value": value, "unit": unit,
            "least": min(values), "most": max(values), "runs": len(values), "emulated": emulated,
            "bar": bar, "more": more, "met": met}


def command_rate(command, path):
    out = subprocess.run([command, "load", "--device", "cuda:0", "--json", path], check=True,
                         capture_output=True, text=True).stdout
    return json.loads(out)["gb_per_s"]


def rows_of_device(runs, path, rows, missing):
    """The package's load to a device beside the command's, in turn."""
    os.environ.setdefault("HOIST_EMULATE", "cuda:1")
    os.environ.setdefault("HOIST_EMULATE_RESIDENT", str(os.path.getsize(path) * 9 // 8))
    try:
        folder, emulated = printed(WHERE, None).rsplit(None, 1)
    except subprocess.CalledProcessError as error:
        missing.append({"subject": "loads to a device", "reason": error.stderr.strip().splitlines()[-1]})
        return
    command = os.path.join(folder, "bin", "hoist")
    emulated = emulated == "True"
    for hot in (False, True):
        work = f"{'hot' if hot else 'cold'} file to cuda:0"
        rates = {"load_all()": [], "hoist load": []}
        for run in range(runs):
            for one in list(rates)[:: -1 if run % 2 else 1]:
                prepare(path, hot)
                rates[one].append(once(DEVICE, path) if one == "load_all()" else command_rate(command, path))
        rows += [row(work, name, values, "GB/s", more=True, emulated=emulated)
                 for name, values in rates.items()]
        ratio = statistics.median(rates["load_all()"]) / statistics.median(rates["hoist load"])
        rows.append(row(work, "rate / hoist load", [ratio], "x", 0.97, True, emulated))


def rows_of_many(runs, path, rows):
    n = int(once("import hoist; print(len(hoist.open({path!r})))", path))
    rows.append(row(f"listing {n} tensors", "hoist.open()", series(runs, path, LIST)[0], "s", 3e-6 * n))
    bare, whole = series(runs, path, BARE, LOAD)
    rows.append(row(f"loading {n} tensors", "no objects", bare, "s"))
    rows.append(row(f"loading {n} tensors", "load_file()", whole, "s",
                    1.5 * statistics.median(bare) + 2e-6 * n))


def rows_of_refit(runs, folder, rows, missing):
    with tempfile.TemporaryDirectory(dir=folder) as made:
        printed(REFIT_FILES, made)
        for hot in (True, False):
            work = f"refit, 10 of 100 tensors changed, {'hot' if hot else 'cold'}"
            times = json.loads(printed(REFIT, (made, hot, runs, os.path.dirname(os.path.abspath(__file__)))))
            for name, subject in (("changed_only", "load_into(changed_only=True)"), ("all", "load_into()"),
                                  ("load_state_dict", "load_state_dict(load_file())")):
                if name not in times:
                    missing.append({"subject": subject, "reason": "the safetensors package is not installed"})
                    continue
                rows.append(row(work, subject, times[name], "s"))
                if name != "changed_only":
                    ratio = statistics.median(times["changed_only"]) / statistics.median(times[name])
                    rows.append(row(work, f"changed_only's time / {subject}", [ratio], "x", 0.25))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--many", help="a safetensors file of very many tensors")
    parser.add_argument("--file", help="a safetensors file")
    parser.add_argument("--refit", help="a folder with room for 2.1 GB", metavar="FOLDER")
    parser.add_argument("--max", action="store_true", help="calls beside max.driver's")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    runs, missing = arguments.runs, []
    rows = [row("import hoist", "hoist", [1e3 * s for s in series(runs, None, IMPORT)[0]], "ms", 40)]
    if arguments.many:
        rows_of_many(runs, arguments.many, rows)
    if arguments.file:
        for hot in (False, True):
            work = f"memory of a {'hot' if hot else 'cold'} file, to the tensors"
            prepare(arguments.file, hot)
            rows.append(row(work, "load_file()", series(1, arguments.file, MEMORY)[0], "x", 1.02))
        rows_of_device(runs, arguments.file, rows, missing)
    if arguments.refit:
        rows_of_refit(runs, arguments.refit, rows, missing)
    if arguments.max:
        for name, (ours, theirs) in json.loads(printed(CALLS, None)).items():
            rows.append(row(name, f"{ours:.0f} ns / max.driver's {theirs:.0f} ns", [ours / theirs], "x", 1.0))
    if arguments.json:
        print(json.dumps({"bench": "python", "rows": rows, "missing": missing}, indent=1))
        return
    for r in rows:
        bar = "" if r["bar"] is None else (f"  at {'least' if r['more'] else 'most'} {r['bar']:.4g}: "
                                           f"{'met' if r['met'] else 'NOT MET'}")
        print(f"{r['work']:44} {r['subject']:34} {r['value']:10.4g}  {r['unit']}{bar}"
              f"{'  emulated' * r['emulated']}")
    for item in missing:
        print(f"not measured: {item['subject']}: {item['reason']}")


if __name__ == "__main__":
    main()
