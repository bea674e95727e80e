#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist bench: that it measures, says so in the form others build on, and draws.  How
# fast anything is is no test's matter; counts and sizes that do not depend on it are.
. "${srcdir:-.}/tools/support.sh"

# value INDEX - the value of that row of $out; least and most VALUE LIMIT compare.
value() {
	json "?rows.$1.value" <"$out" || fail "there is no row $1"
}
at_most() {
	awk "BEGIN { exit !($1 <= $2) }" || fail "$3: $1 is more than $2"
}

wrong() {
	text=$1
	shift
	run 2 bench "$@"
	no_output
	one_line "$text"
	one_line "\`hoist bench --help\`"
}
wrong 'called fo\no' "$(printf 'fo\no')"
wrong 'WHAT is empty' ''
wrong 'alloc takes no FILE: leave it out' alloc x
wrong 'too many' replay a b
wrong '--work fast: there is no such work' alloc --work a --work fast
for runs in 0 100 -1 1x ''; do
	wrong '1 to 99' alloc --runs "$runs"
done
wrong 'replay needs a FILE' replay
wrong 'FILE is empty' replay ''
wrong 'replay takes no' replay x --quick
wrong 'replay takes no' replay x --svg y
wrong 'replay takes no' replay x --work a
for what in io load; do
	wrong "$what needs a FILE" $what
	wrong "$what takes no --work" $what x --work a
done
wrong 'io takes no --save' io x --save
wrong 'io takes at most 9' io x --runs 10
wrong '--to is for --save' load x --to y
wrong 'alloc takes no --save' alloc --save
wrong 'copy takes no --save' copy --save
wrong 'copy takes no FILE' copy x
wrong 'copy takes no --work' copy --work a
wrong 'replay takes no --to' replay x --to y

run 0 bench
for name in a b c small random streams events pinned region statistics; do
	grep -q -e "--work $name " "$out" || fail "the list lacks $name"
done
run 0 bench --json
json '=alloc:benches.0.name' =replay:benches.1.name =io:benches.2.name =load:benches.3.name =group:benches.4.name =copy:benches.5.name s:benches.*.summary <"$out" || fail "the list"

# All of it, once over.
run 0 bench alloc --quick --json
json '=alloc:bench' s:rows.*.work i:rows.*.threads s:rows.*.subject r:rows.*.value s:rows.*.unit \
	r:rows.*.least r:rows.*.most =1:rows.*.runs b:rows.*.emulated b:rows.*.more a:ratios a:missing \
	=hoist:rows.0.subject i:processors r:load_average =true:quick <"$out" ||
	fail "the form of the JSON"
for name in 'A 4096 B' 'B 64 KiB..32 MiB' 'C 64 B' 'region of 1 GiB'; do
	grep -qF "\"$name\"" "$out" || [ "$(nproc)" -lt 2 ] || fail "there is no row of $name"
done
if [ -z "${HOIST_TEST_SANITIZERS-}" ]; then
	grep -q '"subject": "glibc"' "$out" || fail "glibc was not measured"
	json s:ratios.*.work i:ratios.*.threads s:ratios.*.against r:ratios.*.ratio <"$out" ||
		fail "the form of the ratios"
	# Another malloc in the whole program: none is then what it is called.
	library=$(ldconfig -p 2>/dev/null | sed -n 's/.*libjemalloc\.so\.2 .*=> //p' | head -n 1)
	if [ -n "$library" ]; then
		# Many small blocks, what a heap is for: the figure is of sizes, not of speed.
		"$HOIST" bench alloc --quick --work small --json >"$out" 2>"$err" || fail "small blocks"
		reserved() {
			row=$(grep -n "\"subject\": \"$1\"" "$out" | cut -d: -f1 | sed -n 3p)
			sed -n "$((row + 1))s/.*\"value\": \([0-9.]*\).*/\1/p" "$out"
		}
		at_most "$(reserved 'hoist, heap')" "0.7 * $(reserved hoist)" "reserved by a heap"
		LD_PRELOAD=$library "$HOIST" bench alloc --quick --work a --json >"$out" 2>"$err" ||
			fail "with a preloaded malloc"
		grep -q 'is that of .*jemalloc' "$out" || fail "a preloaded malloc passed for glibc's"
		[ "$(grep -c '"subject": "glibc"' "$out")" -eq 1 ] || fail "it was measured as glibc"
	fi
