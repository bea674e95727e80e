#!/bin/sh
# SPDX-License-Identifier: MIT
# libhoist.so exports the functions that the headers declare, no more and no less, and every
# symbol carries its version from hoist.map.
set -u
library=${abs_top_builddir:?}/lib/.libs/libhoist.so
headers=${abs_top_srcdir:?}/include/hoist
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

[ -e "$library" ] || { echo "no $library" && exit 1; }

# A declaration is "HOIST_API <type> <name>(...": its name stands before the first "(".
cat "$headers"/*.h | grep -v "^ *#" | tr '\n\t' '  ' | grep -o 'HOIST_API [^(;]*(' |
	sed 's/ *($//; s/.*[ *]//' | LC_ALL=C sort >"$work/declared"

# "0000 T hoist_error@@HOIST_0.2"; versions themselves are of type A.
nm -D --defined-only "$library" >"$work/nm" || exit 1
awk '$2 != "A" {print $3}' "$work/nm" | LC_ALL=C sort >"$work/versioned"
sed 's/@.*//' "$work/versioned" >"$work/exported"

status=0
if [ "$(wc -l <"$work/declared")" -lt 20 ]; then
	echo "only $(wc -l <"$work/declared") declarations were found in $headers"
	status=1
fi
for name in $(LC_ALL=C comm -23 "$work/declared" "$work/exported"); do
	echo "$name is declared in include/hoist but not exported"
	status=1
done
for name in $(LC_ALL=C comm -13 "$work/declared" "$work/exported"); do
	echo "$name is exported but no header declares it"
	status=1
done
for name in $(grep -v '@@HOIST_[0-9]' "$work/versioned"); do
	echo "$name is exported without a version of hoist.map"
	status=1
done
# Names that the map spells out (not patterns) must exist.
for name in $(sed -n 's/^[ \t]*\(hoist_[a-z0-9_]*\);.*/\1/p' "$abs_top_srcdir/lib/hoist.map"); do
	if ! grep -qx "$name" "$work/declared"; then
		echo "hoist.map has $name, which no header declares"
		status=1
	fi
done
echo "$(wc -l <"$work/exported") symbols"
exit $status
