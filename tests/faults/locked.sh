#!/bin/sh
# SPDX-License-Identifier: MIT
# Hoist where the system gives it less: containers' seccomp profiles, resource limits, a
# control group with little memory, no /proc, a read-only root.  In each of them the command and a
# program on the public functions (faults/locked) do the same things; each falls back and says why,
# or refuses with an error that names what to change.  Nothing crashes, hangs or gives a wrong byte,
# and the program leaves no descriptor, thread, map of a file or byte of a budget behind.  Profiles
# that kill instead of refusing are no subject: see faults/seccomp.h.
# shellcheck source=tests/tools/support.sh
. "${srcdir:-.}/tools/support.sh"
jail=$HOIST_TEST_PROGRAMS/faults/jail
long=false
[ "${HOIST_TEST_FORM:-long}" = short ] || long=true

# The programs themselves and not libtool's scripts, which write to the build folder, in a folder
# that everybody may read.
case ${HOIST_TEST_SANITIZERS-} in
'') ;;
*)
	echo "skipped: a sanitizer needs more memory, threads and files than is left here"
	exit 77
	;;
esac
chmod 755 "$work"
public=$(mktemp -d /tmp/hoist-locked.XXXXXX) || exit 99
group=
leave_group() {
	[ -n "$group" ] || return 0
	# Every process that is left in the group was started here.
	while read -r pid; do
		[ "$pid" -le 1 ] || kill -KILL "$pid" 2>/dev/null
	done <"$group/cgroup.procs"
	for i in 1 2 3 4 5 6 7 8 9 10; do
		rmdir "$group" 2>/dev/null && break
		sleep 0.2
	done
	group=
}

finish() {
	leave_group
	rm -rf "$work" "$public"
}
trap finish EXIT
chmod 755 "$public"
mkdir "$public/emulator" "$public/lib" "$public/data"
for program in "$abs_top_builddir/tools/hoist" "$HOIST_TEST_PROGRAMS/faults/locked"; do
	name=$(basename "$program")
	real=$(dirname "$program")/.libs/$name
	[ -x "$real" ] || real=$program
	cp "$real" "$public/$name" || exit 99
done
cp -L "$abs_top_builddir"/lib/.libs/libhoist.so* "$public/lib/"
cp -L "$HOIST_EMULATOR_DIR"/libhoist-emulated-*.so "$public/emulator/"
mkcheckpoint --bytes 9M --shards 3 --dtypes all --odd "$public/data/all"
mkcheckpoint --bytes 40M --tensors 20 "$public/data/big"
mkcheckpoint --bytes 2M --tensors 200 --shards 100 "$public/data/shards"
refdigest "$public/data/all" >"$work/expected"
chmod -R a+rX "$public"
LD_LIBRARY_PATH=$public/lib HOIST_EMULATOR_DIR=$public/emulator HOIST_EMULATE=cuda:2
HOIST_CACHE_HOLDER=$public/hoist
export LD_LIBRARY_PATH HOIST_EMULATOR_DIR HOIST_EMULATE HOIST_CACHE_HOLDER
all=$public/data/all big=$public/data/big shards=$public/data/shards

n_places=0 n_programs=0 n_done=0 n_refused=0 n_fallbacks=0 skipped=

# place NAME WORD... - what follows runs in that jail; false, with the reason, if it cannot be had
# here (77: the jail knows that it is forbidden, and says by whom).  A jail that fails is none.
place() {
	where=$1
	shift
	words=$*
	home=$public/home-$where
	rm -rf "$home"
	mkdir -p "$home/run" "$home/out"
	chmod 700 "$home/run"
	owner=
	case " $words " in
	*' user '*) owner=65531 ;;
	*' user='*) owner=${words#*user=} owner=${owner%% *} ;;
	esac
	[ -z "$owner" ] || [ "$(id -u)" -ne 0 ] || chown -R "$owner:$owner" "$home"
	XDG_RUNTIME_DIR=$home/run
	export XDG_RUNTIME_DIR
	jailed true >"$out" 2>&1
	status=$?
	case $status in
	0) n_places=$((n_places + 1)) ;;
	77)
		echo "$where: $(cat "$out")"
		skipped="$skipped $where"
		return 1
		;;
	*) fail "$where: a program that does nothing ended with $status: $(cat "$out")" ;;
	esac
}

jailed() {
	program=$1
	shift
	case $program in
	true) program=/bin/true ;;
	*) program=$public/$program ;;
	esac
	# shellcheck disable=SC2086
	timeout -s KILL 60 "$jail" $words -- "$program" "$@"
}

