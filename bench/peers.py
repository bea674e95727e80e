#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""peers.py FILE - loading a safetensors file: hoist beside other loaders.

To host memory, or with --device cuda:N to a GPU.  What it needs, in a virtual environment of yours
(torch, which some loaders need, is large; its CPU build will do for host memory):

    python3 -m venv VENV
    VENV/bin/pip install numpy safetensors torch fastsafetensors runai-model-streamer instanttensor
    VENV/bin/python bench/peers.py --library BUILD/lib/.libs/libhoist.so MODEL.safetensors
    VENV/bin/python bench/peers.py --library ... --device cuda:0 --memory /dev/shm MODEL.safetensors

Every loader must end with all bytes of all tensors where they are wanted; peers_load.py has the loaders.
In host memory, those that map the file (safetensors, numpy.memmap) have got nothing by then, so their
tensors are summed up, as little work as touching every byte takes.  Beside them stands the best of three
ways of hoist's with that sum: a load, maps of the file (HOIST_IO_MAP), which are what these peers have, and
a load that maps what is cached and reads the rest (HOIST_IO_ADAPTIVE).  The last has a bar of its own: of a
hot file, at most 1.2 times safetensors' time.
On a GPU the clock stops when the device has been waited for; "pinned copy" is the rate of the bus: as many
bytes from pinned memory that is used again and again.

With --python the package hoist stands in place of the library: hoist.torch.load_file() and
hoist.numpy.load_file() beside the peers' calls, safe_open() whose tensors are asked for one by one beside that of
safetensors, and every loader's tensors are summed up.  --only GLOB measures the loaders whose names match.

hoist is called through ctypes, in process, or as its package.  Each load is a process of its own, which imports what it needs
and makes the device's context before the clock starts; a round has each loader once, in an order that
rotates, one at a time; the round's processes import side by side.  Figures are medians.  After the first load
of each the tensors are compared with the file, outside of the clock: a loader with another byte, or
another set of names, ends the program (hoist) or is not measured (a peer).  Cold: the file is dropped from the
page cache (posix_fadvise) and that is verified; hot: it is read before; memory: a copy in --memory, a tmpfs.  Just
before each load as much memory is given back as it takes, since a virtual machine's host makes the first
touch of idle memory slow.
"""
import argparse
import contextlib
import ctypes
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # into the sources
from peers_load import Hoist, PINNED_COPY, RAW, loaders_of, read_header


def resident(path):
    """The share of the file that lies in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = os.path.getsize(path)
    page = mmap.PAGESIZE
    count = (size + page - 1) // page
    pages = (ctypes.c_ubyte * count)()
    with open(path, "r+b" if os.access(path, os.W_OK) else "rb") as file:
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                              ctypes.c_int, ctypes.c_long]
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        if address == ctypes.c_void_p(-1).value:
            sys.exit("mmap: " + os.strerror(ctypes.get_errno()))
        libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        if libc.mincore(address, size, pages) != 0:
            sys.exit("mincore: " + os.strerror(ctypes.get_errno()))
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        libc.munmap(address, size)
    return sum(bytes(pages).translate(bytes(i & 1 for i in range(256)))) / count


def prepare(path, hot):
    with open(path, "rb", buffering=0) as file:
        if hot:
            piece = bytearray(4 << 20)
            while file.readinto(piece):
                pass
        else:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    share = resident(path)
    if hot and share < 0.95 or not hot and share > 0.01:
        sys.exit(f"{path}: {share:.0%} of it lie in the page cache: not "
                 f"{'hot' if hot else 'cold'}")


# --- one load, in a process of its own ---

def compare(path, arrays):
    """What is wrong with the tensors, or None."""
    import numpy
    header = read_header(path)
    whole = numpy.memmap(path, dtype=numpy.uint8, mode="r")
    for name, array in arrays:
        if name not in header:
            return f"a tensor {name} that the file has not, or twice"
        begin, end = header.pop(name)
        if not numpy.array_equal(array, whole[begin:end]):
            return f"the bytes of {name} are not those of the file"
    return f"{len(header)} tensors are missing" if header else None


def wait_for_parent():
    if not sys.stdin.readline():
        sys.exit("the parent has ended")


