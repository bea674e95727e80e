#!/bin/sh
# SPDX-License-Identifier: MIT
# Placement on a machine of four NUMA nodes: sets of them, one that has no processor, and the memory
# and processors that loads, saves, images and groups use: vm/four-guest.sh, in a virtual machine.
set -eu
form=${HOIST_TEST_FORM:-long}
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/sbin:/usr/sbin
command -v mkfs.ext4 >/dev/null || {
	echo "there is no mkfs.ext4 (Debian: e2fsprogs)"
	exit 77
}
echo "form=$form" | cat - "$here/four-guest.sh" >"$TMPDIR/script"
cd "$TMPDIR"
truncate -s 128M n1 n2
mkfs.ext4 -q n1
mkfs.ext4 -q n2
# A device lies where the emulated cuda:0 says that it is: on bus 0xa1, here of node 2.
exec "$here/boot" --nodes 4 --memory 256 --limit 900 --disk 1:n1 --disk 2:n2 \
	--qemu '-device pxb-pcie,id=gpu,bus_nr=160,numa_node=2,bus=pcie.0
		-device pcie-root-port,id=gpu-port,bus=gpu,chassis=90,slot=90
		-device virtio-rng-pci,bus=gpu-port' \
	"${abs_top_builddir:?}" script vm/loads vm/place vm/sets
