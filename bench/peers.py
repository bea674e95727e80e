#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""peers.py FILE - loading a safetensors file to host memory: hoist beside other loaders.

What it needs, in a virtual environment of yours (torch, which some loaders need, is large;
its CPU build will do):

    python3 -m venv VENV
    VENV/bin/pip install numpy safetensors torch fastsafetensors runai-model-streamer
    VENV/bin/python bench/peers.py --library BUILD/lib/.libs/libhoist.so MODEL.safetensors

Every loader must end with all bytes of all tensors in host memory.  Those that map the file
(safetensors, numpy.memmap) have got nothing by then, so their tensors are summed up, as little work as
touching every byte takes.  Beside them stands the better of two ways of hoist's with that sum: a load, and maps
of the file (HOIST_IO_MAP), which are what these peers have.  hoist is called through ctypes, in process.  Each load is a process of its own, which imports what it needs before the clock
starts; loaders alternate; figures are medians.  Cold: the file is dropped from the page cache
(posix_fadvise) and that is verified; hot: it is read before.  Just before each load as much memory is given
back as it takes, since a virtual machine's host makes the first touch of idle memory slow.
"""
import argparse
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import time


def must(library, rc):
    if rc < 0:
        library.hoist_error.restype = ctypes.c_char_p
        sys.exit("hoist: " + library.hoist_error().decode(errors="replace"))


class LoadOptions(ctypes.Structure):
    """As far as they are needed: what is beyond `size` are defaults."""
    _fields_ = [("size", ctypes.c_size_t), ("device", ctypes.c_void_p),
                ("stream", ctypes.c_void_p), ("engine", ctypes.c_int), ("io", ctypes.c_int)]


IO_AUTO, IO_MAP = 0, 3


class Hoist:
    """The library's calls for one load to the CPU."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        out = ctypes.POINTER(ctypes.c_void_p)
        for name, arguments, result in (
                ("checkpoint_open", [ctypes.c_char_p, ctypes.c_uint, out], ctypes.c_int),
                ("load_start", [pointer, pointer, out], ctypes.c_int),
                ("load_wait", [pointer], ctypes.c_int),
                ("load_n_tensors", [pointer], size),
                ("load_tensor", [pointer, size, ctypes.POINTER(size), out], ctypes.c_int),
                ("buffer_data", [pointer], pointer),
                ("buffer_bytes", [pointer], size)):
            function = getattr(self.library, "hoist_" + name)
            function.argtypes, function.restype = arguments, result

    def load(self, path, io):
        """The address and the bytes of each tensor."""
        call, void = self.library, ctypes.c_void_p
        checkpoint, load = void(), void()
        must(call, call.hoist_checkpoint_open(path.encode(), 0, ctypes.byref(checkpoint)))
        options = LoadOptions(size=ctypes.sizeof(LoadOptions), io=io)
        must(call, call.hoist_load_start(checkpoint, ctypes.byref(options), ctypes.byref(load)))
        must(call, call.hoist_load_wait(load))
        tensors = []
        for i in range(call.hoist_load_n_tensors(load)):
            which, buffer = ctypes.c_size_t(), void()
            must(call, call.hoist_load_tensor(load, i, ctypes.byref(which), ctypes.byref(buffer)))
            tensors.append((call.hoist_buffer_data(buffer), call.hoist_buffer_bytes(buffer)))
        return tensors


def add_up(numpy, arrays):
    """Touches every byte: 64-bit words are summed as they lie in memory."""
    total = 0
    for array in arrays:
        words = len(array) // 8 * 8
        if array.ctypes.data % 8 == 0:
            total += int(array[:words].view(numpy.uint64).sum())
        else:
            total += int(array.sum(dtype=numpy.uint64))
    return total


def run_hoist(arguments, io, touch):
    import numpy
    hoist = Hoist(arguments.library)

    def load():
        tensors = hoist.load(arguments.file, io)
        if touch:
            add_up(numpy, [numpy.ctypeslib.as_array(
                ctypes.cast(data, ctypes.POINTER(ctypes.c_uint8)), (n,))
                for data, n in tensors if n > 0])
        return sum(n for _, n in tensors)
    return load


