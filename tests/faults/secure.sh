#!/bin/sh
# SPDX-License-Identifier: MIT
# No environment variable makes a set-uid program load a library, run a program or write a file.
#
# One program that uses hoist is copied as a set-uid one of root's, as a set-gid one, and as one with a
# capability, and run by another user, with each variable that hoist, the loader or the shell reads set
# to something of that user's.  An ordinary copy shows first that the variable has that effect.
set -u
programs=$abs_top_builddir/tests
user=64002
count=0

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

skip() {
	echo "skipped: $*"
	exit 77
}

[ "$(id -u)" -eq 0 ] || skip "only root can make a set-uid program of root's"
[ -z "${HOIST_TEST_SANITIZERS-}" ] ||
	skip "a sanitizer reads variables of its own, in every program"
setpriv --reuid=$user --regid=$user --clear-groups true 2>/dev/null || skip "setpriv is needed"

# Where the other user can reach it, and set-uid programs are such.
work=$(mktemp -d /tmp/hoist-secure.XXXXXX) || exit 99
# The folders that the cache makes where no variable counts, unless they are there already.
made=
for folder in /tmp/hoist-0 /tmp/hoist-$user; do
	[ -e $folder ] || made="$made $folder"
done
# shellcheck disable=SC2086
trap 'rm -rf "$work"; rmdir $made 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
umask 022
chmod 755 "$work"
mkdir "$work/bin" "$work/model" "$work/out"
chmod 777 "$work/out"
"$programs/mkcheckpoint" --bytes 4K "$work/model" >/dev/null || fail "mkcheckpoint"

other() {
	setpriv --reuid=$user --regid=$user --clear-groups "$@"
}

# --- the copies ---

library=$abs_top_builddir/lib/.libs/libhoist.so
other test -r "$library" || skip "the build folder cannot be reached by another user"
for kind in plain setuid setgid capable; do
	cp "$programs/faults/secure" "$work/bin/$kind" || fail "cp"
	cp "$programs/faults/secure_static" "$work/bin/$kind-static" || fail "cp"
done
chmod 4755 "$work/bin/setuid" "$work/bin/setuid-static"
chgrp 64001 "$work/bin/setgid" "$work/bin/setgid-static"
chmod 2755 "$work/bin/setgid" "$work/bin/setgid-static"
kinds="setuid setgid"
# A struct vfs_cap_data: cap_net_bind_service, effective.
if "$programs/faults/secure" capable "$work/bin/capable" &&
	"$programs/faults/secure" capable "$work/bin/capable-static"; then
	kinds="setuid setgid capable"
else
	echo "no file can have a capability here: set-uid and set-gid programs alone"
fi
for kind in $kinds; do
	other "$work/bin/$kind" virtual </dev/null 2>/dev/null | grep -q '^secure 1$' ||
		skip "a $kind program is an ordinary one in /tmp: mounted nosuid, or no_new_privs is set"
done

# --- what the other user puts there ---

evil=$work/evil
# With the time at which something was made in a folder, or removed from it.
list_evil() {
	find "$evil" -printf '%p %T@\n' | sort
}

prepare() {
	rm -rf "$evil"
	mkdir "$evil" "$evil/marks" "$evil/path" "$evil/emulators" "$evil/bin" "$evil/beside" \
		"$evil/beside/hoist" "$evil/run"
	for copy in preload.so a.so path/libcuda.so.1 path/libamdhip64.so.7 \
		emulators/libhoist-emulated-cuda.so beside/hoist/libhoist-emulated-cuda.so; do
		cp "$programs/faults/.libs/secure_evil.so" "$evil/$copy"
	done
	{
		echo '#!/bin/sh'
		echo ": >$evil/marks/ran"
	} >"$evil/bin/hoist"
	chmod 755 "$evil/bin/hoist"
	chown -R $user:$user "$evil"
	rm -rf "$work/out/"*
	list_evil >"$work/before"
}

# of KIND VARIABLE=VALUE... - runs that copy; the environment is the other user's.
of() {
	kind=$1
	shift
	(
		cd "$evil" || exit 1
		# shellcheck disable=SC2086
		other env -i PATH=/usr/bin:/bin SECURE_MARKS="$evil/marks" TMPDIR="$evil" \
			HOME="$evil" "$work/bin/plain" as "$name" "$@" "$work/bin/$kind" $uses \
			</dev/null >"$work/maps" 2>"$work/said"
	) || fail "$kind $uses: it ended with $?: $(cat "$work/said")"
	list_evil >"$work/after"
}

