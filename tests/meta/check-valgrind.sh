#!/bin/sh
# SPDX-License-Identifier: MIT
# Some examples under Valgrind, README's among them: no error and nothing lost, in little time.
set -u
src=${abs_top_srcdir:?}
build=${abs_top_builddir:?}

skip() {
	echo "skipped: $1"
	exit 77
}

command -v valgrind >/dev/null || skip "valgrind is not installed"
grep -q '^#define HOIST_VALGRIND' "$build/config.h" ||
	skip "the library was built without valgrind/memcheck.h"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

"$build/tests/mkcheckpoint" --tiny "$work/model" || exit 1
first=$("$build/tools/hoist" ls --json "$work/model" |
	tr -d '\n' | sed 's/.*"tensors": *\[[^]}]*"name": *"\([^"]*\)".*/\1/')

# A leak check reads all memory that the program has mapped, the emulated device's, too.
export LD_LIBRARY_PATH="$build/lib/.libs" HOIST_EMULATE=cuda:1 HOIST_EMULATE_MEMORY=256M
# lost NAME KINDS ARGUMENT... - the example loses nothing of these kinds.
lost() {
	name=$1
	kinds=$2
	shift 2
	if ! ${CC:?} -std=c11 -g -I"$src/include" -o "$work/$name" "$src/examples/$name.c" \
		-L"$build/lib/.libs" -lhoist; then
		echo "examples/$name.c does not compile"
		status=1
	elif ! timeout 60 valgrind -q --leak-check=full \
		--suppressions="$src/tests/meta/valgrind.supp" --errors-for-leak-kinds="$kinds" \
		--show-leak-kinds="$kinds" --error-exitcode=9 "$work/$name" "$@" \
		>"$work/said" 2>&1; then
		echo "examples/$name.c under Valgrind:"
		cat "$work/said"
		status=1
	fi
}

lost address definite,indirect,possible "$work/model" "$first"
lost rows definite,indirect # a thread that lives on is possibly lost
lost convert definite,indirect,possible "$work/model" "$work/out.safetensors"
lost pinned definite,indirect
exit $status