def flat(torch, tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy()


def run_safetensors(arguments):
    import numpy
    import torch
    from safetensors.torch import load_file

    def load():
        tensors = load_file(arguments.file)
        arrays = [flat(torch, t) for t in tensors.values()]
        add_up(numpy, arrays)
        return sum(len(a) for a in arrays)
    return load


def run_fastsafetensors(arguments):
    import torch
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    def load():
        loader = SafeTensorsFileLoader(SingleGroup(), torch.device("cpu"), nogds=True)
        loader.add_filenames({0: [arguments.file]})
        buffers = loader.copy_files_to_device()
        done = 0
        for name in loader.get_keys():
            tensor = buffers.get_tensor(name)
            done += tensor.numel() * tensor.element_size()
        return done
    return load


def run_runai(arguments):
    from runai_model_streamer import SafetensorsStreamer

    def load():
        done = 0
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(arguments.file)
            kept = []
            for _, tensor in streamer.get_tensors():
                kept.append(tensor)
                done += tensor.numel() * tensor.element_size()
        return done
    return load


def run_memmap(arguments):
    import numpy

    def load():
        whole = numpy.memmap(arguments.file, dtype=numpy.uint8, mode="r")
        header = int.from_bytes(whole[:8].tobytes(), "little")
        table = json.loads(whole[8:8 + header].tobytes())
        done = 0
        arrays = []
        for name, entry in table.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                arrays.append(whole[8 + header + begin:8 + header + end])
                done += end - begin
        add_up(numpy, arrays)
        return done
    return load


LOADERS = {
    "hoist": lambda a: run_hoist(a, IO_AUTO, False),
    "hoist, summed up": lambda a: run_hoist(a, IO_AUTO, True),
    "hoist, maps, summed up": lambda a: run_hoist(a, IO_MAP, True),
    "safetensors, summed up": run_safetensors,
    "numpy.memmap, summed up": run_memmap,
    "fastsafetensors (cpu, nogds)": run_fastsafetensors,
    "runai-model-streamer": run_runai,
}


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


def child(arguments):
    load = LOADERS[arguments.child](arguments)
    prepare(arguments.file, arguments.hot)
    print("ready", flush=True)
    sys.stdin.readline()
    cpu = time.process_time()
    begin = time.perf_counter()
    done = load()
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "cpu": time.process_time() - cpu, "bytes": done}))
    sys.stdout.flush()
    os._exit(0)  # what loaders do at their end is not measured


def keep_memory(size):
    """Memory that is in use, until close(): then whoever is next gets it without its host's help."""
    memory = mmap.mmap(-1, size)
    memory.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    return memory


def run_child(arguments, name, hot):
    command = [sys.executable, os.path.abspath(__file__), "--library", arguments.library,
               "--child", name, arguments.file] + (["--hot"] if hot else [])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        kept = keep_memory(os.path.getsize(arguments.file) * 5 // 4)
        first = process.stdout.readline()
        kept.close()
        try:
            output, errors = process.communicate("go\n", timeout=300)
        except subprocess.TimeoutExpired:
            process.kill()
            return None, "it took more than 300 s"
    if first.strip() != "ready" or process.returncode != 0:
        lines = errors.strip().splitlines()
        return None, lines[-1] if lines else f"status {process.returncode}"
    return json.loads(output.strip().splitlines()[-1]), None


def measure(arguments, hot, missing):
    found = {name: [] for name in LOADERS}
    for run in range(arguments.runs):
        names = list(LOADERS)
        for name in names[run % len(names):] + names[:run % len(names)]:
            if name in missing:
                continue
            result, reason = run_child(arguments, name, hot)
            if result is None:
                missing[name] = reason
                if name.startswith("hoist"):
                    sys.exit(f"{name}: {reason}")
            else:
                found[name].append(result)
    return {name: samples for name, samples in found.items() if samples}


def row_of(work, subject, values, unit, bar=None):
    """As bench/results.h has them."""
    value = statistics.median(values)
    more = unit != "s/GiB"
    met = None if bar is None else value >= bar if more else value <= bar
    return {"work": work, "threads": 1, "subject": subject, "value": value, "unit": unit,
            "least": min(values), "most": max(values), "runs": len(values), "emulated": False,
            "bar": bar, "more": more, "met": met}


def report(results, missing, as_json):
    rows, ratios, bars = [], [], []
    for work, found in results.items():
        rate = {}
        for name, samples in found.items():
            rows.append(row_of(work, name, [s["bytes"] / s["seconds"] / 1e9 for s in samples],
                               "GB/s"))
            rate[name] = rows[-1]["value"]
            rows.append(row_of(work, name + ", CPU",
                               [s["cpu"] / s["bytes"] * (1 << 30) for s in samples], "s/GiB"))
        for name in rate:
            if name.startswith("hoist"):
                continue
            own = rate["hoist"]
            if name.endswith("summed up"):
                own = max(rate["hoist, summed up"], rate["hoist, maps, summed up"])
            ratios.append({"work": work, "threads": 1, "against": name, "ratio": own / rate[name]})
            bars.append(row_of(work, "rate / " + name, [own / rate[name]], "x", 1.0))
    if as_json:
        print(json.dumps({"bench": "peers", "rows": rows + bars, "ratios": ratios,
                          "missing": [{"subject": n, "reason": r} for n, r in missing.items()]},
                         indent=1))
        return
    print(f"{'work':40} {'subject':34} {'value':>12}  unit")
    for row in rows + bars:
        bar = "" if row["bar"] is None else \
            f"  at least {row['bar']:g}: {'met' if row['met'] else 'NOT MET'}"
        print(f"{row['work']:40} {row['subject']:34} {row['value']:12.4g}  {row['unit']}{bar}")
    for name, reason in missing.items():
        print(f"not measured: {name}: {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, help="libhoist.so")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--hot", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("file")
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
    missing = {}
    results = {"cold file to host": measure(arguments, False, missing),
               "hot file to host": measure(arguments, True, missing)}
    report(results, missing, arguments.json)


if __name__ == "__main__":
    main()
