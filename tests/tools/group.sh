#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist load --group: ranks that are processes load together, each byte once; a rank that does not
# come or does not fit is an error that says so, in the other ranks too.
. "${srcdir:-.}/tools/support.sh"

mkcheckpoint --bytes 9M --shards 2 "$work/model"
mkcheckpoint --bytes 1M --shards 1 --seed 2 "$work/other"
name=shm:tools-$$

# rank NAME-OF-OUTPUT ARGUMENT... - one rank, in the background.
rank() {
	to=$1
	shift
	hoist load "$@" >"$work/$to" 2>"$work/$to.err" </dev/null &
}

# ended PID CODE NAME-OF-OUTPUT - that rank has ended so.
ended() {
	wait "$1"
	status=$?
	cp "$work/$3.err" "$err"
	[ "$status" -eq "$2" ] || fail "rank $3: exit status $status, not $2"
}

# Two ranks, each with everything: what they read together is the checkpoint.
rank 0 --group "$name" --rank 0/2 --json "$work/model"
first=$!
rank 1 --group "$name" --rank 1/2 --json --verify "$work/model"
second=$!
ended $first 0 0
ended $second 0 1
bytes=$(json '?bytes' <"$work/0")
sum=0
for r in 0 1; do
	read=$(($(json '?direct_bytes' <"$work/$r") + $(json '?cached_bytes' <"$work/$r")))
	[ "$read" -gt $((bytes / 4)) ] || fail "rank $r read $read of $bytes bytes"
	sum=$((sum + read))
done
[ "$sum" -ge "$bytes" ] && [ "$sum" -le $((bytes + bytes / 50)) ] ||
	fail "the ranks read $sum bytes of $bytes"

# A rank that never comes; the name is free again then.
run 1 load --group "$name" --rank 0/2 --group-timeout 1 "$work/model"
one_line "rank 1"
no_output
run 1 load --group "$name" --rank 1/2 --group-timeout 1 "$work/model"
one_line "rank 0"

# Ranks of groups of other sizes under one name, and a rank of another checkpoint.
rank 0 --group "$name" --rank 0/2 "$work/model"
first=$!
rank 1 --group "$name" --rank 2/3 "$work/model"
second=$!
ended $first 1 0
one_line "expects 3 ranks, and rank 0 2"
ended $second 1 1
one_line "expects 3 ranks"
rank 0 --group "$name" --rank 0/2 "$work/model"
first=$!
rank 1 --group "$name" --rank 1/2 "$work/other"
second=$!
ended $first 1 0
one_line "another checkpoint"
ended $second 1 1
one_line "another checkpoint"

# Two that are rank 0: one is refused; the other waits in vain.
rank 0 --group "$name" --rank 0/2 --group-timeout 2 "$work/model"
first=$!
rank 1 --group "$name" --rank 0/2 --group-timeout 2 "$work/model"
second=$!
wait $first
a=$?
wait $second
b=$?
cat "$work/0.err" "$work/1.err" >"$err"
[ $a -eq 1 ] && [ $b -eq 1 ] || fail "two ranks 0: exit status $a and $b"
grep -q "rank 0 of the group" "$err" && grep -q "rank 1 of the group" "$err" ||
	fail "the texts of two ranks 0"

# Wrong words.
run 2 load --group "$name" "$work/model"
one_line "--rank"
run 2 load --rank 0/2 "$work/model"
one_line "--group"
run 2 load --group "$name" --rank 2/2 "$work/model"
one_line "--rank"
run 2 load --group "$name" --rank 0/65 "$work/model"
one_line "64 ranks at most"
run 2 load --group "$name" --rank 0/2 --group-timeout 0 "$work/model"
one_line "seconds"
run 2 load --group "shm:$(printf '%059d' 0)" --rank 0/2 --into "$work/model"
one_line "58 bytes at most"
run 2 load --group-timeout 5 "$work/model"
one_line "--group"
run 1 load --group tcp://a:1 --rank 0/2 "$work/model"
one_line "tcp://a:1"

# In place: the ranks load a second time, and all bytes are right.  One that ends its first load late
# is no part of the second.
rank 0 --group "$name" --rank 0/2 --into --verify --json "$work/model"
first=$!
rank 1 --group "$name" --rank 1/2 --into --verify --json --slice '*:0:0..1' "$work/model"
second=$!
ended $first 0 0
ended $second 0 1
for r in 0 1; do
	json =true:verified r:fresh_seconds <"$work/$r" || fail "rank $r of a load in place"
done

! grep -q "hoist-group-.*${name#shm:}" /proc/net/unix || fail "a socket of the group is left"
exit 0
