#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist load and digest: every engine, way and device gives the bytes that an
# independent program finds.
. "${srcdir:-.}/tools/support.sh"
HOIST_EMULATE=cuda:2,hip:1
export HOIST_EMULATE

mkcheckpoint --bytes 9M --shards 3 --dtypes all --odd "$work/all"
refdigest "$work/all" >"$work/expected"
n=$(wc -l <"$work/expected")

engines=threads
run 0 doctor --json "$work"
if json '=io_uring:checks.3.name' '=true:checks.3.ok' <"$out" 2>/dev/null; then
	engines="uring threads"
else
	echo "io_uring does not work here: threads alone are tested"
fi

for device in cpu cuda:1 hip:0; do
	for engine in $engines; do
		for io in auto direct cached map; do
			# The kernel reads maps, by no engine.
			by="--engine $engine"
			[ $device-$io != cpu-map ] || by=
			# shellcheck disable=SC2086
			run 0 digest --device $device $by --io $io "$work/all"
			cmp -s "$out" "$work/expected" || fail "digest on $device by $engine, $io"
		done
	done
done

# The report: keys that others build on, and figures that agree with each other.
run 0 load --device cuda:1 --engine threads --budget 1M --verify --json "$work/all"
json i:bytes =$n:tensors r:seconds r:gb_per_s r:cpu_seconds =cuda:1:device =true:emulated \
	=threads:engine s:engine_reason i:direct_bytes i:cached_bytes =0:mapped_bytes \
	i:staging_peak_bytes i:pinned_peak_bytes =1048576:budget_bytes =true:verified <"$out" ||
	fail "the report of a load to an emulated device"
peak=$(json '?staging_peak_bytes' <"$out")
[ "$peak" -gt 0 ] && [ "$peak" -le 1048576 ] || fail "staging took $peak of 1048576 bytes"
bytes=$(json '?bytes' <"$out")
hoist ls --json "$work/all" >"$work/ls"
[ "$bytes" -ge $((8 << 20)) ] || fail "only $bytes bytes were loaded"

run 0 load --json --io cached "$work/all"
json =cpu:device =false:emulated =0:direct_bytes =0:mapped_bytes =false:verified <"$out" ||
	fail "the report of a cached load"
run 0 load --json --io map "$work/all"
json "=$bytes:mapped_bytes" =0:direct_bytes =0:cached_bytes <"$out" ||
	fail "the report of a mapped load"

# In words.
run 0 load --io map "$work/all"
! grep -q 'B/s' "$out" || fail "a rate is given of what was not read yet"
run 0 load --device cuda:0 --verify "$work/all"
grep -q "^loaded $n tensors, .* to cuda:0 (emulated.* in .*/s" "$out" || fail "$(cat "$out")"
run 0 load --io cached "$work/all"
[ "$(wc -l <"$out")" -eq 1 ] || fail "the report is not one line: $(cat "$out")"
run 2 load -v --json "$work/all"
one_line 'leave out --verbose'
run 0 load -v --verify --device cuda:0 "$work/all"
grep -q "^loaded .* $n tensors, " "$out" || fail "no line says what was loaded"
grep -q 'cuda:0 (emulated' "$out" || fail "what ran on the emulator is not called emulated"
grep -q '^engine ' "$out" || fail "-v does not name the engine"
grep -q '^verified' "$out" || fail "--verify is not confirmed"
[ ! -s "$err" ] || fail "something is on stderr of a load that succeeded"

# Some tensors only.
run 0 load --json --tensor '*layers.0.*' --tensor lm_head.weight "$work/all"
some=$(grep -c -e '  .*layers\.0\.' -e '  lm_head.weight$' "$work/expected")
json "=$some:tensors" <"$out" || fail "--tensor took not $some tensors"
run 0 load --json --tensor lm_head.weight --tensor '*head*' "$work/all"
json =1:tensors <"$out" || fail "a tensor that two patterns match is counted twice"

# One file, many tensors, none.
run 0 digest "$work/all/model-00002-of-00003.safetensors"
mkcheckpoint --tiny "$work/tiny"
run 0 digest --device hip:0 "$work/tiny/model.safetensors"
refdigest "$work/tiny" | cmp -s - "$out" || fail "digest of the tiny checkpoint"
mkcheckpoint --empty --tensors 5 "$work/empty"
for device in cpu cuda:0; do
	run 0 load --verify --json --device $device "$work/empty"
	json =0:bytes =5:tensors =0:gb_per_s <"$out" 2>"$err" ||
		json =0.0:gb_per_s <"$out" || fail "five empty tensors on $device"
	run 0 digest --device $device "$work/empty"
	[ "$(grep -c '^99aa06d3014798d86001c324468d497f  ' "$out")" -eq 5 ] ||
		fail "the digest of nothing on $device"
done
mkcheckpoint --bytes 1M --tensors 3000 "$work/many"
run 0 digest "$work/many"
refdigest "$work/many" | cmp -s - "$out" || fail "digest of many tensors"

