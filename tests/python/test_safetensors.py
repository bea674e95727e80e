# SPDX-License-Identifier: MIT
"""hoist.safetensors: its own tests, and the same calls on the safetensors package.

A differential test makes the same calls on both, and compares what comes back: the results, or the
exceptions, which must be of the same class (or hoist's of a class below it), SafetensorError for
SafetensorError.
"""

import gc
import json
import os
import pathlib
import random
import struct
import tempfile
import unittest

import numpy as np

import files
import hoist.safetensors
import hoist.safetensors.numpy

try:
    import torch
    import hoist.safetensors.torch
except ImportError:
    torch = None

try:
    import safetensors
    import safetensors.numpy
    if torch is not None:
        import safetensors.torch
    if not safetensors.__version__.startswith("0.8"):
        safetensors, WHY = None, f"safetensors is {safetensors.__version__}, not 0.8"
except ImportError:
    safetensors, WHY = None, "no safetensors package"

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

HOIST = hoist.safetensors
needs_torch = unittest.skipIf(torch is None, "no torch")
needs_package = unittest.skipIf(safetensors is None, "" if safetensors else WHY)


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hoist-python-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "model.safetensors")


def plain(value):
    """A result as something that can be compared: what it is, its type and shape, its bytes."""
    if isinstance(value, np.ndarray):
        return "array", value.dtype.name, value.shape, value.tobytes()
    if torch is not None and isinstance(value, torch.Tensor):
        flat = torch.empty(value.numel(), dtype=value.dtype).copy_(value.detach().reshape(-1))
        bits = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return "tensor", value.dtype, tuple(value.shape), value.device, bits
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def outcome(call, package):
    """("result", ...) or ("error", class): SafetensorError's name stands for both packages'."""
    try:
        value = call(package)
    except Exception as error:  # pylint: disable=broad-exception-caught
        return "error", error
    return "result", plain(value)


class Differential(WithFolder):
    """Calls take the package as their argument, "safetensors" or "hoist.safetensors"."""

    def same(self, call, what=""):
        theirs, ours = outcome(call, safetensors), outcome(call, HOIST)
        self.assertEqual(ours[0], theirs[0], (what, ours, theirs))
        if theirs[0] == "result":
            self.assertEqual(ours[1], theirs[1], what)
            return
        kind = type(theirs[1])
        if kind is safetensors.SafetensorError:
            kind = HOIST.SafetensorError
        self.assertIsInstance(ours[1], kind, (what, ours, theirs))
        self.assertNotEqual(str(ours[1]), "", what)


def content_of(path):
    """The bytes of a file; where its texts have escapes, which JSON has several of, their meaning."""
    with open(path, "rb") as file:
        data = file.read()
    n = 8 + int.from_bytes(data[:8], "little")
    return data if b"\\" not in data[8:n] else (list(json.loads(data[8:n]).items()), data[n:])


NP_TYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16",
            "float32", "float64", "complex64"]


def arrays(rng, types=None):
    """A dict of some random arrays."""
    ret = {}
    for i in range(rng.randint(0, 6)):
        shape = tuple(rng.choice([0, 1, 2, 3, 5]) for _ in range(rng.randint(0, 3)))
        name = rng.choice(types or NP_TYPES)
        n = int(np.prod(shape))
        array = np.frombuffer(rng.randbytes(16 * n), "u1")[:n].reshape(shape).astype(name)
        ret[rng.choice(["a", "layer.0.b", "ü", 'q"\n\x01', "z"]) + str(i)] = array
    return ret


def tensors(rng):
    kinds = [n for n in NP_TYPES if n not in ("uint16", "uint32", "uint64")]
    ret = {name: torch.from_numpy(np.array(array)) for name, array in arrays(rng, kinds).items()}
    for name in list(ret):
        if rng.random() < 0.2:
            ret[name] = torch.ones(ret[name].shape).to(torch.bfloat16)
    return ret


ODD = [None, [], [0], "a", 1.5, True, np.int64(1), np.array([0]), 2**70, -2**70, slice(-1, None),
       slice(0, -1), slice(None, None, -1), slice(None, None, 0), slice(1.5), slice(2**70), slice(7, 9),
       slice(None, None, 2**70), slice(None, None, 2**40)]


