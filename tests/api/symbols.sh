#!/bin/sh
# SPDX-License-Identifier: MIT
# The headers declare, hoist.map lists and the library exports one and the same set of functions;
# and the library needs no other libraries than those it is meant to.
set -u
: "${srcdir:=.}" "${abs_top_builddir:=..}"
library=$abs_top_builddir/lib/.libs/libhoist.so
[ -e "$library" ] || { echo "skipped: $library is not built"; exit 77; }
folder=$(mktemp -d) || exit 99
trap 'rm -rf "$folder"' EXIT
LC_ALL=C
export LC_ALL

# A declaration begins with HOIST_API; the name stands before the parenthesis.
cat "$srcdir"/../include/hoist/*.h | tr '\n\t' '  ' | sed 's/HOIST_API/\
&/g' | sed -n 's/^HOIST_API [^(;]*\(hoist_[a-z0-9_]*\)(.*/\1/p' | sort -u >"$folder/headers"
sed -n 's/^	\(hoist_[a-z0-9_]*\);.*/\1/p' "$srcdir/../lib/hoist.map" | sort >"$folder/map"
nm -D --defined-only "$library" | sed -n 's/.* T \([^@]*\)@*.*/\1/p' | sort >"$folder/library"
nm -D --defined-only "$library" | grep -v ' T \| A ' >"$folder/other"

status=0
[ "$(wc -l <"$folder/headers")" -ge 60 ] || { echo "the headers were not understood"; status=1; }
for side in map library; do
	diff -u "$folder/headers" "$folder/$side" || { echo "headers and $side differ"; status=1; }
done
[ ! -s "$folder/other" ] || { echo "exported, but no function:"; cat "$folder/other"; status=1; }

# The drivers are opened at run time, and a malloc of our own would be the program's.
needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
	case $name in
	libcuda* | libamdhip* | libjemalloc* | libcudart*)
		echo "the library must not need $name"
		status=1
		;;
	esac
done
exit $status