# does ARGUMENT... - the command does that.
does() {
	jailed hoist "$@" >"$out" 2>"$err" </dev/null || fail "$where: hoist $*: status $?: $(cat "$err")"
	n_done=$((n_done + 1))
}

# refuses WORDS ARGUMENT... - the command does not do that, and its one line has the words.
refuses() {
	wanted=$1
	shift
	jailed hoist "$@" >"$out" 2>"$err" </dev/null
	status=$?
	[ $status -eq 1 ] || fail "$where: hoist $*: status $status, not 1: $(cat "$out" "$err")"
	one_line "$wanted"
	n_refused=$((n_refused + 1))
}

# says WORDS - what the command wrote has them.
says() {
	grep -qF -e "$1" "$out" || fail "$where: \"$1\" is not in: $(cat "$out")"
	n_fallbacks=$((n_fallbacks + 1))
}

digests() {
	does digest "$@" "$all"
	cmp -s "$out" "$work/expected" || fail "$where: digest $*: other bytes"
}

# program [--may NAME=WORDS]... - the program on the public functions.
program() {
	jailed locked "$@" "$all" "$home/out" >"$out" 2>"$err"
	status=$?
	[ $status -eq 0 ] || fail "$where: the program: status $status: $(cat "$out" "$err")"
	[ -z "$(find "$home/out" -type f)" ] || fail "$where: left behind: $(ls -a "$home/out")"
	counted=' threads, .* of the budget$'
	[ "$where" != noproc ] || counted='(no /proc to count more)$'
	grep -q "^held as before: .*$counted" "$out" || fail "$where: not counted: $(cat "$out")"
	n_programs=$((n_programs + 1))
	n_done=$((n_done + $(grep -c ' done' "$out")))
	n_refused=$((n_refused + $(grep -c ' refused: ' "$out")))
}

loads() {
	digests
	digests --io direct
	digests --io cached --engine threads
	digests --io map
	does load -v --io map --populate "$all"
	digests --device cuda:0
	does load -v --device cuda:0 --replica cuda:1 "$all"
}

copies() {
	does cp "$all" "$home/copy.safetensors"
	does digest "$home/copy.safetensors"
	[ "$(sort -k 2 "$out")" = "$(sort -k 2 "$work/expected")" ] || fail "$where: cp: other bytes"
}

caches() {
	does cache add "$all"
	does load -v --cache "$all"
	does load -v --cache --device cuda:0 "$all"
	does cache drop --all
}

doctor() {
	jailed hoist doctor "$all" >"$out" 2>"$err" || fail "$where: doctor: $(cat "$err")"
	n_done=$((n_done + 1))
}

# --- containers ---

if place docker docker; then
	doctor
	says 'io_uring refused: EPERM'
	loads
	does load -v --io direct "$all"
	says 'io_uring refused: EPERM'
	copies
	caches
	does bench --quick io "$big/model.safetensors"
	program
fi
if place docker-user docker user nodev; then
	doctor
	# The files are another user's.
	[ "$(id -u)" -ne 0 ] || says 'cachestat, which counts, is refused: '
	$long && loads && copies
	caches
	program
fi
if place older older; then
	doctor
	says 'allow statx'
	$long && loads && copies
	does load -v --io direct "$all"
	says 'io_uring refused: EPERM'
	refuses 'allow it in the container' cache add "$all"
	program --may 'share=allow it in the container'
fi
if place sandbox sandbox nodev; then
	doctor
	says 'io_uring refused: ENOSYS'
	says 'does not say which bytes of a file are in memory'
	$long && loads && copies
	does cache add "$all"
	does load -v --cache "$all"
	does cache drop --all
	program
fi

# --- limits ---

if place memlock user memlock=65536; then
	doctor
	says 'RLIMIT_MEMLOCK is 64 KiB'
	does load -v --io direct --device cuda:0 "$all"
	says 'buffers not registered: ENOMEM (RLIMIT_MEMLOCK)'
	$long && loads && copies && caches
	program --may 'pinned=ulimit -l'
fi
if place files nofile=32; then
	doctor
	$long && loads && copies
	caches
	refuses 'ulimit -n' load "$shards"
	grep -q 'RLIMIT_NOFILE is 32' "$err" || fail "$where: no figures: $(cat "$err")"
	$long && refuses 'ulimit -n' cp "$shards" "$home/copy.safetensors"
	program
fi
if $long && place few-files nofile=9; then
	doctor
	does load -v "$big"
	does load -v "$all"
	says 'too few descriptors: raise ulimit -n'
	digests
	refuses 'ulimit -n' load "$shards"
	refuses 'ulimit -n' cache add "$all"
fi
if place many-files nofile=130; then
	does load -v --io direct "$shards"
	says 'too few descriptors: raise ulimit -n'
	$long && does load -v --device cuda:0 "$shards"
	program