def an_index(rng, rank):
    """An index; where it has several faults, they have one class of exceptions."""
    one = (lambda: rng.randint(-4, 5), lambda: slice(None), lambda: Ellipsis,
           lambda: slice(rng.choice([None, 0, 1, 2]), rng.choice([None, 2, 3, 4]), rng.choice([None, 1, 2, 3])))
    parts = [rng.choices(one, (8, 6, 2, 8))[0]() for _ in range(rng.randint(0, rank + 1))]
    if rng.random() < 0.2:
        parts = [slice(None)] * rng.randint(0, max(0, rank - 1))
        parts.insert(rng.randint(0, len(parts)), rng.choice(ODD))
    return parts[0] if len(parts) == 1 and rng.random() < 0.7 else tuple(parts)


def backwards(index):
    """A slice that ends before it begins: safetensors fails in its own way there."""
    return any(isinstance(one, slice) and isinstance(one.start, int) and isinstance(one.stop, int) and
               0 <= one.stop < one.start for one in (index if isinstance(index, tuple) else (index,)))


@needs_package
class Files(Differential):
    def test_numpy(self):
        rng = random.Random(1)
        for _ in range(150):
            content, metadata = arrays(rng), rng.choice([None, {"k": "v ü\n"}])
            self.same(lambda p: p.numpy.save(content, metadata), content)
            for path in (self.path, pathlib.Path(self.path)):
                def saved(package):
                    package.numpy.save_file(content, path, metadata)
                    return content_of(path)
                self.same(saved, content)
            self.same(lambda p: p.numpy.load_file(path))
            data = safetensors.numpy.save(content, metadata)
            self.same(lambda p: sorted(p.numpy.load(data).items(), key=lambda item: item[0]))
            self.same(lambda p: sorted(p.deserialize(data), key=lambda item: item[0]))

    @needs_torch
    def test_torch(self):
        rng = random.Random(2)
        for _ in range(150):
            content, metadata = tensors(rng), rng.choice([None, {"k": "v"}])
            self.same(lambda p: p.torch.save(content, metadata), content)
            def saved(package):
                package.torch.save_file(content, self.path, metadata)
                return content_of(self.path)
            self.same(saved, content)
            for backend in ("mmap", "pread"):
                self.same(lambda p: p.torch.load_file(self.path, backend=backend))
            data = safetensors.torch.save(content, metadata)
            self.same(lambda p: dict(sorted(p.torch.load(data).items())))

    def test_large_files_are_equal_after_parsing(self):
        content = {"a": np.arange(400000, dtype="f"), "b": np.arange(7, dtype="u1")}
        for package in (safetensors, HOIST):
            package.numpy.save_file(content, self.path, {"k": "v"})
            self.same(lambda p: p.numpy.load_file(self.path))
            with p_open(safetensors, self.path, "np") as f:
                self.assertEqual((f.offset_keys(), f.metadata()), (["a", "b"], {"k": "v"}))

    @unittest.skipIf(ml_dtypes is None, "no ml_dtypes")
    def test_types_of_ml_dtypes(self):
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
                     "float8_e8m0fnu", "float8_e3m4", "int4"):
            if not hasattr(ml_dtypes, name):
                continue
            content = {"x": np.arange(1, 6).astype(getattr(ml_dtypes, name))}
            self.same(lambda p: p.numpy.save(content), name)
            if name == "bfloat16":
                safetensors.numpy.save_file(content, self.path)
                self.same(lambda p: p.numpy.load_file(self.path), name)


def p_open(package, *args, **options):
    return package.safe_open(*args, **options)


