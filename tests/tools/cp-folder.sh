#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist cp: other names and metadata; folders that are made, and files beside the weights.
. "${srcdir:-.}/tools/support.sh"

write_safetensors "$work/m.safetensors" '{"__metadata__":{"who":"me"},
	"model.a.w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
	"model.b.w":{"dtype":"U8","shape":[5],"data_offsets":[3,8]},
	"head/x":{"dtype":"U8","shape":[7],"data_offsets":[8,15]}}' 15
write_safetensors "$work/bare.safetensors" '{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1

# --- other names ---

while read -r options wanted; do
	# shellcheck disable=SC2046
	set -f && set -- $(printf '%s' "$options" | tr '~' ' ') && set +f
	run 0 cp "$@" "$work/m.safetensors" "$work/r.safetensors"
	got=$(hoist ls "$work/r.safetensors" | awk 'NR > 1 && !NF { exit } NR > 1 { print $1 }' |
		tr '\n' ' ')
	[ "$got" = "$(echo "$wanted" | tr ',' ' ') " ] ||
		fail "cp $*: the names are $got, not $wanted"
done <<'END'
--rename~s/model/m/ m.a.w,m.b.w,head/x
--rename~s/^model\.(.*)\.(.)$/\2<\1>/ w<a>,w<b>,head/x
--rename~s/[aeo]/_/ m_del.a.w,m_del.b.w,h_ad/x
--rename~s/[aeo]/_/g m_d_l._.w,m_d_l.b.w,h__d/x
--rename~s/x*/-/g -m-o-d-e-l-.-a-.-w-,-m-o-d-e-l-.-b-.-w-,-h-e-a-d-/-
--rename~s|head/x|h\|&\&| model.a.w,model.b.w,h|head/x&
--rename~s/head\/x/h/~--rename~s/^h$/head/ model.a.w,model.b.w,head
--rename~s,model.,, a.w,b.w,head/x
--rename~s/^/p./g~--tensor~model.* p.model.a.w,p.model.b.w
END
run 0 digest "$work/m.safetensors"
awk '{ print $1 }' "$out" >"$work/digests"
run 0 cp --rename 's/.*\.(.).w/\1/' "$work/m.safetensors" "$work/r.safetensors"
run 0 digest "$work/r.safetensors"
awk '{ print $1 }' "$out" | cmp -s - "$work/digests" || fail "the tensors are others"

before=$(ls -A "$work")
run 1 cp --rename 's/[ab]/c/' "$work/m.safetensors" "$work/none.safetensors"
one_line '--rename gives "model.a.w" and "model.b.w" one name, "model.c.w"'
run 1 cp --rename 's/nothing/x/' --rename s/a/b/ "$work/m.safetensors" "$work/none.safetensors"
one_line '--rename s/nothing/x/ matches the name of no tensor'
run 1 cp --rename 's/head/x/' --exclude 'head*' "$work/m.safetensors" "$work/none.safetensors"
one_line 'matches the name of no tensor that is copied'
run 1 cp --rename 's/head.*//' "$work/m.safetensors" "$work/none.safetensors"
one_line 'leaves nothing of the name "head/x"'
for bad in s/a s/a/b a/b/ 's\a\b\' s/a/b/i s//b/ '' s; do
	run 2 cp --rename "$bad" "$work/m.safetensors" "$work/none.safetensors"
	one_line 's/PATTERN/TEXT/'
done
run 2 cp --rename 's/(a/b/' "$work/m.safetensors" "$work/none.safetensors"
one_line 'extended regular expression'
run 2 cp --rename 's/(a)/\1\2/' "$work/m.safetensors" "$work/none.safetensors"
one_line 'without \2 in its text: the pattern has 1 group'
[ "$(ls -A "$work")" = "$before" ] || fail "a failure left something"

# --- metadata ---

says() {
	hoist ls --json "$1" >"$out"
	file=$1
	shift
	for pair in "$@"; do
		[ "$(json "?metadata.${pair%%=*}" <"$out")" = "${pair#*=}" ] ||
			fail "$file: ${pair%%=*} is $(json "?metadata.${pair%%=*}" <"$out"), not ${pair#*=}"
	done
}
run 0 cp --metadata who=you --metadata eq=a=b --metadata none= --metadata 'ä=ö' \
	"$work/m.safetensors" "$work/r.safetensors"
says "$work/r.safetensors" who=you eq=a=b none= 'ä=ö'
grep -q '"format"' "$work/r.safetensors" && fail "a format that was not there"
run 0 cp --metadata k=1 --metadata k=2 "$work/bare.safetensors" "$work/r.safetensors"
says "$work/r.safetensors" k=2 format=pt
run 0 cp --metadata format=mine "$work/bare.safetensors" "$work/r.safetensors"
says "$work/r.safetensors" format=mine
for format in gguf npy max; do
	run 1 cp --format $format --metadata k=v "$work/bare.safetensors" "$work/none"
	one_line '--metadata is for safetensors'