fi
if place addresses as=30000000; then
	doctor
	does load -v --io direct "$all"
	$long && digests --io map
	refuses 'ulimit -v' load "$big"
	refuses 'ulimit -v' load --device cuda:0 "$all"
	refuses 'ulimit -v' cp "$big" "$home/copy.safetensors"
	refuses 'ulimit -v' cache add "$big"
fi
if $long && place more-addresses as=150000000; then
	# How much of it a thread's heap takes is the C library's to choose.
	set --
	for scenario in eager direct cached threads map map-populate device \
		save share pinned placed streams; do
		for text in 'ulimit -v' 'Cannot allocate memory' 'memory is exhausted'; do
			set -- "$@" --may "$scenario=$text"
		done
	done
	program "$@"
fi
# The kernel counts the processes of the user: no other process, nor another run of this test, may
# be this user.
alone=$((20000 + $$ % 40000))
if place processes user=$alone nproc=1; then
	doctor
	digests
	does load -v --io cached --engine uring "$all"
	says 'ulimit -u'
	refuses 'ulimit -u' load --io map --populate "$all"
	refuses 'ulimit -u' load --engine threads "$all"
	refuses 'ulimit -u' cp "$all" "$home/copy.safetensors"
	refuses 'starting the cache' cache add "$all"
	set --
	for scenario in eager cached threads map map-populate save; do
		set -- "$@" --may "$scenario=ulimit -u"
	done
	program "$@" --may 'streams=ulimit -u' --may device=OUT_OF_MEMORY --may streams=OUT_OF_MEMORY
fi
# Two threads are enough.  The kernel counts three more while it takes those that have ended apart: a
# stream's of the emulator, which nobody joins, and workers of io_uring.
if place few-processes user=$alone nproc=6; then
	does load -v --device cuda:0 "$all"
	digests --io cached --device cuda:0
	copies
fi
if place lengths fsize=100000; then
	doctor
	refuses 'ulimit -f' cp "$all" "$home/copy.safetensors"
	refuses 'ulimit -f' cache add "$all"
	$long && loads
	program --may 'save=ulimit -f' --may 'share=ulimit -f'
fi
if place stack user stack=65536; then
	caches
	$long && doctor && loads && copies
	program
fi

# --- what is mounted ---

if place noproc noproc; then
	doctor
	says 'mount /proc'
	loads
	does load -v --io direct "$all"
	says '/proc is not mounted'
	copies
	refuses 'mount /proc' cache add "$all"
	program
fi
if place nodev nodev; then
	$long && doctor && loads && copies && caches
	program
fi
if place readonly readonly; then
	doctor
	$long && loads
	refuses 'Read-only file system' cp "$all" "$home/copy.safetensors"
	refuses 'Read-only file system' cache add "$all"
	program --may 'save=Read-only file system'
fi

# --- little memory ---

# make_group BYTES - a control group of that much memory, by either hierarchy.
make_group() {
	for folder in /sys/fs/cgroup/memory /sys/fs/cgroup; do
		limit=memory.limit_in_bytes
		[ -e "$folder/cgroup.controllers" ] && limit=memory.max
		mkdir "$folder/hoist-locked.$$" 2>/dev/null || continue
		group=$folder/hoist-locked.$$
		echo "$1" 2>/dev/null >"$group/$limit" && return 0
		leave_group
	done
	echo "group: skipped: no control group can be made here"
	skipped="$skipped group"
	return 1
}

if make_group 67108864 && place group "cgroup=$group"; then
	mkcheckpoint --bytes 100M --tensors 20 "$public/data/large"
	large=$public/data/large
	doctor
	says 'this control group may use 64 MiB'
	$long && loads
	refuses 'memory limit' load "$large"
	refuses 'memory limit' cache add "$large"
	does load -v --io map --populate "$large"
	does cp "$large" "$home/copy.safetensors"
	$long && does load -v --io direct "$big"
	does cache list
	says '0 in 0 images'
	caches
	program
	killed=$(sed -n 's/^oom_kill //p' "$group/memory.oom_control" "$group/memory.events" 2>/dev/null)
	[ "$killed" = 0 ] || fail "the kernel ended $killed processes for want of memory"
fi

[ "$n_places" -gt 0 ] || exit 77
echo "figure: locked.places $n_places ways to be locked up${skipped:+, skipped:$skipped}"
echo "figure: locked.scenarios $((n_done + n_refused)) scenarios, $n_done done, $n_refused refused with the" \
	"remedy; $n_programs programs left no descriptor, thread, map of a file or byte of a budget"
echo "figure: locked.reasons $n_fallbacks reasons looked for and found"
