/* SPDX-License-Identifier: MIT */
/* io/fs.h - the properties of file systems, known before the first read.
 *
 * These are defaults, not limits.  A user's options go first, and the kernel's answers for one
 * file (statx, a refused read, the page cache) override the table.
 *
 * Threads: constant. */
#ifndef HOIST_IO_FS_H
#define HOIST_IO_FS_H

#include <stdbool.h>
#include <stdint.h>

struct hoist__fs {
	unsigned long magic; /* from statfs(2) */
	const char *name;
	bool memory;	      /* the bytes are page cache */
	bool block;	      /* a block device itself, without a file system */
	bool network;	      /* long latency, much bandwidth: parallel reads pay */
	bool direct;	      /* false: direct reads are slower, and only made on request */
	unsigned depth;	      /* requests in flight that saturate it */
	uint32_t chunk_bytes; /* of a request */
};

/* The entry of @magic; never NULL: "other" stands for a local disk of an unknown file system. */
const struct hoist__fs *hoist__fs_of(unsigned long magic);

/* The entry of the file system that @fd's file lies on; for a block device "block device". */
const struct hoist__fs *hoist__fs_of_fd(int fd);

#endif