done
run 1 cp --metadata hoist.xxh3_128=0 "$work/m.safetensors" "$work/none"
one_line 'reserved for the digests'
for bad in k '' =v; do
	run 2 cp --metadata "$bad" "$work/m.safetensors" "$work/none"
	one_line 'KEY=VALUE'
done

# --- folders that are made ---

run 0 cp "$work/m.safetensors" "$work/made/"
[ "$(ls -A "$work/made")" = model.safetensors ] || fail "in the folder: $(ls -A "$work/made")"
run 1 cp "$work/m.safetensors" "$work/not/there/"
one_line 'creating the folder'
[ ! -e "$work/not" ] || fail "a folder above was made"
(
	ulimit -f 0
	run 1 cp "$work/m.safetensors" "$work/gone/"
) || exit 1
[ ! -e "$work/gone" ] || fail "the folder of a copy that failed is there"
run 1 cp --format npy "$work/m.safetensors" "$work/gone/"
[ ! -e "$work/gone" ] || fail "the folder of a copy that failed is there"

# --- the dtype in config.json ---

mkcheckpoint --bytes 64K --dtypes f32 "$work/f32"
cat >"$work/f32/config.json" <<'END'
{"torch_dtype" : "float32", "a": "dtype", "b\\"": "float32", "rms_norm_eps": 1e-05,
 "text_config": {"dtype":"float16", "dtype_": "float32"}, "vision": {"dtype": "bfloat16"}, "x": ["dtype", "float32"],
 "quantization_config": {"dtype": "int8"}}
END
run 0 cp --dtype bf16 "$work/f32" "$work/bf16/"
grep -q '^beside    config.json (with the new dtype)$' "$out" || fail "a changed file is not named"
sed -e 's/"torch_dtype" : "float32"/"torch_dtype" : "bfloat16"/; s/"dtype":"float16"/"dtype":"bfloat16"/' \
	"$work/f32/config.json" | cmp - "$work/bf16/config.json" || fail "config.json: $(cat "$work/bf16/config.json")"
run 0 cp --dtype bf16 "$work/f32" "$work/bf16/"
grep -q '^there     already, the same: config.json (with the new dtype)' "$out" || fail "$(cat "$out")"
run 0 cp "$work/f32" "$work/same/"
cmp "$work/f32/config.json" "$work/same/config.json" || fail "config.json was changed without --dtype"
run 1 cp --dtype f16 "$work/f32" "$work/bf16/"
one_line 'config.json is there already, with other content'

# --- files beside the weights ---

mkdir "$work/model" "$work/outside" || exit 99
cp "$work/m.safetensors" "$work/model/model.safetensors" || exit 99
taken='added_tokens.json chat_template.jinja config.json generation_config.json tokenizer.json tokenizer.model tokenizer_config.json vocab.txt'
for file in $taken; do
	echo "{\"$file\": 1}" >"$work/model/$file"
done
for file in README.md notes optimizer.pt model-00001-of-00002.safetensors.bak .config.json modeling.py; do
	echo x >"$work/model/$file"
done
mkdir "$work/model/tokenizer" || exit 99
head -c 70M /dev/zero >"$work/model/vocab.bin"
mkfifo "$work/model/tokenizer.fifo" || exit 99

run 0 cp --json "$work/model" "$work/out/"
[ "$(ls -A "$work/out" | tr '\n' ' ')" = "$(printf '%s\n' $taken model.safetensors | sort | tr '\n' ' ')" ] ||
	fail "in the folder: $(ls -A "$work/out" | tr '\n' ' ')"
for file in $taken; do
	cmp "$work/model/$file" "$work/out/$file" || fail "$file differs"
done
json =added_tokens.json:beside.0 =config.json:beside.2 =tokenizer:beside_left.0 \
	=tokenizer.fifo:beside_left.1 =vocab.bin:beside_left.2 <"$out" || fail "the report: $(cat "$out")"
rm "$work/model/vocab.bin" "$work/model/tokenizer.fifo" || exit 99

# What is there already: the same stays, another is not replaced, and nothing is written.
rm "$work/out/vocab.txt" || exit 99
run 0 cp "$work/model/" "$work/out"
grep -q '^beside    vocab.txt$' "$out" || fail "vocab.txt is not named"
grep -q '^there     already, the same: added_tokens.json, chat_template.jinja, config.json' "$out" ||
	fail "what was there is not named"
