#!/bin/sh
# SPDX-License-Identifier: MIT
# An engineer with a model of Hugging Face's: what is in it, loads, copies, and what wrong words are answered.
. "${srcdir:-.}/users/support.sh"
PATH=$abs_top_builddir/tools:$PATH
XDG_RUNTIME_DIR=$work/run
HF_HUB_CACHE=$home/hub
export PATH XDG_RUNTIME_DIR HF_HUB_CACHE
mkdir -m 700 "$XDG_RUNTIME_DIR" || exit 99
trap 'hoist cache drop --all >/dev/null 2>&1; rm -rf "$work"' EXIT

# A model as `git clone` has it, and one in the hub's cache, whose files are links.
mkcheckpoint --bytes 4M --tensors 21 --shards 2 llama
for file in config.json tokenizer.json; do
	echo '{}' >llama/$file
done
snapshot=hub/models--acme--llama/snapshots/0123abcd
mkdir -p $snapshot hub/models--acme--llama/blobs hub/models--acme--llama/refs
for file in llama/*; do
	cp "$file" hub/models--acme--llama/blobs/
	ln -s "../../blobs/${file#*/}" $snapshot/
done
printf 0123abcd >hub/models--acme--llama/refs/main

types 0 'hoist --help'
sees '^usage: hoist COMMAND' '^  load PATH  +load a checkpoint' '^  hoist COMMAND --help'
types 0 'hoist doctor .'
sees '^file system  +yes ' '^io_uring  +(yes|no) ' '^recommended ' 'works here|findings say no'

# --- the tensors ---
types 0 'hoist ls llama'
sees '^NAME +DTYPE +SHAPE +BYTES +FILE +OFFSET$' \
	'^model\.layers\.0\.self_attn\.q_proj\.weight +bf16 +\[[0-9]+, [0-9]+\] +[0-9,]+  model-0000[12]-of-00002\.safetensors +[0-9]+$'
types 0 'hoist ls --tree llama'
sees '^ +[0-9.]+ MiB +20  model$' '^ +[0-9.]+ [KM]iB +[0-9]+    layers$' \
	' +1  lm_head\.weight  bf16 \[[0-9]+, [0-9]+\]$'
types 0 "hoist ls hf://acme/llama --tensor '*norm*' --exclude '*.layers.*'"
sees '^model\.norm\.weight +bf16'
[ "$(grep -c bf16 "$out")" -eq 1 ] || fail "--exclude left more than one tensor"

# --- loads ---
types 0 'hoist load llama --verify'
sees '^loaded 21 tensors, 4\.00 MiB, to cpu in .*: .*B/s' "^verified  every byte equals the files'$"
types 0 'hoist load hf://acme/llama -v'
sees '^took ' '^stages ' '^engine +(io_uring|threads)' '^read .* direct, .* cached, 0 mapped; ' '^staging .*budget 256 MiB$'
types 0 'HOIST_EMULATE=cuda:1 hoist devices'
sees '^cpu +' '^cuda:0 .*\(emulated\)$' '^cuda devices by .*\(HOIST_EMULATE asks for it\)$'
types 0 'HOIST_EMULATE=cuda:1 hoist explain llama --device cuda:0'
sees '^plan +21 tensors, [0-9,]+ bytes \(4\.00 MiB\) of 2 files$' '^to +cuda:0 \(emulated\): .* that are free$' \
	'^read ' '^staging +[0-9]+ slots of '
types 0 "HOIST_EMULATE=cuda:1 hoist load llama --device cuda:0 --tensor 'model.layers.0.*' --budget 64M -v"
sees '^loaded +9 tensors' '^to +cuda:0 \(emulated: no real device was used\)$' '^staging .*budget 64 MiB$'
types 0 "HOIST_EMULATE=cuda:2 hoist load llama --device cuda:0 --replica cuda:1 --tensor '*_proj.weight' --slice '*:0:0..8' --dtype f16"
sees '^loaded [0-9]+ tensors, .* to cuda:0 and 1 further replica '
types 0 'hoist digest llama >digests && HOIST_EMULATE=cuda:1 hoist digest llama --device cuda:0 | cmp digests - && head -n 3 digests'
sees '^[0-9a-f]{32}  model\.embed_tokens\.weight$'
types 0 'hoist cat llama model.norm.weight | wc -c'
sees "^$(hoist ls llama --tensor model.norm.weight | awk '$1 == "model.norm.weight" { print $4 }')\$"

