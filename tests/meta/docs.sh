#!/bin/sh
# SPDX-License-Identifier: MIT
# `make docs` makes pages without a warning, and these have every public function.
set -u
builddir=${abs_top_builddir:?}
headers=${abs_top_srcdir:?}/include/hoist
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

command -v doxygen >/dev/null || { echo "SKIP: no doxygen" && exit 77; }

# In a folder of its own, so that it is nobody else's reference.
sed "s#^OUTPUT_DIRECTORY .*#OUTPUT_DIRECTORY = $work#; s#^WARN_LOGFILE .*#WARN_LOGFILE = $work/warnings#" \
	"$builddir/doc/Doxyfile" >"$work/Doxyfile"
doxygen "$work/Doxyfile" || exit 1
if [ -s "$work/warnings" ]; then
	cat "$work/warnings"
	exit 1
fi

status=0
count=0
for name in $(cat "$headers"/*.h | grep -v "^ *#" | tr '\n\t' '  ' |
	grep -o 'HOIST_API [^(;]*(' | sed 's/ *($//; s/.*[ *]//'); do
	count=$((count + 1))
	grep -qw -- "$name" "$work"/man/man3/hoist*.3 || { echo "$name is in no manual page" && status=1; }
	grep -qw -- "$name" "$work"/html/group__hoist*.html || { echo "$name is on no page" && status=1; }
done
[ "$count" -ge 200 ] || { echo "only $count functions were found in $headers" && status=1; }
# One page for each noun, that is for each header.
for header in "$headers"/*.h; do
	noun=$(basename "$header" .h)
	[ "$noun" = hoist ] || [ -s "$work/man/man3/hoist-$noun.3" ] ||
		{ echo "there is no hoist-$noun(3)" && status=1; }
done
echo "$count functions"
exit $status
