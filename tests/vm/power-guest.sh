# SPDX-License-Identifier: MIT
# In a machine, as root: disks that have lost their power, one behind the other on n0, which the
# kernel mounts as it finds them.  $fs is set before this; /source/marks says where they are.
failed=0
dmesg -n 1
mkdir -p /mnt/lost
while read -r offset mark point; do
	losetup -o "$offset" /dev/loop0 /dev/disk/n0 || exit 1
	if mount -t $fs /dev/loop0 /mnt/lost && found=$(vm_power check /mnt/lost "$mark"); then
		echo "found: $found"
	else
		echo "power: after entry $point, mark $mark"
		ls -lA /mnt/lost
		failed=1
	fi
	umount /mnt/lost
	losetup -d /dev/loop0
done </source/marks
exit $failed
