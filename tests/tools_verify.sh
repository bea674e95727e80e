#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist load --verify finds a byte that differs.  The file is changed behind the
# back of a slow load, at a place that it has passed, and made to look unchanged.
. "${srcdir:-.}/tools_support.sh"
HOIST_EMULATE=cuda:1
HOIST_EMULATE_RATE=3M
export HOIST_EMULATE HOIST_EMULATE_RATE

mkcheckpoint --bytes 9M --tensors 9 "$work/slow" # three seconds
file=$work/slow/model.safetensors
hoist ls --json "$work/slow" >"$work/ls" || fail "ls"
offset=$(json '?tensors.0.offset' <"$work/ls")
name=$(json '?tensors.0.name' <"$work/ls")
touch -d '2001-01-01 00:00:00' "$file"

# Too early a change is loaded, too late a one is not looked at: as often as it takes.
status=0
seconds=2.5
while :; do
	case $seconds in
	1) seconds=2 ;;
	2) seconds=1.5 ;;
	1.5) seconds=2.5 ;;
	*) seconds=1 ;;
	esac
	hoist load --verify --device cuda:0 --budget 1M "$work/slow" >"$out" 2>"$err" &
	load=$!
	sleep $seconds
	head -c 8 /dev/urandom | dd of="$file" bs=1 seek="$offset" conv=notrunc 2>/dev/null
	touch -d '2001-01-01 00:00:00' "$file"
	wait $load
	status=$?
	[ $status -eq 0 ] || break
	grep -q '^verified' "$out" || fail "neither verified nor refused"
done
[ $status -eq 1 ] || fail "a changed byte was not found"
no_output
one_line "tensor '$name' differs from $file at byte "
grep -q "(byte $((offset)) of the file)\|(byte $((offset + 1)) of the file)" "$err" ||
	fail "the place is wrong"
