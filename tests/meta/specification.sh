#!/bin/sh
# SPDX-License-Identifier: MIT
# doc/specification.md is what doc/make-specification makes of its tables and of the tests, and
# the tables tell the truth: what is done has functions and tests, and every test vector is
# carried by a test or has a reason why not.
set -u
source=${abs_top_srcdir:?}
make=$source/doc/make-specification
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

# --- the generator itself: all kinds of tests, and what it must not take ---

mkdir -p "$work/tree/doc" "$work/tree/tests/api"
printf 'S0.01\ta\thoist_a\tdone\n' >"$work/tree/doc/rows.tsv"
printf 'V001\t-\n' >"$work/tree/tests/vectors.tsv"
cat >"$work/tree/tests/one.c" <<'C'
/* proves: S0.01
 * V001 S0.02 */
Test(suite, in_one_line, .init = open)
/* proves: S0.03 */
/* Another
 * comment. */
Test(one,
     in_two_lines)
/* proves: S0.04 */
ParameterizedTest(const struct row *row, suite, of_rows)
/* proves: S0.05 */
static int *plain_function(int a, int (*b)(int))
/* proves: S0.06 */
int main(void)
C
printf '/* proves: S0.08 */\nTest(api_two, named_like_the_path)\n' >"$work/tree/tests/api/two.c"
printf '#!/bin/sh\n# proves: V001 S0.07\n' >"$work/tree/tests/api/script.sh"
{
	printf '%s\tone\t%s\n' S0.01 suite/in_one_line S0.02 suite/in_one_line S0.03 in_two_lines \
		S0.04 suite/of_rows S0.05 plain_function S0.06 ''
	printf 'S0.07\tapi/script.sh\t\nS0.08\tapi/two\tnamed_like_the_path\nV001\tapi/script.sh\t\nV001\tone\tsuite/in_one_line\n'
} >"$work/wanted"
sh "$make" --proofs "$work/tree" >"$work/found" || { echo "the generator failed"; status=1; }
diff -u "$work/wanted" "$work/found" || { echo "comments of tests are misread"; status=1; }
for bad in '/* proves: S0.1 */\nTest(a, b)' '/* proves: S0.01 */\n' \
	'/* proves: S0.01 and more */\nTest(a, b)' '\t/* proves: S0.01 */\nTest(a, b)'; do
	# shellcheck disable=SC2059
	printf "$bad" >"$work/tree/tests/one.c"
	if sh "$make" --proofs "$work/tree" >"$work/found" 2>&1; then
		echo "taken as a comment of a test: $bad"
		status=1
	fi
done

# --- a test calls what its row is about: itself, or by what it uses of its file and of tests/ ---

printf 'S0.01\ta\thoist_a\tdone\nS0.02\tb\thoist_b\tdone\n' >"$work/tree/doc/rows.tsv"
printf 'V001\t-\tS0.01 S0.02\nV002\t-\thoist__c\n' >"$work/tree/tests/vectors.tsv"
echo 'int use_b(void);' >"$work/tree/tests/shared.h"
printf '#include "shared.h"\nint use_b(void)\n{\n\treturn hoist_b();\n}\n' >"$work/tree/tests/shared.c"
printf '#include "tests/shared.h"\nstatic int use_a(void)\n{\n\treturn hoist_a();\n}\n' >"$work/head.c"
printf 'static int (*const table[])(void) = {use_a};\n#define USE_C \\\n\thoist__c()\n' >>"$work/head.c"
label() { # NUMBER CODE - a test that does so
	rm -f "$work/tree/tests/api/two.c"
	cp "$work/head.c" "$work/tree/tests/one.c"
	printf '/* proves: %s */\nTest(suite, name, .init = use_a)\n{\n\t%s\n}\n' "$1" "$2" \
		>>"$work/tree/tests/one.c"
	sh "$make" "$work/tree" >"$work/found" 2>&1
}
for good in 'S0.01 hoist_a();' 'S0.01 use_a();' 'S0.01 table[0]();' 'S0.02 use_b();' \
	'V001 hoist_b();' 'V002 USE_C;'; do
	label "${good%% *}" "${good#* }" || { echo "refused: $good: $(cat "$work/found")"; status=1; }
