#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist explain: what a load would do, in words and as JSON; with --run the load, which does the same.
. "${srcdir:-.}/tools/support.sh"
HOIST_EMULATE=cuda:2
HOIST_EMULATE_MEMORY=64M
export HOIST_EMULATE HOIST_EMULATE_MEMORY

mkcheckpoint --bytes 9M --shards 3 --dtypes all --odd "$work/all"

run 0 load --json --device cuda:0 "$work/all"
bytes=$(json '?bytes' <"$out")
tensors=$(json '?tensors' <"$out")

# What is said, and what is then done.
for options in '--device cuda:0' '--device cuda:1 --budget 1M --io direct' '--io map' \
	'--io cached --order lm_head.weight' '--target cuda:0 --target cpu' \
	'--device cuda:0 --stream --window 1M'; do
	# shellcheck disable=SC2086
	run 0 explain --json --run $options "$work/all"
	for key in bytes tensors mapped_bytes budget_bytes; do
		[ "$(json "?plan.$key" <"$out")" = "$(json "?load.$key" <"$out")" ] ||
			fail "$options: the plan's $key is not the load's"
	done
	json r:load.seconds r:load.read_seconds s:plan.line s:plan.io_reason =true:plan.fits \
		i:plan.n_reads i:plan.targets.0.bytes i:plan.targets.0.free_bytes <"$out" ||
		fail "$options: keys are missing"
	slots=$(($(json '?plan.n_slots' <"$out") * $(json '?plan.slot_bytes' <"$out")))
	[ "$(json '?load.staging_peak_bytes' <"$out")" -le $slots ] ||
		fail "$options: the staging is larger than was said"
done

# A plan alone loads nothing.
run 0 explain --json --device cuda:0 --replica cuda:1 --dtype bf16 "$work/all"
json "=$bytes:plan.bytes" "=$tensors:plan.tensors" =cuda:1:plan.targets.1.device \
	=true:plan.targets.1.emulated "=$bytes:plan.staged_bytes" =0:plan.straight_bytes <"$out" ||
	fail "the plan of a load to two devices"
! grep -q '"load"' "$out" || fail "a load was made without --run"
[ "$(json '?plan.converted_bytes' <"$out")" -gt 0 ] || fail "no byte is converted"

# In words; a load that is too large.
run 0 explain --device cuda:0 --run "$work/all"
for line in plan to read requests copies staging loaded took stages; do
	grep -q "^$line " "$out" || fail "no line says: $line"
done
[ ! -s "$err" ] || fail "something is on stderr"
write_safetensors "$work/large.safetensors" \
	'{"t":{"dtype":"U8","shape":[70000000],"data_offsets":[0,70000000]}}' 70000000
run 0 explain --device cuda:0 "$work/large.safetensors"
grep -q '^fits *no: ' "$out" || fail "nothing says that the load does not fit"
run 0 explain --device cuda:0 --json "$work/large.safetensors"
json =false:plan.fits <"$out" || fail "the JSON says that the load fits"

# What is refused: the same as for a load, and what no plan can say.
run 1 explain --tensor none "$work/all"
one_line none
no_output
run 1 explain --device cuda:0 --budget 64K "$work/all"
one_line 'raise the budget'
run 2 explain --group shm:x --rank 0/2 "$work/all"
one_line --group
run 2 explain --into "$work/all"
one_line --into
run 2 explain --window 1M "$work/all"
one_line --stream
run 2 explain --cache "$work/all"
no_output
exit 0