# --- copies ---
types 0 'hoist cp llama joined.safetensors --digest && hoist load joined.safetensors --check-digests'
sees '^copied 21 tensors, 4\.00 MiB, to joined\.safetensors in ' '^loaded 21 tensors'
types 0 'hoist cp joined.safetensors split/ --shard-bytes 1M && ls split'
sees '\([4-9] shards and their index\)' '^model-00001-of-0000[4-9]\.safetensors$' '^model\.safetensors\.index\.json$'
types 0 "hoist cp hf://acme/llama half/ --dtype f16 --exclude 'lm_head.*' && hoist ls half --tensor model.norm.weight"
sees '^copied 20 tensors, ' '^beside +config\.json, tokenizer\.json$' '^model\.norm\.weight +f16 '
types 0 "hoist cp llama inner/ --only-weights --tensor 'model.*' --rename 's/^model\.//' && ls inner && hoist ls inner"
sees '^model\.safetensors$' '^layers\.0\.mlp\.up_proj\.weight '
[ ! -e inner/config.json ] || fail "--only-weights took config.json along"
types 0 'hoist digest joined.safetensors | cmp - digests'

# --- a model that stays in memory ---
types 0 'hoist cache add llama'
sees '^cached .*/llama$' '21 tensors, 4\.00 MiB$'
types 0 'hoist load llama --cache'
sees '^loaded 21 tensors, .*: 4\.00 MiB shared with the cache$'
types 0 'hoist cache list'
sees ' +21 .*/llama$' 'in 1 image$'
types 0 'hoist cache drop llama'
sees '^dropped 1 image$'

# --- wrong words: what is wrong, and what to type instead ---
types 2 'hoist laod llama'
sees '^hoist: there is no command laod \(did you mean load\?\); see `hoist --help`$'
types 2 'hoist load llama --devcie cuda:0'
sees 'there is no option --devcie \(did you mean --device\?\); see `hoist load --help`$'
types 2 'hoist load llama --dtype bfloat16'
sees '^hoist load: --dtype bfloat16: it must be f32, f16 or bf16'
types 2 'hoist load llama --budget 64MB/s'
sees '^hoist load: --budget 64MB/s: it must be a number of bytes above 0, as 64M or 1G'
types 2 'hoist load llama --verify --dtype f16'
sees '^hoist load: --verify compares bytes with the files: leave out --dtype'
types 2 'hoist load --window 1G llama'
sees '^hoist load: --window bounds what --stream holds: add that, or leave out --window'
types 1 'hoist load llama --device gpu0'
sees '^hoist: .*"gpu0".*cpu.*cuda'
types 1 'HOIST_CUDA_LIBRARY=none.so hoist load llama --device cuda:0'
sees '^hoist: .*none\.so.*HOIST_CUDA_LIBRARY'
types 1 'HOIST_EMULATE=cuda:1 hoist load llama --device cuda:3'
sees '^hoist: "cuda:3": this machine has 1 emulated CUDA device; say cuda:0'
types 1 'hoist ls lama'
sees '^hoist: .*lama: No such file or directory'
types 1 'hoist ls llama/config.json'
sees '^hoist: .*config\.json: .*name the folder, a file of tensors, or their index'
types 1 'hoist ls hf://acme/llama-2'
sees '^hoist: .*llama-2.*HF_HUB_CACHE'
types 1 'hoist cat llama model.norm.wieght'
sees '^hoist: .*model\.norm\.wieght.*`hoist ls` lists its tensors$'
types 1 "hoist load llama --tensor 'layers.*'"
sees '^hoist: .*no tensor that matches "layers\.\*"'
types 1 'hoist cp llama llama.gguf'
sees '^hoist: .*convert_hf_to_gguf\.py, or give --format gguf'
types 1 'hoist cp llama joined.safetensors --no-replace'
sees '^hoist: .*joined\.safetensors.*(there|exists)'
