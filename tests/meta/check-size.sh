#!/bin/sh
# SPDX-License-Identifier: MIT
# Nothing grows beyond what one reads in one sitting: a source of the product or of the tests has at
# most 500 lines, a function anywhere at most 60, a room of lib/ at most 5,000.
set -u
top=${1:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "$top" || exit 1
status=0
count=0
for file in $(find include base net device numa alloc format io lib emulator cli bench tools examples tests -name '*.[ch]'); do
	count=$((count + 1))
	lines=$(wc -l <"$file")
	[ "$lines" -le 500 ] || { echo "$file has $lines lines" && status=1; }
done
[ $count -ge 300 ] || { echo "only $count files were found: is $top the source tree?" && status=1; }
for room in lib/*/; do
	lines=$(cat "$room"*.[ch] | wc -l)
	[ "$lines" -le 5000 ] || { echo "$room has $lines lines" && status=1; }
done
for file in examples/*.c; do
	lines=$(wc -l <"$file")
	[ "$lines" -lt 80 ] || { echo "$file has $lines lines; an example has less than 80" && status=1; }
done
find base net device numa alloc format io lib emulator cli bench tools examples tests \( -name '*.c' -o -name '*.inc.h' \) -exec awk '
	FNR == 1 { begin = 0 }
	/^\{/ { begin = FNR }
	/^\}/ {
		if (begin && FNR - begin + 1 > 60) {
			print FILENAME ":" begin ": a function of " FNR - begin + 1 " lines"
			bad = 1
		}
		begin = 0
	}
	END { exit bad }' {} + || status=1
exit $status
