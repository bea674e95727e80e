#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist cat: a tensor's bytes, as they are in the file.
. "${srcdir:-.}/tools/support.sh"
HOIST_EMULATE=cuda:1
export HOIST_EMULATE

mkcheckpoint --bytes 12M --tensors 30 --dtypes all "$work/all"
hoist ls --json "$work/all" >"$work/ls" || fail "ls"

# The digest of the bytes on standard input, which become a tensor's.
digest_of() {
	cat >"$work/bytes"
	n=$(wc -c <"$work/bytes")
	write_safetensors "$work/bytes.safetensors" '{"a":{"dtype":"U8","shape":['"$n"'],"data_offsets":[0,'"$n"']}}' 0
	cat "$work/bytes" >>"$work/bytes.safetensors"
	hoist digest "$work/bytes.safetensors" | cut -c1-32
}

for i in 0 1 2 7 14 29; do
	name=$(json "?tensors.$i.name" <"$work/ls")
	bytes=$(json "?tensors.$i.bytes" <"$work/ls")
	offset=$(json "?tensors.$i.offset" <"$work/ls")
	file=$(json '?files.0.path' <"$work/ls")
	tail -c +$((offset + 1)) "$file" | head -c "$bytes" >"$work/expected"
	for device in cpu cuda:0; do
		run 0 cat --device $device "$work/all" "$name"
		cmp -s "$out" "$work/expected" || fail "the bytes of $name on $device"
	done
done

# A tensor of many pieces, into a pipe.
mkcheckpoint --bytes 21M --tensors 1 "$work/large"
name=$(hoist ls --json "$work/large" | json '?tensors.0.name')
bytes=$(hoist ls --json "$work/large" | json '?tensors.0.bytes')
tail -c "$bytes" "$work/large/model.safetensors" >"$work/expected"
hoist cat --device cuda:0 "$work/large" "$name" | cmp -s - "$work/expected" ||
	fail "the bytes of a large tensor"

# An exact name is that tensor, even if it looks like a pattern or an option.
write_safetensors "$work/names.safetensors" \
	'{"a[0]":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"-x":{"dtype":"U8","shape":[5],"data_offsets":[3,8]},"a0":{"dtype":"U8","shape":[1],"data_offsets":[8,9]},"none":{"dtype":"U8","shape":[0],"data_offsets":[9,9]}}' 9
run 0 cat "$work/names.safetensors" 'a[0]'
[ "$(wc -c <"$out")" -eq 3 ] || fail "a[0]"
run 0 cat -- "$work/names.safetensors" -x
[ "$(wc -c <"$out")" -eq 5 ] || fail "-x"
run 0 cat "$work/names.safetensors" none
no_output

# A pattern is no name.
run 1 cat "$work/names.safetensors" 'a*'
no_output
one_line 'a*'

# A tensor that lies in columns in the file comes in rows, from any device; digests and checks are
# of the rows, too.
{
	printf '\223NUMPY\001\000\166\000'
	printf '%-117s\n' "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }"
	printf aabbccddeeff
} >"$work/columns.npy"
run 0 cp "$work/columns.npy" "$work/rows.npy"
hoist digest "$work/rows.npy" >"$work/digest" || fail "digest"
for device in cpu cuda:0; do
	run 0 cat --device $device "$work/columns.npy" arr_0
	[ "$(cat "$out")" = aacceebbddff ] || fail "columns on $device: $(cat "$out")"
	run 0 digest --device $device "$work/columns.npy"
	cmp -s "$out" "$work/digest" || fail "another digest of columns on $device"
	run 0 load --verify --device $device "$work/columns.npy"
	grep -q '^verified' "$out" || fail "columns on $device are not verified"
done

# Rows of a tensor, from any device; the digest is that of these rows.
for device in cpu cuda:0; do
	run 0 cat --device $device --slice '*:0:1..2' "$work/rows.npy" arr_0
	[ "$(cat "$out")" = bbddff ] || fail "the second row on $device: $(cat "$out")"
	run 0 digest --device $device --slice '*:0:1/2' "$work/rows.npy"
	[ "$(cut -c1-32 "$out")" = "$(printf bbddff | digest_of)" ] || fail "the digest of the second row on $device"
done

# Numbers of another dtype, and the digest of these.
write_safetensors "$work/numbers.safetensors" '{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}' 0
printf '\200\077\000\300' >>"$work/numbers.safetensors" # 1 and -2
printf '\000\000\200\077\000\000\000\300' >"$work/expected"
for device in cpu cuda:0; do
	run 0 cat --device $device --dtype f32 "$work/numbers.safetensors" a
	cmp -s "$out" "$work/expected" || fail "f32 on $device"
	run 0 digest --device $device --dtype f32 "$work/numbers.safetensors"
	[ "$(cut -c1-32 "$out")" = "$(digest_of <"$work/expected")" ] || fail "the digest of f32 on $device"
done
run 0 cat --dtype f32 "$work/names.safetensors" 'a[0]'
[ "$(wc -c <"$out")" -eq 3 ] || fail "u8 is converted"
grep -q '^hoist: --dtype: 1 tensor left as in the file: u8; ' "$err" || fail "no word of u8: $(cat "$err")"
run 1 cat --slice 'b:0:0..1' "$work/rows.npy" arr_0
no_output
one_line '"b"'