fi

# Figures that do not depend on the speed.
HOIST_EMULATE=cuda:1
export HOIST_EMULATE
run 0 bench alloc --quick --work events --json
json =true:rows.*.emulated <"$out" || fail "an emulated device is not called emulated"
at_most "$(value 0)" 1 "events of 64 frees"
at_most "$(value 1)" 0 "calls between an allocation and a free on one stream"
run 0 bench alloc --quick --work streams --device cuda:0 --json
at_most "$(value 1)" 10 "fragmentation in %"
at_most "$(value 2)" 1.1 "reserved bytes of those alive"
run 0 bench alloc --quick --work pinned --json
json =1.01:rows.0.bar =true:rows.0.met =false:rows.0.more <"$out" || fail "the bar of pinned"
at_most "$(value 0)" 1.01 "pinned bytes for each asked for"

# In words.
run 0 bench alloc --quick --work events --runs 2
! grep -q 'at most' "$out" || fail "bars that nobody asked for: $(cat "$out")"
run 2 bench alloc --quick --bars --json
one_line 'leave out --bars'
run 0 bench alloc --quick --bars --work events --work region --runs 2
grep -q '^stream-ordered, .*at most 1: met.*(emulated)' "$out" || fail "the table of events"
grep -q '^region of 1 GiB .* ms .*at most 130' "$out" || fail "the table of regions"
[ ! -s "$err" ] || fail "something is on stderr"

# A measurement that fails is named, and the others are there.
HOIST_EMULATE_FAIL=cuMemAlloc:1+
export HOIST_EMULATE_FAIL
run 1 bench alloc --quick --work events --work region
unset HOIST_EMULATE_FAIL
one_line '1 of '
one_line 'measurements failed'
grep -q '^not measured: hoist: stream-ordered' "$out" || fail "what failed is not named"
grep -q '^region of 1 GiB' "$out" || fail "one failure took the others along"

