# SPDX-License-Identifier: MIT
"""peers_load.py - the loaders that peers.py compares, each as one function.

A loader's function gets the arguments of peers.py, imports what the loader needs and makes the
device's context: the clock does not run yet.  It returns two functions:

   load()          loads every tensor of arguments.file to arguments.device and returns when all bytes
                   have arrived.  The caller measures this call and keeps its result alive
   arrays(result)  yields each tensor's name and its bytes as an array in host memory, for the comparison
                   with the file after the clock has stopped.  None: there is nothing to compare

A loader that is not there, or that would silently take another way than its name says, raises.
"""
import ctypes
import fnmatch
import json
import os
import sys


def read_header(path):
    """For each tensor of a safetensors file: where its bytes begin and end in the file."""
    with open(path, "rb") as file:
        n = int.from_bytes(file.read(8), "little")
        table = json.loads(file.read(n))
    table.pop("__metadata__", None)
    return {name: tuple(8 + n + at for at in entry["data_offsets"])
            for name, entry in table.items()}


# --- hoist, called through ctypes ---

class LoadOptions(ctypes.Structure):
    """As far as they are needed: what is beyond `size` are defaults."""
    _fields_ = [("size", ctypes.c_size_t), ("device", ctypes.c_void_p),
                ("stream", ctypes.c_void_p), ("engine", ctypes.c_int), ("io", ctypes.c_int)]


class DeviceInfo(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("api", ctypes.c_char_p), ("id", ctypes.c_int),
                ("is_host", ctypes.c_int), ("emulated", ctypes.c_int)]


class TensorInfo(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p)]


IO_AUTO, IO_MAP, IO_ADAPTIVE = 0, 3, 4
ENGINE_AUTO, ENGINE_THREADS = 0, 2