echo other >"$work/out/config.json"
rm "$work/out/added_tokens.json" "$work/out/model.safetensors" || exit 99
run 1 cp "$work/model" "$work/out"
one_line "out/config.json is there already, with other content"
one_line '--only-weights'
[ "$(cat "$work/out/config.json")" = other ] || fail "config.json was replaced"
if [ -e "$work/out/added_tokens.json" ] || [ -e "$work/out/model.safetensors" ]; then
	fail "a part was copied"
fi
run 0 cp --only-weights "$work/model" "$work/out"
[ "$(cat "$work/out/config.json")" = other ] || fail "config.json was replaced"
[ ! -e "$work/out/added_tokens.json" ] || fail "--only-weights copied more"
ls -A "$work/out" | grep -q hoist && fail "a hidden file is left"

# A copy that fails takes nothing along; one onto itself leaves all as it is.
(
	ulimit -f 0
	run 1 cp "$work/model" "$work/gone/"
) || exit 1
[ ! -e "$work/gone" ] || fail "left behind: $(ls -A "$work/gone")"
run 0 cp "$work/model" "$work/model"
grep -q '^beside' "$out" && fail "files were copied onto themselves"
for source in "$work/m.safetensors" "$work/model/model.safetensors"; do
	mkdir "$work/single" || exit 99
	run 0 cp "$source" "$work/single"
	[ "$(ls "$work/single")" = model.safetensors ] || fail "a file took others along"
	rm -r "$work/single"
done

# Links: within the folder, and to blobs of Hugging Face's cache; others must be trusted.
mkdir -p "$work/models--o--n/blobs" "$work/models--o--n/snapshots/r" || exit 99
cp "$work/m.safetensors" "$work/models--o--n/blobs/1" || exit 99
echo '{}' >"$work/models--o--n/blobs/2"
ln -s ../../blobs/1 "$work/models--o--n/snapshots/r/model.safetensors"
ln -s ../../blobs/2 "$work/models--o--n/snapshots/r/config.json"
ln -s ../../blobs/2 "$work/models--o--n/snapshots/r/tokenizer.json"
run 0 cp "$work/models--o--n/snapshots/r" "$work/hub/"
[ "$(ls "$work/hub" | tr '\n' ' ')" = 'config.json model.safetensors tokenizer.json ' ] ||
	fail "from the cache: $(ls "$work/hub")"
[ ! -L "$work/hub/config.json" ] || fail "a link was copied"
echo secret >"$work/outside/file"
ln -s ../../../outside/file "$work/models--o--n/blobs/3"
ln -s ../../outside "$work/models--o--n/blobs/folder"
mkdir -p "$work/models--o--x/blobs" "$work/plain/snapshots/r" "$work/plain/blobs" || exit 99
cp "$work/outside/file" "$work/models--o--x/blobs/1" || exit 99
cp "$work/outside/file" "$work/plain/blobs/1" || exit 99
cp "$work/m.safetensors" "$work/plain/snapshots/r/model.safetensors" || exit 99
while read -r folder link; do
	ln -s "$link" "$work/$folder/snapshots/r/merges.txt" || exit 99
	run 1 cp "$work/$folder/snapshots/r" "$work/gone/"
	one_line 'merges.txt is a link to outside of its folder'
	[ ! -e "$work/gone" ] || fail "left behind: $(ls -A "$work/gone")"
	rm "$work/$folder/snapshots/r/merges.txt"
done <<END
models--o--n ../../blobs/3
models--o--n ../../blobs/folder/file
models--o--n ../../blobs/none
models--o--n ../../../models--o--x/blobs/1
models--o--n $work/outside/file
models--o--n config.json
plain ../../blobs/1
END
mv "$work/models--o--n/blobs" "$work/moved" && ln -s ../moved "$work/models--o--n/blobs" || exit 99
run 1 cp --follow-links --only-weights "$work/models--o--n/snapshots/r" "$work/gone/x/"
run 1 cp "$work/models--o--n/snapshots/r" "$work/gone/"
[ ! -e "$work/gone" ] || fail "left behind: $(ls -A "$work/gone")"
mkdir "$work/model/sub" || exit 99
echo inside >"$work/model/sub/file"
ln -s sub/file "$work/model/vocab.json"
run 0 cp "$work/model" "$work/inside/"
[ "$(cat "$work/inside/vocab.json")" = inside ] || fail "a link within the folder was not followed"
ln -s ../outside/file "$work/model/merges.txt"
run 1 cp "$work/model" "$work/gone/"
one_line 'merges.txt is a link to outside of its folder'
[ ! -e "$work/gone" ] || fail "left behind: $(ls -A "$work/gone")"
run 0 cp --follow-links "$work/model" "$work/gone/"
[ "$(cat "$work/gone/merges.txt")" = secret ] || fail "the link was not followed"
run 0 cp --only-weights "$work/model" "$work/weights/"
[ "$(ls "$work/weights")" = model.safetensors ] || fail "--only-weights: $(ls "$work/weights")"
exit 0
