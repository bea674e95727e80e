#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist on other kernels, in a virtual machine: Debian 11's 5.10, 12's 6.1, 13's 6.12.  On each the
# command and faults/locked do what faults/locked.sh has them do, and unit tests of what differs run:
# cachestat, populating, the ring's features, alignment of direct reads.  On 6.12
# io_uring is switched off as well, by sysctl kernel.io_uring_disabled, for some and for all; a
# control group of the second hierarchy has little memory.  The short form is 5.10, and of 6.12
# io_uring switched off.  A kernel that is not to be had is left out, and named.
set -u
here=$abs_top_srcdir/tests/vm
programs="hoist mkcheckpoint refdigest faults/locked faults/jail"
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99 # qemu would make something else of a comma in a path
PATH=$PATH:/sbin:/usr/sbin
if ! command -v mkfs.ext4 >/dev/null; then
	echo "skipped: there is no mkfs.ext4 (Debian: e2fsprogs)"
	exit 77
fi
if [ -n "${HOIST_TEST_SANITIZERS-}" ]; then
	echo "skipped: under a sanitizer, in software emulation, this takes hours"
	exit 77
fi
n_kernels=0 n_done=0 n_reasons=0 skipped=''

# run KERNEL - with the settings in $work/expect.
run() {
	kernel=$1
	. "$work/expect"
	rm -f "$work/disk"
	truncate -s 300M "$work/disk" && mkfs.ext4 -q "$work/disk" || exit 99
	# shellcheck disable=SC2086
	sh "$here/boot" --kernel "$kernel" --nodes 1 --memory 700 --disk 0:disk \
		--limit "$limit" --file "$work/expect:expect" "$abs_top_builddir" \
		"$here/kernels-guest.sh" $programs $unit_programs >"$work/log" 2>&1
	status=$?
	cat "$work/log"
	case $status in
	0) ;;
	77)
		skipped="$skipped $kernel"
		return 0
		;;
	*)
		echo "FAIL: Linux $kernel: status $status"
		exit 1
		;;
	esac
	n_kernels=$((n_kernels + 1))
	counts=$(sed -n 's/^kernel: \([0-9]* [0-9]*\).*/\1/p' "$work/log")
	[ -n "$counts" ] || { echo "FAIL: Linux $kernel: the guest counted nothing"; exit 1; }
	n_done=$((n_done + ${counts% *}))
	n_reasons=$((n_reasons + ${counts#* }))
}

if [ "${HOIST_TEST_FORM:-long}" = short ]; then
	limit=600 unit_short=io/populate unit_tests=
else
	limit=1500 unit_short=
	unit_tests='io/populate io/refused io/ahead io/output io/unit
		alloc/unit lib/load/map'
fi
# Those on Criterion are not built everywhere.
built=
for test in $unit_short$unit_tests; do
	[ ! -x "$abs_top_builddir/tests/$test" ] || built="$built $test"
done

cat >"$work/expect" <<END
doctor='samples say how much of a file is in memory
io_uring works'
load='io_uring: plain'
uring_disabled=
uring_only=
unit_programs='$built'
unit_tests='$(echo "$built" | tr / _)'
END
run 5.10

if [ -n "$unit_short" ]; then
	sed -i "s/^uring_disabled=.*/uring_disabled='1 2'/; s/^uring_only=.*/uring_only=yes/; s/^unit_\\([a-z]*\\)=.*/unit_\\1=/" \
		"$work/expect"
	run 6.12
else
	sed -i "s/^load=.*/load='io_uring: '/" "$work/expect"
	run 6.1
	sed -i "s/^doctor=.*/doctor='cachestat says which bytes/; s/^uring_disabled=.*/uring_disabled='1 2'/" \
		"$work/expect"
	run 6.12
fi
[ $n_kernels -gt 0 ] || exit 77
echo "figure: kernels.kernels $n_kernels kernels${skipped:+, skipped:$skipped}"
echo "figure: kernels.scenarios $n_done scenarios and unit tests"
echo "figure: kernels.reasons $n_reasons reasons looked for and found"
