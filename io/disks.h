/* SPDX-License-Identifier: MIT */
/* io/disks.h - which files lie on which disk.
 *
 * A disk is what serves reads beside others: each gets as many requests at once as one would, so
 * that two disks together give what both give alone, and a full queue of a slow one holds up nobody
 * else.  Of files with one st_dev there is one disk, and nothing is asked.  Of others:
 *
 *   st_dev                                its disk
 *   a partition                           the disk that has it (/sys/dev/block/M:N/../dev)
 *   device mapper, md over one device     that device's (LVM, dm-crypt on one disk: .../slaves/)
 *   device mapper, md over several        itself: stripes and mirrors are one disk, as they are
 *                                         one queue; two volumes over the same disks are two
 *   any other block device, loop too      itself
 *   no block device (major number 0)      itself: each mounted network file system, FUSE server,
 *                                         btrfs subvolume and overlay, whatever lies below
 *
 * Without /sys each st_dev is a disk.  Two that are one in truth get twice the requests at once,
 * which costs a disk without heads nothing.
 *
 * Disks, and not rings of io_uring: a ring is only memory between one thread and the kernel,
 * whose queues are those of the devices, and several rings of one thread gain nothing
 * (measured: two rings, of two threads even, on one disk 1.72 GB/s, one 1.65 to 1.9), but can be
 * waited for together only by a detour. */
#ifndef HOIST_IO_DISKS_H
#define HOIST_IO_DISKS_H

#include <stdint.h>

#include "io/file.h"

#define HOIST__MAX_DISKS 8u /* more share the last */

struct hoist__disks {
	unsigned n; /* at least 1 */
	unsigned n_rows;
	struct hoist__disks_row {
		uint64_t dev; /* a file's `dev`, or a block device's own number */
		uint64_t disk;
		unsigned index; /* below n */
	} rows[4 * HOIST__MAX_DISKS];
};

/* The disks of @files; one, if there are none.  They are numbered in the order of the files. */
void hoist__disks_find(const struct hoist__file *const *files, unsigned n_files,
		       struct hoist__disks *ret);

/* The number of @file's disk; one that was not among the files has the last. */
unsigned hoist__disk_of(const struct hoist__disks *disks, const struct hoist__file *file);

/* The disk of the device @dev, as a device's number; @sys is "/sys". */
uint64_t hoist__disk_of_device(const char *sys, uint64_t dev);

#endif
