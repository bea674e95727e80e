#!/bin/sh
# SPDX-License-Identifier: MIT
# On a terminal: progress is shown and taken away, raw bytes are refused.
. "${srcdir:-.}/tools/support.sh"

if ! script -qec true /dev/null >/dev/null 2>&1; then
	echo "skipped: script(1) is needed to have a terminal"
	exit 77
fi
TERM=xterm
HOIST_EMULATE=cuda:1
HOIST_EMULATE_RATE=8M
export TERM HOIST_EMULATE HOIST_EMULATE_RATE

# on_terminal COMMAND - its output, with stdin, stdout and stderr on a terminal.
on_terminal() {
	SHELL=/bin/sh script -qec "$1" /dev/null </dev/null >"$out" 2>"$err"
}

mkcheckpoint --bytes 8M "$work/slow"
# Progress is shown of what takes long enough on this machine.  It says what holds the load back: the
# stand-in copies slower than files are read.
for rate in 8M 2M 400K; do
	HOIST_EMULATE_RATE=$rate
	on_terminal "$HOIST load --device cuda:0 --budget 1M $work/slow" || fail "load on a terminal"
	! grep -q 'loading .* of .* % .* left  waits for copies' "$out" || break
done
HOIST_EMULATE_RATE=8M
grep -q 'loading .* of .* % .* left' "$out" || fail "no progress on a terminal"
grep -q 'left  waits for copies' "$out" || fail "the line does not say what holds the load back: $(cat "$out")"
! on_terminal "$HOIST load --group shm:terminal-$$ --rank 0/2 --group-timeout 1 $work/slow" ||
	fail "a rank that did not come was not missed"
grep -q 'loading  0 of .* waits for ranks' "$out" || fail "it is not said that a rank is missing: $(cat "$out")"
# A line is never wider than the terminal.
on_terminal "stty columns 40; $HOIST load --device cuda:0 --budget 1M $work/slow" || fail "load on a narrow terminal"
tr '\r' '\n' <"$out" | sed -n "s/^$(printf '\033')\[K\(loading\)/\1/p" >"$work/lines"
[ -s "$work/lines" ] || fail "no progress on a narrow terminal"
! grep -q '.\{40\}' "$work/lines" || fail "a line is wider than the terminal: $(cat "$work/lines")"
clear=$(printf '\r\033\\[K')
grep -q "${clear}loaded " "$out" || fail "the line of progress was not taken away"
on_terminal "stty columns 20; $HOIST bench alloc --quick --work statistics" || fail "bench on a narrow terminal"
tr '\r' '\n' <"$out" | sed -n "s/^$(printf '\033')\[K\(measuring\)/\1/p" >"$work/lines"
[ -s "$work/lines" ] || fail "no steps on a narrow terminal"
! grep -q '.\{20\}' "$work/lines" || fail "a line of steps is wider than the terminal: $(cat "$work/lines")"

on_terminal "$HOIST load --device cuda:0 --budget 1M $work/slow 2>$work/log" || fail "load"
[ ! -s "$work/log" ] || fail "progress in a file"
TERM=dumb
on_terminal "$HOIST load --device cuda:0 --budget 1M $work/slow" || fail "load on TERM=dumb"
! grep -q 'left' "$out" || fail "progress on a dumb terminal"

# Names do nothing to the terminal that shows them; a file has them as they are.
write_safetensors "$work/evil.safetensors" \
	'{"a\\u001b[2J\\nb":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1
on_terminal "$HOIST digest $work/evil.safetensors" || fail "digest on a terminal"
grep -q '^[0-9a-f]\{32\}  a\\x1b\[2J\\nb' "$out" || fail "digest: the name is not escaped"
run 0 digest "$work/evil.safetensors"
grep -q '^\\[0-9a-f]\{32\}  a.\[2J\\nb$' "$out" || fail "digest: not the name itself"
on_terminal "HOIST_DEBUG=all $HOIST ls $work/evil.safetensors" || fail "ls on a terminal"
! grep -q "$(printf '\033')" "$out" || fail "an escape sequence reached the terminal"

name=$(hoist ls --json "$work/slow" | json '?tensors.0.name')
! on_terminal "$HOIST cat $work/slow $name" || fail "raw bytes went to a terminal"
grep -q 'give --force' "$out" || fail "the refusal has no remedy"
on_terminal "$HOIST cat --force $work/slow $name" || fail "cat --force"