done
for bad in 'S0.01 hoist_b();' 'S0.01 use_b(); /* hoist_a() */' 'S0.02 f("hoist_b");' 'V001 hoist_ab();' \
	'V002 use_a();'; do
	if label "${bad%% *}" "${bad#* }"; then
		echo "taken as a proof: $bad"
		status=1
	elif ! grep -q "one\.c:[0-9]*: suite/name calls nothing of ${bad%% *} .*; put ${bad%% *}" "$work/found"; then
		echo "refused without place and remedy: $bad: $(cat "$work/found")"
		status=1
	fi
done

# --- the document ---

sh "$make" "$source" >"$work/specification.md" || exit 1
diff -u "$source/doc/specification.md" "$work/specification.md" || {
	echo "out of date; run: doc/make-specification . >doc/specification.md"
	status=1
}

# --- the tables ---

sh "$make" --proofs "$source" >"$work/proofs" || exit 1
sed -n 's/^	\(hoist_[a-z0-9_]*\);.*/\1/p' "$source/lib/hoist.map" >"$work/functions"
[ "$(wc -l <"$work/functions")" -ge 60 ] || { echo "hoist.map was not understood"; status=1; }
cat >"$work/check.awk" <<'AWK'
BEGIN { FS = "\t" }
function say(what) {
	print what
	failed = 1
}
FILENAME ~ /functions$/ { functions[$1]; next }
FILENAME ~ /proofs$/ { proven[$1] = $2; next }
/^#/ { next }
$1 in known { say($1 " is there twice") }
{ known[$1] }
FILENAME ~ /rows\.tsv$/ {
	rows++
	if (NF != 4 || $1 !~ /^S[0-5]\.[0-9][0-9]$/ || $2 == "" || $3 == "")
		say("rows.tsv, line " FNR ": not row, subject, functions, state")
	if ($4 != "done" && $4 != "python" && $4 !~ /^not: ./)
		say($1 ": \"" $4 "\" is no state; done, python, not: why")
	if ($4 != "done")
		next
	if (!($1 in proven))
		say($1 " is done, but no test proves it")
	n = 0
	for (text = $3; match(text, /hoist_[a-z0-9_]+/); text = substr(text, RSTART + RLENGTH)) {
		n++
		if (substr(text, RSTART, RLENGTH) !~ /^hoist__/ && !(substr(text, RSTART, RLENGTH) in functions))
			say($1 " names " substr(text, RSTART, RLENGTH) ", which is not in hoist.map")
	}
	if (n == 0)
		say($1 " is done, but names no function")
	next
}
{
	vectors++
	if ($1 !~ /^V[0-9][0-9][0-9]$/ || $2 == "")
		say("vectors.tsv, line " FNR ": not vector, reason")
	else if (NF != ($2 == "-" || $2 ~ /^partly: ./ ? 3 : 2))
		say($1 ": the rows that it is about stand behind what tests carry, and there alone")
	n = split($3, words, " ")
	for (i = 1; i <= n; i++)
		if (words[i] !~ /^hoist_[a-z0-9_]+$/)
			wanted[words[i]] = $1
	if (($2 == "-" || $2 ~ /^partly: ./) && !($1 in proven))
		say($1 " should have a C test, and has none")
	else if ($2 != "-" && $2 !~ /^partly: ./ && $1 in proven)
		say($1 " is carried by " proven[$1] ", but vectors.tsv says why it is not")
}
END {
	for (number in wanted)
		if (!(number in known))
			say(wanted[number] " is about " number ", which is in no table")
	for (number in proven)
		if (!(number in known))
			say(number ", which " proven[number] " proves, is in no table")
	if (rows < 150 || vectors < 170)
		say("only " rows + 0 " rows and " vectors + 0 " vectors")
	print rows " rows, " vectors " vectors"
	exit failed
}
AWK
awk -f "$work/check.awk" "$work/functions" "$work/proofs" "$source/doc/rows.tsv" \
	"$source/tests/vectors.tsv" || status=1
exit $status