# A tensor of many pieces.
mkcheckpoint --bytes 21M --tensors 1 "$work/large"
refdigest "$work/large" >"$work/expected"
for device in cpu cuda:0; do
	run 0 digest --device $device "$work/large"
	cmp -s "$out" "$work/expected" || fail "digest of a large tensor on $device"
done
run 0 load --verify --device hip:0 "$work/large"

run 0 digest --json --device cuda:0 "$work/tiny"
json s:digests.*.name s:digests.*.xxh3_128 =cuda:0:device =true:emulated <"$out" ||
	fail "digest --json"

# Parts, other dtypes, further devices; what does not go together.
run 0 load --json --device cuda:0 --replica cuda:1 --chunk 64K --depth 4 "$work/all"
json "=$bytes:bytes" =cuda:0:device <"$out" || fail "a load with a replica"
run 0 load --json --slice '*embed_tokens*:0:1..3' --slice '*embed_tokens*:-1:0/3' \
	--tensor '*embed_tokens*' "$work/all"
part=$(json '?bytes' <"$out")
[ "$part" -gt 0 ] && [ "$part" -lt $((bytes / 10)) ] || fail "a slice loads $part bytes"
run 0 load --json --dtype f16 --drop-cache "$work/all"
json "=$bytes:bytes" <"$out" || fail "a load that converts"
left=$(json '?unconverted' <"$out")
hoist ls --json "$work/all" >"$work/ls"
i=0
n_left=0
while [ $i -lt "$n" ]; do
	case $(json "?tensors.$i.dtype" <"$work/ls") in
	f32 | f16 | bf16) ;;
	*) n_left=$((n_left + 1)) ;;
	esac
	i=$((i + 1))
done
[ "$left" -eq $n_left ] && [ $n_left -gt 0 ] || fail "$left tensors were left, not $n_left"
run 0 load --dtype f16 "$work/all"
grep "^dtype  *$left tensors left as in the file: .*f8_e4m3.*; f32, f16 and bf16" "$out" >/dev/null ||
	fail "it is not said what was not converted: $(cat "$out")"
run 0 load "$work/all"
grep -q '^dtype' "$out" && fail "what nobody asked to convert was left"
# Once more, into the same memory.
for device in cpu cuda:0; do
	run 0 load --json --into --verify --device $device "$work/large"
	json =$device:device ?fresh_seconds =true:verified <"$out" >"$work/n" ||
		fail "--into --json to $device"
	run 0 load --into --dtype f16 --device $device "$work/large"
	grep -q '^before .*into fresh memory; in place: ' "$out" || fail "--into says no times"
done
run 0 load --json "$work/large"
grep -q fresh_seconds "$out" && fail "fresh_seconds without --into"
run 2 load --into --io map "$work/large"
one_line 'into memory of one device: leave out --io map'
run 2 load --into --device cuda:0 --replica cuda:1 "$work/large"
one_line 'into memory of one device: leave out --replica'
run 2 load --into --target cuda:0 "$work/large"
one_line 'into memory of one device: leave out --target'
run 2 load --into --stream "$work/large"
one_line 'nothing is left for --into: leave out one of them'
run 2 load --into --cache "$work/large"
for option in --populate '--map readonly' '--map private'; do
	for io in auto direct cached; do
		# shellcheck disable=SC2086
		run 2 load --io $io $option "$work/all"
		one_line 'nothing is mapped without --io map'
	done
done
run 0 load --io map --map readonly --populate "$work/all"
# A map has a rate only where all of it was read.
run 0 load --verbose --io map "$work/all"
grep -q '^took [^/]* mapped, to be read when they are touched, ' "$out" || fail "a map has a rate"
run 0 load -v --io map --populate "$work/all"
grep -q '^took .*/s, ' "$out" || fail "a populated map has no rate"
# Of a load that maps in part, the rate is of the bytes that were read.
run 0 load -v --io adaptive "$work/large"
if grep -q '^read .* 0 mapped; ' "$out"; then
	grep -q '^took .*/s, [^,]* of CPU time$' "$out" || fail "what was read has no rate"
elif grep -q '^read      0 direct, 0 cached, ' "$out"; then
	grep -q '^took [^/]* mapped, to be read when they are touched, ' "$out" ||
		fail "what was mapped is not told"
else
	grep -q '^took .*/s for the .* that were read, .* mapped, ' "$out" ||
		fail "what was read and what was mapped are not told apart"
