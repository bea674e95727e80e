#!/bin/sh
# SPDX-License-Identifier: MIT
# Disks that fail, as the kernel's NVMe driver tells of it: qemu's blkdebug under disks that hold a
# model, on the sectors in which chosen bytes of chosen tensors lie.  Four disks of one machine:
#
#   n0   bytes of files cannot be read        n1   most of it cannot be written to (ext4: what
#                                                  mkfs.xfs makes so full it cannot mount)
#   n2   nothing can be flushed (long form)   n3   slow (long form)
#
# In the end some pages of a file of n0 come late, by device-mapper's delay; the others do not.
# A request of many sectors comes as commands of 512 KiB at most, of which one fails: it is torn.
# The short form is Linux 6.1 and ext4.  The long one has xfs as well, which keeps large folios in the
# page cache, of which one bad sector makes all unreadable; and Linux 5.10, whose io_uring begins a
# cached read of a bad sector again and again, unless it hands it to a thread.
set -eu
form=${HOIST_TEST_FORM:-long}
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/sbin:/usr/sbin
for tool in mkfs.ext4 mkfs.xfs; do
	command -v $tool >/dev/null || {
		echo "there is no $tool (Debian: e2fsprogs, xfsprogs)"
		exit 77
	}
done
vm_disk=$abs_top_builddir/tests/vm/disk
cd "$TMPDIR"

# make_disk FS IMAGE FOLDER MIB - an image of a file system that holds the folder's files.
make_disk() {
	rm -f "$2"
	if [ "$1" = ext4 ]; then
		truncate -s "$4M" "$2"
		mkfs.ext4 -q -b 4096 -m 0 -d "$3" "$2"
		return
	fi
	{
		printf '/\n0 0\nd--755 0 0\n'
		for file in "$3"/*; do
			echo "$(basename "$file") ---644 0 0 $file"
		done
		echo '$'
	} >"$2.files"
	truncate -s "$(($4 < 320 ? 320 : $4))M" "$2"
	mkfs.xfs -q -p "$2.files" "$2"
}

# rules TYPE ONCE <SECTORS - what blkdebug is told.
rules() {
	while read -r sector; do
		printf '[inject-error]\nevent = "none"\niotype = "%s"\nerrno = "5"\nonce = "%s"\n' \
			"$1" "$2"
		[ "$sector" = - ] || printf 'sector = "%s"\n' "$sector"
	done
}

# bad_byte FILE BYTE ONCE - of n0.
bad_byte() {
	"$vm_disk" sectors n0 "good/$1" "$2" 1 1 >sector
	rules read "$3" <sector >>n0.rules
}

stall_ms=200
# stalls IMAGE FILE FROM BYTES STEP - device-mapper's table of the disk n0, on which these pages of the
# file come late.
stalls() {
	"$vm_disk" sectors "$1" "$2" "$3" "$4" "$5" | sort -n |
		awk -v ms=$stall_ms -v end="$(($(stat -c %s "$1") / 512))" -v disk=/dev/disk/n0 '
			function line(from, to, how, more) {
				if (to > from)
					print from + 0, to - from, how, disk, from + 0 more
			}
			{
				page = $1 - $1 % 8
				line(at, page, "linear", "")
				at = page + 8
				line(page, at, "delay", " " ms)
			}
			END { line(at, end, "linear", "") }'
}

debug() {
	echo "file.driver=blkdebug,file.config=$1.rules,file.image.driver=file,file.image.filename=$1"
}

# A seed each, so that no page of one file is in another.
seed=0
for name in good middle gap rows last header once; do
	mkdir -p good
	"$vm_disk" make "good/$name" $seed
	seed=$((seed + 1))
done
mkdir -p old
"$vm_disk" make old/old.safetensors 1

# boot KERNEL FS - the disks, anew, and the machine; adds to the counts.
boot() {
	n_boots=$((n_boots + 1))
	rm -f n*.rules
	make_disk "$2" n0 good 80
	places=
	for at in middle:100000 gap:2000 rows:1334720 last:1480000; do
		tensor=${at%:*}
		place=$("$vm_disk" place "good/$tensor" "$tensor" "${at#*:}")
		bad_byte "$tensor" "$place" off
		places="$places $tensor:$place"
	done
	bad_byte header 100 off
	bad_byte once 1000000 on
	reserved=28
	mkdir -p old
	"$vm_disk" reserve old/reserved $reserved
	make_disk ext4 n1 old $((reserved + 12))
	"$vm_disk" sectors n1 old/reserved 0 $((reserved << 20)) 65536 | rules write off >n1.rules
	rm old/reserved
	stalls="100000 4400000 1048576"
	[ "$form" = short ] || stalls="100000 4400000 262144"
	# shellcheck disable=SC2086
	stalls n0 good/good $stalls >stalls
	set -- "$@" --disk "0:n0:$(debug n0)" --disk "1:n1:$(debug n1)" --module dm-mod \
		--module dm-delay --file "$TMPDIR/stalls:stalls"
	nodes=2
	if [ "$form" = long ]; then
		make_disk "$2" n2 old 40
		make_disk "$2" n3 old 40
		echo - | rules flush off >n2.rules
		nodes=4
		set -- "$@" --disk "2:n2:$(debug n2)" --disk "3:n3:file.driver=throttle,file.throttle-group=slow,file.file.driver=file,file.file.filename=n3" \
			--qemu "-object throttle-group,id=slow,x-bps-read=1500000"
	fi
	{
		echo "form=$form fs=$2 places='$places' stalls='$stall_ms $stalls'"
		cat "$here/disk-guest.sh"
	} >script
	kernel=$1
	shift 2
	status=0
	"$here/boot" --kernel "$kernel" --nodes $nodes --memory $((1024 / nodes)) --limit 900 "$@" \
		"$abs_top_builddir" script vm/disk vm/dm hoist >log || status=$?
	grep -v 'aio failed' log || :
	[ $status -eq 0 ] || exit $status
	grep '^counted: ' log >>counts
	sed -n "s/^stalls: /& $(grep -c delay stalls) /p" log >>stall-counts
}

: >counts
: >stall-counts
n_boots=0
boot 6.1 ext4
if [ "$form" = long ]; then
	boot 6.1 xfs
	boot 5.10 ext4
fi
awk -v boots=$n_boots '
	{ named += $3; ended += $5; whole += $7 }
	END {
		print "figure: disk.named " named " failures that named file, byte and tensor"
		print "figure: disk.ended " ended " other ends: the header and fsync, whose failures named the file; loads that were cancelled and said so"
		print "figure: disk.whole " whole " loads after a failure or beside a bad sector, compared"
		print "figure: disk.machines " boots " machines with failing NVMe disks"
	}' counts
awk -v ms=$stall_ms '
	{ pages = $2; n += $3; longest = $4 > longest ? $4 : longest }
	END {
		print "figure: disk.stalls " n " loads and saves of a file of which " pages \
			" pages come " ms " ms late, compared; the longest took " longest " ms"
		exit n == 0
	}' stall-counts