# none VARIABLE=VALUE... - in the copies that are privileged, that does nothing.
ran=
none() {
	for kind in $kinds; do
		prepare
		[ $kind != setuid ] || chown root "$evil/run" # who it is then takes no other's
		of "$kind$linked" "$@"
		grep -q '^secure 1$' "$work/maps" || fail "the $kind program is a plain one"
		cmp -s "$work/before" "$work/after" ||
			fail "$kind, $*: written: $(diff "$work/before" "$work/after")"
		! grep -F "$evil/" "$work/maps" || fail "$kind, $*: that is mapped"
		! grep -q '^hoist\[' "$work/said" || fail "$kind, $*: the log is on"
		count=$((count + 1))
		kind=${kind%-static}
		case ", $ran," in *", $kind,"*) ;; *) ran=$ran${ran:+, }$kind ;; esac
	done
}

# with EFFECT VARIABLE=VALUE... - in a plain copy it does: EFFECT is a file in $evil, a folder there in which something
# was made, which has gone again (ends in /), or a text on stderr.
with() {
	effect=$1
	shift
	prepare
	of "plain$linked" "$@"
	grep -q '^secure 0$' "$work/maps" || fail "the plain program is none"
	case $effect in
	/*/) diff "$work/before" "$work/after" | grep -qF "> $evil${effect%/} " ||
		fail "$*: nothing was made in $effect even by a plain program: $(cat "$work/said")" ;;
	/*) [ -e "$evil$effect" ] || fail "$*: no $effect even in a plain program: $(cat "$work/said")" ;;
	*) grep -qF "$effect" "$work/said" || fail "$*: a plain program does not say $effect" ;;
	esac
	none "$@"
}

linked=
name=secure
use="use $work/model $work/out/copy"
uses="$use files"
with /marks/preload.so LD_PRELOAD="$evil/preload.so"
with 'hoist[' HOIST_DEBUG=all
uses="$use cuda"
with /marks/libcuda.so.1 LD_LIBRARY_PATH="$evil/path"
with /marks/a.so HOIST_CUDA_LIBRARY="$evil/a.so"
with /marks/libhoist-emulated-cuda.so HOIST_EMULATE=cuda:1 HOIST_EMULATOR_DIR="$evil/emulators"
with /report HOIST_EMULATE=cuda:1 HOIST_EMULATOR_DIR="$abs_top_builddir/emulator/.libs" \
	HOIST_EMULATE_REPORT="$evil/report"
uses="$use hip"
with /marks/libamdhip64.so.7 LD_LIBRARY_PATH="$evil/path"
with /marks/a.so HOIST_HIP_LIBRARY="$evil/a.so"
uses="$use cache"
with /run/ XDG_RUNTIME_DIR="$evil/run"
with /marks/ran HOIST_CACHE_HOLDER="$evil/bin/hoist"
"$programs/faults/secure" installed || # then $PATH is not looked at
	with /marks/ran PATH="$evil/bin:/usr/bin:/bin"
uses="$use all"
none LD_PRELOAD="$evil/preload.so" LD_LIBRARY_PATH="$evil/path" HOIST_DEBUG=all \
	HOIST_CUDA_LIBRARY="$evil/a.so" HOIST_HIP_LIBRARY="$evil/a.so" XDG_RUNTIME_DIR="$evil/run" \
	HOIST_CACHE_HOLDER="$evil/bin/hoist" PATH="$evil/bin:/usr/bin:/bin"

# The folder beside a program: the starter of the program chooses it.
uses=virtual
linked=-static
name=$evil/beside/x
with /marks/libhoist-emulated-cuda.so

# A program that becomes its own user altogether starts a program of that user's, which gets nothing.
{
	echo '#!/bin/sh'
	echo "env >$work/out/env; exit 1"
} >"$work/bin/holder"
chmod 755 "$work/bin/holder"
uses="hold $work/model $work/bin/holder"
linked=
name=secure
prepare
of plain
grep -q '^SECURE_MARKS=' "$work/out/env" || fail "the holder was not started: $(cat "$work/said")"
prepare
of setuid
[ -s "$work/out/env" ] || fail "the set-uid program's holder was not started: $(cat "$work/said")"
! grep -E '^(SECURE_MARKS|HOME|TMPDIR)=' "$work/out/env" || fail "the holder of a set-uid program has that"
count=$((count + 1))

echo "figure: secure.setuid $count runs of $ran programs: nothing loaded, run or written"
