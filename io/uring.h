/* SPDX-License-Identifier: MIT */
/* io/uring.h - makes a ring, and registers files and buffers with it.
 *
 * A registration that the kernel refuses (a memlock limit, too many files) is no
 * error: the table stays empty, its lookups answer -1, and reads use plain
 * descriptors and addresses.
 */
#ifndef HOIST_IO_URING_H
#define HOIST_IO_URING_H

#include <liburing.h>

#include "io/engine.h"

/* Linux 6.12 and later have this feature; it serves as a mark of that release. liburing 2.3 (Debian
 * 12) does not know it. */
#ifndef IORING_FEAT_MIN_TIMEOUT
#define IORING_FEAT_MIN_TIMEOUT (1U << 15)
#endif

/* Files, sorted by address; row i is registered as 2i (cached) and 2i+1 (direct). */
struct hoist__uring_files {
	const struct hoist__file **rows;
	unsigned n_rows; /* 0: not registered */
	char note[64];	 /* for the engine's reason: ", 3 registered files" or why not */
};

/* The caller's buffers; each is registered in pieces of at most 1 GiB. */
struct hoist__uring_buffers {
	struct hoist__uring_buffer {
		uintptr_t base;
		size_t bytes;
		unsigned first; /* index of its first piece */
	} * rows;
	unsigned n_rows; /* 0: not registered */
	char note[96];
};

struct hoist__uring_mode {
	bool reads_loop; /* cached reads may, unless a worker of the kernel's makes them */
	char text[160];	 /* how the ring is driven, for the engine's reason */
};

/* Makes a ring for @depth requests, with the best setup flags that the kernel takes.
 * Returns: 0; the refusal, with its text ("io_uring refused: EPERM (...)"). */
int hoist__uring_setup(struct io_uring *ring, unsigned depth,
		       const struct hoist__engine_options *options, struct hoist__uring_mode *mode);
void hoist__uring_close(struct io_uring *ring);

/* Returns: 0, also if the kernel refuses; -ENOMEM. */
int hoist__uring_register(struct io_uring *ring, const struct hoist__engine_options *options,
			  struct hoist__uring_files *files, struct hoist__uring_buffers *buffers);
void hoist__uring_unregister(struct io_uring *ring, struct hoist__uring_files *files,
			     struct hoist__uring_buffers *buffers);

/* The index under which the kernel knows a file's descriptor, or the piece of
 * buffer @index that holds all of [address, address+bytes); -1 if there is none. */
int hoist__uring_file(const struct hoist__uring_files *files, const struct hoist__file *file,
		      bool direct);
int hoist__uring_buffer(const struct hoist__uring_buffers *buffers, int index, const void *address,
			size_t bytes);

#endif
