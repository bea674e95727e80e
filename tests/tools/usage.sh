#!/bin/sh
# SPDX-License-Identifier: MIT
# Being called wrongly, and asking for help.
. "${srcdir:-.}/tools/support.sh"

# wrong TEXT ARGUMENT... - exit status 2, nothing on stdout, one line with a hint.
wrong() {
	text=$1
	shift
	run 2 "$@"
	no_output
	one_line "$text"
	one_line "--help\`"
}

wrong 'no command'
wrong 'lod' lod
wrong '--frobnicate' --frobnicate
wrong 'lod' help lod
for command in ls load digest; do
	wrong 'PATH is missing' $command
	wrong 'too many' $command a b
	wrong 'PATH is empty' $command ''
	wrong '--frobnicate' $command --frobnicate a
	wrong '-q' $command -q a
done
# A letter that is missing, too much, wrong or swapped with its neighbour: the word is named.
wrong '(did you mean --device?)' load --devcie=cpu a
wrong '(did you mean --budget?)' load --budgt 1M a
wrong '(did you mean --tensor?)' load --tensors '*' a
wrong '(did you mean load?)' laod a
wrong '(did you mean digest?)' help digset
for word in "load --xyzzy a" "ls --verify a" "doc" "load -z a"; do
	# shellcheck disable=SC2086
	wrong 'there is no' $word
	! grep -q 'did you mean' "$err" || fail "$word: $(cat "$err")"
done
wrong 'PATH is missing' cat
wrong 'TENSOR is missing' cat a
wrong 'too many' cat a b c
wrong 'too many' devices a
wrong 'too many' doctor a b
wrong '--json' cat --json a b
wrong '--verify' digest --verify a
wrong '--device' ls --device cpu a
wrong '--json takes no value' ls --json=yes a
wrong '--device needs a value' load a --device
wrong 'auto, uring or threads' load --engine fast a
wrong 'auto, direct, cached, map or adaptive' load --io=mapped a
for bytes in 0 '' -1 +1 x 1X 1.5G 1Ki 1KiBs ' 1' 0x10; do
	wrong 'a number of bytes above 0' load --budget "$bytes" a
done
for bytes in 99999999999999999999 9223372036854775808 8388608T 9999999999TB; do
	wrong '2^63' load --budget $bytes a
done

# Each value that --help offers is taken, and a refused value is not offered.
for command in cp cache; do
	run 0 $command --help
	grep -q -- '--io WAY .*auto (the default), direct, cached$' "$out" ||
		fail "$command --help: --io: $(grep -e --io "$out")"
	wrong 'auto, direct or cached' $command --io map a b
	wrong 'auto, direct or cached' $command --io lazy a b
done

# A message is one line and harmless, whatever it quotes.
esc=$(printf '\033')
wrong 'x\ny\x1b[2J' "$(printf 'x\ny\033[2J')"
if grep -q "$esc" "$err"; then
	fail "an escape sequence reached stderr"
fi

run 0 --version
grep -Eqx 'hoist [0-9]+\.[0-9]+\.[0-9]+' "$out" || fail "--version: $(cat "$out")"
run 0 -V
run 0 --help
for command in doctor devices ls load explain cat digest bench emulate; do
	grep -q "^  $command " "$out" || fail "--help does not list $command"
done
cp "$out" "$work/help"
run 0 help
cmp -s "$out" "$work/help" || fail "help and --help differ"
for command in doctor devices ls load explain cat digest bench emulate; do
	run 0 $command --help
	grep -q "^usage: hoist $command" "$out" || fail "$command --help has no usage line"
	[ ! -s "$err" ] || fail "$command --help wrote to stderr"
	cp "$out" "$work/help"
	run 0 help $command
	cmp -s "$out" "$work/help" || fail "help $command and $command --help differ"
	run 0 $command -h
done
