#!/bin/sh
# SPDX-License-Identifier: MIT
# Where io_uring is refused, as in containers: threads load, and it is said why.
. "${srcdir:-.}/tools/support.sh"
HOIST_EMULATE=cuda:1
export HOIST_EMULATE

"$HOIST_TEST_PROGRAMS/tools/refuse" "$HOIST" --version >/dev/null
status=$?
if [ $status -eq 77 ]; then
	echo "skipped: this kernel takes no seccomp filter"
	exit 77
fi
[ $status -eq 0 ] || fail "tools/refuse: exit status $status"

real=$HOIST
hoist() {
	"$HOIST_TEST_PROGRAMS/tools/refuse" "$real" "$@"
}

mkcheckpoint --bytes 9M --shards 2 --odd "$work/model"
refdigest "$work/model" >"$work/expected"
for device in cpu cuda:0; do
	run 0 digest --device $device "$work/model"
	cmp -s "$out" "$work/expected" || fail "digest on $device"
	run 0 load --verify --json --device $device --io direct "$work/model"
	json =threads:engine =true:verified <"$out" || fail "load on $device"
	json '?engine_reason' <"$out" | grep -q 'io_uring.*EPERM' ||
		fail "the reason is: $(json '?engine_reason' <"$out")"
done
run 0 load -v --io direct "$work/model"
grep -q '^engine    .*threads.*' "$out" || fail "no line about the engine"
grep -q '^engine    .*io_uring.*EPERM' "$out" || fail "that line does not say why"

run 1 load --engine uring --io direct "$work/model"
no_output
one_line io_uring
one_line 'hoist doctor'

run 0 doctor --json "$work"
json =io_uring:checks.3.name =false:checks.3.ok <"$out" || fail "doctor finds io_uring"
json '?checks.3.detail' <"$out" | grep -q EPERM || fail "doctor does not say why"
[ -n "$(json '?checks.3.remedy' <"$out")" ] || fail "doctor has no remedy"
