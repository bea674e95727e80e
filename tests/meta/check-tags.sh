#!/bin/sh
# SPDX-License-Identifier: MIT
# A tag of a struct, union or enum is defined once: two headers that define it could not be included
# together, and a debugger may show the wrong one.  In a .c file, a tag without our prefix is that
# file's own, as the names of its static functions are.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=${1:-$(cd "$here/../.." && pwd)}

if ! cd "$top"; then
	exit 1
fi
find include base net device numa alloc format io lib emulator cli bench tools examples -name '*.[ch]' |
	LC_ALL=C sort |
	xargs awk '
	# Not in comments, whose lines begin with a star.
	!/^[ \t]*(\/?\*|\/\/)/ {
		line = $0
		while (match(line, /(^|[^A-Za-z0-9_])(struct|union|enum)[ \t]+[A-Za-z_][A-Za-z0-9_]*[ \t]*[{]/)) {
			tag = substr(line, RSTART, RLENGTH)
			line = substr(line, RSTART + RLENGTH)
			sub(/[ \t]*[{]$/, "", tag)
			sub(/.*[ \t]/, "", tag)
			place = FILENAME ":" FNR
			if (FILENAME ~ /[.]c$/ && tag !~ /^hoist_/)
				continue
			if (tag in first) {
				print place ": " tag " is defined in " first[tag] ", too"
				bad++
			} else {
				first[tag] = place
				n_tags++
			}
		}
	}

	END {
		if (n_tags < 200) {
			print "only " n_tags + 0 " tags were found: is this the source tree?"
			exit 1
		}
		if (bad)
			exit 1
		print n_tags " tags, each defined once"
	}'