def child(arguments):
    """Answers each line from the parent with one."""
    load, arrays = loaders_of(arguments)[arguments.child](arguments)
    print("imported", flush=True)
    wait_for_parent()
    prepare(arguments.file, arguments.hot)
    print("ready", flush=True)
    wait_for_parent()
    cpu = time.process_time()
    begin = time.perf_counter()
    result = load()
    seconds = time.perf_counter() - begin
    cpu = time.process_time() - cpu
    wrong = compare(arguments.file, arrays(result)) if arguments.compare and arrays else None
    done = sum(end - begin for begin, end in read_header(arguments.file).values())
    print(json.dumps({"seconds": seconds, "cpu": cpu, "bytes": done, "wrong": wrong}), flush=True)
    os._exit(0)  # what loaders do at their end is not measured


def keep_memory(size):
    """Memory that is in use, until close(): then whoever is next gets it without its host's help."""
    # Python's own choice is shared memory, which gets small pages.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    return memory


MOST_SECONDS = 300


class Child:
    """The process of one loader, for one load."""

    def __init__(self, arguments, name, path, hot, first):
        command = [sys.executable, os.path.abspath(__file__), "--library", arguments.library,
                   "--device", arguments.device, "--child", name, path]
        command += [word for pattern in arguments.only for word in ("--only", pattern)]
        command += ["--hot"] * hot + ["--compare"] * first + ["--python"] * arguments.python
        self.path = path
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)

    def ask(self, line):
        """Sends the line, unless it is empty.  Returns the answer, or "" if the process has ended."""
        timer = threading.Timer(MOST_SECONDS, self.process.kill)
        timer.start()
        try:
            if line:
                print(line, file=self.process.stdin, flush=True)
            for answer in self.process.stdout:  # a loader may say something, too
                if answer.startswith(("imported", "ready", "{")):
                    return answer
            return ""
        except BrokenPipeError:
            return ""
        finally:
            timer.cancel()

    def measure(self):
        """The result, or None and the reason."""
        result = None
        if self.ask("prepare"):
            kept = keep_memory(os.path.getsize(self.path) * 5 // 4)
            kept.close()
            result = self.ask("go")
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        status = self.process.wait()
        if not result:
            return None, self.last_words() or f"status {status}"
        result = json.loads(result)
        return (None, result["wrong"]) if result["wrong"] else (result, None)

    def last_words(self):
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        return lines[-1] if lines else None


def measure_round(arguments, run, work, found, missing):
    path, hot = work
    names = [name for name in loaders_of(arguments) if name not in missing]
    names = names[run % len(names):] + names[:run % len(names)]
    children = {name: Child(arguments, name, path, hot, run == 0) for name in names}
    for process in children.values():
        process.ask("")
    for name, process in children.items():
        result, reason = process.measure()
        if result is not None:
            found.setdefault(name, []).append(result)
        elif name.startswith("hoist"):
            sys.exit(f"{name}: {reason}")
        else:
            missing[name] = reason
            found.pop(name, None)


def measure(arguments, works, missing):
    """For each work, for each loader: its results."""
    results = {}
    for title, work in works.items():
        found = {}
        for run in range(arguments.runs):
            measure_round(arguments, run, work, found, missing)
        results[title] = found
    return results


# --- the results ---

def row_of(work, subject, values, unit, emulated, bar=None):
    """As bench/results.h has them."""
    value = statistics.median(values)
    more = unit != "s/GiB"
    met = None if bar is None else value >= bar if more else value <= bar
    return {"work": work, "threads": 1, "subject": subject, "value": value, "unit": unit,
            "least": min(values), "most": max(values), "runs": len(values), "emulated": emulated,
            "bar": bar, "more": more, "met": met}


# The least ratios of the package hoist's rate to the other packages': hot, cold.  Cold, a rate of 0.95 of the
# disk's is enough, whatever the peers'.
PYTHON_BARS = {"safetensors.torch": (1.0, 1.3), "safetensors.numpy": (1.0, 1.3),
               "safetensors, get_tensor.torch": (1.0, 1.0),
               "safetensors, get_tensor.numpy": (1.0, 1.0),
               "fastsafetensors (nogds).torch": (5.0, 1.3), "runai-model-streamer.torch": (5.0, 1.3)}
DISK_SHARE = 0.95


def bar_of(name, hot, rate):
    """The least ratio of hoist's rate to the other one.  The bus is no peer of a disk's."""
    if name == PINNED_COPY:
        return 0.95 if hot else None
    if name == RAW:
        return None
    if name not in PYTHON_BARS:
        return 1.0
    if not hot and RAW in rate and own_rate(name, rate) >= DISK_SHARE * rate[RAW]:
        return None
    return PYTHON_BARS[name][0 if hot else 1]


def own_rate(name, rate):
    """The rate of hoist's that stands beside this peer's; None: it was not measured."""
    if name.startswith("safetensors, get_tensor"):
        return rate.get(name.replace("safetensors", "hoist"))
    if "hoist.torch" in rate or "hoist.numpy" in rate:
        return rate.get("hoist.numpy" if name.endswith("numpy") else "hoist.torch")
    if name.endswith("summed up"):
        ways = ("hoist, summed up", "hoist, maps, summed up", "hoist, adaptive, summed up")
        return max((rate[way] for way in ways if way in rate), default=None)
    return rate.get("hoist")


def rows_of(work, hot, found, emulated):
    """Rows, ratios and rows that have bars."""
    rows, ratios, bars, rate = [], [], [], {}
    for name, samples in found.items():
        rows.append(row_of(work, name, [s["bytes"] / s["seconds"] / 1e9 for s in samples],
                           "GB/s", emulated))
        rate[name] = rows[-1]["value"]
        rows.append(row_of(work, name + ", CPU",
                           [s["cpu"] / s["bytes"] * (1 << 30) for s in samples], "s/GiB",
                           emulated))
    for name in rate:
        if name.startswith("hoist"):
            continue
        own = own_rate(name, rate)
        if own is None:
            continue
        ratios.append({"work": work, "threads": 1, "against": name, "ratio": own / rate[name]})
        bars.append(row_of(work, "rate / " + name, [own / rate[name]], "x", emulated,
                           bar_of(name, hot, rate)))
    adaptive, peer = "hoist, adaptive, summed up", "safetensors, summed up"
    if peer in rate and adaptive in rate:
        bars.append(row_of(work, "adaptive alone, rate / " + peer, [rate[adaptive] / rate[peer]],
                           "x", emulated, 1 / 1.2 if hot else None))
    return rows, ratios, bars


def report(works, results, missing, emulated, as_json):
    rows, ratios, bars = [], [], []
    for work, found in results.items():
        more = rows_of(work, works[work][1], found, emulated)
        rows += more[0]
        ratios += more[1]
        bars += more[2]
    if as_json:
        print(json.dumps({"bench": "peers", "rows": rows + bars, "ratios": ratios,
                          "missing": [{"subject": n, "reason": r} for n, r in missing.items()]},
                         indent=1))
        return
    print(f"{'work':40} {'subject':34} {'value':>12}  unit")
    for row in rows + bars:
        bar = "" if row["bar"] is None else \
            f"  at least {row['bar']:g}: {'met' if row['met'] else 'NOT MET'}"
        bar += "  emulated" * row["emulated"]
        print(f"{row['work']:40} {row['subject']:34} {row['value']:12.4g}  {row['unit']}{bar}")
    for name, reason in missing.items():
        print(f"not measured: {name}: {reason}")


def works_of(arguments, missing, stack):
    """For each work's title: the file, and whether it is hot."""
    there = "host" if arguments.device == "cpu" else arguments.device
    works = {f"cold file to {there}": (arguments.file, False),
             f"hot file to {there}": (arguments.file, True)}
    if arguments.memory:
        title = f"file in memory to {there}"
        if shutil.disk_usage(arguments.memory).free < os.path.getsize(arguments.file):
            missing[title] = f"{arguments.memory} has no room"
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.memory))
            works[title] = (shutil.copy(arguments.file, folder), True)
    return works


def device_spec(text):
    if text != "cpu" and not (text.startswith("cuda:") and text[5:].isdigit()):
        raise argparse.ArgumentTypeError(f"{text} is neither cpu nor cuda:N")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, help="libhoist.so; --python: of the package")
    parser.add_argument("--device", type=device_spec, default="cpu", help="cpu or cuda:N (cpu)")
    parser.add_argument("--memory", metavar="FOLDER", help="a tmpfs: loads from a copy there, too")
    parser.add_argument("--python", action="store_true",
                        help="the package hoist beside other packages, to the CPU, every byte touched after")
    parser.add_argument("--only", metavar="GLOB", action="append", default=[],
                        help="the loaders whose names match; may be given several times")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--hot", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--compare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("file")
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
    hoist = Hoist(arguments.library)
    emulated = hoist.emulated(arguments.device)
    missing = {}
    with contextlib.ExitStack() as stack:
        works = works_of(arguments, missing, stack)
        results = measure(arguments, works, missing)
    report(works, results, missing, emulated, arguments.json)


if __name__ == "__main__":
    main()