class Hoist:
    """The library's calls for one load."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.hoist_error.restype = ctypes.c_char_p
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        out = ctypes.POINTER(ctypes.c_void_p)
        for name, arguments, result in (
                ("checkpoint_open", [ctypes.c_char_p, ctypes.c_uint, out], ctypes.c_int),
                ("checkpoint_tensor", [pointer, size, pointer], ctypes.c_int),
                ("device_open", [ctypes.c_char_p, out], ctypes.c_int),
                ("device_get_info", [pointer, pointer], ctypes.c_int),
                ("device_memory", [pointer, pointer, pointer], ctypes.c_int),
                ("device_synchronize", [pointer], ctypes.c_int),
                ("load_start", [pointer, pointer, out], ctypes.c_int),
                ("load_wait", [pointer], ctypes.c_int),
                ("load_n_tensors", [pointer], size),
                ("load_tensor", [pointer, size, ctypes.POINTER(size), out], ctypes.c_int),
                ("buffer_data", [pointer], pointer),
                ("buffer_bytes", [pointer], size),
                ("buffer_read", [pointer, size, pointer, size], ctypes.c_int)):
            function = getattr(self.library, "hoist_" + name)
            function.argtypes, function.restype = arguments, result

    def must(self, rc):
        if rc < 0:
            sys.exit("hoist: " + self.library.hoist_error().decode(errors="replace"))

    def open_device(self, spec):
        device = ctypes.c_void_p()
        self.must(self.library.hoist_device_open(spec.encode(), ctypes.byref(device)))
        return device

    def make_context(self, device):
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        self.must(self.library.hoist_device_memory(device, ctypes.byref(free),
                                                   ctypes.byref(total)))

    def emulated(self, spec):
        info = DeviceInfo(size=ctypes.sizeof(DeviceInfo))
        self.must(self.library.hoist_device_get_info(self.open_device(spec), ctypes.byref(info)))
        return info.emulated != 0

    def load(self, path, device, engine, io):
        """The checkpoint, and for each tensor its index there and its buffer."""
        call, void, must = self.library, ctypes.c_void_p, self.must
        checkpoint, load = void(), void()
        must(call.hoist_checkpoint_open(path.encode(), 0, ctypes.byref(checkpoint)))
        options = LoadOptions(size=ctypes.sizeof(LoadOptions), device=device, engine=engine, io=io)
        must(call.hoist_load_start(checkpoint, ctypes.byref(options), ctypes.byref(load)))
        must(call.hoist_load_wait(load))
        tensors = []
        for i in range(call.hoist_load_n_tensors(load)):
            which, buffer = ctypes.c_size_t(), void()
            must(call.hoist_load_tensor(load, i, ctypes.byref(which), ctypes.byref(buffer)))
            tensors.append((which, buffer))
        return checkpoint, tensors

    def name_of(self, checkpoint, index):
        info = TensorInfo(size=ctypes.sizeof(TensorInfo))
        self.must(self.library.hoist_checkpoint_tensor(checkpoint, index, ctypes.byref(info)))
        return info.name.decode()


def add_up(numpy, arrays):
    """Touches every byte: 64-bit words are summed as they lie in memory, aligned or not."""
    total = 0
    for array in arrays:
        words = len(array) // 8 * 8
        total += int(array[:words].view(numpy.uint64).sum()) + int(array[words:].sum())
    return total


def run_hoist(arguments, engine=ENGINE_AUTO, io=IO_AUTO, touch=False):
    import numpy
    hoist = Hoist(arguments.library)
    call = hoist.library
    device = hoist.open_device(arguments.device)
    hoist.make_context(device)

    def load():
        checkpoint, tensors = hoist.load(arguments.file, device, engine, io)
        hoist.must(call.hoist_device_synchronize(device))
        if touch:
            add_up(numpy, [numpy.ctypeslib.as_array(
                ctypes.cast(call.hoist_buffer_data(buffer), ctypes.POINTER(ctypes.c_uint8)),
                (call.hoist_buffer_bytes(buffer),))
                for _, buffer in tensors if call.hoist_buffer_bytes(buffer) > 0])
        return checkpoint, tensors

    def arrays(result):
        checkpoint, tensors = result
        for which, buffer in tensors:
            array = numpy.empty(call.hoist_buffer_bytes(buffer), numpy.uint8)
            if len(array) > 0:
                hoist.must(call.hoist_buffer_read(buffer, 0, array.ctypes.data, len(array)))
            yield hoist.name_of(checkpoint, which), array
    return load, arrays


# --- loaders that give torch's tensors ---

def import_torch(arguments):
    """torch, with the device's context made."""
    import torch
    if arguments.device != "cpu":
        torch.zeros(1, device=arguments.device)
        torch.cuda.synchronize(arguments.device)
    return torch


def wait_for_device(torch, arguments):
    if arguments.device != "cpu":
        torch.cuda.synchronize(arguments.device)


def flat(torch, tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).cpu().numpy()


def arrays_of(torch):
    return lambda tensors: ((name, flat(torch, t)) for name, t in tensors.items())


def run_safetensors(arguments):
    import numpy
    from safetensors.torch import load_file
    torch = import_torch(arguments)

    def load():
        tensors = load_file(arguments.file, device=arguments.device)
        wait_for_device(torch, arguments)
        if arguments.device == "cpu":
            add_up(numpy, [flat(torch, t) for t in tensors.values()])
        return tensors
    return load, arrays_of(torch)


def run_safetensors_prefetch(arguments):
    from safetensors import safe_open
    torch = import_torch(arguments)
    if not hasattr(safe_open, "prefetch"):
        raise RuntimeError("this safetensors has no prefetch (0.9 has)")

    def load():
        with safe_open(arguments.file, framework="pt", device=arguments.device) as file:
            with file.prefetch() as loader:
                tensors = dict(loader)
        wait_for_device(torch, arguments)
        return tensors
    return load, arrays_of(torch)


