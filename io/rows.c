/* SPDX-License-Identifier: MIT */
/* Reads rows with preadv.  The contract is in io/rows.h. */
#include "config.h"

#include "io/rows.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"

/* A gap up to this size is read along, as a call costs as much: some 0.3 us, in which 3 KiB are
 * copied. */
#define GAP_BYTES 3072u

#define MAX_VECTORS 64u

/* So much is read without a look at whether the request was cancelled. */
#define ENOUGH_BYTES (256u << 10)

/* A row of the list: row @row of rows[@index], from byte @within on. */
struct cursor {
	size_t index;
	size_t row;
	size_t within;
};

static struct cursor seek(const struct hoist__request *request, size_t at)
{
	struct cursor ret = {0};
	HOIST__ASSERT(request->n_rows > 0 && at < request->bytes);
	while (at >= request->rows[ret.index].bytes * request->rows[ret.index].n) {
		at -= request->rows[ret.index].bytes * request->rows[ret.index].n;
		ret.index++;
	}
	HOIST__ASSERT(ret.index < request->n_rows);
	ret.row = at / request->rows[ret.index].bytes;
	ret.within = at % request->rows[ret.index].bytes;
	return ret;
}

static void look(const struct hoist__request *request, const struct cursor *cursor,
		 struct hoist__rows_place *ret)
{
	const struct hoist__rows *rows = &request->rows[cursor->index];
	ret->offset = rows->offset + cursor->row * rows->stride + cursor->within;
	ret->address =
		rows->address + (ptrdiff_t)cursor->row * rows->address_stride + cursor->within;
	ret->bytes = rows->bytes - cursor->within;
}

/* Moves to the next row.  False: there is none. */
static bool next_row(const struct hoist__request *request, struct cursor *cursor)
{
	cursor->within = 0;
	if (++cursor->row == request->rows[cursor->index].n) {
		cursor->row = 0;
		cursor->index++;
	}
	return cursor->index < request->n_rows;
}

void hoist__rows_find(const struct hoist__request *request, size_t at,
		      struct hoist__rows_place *ret)
{
	struct cursor cursor = seek(request, at);
	look(request, &cursor, ret);
}

/* The vectors of one call.  Vectors with an odd index are gaps, which may be empty. */
struct call {
	uint64_t offset;
	unsigned n;
	struct iovec vectors[MAX_VECTORS];
};

/* Fills the call with rows from the cursor on, and moves the cursor behind them.  @gap: GAP_BYTES
 * of memory that nobody looks at.  Returns: false if the cursor is at the end. */
static bool fill(const struct hoist__request *request, struct cursor *cursor, unsigned char *gap,
		 struct call *call)
{
	struct hoist__rows_place place;
	bool more = true;
	look(request, cursor, &place);
	uint64_t end = call->offset = place.offset;
	call->n = 0;
	while (more && call->n + 2 <= MAX_VECTORS && place.offset >= end &&
	       place.offset - end <= GAP_BYTES) {
		if (call->n > 0)
			call->vectors[call->n++] =
				(struct iovec){gap, (size_t)(place.offset - end)};
		call->vectors[call->n++] = (struct iovec){place.address, place.bytes};
		end = place.offset + place.bytes;
		more = next_row(request, cursor);
		if (more)
			look(request, cursor, &place);
	}
	return more;
}

/* The bytes of rows in the first @bytes of the call; *whole: these are all. */
static size_t useful(const struct call *call, size_t bytes, bool *whole)
{
	size_t ret = 0;
	unsigned i = 0;
	for (; i < call->n && bytes >= call->vectors[i].iov_len; i++) {
		bytes -= call->vectors[i].iov_len;
		ret += i % 2 == 0 ? call->vectors[i].iov_len : 0;
	}
	*whole = i == call->n;
	return *whole || i % 2 != 0 ? ret : ret + bytes;
}

static ssize_t make(int fd, const struct call *call)
{
	const struct iovec *first = &call->vectors[0];
	if (call->n == 1)
		return pread(fd, first->iov_base, first->iov_len, (off_t)call->offset);
	return preadv(fd, call->vectors, (int)call->n, (off_t)call->offset);
}

int64_t hoist__rows_read(const struct hoist__request *request)
{
	unsigned char gap[GAP_BYTES];
	struct cursor cursor = seek(request, request->done);
	size_t done = 0;
	for (bool more = true; more && done < ENOUGH_BYTES;) {
		struct call call;
		more = fill(request, &cursor, gap, &call);
		ssize_t n = make(request->file->fd, &call);
		if (n < 0)
			return done > 0 ? (int64_t)done : -errno;
		bool whole;
		done += useful(&call, (size_t)n, &whole);
		if (!whole)
			break;
	}
	HOIST__ASSERT(done <= request->bytes - request->done);
	return (int64_t)done;
}