fi
run 1 load --check-digests "$work/all"
grep -q 'holds no digests' "$err" || fail "it is not said that there are no digests"
# Digests that are kept beside the files: a tensor that has another digest is damaged.
mkcheckpoint --bytes 1M --shards 2 "$work/plain"
run 0 digest --keep "$work/plain"
run 0 load --check-digests "$work/plain"
set -- "$work/plain"/*-00002-of-00002.safetensors
sed -i '3y/0123456789abcdef/123456789abcdef0/' "$1.xxh3"
run 1 load --check-digests "$work/plain"
one_line 'is damaged: its digest is'
touch "$1"
run 1 load --check-digests "$work/plain"
one_line 'as the file is now'
chmod 640 "$1"
rm "$1.xxh3"
run 0 digest --keep "$work/plain"
case $(ls -l "$1.xxh3") in -rw-?-----*) ;; *) fail "who may not read the file may read its digests" ;; esac
run 2 digest --keep --tensor '*' "$work/plain"
one_line --keep
run 1 load --slice '*:0:0/100003' "$work/all"
grep -q 'equal parts' "$err" || fail "a slice that does not divide the axis"
for wrong in 1/2 '*:1/2' '*:0:2/2' '*:0:x..' '*:0:1' ':0:1/2' '*::1/2'; do
	run 2 load --slice "$wrong" "$work/all"
	grep -q 'it must be GLOB:AXIS' "$err" || fail "--slice $wrong"
done
# Tensors taken one by one, through a window, in an order; several targets.
run 0 load --json --stream "$work/all"
json "=$bytes:bytes" "=$n:tensors" r:first_tensor_seconds =0:window_bytes =0:window_peak_bytes \
	=1:targets <"$out" || fail "a load that streams"
run 0 load --json --stream --window 64K --dtype f16 --device cuda:0 \
	--order lm_head.weight,'*layers.1.*' --order '*norm*' "$work/all"
json "=$bytes:bytes" =65536:window_bytes i:window_peak_bytes "=$left:unconverted" <"$out" ||
	fail "a load through a window"
run 0 load --stream --window 64K "$work/all"
grep -q '^stream  .*the first tensor came after .* in use at most, window 64 KiB$' "$out" ||
	fail "it is not said how the load streamed: $(cat "$out")"
run 0 load "$work/all"
grep -q '^stream' "$out" && fail "a load that did not stream"
run 0 load --json --target 'cuda:0:*embed_tokens*:0:1..3,*embed_tokens*:-1:0/3' \
	--target cuda:1 --target cpu --tensor '*embed_tokens*' "$work/all"
whole=$(json '?bytes' <"$out")
json =3:targets =cuda:0:device <"$out" && [ "$whole" -gt "$part" ] || fail "three targets"
run 0 load --json --target 'cpu:*embed_tokens*:0:1..3,*embed_tokens*:-1:0/3' \
	--tensor '*embed_tokens*' "$work/all"
json "=$part:bytes" =1:targets =cpu:device <"$out" || fail "a target with slices"
run 0 load --stream --target cuda:0 --target cuda "$work/tiny"
grep -q '^loaded .* to cuda:0 and 1 further target (emulated' "$out" || fail "$(cat "$out")"
run 0 load -v --stream --target cuda:0 --target cuda "$work/tiny"
grep -q '^to  *cuda:0 and 1 further target (emulated' "$out" || fail "$(cat "$out")"
for wrong in '' cuda:0: cuda:0:x 'cpu:*:0:1/2,' ':*:0:1/2'; do
	run 2 load --target "$wrong" "$work/all"
	grep -q 'it must be DEV or DEV:SLICE' "$err" || fail "--target $wrong"
done
for wrong in '' a, ,a a,,b; do
	run 2 load --order "$wrong" "$work/all"
	grep -q 'it must be NAME,' "$err" || fail "--order $wrong"
done
for wrong in 0 -1 x ''; do
	run 2 load --stream --window "$wrong" "$work/all"
	grep -q 'it must be a number of bytes above 0' "$err" || fail "--window $wrong"
done
run 2 load --window 1M "$work/all"
one_line 'bounds what --stream holds'
for option in '--device cpu' '--replica cuda:1' '--slice *:0:0/1'; do
	# shellcheck disable=SC2086
	run 2 load --target cuda:0 $option "$work/all"
	one_line "leave out ${option%% *}, or write it into --target"
done
run 2 load --verify --stream "$work/all"
# Slices of every way to name them, compared with the files by code of the command's own.
run 0 load --verify --target 'cuda:0:*embed_tokens*:0:1..3,*embed_tokens*:-1:0/3' --target cuda:1 \
	--target 'cpu:*embed_tokens*:0:-3..-1' --tensor '*embed_tokens*' "$work/all"
grep -q '^verified' "$out" || fail "--verify of targets is not confirmed"
run 0 load --verify --slice '*embed_tokens*:-1:1/3' --device cuda:0 --replica cuda:1 "$work/all"
grep -q '^verified' "$out" || fail "--verify of a slice is not confirmed"
run 1 load --order lm_head.weight,nothing "$work/all"
grep -q 'no tensor is called or matches .nothing' "$err" || fail "--order nothing"
run 1 load --stream --io map --window 1M "$work/all"
run 2 load --dtype i8 "$work/all"
run 2 load --io map --map shared "$work/all"
run 2 load --chunk 5000 "$work/all"
run 2 load --depth 0 "$work/all"
run 2 load --cache --depth 3 "$work/all"
grep -q 'leave out --depth' "$err" || fail "--cache with --depth"
run 2 load --verify --dtype f16 "$work/all"
run 1 load --replica cpu --device cuda:0 "$work/all"