# Drawing.
run 1 bench alloc --quick --work a --svg "$work/no/such/folder.svg"
no_output
mkdir "$work/bin" # all that is in /usr/bin but gnuplot: the build tree's hoist is a script
ln -s /usr/bin/* "$work/bin/"
rm -f "$work"/bin/gnuplot*
saved=$PATH
PATH=$work/bin
run 1 bench alloc --quick --work a --svg "$work/a.svg"
PATH=$saved
no_output
one_line gnuplot-nox
if command -v gnuplot >/dev/null; then
	run 0 bench alloc --quick --work a --work region --svg "$work/a.svg"
	grep -q '<svg' "$work/a.svg" || fail "the image is no SVG"
	grep -q 'region of 1 GiB, 1 thr' "$work/a.svg" || fail "the image lacks the region"
	tail -n 2 "$work/a.svg" | grep -q '</svg>' || fail "the image has no end"
	run 1 bench alloc --quick --work pinned --svg "$work/b.svg"
	one_line 'nothing to draw'
else
	echo "gnuplot is not installed: nothing was drawn"
fi

# Copies, which are compared with what they should be before they are timed.
run 0 bench copy --quick --json
json =copy:bench s:rows.*.work r:rows.*.value b:rows.*.emulated r:ratios.*.ratio a:missing =true:quick \
	=false:rows.0.more =150.0:rows.0.bar =true:rows.4.emulated =1:rows.*.runs <"$out" || fail "bench copy"
for name in memcpy 'memcpy a run' 'loops, blocked'; do
	grep -qF "\"against\": \"$name\"" "$out" || fail "copies are not compared with $name"
done
run 0 bench copy --quick --runs 2
grep -q '^contiguous, 4 KiB .* hoist .* GB/s' "$out" || fail "the table of copies"

# Reading: a file of any kind, and a checkpoint; every cell is there.
mkcheckpoint --bytes 3M --shards 2 --tensors 12 "$work/model"
head -c 3000000 /dev/zero >"$work/blob"
for file in "$work/blob" "$work/model"; do
	run 0 bench io "$file" --quick --json
	json =io:bench s:file i:bytes i:dropped_bytes =true:quick s:rows.*.work r:rows.*.value \
		=hoist:rows.0.subject 's:rows.*.unit' b:rows.*.emulated a:ratios a:missing <"$out" ||
		fail "bench io of $file"
	[ "$(json '?bytes' <"$out")" -le 1048576 ] || fail "--quick reads much"
	grep -q '"hot, 16 MiB x 64"' "$out" || fail "a cell is missing"
	# As far as ways and engines are there: hot by threads always are.
	n=$(grep -c '"unit": "GB/s"' "$out")
	[ "$n" -ge 38 ] && [ "$n" -le 220 ] || fail "$n rates"
done
run 0 bench io "$work/blob" --quick --device cuda:0
grep -q ' each, to cuda:0 (emulated)$' "$out" || fail "that the device is emulated is not said"
grep -q '^hot, threads, GB/s$' "$out" || fail "the table lacks a part"
run 1 bench io "$work/none"
one_line 'No such file'
: >"$work/nothing"
run 1 bench io "$work/nothing" --quick
one_line 'no bytes to load'

# Loading, and saving: nothing of it stays.
run 0 bench load "$work/model" --runs 2 --device cpu,cuda:0 --save --json
for what in 'cold to cpu, through a window' 'cold to cuda:0, 8 targets' 'cold to cpu, in place' \
	'4 ranks, everything each' 'cold to cpu, adaptive, touched'; do
	grep -q "$what" "$out" || grep -q 'stay in the page cache' "$out" ||
		fail "bench load has no rows of $what"
done
json =load:bench =2:rows.0.runs s:rows.*.subject s:ways.*.work s:ways.*.engine s:ways.*.io_reason \
	i:ways.*.direct_bytes i:ways.*.cached_bytes i:ways.*.staging_peak_bytes a:ratios <"$out" ||
	fail "bench load"
for name in hoist 'hot to cpu' 'hot to cuda:0' 'save from cpu, fsync' 'hot to cpu, adaptive, touched' \
	'a map, touched' 'hot to cpu, fresh memory' 'hot to cpu, warm memory' 'memcpy from a populated map' \
	'16 KiB of rows of 128, hot to cpu' 'a pread for each row, 2 threads' 'in place' 'one tensor' \
	'copies / slot'; do
	grep -qF "\"$name\"" "$out" || fail "there is no row of $name"
done
# Not every machine lets a process filter its system calls.
if grep -q '"no filter of system calls' "$out"; then
	echo "a chunk's calls are not counted here"
else
	grep -q '"driver calls"' "$out" && grep -q '"system calls"' "$out" ||
		fail "a chunk's calls are not counted"
fi
# A group needs /proc/self/io only for the bytes read; a process that fails is told, and not the end.
grep -q '"a group of 4"' "$out" || fail "there is no group"
mkdir "$work/to"
run 0 bench load "$work/model" --quick --save --to "$work/to"
grep -q '^the way that bytes took$' "$out" || fail "the way is not told"
[ -z "$(ls "$work/to")" ] || fail "what was saved is still there"
[ "$(ls "$work/model" | wc -l)" -eq 3 ] || fail "what was saved beside the model is still there"
run 1 bench load "$work/model" --device cpu,none:0
no_output
if command -v gnuplot >/dev/null; then
	run 0 bench load "$work/model" --quick --svg "$work/l.svg"
	grep -q '<svg' "$work/l.svg" || fail "the image of bench load is no SVG"
	run 0 bench io "$work/blob" --quick --svg "$work/i.svg"
	tail -n 2 "$work/i.svg" | grep -q '</svg>' || fail "the image of bench io has no end"
fi

# A group, and its course.
run 0 bench group "$work/model" --quick --json
json =group:bench =true:quick i:dropped_bytes s:rows.*.work r:rows.*.value <"$out" || fail "bench group"
grep -q '"4 ranks, everything each"' "$out" || grep -q 'stay in the page cache' "$out" || fail "bench group has no rows"
if command -v gnuplot >/dev/null && grep -q '"4 ranks of tcp:, everything each".*"s"' "$out"; then
	run 0 bench group "$work/model" --runs 1 --svg "$work/g.svg"
	grep -q 'from other ranks' "$work/g.svg" || fail "the image of bench group has no bytes of other ranks"
fi

# A program of bench/ says what it found in the same form, and the samples behind it.
program=$abs_top_builddir/bench/many
"$abs_top_builddir/run" "$program" --runs 3 --json "$work/many.json" "$work"/model/model-0000?-of-00002.safetensors \
	>"$out" 2>"$err" || fail "bench/many: $(cat "$err")"
json =many:bench s:rows.*.work i:rows.*.threads s:rows.*.subject r:rows.*.value s:rows.*.unit r:rows.*.least \
	r:rows.*.most i:rows.*.runs b:rows.*.emulated b:rows.*.more =3:rows.0.runs =150.0:rows.1.bar r:ratios.0.ratio a:missing \
	<"$work/many.json" || fail "the JSON of bench/many"
awk '/"value":|"least":|"most":/ { v[$1] = $2 + 0 }
	/"most":/ { n++; if (v["\"value\":"] < v["\"least\":"] || v["\"value\":"] > v["\"most\":"]) exit 1 }
	END { exit n < 8 }' "$work/many.json" || fail "a median lies outside of its samples"
grep -q 'opened and listed .* ms .*at most 150: ' "$out" || fail "the table of bench/many"
"$program" --runs 0 a b 2>"$err" && fail "bench/many ran no times"
grep -q '^usage: many ' "$err" || fail "bench/many does not say how it is called"

# The calls that a resource recorded are done again.
# Streams of the CPU have no handle that a recording could name.
for device in cpu cuda:0; do
	[ $device = cpu ] && streams=0 || streams=1
	"$HOIST_TEST_PROGRAMS/tools/trace" "$work/trace.csv" $device || fail "recording on $device"
	run 0 bench replay "$work/trace.csv" --device $device --json --runs 2
	json =replay:bench =$device:device =78:events =2:threads =$streams:streams =1:unknown_frees \
		=2:rows.*.runs r:rows.*.value <"$out" || fail "the replay on $device"
	run 0 bench replay "$work/trace.csv" --device $device
	grep -q "^78 events of 2 threads and $streams streams, on $device" "$out" || fail "the replay in words"
	grep -q '^passed over: 1 frees' "$out" || fail "a free without allocation is not told"
done

# malformed TEXT LINE... - a recording with these lines behind a good one.
header=Thread,Time,Action,Pointer,Size,Stream
malformed() {
	text=$1
	shift
	{
		echo $header
		echo '1,10:19:12:1,allocate,0x1000,4096,0'
		printf '%s\n' "$@"
	} >"$work/bad.csv"
	run 1 bench replay "$work/bad.csv"
	no_output
	one_line "$text"
}
malformed 'line 3: it has not the 6 columns' '1,10:19:12:1,allocate,0x2000,4096'
malformed 'line 3: it has not the 6 columns' '1,10:19:12:1,allocate,0x2000,4096,0,0'
malformed 'line 4: it has not the 6 columns' '' 'x'
malformed 'line 3: Thread' '-1,2,free,0x1000,1,0'
malformed 'line 3: Action is neither allocate nor free: alloc' '1,2,alloc,0x2000,1,0'
malformed 'line 3: Pointer' '1,2,free,1000x,1,0'
malformed 'line 3: Pointer' '1,2,free,0x10000000000000000,1,0'
malformed 'line 3: Size' '1,2,allocate,0x2000,9223372036854775808,0'
malformed 'line 3: Stream' '1,2,allocate,0x2000,1,default'
malformed 'line 3: this address is allocated already' '1,2,allocate,0x1000,1,0'
malformed 'line 3: ' '1,2,allocate,0x2000,1000000000000000,0'
echo hello >"$work/bad.csv"
run 1 bench replay "$work/bad.csv"
one_line "line 1: it should be $header"
echo $header >"$work/bad.csv"
run 1 bench replay "$work/bad.csv"
one_line 'no allocation'
run 1 bench replay "$work/missing.csv"
one_line 'No such file'
run 1 bench replay "$work"
one_line 'directory'
