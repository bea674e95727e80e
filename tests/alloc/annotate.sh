#!/bin/sh
# SPDX-License-Identifier: MIT
# AddressSanitizer and Valgrind notice when a program touches what is no block of its own:
# one built with AddressSanitizer, whether the library is or not, and one run under Valgrind.
set -u

failed=0
tried=0
fail() {
	echo "FAILED: $*"
	failed=1
}

# expect NAME STATUS PATTERN COMMAND... - what it says has PATTERN in it, if that is not empty.
expect() {
	name=$1 wanted=$2 pattern=$3
	shift 3
	"$@" >"$TMPDIR/out" 2>&1
	status=$?
	if [ $status -ne "$wanted" ]; then
		fail "$name: status $status instead of $wanted"
		head -n 20 "$TMPDIR/out"
	elif [ -n "$pattern" ] && ! grep -q "$pattern" "$TMPDIR/out"; then
		fail "$name: nothing like '$pattern' in"
		head -n 20 "$TMPDIR/out"
	else
		echo "ok: $name"
	fi
}

# --- AddressSanitizer: the program is built once more, with it ---

top=${abs_top_builddir:?} source=${abs_top_srcdir:?} here=${srcdir:?}
touch_asan=$TMPDIR/touch-asan
archives="$top/alloc/.libs/liballoc.a $top/numa/.libs/libnuma.a $top/device/.libs/libdevice.a
	$top/base/.libs/libbase.a"
echo 'int main(void) {return 0;}' >"$TMPDIR/empty.c"
if $CC -fsanitize=address -o "$TMPDIR/empty" "$TMPDIR/empty.c" 2>/dev/null && "$TMPDIR/empty"; then
	tried=1
	flags=-fsanitize=address
	case ${HOIST_TEST_SANITIZERS-} in
	*undefined*) flags=-fsanitize=address,undefined ;;
	esac
	# shellcheck disable=SC2086
	if $CC -std=gnu11 -g $flags -I"$source" -I"$source/include" -I"$top" \
		-o "$touch_asan" "$here/alloc/annotate_touch.c" $archives -lnuma -ldl -pthread; then
		# It is to report here, not to the wrapper's files: clang's runtime takes the
		# place of its log from any of the three.
		ASAN_OPTIONS=exitcode=99
		export ASAN_OPTIONS
		unset LSAN_OPTIONS UBSAN_OPTIONS
		expect "asan: well" 0 "" "$touch_asan" well
		for touch in behind freed large discarded; do
			expect "asan: $touch" 99 'AddressSanitizer: use-after-poison' "$touch_asan" $touch
		done
	else
		fail "the program does not link with $flags"
	fi
else
	echo "$CC links no AddressSanitizer"
fi

# --- Valgrind: needs the symbols of the C library, and a program without sanitizers ---

asks=$(grep -c '^#define HOIST_VALGRIND' "$top/config.h")
touch=$top/tests/alloc/annotate_touch
if [ -n "${HOIST_TEST_SANITIZERS-}" ] || [ "$asks" -eq 0 ]; then
	echo "no Valgrind: sanitizers are in, or its header was not found"
elif ! command -v valgrind >/dev/null || ! valgrind -q true >/dev/null 2>&1; then
	echo "no Valgrind: not installed, or it lacks the symbols of the C library"
else
	tried=1
	under() {
		expect "valgrind: $1" "$2" "$3" valgrind -q --error-exitcode=99 "$touch" "$1"
	}
	under well 0 ""
	under behind 99 'Invalid write of size 1'
	under freed 99 'Invalid write of size 1'
	under large 99 'Invalid read of size 1'
	under discarded 99 'Invalid read of size 1'
	under undefined 99 'depends on uninitialised value'
fi

[ $failed -eq 0 ] || exit 1
[ $tried -eq 1 ] || exit 77
