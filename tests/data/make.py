# SPDX-License-Identifier: MIT
"""Made the files here, once: with torch 1.13 (torch-*; torch-mixed.pt with numpy 1.24), numpy 2.4 with ml_dtypes 0.6 (numpy-*),
safetensors 0.8 (safetensors-*) and gguf 0.19 (gguf-*), the formats' own writers.

`make.py torch`, `mixed`, `numpy`, `safetensors` or `gguf` makes those files in this folder.  The tests and
fuzz/seeds.py only read them.  `make.py torch` also prints what zip_real.c expects of them, by
torch's own reading.
"""
import sys
from collections import OrderedDict


def numpy_files():
    import ml_dtypes
    import numpy as np

    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save("numpy-fortran.npy", np.asfortranarray(a))
    arrays = dict(c=a, f=np.asfortranarray(a), bf16=a[:1].astype(ml_dtypes.bfloat16),
                  scalar=np.int64(-7), empty=np.zeros((0, 3), np.bool_))
    np.savez("numpy-stored.npz", a[0, :2].astype("c8"), **arrays)
    np.savez_compressed("numpy-compressed.npz", a=a)


def torch_files():
    import torch

    torch.manual_seed(1)
    model = torch.nn.Sequential(OrderedDict(emb=torch.nn.Embedding(4, 3), head=torch.nn.Linear(3, 4)))
    model.head.weight = model.emb.weight
    a = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.tensor([1, 2])).sum().backward()
    adam.step()
    train = {
        "epoch": 3, "lr": 1e-3, "name": "tiny", "flag": True, "none": None, "big": 2**70, "neg": -5,
        "size": a.shape, "dtype": torch.float16, "device": torch.device("cpu"),
        "model": {
            "t": a.t(), "row": a[1], "column": a[:, 2], "bf16": a.bfloat16()[:2], "f16": a.half(),
            "bool": a > 3, "i64": torch.arange(3), "c64": torch.tensor([3 + 4j, 1]),
            "u8": torch.ones(3, dtype=torch.uint8), "scalar": torch.tensor(5.0),
            "empty": torch.zeros(0, 3), "wide": a[0, :1].expand(2, 3),
        },
        "list": [a[0:1], (a[2],)],
        "parameter": torch.nn.Parameter(a[:1].clone()),
        "optimizer": adam.state_dict(),
    }
    torch.save(model.state_dict(), "torch-state.pt")
    torch.save(train, "torch-train.pt")
    torch.save(a, "torch-bare.pt", pickle_protocol=4)
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.bool: "BOOL",
             torch.int64: "I64", torch.complex64: "C64", torch.uint8: "U8"}

    def show(value, name):
        if isinstance(value, dict):
            for key, item in value.items():
                show(item, f"{name}.{key}" if name else str(key))
        elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            for i, item in enumerate(value):
                show(item, f"{name}.{i}")
        elif isinstance(value, torch.Tensor):
            dense = value.is_contiguous()
            shape = ", ".join(map(str, value.shape)) or "0"
            strides = "0" if dense else ", ".join(map(str, value.stride()))
            total = (value.real if value.is_complex() else value).double().sum().item()
            print(f'{{"{name or "tensor"}", HOIST_{names[value.dtype]}, {value.dim()}, {{{shape}}}, '
                  f"{str(not dense).lower()}, {{{strides}}}, {total!r}}},")

    for path in "torch-state.pt", "torch-train.pt", "torch-bare.pt":
        print(path)
        show(torch.load(path), "")


class Net:
    """Stands for a class of a program's own; its state is that of a torch.nn.Module."""


def mixed_file():
    """What torch.load() reads and a reader of tensors does not, beside tensors."""
    import argparse
    from collections import Counter, defaultdict

    import numpy as np
    import torch

    a = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    net = torch.nn.Sequential(OrderedDict(fc=torch.nn.Linear(3, 2)))
    net.fc.weight.data.copy_(a)
    net.register_buffer("steps", torch.arange(4))
    owned = Net()
    owned.inner = {"a": a + 1}
    torch.save({
        "args": argparse.Namespace(lr=0.5, betas=(0.9, 0.99), name="tiny"),
        "step": np.int64(7), "loss": np.float32(0.1), "done": np.bool_(True),
        "counts": defaultdict(int, seen=3), "milestones": Counter([30]), "bytes": b"\xff",
        "a": a, "net": net, "owned": owned, "tags": {"x"}, "array": np.zeros(2),
        "sparse": torch.eye(2).to_sparse(), "meta": torch.empty(3, device="meta"),
        "quantised": torch.quantize_per_tensor(a, 0.1, 0, torch.qint8),
        "b.c": a + 2, "b": {"c": a + 3}, ("t", 1): a + 4,
    }, "torch-mixed.pt")


def safetensors_files():
    import numpy as np
    from safetensors.numpy import save_file

    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    tensors = {
        "model.f32": a, "model.f16": a[:2].astype(np.float16), "model.f64": a[0].astype(np.float64),
        "model.i8": np.arange(-3, 3, dtype=np.int8), "model.u8": np.arange(5, dtype=np.uint8),
        "model.i16": np.arange(3, dtype=np.int16), "model.i32": np.arange(3, dtype=np.int32),
        "model.i64": np.array(-7, np.int64), "model.bool": a > 3,
        "model.empty": np.zeros((0, 3), np.float32), "model.\u00e9": np.ones((1, 2), np.uint16),
    }
    note = "two\nlines, \"\u00e9\" and \u2603"
    save_file(tensors, "safetensors-numpy.safetensors", {"format": "np", "note": note})


def gguf_files():
    import gguf
    import numpy as np

    a = np.arange(64, dtype=np.float32).reshape(2, 32)
    w = gguf.GGUFWriter("gguf-llama.gguf", "llama")
    w.add_name("tiny")
    w.add_context_length(4096)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_token_list(["<s>", "</s>", "\u00e9", "\u2603"])
    w.add_token_scores([0.0, -1.5, 3e38, 0.5])
    w.add_token_types([3, 3, 1, 1])
    w.add_bool("general.flag", True)
    w.add_int64("general.long", -2**62)
    w.add_float64("general.double", 0.1)
    w.add_tensor("token_embd.weight", a)
    w.add_tensor("output_norm.weight", a[0].astype(np.float16))
    for name, kind in ("ffn_up.weight", "Q8_0"), ("ffn_down.weight", "Q4_0"), ("attn_norm", "BF16"):
        kind = gguf.GGMLQuantizationType[kind]
        w.add_tensor("blk.0." + name, gguf.quants.quantize(a, kind), raw_dtype=kind)
    w.add_tensor("i8", np.arange(-3, 3, dtype=np.int8))
    w.add_tensor("i32", np.arange(3, dtype=np.int32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


{"torch": torch_files, "mixed": mixed_file, "numpy": numpy_files, "safetensors": safetensors_files,
 "gguf": gguf_files}[sys.argv[1]]()
