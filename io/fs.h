/* SPDX-License-Identifier: MIT */
/* io/fs.h - what is known of a file system before the first byte is read from it.
 *
 * Defaults, not limits: what a user asks for goes first, and what the kernel says of a file
 * (statx, a refused read, the page cache) overrides them.
 *
 * Threads: constant. */
#ifndef HOIST_IO_FS_H
#define HOIST_IO_FS_H

#include <stdbool.h>
#include <stdint.h>

struct hoist__fs {
	unsigned long magic; /* of statfs(2) */
	const char *name;
	bool memory;	      /* its bytes are page cache */
	bool block;	      /* no file system: a block device itself */
	bool network;	      /* latency is long and capacity far away: parallel reads pay */
	bool direct;	      /* false: reads past the page cache lose, and are for who asks */
	unsigned depth;	      /* requests in flight that fill it */
	uint32_t chunk_bytes; /* of a request */
};

/* What @magic is; never NULL: "other" is a local disk that nothing is known of. */
const struct hoist__fs *hoist__fs_of(unsigned long magic);

/* Of the file system that @fd's file lies on; a block device's is "block device". */
const struct hoist__fs *hoist__fs_of_fd(int fd);

#endif
