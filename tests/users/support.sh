# SPDX-License-Identifier: MIT
# Helpers of the tests in users/, which source this file.  Each test types what a new user types, line by
# line, and looks for what the user must see.  Its log is the session.
#
#   types STATUS LINE    prints the line, lets a shell run it in the folder $home, and shows the first
#                        lines of its output, and the last; the line must exit STATUS
#   sees PATTERN...      the output of the last line matches each of them (grep -E), on either stream
#   installs FOLDER      `make install` with DESTDIR=FOLDER of the build that is being tested
. "${srcdir:-.}/tools/support.sh"
home=$work/home
mkdir "$home" && cd "$home" || exit 99

unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
LC_ALL=C
export LC_ALL

types() {
	wanted=$1 typed=$2
	printf '$ %s\n' "$typed"
	status=0
	sh -c "$typed" >"$out" 2>"$err" </dev/null || status=$?
	cat "$out" "$err" >"$work/screen"
	awk 'NR <= 8 { print "    " $0 } NR == 9 { print "    ..." } END { if (NR > 8) print "    " $0 }' "$work/screen"
	[ "$status" -eq "$wanted" ] ||
		fail "\"$typed\": exit status $status, not $wanted"
}

sees() {
	for pattern; do
		grep -Eq -e "$pattern" "$work/screen" || fail "\"$typed\" does not show: $pattern"
	done
}

# One at a time: libtool links anew in the build tree for this.
installs() {
	exec 9<"$abs_top_builddir/config.status"
	flock 9
	types 0 "make -s -C $abs_top_builddir install DESTDIR=$1"
	exec 9<&-
}