@needs_package
class Opening(Differential):
    def write(self):
        rng = np.random.default_rng(3)
        safetensors.numpy.save_file(
            {"a": rng.random((3, 4, 5), "f"), "b": rng.integers(0, 9, (6,)), "s": np.array(2.5),
             "e": np.zeros((0, 3)), "z": np.zeros((2, 0), "f"), "m": np.array([True, False])},
            self.path, {"k": "v"})

    def frameworks(self):
        return ("np",) if torch is None else ("np", "pt")

    def test_methods(self):
        self.write()
        for framework in self.frameworks():
            with self.subTest(framework):
                def methods(package):
                    with p_open(package, self.path, framework) as f:
                        return (f.keys(), f.offset_keys(), f.metadata(), f.get_tensors(),
                                [(f.get_slice(n).get_shape(), f.get_slice(n).get_dtype(), f.get_tensor(n))
                                 for n in f.keys()])
                self.same(methods)
                for call in (lambda f: f.get_tensor("no"), lambda f: f.get_slice("no"),
                             lambda f: f.get_tensor(1), lambda f: f.get_slice(None), len, iter,
                             lambda f: f["a"], lambda f: f.get_tensor()):
                    self.same(lambda p: call(p_open(p, self.path, framework)))

    def test_after_the_end(self):
        self.write()
        for framework in self.frameworks():
            for call in (lambda f: f.keys(), lambda f: f.get_tensor("a"), lambda f: f.get_slice("a"),
                         lambda f: f.metadata(), lambda f: f.offset_keys(), lambda f: f.get_tensors(),
                         lambda f: f.__enter__() and 1, lambda f: f.__exit__(None, None, None)):
                def after(package):
                    with p_open(package, self.path, framework) as f:
                        pass
                    return call(f)
                self.same(after)

            def outlives(package):
                with p_open(package, self.path, framework) as f:
                    part, tensor = f.get_slice("a"), f.get_tensor("b")
                return part[1:], part.get_shape(), tensor
            self.same(outlives)

    def test_slices(self):
        self.write()
        rng = random.Random(4)
        for framework in self.frameworks():
            both = [p_open(p, self.path, framework) for p in (safetensors, HOIST)]
            for _ in range(3000):
                name = rng.choice("aaabsez")
                index = an_index(rng, {"a": 3, "b": 1, "s": 0, "e": 2, "z": 2}[name])
                if framework == "np" and backwards(index):
                    continue
                self.same(lambda p: both[p is HOIST].get_slice(name)[index],
                          (framework, name, index))

    def test_arguments(self):
        self.write()
        table = [((), {}), ((self.path,), {}), ((self.path, "np", "cpu", "mmap"), {}),
                 ((self.path, "np"), {"backend": "no"}), ((self.path, "np"), {"backend": None}),
                 ((1, "np"), {}), ((None, "np"), {}), ((self.path.encode(), "np"), {}),
                 ((self.path + "x", "np"), {}), ((self.folder, "np"), {}),
                 ((os.path.join(self.path, "x"), "np"), {})]
        table += [((self.path, f), {}) for f in ("numpy", "NP", "xx", "mx", None, 1)]
        if torch is not None:
            table += [((self.path, f), {}) for f in ("pt", "torch", "pytorch")]
        table += [((self.path, "np"), {"device": d})
                  for d in (None, "cpu", "cpu:0", "cuda", "cuda:1", "cuda:", "cuda:x", "cuda:-1", "CPU",
                            "meta", "xx", "", "mps", "npu:0", "xla", "mlu", "hpu", 0, -1, 1.5, True,
                            2**70, np.int64(0), "0")]
        for args, options in table:
            self.same(lambda p: p_open(p, *args, **options) and 1, (args, options))

    @needs_torch
    def test_devices_of_torch(self):
        self.write()
        for device in ("meta", "xx", -1, torch.device("cpu"), "cpu"):
            self.same(lambda p: p_open(p, self.path, "pt", device=device).get_tensor("a"), device)
        if not torch.cuda.is_available():
            for device in (0, "cuda:0"):
                with self.assertRaises((RuntimeError, AssertionError)):
                    HOIST.torch.load_file(self.path, device=device)


def headers():
    """(what, header, bytes behind)"""
    one = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
    yield "nothing", {}, 0
    yield "good", {"a": one}, 1
    yield "more bytes", {"a": one}, 2
    yield "fewer bytes", {"a": one}, 0
    for field, values in (("dtype", ["XX", "u8", None, 1, "F32", "F64", "BF16", "F4"]),
                          ("shape", [[2], [-1], [], [1, 1], [0], None, "1", [1.5], [2**63], [2**64],
                                     [2**63, 4], [2**32, 2**32]]),
                          ("data_offsets", [[1, 2], [0, 2], [1, 0], [0], [0, 1, 2], None, [-1, 0],
                                            [0, 2**64], [0.0, 1.0]])):
        for value in values:
            yield f"{field} {value}", {"a": {**one, field: value}}, 1
        yield f"no {field}", {"a": {k: v for k, v in one.items() if k != field}}, 1
    for metadata in ({}, {"a": "b"}, {"a": 1}, None, [], "x", {"a": None}, {"a": {}}):
        yield f"metadata {metadata}", {"__metadata__": metadata, "a": one}, 1
    yield "overlap", {"a": one, "b": one}, 1
    yield "hole", {"a": one, "b": {**one, "data_offsets": [2, 3]}}, 3
    yield "another order", {"b": {**one, "data_offsets": [1, 2]}, "a": one}, 2
    yield "an empty one", {"a": one, "b": {"dtype": "F32", "shape": [0], "data_offsets": [1, 1]}}, 1
    yield "a list", [], 0
    yield "a number", 1, 0
    yield "more fields", {"a": {**one, "more": 1}}, 1


