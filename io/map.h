/* SPDX-License-Identifier: MIT */
/* io/map.h - a file's bytes as memory.
 *
 * Writes to a COPY_ON_WRITE map stay private; writes to a READ_WRITE or WRITE map go to the file.
 * Mapping reads nothing and populates nothing (populating a map over a bad sector may never
 * return; see io/ahead.h).  Touching a page that the file no longer has (it shrank) raises SIGBUS,
 * in every mode, even if the page had been written: that is the kernel's rule.
 * hoist__file_changed() can tell beforehand.
 */
#ifndef HOIST_IO_MAP_H
#define HOIST_IO_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "io/file.h"

enum hoist__file_map_mode {
	HOIST__MAP_READ_ONLY,
	HOIST__MAP_COPY_ON_WRITE,
	HOIST__MAP_READ_WRITE, /* a file that is too short is extended */
	HOIST__MAP_WRITE       /* the file is created, or emptied, first */
};

struct hoist__file_map {
	unsigned char *data; /* the byte at `offset` of the file */
	size_t bytes;
	void *base; /* page-aligned start of the mapping */
	size_t mapped_bytes;
};

/* Maps [offset, offset+bytes), which must lie within the file; any @offset; bytes > 0.  @mode is
 * not WRITE.  For READ_WRITE the same inode is opened once more, for writing, and closed again: a
 * map needs no descriptor.
 * Returns: 0; -EINVAL; -ENODATA beyond the file's end; READ_WRITE: -EACCES, -EROFS, -EPERM,
 *   -ETXTBSY, with the remedy; -ENOMEM; the kernel's. */
int hoist__file_map_open(const struct hoist__file *file, enum hoist__file_map_mode mode,
			 uint64_t offset, size_t bytes, struct hoist__file_map *ret);

/* Maps the file @path likewise, in any mode; 0 bytes map nothing (*ret is then a closed map).
 * @ret_fd takes the file's descriptor; NULL: the descriptor is closed again.
 * Returns: 0; -EINVAL (an empty file, also for 0 bytes; not a regular file); -ENODATA; -EOVERFLOW
 *   (beyond 63 bits); -ENOSPC; -ENOMEM; the kernel's. */
int hoist__file_map_path(const char *path, enum hoist__file_map_mode mode, uint64_t offset,
			 size_t bytes, struct hoist__file_map *ret, int *ret_fd);

void hoist__file_map_close(struct hoist__file_map *map); /* takes a zeroed or closed one */

#endif
