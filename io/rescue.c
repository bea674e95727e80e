/* SPDX-License-Identifier: MIT */
/* Reads past the page cache, block by block, up to the bad block.
 * The contract is in io/rescue.h. */
#include "config.h"

#include "io/rescue.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "io/again.h"

#define MAX_PIECE_BYTES ((size_t)1 << 20)

static int64_t read_at(int fd, void *to, size_t bytes, uint64_t offset)
{
	ssize_t n = HOIST__UNINTERRUPTED(pread(fd, to, bytes, (off_t)offset));
	return n < 0 ? -errno : n;
}

/* Doubles the size of the reads from one block on, and halves it after a failure.  So all bytes
 * before the bad block are read with few failing reads: a disk may take seconds for each of
 * these. */
static int64_t read_blocks(const struct hoist__file *file, uint64_t offset, unsigned char *to,
			   size_t bytes)
{
	void *piece;
	if (posix_memalign(&piece, HOIST__FILE_MAX_ALIGN, MAX_PIECE_BYTES) != 0)
		return -ENOMEM;
	size_t block = file->offset_align;
	size_t lead = (size_t)(offset % block);
	size_t done = 0;
	int64_t n = 0;
	bool failed = false;
	for (size_t size = block; size >= block && done < bytes;) {
		n = read_at(file->direct_fd, piece, size, offset + done - lead);
		if (n >= 0 && (size_t)n <= lead) {
			n = 0; /* the end of the file */
			break;
		}
		if (n > 0) {
			size_t got = (size_t)hoist__min_u64((size_t)n - lead, bytes - done);
			memcpy(to + done, (unsigned char *)piece + lead, got);
			done += got;
			lead = (offset + done) % block;
		}
		failed = failed || n < 0;
		size = failed ? size / 2 : (size_t)hoist__min_u64(size * 2, MAX_PIECE_BYTES);
	}
	free(piece);
	return done > 0 ? (int64_t)done : n;
}

int64_t hoist__file_rescue(const struct hoist__file *file, uint64_t offset, void *to, size_t bytes)
{
	int64_t n = -EOPNOTSUPP;
	if (file->direct_fd >= 0)
		n = read_blocks(file, offset, to, bytes);
	bool refused = n == -EOPNOTSUPP || n == -EINVAL || n == -ENOMEM;
	return refused ? read_at(file->fd, to, bytes, offset) : n;
}
