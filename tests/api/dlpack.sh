#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist/dlpack.h beside DLPack's own header in one program: either order, as C and as
# C++.  Tried with a stand-in for that header, and with the installed one if there is one.
set -u
: "${srcdir:=.}" "${CC:=cc}" "${CXX:=c++}"
include=$srcdir/../include
folder=$(mktemp -d) || exit 99
trap 'rm -rf "$folder"' EXIT

c="$CC -I$include -std=c11 -pedantic -Wall -Wextra -Wstrict-prototypes -Wundef -Werror"
cxx="$CXX -I$include -std=c++11 -pedantic -Wall -Wextra -Wundef -Werror"

cp "$srcdir/api/dlpack.c" "$folder/use.c"
cp "$srcdir/api/dlpack.c" "$folder/use.cc"
cp "$srcdir/api/dlpack-double.h" "$folder/double.h"
echo 'int main() { return 0; }' >"$folder/probe.cc"
# shellcheck disable=SC2086
if ! $cxx -fsyntax-only "$folder/probe.cc" 2>/dev/null; then
	echo "no C++ compiler: only tried as C"
	cxx=
fi

failed=0
# try HEADER MACROS...
try() {
	header=$1
	shift
	for order in -DHOIST_FIRST -DDLPACK_FIRST; do
		# shellcheck disable=SC2086
		$c "-DDLPACK_HEADER=$header" $order "$@" -fsyntax-only "$folder/use.c" ||
			{ echo "$header, $order fails as C11"; failed=1; }
		# shellcheck disable=SC2086
		[ -z "$cxx" ] ||
			$cxx "-DDLPACK_HEADER=$header" $order "$@" -fsyntax-only "$folder/use.cc" ||
			{ echo "$header, $order fails as C++11"; failed=1; }
	done
}

try "\"$folder/double.h\"" -DHAVE_TABLE
echo '#include <dlpack/dlpack.h>' >"$folder/probe.c"
# shellcheck disable=SC2086
if $c -fsyntax-only "$folder/probe.c" 2>/dev/null; then
	table=
	echo 'const DLPackExchangeAPI *table;' >>"$folder/probe.c"
	# shellcheck disable=SC2086
	! $c -fsyntax-only "$folder/probe.c" 2>/dev/null || table=-DHAVE_TABLE
	# shellcheck disable=SC2086
	try '<dlpack/dlpack.h>' $table
	echo "tried with the installed dlpack/dlpack.h, too"
fi
exit $failed
