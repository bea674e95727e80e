# SPDX-License-Identifier: MIT
# In a machine of disks that fail, as root: what vm/disk.sh proves.  Set before this: $form, $fs,
# $places, TENSOR:BYTE of the files of that name on n0, and $stalls, what comes late there.
failed=0
export HOIST_TEST_FORM=$form
# run SECONDS COMMAND... - it ends in time, with 0.
run() {
	limit=$1
	shift
	from=$(cut -d. -f1 /proc/uptime)
	timeout -s KILL "$limit" "$@"
	status=$?
	echo "disk: $* ended with $status after $(($(cut -d. -f1 /proc/uptime) - from)) s"
	[ $status -eq 0 ] || failed=1
}
# says TEXT... - the command failed, and its message has all of these.
says() {
	for text; do
		grep -qF "$text" /tmp/said || {
			echo "disk: it does not say '$text': $(cat /tmp/said)"
			failed=1
		}
	done
}
dmesg -n 1 # what the kernel says of each bad sector is much
for disk in 0 1 2 3; do
	mkdir -p /mnt/n$disk
done
mount -t $fs /dev/disk/n0 /mnt/n0 && mount -t ext4 /dev/disk/n1 /mnt/n1 || exit 1

# --- reads ---

# The driver tries five times, unless it is told not to.  What then shows that a read failed is what
# the kernel says, first of all: later it does not say everything.
retries=/sys/module/nvme_core/parameters/max_retries
read -r usual <$retries && echo 0 >$retries || failed=1
run 60 vm_disk once /mnt/n0/once 6
dmesg | grep -q 'error, dev nvme' || {
	echo "disk: the read that was to fail once did not"
	failed=1
}
echo "$usual" >$retries
seed=0
for at in $places; do
	seed=$((seed + 1))
	tensor=${at%:*}
	# The short form has one place, in the matrix.
	[ "$form" = long ] || [ $tensor = rows ] || continue
	run 300 vm_disk read /mnt/n0/$tensor $seed $tensor "${at#*:}" /mnt/n0/good
	hoist load /mnt/n0/$tensor 2>/tmp/said && failed=1
	says /mnt/n0/$tensor "\"$tensor\"" "at byte "
	hoist cp /mnt/n0/$tensor /mnt/n0/copy.safetensors 2>/tmp/said && failed=1
	says /mnt/n0/$tensor "\"$tensor\"" "at byte "
	[ ! -e /mnt/n0/copy.safetensors ] || failed=1
	echo "counted: command 2 named, 0 ended, 0 whole"
done
run 60 vm_disk header /mnt/n0/header

# --- writes ---

run 300 vm_disk write /mnt/n1 /mnt/n1/reserved /mnt/n0
[ "$(ls -A /mnt/n1 | grep -v lost+found)" = old.safetensors ] || {
	ls -lA /mnt/n1
	failed=1
}

# --- flushes: mounting needs them ---

if [ "$form" = long ] && [ $fs = ext4 ]; then
	mount -t ext4 -o nobarrier /dev/disk/n2 /mnt/n2 && mount -o remount,barrier /mnt/n2 || failed=1
	run 60 vm_disk flush /mnt/n2
fi

# --- slow, here and there ---

umount /mnt/n0
vm_dm n0 - </source/stalls && mount -t $fs /dev/mapper/n0 /mnt/n0 || failed=1
run 200 vm_disk stall /mnt/n0/good 0 $stalls

# --- slow throughout ---

if [ "$form" = long ]; then
	mount -t $fs /dev/disk/n3 /mnt/n3 || failed=1
	run 200 vm_disk slow /mnt/n3/old.safetensors 1 1.5
fi
exit $failed
