#!/bin/sh
# SPDX-License-Identifier: MIT
# Placement on a machine that has two NUMA nodes, with a disk on each, as move_pages(2) tells it:
# vm/nodes-guest.sh, in a virtual machine.
set -eu
form=${HOIST_TEST_FORM:-long}
here=$(cd "$(dirname "$0")" && pwd)
for tool in mkfs.ext4 mkfs.xfs; do
	PATH=$PATH:/sbin:/usr/sbin
	command -v $tool >/dev/null || {
		echo "there is no $tool (Debian: e2fsprogs, xfsprogs)"
		exit 77
	}
done

# n0 is an ext4; n1 has a partition from its second MiB on, with an xfs.
cd "$TMPDIR"
truncate -s 320M n0 xfs
mkfs.ext4 -q n0
mkfs.xfs -q xfs
truncate -s 322M n1
dd if=xfs of=n1 bs=1M seek=1 conv=notrunc,sparse status=none
rm xfs
# Its type is 0x83; it begins at sector 2048 (0x800) and has 655360 (0xa0000).
printf '\0\0\0\0\203\0\0\0\0\010\0\0\0\0\012\0' | dd of=n1 bs=1 seek=446 conv=notrunc status=none
printf '\125\252' | dd of=n1 bs=1 seek=510 conv=notrunc status=none

programs="vm/place vm/stage vm/huge vm/cpuset vm/image vm/full vm/dm hoist"
tests="numa/unit alloc/unit io/staging_ways"
[ "$form" = short ] || tests="$tests alloc/threads alloc/model alloc/exhaust
	alloc/budget_threads io/unit io/threads lib/load/paths lib/load/behaviour lib/load/model"
# Those on Criterion are not built everywhere.
built=
for test in $tests; do
	if [ -x "$abs_top_builddir/tests/$test" ]; then
		built="$built $test"
	else
		echo "$test: not built, so not run there"
	fi
done
echo "form=$form tests='$(echo "$built" | tr / _)'" | cat - "$here/nodes-guest.sh" >script
# A device lies where the emulated cuda:0 says that it is: on bus 0xa1, of node 1.  Where hip:0
# is, 0x21, is node 0's disk.
# shellcheck disable=SC2086
exec "$here/boot" --limit 1500 --disk 0:n0 --disk 1:n1 --module dm-mod --file tests/sysfs \
	--qemu '-device pxb-pcie,id=gpu,bus_nr=160,numa_node=1,bus=pcie.0
		-device pcie-root-port,id=gpu-port,bus=gpu,chassis=90,slot=90
		-device virtio-rng-pci,bus=gpu-port' \
	"$abs_top_builddir" script $programs $built
