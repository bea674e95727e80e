#!/bin/sh
# SPDX-License-Identifier: MIT
# A Python user with the package installed: README's lines, and wrong uses.  $PYTHON is the interpreter
# that has the package; tests/python/test_users.py runs this.
. "${srcdir:-.}/users/support.sh"
PATH=$work/bin:$PATH
HOIST_EMULATE=cuda:2
XDG_RUNTIME_DIR=$work/run
export PATH HOIST_EMULATE XDG_RUNTIME_DIR
mkdir -m 700 "$XDG_RUNTIME_DIR" "$work/bin" || exit 99
printf '#!/bin/sh\nexec "%s" "$@"\n' "${PYTHON:?}" >"$work/bin/python"
chmod +x "$work/bin/python"

# python_types STATUS LINES - what is typed at python's prompt.
python_types() {
	types "$1" "python -c '$2'"
}

# --- a model ---
mkdir model step-200
write_safetensors model/model.safetensors '{
	"lm_head.weight":{"dtype":"F32","shape":[8,4],"data_offsets":[0,128]},
	"model.layers.0.norm.weight":{"dtype":"F32","shape":[4],"data_offsets":[128,144]},
	"model.layers.0.o_proj.weight":{"dtype":"F32","shape":[4,4],"data_offsets":[144,208]},
	"wk":{"dtype":"F32","shape":[4,4],"data_offsets":[208,272]},
	"wq":{"dtype":"F32","shape":[4,4],"data_offsets":[272,336]}}' 336
python_types 0 'import hoist; print(hoist.__version__)'
sees '^[0-9]+\.[0-9]+\.[0-9]+$'
python_types 0 'import hoist
with hoist.open("model/") as ckpt:
    print(len(ckpt), ckpt["lm_head.weight"].shape, ckpt["wq"].dtype)'
sees '^5 \(8, 4\) f32$'
python_types 0 'import hoist
with hoist.load("model/", device="cuda:0", tensors=["model.layers.0.*"]) as load:
    for name, buffer in load:
        print(name, buffer.shape, buffer.device)
    print(load.explain())'
sees '^model\.layers\.0\.o_proj\.weight \(4, 4\) Device\(type=gpu,id=0\)$' '^model\.layers\.0\.norm\.weight \(4,\) '
python_types 0 'import hoist; print(hoist.plan("model/", device="cuda:0"))'
sees 'cuda:0' '5 tensors|336'

python_types 0 'import hoist
with hoist.open("model/") as ckpt, hoist.save(ckpt, "step-200/", digest=True) as save:
    save.wait()
print(hoist.open("step-200/").digest("wq").hex())'
sees '^[0-9a-f]{32}$'

# --- README's own lines, of which those for torch need torch ---
cat >readme.py <<'END'
import asyncio
import importlib.util
import os
import re
import subprocess
import sys
import textwrap

import numpy

import hoist

fused, n, rank, n_ranks, use = numpy.zeros((8, 4), "f4"), 4, 0, 2, print
group = f"shm:readme-{os.getpid()}"
has_torch = importlib.util.find_spec("torch") is not None
if has_torch:
    import torch

    module = torch.nn.Module()
    for name, shape in {"lm_head.weight": (8, 4), "model.layers.0.norm.weight": (4,), "wk": (4, 4), "wq": (4, 4),
                        "model.layers.0.o_proj.weight": (4, 4)}.items():
        *folders, leaf = name.split(".")
        owner = module
        for folder in folders:
            if not hasattr(owner, folder):
                owner.add_module(folder, torch.nn.Module())
            owner = getattr(owner, folder)
        owner.register_parameter(leaf, torch.nn.Parameter(torch.zeros(shape)))

