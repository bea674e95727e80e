#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist cp: what arrives is what was there, in one file or in many; what fails leaves all as it was.
. "${srcdir:-.}/tools/support.sh"

mkcheckpoint --bytes 12M --tensors 60 --shards 3 --dtypes all --odd "$work/src"
refdigest "$work/src" | sort -k 2 >"$work/want"

same() {
	refdigest "$1" | sort -k 2 | cmp - "$work/want" || fail "$1 differs from what was copied"
}

# Joined, split, joined again; each read by a reader that is not hoist's.
run 0 cp "$work/src" "$work/one.safetensors"
[ ! -s "$err" ] || fail "it wrote to stderr"
same "$work/one.safetensors"
mkdir "$work/shards" "$work/back" || exit 99
run 0 cp --json --shard-bytes 3M --digest --engine threads --io cached "$work/one.safetensors" \
	"$work/shards"
[ "$(json '?files' <"$out")" -gt 3 ] || fail "too few shards"
same "$work/shards"
run 0 cp --budget 256K "$work/shards" "$work/back"
same "$work/back/model.safetensors"
[ "$(ls -A "$work/back")" = model.safetensors ] || fail "more than the file in $work/back"

# Other shards take their place: those of the old index go, others' files stay.
echo mine >"$work/shards/model-00009-of-00099.safetensors"
echo mine >"$work/shards/notes"
run 0 cp --shard-bytes 6M "$work/shards" "$work/shards"
rm "$work/shards/model-00009-of-00099.safetensors" || fail "a file that was not ours is gone"
[ -f "$work/shards/notes" ] || fail "notes are gone"
same "$work/shards"
n=$(ls "$work/shards" | grep -c 'model-.*safetensors$')
[ "$n" -eq "$(ls "$work/shards" | sed -n 's/.*-of-0*\([0-9]*\)\.safetensors$/\1/p' | sort -u)" ] ||
	fail "shards of two saves"

# One file takes the place of shards, where a folder is read by their index.
run 0 cp --shard-bytes 3M "$work/one.safetensors" "$work/shards"
run 0 cp "$work/shards" "$work/shards"
[ "$(ls "$work/shards")" = "$(printf 'model.safetensors\nnotes')" ] ||
	fail "not one file: $(ls "$work/shards")"
same "$work/shards"
echo '{}' >"$work/shards/other.safetensors.index.json"
run 1 cp "$work/one.safetensors" "$work/shards/model.safetensors"
one_line 'take other.safetensors.index.json there'

# Onto itself.
run 0 cp "$work/one.safetensors" "$work/one.safetensors"
same "$work/one.safetensors"

# A name of a format that hoist does not write is refused; no other format is written.
data=${srcdir:-.}/data
cp "$data/torch-train.pt" "$work/train.pt" || exit 99
chmod u+w "$work/train.pt"
for name in train.pt net.pth pytorch_model.bin m.ckpt M.PT a.npz; do
	run 1 cp "$work/train.pt" "$work/$name"
	one_line "$name: hoist does not write"
	one_line '.safetensors, .gguf, .npy or .max'
done
[ ! -e "$work/a.npz" ] || fail "a file that is no archive"
run 0 cp --format safetensors "$data/torch-state.pt" "$work/net.pt"
[ "$(hoist ls --json "$work/net.pt" | json '?format')" = safetensors ] || fail "not as asked"

# In place nothing is lost: other formats, some tensors, what an index leaves out.
kept() {
	before=$1
	shift
	cp "$before" "$work/before" || exit 99
	run 1 cp "$@"
	one_line 'is a source of the copy'
	cmp "$before" "$work/before" || fail "$before is not what it was"
}
kept "$work/train.pt" --format safetensors "$work/train.pt" "$work/./train.pt"
kept "$work/one.safetensors" --format gguf "$work/one.safetensors" "$work/one.safetensors"
name=$(hoist ls --json "$work/one.safetensors" | json '?tensors.0.name')
kept "$work/one.safetensors" --tensor "$name" "$work/one.safetensors" "$work/one.safetensors"
one_line 'would lose 59 of its 60 tensors'
mkdir "$work/part" || exit 99
run 0 cp --shard-bytes 3M "$work/one.safetensors" "$work/part"
for file in '' /model.safetensors /model.safetensors.index.json; do
	kept "$work/part/model.safetensors.index.json" --tensor "$name" "$work/part" "$work/part$file"
done
# "name": "file" of the first tensor goes, with its comma.
tr -d '\n' <"$work/part/model.safetensors.index.json" |
	sed "s/\"$(echo "$name" | sed 's/[].[*]/\\&/g')\": *\"[^\"]*\",//" >"$work/less"