def run_fastsafetensors(arguments, nogds):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup
    torch = import_torch(arguments)

    def create():
        return SafeTensorsFileLoader(SingleGroup(), arguments.device, nogds=nogds)
    # Where GDS is missing, this loader takes the other way and only warns.
    if not nogds and create().copier_class.__name__ != "GdsFileCopier":
        raise RuntimeError("GPUDirect Storage is not available here")

    def load():
        loader = create()
        loader.add_filenames({0: [arguments.file]})
        buffers = loader.copy_files_to_device()
        tensors = {name: buffers.get_tensor(name) for name in loader.get_keys()}
        wait_for_device(torch, arguments)
        return tensors
    return load, arrays_of(torch)


def run_runai(arguments):
    from runai_model_streamer import SafetensorsStreamer
    torch = import_torch(arguments)

    def load():
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(arguments.file, device=arguments.device)
            tensors = dict(streamer.get_tensors())
        wait_for_device(torch, arguments)
        return tensors
    return load, arrays_of(torch)


def run_instanttensor(arguments, buffered):
    torch = import_torch(arguments)
    from instanttensor import BackendPolicy, safe_open
    how = {"backend": BackendPolicy.BUFFERED} if buffered else {}

    def load():
        with safe_open(arguments.file, framework="pt", device=arguments.device, **how) as file:
            tensors = dict(file.tensors())
        wait_for_device(torch, arguments)
        return tensors
    return load, arrays_of(torch)


# --- what is no loader ---

def run_memmap(arguments):
    import numpy

    def load():
        whole = numpy.memmap(arguments.file, dtype=numpy.uint8, mode="r")
        tensors = {name: whole[begin:end]
                   for name, (begin, end) in read_header(arguments.file).items()}
        add_up(numpy, tensors.values())
        return tensors
    return load, lambda tensors: tensors.items()


PINNED_MAX = 1 << 30


def run_pinned_copy(arguments):
    """The rate of the bus: as many bytes as the file has, from pinned memory that is reused."""
    torch = import_torch(arguments)
    size = os.path.getsize(arguments.file)
    source = torch.full((min(size, PINNED_MAX),), 0x5a, dtype=torch.uint8).pin_memory()
    target = torch.empty(size, dtype=torch.uint8, device=arguments.device)

    def load():
        for at in range(0, size, len(source)):
            n = min(len(source), size - at)
            target[at:at + n].copy_(source[:n], non_blocking=True)
        wait_for_device(torch, arguments)
    load()  # the first use of anything is slower
    return load, None


TO_HOST = {
    "hoist": run_hoist,
    "hoist, summed up": lambda a: run_hoist(a, touch=True),
    "hoist, maps, summed up": lambda a: run_hoist(a, io=IO_MAP, touch=True),
    "hoist, adaptive, summed up": lambda a: run_hoist(a, io=IO_ADAPTIVE, touch=True),
    "safetensors, summed up": run_safetensors,
    "numpy.memmap, summed up": run_memmap,
    "fastsafetensors (nogds)": lambda a: run_fastsafetensors(a, True),
    "runai-model-streamer": run_runai,
}

PINNED_COPY = "pinned copy"

TO_DEVICE = {
    "hoist": run_hoist,
    "hoist, threads": lambda a: run_hoist(a, engine=ENGINE_THREADS),
    PINNED_COPY: run_pinned_copy,
    "safetensors": run_safetensors,
    "safetensors, prefetch": run_safetensors_prefetch,
    "fastsafetensors (nogds)": lambda a: run_fastsafetensors(a, True),
    "fastsafetensors (GDS)": lambda a: run_fastsafetensors(a, False),
    "runai-model-streamer": run_runai,
    "InstantTensor": lambda a: run_instanttensor(a, False),
    "InstantTensor, buffered": lambda a: run_instanttensor(a, True),
}




# --- Python packages: the call that a program makes, to the host, and every byte touched after it ---

