#!/bin/sh
# SPDX-License-Identifier: MIT
# doc/reliability.md is what doc/make-reliability makes of its tables, and the generator takes
# figures of tests that passed, from logs alone, and misses nothing that a promise names.
set -u
source=${abs_top_srcdir:?}
make=$source/doc/make-reliability
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0
fail() {
	echo "$1"
	status=1
}

mkdir -p "$work/tree/doc" "$work/tree/tests/vm" "$work/tree/tests/faults" "$work/build/tests/vm" "$work/build/tests/faults"
: >"$work/tree/tests/vm/a.sh"
: >"$work/tree/tests/faults/b.c"
printf 'it holds\tvm/a.sh\tvm.a\nand this\tfaults/b\tb.n,b.m\n' >"$work/tree/doc/promises.tsv"
log() { # TEST FORM VERDICT FIGURE
	{
		echo "wrap: form $2"
		echo "figure: $4"
		echo "$3 $1 (exit status: 0)"
	} >"$work/build/tests/$1.log"
}
take() { sh "$make" --take "$work/build" "$work/tree" 2>/dev/null; }
log vm/a.sh short PASS 'vm.a 12 nodes'
log faults/b long PASS 'b.n 3 faults'
take || fail "figures were not taken"
sh "$make" "$work/tree" >"$work/out" 2>"$work/err" && fail "a figure that is missing went unseen"
grep -q 'no figure b.m' "$work/err" || fail "the figure that is missing is not named"
log faults/b long PASS 'b.n 3 faults
figure: b.m 4 survived'
take
sh "$make" "$work/tree" >"$work/out" || fail "refused, with all figures there"
grep -q '^| it holds | `vm/a.sh` | 12 nodes (short, ' "$work/out" || fail "no row of vm/a.sh"
grep -q '^| and this | `faults/b` | 3 faults; 4 survived (long, ' "$work/out" || fail "no row of faults/b"
log faults/b short PASS 'b.n 1 faults'
log vm/a.sh long FAIL 'vm.a 99 nodes'
take
sh "$make" "$work/tree" >"$work/out"
grep -q '3 faults; 4' "$work/out" || fail "a short form replaced a long one"
grep -q '12 nodes' "$work/out" || fail "a failed test's figure was taken"
log vm/a.sh 'long
wrap: a part that was chosen' PASS 'vm.a 98 nodes'
take
sh "$make" "$work/tree" >"$work/out"
grep -q '12 nodes' "$work/out" || fail "the figure of a part was taken"
log vm/stray.sh short PASS 'vm.a 97 nodes
figure: vm.stray 1 nodes'
sh "$make" --take "$work/build" "$work/tree" 2>"$work/err" || fail "a stray log kept figures from being taken"
grep -q 'no test vm/stray.sh: vm.stray' "$work/err" || fail "a log of no test is not named"
! grep 'stray\|97 nodes' "$work/tree/doc/figures.tsv" || fail "the figure of no test was taken"
rm "$work/build/tests/vm/stray.sh.log"
cp "$work/tree/doc/figures.tsv" "$work/figures"
printf 'vm.stray\t1 nodes\tvm/stray.sh\tshort\t2026-01-01\n' >>"$work/tree/doc/figures.tsv"
sh "$make" "$work/tree" >/dev/null 2>"$work/err" && fail "a row of no test went unseen"
grep -q 'figures.tsv, line .* no test vm/stray.sh' "$work/err" || fail "a row of no test is not named"
take
cmp -s "$work/figures" "$work/tree/doc/figures.tsv" || fail "a row of no test was kept"
cp "$work/tree/doc/promises.tsv" "$work/promises"
printf 'and nothing shows it\tfaults/b\n' >>"$work/tree/doc/promises.tsv"
sh "$make" "$work/tree" >/dev/null 2>"$work/err" && fail "a promise without a figure went unseen"
grep -q 'line 3: no figure shows' "$work/err" || fail "the promise without a figure is not named"
printf 'it holds\tfaults/unit\tvm.a\n' >"$work/tree/doc/promises.tsv"
sh "$make" "$work/tree" >/dev/null 2>&1 && fail "unit tests that no build.am declares were taken for a test"
printf 'it holds\tfaults/b\tvm.a\n' >"$work/tree/doc/promises.tsv"
sh "$make" "$work/tree" >/dev/null 2>"$work/err" && fail "another test's figure went unseen"
grep -q 'vm.a is of vm/a.sh' "$work/err" || fail "the figure of another test is not named"
cp "$work/promises" "$work/tree/doc/promises.tsv"
rm "$work/tree/tests/faults/b.c"
sh "$make" "$work/tree" >/dev/null 2>"$work/err" && fail "a test that is not there went unseen"

sh "$make" "$source" >"$work/reliability.md" || status=1
diff -u "$source/doc/reliability.md" "$work/reliability.md" ||
	fail "out of date; run: doc/make-reliability . >doc/reliability.md"
exit $status
