#!/bin/sh
# SPDX-License-Identifier: MIT
# The programs in examples/ do what they say.
. "${srcdir:-.}/tools_support.sh"
export HOIST_EMULATE=cuda:1
examples=$abs_top_builddir/examples

write_safetensors "$work/model.safetensors" \
	'{"w":{"dtype":"F32","shape":[5,3],"data_offsets":[0,60]},"s":{"dtype":"F32","shape":[],"data_offsets":[60,64]}}' 64
for device in cpu cuda:0; do
	type=1
	[ $device = cpu ] || type=2
	for rank in 0 1; do
		"$examples/tensor_parallel" "$work/model.safetensors" w $rank $device >"$out" 2>"$err" ||
			fail "tensor_parallel, rank $rank on $device"
		grep -q "rank $rank of 2: hoist.Buffer(dtype=f32, shape=(2, 3), device=$device)" "$out" ||
			fail "rank $rank on $device: $(cat "$out")"
		grep -q "^device $type:0, 32 bits a value, shape 2 3, data at 0x" "$out" ||
			fail "rank $rank on $device: $(cat "$out")"
	done
done
! "$examples/tensor_parallel" "$work/model.safetensors" s 0 cpu >"$out" 2>"$err" ||
	fail "a single value was halved"
grep -q "single value" "$err" || fail "the message lacks: single value"
! "$examples/tensor_parallel" "$work/none" w 0 cpu >"$out" 2>"$err" || fail "there is no such model"
grep -q "^checkpoint: " "$err" || fail "the message lacks: checkpoint"
exit 0
