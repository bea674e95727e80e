#!/bin/sh
# SPDX-License-Identifier: MIT
# Every source begins with its SPDX line (the second line, after "#!").
set -u
top=${1:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "$top" || exit 1
status=0
count=0
files=$(find include base net device numa alloc format io lib emulator cli tools bench examples tests m4 gpu doc packaging \
	\( -name '*.[ch]' -o -name '*.cpp' -o -name '*.am' -o -name '*.m4' -o -name '*.sh' \
	-o -name '*.in' -o -name '*.tsv' -o -name '*.supp' -o -path 'gpu/*' -o -path 'packaging/*' \) -type f \
	! -path 'm4/l*t*.m4' ! -path m4/pkg.m4 ! -name Makefile.in
	ls configure.ac Makefile.am common.am run.in packages.sh quickstart check debian/rules \
		debian/tests/command debian/tests/program debian/tests/sample)
for file in $files; do
	count=$((count + 1))
	if ! head -n 2 "$file" | grep -q 'SPDX-License-Identifier: MIT'; then
		echo "$file: no SPDX-License-Identifier: MIT in its first two lines"
		status=1
	fi
done
if [ $count -lt 50 ]; then
	echo "only $count files were found: is $top the source tree?"
	exit 1
fi
echo "$count files"
exit $status
