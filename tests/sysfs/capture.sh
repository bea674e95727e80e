#!/bin/sh
# SPDX-License-Identifier: MIT
# Writes what hoist reads of a /sys to standard output, as a tree that its tests
# can unpack: sh capture.sh [FOLDER [WORDS ABOUT THE MACHINE]] >tree.txt
# FOLDER is /sys if not given.  There are no serial numbers, labels or paths of
# files in it.  Needs no privileges; any POSIX shell, busybox's too, runs it.
#
# One entry a line: "path<TAB>content" with \n for a newline, "path<TAB>-> target"
# for a symbolic link, "path/<TAB>" for a folder.
set -eu
export LC_ALL=C

root=$(cd -P "${1:-/sys}" && pwd)
[ $# -eq 0 ] || shift

file() { # PATH: a file, if it is there; contents() adds what is in it
	if [ -f "$root/$1" ] && [ -r "$root/$1" ]; then
		printf '%s\n' "$1"
	fi
}

# Not with the shell's read: that may read byte by byte, and a node's cpulist
# answers a read of one byte with the end of the file.
contents() {
	awk -v root="$root" '
		/\t/ { print; next }
		{
			text = ""
			while ((getline line < (root "/" $0)) > 0)
				text = text line "\\n"
			close(root "/" $0)
			print $0 "\t" text
		}'
}

# PATH: a device's folder and those above it, as far as a node may be found there,
# and the devices that it is made of.
device() (
	at=$1
	file "$at/dev"
	while [ "${at%/*}" != "$at" ]; do
		file "$at/numa_node"
		if [ -d "$root/$at/slaves" ]; then
			printf '%s/slaves/\t\n' "$at"
			links "$at/slaves" '*'
		fi
		case ${at##*/} in
		nvme-subsys[0-9]*) links "$at" 'nvme[0-9]*' ;;
		esac
		at=${at%/*}
	done
)

links() ( # FOLDER PATTERN: the links in a folder, and the devices behind them
	for link in "$root/$1"/$2; do
		[ -L "$link" ] || continue
		printf '%s\t-> %s\n' "${link#"$root/"}" "$(readlink "$link")"
		folder=$(cd -P "$link" 2>/dev/null && pwd) || continue
		case $folder in
		"$root"/*) device "${folder#"$root/"}" ;;
		esac
	done
)

tree() {
	file devices/system/cpu/online
	file devices/system/cpu/possible
	for list in online possible has_cpu has_memory; do
		file devices/system/node/$list
	done
	for folder in "$root"/devices/system/node/node[0-9]* "$root"/kernel/mm; do
		node=${folder#"$root/"}
		for name in cpulist meminfo distance; do
			file "$node/$name"
		done
		for name in nr_hugepages free_hugepages; do
			file "$node/hugepages/hugepages-2048kB/$name"
		done
	done
	links bus/pci/devices '*'
	for link in "$root"/bus/pci/devices/*; do
		folder=$(cd -P "$link" 2>/dev/null && pwd) || continue
		file "${folder#"$root/"}/local_cpulist"
	done
	links dev/block '*'
}

echo '# SPDX-License-Identifier: MIT'
echo "# Captured by capture.sh${*:+: $*}"
tree | sort -u | contents
