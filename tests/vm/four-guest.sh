# SPDX-License-Identifier: MIT
# In a machine of four nodes, of which node 3 gets no processor: what vm/four.sh proves.  $form is
# set before this.
failed=0
run() {
	"$@" || {
		echo "four: $* ended with $?"
		failed=1
	}
}
n_allocs=400000
[ "$form" = long ] || n_allocs=20000
run vm_place $n_allocs
run vm_sets
mkdir -p /mnt/n1
mount -t ext4 /dev/disk/n1 /mnt/n1 || exit 1
# The kernel names no node of a page that its balancing watches, and may move the page.
echo 0 >/proc/sys/kernel/numa_balancing || failed=1
TMPDIR=/mnt/n1 run vm_loads
echo 0 >/sys/devices/system/cpu/cpu6/online && echo 0 >/sys/devices/system/cpu/cpu7/online || failed=1
run vm_sets bare 3
exit $failed
