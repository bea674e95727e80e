#!/bin/sh
# SPDX-License-Identifier: MIT
# count-lines.sh [TREE]: lines of code of the product and of its tests, without comments, blank lines
# and assertions; then those of each room of lib/, with comments.
set -u
top=${1:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "$top" || exit 1

code() {
	find "$@" \( -name '*.[ch]' -o -name '*.cc' \) -exec cat {} + | awk '
	{
		rest = $0
		line = ""
		while (rest != "") {
			if (inside) {
				at = index(rest, "*/")
				if (at == 0)
					break
				rest = substr(rest, at + 2)
				inside = 0
				continue
			}
			at = index(rest, "/*")
			if (at == 0) {
				line = line rest
				break
			}
			line = line substr(rest, 1, at - 1)
			rest = substr(rest, at + 2)
			inside = 1
		}
		sub(/\/\/.*/, "", line)
		if (line ~ /^HOIST__CONDITION /)
			condition = 1
		if (condition) {
			condition = line !~ /^}/
			next
		}
		if (line ~ /^[ \t]*(assert|HOIST__ASSERT|_Static_assert)\(/)
			asserts = 1
		if (line ~ /^[ \t]*$/ || asserts) {
			asserts = asserts && line !~ /;[ \t]*$/
			next
		}
		n++
	}
	END { print n + 0 }'
}

folders=
for folder in include base net device numa alloc format io lib emulator cli bench tools; do
	[ ! -d $folder ] || folders="$folders $folder"
done
# shellcheck disable=SC2086
echo "product $(code $folders)"
echo "tests $(code tests)"
for room in lib/*/; do
	room=${room%/}
	echo "$room $(cat "$room"/*.[ch] | wc -l)"
done
