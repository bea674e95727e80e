#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist cp --dtype and --slice: what the copy holds, beside all other options, and what is refused.
# tests/lib/save/convert compares the bytes.
. "${srcdir:-.}/tools/support.sh"

mkcheckpoint --bytes 6M --tensors 40 --shards 3 --dtypes f32,f16,bf16,i64 "$work/src"

digests() {
	hoist digest "$1" >"$2" || fail "hoist digest $1"
}

# dtypes FILE - how many tensors of each dtype: "bf16 30,i64 10".
dtypes() {
	hoist ls --json "$1" | grep -o '"dtype": *"[a-z0-9]*"' | cut -d'"' -f4 | sort | uniq -c |
		awk '{ printf "%s%s %s", (NR > 1 ? "," : ""), $2, $1 }'
}

# --- another dtype ---

run 0 cp --dtype f32 --no-sync "$work/src" "$work/quiet.safetensors" # signalling NaNs go
run 0 cp --dtype bf16 --no-sync "$work/quiet.safetensors" "$work/a.safetensors"
grep -q '^dtype  *10 tensors left as in the file: i64; f32, f16, bf16 and quantised ones' "$out" || fail "the report"
[ "$(dtypes "$work/a.safetensors")" = 'bf16 30,i64 10' ] || fail "$(dtypes "$work/a.safetensors")"
run 0 cp --json --dtype f32 --budget 1M --shard-bytes 2M --digest "$work/a.safetensors" "$work/wide/"
json =10:unconverted =40:tensors <"$out" || fail "the report: $(cat "$out")"
[ "$(dtypes "$work/wide")" = 'f32 30,i64 10' ] || fail "$(dtypes "$work/wide")"
run 0 load --check-digests "$work/wide"
# From bf16 to f32 and back nothing is lost.
for options in '--budget 256K' '--engine threads --io cached' '--io direct --digest'; do
	# shellcheck disable=SC2086
	run 0 cp $options --dtype bf16 "$work/wide" "$work/b.safetensors"
	digests "$work/a.safetensors" "$work/digests.a"
	digests "$work/b.safetensors" "$work/digests.b"
	cmp "$work/digests.a" "$work/digests.b" || fail "cp $options: other bytes"
done
run 0 cp --dtype f16 --tensor '*norm*' --format gguf "$work/a.safetensors" "$work/n.gguf"
[ "$(dtypes "$work/n.gguf" | tr ',' '\n' | grep -c bf16)" -eq 0 ] || fail "$(dtypes "$work/n.gguf")"

# Quantised tensors: refused by name of the remedy, or dequantised.
gguf=${srcdir:-.}/data/gguf-llama.gguf
run 1 cp "$gguf" "$work/q.safetensors"
one_line 'safetensors has no dtype q8_0; dequantise it (--dtype'
run 0 cp --json --dtype f32 "$gguf" "$work/q.safetensors"
json =2:unconverted <"$out" || fail "the report: $(cat "$out")"
[ "$(dtypes "$work/q.safetensors")" = 'f32 5,i32 1,i8 1' ] || fail "$(dtypes "$work/q.safetensors")"
run 0 cp "$gguf" "$work/q.gguf"
cmp "$gguf" "$work/q.gguf" || fail "a copy of a GGUF file differs"

# --- parts ---

name=$(hoist ls "$work/a.safetensors" | awk '/embed/ { print $1 }')
hoist cat "$work/a.safetensors" "$name" >"$work/whole"
for r in 0 1; do
	run 0 cp --slice "*:0:$r/2" --tensor "$name" "$work/a.safetensors" "$work/part$r.safetensors"
	hoist cat "$work/part$r.safetensors" "$name"
done >"$work/parts"
cmp "$work/whole" "$work/parts" || fail "two halves are not the whole"
run 0 cp --slice '*proj*:-1:0..16' --slice '*q_proj*:0:..8' --rename 's/model/m/' --exclude '*v_proj*' \
	"$work/a.safetensors" "$work/s.safetensors"
hoist ls "$work/s.safetensors" >"$out"
grep -q '^m.*q_proj.* \[8, 16\]' "$out" || fail "q_proj: $(grep q_proj "$out")"
grep -q '^m.*k_proj.*, 16\]' "$out" || fail "k_proj: $(grep k_proj "$out")"
grep -q v_proj "$out" && fail "v_proj is there"
# A slice of what is not copied is no mistake.
run 0 cp --slice '*q_proj*:0:..8' --tensor "$name" "$work/a.safetensors" "$work/s.safetensors"

# --- refused ---

ls -A "$work" >"$work/before"
cp "$work/a.safetensors" "$work/old" || exit 99
refuse() {
	text=$1
	shift
	run 1 cp "$@" "$work/a.safetensors" "$work/none.safetensors"
	one_line "$text"
	[ ! -e "$work/none.safetensors" ] || fail "a file after all"
}
refuse 'no tensor that matches "nothing*", to be sliced' --slice 'nothing*:0:0/2'
refuse 'there is no such axis' --slice '*:7:0/2'
refuse 'cannot be cut into so many' --slice '*:0:0/12347'
refuse 'two slices cut axis 0' --slice '*:0:..1' --slice "$name:0:..1"
for options in '--dtype f32' '--slice *:0:..1'; do
	# shellcheck disable=SC2086
	set -f && set -- $options && set +f
	run 1 cp "$@" "$work/a.safetensors" "$work/a.safetensors"
	one_line "with $1 the file would lose what it has"
	cmp "$work/a.safetensors" "$work/old" || fail "the file has changed"
done
run 2 cp --dtype f64 "$work/src" "$work/none"
one_line 'f32, f16 or bf16'
run 2 cp --slice '*:0' "$work/src" "$work/none"
one_line 'GLOB:AXIS:R/N'

# --- a signal, and a full disk, in the middle ---

cp "$work/src/model.safetensors.index.json" "$work/old-index" || exit 99
for seconds in 0.01 0.03 0.1; do
	timeout --foreground --preserve-status -s INT $seconds "$HOIST" cp --budget 256K --dtype f32 \
		"$work/src" "$work/a.safetensors" >"$out" 2>"$err"
	status=$?
	[ $status -eq 0 ] && cp "$work/old" "$work/a.safetensors" && continue
	[ $status -eq 130 ] || fail "exit status $status of SIGINT"
	cmp "$work/a.safetensors" "$work/old" || fail "the old file has changed"
done
(
	ulimit -f 1000
	run 1 cp --dtype f32 "$work/src" "$work/a.safetensors"
	one_line 'RLIMIT_FSIZE'
) || exit 1
cmp "$work/a.safetensors" "$work/old" || fail "the old file has changed"
rm "$work/old" "$work/old-index" "$work/stdout" "$work/stderr"
ls -A "$work" | grep -q hoist && fail "something was left behind"
exit 0
