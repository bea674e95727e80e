#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist ls: the table, the JSON, many tensors, names that want to do harm.
. "${srcdir:-.}/tools/support.sh"

mkcheckpoint --bytes 2M --shards 3 --dtypes all --odd "$work/all"
refdigest "$work/all" | sed 's/^[0-9a-f]*  //' >"$work/names"
n=$(wc -l <"$work/names")

run 0 ls "$work/all"
# Two pairs of metadata, with a heading and an empty line before it.
[ "$(wc -l <"$out")" -eq $((n + 3 + 4)) ] || fail "the table has not $n rows"
grep -Eq '^format +pt$' "$out" || fail "the metadata is not listed"
grep -q "^$n tensors, .* in 3 safetensors files\$" "$out" || fail "no totals line"
sed -e 1d -e "$((n + 1))q" "$out" | sed 's/  .*//' >"$work/listed"
cmp -s "$work/listed" "$work/names" || fail "the table's names or their order are wrong"

# Keys that others build on.
run 0 ls --json "$work/all"
[ "$(wc -l <"$out")" -eq 1 ] || fail "the JSON is not one line"
json =safetensors:format a:files s:files.*.path i:files.*.bytes a:tensors s:tensors.*.name \
	s:tensors.*.dtype a:tensors.*.shape i:tensors.*.bytes i:tensors.*.file \
	i:tensors.*.offset =null:tensors.0.strides o:metadata <"$out" || fail "the JSON's keys"
i=0
while read -r name; do
	json "=$name:tensors.$i.name" <"$out" || fail "tensor $i is not $name"
	i=$((i + 1))
	[ $i -lt 5 ] || break
done <"$work/names"
file=$(json '?files.2.path' <"$out")
bytes=$(json '?files.2.bytes' <"$out")
[ "$(wc -c <"$file")" -eq "$bytes" ] || fail "files.2 is not $file of $bytes bytes"

# The offset is that of the bytes in the file, the shape and bytes are right.
write_safetensors "$work/one.safetensors" \
	'{"__metadata__":{"k":"v\\u00e9"},"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},"s":{"dtype":"F32","shape":[],"data_offsets":[12,16]},"e":{"dtype":"I8","shape":[0,7],"data_offsets":[16,16]}}' 16
run 0 ls --json "$work/one.safetensors"
offset=$(($(wc -c <"$work/one.safetensors") - 16))
json =a:tensors.0.name =f16:tensors.0.dtype '=[2, 3]:tensors.0.shape' =12:tensors.0.bytes \
	=0:tensors.0.file =$offset:tensors.0.offset '=[]:tensors.1.shape' =e:tensors.2.name \
	=0:tensors.2.bytes =vé:metadata.k <"$out" || fail "the JSON of three tensors"
run 0 ls "$work/one.safetensors"
grep -Eq '^a +f16 +\[2, 3\] +12 +one.safetensors +' "$out" || fail "the row of a"
grep -Eq '^s +f32 +\[\] +4 +' "$out" || fail "the row of s"
grep -Eq '^e +i8 +\[0, 7\] +0 +' "$out" || fail "the row of e"
grep -q '^3 tensors, 16 bytes (16 B) in 1 safetensors file$' "$out" || fail "the totals"

# GGUF, whose metadata may be long: cut for people, whole in JSON.
{
	printf 'GGUF\003\0\0\0\001\0\0\0\0\0\0\0\001\0\0\0\0\0\0\0'
	printf '\001\0\0\0\0\0\0\0k\011\0\0\0\0\0\0\0\100\0\0\0\0\0\0\0'
	printf '%064d' 0
	printf '\001\0\0\0\0\0\0\0t\002\0\0\0\040\0\0\0\0\0\0\0\002\0\0\0\0\0\0\0\002\0\0\0'
	printf '\0\0\0\0\0\0\0\0'
	printf '%034d%036d' 0 0
} >"$work/small"
run 0 ls "$work/small"
grep -Eq '^t +q4_0 +\[2, 32\] +36 +small +' "$out" || fail "the row of a GGUF tensor"
grep -q '^k  *\[48,48,.*48\.\.\. (193 bytes)$' "$out" || fail "a long value is not cut"
grep -q '^1 tensor, 36 bytes (36 B) in 1 gguf file$' "$out" || fail "the totals of GGUF"
run 0 ls --json "$work/small"
json =gguf:format =q4_0:tensors.0.dtype '=[2, 32]:tensors.0.shape' <"$out" || fail "GGUF's JSON"
value=$(json '?metadata.k' <"$out")
[ "${#value}" -eq 193 ] || fail "a long value is cut in JSON"

