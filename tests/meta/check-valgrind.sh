#!/bin/sh
# SPDX-License-Identifier: MIT
# README's C examples under Valgrind: no error and nothing lost, in little time.
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

# Each ```c block is a whole program.
awk -v folder="$work" '
	/^```c$/ { n++; open = 1; next }
	/^```/ { open = 0 }
	open { print > (folder "/example" n ".c") }' "$src/README.md"
"$build/tests/mkcheckpoint" --tiny "$work/model" || exit 1
first=$("$build/tools/hoist" ls --json "$work/model" |
	tr -d '\n' | sed 's/.*"tensors": *\[[^]}]*"name": *"\([^"]*\)".*/\1/')

# A leak check reads all memory that the program has mapped, the emulated device's, too.
export LD_LIBRARY_PATH="$build/lib/.libs" HOIST_EMULATE=cuda:1 HOIST_EMULATE_MEMORY=256M
# lost N KINDS ARGUMENT... - example N loses nothing of these kinds.
lost() {
	n=$1
	kinds=$2
	shift 2
	if ! ${CC:?} -std=c11 -g -I"$src/include" -o "$work/example$n" "$work/example$n.c" \
		-L"$build/lib/.libs" -lhoist; then
		echo "example $n of README.md does not compile"
		status=1
	elif ! timeout 60 valgrind -q --leak-check=full \
		--suppressions="$src/tests/meta/valgrind.supp" --errors-for-leak-kinds="$kinds" \
		--show-leak-kinds="$kinds" --error-exitcode=9 "$work/example$n" "$@" \
		>"$work/said" 2>&1; then
		echo "example $n of README.md under Valgrind:"
		cat "$work/said"
		status=1
	fi
}

lost 1 definite,indirect,possible "$work/model" "$first"
lost 2 definite,indirect # a thread that lives on is possibly lost
lost 3 definite,indirect,possible "$work/model" "$work/out.safetensors"
lost 4 definite,indirect
exit $status
