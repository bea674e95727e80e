#!/bin/sh
# SPDX-License-Identifier: MIT
# Each public header compiles alone and twice, as pedantic C11 and as C++11, with
# warnings as errors and without a look at anything but the public headers.
set -u
: "${srcdir:=.}" "${CC:=cc}" "${CXX:=c++}"
include=$srcdir/../include
folder=$(mktemp -d) || exit 99
trap 'rm -rf "$folder"' EXIT

c="$CC -I$include -std=c11 -pedantic -Wall -Wextra -Wstrict-prototypes -Wundef -Werror"
cxx="$CXX -I$include -std=c++11 -pedantic -Wall -Wextra -Wundef -Werror"

echo 'int main() { return 0; }' >"$folder/probe.cc"
# shellcheck disable=SC2086
if ! $cxx -fsyntax-only "$folder/probe.cc" 2>/dev/null; then
	echo "no C++ compiler: the headers are only tried as C"
	cxx=
fi

n=0
failed=0
for header in "$include"/hoist/*.h; do
	name=hoist/$(basename "$header")
	printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$name" "$name" \
		>"$folder/use.c"
	cp "$folder/use.c" "$folder/use.cc"
	# shellcheck disable=SC2086
	$c -fsyntax-only "$folder/use.c" || { echo "$name fails as C11"; failed=1; }
	# shellcheck disable=SC2086
	[ -z "$cxx" ] || $cxx -fsyntax-only "$folder/use.cc" ||
		{ echo "$name fails as C++11"; failed=1; }
	n=$((n + 1))
done
[ $n -ge 7 ] || { echo "only $n headers found in $include/hoist"; exit 1; }
exit $failed
