#!/bin/busybox sh
# SPDX-License-Identifier: MIT
# Within the guest: what the command and the programs do on this kernel.  The words of what is
# expected, one setting a line, are at /source/expect.
set -u
. /source/expect
export HOIST_EMULATE=cuda:2 XDG_RUNTIME_DIR=/run
out=/tmp/out err=/tmp/err n_done=0 n_reasons=0

fail() {
	echo "FAIL: Linux $(uname -r): $*"
	cat "$out" "$err"
	exit 1
}

does() {
	"$@" >$out 2>$err </dev/null || fail "$*: status $?"
	n_done=$((n_done + 1))
}

says() {
	grep -qF -e "$1" $out || fail "\"$1\" is not there"
	n_reasons=$((n_reasons + 1))
}

digests() {
	does hoist digest "$@" /mnt/all
	cmp -s $out /tmp/expected || fail "digest $*: other bytes"
}

# tests PROGRAM... - unit tests; those that skip say why.
tests() {
	for test in "$@"; do
		(cd /tmp && timeout 600 "$test") >$out 2>&1 </dev/null
		status=$?
		case $status in
		0) n_done=$((n_done + 1)) ;;
		77) echo "$test: $(tail -n 1 $out)" ;;
		*)
			: >$err
			fail "$test: status $status: $(tail -n 15 $out)"
			;;
		esac
		echo "$test: $(cut -d ' ' -f 1 /proc/uptime) s"
	done
}

mount -t ext4 /dev/disk/n0 /mnt || exit 1
mkcheckpoint --bytes 3M --shards 2 --dtypes all --odd /mnt/all >/dev/null || exit 1
refdigest /mnt/all >/tmp/expected
mkdir -m 777 /mnt/out
sync

# --- io_uring switched off ---

for value in $uring_disabled; do
	echo "$value" >/proc/sys/kernel/io_uring_disabled || fail "kernel.io_uring_disabled"
	does hoist load -v --io direct /mnt/all
	[ "$value" -eq 1 ] || says 'io_uring refused: EPERM (seccomp or kernel.io_uring_disabled)'
	does faults_jail user -- /bin/hoist load -v --io direct /mnt/all
	says 'io_uring refused: EPERM (seccomp or kernel.io_uring_disabled)'
	does faults_jail user -- /bin/hoist doctor /mnt/all
	says 'set sysctl kernel.io_uring_disabled=0'
	does faults_jail user -- /bin/faults_locked /mnt/all /mnt/out
	echo 0 >/proc/sys/kernel/io_uring_disabled
done

if [ -n "$uring_only" ]; then
	echo "kernel: $n_done $n_reasons"
	exit 0
fi

# --- what doctor says, and loads do ---

does hoist doctor /mnt/all
cat $out
echo "$doctor" | while read -r words; do says "$words"; done || exit 1
n_reasons=$((n_reasons + $(echo "$doctor" | wc -l)))
echo 3 >/proc/sys/vm/drop_caches
does hoist load -v --io direct /mnt/all
cat $out
echo "$load" | while read -r words; do says "$words"; done || exit 1
does hoist load --io map --populate /mnt/all
digests
digests --io cached --engine threads
digests --io map
digests --device cuda:0
does hoist load --device cuda:0 --replica cuda:1 /mnt/all
does hoist cp /mnt/all /mnt/copy.safetensors
does hoist digest /mnt/copy.safetensors
[ "$(sort -k 2 $out)" = "$(sort -k 2 /tmp/expected)" ] || fail "cp: other bytes"
does hoist cp /mnt/all /tmp/copy.safetensors
does hoist cache add /mnt/all
does hoist load --cache --device cuda:0 /mnt/all
does hoist cache drop --all

# --- the public functions, as root and as nobody ---

does faults_locked /mnt/all /mnt/out
n_done=$((n_done + $(grep -c ' done' $out)))
does faults_jail user memlock=65536 -- /bin/faults_locked --may 'pinned=ulimit -l' \
	/mnt/all /mnt/out
n_done=$((n_done + $(grep -c ' done' $out)))

# --- a control group of little memory ---

group=/sys/fs/cgroup/little
echo +memory >/sys/fs/cgroup/cgroup.subtree_control && mkdir $group || fail "no control group"
echo 33554432 >$group/memory.max
echo 0 >$group/memory.swap.max 2>/dev/null
mkcheckpoint --bytes 48M --tensors 6 /mnt/large >/dev/null || exit 1
for words in "load /mnt/large" "cache add /mnt/large"; do
	# shellcheck disable=SC2086
	faults_jail cgroup=$group -- /bin/hoist $words >$out 2>$err </dev/null
	[ $? -eq 1 ] || fail "$words: it is not refused"
	grep -q 'the control group /little has .* left of the 32 MiB' $err || fail "$words: no figures"
	n_reasons=$((n_reasons + 1))
done
does faults_jail cgroup=$group -- /bin/hoist cp /mnt/large /mnt/large.safetensors
grep -q '^oom_kill 0$' $group/memory.events || fail "the kernel killed for want of memory"

# shellcheck disable=SC2086
tests $unit_tests
echo "kernel: $n_done $n_reasons"
