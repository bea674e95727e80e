#!/bin/sh
# SPDX-License-Identifier: MIT
# Saves on a disk that loses its power.  A machine saves to a disk until qemu is killed; all that
# reached the disk, in its order, is in a log that qemu's blklogwrites made.  (The disk is a virtio
# one: for qemu's NVMe disks a FUA write is like any other, and the log does not tell them apart.)
# From the log the disk is made again as it may be found if power had gone at any other moment, and
# looked at: after e2fsck has replayed ext4's journal, and in a second machine, whose kernel replays
# ext4's or xfs's.
#
# The disk loses all writes since the last flush that had ended, or a random part of them, down to
# pages of 4 KiB, in any order; at any moment, also within the kernel's own writes.  (Killing qemu
# alone would lose little: qemu has its writes in the page cache.)  The disk keeps writes that had
# ended before a flush ended, though a write that the kernel had not waited for before it flushed
# might be lost; and whole pages, which are old or new.
#
# The file that is saved over is the old one or the new one, whole to the last byte, and the new
# one once the save has said so; each shard is, too, and an index names nothing that is not there.
set -eu
form=${HOIST_TEST_FORM:-long}
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/sbin:/usr/sbin
for tool in mkfs.ext4 mkfs.xfs e2fsck debugfs; do
	command -v $tool >/dev/null || {
		echo "there is no $tool (Debian: e2fsprogs, xfsprogs)"
		exit 77
	}
done
vm_disk=$abs_top_builddir/tests/vm/disk
vm_power=$abs_top_builddir/tests/vm/power
cd "$TMPDIR"
mark_bytes=4096 # behind the file system

# --- the machine that is killed ---

make_base() {
	rm -rf base old
	mkdir old
	"$vm_disk" make old/one.safetensors 1
	if [ "$1" = ext4 ]; then
		truncate -s 48M base
		mkfs.ext4 -q -b 4096 -m 0 -J size=4 -E lazy_itable_init=0,lazy_journal_init=0 \
			-d old base
	else
		truncate -s 320M base
		printf '/\n0 0\nd--755 0 0\none.safetensors ---644 0 0 old/one.safetensors\n$\n' >files
		mkfs.xfs -q -p files base
	fi
	truncate -s "+$mark_bytes" base
}

# record KERNEL FS - base: the disk before; log: what was written to it.
record() {
	make_base "$2"
	cp --sparse=always base n0
	rm -f log
	truncate -s 4096 log
	echo "mkdir -p /mnt/lost && mount -t $2 /dev/vda /mnt/lost &&
		vm_power run /mnt/lost /dev/vda" >script
	# Merged requests may have more parts than blklogwrites can pass on with its own.
	"$here/boot" --kernel "$1" --nodes 1 --limit 600 --kill-on "power: $n_saves saves" --module virtio_blk \
		--qemu "-blockdev driver=raw,node-name=vd,file.driver=blklogwrites,file.log-sector-size=512,file.file.driver=file,file.file.filename=n0,file.log.driver=file,file.log.filename=log
			-device virtio-blk-pci,drive=vd,bus=pcie.0,request-merging=off" \
		"$abs_top_builddir" script vm/power
	rm n0
	"$vm_power" points log >points
	n_points=$(wc -l <points)
	echo "power: $1 $2: $n_points moments until it was killed"
	[ "$n_points" -ge 60 ] || exit 1
}

# --- what is found ---

# look POINT HOW - at the ext4, as it is after e2fsck.
look() {
	mark=$("$vm_power" image log base disk "$1" "$2")
	status=0
	e2fsck -fp disk >fsck 2>&1 || status=$?
	[ $status -le 1 ] && e2fsck -fn disk >>fsck 2>&1 || {
		echo "power: after entry $1 ($2), mark $mark: e2fsck: $status"
		cat fsck
		exit 1
	}
	rm -rf found
	mkdir found
	debugfs -R "rdump / found" disk >rdump 2>&1
	"$vm_power" check found "$mark" >>found-states || {
		echo "power: after entry $1 ($2), mark $mark"
		ls -lA found
		exit 1
	}
}

# by_e2fsck POINTS - so many moments, and those at which a save has ended and has not said so.
by_e2fsck() {
	i=0
	while [ $i -lt "$1" ]; do
		look "$(sed -n $((i * n_points / $1 + 1))p points)" $((i % 4))
		i=$((i + 1))
	done
	"$vm_power" ends log base >ends
	while read -r point; do
		look "$point" 1
	done <ends
}

# by_kernel KERNEL FS DISKS - so many of them, one behind the other.
by_kernel() {
	rm -f disks marks
	bytes=$(($(stat -c %s base) / 1048576 * 1048576 + 1048576))
	i=0
	while [ $i -lt "$3" ]; do
		point=$(sed -n $((n_points * (2 * i + 1) / (2 * $3) + 1))p points)
		mark=$("$vm_power" image log base disk $point $((i % 3 + 1)))
		dd if=disk of=disks bs=1M seek=$((i * bytes / 1048576)) conv=notrunc,sparse status=none
		echo "$((i * bytes)) $mark $point" >>marks
		i=$((i + 1))
	done
	truncate -s $(($3 * bytes)) disks
	{
		echo "fs=$2"
		cat "$here/power-guest.sh"
	} >script
	"$here/boot" --kernel "$1" --nodes 1 --limit 900 --disk 0:disks --module loop \
		--file "$TMPDIR/marks:marks" "$abs_top_builddir" script vm/power >guest || {
		cat guest
		exit 1
	}
	grep '^found: ' guest | sed 's/^found: //' >>found-states
}

: >found-states
n_saves=6
if [ "$form" = short ]; then
	record 6.1 ext4
	by_e2fsck 40
	by_kernel 6.1 ext4 4
else
	n_saves=20
	for kernel in 6.1 6.12; do
		record $kernel ext4
		by_e2fsck 500
		by_kernel $kernel ext4 12
		record $kernel xfs
		by_kernel $kernel xfs 12
	done
fi
awk -v form="$form" '
	{ n[$1]++; if ($2 > 0 && $2 < 3) mixed++ }
	END {
		print "figure: power.losses " NR " moments at which power was lost, all survived"
		print "figure: power.old " n["old"] + 0 " times the old file was there, whole"
		print "figure: power.new " n["new"] + 0 " times the new one, whole, before the save had told so"
		print "figure: power.mixed " mixed + 0 " times shards of two saves, each whole"
		if (form == "long" && mixed + 0 == 0) {
			print "power: a save of shards should have been met in its middle"
			exit 1
		}
		if (n["old"] == 0 || n["new"] == 0) {
			print "power: both the old file and the new one should have been met"
			exit 1
		}
	}' found-states