@needs_package
class Malformed(Differential):
    def check(self, what, data):
        with open(self.path, "wb") as file:
            file.write(data)
        self.same(lambda p: p_open(p, self.path, "np").metadata(), what)
        self.same(lambda p: p_open(p, self.path, "np").offset_keys(), what)
        self.same(lambda p: sorted(name for name, _ in p.deserialize(data)), what)

    def test_headers(self):
        for what, header, n in headers():
            text = json.dumps(header).encode()
            with self.subTest(what):
                self.check(what, struct.pack("<Q", len(text)) + text + bytes(n))

    def test_bytes(self):
        good = files_bytes()
        for what, data in (("nothing", b""), ("4 bytes", bytes(4)), ("8 bytes", bytes(8)),
                           ("a long header", b"\xff" * 8 + b"{}"), ("cut", good[:-1]),
                           ("cut in the header", good[:20]), ("longer", good + b"1"),
                           ("no JSON", struct.pack("<Q", 2) + b"xx"),
                           ("no UTF-8", struct.pack("<Q", 4) + b'{"\xff"'),
                           ("another format", b"GGUF" + struct.pack("<IQQ", 3, 0, 0))):
            with self.subTest(what):
                self.check(what, data)
        for value in ("text", 1, None, bytearray(good), memoryview(good)):
            self.same(lambda p: p.numpy.load(value), type(value))

    def test_random_damage(self):
        rng = random.Random(5)
        good = files_bytes()
        for _ in range(400):
            data = bytearray(good)
            for _ in range(rng.randint(1, 2)):
                data[rng.randrange(len(data) - 40)] = rng.choice(b'\0 09a"{}[]:,\xff')
            self.check(bytes(data), bytes(data))


def files_bytes():
    return safetensors.numpy.save({"a": np.arange(5, dtype="f"), "b": np.zeros((2, 3), "u1"),
                                   "e": np.zeros((0, 2))}, {"k": "v"})


@needs_package
class Refused(Differential):
    def test_numpy(self):
        a = np.arange(6.0)
        for tensors_, metadata in (([], None), ({"a": 1}, None), ({"a": [1]}, None), ({1: a}, None),
                                   ({"a": a}, {"k": 1}), ({"a": a}, {1: "k"}), ({"a": a}, []),
                                   ({"a": np.array(["x"])}, None), ({"a": np.array([None])}, None),
                                   ({"a": a.astype("c16")}, None), ({"a": np.float32(1)}, None),
                                   ({"a": np.zeros(1, "M8[s]")}, None), ({}, {"a": "b"}), ({}, None),
                                   ({"a": a.astype(">f8")}, None)):
            self.same(lambda p: p.numpy.save(tensors_, metadata), (tensors_, metadata))
            self.same(lambda p: p.numpy.save_file(tensors_, self.path, metadata), (tensors_, metadata))
        for path in (os.path.join(self.folder, "no", "x"), self.folder, b"x", 1, None):
            self.same(lambda p: p.numpy.save_file({"a": a}, path), path)

    @needs_torch
    def test_torch(self):
        x = torch.arange(4.0)
        table = [[], {"a": 1}, {1: x}, {"a": torch.ones(2, 3).t()}, {"a": x, "b": x},
                 {"a": x[:2], "b": x[2:]}, {"a": x[:3], "b": x[2:]}, {"a": x[::2]},
                 {"a": x.expand(3, 4)}, {"a": torch.ones(2).to_sparse()},
                 {"a": torch.ones(2, dtype=torch.complex128)}, {"a": torch.ones(2, device="meta")},
                 {"a": torch.ones(2, requires_grad=True)}, {"a": torch.nn.Parameter(x)},
                 {"a": torch.quantize_per_tensor(x, 1, 0, torch.qint8)}, {"a": x[2:]}, {"a": x[:0]}]
        for tensors_ in table:
            self.same(lambda p: p.torch.save(tensors_), tensors_)
            self.same(lambda p: p.torch.save_file(tensors_, self.path), tensors_)

    def test_specs(self):
        a = np.arange(6, dtype="f")
        at = a.ctypes.data
        good = {"dtype": "float32", "shape": [2, 3], "data_ptr": at, "data_len": 24}
        for change in ({}, {"dtype": "xx"}, {"dtype": "F32"}, {"shape": 1}, {"shape": [-1]},
                       {"shape": [3]}, {"shape": []}, {"shape": (3, 2)}, {"dtype": "bfloat16"},
                       {"dtype": "bfloat16", "shape": [4, 3]}, {"dtype": "uint8", "shape": [24]},
                       {"dtype": "float4_e2m1fn_x2", "shape": [4, 6]}):
            def made(package):
                spec = package.TensorSpec(**{**good, **change})
                data = package.serialize({"a": spec}, {"k": "v"})
                package.serialize_file({"a": spec}, self.path, {"k": "v"})
                return data, content_of(self.path), spec.dtype, spec.shape, \
                    spec.data_ptr, spec.data_len
            self.same(made, change)
        self.same(lambda p: p.serialize({"a": 1}))
        self.same(lambda p: p.TensorSpec("float32", [1], at, 4))


