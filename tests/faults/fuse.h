/* SPDX-License-Identifier: MIT */
/* tests/faults/fuse.h - a file system of ours, whose every answer a test decides.
 *
 * It is one flat folder in memory that the test and the process that serves it share, so that a
 * test can also change a file behind the kernel's back, as another machine does on a network.
 *
 *     ffs_mount();                            // or the test ends, skipped, with a reason
 *     faultfs->ops[FFS_READ] = (struct ffs_fault){.from = 3, .n = 1, .err = EIO};
 *     ... the third read fails ...
 *     ffs_heal();
 *
 * Threads: what a test sets between operations is seen by those that follow.  `lock` guards nodes
 * and their bytes. */
#ifndef HOIST_TESTS_FAULT_FUSE_H
#define HOIST_TESTS_FAULT_FUSE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FFS_NODES 24
#define FFS_NODE_BYTES ((size_t)8 << 20)

enum ffs_op {
	FFS_LOOKUP,
	FFS_GETATTR,
	FFS_OPEN,
	FFS_READ,
	FFS_READDIR,
	FFS_CREATE,
	FFS_WRITE,
	FFS_TRUNCATE,
	FFS_FALLOCATE,
	FFS_FSYNC,
	FFS_FSYNCDIR,
	FFS_FLUSH,
	FFS_RENAME,
	FFS_UNLINK,
	FFS_N_OPS
};

/* The calls @from .. @from+@n-1 (from 1 on, since ffs_heal()) fail. */
struct ffs_fault {
	uint64_t from;
	uint64_t n;
	int err;
};

/* The change that a file undergoes when it is read for the nth time. */
enum ffs_change { FFS_NO_CHANGE, FFS_GROW, FFS_SHRINK, FFS_REWRITE, FFS_REPLACE };

struct ffs_node {
	char name[128]; /* "": it has none (any more) */
	uint64_t bytes;
	int64_t mtime_ns;
	uint64_t n_lookups; /* of the kernel's, which it has not forgotten */
	uint64_t generation;
	bool used;
};

struct faultfs {
	pthread_mutex_t lock;
	struct ffs_fault ops[FFS_N_OPS];
	atomic_uint_least64_t n_calls[FFS_N_OPS];
	/* Since the mount: errors, refusals, stalls and changes; whole answers not given; calls
	 * given up because the kernel, for a signal, asked for that. */
	atomic_uint_least64_t n_faults;
	atomic_uint_least64_t n_short;
	atomic_uint_least64_t n_interrupted[FFS_N_OPS];

	size_t short_read;  /* past the page cache: 0: whole ones; 1: one byte; else 1 to so many */
	size_t short_write; /* likewise */
	uint64_t random;
	bool direct_io;		 /* the kernel keeps no pages of what is opened from now on */
	bool keep_cache;	 /* what it has of a file stays good when it is opened again */
	double attr_timeout;	 /* seconds for which it need not ask for sizes and times again */
	bool refuse_direct_open; /* O_DIRECT is EINVAL at open */
	bool refuse_direct_read; /* accepted there, and EINVAL at reads and writes */
	int64_t size_shift;	 /* sizes are told wrong by this much */
	bool size_zero;		 /* they are told as 0 */
	uint64_t room;		 /* bytes that may still be written; else ENOSPC */
	atomic_bool stalled;	 /* reads of stalled_node wait until this is false */
	atomic_uint n_stalled;	 /* so many do */
	unsigned stalled_node;
	bool stalls_all;	      /* of that node: attributes, too */
	unsigned delay_us[FFS_N_OPS]; /* each takes so long; EINTR if a signal comes meanwhile */
	enum ffs_change change;
	uint64_t change_at;
	unsigned changed_node; /* it has happened to this one */

	struct ffs_node nodes[FFS_NODES];
};

extern struct faultfs *faultfs;
extern char ffs_folder[512]; /* where it is mounted */

/* The bytes of a node. */
unsigned char *ffs_bytes(unsigned node);

/* Mounts it, in a mount namespace of this process where that can be had.  To be called first in
 * main(), before there are threads.  Ends the test as skipped where it cannot be had. */
void ffs_mount(void);
void ffs_unmount(void);

/* The process that serves it is killed: all that is asked for is an error from then on. */
void ffs_kill(void);

/* The mount is read-only from now on, or no more: then the kernel has no reason to ask for times
 * again.  False: it cannot be changed. */
bool ffs_read_only(bool on);

/* No faults, all counts 0, room for all. */
void ffs_heal(void);

/* The node called @name, or -1. */
int ffs_find(const char *name);
/* How many have a name. */
unsigned ffs_n_names(void);

/* Changes the node now, as `change` would. */
void ffs_apply(unsigned node, enum ffs_change change);

#endif
