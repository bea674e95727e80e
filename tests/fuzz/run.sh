#!/bin/sh
# SPDX-License-Identifier: MIT
# fuzz/run.sh - hostile bytes for everything that reads what others made: every fuzz target, by
# libFuzzer, from the inputs in corpus.tar.xz.
#
#   HOIST_TEST_FORM=short   a fixed number of inputs for each target, always the same ones
#   HOIST_TEST_FORM=long    HOIST_TEST_FUZZ_SECONDS (3600) seconds, shared out among the targets; what
#                           is found is kept in fuzz-build/found, for make-corpus
#
# HOIST_TEST_FUZZ='gguf|npy' runs these alone.
#
# Targets are built here, by clang whatever builds the rest, and kept in fuzz-build; an input that
# breaks one is kept in fuzz-build/broken.
set -u
: "${abs_top_builddir:=$(cd .. && pwd)}"
form=${HOIST_TEST_FORM:-long}
here=$(cd "$(dirname "$0")" && pwd)
build=$abs_top_builddir/tests/fuzz-build

# Target, inputs of the short form, the longest one.
targets='
safetensors 100000 16384
index 100000 16384
gguf 100000 16384
npy 100000 4096
npz 60000 16384
zip 60000 16384
torch 60000 16384
max 100000 4096
detect 60000 16384
write 12000 8192
plan 700 512
ipc 15000 512
cache_table 20000 12288
cache_holder 6000 512
cache_client 10000 512
channel 40000 1024
far 20000 4096
open 2500 8192
'
if [ -n "${HOIST_TEST_FUZZ-}" ]; then
	targets=$(echo "$targets" | grep -E "^($HOIST_TEST_FUZZ) ") || {
		echo "HOIST_TEST_FUZZ='$HOIST_TEST_FUZZ' names no target"
		exit 1
	}
fi

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
echo 'int LLVMFuzzerTestOneInput(const char *p, long n) { return p == 0 && n == 1; }' >"$scratch/probe.c"
if ! command -v clang >/dev/null; then
	echo "skipped: there is no clang, whose libFuzzer makes the inputs"
	exit 77
fi
if ! clang -fsanitize=fuzzer,address,undefined -o "$scratch/probe" "$scratch/probe.c" 2>"$scratch/why"; then
	echo "skipped: clang has no libFuzzer or sanitizers (libclang-rt-dev):"
	tail -n 3 "$scratch/why"
	exit 77
fi

mkdir -p "$build/found" "$build/broken" "$build/logs" || exit 1
# Under a make that runs tests, its flags would be this one's.
unset MAKEFLAGS MFLAGS MAKELEVEL
if ! make -C "$abs_top_builddir/tests" -j2 fuzz-targets >"$build/logs/build" 2>&1; then
	tail -n 40 "$build/logs/build"
	echo "the targets cannot be built"
	exit 1
fi
mkdir "$scratch/corpus" || exit 1
xz -dc "$here/corpus.tar.xz" | tar -xf - -C "$scratch/corpus" || exit 1
for name in $(echo "$targets" | awk '{ print $1 }'); do
	[ -n "$(ls "$scratch/corpus/$name" 2>/dev/null)" ] || {
		echo "corpus.tar.xz has no input for $name"
		exit 1
	}
done

# Reports go to each target's log; what is freed is kept for 16 MiB, so that memory is told.
unset LSAN_OPTIONS
ASAN_OPTIONS=allocator_may_return_null=1:quarantine_size_mb=16
UBSAN_OPTIONS=print_stacktrace=1
export ASAN_OPTIONS UBSAN_OPTIONS

count=$(echo "$targets" | grep -c .)
seconds=$((${HOIST_TEST_FUZZ_SECONDS:-3600} / count))
# run NAME INPUTS LONGEST
run() {
	log=$build/logs/$1
	folder=$scratch/corpus/$1
	limit="-runs=$2 -seed=1"
	if [ "$form" = long ]; then
		limit="-max_total_time=$seconds"
		mkdir -p "$build/found/$1"
		folder="$build/found/$1 $folder"
	fi
	# shellcheck disable=SC2086
	"$build/$1" $limit -max_len="$3" -timeout=20 -rss_limit_mb=1024 -print_final_stats=1 \
		-verbosity=1 -error_exitcode=1 -timeout_exitcode=1 -close_fd_mask=0 \
		-artifact_prefix="$build/broken/$1-" $folder >"$log" 2>&1 </dev/null
	echo $? >"$log.status"
}

rm -f "$build"/logs/*.status
if [ "$form" = short ]; then
	# Two at a time.
	echo "$targets" | grep . >"$scratch/list"
	for half in 0 1; do
		awk -v half=$half 'NR % 2 == half' "$scratch/list" | while read -r name inputs longest; do
			run "$name" "$inputs" "$longest"
		done &
	done
	wait
else
	echo "$targets" | grep . | while read -r name inputs longest; do
		run "$name" "$inputs" "$longest"
	done
fi

# stat KEY LOG
stat() {
	sed -n "s/^stat::$1: *//p" "$2" | tail -n 1
}
all=0 broken=0 memory=0
for name in $(echo "$targets" | awk '{ print $1 }'); do
	log=$build/logs/$name
	inputs=$(stat number_of_executed_units "$log")
	peak=$(stat peak_rss_mb "$log")
	if [ "$(cat "$log.status" 2>/dev/null)" != 0 ] || [ "${inputs:-0}" -eq 0 ]; then
		broken=$((broken + 1))
		echo "fuzz: $name failed; the input is in $build/broken:"
		tail -n 60 "$log"
		continue
	fi
	if grep '^fuzz: no input has' "$log"; then
		broken=$((broken + 1))
		echo "fuzz: the inputs of $name miss something; add seeds, and run make-corpus"
		continue
	fi
	all=$((all + inputs))
	[ "${peak:-0}" -le $memory ] || memory=$peak
	echo "figure: fuzz.$name.inputs $inputs inputs of $name, none of which broke it"
	sed -n "s/^fuzz: parsing took/fuzz: $name: parsing took/p" "$log"
done
echo "figure: fuzz.inputs $all inputs of $count targets"
echo "figure: fuzz.crashes $broken targets of $count broken"
slowest=$(sed -n 's/^fuzz: parsing took.* \([0-9.]*\) s$/\1/p' "$build"/logs/* | sort -n | tail -n 1)
[ -z "$slowest" ] || echo "figure: fuzz.seconds $slowest s for the input that took longest to parse"
echo "figure: fuzz.memory $memory MiB at most, of a target's process"
[ $broken -eq 0 ]
