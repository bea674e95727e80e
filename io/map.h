/* SPDX-License-Identifier: MIT */
/* io/map.h - a file's bytes as memory.
 *
 * READ_ONLY; COPY_ON_WRITE, whose writes stay private; and READ_WRITE and WRITE, whose
 * writes are the file's.  Nothing is read at mapping time and nothing is populated
 * (populating a map over a bad sector may never return; see io/ahead.h).  A touch of a page that
 * the file no longer has (it shrank) raises SIGBUS, whatever the mode and even if the page had been
 * written: that is the kernel's rule; hoist__file_changed() can tell before.
 */
#ifndef HOIST_IO_MAP_H
#define HOIST_IO_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "io/file.h"

enum hoist__file_map_mode {
	HOIST__MAP_READ_ONLY,
	HOIST__MAP_COPY_ON_WRITE,
	HOIST__MAP_READ_WRITE, /* a shorter file is made longer */
	HOIST__MAP_WRITE       /* the file is made, or emptied, first */
};

struct hoist__file_map {
	unsigned char *data; /* the byte at `offset` of the file */
	size_t bytes;
	void *base; /* page-aligned, what is really mapped */
	size_t mapped_bytes;
};

/* Any @offset; [offset, offset+bytes) must lie within the file; bytes > 0.  Not WRITE.  For READ_WRITE
 * the same inode is opened once more, to write; the map needs no descriptor.
 * Returns: 0; -EINVAL; -ENODATA beyond the file's end; READ_WRITE: -EACCES, -EROFS, -EPERM, -ETXTBSY,
 *   with the remedy; -ENOMEM; the kernel's. */
int hoist__file_map_open(const struct hoist__file *file, enum hoist__file_map_mode mode,
			 uint64_t offset, size_t bytes, struct hoist__file_map *ret);
/* The same of the file @path, in any mode; 0 bytes map nothing (*ret is then a closed map).
 * @ret_fd NULL, or takes the file's descriptor, which is closed again otherwise.
 * Returns: 0; -EINVAL (empty, also of 0 bytes; not a regular file); -ENODATA; -EOVERFLOW
 *   (beyond 63 bits); -ENOSPC; -ENOMEM; the kernel's. */
int hoist__file_map_path(const char *path, enum hoist__file_map_mode mode, uint64_t offset,
			 size_t bytes, struct hoist__file_map *ret, int *ret_fd);

void hoist__file_map_close(struct hoist__file_map *map); /* takes one that was zeroed or closed */

#endif