cmp -s "$work/less" "$work/part/model.safetensors.index.json" && fail "the index has all tensors"
mv "$work/less" "$work/part/model.safetensors.index.json"
kept "$work/part/model.safetensors.index.json" "$work/part" "$work/part"
one_line 'would lose 1 of its 60 tensors'
run 0 cp --tensor "$name" "$work/part/model-00001-of-"* "$work/taken.safetensors"

# One shard in the place of all: the others would go with the index.
mkdir "$work/two" "$work/links" || exit 99
run 0 cp --shard-bytes 6M "$work/one.safetensors" "$work/two"
for shard in "$work/two/model-00001-of-"*; do :; done
ls "$work/two" >"$work/names"
for file in / /model.safetensors /model.safetensors.index.json; do
	kept "$shard" "$shard" "$work/two$file"
	one_line 'of its 60 tensors'
	kept "$shard" --shard-bytes 1M "$shard" "$work/two$file"
done
kept "$shard" --shard-bytes 1M "$shard" "$work/two/model"
ln -s "$shard" "$work/links/any.safetensors"
kept "$shard" "$work/links/any.safetensors" "$work/two/"
ls "$work/two" | cmp - "$work/names" || fail "shards are gone: $(ls "$work/two")"
same "$work/two"
echo '{' >"$work/links/model.safetensors.index.json"
cp "$shard" "$work/links/model-00001-of-00002.safetensors" || exit 99
kept "$work/links/model-00001-of-00002.safetensors" \
	"$work/links/model-00001-of-00002.safetensors" "$work/links"
one_line 'its index, which would be removed'
rm "$work/links/model.safetensors.index.json" || exit 99
run 0 cp "$work/links/model-00001-of-00002.safetensors" "$work/links/model.safetensors"
run 0 cp "$shard" "$work/two/model"

# A file is a source under every name that leads to it; a link that is replaced is none.
cp "$work/one.safetensors" "$work/hard.safetensors" || exit 99
ln -s one.safetensors "$work/y.safetensors"
ln -s ../train.pt "$work/links/link.pt"
kept "$work/one.safetensors" --tensor "$name" "$work/y.safetensors" "$work/one.safetensors"
kept "$work/train.pt" --format safetensors "$work/links/link.pt" "$work/train.pt"
ln "$work/hard.safetensors" "$work/hard2.safetensors"
run 0 cp --tensor "$name" "$work/hard.safetensors" "$work/hard2.safetensors"
same "$work/hard.safetensors"
run 0 cp --tensor "$name" "$work/one.safetensors" "$work/y.safetensors"
same "$work/one.safetensors"
[ ! -L "$work/y.safetensors" ] || fail "the link stays"
run 0 cp --digest "$work/one.safetensors" "$work/kept.safetensors"
run 0 cp "$work/kept.safetensors" "$work/kept.safetensors"
run 0 load --check-digests "$work/kept.safetensors"

# Metadata are kept; digests are not those of another file.
hoist ls --json "$work/one.safetensors" >"$work/a"
run 0 cp --digest "$work/one.safetensors" "$work/two.safetensors"
run 0 cp "$work/two.safetensors" "$work/three.safetensors"
hoist ls --json "$work/three.safetensors" >"$work/b"
for file in a b; do sed -i '/"path"/d' "$work/$file"; done
cmp "$work/a" "$work/b" || fail "what is listed has changed"
grep -q hoist.xxh3_128 "$work/two.safetensors" || fail "no digests"

# Readers of safetensors want to know whose tensors they are, where there are metadata at all: those
# of PyTorch's say so, beside their own keys, which stay as they are.
says() {
	wanted=$1
	hoist ls --json "$work/said.safetensors" >"$out"
	shift
	for key in "$@"; do
		[ "$(json "?metadata.$key" <"$out")" = "$wanted" ] ||
			fail "metadata.$key is not $wanted: $(json "?metadata.$key" <"$out")"
	done
}
run 0 cp --digest "$data/torch-state.pt" "$work/said.safetensors"
says pt format
run 0 cp "$data/torch-train.pt" "$work/said.safetensors"
says pt format
says tiny name
mkdir "$work/bins" || exit 99
cp "$data/torch-state.pt" "$work/bins/pytorch_model.bin" || exit 99
hoist ls --json "$data/torch-state.pt" >"$out"
{
	printf '{"metadata":{"total_size":1,"format":"mine","note":"kept"},"weight_map":{'
	for i in 0 1 2; do
		printf '"%s":"pytorch_model.bin"' "$(json "?tensors.$i.name" <"$out")"
		[ $i -eq 2 ] && printf '}}' || printf ','
	done
} >"$work/bins/pytorch_model.bin.index.json"
run 0 cp "$work/bins" "$work/said.safetensors"
says mine format
says kept note
write_safetensors "$work/bare.safetensors" \
	'{"t":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}' 9
run 0 cp --digest "$work/bare.safetensors" "$work/said.safetensors"
says pt format
run 0 cp "$work/bare.safetensors" "$work/said.safetensors"
grep -q metadata "$work/said.safetensors" && fail "metadata where there were none"