def run_load_file(package, framework):
    """`load_file` of a package that has one for each framework, all tensors summed up."""
    def run(arguments):
        import contextlib
        import importlib
        import numpy
        with contextlib.suppress(ImportError):
            import ml_dtypes  # noqa: F401  # safetensors.numpy asks NumPy for its types by name
        load_file = importlib.import_module(f"{package}.{framework}").load_file
        torch = importlib.import_module("torch") if framework == "torch" else None

        def bytes_of(tensor):
            return flat(torch, tensor) if torch else tensor.reshape(-1).view(numpy.uint8)

        def load():
            tensors = load_file(arguments.file)
            add_up(numpy, [bytes_of(t) for t in tensors.values() if t.nbytes > 0])
            return tensors
        return load, lambda tensors: ((n, bytes_of(t)) for n, t in tensors.items())
    return run


def run_safe_open(package, framework):
    """`safe_open` of a package, every tensor asked for by its name, and all of them summed up."""
    def run(arguments):
        import contextlib
        import importlib
        import numpy
        with contextlib.suppress(ImportError):
            import ml_dtypes  # noqa: F401
        safe_open = importlib.import_module(package).safe_open
        torch = importlib.import_module("torch") if framework == "pt" else None

        def bytes_of(tensor):
            return flat(torch, tensor) if torch else tensor.reshape(-1).view(numpy.uint8)

        def load():
            with safe_open(arguments.file, framework) as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}
            add_up(numpy, [bytes_of(t) for t in tensors.values() if 0 not in t.shape])
            return tensors
        return load, lambda tensors: ((n, bytes_of(t)) for n, t in tensors.items())
    return run


def run_summed_up(runner):
    """A loader of torch tensors, and its tensors summed up."""
    def run(arguments):
        import numpy
        load, arrays = runner(arguments)

        def load_and_sum():
            result = load()
            add_up(numpy, [array for _, array in arrays(result)])
            return result
        return load_and_sum, arrays
    return run


RAW_CHUNK, RAW_THREADS = 4 << 20, 8


def run_raw(arguments):
    """The disk's rate: direct reads of the whole file by some threads, without a sum."""
    import mmap
    from concurrent.futures import ThreadPoolExecutor
    size = os.path.getsize(arguments.file)
    memory = mmap.mmap(-1, -(-size // RAW_CHUNK) * RAW_CHUNK,
                       flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory has small pages
    memory.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(memory)

    def load():
        file = os.open(arguments.file, os.O_RDONLY | os.O_DIRECT)
        with ThreadPoolExecutor(RAW_THREADS) as pool:
            done = sum(pool.map(lambda at: os.preadv(file, [view[at:at + RAW_CHUNK]], at),
                                range(0, size, RAW_CHUNK)))
        os.close(file)
        if done != size:
            raise OSError(f"{done} of {size} bytes were read")
    return load, None


RAW = "direct reads, not summed up"

# The names of hoist's and of the peers' that give the same kind of tensors end alike.
IN_PYTHON = {
    "hoist.torch": run_load_file("hoist", "torch"),
    "hoist.numpy": run_load_file("hoist", "numpy"),
    "safetensors.torch": run_load_file("safetensors", "torch"),
    "safetensors.numpy": run_load_file("safetensors", "numpy"),
    "hoist, get_tensor.torch": run_safe_open("hoist.safetensors", "pt"),
    "hoist, get_tensor.numpy": run_safe_open("hoist.safetensors", "np"),
    "safetensors, get_tensor.torch": run_safe_open("safetensors", "pt"),
    "safetensors, get_tensor.numpy": run_safe_open("safetensors", "np"),
    "fastsafetensors (nogds).torch": run_summed_up(lambda a: run_fastsafetensors(a, True)),
    "runai-model-streamer.torch": run_summed_up(run_runai),
    RAW: run_raw,
}


def loaders_of(arguments):
    every = IN_PYTHON if arguments.python else TO_HOST if arguments.device == "cpu" else TO_DEVICE
    if not arguments.only:
        return every
    return {name: loader for name, loader in every.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in arguments.only)}
