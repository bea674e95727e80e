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
for disk in n1 n2; do
	mkdir -p /mnt/$disk
	mount -t ext4 /dev/disk/$disk /mnt/$disk || exit 1
done
# The kernel names no node of a page that its balancing watches, and may move the page.
echo 0 >/proc/sys/kernel/numa_balancing || failed=1
TMPDIR=/mnt/n1 run vm_loads
TMPDIR=/mnt/n2 run vm_loads devices
echo 0 >/sys/devices/system/cpu/cpu6/online && echo 0 >/sys/devices/system/cpu/cpu7/online || failed=1
run vm_sets bare 3
exit $failed
