#!/bin/sh
# SPDX-License-Identifier: MIT
# The programs in examples/ do what they say.
. "${srcdir:-.}/tools/support.sh"
export HOIST_EMULATE=cuda:1
examples=$abs_top_builddir/examples
model=$work/model.safetensors
ran=

# example NAME ARGUMENT...: runs one of them, whose output is in $out.
example() {
	name=$1
	shift
	"$examples/$name" "$@" >"$out" 2>"$err" || fail "$name $*: $(cat "$err")"
	ran="$ran $name"
}

says() {
	grep -q -- "$1" "$out" || fail "$name does not say \"$1\": $(cat "$out")"
}

write_safetensors "$model" \
	'{"q_proj.weight":{"dtype":"F32","shape":[4,3],"data_offsets":[0,48]},"s":{"dtype":"F32","shape":[],"data_offsets":[48,52]}}' 52

for device in cpu cuda:0; do
	example load "$model" $device
	says "^q_proj.weight: 48 bytes at 0x.* on $device$"
	says "^s: 4 bytes at 0x"
	says "^0[.]000 GB to .* in .* s .*: .* % .*; opened in "

	example address "$model" q_proj.weight $device
	says "^q_proj.weight: f32, 48 bytes at 0x.* on $device$"

	example stream "$model" $device
	says "^q_proj.weight: 48 bytes on $device$"
	says "^s: 4 bytes on $device$"
	says "^2 tensors, at most [1-9][0-9]* bytes at a time$"

	example save "$work/saved.safetensors" $device
	says "^saved 2 tensors, "
	says "^verified$"

	for rank in 0 1; do
		example tensor_parallel "$model" $rank 2 $device
		says "rank $rank of 2: q_proj.weight is .*dtype=f32, shape=(2, 3), device=$device"
		says "rank $rank of 2: s is .*shape=()"
	done

	example refit "$model" "$model" $device
	says "^52 bytes into 2 buffers on $device in "

	example event_loop "$model" $device
	says "of 52 bytes$"
	says "^loaded$"

	example dlpack $device
	says "32 bits a value, shape 2 3$"
	says "4.0, 5.0, 6.0\]\], dtype=f32, shape=(2, 3), device="
done
example adaptive "$model"
sum=$(tail -c 52 "$model" | od -An -v -tu1 | awk '{ for (i = 1; i <= NF; i++) s += $i } END { print s + 0 }')
says "^0 bytes mapped, [1-9][0-9]* read; their sum is $sum$"

# Pages of dropped tensors go back: memory does not grow, although the stand-in takes as much for its
# device.
"$abs_top_builddir/tests/mkcheckpoint" --bytes 48M --tensors 12 --equal "$work/layers" >/dev/null || fail mkcheckpoint
example layers "$work/layers" cuda:0
says "^12 of 12 are on cuda:0; "
if [ -z "${HOIST_TEST_SANITIZERS-}" ]; then
	awk '{ kib[NR] = $7 } END { exit !(NR == 12 && kib[12] < kib[1] + 16384) }' "$out" ||
		fail "the memory of dropped tensors did not go back: $(cat "$out")"
fi

example targets "$model" cuda:0 cpu cuda:0
for target in 0 1 2; do
	says "^target $target: .*dtype=bf16, shape=(4, 1)"
	says "^target $target: .*shape=()"
done
"$examples/group" "$model" "shm:example-$$" 1 2 cpu >/dev/null 2>&1 &
example group "$model" "shm:example-$$" 0 2 cpu
wait $! || fail "rank 1 of the group"
says "^rank 0 of 2: 2 tensors, 52 bytes"
! "$examples/tensor_parallel" "$model" 2 2 cpu >"$out" 2>"$err" || fail "rank 2 of 2 was taken"
! "$examples/load" "$work/none" cpu >"$out" 2>"$err" || fail "there is no such model"
grep -q "^checkpoint: " "$err" || fail "the message lacks: checkpoint"

example rows
says "device=cuda:0"
example pinned
says "^0x[0-9a-f]* is 0x[0-9a-f]* for kernels$"

example pinned_loop cuda:0 50
says "^50 batches of 1048576 bytes, at most [0-9]* bytes pinned$"
peak=$(sed 's/.*at most \([0-9]*\) bytes.*/\1/' "$out")
[ "$peak" -le 8388608 ] || fail "pinned_loop pinned $peak bytes"

example cuda_array_interface cuda:0
says "^version 3, typestr <f4, data 0x.*, shape (2, 3)$"
says "4.0, 5.0, 6.0\]\], dtype=f32, shape=(2, 3), device="
[ "$(tail -n 1 "$out")" = "the owner is dropped" ] || fail "the owner is not dropped last"

example convert "$model" "$work/half.safetensors"
says "^q_proj.weight: f32$"
example load "$work/half.safetensors" cpu
says "^q_proj.weight: 24 bytes"

example custom_memory "$model"
says "^0 bytes are left$"
[ "$(head -n 1 "$out" | tr -dc 0-9)" -ge 52 ] || fail "the arena gave too little: $(cat "$out")"

XDG_RUNTIME_DIR=$work
HOIST_CACHE_HOLDER=$abs_top_builddir/tools/hoist
export XDG_RUNTIME_DIR HOIST_CACHE_HOLDER
chmod 700 "$work"
example cache "$model"
says "^no image: adding it$"
example cache "$model"
! grep -q "adding" "$out" || fail "the image was added twice"
says "^2 tensors, 52 bytes, shared$"
"$abs_top_builddir/tools/hoist" cache drop "$model" >"$out" 2>"$err" || fail "drop: $(cat "$err")"

# Each one was run.
n=0
for program in $(sed -n '/^noinst_PROGRAMS/,/[^\\]$/p' "$abs_top_srcdir/examples/Makefile.am" |
	tr -d '\\' | sed 's/.*=//'); do
	n=$((n + 1))
	case " $ran " in
	*" $program "*) ;;
	*) fail "examples/$program was not run" ;;
	esac
done
[ "$n" -ge 10 ] || fail "only $n examples were found"
exit 0
