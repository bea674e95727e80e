#!/bin/sh
# SPDX-License-Identifier: MIT
# wrap.sh PROGRAM [ARGUMENT]... - runs one test the way `make check` does.
#
# A test passes only if its exit status says so and nothing else does not:
#   - it ends within HOIST_TEST_TIMEOUT seconds (300; 600 under a sanitizer): it hangs if not,
#     as the slowest take 40 on a quiet machine of two processors
#   - no sanitizer wrote a report, in any process (a leak does not fail a
#     Criterion test by itself: its processes end well and the parent never looks)
#   - every Criterion test that was announced gave a result
# Around it: no HOIST_ variable of the caller's but HOIST_TEST_*, the emulators of
# this tree, a TMPDIR of its own on the build tree's disk (a tmpfs has no O_DIRECT),
# freed memory filled with a random byte where no sanitizer watches.
#
# The last line is "wrap: N passed, N failed, N skipped", which ./check adds up.
# Exit status: 0 passed, 77 skipped, else failed.
set -u

if [ $# -eq 0 ]; then
	echo "usage: $0 PROGRAM [ARGUMENT]..." >&2
	exit 2
fi

for variable in $(env | sed -n 's/^\(HOIST_[A-Z0-9_]*\)=.*/\1/p'); do
	case $variable in
	HOIST_TEST_*) ;;
	*) unset "$variable" ;;
	esac
done

: "${abs_top_builddir:=$(cd .. && pwd)}"
HOIST_EMULATOR_DIR=$abs_top_builddir/emulator/.libs
export HOIST_EMULATOR_DIR

scratch=$(mktemp -d "$PWD/tmp.XXXXXX") || exit 99
# The test is in a process group of its own, which a terminal's ^C does not reach.
running=
stop() {
	trap '' INT TERM HUP
	[ -z "$running" ] || { kill -TERM "$running" && wait "$running"; } 2>/dev/null
	exit "$1"
}
trap 'rm -rf "$scratch"' EXIT
trap 'stop 130' INT
trap 'stop 143' TERM HUP
mkdir "$scratch/tmp" "$scratch/logs" || exit 99
TMPDIR=$scratch/tmp
CRITERION_OUTPUTS=tap:$scratch/tap
export TMPDIR CRITERION_OUTPUTS

reports=$scratch/logs/report
ASAN_OPTIONS="log_path=$reports:allocator_may_return_null=1:detect_stack_use_after_return=1:${ASAN_OPTIONS-}"
UBSAN_OPTIONS="log_path=$reports:print_stacktrace=1:${UBSAN_OPTIONS-}"
LSAN_OPTIONS="suppressions=$(cd "$(dirname "$0")" && pwd)/lsan.supp:print_suppressions=0:${LSAN_OPTIONS-}"
TSAN_OPTIONS="log_path=$reports:second_deadlock_stack=1:${TSAN_OPTIONS-}"
export ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS

# gcc 12's ThreadSanitizer cannot place its memory where the kernel randomises
# addresses by more than 28 bits; there, randomising is switched off for the test.
launcher=
case ${HOIST_TEST_SANITIZERS-} in
*thread*)
	if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)" -gt 28 ]; then
		if setarch -R true 2>/dev/null; then
			launcher="setarch -R"
		else
			echo "skipped: ThreadSanitizer needs vm.mmap_rnd_bits <= 28 or setarch -R," \
				"and this container allows neither"
			echo "wrap: 0 passed, 0 failed, 1 skipped"
			exit 77
		fi
	fi
	;;
"")
	MALLOC_PERTURB_=$(($(od -An -N1 -tu1 /dev/urandom) % 255 + 1))
	export MALLOC_PERTURB_
	echo "wrap: MALLOC_PERTURB_=$MALLOC_PERTURB_"
	;;
esac

# For doc/make-reliability.
if [ -n "${HOIST_TEST_FORM-}" ]; then
	echo "wrap: form $HOIST_TEST_FORM${HOIST_TEST_SANITIZERS:+, sanitizers $HOIST_TEST_SANITIZERS}"
	[ -z "${HOIST_TEST_SWEEP-}${HOIST_TEST_SHOTS-}${HOIST_TEST_FUZZ-}${HOIST_TEST_FUZZ_SECONDS-}${HOIST_TEST_SOAK_SECONDS-}" ] ||
		echo "wrap: a part that was chosen"
fi

case $1 in
*.sh) launcher="$launcher /bin/sh" ;; # which ends where it cannot read a file of helpers
esac
seconds=300
[ -z "${HOIST_TEST_SANITIZERS-}" ] || seconds=600
seconds=${HOIST_TEST_TIMEOUT:-$seconds}
began=$(date +%s)
# shellcheck disable=SC2086
timeout -k 5 "$seconds" $launcher "$@" </dev/null &
running=$!
wait "$running"
status=$?
running=

verdict=$status
times >"$scratch/times"
echo "wrap: processors worked (user, kernel) for $(tail -n 1 "$scratch/times"), in $(($(date +%s) - began)) s"
if [ $status -eq 124 ] || [ $status -eq 137 ]; then
	echo "wrap: killed (status $status); the limit is $seconds seconds (HOIST_TEST_TIMEOUT)"
fi
for report in "$reports"*; do
	if [ -s "$report" ]; then
		echo "wrap: a sanitizer reported:"
		head -c 20000 "$report"
		verdict=1
	fi
done

passed=0 failed=0 skipped=0
if [ -e "$scratch/tap" ]; then
	planned=$(sed -n 's/^1\.\.//p' "$scratch/tap" | head -n 1)
	failed=$(grep -c '^not ok' "$scratch/tap")
	skipped=$(grep -c '^ok.*# SKIP' "$scratch/tap")
	passed=$(($(grep -c '^ok' "$scratch/tap") - skipped))
	grep -E '^not ok|# SKIP' "$scratch/tap"
	if [ $((passed + failed + skipped)) -ne "${planned:-0}" ]; then
		echo "wrap: ${planned:-no} tests were announced, $((passed + failed + skipped)) gave a result"
		verdict=1
	elif [ $((passed + failed + skipped)) -eq 0 ]; then
		echo "wrap: there is no test in it"
		verdict=1
	elif [ $verdict -eq 0 ] && [ "$passed" -eq 0 ] && [ "$failed" -eq 0 ]; then
		verdict=77
	fi
	[ "$failed" -eq 0 ] || [ $verdict -ne 0 ] || verdict=1
else
	case $verdict in
	0) passed=1 ;;
	77) skipped=1 ;;
	esac
fi
# A program that failed counts as a failure even if each of its parts passed.
case $verdict in
0 | 77) ;;
*) [ "$failed" -gt 0 ] || failed=1 ;;
esac
echo "wrap: $passed passed, $failed failed, $skipped skipped"
exit $verdict
