#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist load --verify finds a byte that differs.  The file is changed while the loaded
# bytes are compared with it: a change during the load itself is the load's to tell.
. "${srcdir:-.}/tools/support.sh"
HOIST_EMULATE=cuda:1
HOIST_EMULATE_RATE=3M
export HOIST_EMULATE HOIST_EMULATE_RATE

mkcheckpoint --bytes 9M --tensors 9 "$work/slow" # three seconds to load, and three to look at
file=$work/slow/model.safetensors
hoist ls --json "$work/slow" >"$work/ls" || fail "ls"
offset=$(json '?tensors.8.offset' <"$work/ls")
name=$(json '?tensors.8.name' <"$work/ls")

# Too early a change is the load's, too late a one is not looked at: as often as it takes.
status=0
seconds=3.5
while :; do
	case $seconds in
	4) seconds=5 ;;
	5) seconds=4.5 ;;
	4.5) seconds=3.5 ;;
	*) seconds=4 ;;
	esac
	hoist load --verify --device cuda:0 --budget 1M "$work/slow" >"$out" 2>"$err" &
	load=$!
	sleep $seconds
	head -c 8 /dev/urandom | dd of="$file" bs=1 seek="$offset" conv=notrunc 2>/dev/null
	wait $load
	status=$?
	if grep -q 'changed while hoist had the file open' "$err"; then
		continue
	fi
	[ $status -eq 0 ] || break
	grep -q '^verified' "$out" || fail "neither verified nor refused"
done
[ $status -eq 1 ] || fail "a changed byte was not found"
no_output
one_line "tensor '$name' differs from $file at byte "
grep -q "(byte $((offset)) of the file)\|(byte $((offset + 1)) of the file)" "$err" ||
	fail "the place is wrong"