# The block of README that shows safe_open reads this file.
os.link("model/model.safetensors", "model.safetensors")
blocks = re.findall(r"^```python\n(.*?)^```$", open(sys.argv[1], encoding="utf-8").read(), re.M | re.S)
lines, left = 0, 0  # that run; that torch would be needed for
# The job of a launcher is this process alone.
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", HOIST_GROUP_PORT=str(20000 + os.getpid() % 12000))
for block in blocks:
    whole = block.count("\n")
    if not has_torch:
        block = "" if 'framework="pt"' in block else \
            "".join(line for line in block.splitlines(True) if "hoist.torch" not in line)
    left += whole - block.count("\n")
    if not block:
        continue
    # torch has no stand-in for a device.
    block = "".join(line.replace("cuda:0", "cpu") if "hoist.torch" in line else line
                    for line in block.replace("shm:llama", group).splitlines(True))
    ranks = [subprocess.Popen([sys.executable, "-c", f'import hoist; hoist.load_all("model/", "cuda:0", '
                               f'group="{group}", rank="{r}/8", group_timeout=300)']) for r in range(1, 8) if group in block]
    lines += block.count("\n")
    text = "async def main():\n    global arrays, state\n" + textwrap.indent(block, "    ")
    exec(compile(text, "README.md", "exec"))
    asyncio.run(main())
    if [one.wait() for one in ranks] != [0] * len(ranks):
        sys.exit("the other ranks of the group")
print(f"{len(blocks)} blocks, {lines} lines, {left} left out, torch: {has_torch}")
if lines + left < 30 or len(blocks) < 4:
    sys.exit("README has fewer lines than this test knows")
END
trap 'python -c "import hoist; hoist.cache.drop()" >/dev/null 2>&1; rm -rf "$work"' EXIT
cp "${abs_top_srcdir:?}/README.md" .
if python -c 'import numpy' 2>/dev/null; then
	types 0 'python readme.py README.md'
	sees '^[0-9]+ blocks, [0-9]+ lines'
	types 0 'ls'
	sees '^model\.gguf$'
else
	echo "NumPy is not there: README's lines are not run"
fi

# --- wrong uses ---
python_types 1 'import hoist; hoist.open("modle/")'
sees '^hoist\.errors\.NotFoundError: .*modle/: No such file or directory$'
python_types 1 'import hoist; hoist.open("model/")["lm_haed.weight"]'
sees '^hoist\.errors\.MissingError: .*lm_haed\.weight'
python_types 0 'import hoist
try:
    hoist.open("model/")["lm_haed.weight"]
except KeyError as error:
    print("a KeyError:", error)'
sees '^a KeyError: .*lm_haed'
python_types 1 'import hoist; hoist.load_all("model/", device="gpu0")'
sees '^hoist\.errors\.InvalidError: "gpu0" names no device; say cpu, cuda:N, hip:N or gpu:N'
python_types 1 'import hoist; hoist.load_all("model/", device="cuda:7")'
sees 'this machine has 2 emulated CUDA devices; say cuda:0 to cuda:1$'
python_types 1 'import hoist; hoist.load_all("model/", budgte="1M")'
sees "^TypeError: .*'budgte'"
python_types 1 'import hoist; hoist.load_all("model/", budget="64 megabytes")'
sees "^ValueError: '64 megabytes' is no size: give a number of bytes, or one with K, M, G or T"
python_types 1 'import hoist; hoist.load_all("model/", tensors=["layers.*"])'
sees 'no tensor is called or matches "layers\.\*"'
python_types 1 'import hoist; hoist.load_all("model/", slices={"wq": (0, 2)})'
sees "^TypeError: the slice of .wq. is \(0, 2\); give \(axis, rank, n_ranks\), or \(axis, slice\(begin, end\)\)"
python_types 1 'import hoist; hoist.save({"a": 3}, "x.safetensors")'
sees "^TypeError: tensor 'a': "
python_types 1 'import hoist; hoist.save(hoist.open("model/"), "x.pt")'
sees 'hoist does not write PyTorch'
[ ! -e x.safetensors ] && [ ! -e x.pt ] || fail "a save that was refused made a file"