if torch is not None:
    class Tied(torch.nn.Module):
        """Two names for one parameter, and a part of another."""

        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(3, 3)
            self.b = torch.nn.Linear(3, 3)
            self.b.weight = self.a.weight
            self.register_buffer("c", torch.arange(4.0))


@needs_torch
@needs_package
class Models(Differential):
    def test_models(self):
        torch.manual_seed(6)
        model = Tied()

        def saved(package):
            package.torch.save_model(model, self.path)
            return content_of(self.path)
        self.same(saved)
        for strict in (True, False):
            for change in ({}, {"c": None}, {"more": torch.ones(2)}, {"a.weight": None}):
                state = dict(safetensors.torch.load_file(self.path))
                for name, value in change.items():
                    state.pop(name, None)
                    if value is not None:
                        state[name] = value
                other = os.path.join(self.folder, "other.safetensors")
                safetensors.torch.save_file(state, other)

                def loaded(package):
                    fresh = Tied()
                    with torch.no_grad():
                        for parameter in fresh.parameters():
                            parameter.zero_()
                    missing, unexpected = package.torch.load_model(fresh, other, strict=strict)
                    return sorted(missing), sorted(unexpected), dict(fresh.state_dict())
                self.same(loaded, (strict, change))

    def test_no_name_is_left(self):
        class Parts(torch.nn.Module):
            def state_dict(self):
                x = torch.arange(6.0)
                return {"a": x[:4], "b": x[2:]}
        self.same(lambda p: p.torch.save_model(Parts(), self.path))

    def test_names_that_other_packages_import(self):
        x = torch.arange(6.0)
        for tensor in (x, x[2:], x[:0], torch.ones(2, device="meta")):
            self.same(lambda p: (p.torch.storage_ptr(tensor), p.torch.storage_size(tensor)), tensor)
        self.same(lambda p: sorted(map(sorted, p.torch._find_shared_tensors(
            {"a": x, "b": x[1:], "c": torch.ones(1)}))))


