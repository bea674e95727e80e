# SPDX-License-Identifier: MIT
# Helpers that the tests of the command share; the tests source this file.
#
#   hoist          the command of this build tree
#   run CODE ...   runs hoist: stdout to $out, stderr to $err; fails unless it exits CODE
#   one_line TEXT  stderr must be one line of hoist's that holds TEXT
#   fail TEXT      ends the test
set -u
: "${abs_top_builddir:=$(cd .. && pwd)}"
: "${HOIST:=$abs_top_builddir/tools/hoist}"
: "${HOIST_TEST_PROGRAMS:=$abs_top_builddir/tests}"
work=$(mktemp -d "${TMPDIR:-/tmp}/hoist.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
out=$work/stdout
err=$work/stderr

hoist() {
	"$HOIST" "$@"
}

mkcheckpoint() {
	"$HOIST_TEST_PROGRAMS/mkcheckpoint" "$@" >/dev/null || fail "mkcheckpoint $*"
}

refdigest() {
	"$HOIST_TEST_PROGRAMS/refdigest" "$@" || fail "refdigest $*"
}

json() {
	"$HOIST_TEST_PROGRAMS/tools/json" "$@"
}

fail() {
	echo "FAIL: $*" >&2
	if [ -s "$err" ]; then
		echo "its stderr was:" >&2
		head -n 5 "$err" >&2
	fi
	exit 1
}

run() {
	expected=$1
	shift
	hoist "$@" >"$out" 2>"$err" </dev/null
	status=$?
	[ "$status" -eq "$expected" ] || fail "hoist $*: exit status $status, not $expected"
}

one_line() {
	[ "$(wc -l <"$err")" -eq 1 ] || fail "stderr has $(wc -l <"$err") lines, not 1"
	grep -q '^hoist' "$err" || fail "the message does not begin with hoist"
	grep -qF -e "$1" "$err" || fail "the message lacks: $1"
}

no_output() {
	[ ! -s "$out" ] || fail "something is on stdout: $(head -n 1 "$out")"
}

# write_safetensors FILE HEADER BYTES - a file with that header (backslashes as for
# printf's %b) and that many zero bytes.
write_safetensors() {
	printf '%b' "$2" >"$work/header"
	n=$(wc -c <"$work/header")
	{
		for shift in 1 256 65536 16777216; do
			# shellcheck disable=SC2059
			printf "\\$(printf '%03o' $((n / shift % 256)))"
		done
		printf '\000\000\000\000'
		cat "$work/header"
		head -c "$3" /dev/zero
	} >"$1"
}
