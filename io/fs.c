/* SPDX-License-Identifier: MIT */
/* The table of file systems; the figures beside an entry are its reasons.
 * The contract is in io/fs.h. */
#include "config.h"

#include "io/fs.h"

#include <linux/magic.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/checked.h"

/* Magic numbers that linux/magic.h lacks, or lacks in Debian 12. */
#define LUSTRE_MAGIC 0x0BD00BD0UL
#define GPFS_MAGIC 0x47504653UL
#define BEEGFS_MAGIC 0x19830326UL
#define NFS_MAGIC 0x6969UL
#define CIFS_MAGIC 0xFF534D42UL
#define SMB2_MAGIC 0xFE534D42UL

#define M(n) ((uint32_t)(n) << 20)

/* Local disks: 64 MiB in flight are more than a delay of 3 ms takes at 14 GB/s, and with
 * buffers in huge pages reads of 1 to 4 MiB at depths of 8 to 16 reach what the disk gives
 * (measured on ext4 on virtio: 2 MiB x 16 and 4 MiB x 16 within 6 %).
 * Overlay passes direct reads on to the file system below, whose alignment statx shows.
 * Btrfs reads compressed extents through the cache by itself. */
#define LOCAL .direct = true, .depth = 16, .chunk_bytes = M(4)

static const struct hoist__fs table[] = {
	/* A read is a copy: small pieces, and no more of them than keep the copying threads
	 * busy. */
	{TMPFS_MAGIC, "tmpfs", .memory = true, .depth = 16, .chunk_bytes = M(1)},
	{RAMFS_MAGIC, "ramfs", .memory = true, .depth = 16, .chunk_bytes = M(1)},
	{HUGETLBFS_MAGIC, "hugetlbfs", .memory = true, .depth = 16, .chunk_bytes = M(1)},
	{EXT4_SUPER_MAGIC, "ext4", LOCAL},
	{XFS_SUPER_MAGIC, "xfs", LOCAL},
	{BTRFS_SUPER_MAGIC, "btrfs", LOCAL},
	{F2FS_SUPER_MAGIC, "f2fs", LOCAL},
	{OVERLAYFS_SUPER_MAGIC, "overlay", LOCAL},
	/* A read is cut into RPCs of rsize, 1 MiB at most, and a server mostly takes 64 of
	 * these.  Direct: readahead is 128 KiB on most clients since Linux 5.4, too little for
	 * 10 Gbit/s by a factor of three (published: 300 against 940 MB/s). */
	{NFS_MAGIC, "nfs", .network = true, .direct = true, .depth = 64, .chunk_bytes = M(1)},
	/* A server grants 4 MiB and more in one read, and credits for some dozens of them.
	 * Older clients refuse direct reads; opening the file shows this. */
	{CIFS_MAGIC, "smb", .network = true, .direct = true, .depth = 32, .chunk_bytes = M(4)},
	{SMB2_MAGIC, "smb", .network = true, .direct = true, .depth = 32, .chunk_bytes = M(4)},
	/* virtiofs, too, which has the same magic number.  A direct read goes out in requests of
	 * max_pages (1 MiB at most), one after the other, and without readahead (the
	 * kernel's fuse-io document).  The server mostly has a cache of its own. */
	{FUSE_SUPER_MAGIC, "fuse", .network = true, .depth = 32, .chunk_bytes = M(1)},
	/* One RPC is 4 MiB.  For reads of that size and more the page cache is slower than direct
	 * reads, by its lock when several threads read one file (its developers, lustre-discuss of
	 * January 2026). */
	{LUSTRE_MAGIC, "lustre", .network = true, .direct = true, .depth = 32, .chunk_bytes = M(4)},
	/* Objects are 4 MiB by default, and lie on different servers. */
	{CEPH_SUPER_MAGIC, "ceph", .network = true, .direct = true, .depth = 32,
	 .chunk_bytes = M(4)},
	/* No measurements of our own: large reads, as for other parallel file systems. */
	{GPFS_MAGIC, "gpfs", .network = true, .direct = true, .depth = 32, .chunk_bytes = M(4)},
	{BEEGFS_MAGIC, "beegfs", .network = true, .direct = true, .depth = 32, .chunk_bytes = M(4)},
	/* Every read becomes messages of msize (128 KiB by default), one after the other: only
	 * several reads overlap.  Direct reads gain nothing, since the host has a cache. */
	{V9FS_MAGIC, "9p", .network = true, .depth = 32, .chunk_bytes = M(1)},
};

static const struct hoist__fs other = {0, "other", LOCAL};
static const struct hoist__fs block_device = {0, "block device", .block = true, LOCAL};

const struct hoist__fs *hoist__fs_of(unsigned long magic)
{
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(table); i++)
		if (table[i].magic == magic)
			return &table[i];
	return &other;
}

const struct hoist__fs *hoist__fs_of_fd(int fd)
{
	struct stat st;
	struct statfs fs;
	/* A device's node lies on a tmpfs; the device's bytes do not. */
	if (fstat(fd, &st) == 0 && S_ISBLK(st.st_mode))
		return &block_device;
	return fstatfs(fd, &fs) == 0 ? hoist__fs_of((unsigned long)fs.f_type & UINT32_MAX) : &other;
}
