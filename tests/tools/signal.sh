#!/bin/sh
# SPDX-License-Identifier: MIT
# Ctrl-C and SIGTERM: the load ends soon, says how far it was, and the process dies
# of the signal.
. "${srcdir:-.}/tools/support.sh"
HOIST_EMULATE=cuda:1
HOIST_EMULATE_RATE=200K
export HOIST_EMULATE HOIST_EMULATE_RATE

timeout --foreground --preserve-status 5 true 2>/dev/null || {
	echo "skipped: this timeout(1) lacks --foreground or --preserve-status"
	exit 77
}
mkcheckpoint --bytes 60M --tensors 3 "$work/slow" # five minutes at the rate above

# How long until a load is under way is not known: later and later, until it was.
stopped() {
	signal=$1
	number=$2
	for seconds in 0.4 2 6 20 60 120; do
		timeout --foreground --preserve-status -s "$signal" $seconds \
			"$HOIST" load --device cuda:0 --budget 1M "$work/slow" >"$out" 2>"$err"
		status=$?
		[ $status -eq $((128 + number)) ] || fail "SIG$signal: exit status $status"
		no_output
		[ ! -s "$err" ] || break
	done
	one_line 'hoist: cancelled after '
	grep -Eqx 'hoist: cancelled after ([0-9.]+ [KMG]?i?B|0) of [0-9.]+ MiB' "$err" ||
		fail "the message is $(cat "$err")"
}

# The first signal may come while the program starts, which it then dies of as any
# program does: only a message proves that the load was stopped by us.
stopped INT 2
stopped TERM 15

# Digesting and writing are stopped as well.
unset HOIST_EMULATE HOIST_EMULATE_RATE
mkfifo "$work/pipe" || exit 99
name=$(hoist ls --json "$work/slow" | json '?tensors.0.name')
sleep 600 <"$work/pipe" &
reader=$!
timeout --foreground --preserve-status -s INT 1 "$HOIST" cat "$work/slow" "$name" \
	>"$work/pipe" 2>"$err"
status=$?
kill $reader 2>/dev/null || fail "it waited for the reader"
wait $reader # what is left in the pipe goes with it
[ $status -eq 130 ] || fail "cat to a reader that does not read: exit status $status"

# nohup: a signal that the caller ignores stays ignored.  It comes while a tensor is written that
# is longer than a pipe: the first byte has come, the last one waits for the reader.
/bin/sh -c 'trap "" TERM; exec "$@"' sh "$HOIST" cat "$work/slow" "$name" >"$work/pipe" 2>"$err" &
cat=$!
exec 3<"$work/pipe"
head -c 1 <&3 >/dev/null
kill -TERM $cat || fail "it has ended already"
cat <&3 >/dev/null
wait $cat
status=$?
[ $status -eq 0 ] || fail "an ignored SIGTERM ended it: exit status $status"