# A name cannot move the cursor, end the line or turn the reading direction.
write_safetensors "$work/evil.safetensors" \
	'{"a\\u001b[2J\\nb\\u202e\\u007f":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1
run 0 ls "$work/evil.safetensors"
grep -qF 'a\x1b[2J\nb\u202e\x7f  u8' "$out" || fail "the name is not escaped"
run 0 ls --json "$work/evil.safetensors"
json i:tensors.0.bytes <"$out" || fail "the JSON of an evil name"
run 0 digest "$work/evil.safetensors"
[ "$(wc -l <"$out")" -eq 1 ] || fail "a name with a newline made two lines of digest"
grep -q '^\\[0-9a-f]\{32\}  a' "$out" || fail "such a line does not begin with a backslash"

# Nor does a long one make all lines long.
long=$(head -c 100000 /dev/zero | tr '\0' n)
{
	printf '{"%s":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' "$long"
	for i in 0 1 2 3 4 5 6 7 8 9; do
		printf ',"%s":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' $i
	done
	printf '}'
} >"$work/header"
write_safetensors "$work/long.safetensors" "$(cat "$work/header")" 0
run 0 ls "$work/long.safetensors"
[ "$(wc -c <"$out")" -lt 110000 ] || fail "a long name: $(wc -c <"$out") bytes"
grep -q '^0     u8  ' "$out" || fail "a short name beside a long one: $(grep '^0' "$out")"

mkcheckpoint --bytes 1M --tensors 100000 "$work/many"
run 0 ls "$work/many"
grep -q '^100,000 tensors, ' "$out" || fail "100,000 tensors"
run 0 ls --json "$work/many"
json i:tensors.99999.offset <"$out" || fail "100,000 tensors in JSON"

# As a tree: numbers in their order, alike siblings once, a name that is also the beginning of others,
# names of one part and of many, and one with a line end.
{
	printf '{"head":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}'
	at=4
	for name in l.0.a l.0.b l.1.a l.1.b l.2.a l.2.b l.10.a l.10.b l.11.a l.11.c x x.y x.z.w e.0 e.1 e.2 d..e; do
		printf ',"%s":{"dtype":"U8","shape":[2,1],"data_offsets":[%d,%d]}' $name $at $((at + 2))
		at=$((at + 2))
	done
	printf ',"n\\\\nl":{"dtype":"F32","shape":[],"data_offsets":[%d,%d]}}' $at $((at + 4))
} >"$work/header"
write_safetensors "$work/tree.safetensors" "$(cat "$work/header")" 42
run 0 ls --tree "$work/tree.safetensors"
cat >"$work/expected" <<'TREE'
    BYTES  TENSORS  NAME
      2 B        1  d..e  u8 [2, 1]
      6 B        3  e
      2 B        1    0..2  u8 [2, 1]  (3 alike, each)
      4 B        1  head  u8 [4]
     20 B       10  l
      4 B        2    0..10  (4 alike, each)
      2 B        1      a  u8 [2, 1]
      2 B        1      b  u8 [2, 1]
      4 B        2    11
      2 B        1      a  u8 [2, 1]
      2 B        1      c  u8 [2, 1]
      4 B        1  n\nl  f32 []
      2 B        1  x  u8 [2, 1]
      4 B        2  x
      2 B        1    y  u8 [2, 1]
      2 B        1    z.w  u8 [2, 1]

19 tensors, 42 bytes (42 B) in 1 safetensors file
TREE
cmp -s "$work/expected" "$out" || fail "--tree: $(diff "$work/expected" "$out")"
run 0 ls --tree --tensor 'l.1*' "$work/tree.safetensors"
grep -qx '      4 B        2    1..10  (2 alike, each)' "$out" || fail "--tree of some: $(cat "$out")"
run 2 ls --tree --json "$work/tree.safetensors"
one_line 'leave out --tree'
run 0 ls --tree "$work/many"
grep -q '^100,000 tensors, ' "$out" || fail "100,000 tensors as a tree"
deep=$(head -c 60000 /dev/zero | tr '\0' .)
write_safetensors "$work/deep.safetensors" "{\"$deep\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\
\"${deep}x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},\"0$deep\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}" 3
run 0 ls --tree "$work/deep.safetensors"
grep -q '^3 tensors, ' "$out" || fail "names of 60,000 parts"

# A path that is not UTF-8 still gives JSON.
odd=$work/$(printf 'x\377y')
if mkdir "$odd" 2>/dev/null; then
	cp "$work/one.safetensors" "$odd/model.safetensors"
	run 0 ls --json "$odd"
	json s:files.0.path <"$out" || fail "a path that is not UTF-8"
fi
