/* SPDX-License-Identifier: MIT */
/* io/disks.h - which files lie on which disk.
 *
 * A disk here is a device that serves reads independently of the others.  Each disk gets as many
 * requests at once as a single disk would.  So two disks together reach the sum of their speeds,
 * and the full queue of a slow disk holds up no other.  Files that all have the same st_dev share
 * one disk, without a look at /sys.  Otherwise:
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
 * Without /sys each st_dev counts as a disk.  Two partitions of one disk then get twice the
 * requests at once, which costs a disk without heads nothing.
 *
 * There is one queue for each disk, but not one io_uring for each.  A ring is only memory shared by
 * a thread and the kernel; the queues that matter are the devices'.  Several rings gain nothing
 * (measured on one disk: two rings, even of two threads, 1.72 GB/s; one ring 1.65 to 1.9), and one
 * thread could wait for them together only by a detour. */
#ifndef HOIST_IO_DISKS_H
#define HOIST_IO_DISKS_H

#include <stdint.h>

#include "io/file.h"

#define HOIST__MAX_DISKS 8u /* further disks share the last number */

struct hoist__disks {
	unsigned n; /* at least 1 */
	unsigned n_rows;
	struct hoist__disks_row {
		uint64_t dev; /* of a file, or a block device's own number */
		uint64_t disk;
		unsigned index; /* below n */
	} rows[4 * HOIST__MAX_DISKS];
};

/* Finds the disks of @files, numbered in the order of the files.  No files: one disk. */
void hoist__disks_find(const struct hoist__file *const *files, unsigned n_files,
		       struct hoist__disks *ret);

/* The number of @file's disk.  A file that hoist__disks_find() was not given has the last one. */
unsigned hoist__disk_of(const struct hoist__disks *disks, const struct hoist__file *file);

/* The device number of the disk below the device @dev; @sys is "/sys". */
uint64_t hoist__disk_of_device(const char *sys, uint64_t dev);

#endif
