#!/bin/sh
# SPDX-License-Identifier: MIT
# The README can be believed: its C examples compile as printed, without warnings,
# and run; the commands and files that it names exist.
set -u
src=${abs_top_srcdir:?}
build=${abs_top_builddir:?}
readme=$src/README.md
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

# Each ```c block is a whole program.
awk -v folder="$work" '
	/^```c$/ { n++; open = 1; next }
	/^```/ { open = 0 }
	open { print > (folder "/example" n ".c") }
	END { print n + 0 }' "$readme" >"$work/count"
if [ "$(cat "$work/count")" -lt 1 ]; then
	echo "README.md has no C example"
	exit 1
fi

sanitize=
case ${HOIST_TEST_SANITIZERS-} in
?*) sanitize=-fsanitize=$HOIST_TEST_SANITIZERS ;;
esac
if ! "$build/tests/mkcheckpoint" --tiny "$work/model"; then
	echo "mkcheckpoint failed"
	exit 1
fi
first=$("$build/tools/hoist" ls --json "$work/model" |
	tr -d '\n' | sed 's/.*"tensors": *\[[^]}]*"name": *"\([^"]*\)".*/\1/')
for example in "$work"/example*.c; do
	# It is one of the examples, below their first line.
	same=
	for file in "$src"/examples/*.c; do
		! tail -n +2 "$file" | cmp -s - "$example" || same=$file
	done
	if [ -z "$same" ]; then
		echo "a C program of README.md is in no file of examples/"
		status=1
	fi
	# shellcheck disable=SC2086
	if ! ${CC:?} -std=c11 -pedantic -Wall -Wextra -Werror $sanitize -I"$src/include" \
		-o "${example%.c}" "$example" -L"$build/lib/.libs" -lhoist; then
		echo "the C example of README.md does not compile"
		status=1
	elif ! (cd "$work" && LD_LIBRARY_PATH=$build/lib/.libs HOIST_EMULATE=cuda:1 \
		"${example%.c}" "$work/model" "$first"); then
		echo "the C example of README.md failed on a tiny checkpoint (tensor $first)"
		status=1
	fi
done

# "    $ hoist VERB ...", perhaps with something before hoist.
verbs=$(sed -n 's/^    \$ \(.* \)\{0,1\}hoist \([a-z]*\) .*/\2/p; s/^    \$ \(.* \)\{0,1\}hoist \([a-z]*\)$/\2/p' "$readme" | LC_ALL=C sort -u)
for verb in $verbs; do
	if ! "$build/tools/hoist" "$verb" --help >"$work/help" 2>&1; then
		echo "README.md shows \`hoist $verb\`, which does not exist"
		status=1
	fi
done
for verb in doctor devices ls load explain cat digest cp cache bench; do
	case " $(echo $verbs) " in
	*" $verb "*) ;;
	*)
		echo "README.md shows no example of \`hoist $verb\`"
		status=1
		;;
	esac
done

# `./name` at the top, and links to files.
for file in $(grep -o '\./[a-z]*\b' "$readme"; grep -o '](\([^):#]*\))' "$readme" | sed 's/^](//; s/)$//'); do
	if [ ! -e "$src/$file" ]; then
		echo "README.md names $file, which is not there"
		status=1
	fi
done
[ $status -ne 0 ] || echo "$(cat "$work/count") examples, verbs:" $verbs
exit $status