# To other formats and back; from GGUF to GGUF nothing changes.
mkcheckpoint --bytes 3M --tensors 9 --dtypes f16,f32 "$work/plain"
refdigest "$work/plain" >"$work/digests"
for name in plain.gguf plain.GGUF; do
	run 1 cp "$work/plain" "$work/$name"
	one_line 'llama.cpp does not load'
	one_line '--format gguf to change the container alone'
	[ ! -e "$work/$name" ] || fail "a file after all"
done
run 0 cp --format gguf "$work/plain" "$work/plain.gguf"
grep -q '^format  *gguf, the container alone' "$out" || fail "no line about the container"
run 0 cp --budget 256K "$work/plain.gguf" "$work/again.gguf"
grep -q '^format' "$out" && fail "a line about the container, from GGUF to GGUF"
cmp "$work/plain.gguf" "$work/again.gguf" || fail "a GGUF file has changed"
run 0 cp --format safetensors "$work/again.gguf" "$work/back/"
refdigest "$work/back" | cmp - "$work/digests" || fail "through GGUF: other tensors"
run 0 cp --format max "$work/plain" "$work/back/plain"
run 0 digest "$work/back/plain"
cmp "$out" "$work/digests" || fail "as .max: other tensors"
name=$(hoist ls --json "$work/plain" | json '?tensors.3.name')
run 0 cp --tensor "$name" "$work/plain" "$work/single.npy"
run 0 digest "$work/single.npy"
[ "$(cut -c 1-32 "$out")" = "$(sed -n 4p "$work/digests" | cut -c 1-32)" ] ||
	fail "as .npy: other bytes"

# A tensor that lies in columns is written in rows.
{
	printf '\223NUMPY\001\000\166\000'
	printf '%-117s\n' "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }"
	printf aabbccddeeff
} >"$work/columns.npy"
run 0 cp "$work/columns.npy" "$work/rows.safetensors"
[ "$(tail -c 12 "$work/rows.safetensors")" = aacceebbddff ] || fail "columns are no rows"

# All of 100,000 pairs of metadata are kept, within the time of a look at each.
write_safetensors "$work/pairs.safetensors" "{\"__metadata__\":{$(awk 'BEGIN {
	for (i = 0; i < 100000; i++)
		printf "%s\"k%06d\":\"v%d\"", (i > 0 ? "," : ""), i, i
}')}}" 0
(
	ulimit -t 8
	run 0 cp "$work/pairs.safetensors" "$work/pairs2.safetensors"
) || exit 1
for file in pairs pairs2; do
	hoist ls --json "$work/$file.safetensors" | json '?metadata.k099999'
done | uniq -c >"$work/same"
grep -q '^ *2 v99999$' "$work/same" || fail "metadata was not kept: $(cat "$work/same")"

# Some tensors.
name=$(hoist ls --json "$work/src" | json '?tensors.0.name')
run 0 cp --tensor "$name" "$work/src" "$work/some.max"
[ "$(hoist ls --json "$work/some.max" | json '?tensors.0.name')" = "$name" ] || fail "another tensor"
run 1 cp --tensor nothing "$work/src" "$work/none.safetensors"
one_line 'no tensor that matches "nothing"'
[ ! -e "$work/none.safetensors" ] || fail "a file after all"

# Failures.
cp "$work/one.safetensors" "$work/old" || exit 99
run 1 cp --no-replace "$work/src" "$work/one.safetensors"
one_line 'this file exists already'
run 1 cp "$work/src" "$work/missing/file"
one_line 'opening the folder'
run 1 cp "$work/src" "$work/a.npy"
one_line 'npy'
run 2 cp --format zip "$work/src" "$work/x"
run 2 cp --shard-bytes 0 "$work/src" "$work/x"
run 2 cp --io map "$work/src" "$work/x"
run 2 cp "$work/src"
(
	ulimit -f 100
	run 1 cp "$work/src" "$work/one.safetensors"
	one_line 'RLIMIT_FSIZE'
) || exit 1
cmp "$work/one.safetensors" "$work/old" || fail "the old file has changed"

# A signal: the old file stays, and nothing else.
before=$(ls -A "$work")
for seconds in 0.02 0.05 0.1 0.2; do
	timeout --foreground --preserve-status -s INT $seconds "$HOIST" cp --budget 256K \
		--engine threads "$work/src" "$work/one.safetensors" >"$out" 2>"$err"
	status=$?
	if [ $status -eq 0 ]; then
		same "$work/one.safetensors"
	else
		[ $status -eq 130 ] || fail "exit status $status of SIGINT"
		[ ! -s "$err" ] || one_line 'cancelled after'
		same "$work/one.safetensors"
	fi
	[ "$(ls -A "$work")" = "$before" ] || fail "something was left behind"
done
