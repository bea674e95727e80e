#!/bin/sh
# SPDX-License-Identifier: MIT
# disks.sh BUILD [FOLDER FOLDER] - is a checkpoint with a shard on each of two disks read from both at
# the same time?  BUILD is the build folder.
#
# The two folders lie on two disks.  Without them, root gets two loop devices of files in $TMPDIR,
# whose reads a control group limits to RATE bytes a second each (256 MB).  BYTES (512M) is the
# checkpoint's size, RUNS (7) how often each load is measured.  What is made here goes at the end.
set -eu
case $# in
1 | 3) ;;
*)
	sed -n 's/^# \(disks.sh [^-]*\) - .*/usage: \1/p' "$0" >&2
	exit 2
	;;
esac
build=$(cd "$1" && pwd)
rate=${RATE:-256000000}
here=$(mktemp -d "${TMPDIR:-/tmp}/hoist-disks.XXXXXX")
group=
cleanup() {
	for k in 1 2; do
		[ ! -d "$here/$k" ] || umount "$here/$k"
		[ ! -e "$here/loop$k" ] || losetup -d "$(cat "$here/loop$k")"
	done
	if [ -n "$group" ]; then
		while read -r pid; do
			echo "$pid" >"$(dirname "$group")/cgroup.procs" || true
		done <"$group/cgroup.procs"
		rmdir "$group" || true
	fi
	rm -rf "$here"
	[ -z "${one-}" ] || rm -rf "$one" "$two"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# limit DEVICE - RATE bytes a second for reads by this process and its children.
limit() {
	number=$(($(stat -c 0x%t "$1"))):$(($(stat -c 0x%T "$1")))
	if [ -e /sys/fs/cgroup/blkio/blkio.throttle.read_bps_device ]; then
		group=/sys/fs/cgroup/blkio/hoist-disks-$$
		mkdir -p "$group"
		echo "$number $rate" >"$group/blkio.throttle.read_bps_device"
	else
		group=/sys/fs/cgroup/hoist-disks-$$
		mkdir -p "$group"
		echo +io >/sys/fs/cgroup/cgroup.subtree_control
		echo "$number rbps=$rate" >"$group/io.max"
	fi
}

bytes=${BYTES:-512M}
"$build/tests/mkcheckpoint" --bytes "$bytes" --shards 2 "$here/both"
set -- "${2-}" "${3-}" "$here"/both/*.safetensors
if [ -z "$1" ]; then
	for k in 1 2; do
		shard=$3
		[ $k = 1 ] || shard=$4
		truncate -s $(($(stat -c %s "$shard") / 4096 * 4096 + 67108864)) "$here/image$k"
		mkfs.ext4 -q "$here/image$k"
		losetup -f --show "$here/image$k" >"$here/loop$k"
		mkdir "$here/$k"
		mount "$(cat "$here/loop$k")" "$here/$k"
		limit "$(cat "$here/loop$k")"
	done
	set -- "$here/1" "$here/2" "$3" "$4"
fi
one=$(mktemp -d "$1/hoist.XXXXXX")
two=$(mktemp -d "$2/hoist.XXXXXX")
mv "$3" "$one/one.safetensors"
mv "$4" "$two/two.safetensors"
ln -s "$one/one.safetensors" "$3"
ln -s "$two/two.safetensors" "$4"
sync
[ -z "$group" ] || echo $$ >"$group/cgroup.procs"
"$build/run" "$build/bench/disks" --runs "${RUNS:-7}" "$here"/both/*.index.json \
	"$one/one.safetensors" "$two/two.safetensors"
