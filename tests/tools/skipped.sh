#!/bin/sh
# SPDX-License-Identifier: MIT
# --skip-unsupported: a training's checkpoint of PyTorch, with objects, sets and odd tensors.
. "${srcdir:-.}/tools/support.sh"

mixed=${srcdir:-.}/data/torch-mixed.pt

# Without the option the file is refused, and the message names the option.
run 1 ls "$mixed"
one_line --skip-unsupported
no_output

run 0 ls --skip-unsupported "$mixed"
grep -q '^net\.fc\.weight  ' "$out" || fail "a module's parameter is not listed"
grep -q '^SKIPPED  *REASON$' "$out" || fail "the skipped values have no heading"
grep -q '^owned  *a value of "Net" of the Python module "__main__": hoist executes no code$' "$out" ||
	fail "an object is not listed"
grep -q '^sparse  *a sparse tensor: save .to_dense()$' "$out" || fail "no sparse tensor"
grep -q '^6 tensors, .* in 1 pytorch file; 10 skipped$' "$out" || fail "no totals line"
run 0 ls --skip-unsupported --tree "$mixed"
grep -q '; 10 skipped$' "$out" || fail "the tree does not count the skipped values"
run 0 ls --skip-unsupported --json "$mixed"
json =owned:skipped.6.name s:skipped.6.reason i:skipped.6.file <"$out" || fail "the JSON's list"
run 0 ls --json "${srcdir:-.}/data/torch-train.pt"
json a:skipped <"$out" || fail "the JSON has no list"

# Other commands count what is left out on stderr.
for command in load explain digest; do
	run 0 $command --skip-unsupported "$mixed"
	one_line "10 values are left out"
done
run 0 load --verify --skip-unsupported "$mixed"
run 0 cat --force --skip-unsupported "$mixed" b.c
one_line "10 values are left out"
[ "$(wc -c <"$out")" -eq 24 ] || fail "cat does not give the tensor"
run 0 cp --skip-unsupported "$mixed" "$work/plain.safetensors"
one_line "10 values are left out"
run 0 ls --skip-unsupported "$work/plain.safetensors"
grep -q '^6 tensors, .* in 1 safetensors file$' "$out" || fail "the copy has not 6 tensors"

# PyTorch before 1.6 wrote a pickle without an archive: the file is skipped as a whole.
printf '\200\002.' >"$work/old.bin"
run 1 ls "$work/old.bin"
run 0 ls --skip-unsupported "$work/old.bin"
grep -q '^old.bin  *a Python pickle, as PyTorch before 1.6 wrote' "$out" || fail "no reason"
run 0 load --skip-unsupported "$work/old.bin"
one_line "1 value is left out"