class Own(WithFolder):
    """What needs no other package."""

    def setUp(self):
        super().setUp()
        self.bytes = files.write(self.path, files.MODEL, {"k": "v"})

    def test_numpy_arrays_own_their_memory(self):
        with HOIST.safe_open(self.path, "np") as f:
            for name in ("ids", "big"):
                array = f.get_tensor(name)
                self.assertEqual(array.tobytes(), self.bytes[name])
                array[:] = 0
                self.assertEqual(f.get_tensor(name).tobytes(), self.bytes[name])
            part = f.get_slice("big")[1:3, ::100]
            self.assertTrue(part.flags.writeable and part.flags.owndata)
            np.testing.assert_array_equal(
                part, np.frombuffer(self.bytes["big"], "f").reshape(1200, 1024)[1:3, ::100])
        self.check_the_file()

    def test_large_numpy_arrays_own_their_memory(self):
        """Hot they are copied from the map, cold they are loaded."""
        large = os.path.join(self.folder, "large.safetensors")
        content = np.arange(3 << 20, dtype="f")
        hoist.safetensors.numpy.save_file({"x": content}, large)
        for is_cold in (False, True):
            with open(large, "rb") as file:
                file.read()
                if is_cold:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            with HOIST.safe_open(large, "np") as f:
                array = f.get_tensor("x")
                self.assertTrue(np.array_equal(array, content))
                array[:] = 0
                self.assertTrue(np.array_equal(f.get_tensor("x"), content))
        self.assertTrue(np.array_equal(HOIST.numpy.load_file(large)["x"], content))

    def test_bytes_of_any_array(self):
        """Memory that lies as in a file goes as it is; other arrays are put in order first."""
        a = np.arange(24, dtype="i4").reshape(4, 6)
        for array in (a, a.T, a[::2, ::-3], a.astype(">i4"), a[:0], a[1, 2:3].reshape(()),
                      a.view(np.recarray), np.asfortranarray(a)):
            got = HOIST.numpy.load(HOIST.numpy.save({"a": array}, {"k": 'a "quoted" \u00e9'}))["a"]
            self.assertEqual((got.dtype, got.shape), (np.dtype("i4"), array.shape))
            self.assertTrue(np.array_equal(got, array))
            HOIST.numpy.save_file({"a": array}, self.path)
            self.assertTrue(np.array_equal(HOIST.numpy.load_file(self.path)["a"], array))

    def check_the_file(self):
        got = hoist.load_all(self.path)
        self.assertEqual({name: b.tobytes() for name, b in got.items()}, self.bytes)

    @needs_torch
    def test_writes_to_tensors_stay_private(self):
        large = os.path.join(self.folder, "large.safetensors")
        content = np.arange(3 << 20, dtype="f")
        hoist.safetensors.numpy.save_file({"x": content, "y": np.ones(3, "f")}, large)
        for backend in ("mmap", "pread"):
            with HOIST.safe_open(large, "pt", backend=backend) as f:
                for tensor in (f.get_tensor("x"), f.get_slice("x")[:], f.get_tensor("y"),
                               f.get_tensors()["x"]):
                    tensor.zero_()
            got = HOIST.torch.load_file(large, backend=backend)
            self.assertTrue(np.array_equal(got["x"].numpy(), content))
            self.assertEqual(got["y"].tolist(), [1, 1, 1])

    def test_what_differs(self):
        a = np.arange(6.0).reshape(2, 3)
        for array in (a.T, a[:, ::2], a[::-1]):
            HOIST.numpy.save_file({"a": array}, self.path)
            np.testing.assert_array_equal(HOIST.numpy.load_file(self.path)["a"], array)
            np.testing.assert_array_equal(HOIST.numpy.load(HOIST.numpy.save({"a": array}))["a"], array)
        with HOIST.safe_open(self.path, "np") as f, self.assertRaises(HOIST.SafetensorError):
            f.get_slice("a")[1:0]
        for name in ("", "__metadata__"):
            self.assertRaises(HOIST.SafetensorError, HOIST.numpy.save, {name: a})
            self.assertRaises(HOIST.SafetensorError, HOIST.numpy.save_file, {name: a}, self.path)
        self.assertRaisesRegex(HOIST.SafetensorError, "jax", HOIST.safe_open, self.path, "jax")

    def test_other_files_are_refused(self):
        for name in ("x.npy", "x.gguf"):
            path = os.path.join(self.folder, name)
            hoist.numpy.save_file({"a": np.ones(3, "f")}, path)
            self.assertRaises(HOIST.SafetensorError, HOIST.safe_open, path, "np")
        out = os.path.join(self.folder, "out", "")
        hoist.numpy.save_file({"a": np.ones(3, "f"), "b": np.ones(3, "f")}, out, shard_bytes=12)
        index = os.path.join(out, "model.safetensors.index.json")
        self.assertRaises(HOIST.SafetensorError, HOIST.safe_open, index, "np")
        self.assertRaises(IsADirectoryError, HOIST.safe_open, out, "np")

    def test_errors_are_hoists_too(self):
        with self.assertRaises(hoist.Error):
            HOIST.safe_open(self.path, "xx")
        with self.assertRaises(FileNotFoundError) as caught:
            HOIST.safe_open(self.path + "x", "np")
        self.assertIn("x", str(caught.exception))

    def test_descriptors_stay_flat(self):
        data = HOIST.numpy.save({"a": np.ones(3)})

        def once():
            with HOIST.safe_open(self.path, "np") as f:
                f.get_tensor("ids")
                f.get_slice("big")[0]
            HOIST.numpy.load(data)
            for call in (lambda: HOIST.deserialize(b"1234567890"),
                         lambda: HOIST.safe_open(self.path, "np").get_tensor("no")):
                self.assertRaises(HOIST.SafetensorError, call)

        once()
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            once()
        gc.collect()
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before)


if __name__ == "__main__":
    unittest.main()
