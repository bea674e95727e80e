# SPDX-License-Identifier: MIT
# In a machine of two nodes, as root: what vm/nodes.sh proves.  $form and $tests are set before this.
# Disk n0 holds an ext4, disk n1 a partition with an xfs; cuda:0 is on node 1, hip:0 on node 0.
failed=0
# timed COMMAND... - sets status, and tells it with the seconds that it took.
timed() {
	from=$(cut -d. -f1 /proc/uptime)
	"$@"
	status=$?
	echo "nodes: $* ended with $status after $(($(cut -d. -f1 /proc/uptime) - from)) s"
}
# run COMMAND... - a proof.
run() {
	timed "$@"
	[ $status -eq 0 ] || failed=1
}
# in_group GROUP COMMAND... - in that control group.
in_group() {
	(
		read -r self _ </proc/self/stat
		echo "$self" >"/sys/fs/cgroup/$1/cgroup.procs" || exit 1
		shift
		exec "$@"
	)
}
# disk PATH NODE - the disk of PATH is on NODE.
n_disks=0
disk() {
	run vm_stage disk "$1" "$2"
	n_disks=$((n_disks + 1))
}
# unit TEST - one of the library's own, on the disk of node 0; it may be skipped.
unit() {
	TMPDIR=/mnt/n0 timed "$1"
	case $status in
	0) n_units=$((n_units + 1)) ;;
	77) n_skipped=$((n_skipped + 1)) ;;
	*) failed=1 ;;
	esac
}

# --- the machine ---

mkdir -p /mnt/n0 /mnt/n1
partition=$(readlink -f /dev/disk/n1)p1
for node in 0 1; do
	echo 8 >/sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages
done
echo "+cpuset +hugetlb" >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/one /sys/fs/cgroup/few
echo 0 >/sys/fs/cgroup/one/cpuset.mems
echo 4M >/sys/fs/cgroup/few/hugetlb.2MB.max

# --- disks: whole, partitioned, behind others; file systems and devices ---

run vm_dm both "$partition" /dev/disk/n0
disk /dev/mapper/both -1 # of two nodes: nobody's
run vm_dm both
run vm_dm one "$partition"
run vm_dm two /dev/mapper/one # devices behind devices
disk /dev/mapper/two 1
mount -t xfs /dev/mapper/two /mnt/n1 || exit 1
disk /mnt/n1 1
hoist doctor /mnt/n1 | grep '^numa.*the disk of /mnt/n1 is on node 1' || failed=1
umount /mnt/n1
run vm_dm two
run vm_dm one
mount -t ext4 /dev/disk/n0 /mnt/n0 && mount -t xfs "$partition" /mnt/n1 || exit 1
disk /mnt/n0 0
disk /mnt/n1 1
disk "$partition" 1
disk /tmp -1
hoist doctor /mnt/n0 | grep '^numa.*the disk of /mnt/n0 is on node 0' || failed=1
[ $failed -ne 0 ] || echo "figure: disk.nodes $n_disks disks, partitions and devices behind others were found on their nodes, or on none"

# --- placement ---

n_allocs=1000000
[ "$form" = long ] || n_allocs=100000
run vm_place $n_allocs slots
TMPDIR=/mnt/n0 run vm_stage load $form
[ "$form" = short ] || TMPDIR=/mnt/n1 run vm_stage load $form
run vm_huge
run in_group few vm_huge limited
run in_group one vm_cpuset
TMPDIR=/mnt/n0 run vm_image
run vm_full
truncate -s 500M /mnt/n1/large
run vm_full cached /mnt/n1/large

# --- what the library's tests say of such a machine ---

n_units=0 n_skipped=0
for test in $tests; do
	unit $test
done
[ -z "$tests" ] || [ $n_units -gt 0 ] || {
	echo "nodes: all of these were skipped: $tests"
	failed=1
}
[ $failed -ne 0 ] || echo "figure: place.units $n_units programs of the library's own tests passed there, $n_skipped were skipped"
exit $failed
