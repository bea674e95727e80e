#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""seeds.py FOLDER - small sound files of every format, one folder for each fuzz target.

Written without hoist's code: some here, some by the formats' own writers (../data/make.py).  What
the fuzzer found is added to them by make-corpus.
"""
import itertools
import json
import pathlib
import pickle
import struct
import sys
import zipfile
import io

here = pathlib.Path(__file__).resolve().parent.parent
out = pathlib.Path(sys.argv[1])


def put(targets, name, data):
    for target in targets.split():
        folder = out / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ("seed-" + name)).write_bytes(data)


# --- safetensors ---

BITS = {"F32": 32, "F16": 16, "BF16": 16, "I64": 64, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "C64": 64,
        "F4": 4, "F6_E2M3": 6, "F8_E8M0": 8}


def safetensors(tensors, metadata=None, spaces=0, extra=None):
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape in tensors:
        n = 1
        for extent in shape:
            n *= extent
        size = n * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        header[name].update(extra or {})
        at += size
    text = json.dumps(header, separators=(",", ":")).encode() + b" " * spaces
    return struct.pack("<Q", len(text)) + text + bytes(range(256)) * (at // 256) + bytes(at % 256)


st = "safetensors detect write open"
put(st, "st-empty", safetensors([]))
put(st, "st-one", safetensors([("w", "F32", [2, 3])]))
put(st, "st-meta", safetensors([("w", "F32", [2])], {"format": "pt", "\u00e9": "\u2603\n"}, 5))
put(st, "st-kinds", safetensors([(d.lower(), d, [2, 4]) for d in BITS]))
put(st, "st-scalar", safetensors([("s", "I64", []), ("e", "F16", [0, 7]), ("e2", "F32", [3, 0])]))
put(st, "st-extra", safetensors([("a", "U8", [3])], None, 0, {"more": [1, {"x": [None, True, 1.5e3]}]}))
put(st, "st-many", safetensors([("layer.%d.weight" % i, "BF16", [i % 5, 2]) for i in range(40)]))

put(st, "real-safetensors", (here / "data" / "safetensors-numpy.safetensors").read_bytes())

# --- indices ---

for n in (1, 3):
    files = {"t%d" % i: "model-%05d-of-%05d.safetensors" % (i % n + 1, n) for i in range(2 * n)}
    put("index detect open", "index-%d" % n,
        json.dumps({"metadata": {"total_size": 24, "x": "y", "b": True, "n": None, "f": 1.5},
                    "weight_map": files}).encode())
put("index detect", "index-odd", b'{"weight_map":{"a":"./x.bin","b":"d//y.bin","\\u00e9":"x.bin"}}')

# --- channels: numbers that tests/fuzz/channel.c takes for deeds ---

for how in range(4):
    put("channel", "channel-%d" % how, bytes([how, 1, 3, 4, 1, 5, 4, 0, 200, 5, 1, 9, 6, 0, 1, 3]))
    put("channel", "channel-bytes-%d" % how, bytes([how, 0, 9]) + b"GET / HTTP/1.0")

# --- members of groups: frames of every kind, as tests/fuzz/far.c and lib/wire/wire.h have them ---


def said(text):
    return struct.pack("<H", len(text)) + text


def hello(cells, patterns):
    return (struct.pack("<QQQQQQQIIQIIQB", 7, 8, 9, 10, 11, cells, patterns, 2, 7117, 11, 12, 13, 14, 1) +
            said(b"name") + b"an address of UCX's")


def frames(*messages):
    return b"\0" + b"".join(struct.pack("<BBH", kind, 0, len(bytes_)) + bytes_ for kind, bytes_ in messages)


counts = struct.pack("<QQQ", 1, 2, 3)
# One of each kind, in the order of enum hoist__wire_kind.
MESSAGES = [
    hello(3, 1), struct.pack("<QIQB", 7, 2, 0, 0) + said(b"10.0.0.1:7117"), b"",
    struct.pack("<QIHHH", 0, 3, 0, 0x8001, 2), struct.pack("<QI", 0, 1) + b"\x0f" * 64, struct.pack("<Q", 2),
    struct.pack("<QB", 2, 1) + counts + struct.pack("<QQI", 1 << 20, 2, 3), struct.pack("<QQBB", 65, 1, 1, 1) + b"\xf0" * 64, struct.pack("<Q", 65),
    struct.pack("<Q", 65) + said(b"reading a file: Input/output error"), struct.pack("<QQQQ", 65, 1, 2, 7),
    struct.pack("<QIQQ", 65, 4, 5, 7), struct.pack("<Q", 65), struct.pack("<QB", 7, 1),
    said(b"name"), struct.pack("<IQQQ", 1, 5, 8, 9) + said(b"m.safetensors"),
    struct.pack("<IQ", 1, 0) + b"bytes", struct.pack("<IQ", 1, 0) + b"0f" * 16, said(b"name"),
    struct.pack("<QIIQQBB", 7, 2, 4, 2, 3, 1, 1) + counts + said(b"10.0.0.1:7117"),
    struct.pack("<QQQQ", 8, 9, 10, 11) + said(b"m.safetensors"), struct.pack("<i", -22) + said(b"other files"),
]
for kind, bytes_ in enumerate(MESSAGES, 1):
    put("far", "far-kind-%02d" % kind, frames((kind, bytes_)))
put("far", "far-all", frames(*enumerate(MESSAGES, 1)))
put("far", "far-wants", frames((1, hello(4, 2)), (4, struct.pack("<QIHH", 0, 2, 3, 2)),
                               (5, struct.pack("<QI", 0, 2) + b"\x0f" * 64 + b"\xf1" * 64),
                               (4, struct.pack("<QIHH", 2, 2, 0, 1))))
put("far", "far-no-pattern", frames((1, hello(1, 0)), (4, struct.pack("<QIH", 0, 1, 2))))

# --- GGUF ---


def string(text):
    text = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(text)) + text


FORMS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q",
         12: "<d"}


def value(kind, x):
    if kind == 8:
        return string(x)
    if kind == 9:
        inner, items = x
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, i) for i in items)
    return struct.pack(FORMS[kind], x)


# The types that are here: elements and bytes of a block.
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144), 14: (256, 210), 24: (1, 1),
          30: (1, 2)}


def gguf(pairs, tensors, version=3, align=32):
    head, at = b"", 0
    for name, kind, shape in tensors:
        n = 1
        for extent in shape:
            n *= extent
        head += string(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", e) for e in reversed(shape)) + struct.pack("<IQ", kind, at)
        at += (n // BLOCKS[kind][0] * BLOCKS[kind][1] + align - 1) // align * align
    body = b"".join(string(k) + struct.pack("<I", t) + value(t, v) for k, t, v in pairs)
    data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + body + head
    return data + bytes(-len(data) % align) + bytes(at)


gg = "gguf detect write open"
put(gg, "gguf-empty", gguf([], []))
put(gg, "gguf-one", gguf([("general.architecture", 8, "llama")], [("w", 0, [2, 3])]))
put(gg, "gguf-align", gguf([("general.alignment", 4, 8)], [("a", 1, [3]), ("b", 24, [5])], 3, 8))
put(gg, "gguf-v2", gguf([("a", 8, b"\xff\x00x")], [("q", 2, [2, 64]), ("k", 12, [256]), ("z", 14, [2, 256])], 2))
put(gg, "gguf-kinds", gguf(
    [("v%d" % k, k, 1) for k in FORMS] +
    [("tokens", 9, (8, ["a", "b\u2603", ""])), ("scores", 9, (6, [1.5, -0.0, 3e38])),
     ("nested", 9, (9, [(4, [1, 2]), (9, [(7, [0, 1])])])), ("none", 9, (5, []))],
    [("x", 30, [4, 2]), ("y", 8, [32])]))
put(gg, "real-gguf", (here / "data" / "gguf-llama.gguf").read_bytes())
put("gguf open", "gguf-split", gguf([("split.no", 2, 0), ("split.count", 2, 2), ("split.tensors.count", 5, 2)],
                               [("w", 0, [2])]))

# --- NumPy ---


def npy(descr, shape, n, fortran=False, major=1):
    text = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode() + b" \n"
    head = b"\x93NUMPY" + bytes([major, 0]) + struct.pack("<H" if major == 1 else "<I", len(text))
    return head + text + bytes(n)


np = "npy detect write open"
put(np, "npy-f4", npy("<f4", (2, 3), 24))
put(np, "npy-fortran", npy("<f8", (2, 2), 32, True))
put(np, "npy-scalar", npy("|b1", (), 1))
put(np, "npy-v2", npy("<c16", (1,), 16, False, 2))
put(np, "npy-v3", npy("bfloat16", (2,), 4, False, 3))
for name in ("numpy-fortran.npy",):
    put(np, "real-" + name, (here / "data" / name).read_bytes())


def archive(entries, comment=b"", method=zipfile.ZIP_STORED):
    to = io.BytesIO()
    with zipfile.ZipFile(to, "w", method) as z:
        for name, data in entries:
            z.writestr(zipfile.ZipInfo(name), data, method)
        z.comment = comment
    return to.getvalue()


zp = "npz zip detect write open"
put(zp, "npz-two", archive([("a.npy", npy("<f4", (2,), 8)), ("b.npy", npy("<i2", (2, 2), 8))]))
put(zp, "npz-note", archive([("a.npy", npy("<u1", (3,), 3)), ("note.txt", b"hello")], b"a comment"))
put(zp, "npz-deflated", archive([("a.npy", npy("<f4", (50,), 200))], b"", zipfile.ZIP_DEFLATED))
put(zp, "npz-none", archive([]))
for name in ("numpy-stored.npz", "numpy-compressed.npz"):
    put(zp, "real-" + name, (here / "data" / name).read_bytes())

# --- PyTorch ---

for name in ("torch-bare.pt", "torch-mixed.pt", "torch-state.pt", "torch-train.pt"):
    data = (here / "data" / name).read_bytes()
    put("torch zip detect write open", "real-" + name, data)
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        for entry in z.namelist():
            if entry.endswith("/data.pkl"):
                put("torch", name + ".pkl", z.read(entry))
for protocol, thing in itertools.product((2, 3, 4), ({"a": 1, "b": [1.5, None, "x" * 300]}, [], {"e": {"d": -2**70}})):
    put("torch", "pickle-%d-%d" % (protocol, len(thing)), pickle.dumps(thing, protocol))

# --- .max ---


def maxfile(tensors):
    def entries(base):
        text = b""
        for key, dtype, shape, bytes_ in tensors:
            text += struct.pack("<I", len(key)) + key + bytes([dtype, len(shape)])
            text += b"".join(struct.pack("<I", e) for e in shape) + struct.pack("<Q", base)
            base += bytes_
        return text
    n = len(entries(0))
    head = b"\x93\xf0\x9f\x94\xa5+\x2b\x93" + struct.pack("<IIQ", 0, 1, n)
    return head + entries(24 + n) + bytes(sum(t[3] for t in tensors))


FLOAT32 = next((d for d in range(256) if d == 83), 83)
mx = "max detect write open"
put(mx, "max-none", maxfile([]))
for dtype, size in ((0x53, 4), (80, 2), (79, 2), (1, 1), (135, 8), (139, 1), (134, 4), (137, 8), (81, 4), (82, 8)):
    put("max", "max-%d" % dtype, maxfile([(b"w", dtype, [2, 3], 6 * size)]))
put(mx, "max-two", maxfile([(b"a", 81, [2], 8), (b"", 81, [], 4)]))

# --- an image's table, as lib/cache/cache.h has it ---


def image(tensors, files, metadata):
    strings, where = b"", {}

    def text(s):
        nonlocal strings
        if s not in where:
            where[s] = len(strings)
            strings += s + b"\0"
        return where[s]

    rows, dims = [], []
    at = 4096
    for name, dtype, shape, size in tensors:
        strides, step = [], 1
        for e in reversed(shape):
            strides.insert(0, step)
            step *= e
        rows.append((text(name), len(dims), at, size, 0, at, dtype, len(shape)))
        dims += list(shape) + strides
        at += (size + 63) // 64 * 64
    path, form = text(b"/m.safetensors"), text(b"safetensors")
    f = b"".join(struct.pack("<QQQQqqQ", text(n), 1, 2, 3, 4, 5, k) for n, k in files)
    m = b"".join(struct.pack("<QQ", text(k), text(v)) for k, v in metadata)
    by_name = sorted(range(len(tensors)), key=lambda i: tensors[i][0])
    total = (at + 4095) // 4096 * 4096
    head = struct.pack("<8sIIiIQQQQQQQQQQQ160s", b"hoistimg", 2, 1, -1, 0, total, 4096,
                       sum(t[3] for t in tensors), len(tensors), len(files), len(metadata),
                       len(dims), len(strings), 5, path, form, b"a note")
    data = head + b"".join(struct.pack("<QQQQQQII", *r) for r in rows) + f + m
    data += b"".join(struct.pack("<Q", i) for i in by_name)
    data += b"".join(struct.pack("<q", d) for d in dims) + strings
    # Only so much of it that its table is there: the target fills up the page.  Its last byte, 0:
    # nothing of the header is left as it came.
    return data.ljust(4096, b"\0") + bytes(total - 4096)


for code in range(0, 64):
    put("cache_table", "image-%d" % code,
        image([(b"b", code, (2, 3), 24), (b"a", code, (4,), 16)], [(b"/m.safetensors", 0)], [(b"k", b"v")])) \
        if code in (1, 2, 3, 9, 13, 20) else None
put("cache_table", "image-none", image([], [(b"/m", 0), (b"/i", 1), (b"/d", 2)], []))

# --- folders: files behind each other, and what open.c cuts them by ---

NAMES = ["model.safetensors", "model.safetensors.index.json", "model-00001-of-00003.safetensors",
         "model-00002-of-00003.safetensors", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf",
         "m.gguf", "a.npy", "b.npy", "x.bin", "pytorch_model.bin.index.json", "m.npz", "m.max",
         "model-00001-of-00001.safetensors"]


def folder(*files):
    tail = b"".join(struct.pack("<HB", len(data), NAMES.index(name)) for name, data in files)
    return b"".join(data for _, data in files) + tail + bytes([len(files)])


first, second = NAMES[2], NAMES[3]
put("open", "shards", folder(
    (NAMES[1], json.dumps({"metadata": {}, "weight_map": {"a": first, "b": second}}).encode()),
    (first, safetensors([("a", "F32", [2])])), (second, safetensors([("b", "U8", [3])]))))
put("open", "joined", folder((first, safetensors([("a", "F32", [2])])),
                             (second, safetensors([("b", "U8", [3])]))))
put("open", "arrays", folder(("a.npy", npy("<f4", (2, 3), 24)), ("b.npy", npy("<u2", (3,), 6))))
put("open", "parts", folder(*[
    ("m-0000%d-of-00002.gguf" % (i + 1),
     gguf([("split.no", 2, i), ("split.count", 2, 2), ("split.tensors.count", 5, 2)],
          [("w%d" % i, 0, [2])])) for i in range(2)]))
put("open", "torch-index", folder(
    ("x.bin", (here / "data" / "torch-bare.pt").read_bytes()),
    (NAMES[10], json.dumps({"weight_map": {"tensor": "x.bin"}}).encode())))

# --- the dearest headers: as much memory as a byte of a header can cost ---

n = 2600
put("index", "dear-metadata", b'{"metadata":{' + b",".join([b'"":1'] * n) + b'},"weight_map":{"a":"b"}}')
put("index", "dear-map", b'{"weight_map":{' + b",".join([b'"a":"a"'] * (n // 2)) + b"}}")
put("index", "dear-files", json.dumps({"weight_map": {"%x" % i: "%x" % i for i in range(900)}}).encode())
text = b'{"__metadata__":{' + b",".join([b'"":""'] * n) + b"}}"
put("safetensors", "dear-metadata", struct.pack("<Q", len(text)) + text)
put("safetensors", "dear-tensors", safetensors([("%x" % i, "U8", [0]) for i in range(250)]))
put("max", "dear-tensors", maxfile([(b"", 81, [0], 0)] * 200))
put("gguf", "dear-pairs", gguf([(chr(33 + i % 90), 0, 1) for i in range(900)], []))
put("gguf", "dear-bools", gguf([("a", 9, (7, [0] * 9000))], []))
put("gguf", "dear-escapes", gguf([("a", 9, (8, [b"\1" * 9000]))], []))
put("npz", "dear-entries", archive([("%x" % i, b"") for i in range(150)]))
put("torch", "dear-tuples", b"\x80\2)" + b"\x85" * 12000 + b".")
put("torch", "dear-lists", b"\x80\2" + b"]" * 12000 + b".")
put("torch", "dear-texts", b"\x80\2}(" + b"".join(b"X\2\0\0\0%02xK\1" % (i % 256) for i in range(1200)) + b"u.")
