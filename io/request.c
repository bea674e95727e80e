/* SPDX-License-Identifier: MIT */
/* The policy for one request, from its first read or write to its end.
 * The contract is in io/engine-impl.h. */
#include "config.h"

#include "io/engine-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "io/again.h"
#include "io/rescue.h"
#include "io/rows.h"

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80 /* Linux 6.14 */
#endif

/* After this many cancellations by the kernel, the kernel has no worker for the request. */
#define MAX_CALLED_OFF 8u

/* The kernel takes at most 2 GiB - 4096 in one read, io_uring 4 GiB - 1 and a
 * registered buffer 1 GiB; a power of two keeps direct reads aligned. */
#define MAX_ATTEMPT_BYTES HOIST__REQUEST_MAX_DROP

/* The arrows in engine.h, and a state that is entered anew after bytes have moved. */
HOIST__CONDITION static bool may_follow(enum hoist__request_state from,
					enum hoist__request_state to)
{
	static const unsigned next[] = {
		[HOIST__REQUEST_DIRECT] = 1u << HOIST__REQUEST_DIRECT | 1u << HOIST__REQUEST_CACHED,
		[HOIST__REQUEST_CACHED] = 1u << HOIST__REQUEST_CACHED |
					  1u << HOIST__REQUEST_RESCUE | 1u << HOIST__REQUEST_DROP,
		[HOIST__REQUEST_RESCUE] = 1u << HOIST__REQUEST_CACHED | 1u << HOIST__REQUEST_DROP,
		[HOIST__REQUEST_DROP] = 0,
		[HOIST__REQUEST_WORK] = 0,
	};
	return (next[from] >> to & 1) != 0;
}

/* Enters @state; repetitions are counted anew from here. */
static void enter(struct hoist__request *request, enum hoist__request_state state)
{
	HOIST__ASSERT(may_follow(request->state, state));
	request->state = state;
	request->n_again = 0;
	request->n_called_off = 0;
}

/* A request drops only pages that it brought in: hot pages were in the cache before. */
static bool drops(const struct hoist__request *request)
{
	return request->drop && !request->hot && !request->write;
}

void hoist__request_start(struct hoist__request *request)
{
	request->result = 0;
	request->done = 0;
	request->direct_done = 0;
	request->fell_back = false;
	request->cancelled = false;
	if (request->work != NULL) {
		request->state = HOIST__REQUEST_WORK;
		request->bytes = 1; /* the call, which no thread has taken yet */
		request->need = 0;
		request->direct = request->hot = request->write = request->drop = false;
		return;
	}
	HOIST__ASSERT(request->bytes != 0 && request->need <= request->bytes);
	request->state = HOIST__REQUEST_DIRECT;
	enter(request, request->direct ? HOIST__REQUEST_DIRECT : HOIST__REQUEST_CACHED);
	/* The kernel would read ahead into the ranges of later requests (up to 8 MiB, seen on
	 * ext4).  These would take such pages for pages that were cached before, and leave them in
	 * the cache. */
	if (drops(request))
		hoist__file_stop_readahead(request->file);
}

uint64_t hoist__request_offset(const struct hoist__request *request)
{
	struct hoist__rows_place place;
	if (request->n_rows == 0 || request->done == request->bytes)
		return request->offset + request->done;
	hoist__rows_find(request, request->done, &place);
	return place.offset;
}

/* Reads and writes go on at `done`, and with rows end with the row; a drop covers all bytes that
 * were read, from the request's beginning.  A rescue is cut at the size of a folio: behind the
 * folio, the request goes on through the cache. */
void hoist__request_next(const struct hoist__request *request, struct hoist__attempt *ret)
{
	ret->direct = request->state == HOIST__REQUEST_DIRECT;
	ret->fd = ret->direct ? request->file->direct_fd : request->file->fd;
	ret->flags = 0;
	ret->file = request->file;
	if (request->state == HOIST__REQUEST_WORK) {
		ret->what = HOIST__ATTEMPT_WORK;
		ret->work = request->work;
		ret->owner = request->owner;
		return;
	}
	if (request->state == HOIST__REQUEST_DROP) {
		ret->what = HOIST__ATTEMPT_DROP;
		ret->offset = request->offset;
		ret->address = request->address;
		ret->bytes = (uint32_t)request->done;
		return;
	}
	HOIST__ASSERT(request->done < request->bytes);
	ret->what = request->write ? HOIST__ATTEMPT_WRITE : HOIST__ATTEMPT_READ;
	if (drops(request) && !ret->direct && request->file->dontcache)
		ret->flags = RWF_DONTCACHE;
	struct hoist__rows_place place = {request->offset + request->done,
					  request->address + request->done,
					  request->bytes - request->done};
	if (request->n_rows > 0)
		hoist__rows_find(request, request->done, &place);
	ret->offset = place.offset;
	ret->address = place.address;
	ret->bytes = (uint32_t)hoist__min_u64(place.bytes, MAX_ATTEMPT_BYTES);
	HOIST__ASSERT(!ret->direct || ret->offset % request->file->offset_align == 0);
	if (request->state == HOIST__REQUEST_RESCUE) {
		ret->what = HOIST__ATTEMPT_RESCUE;
		ret->bytes = (uint32_t)hoist__min_u64(ret->bytes, HOIST__RESCUE_BYTES);
	}
}

void hoist__request_end(struct hoist__request *request, int result)
{
	HOIST__ASSERT(result <= 0);
	request->result = result;
}

/* Sets the result.  Returns: false if pages are still to be dropped: the kernel did not drop them
 * by itself, and is asked to. */
static bool end(struct hoist__request *request, int result)
{
	hoist__request_end(request, result);
	if (!drops(request) || request->file->dontcache || request->cancelled ||
	    request->done == request->direct_done)
		return true;
	enter(request, HOIST__REQUEST_DROP);
	return false;
}

static void fall_back(struct hoist__request *request)
{
	enter(request, HOIST__REQUEST_CACHED);
	HOIST__ASSERT(!request->fell_back && request->direct);
	request->fell_back = true;
}

/* Tells whether a direct read or write can go on where this request stopped. */
static bool at_aligned_place(const struct hoist__request *request)
{
	const struct hoist__file *file = request->file;
	return request->done % file->offset_align == 0 && request->done % file->memory_align == 0;
}

static void account(struct hoist__request *request, size_t bytes)
{
	bool direct = request->state == HOIST__REQUEST_DIRECT;
	request->done += bytes;
	HOIST__ASSERT(request->done <= request->bytes);
	enter(request, direct ? HOIST__REQUEST_DIRECT : HOIST__REQUEST_CACHED);
	if (direct) {
		request->direct_done += bytes;
		HOIST__ASSERT(request->direct_done == request->done);
		if (request->done < request->need && !at_aligned_place(request))
			fall_back(request);
	}
}

/* Counts EINTR, EAGAIN and cancellations; false after too many in a row.  The kernel cancels a
 * thread's requests when the thread exits, but the requests of a shared engine outlive the thread
 * that submitted them. */
static bool count_again(struct hoist__request *request, int err)
{
	bool cancelled = err == -ECANCELED;
	if (!cancelled && err != -EINTR && err != -EAGAIN)
		return false;
	unsigned *n = cancelled ? &request->n_called_off : &request->n_again;
	if (*n >= HOIST__MAX_AGAIN)
		return false;
	++*n;
	return true;
}

/* Returns: true if the request goes on after the error @err. */
static bool worth_another_try(struct hoist__request *request, int err)
{
	if (count_again(request, err))
		return true;
	/* The file system refused the direct call (EINVAL, EOPNOTSUPP) or the kernel the memory
	 * (EFAULT), or a direct read failed (EIO, ENODATA and the block layer's other names for
	 * EIO): the page cache may have the bytes, or smaller reads around the bad place may get
	 * them. */
	bool refused = err == -EINVAL || err == -EOPNOTSUPP || err == -EFAULT;
	if (request->state == HOIST__REQUEST_DIRECT && (refused || !request->write)) {
		fall_back(request);
		return true;
	}
	/* Only reads are rescued, and once at each place. */
	if (!request->write && request->state != HOIST__REQUEST_RESCUE && hoist__rescuable(-err)) {
		enter(request, HOIST__REQUEST_RESCUE);
		return true;
	}
	return false;
}

/* The call returned zero bytes: a read is at the end of the file.  For a write the kernel gives no
 * reason. */
static int end_of_file(const struct hoist__request *request)
{
	if (request->done >= request->need)
		return 0;
	return request->write ? -EIO : -ENODATA;
}

bool hoist__request_is_stuck(const struct hoist__request *request)
{
	return request->n_called_off >= MAX_CALLED_OFF;
}

bool hoist__request_finish(struct hoist__request *request, int64_t result)
{
	HOIST__ASSERT(result <= (int64_t)(request->bytes - request->done) ||
		      request->state == HOIST__REQUEST_DROP);
	if (request->state == HOIST__REQUEST_WORK) {
		hoist__request_end(request, (int)result);
		return true;
	}
	/* The result of a drop does not matter. */
	if (request->state == HOIST__REQUEST_DROP)
		return true;
	if (result > 0) {
		account(request, (size_t)result);
		if (request->done >= request->need)
			return end(request, 0);
	} else if (result == 0) {
		return end(request, end_of_file(request));
	} else if (request->cancelled) {
		return end(request, -ECANCELED);
	} else if (!worth_another_try(request, (int)result)) {
		/* An NVMe medium error is reported as ENODATA, which means a short file to our
		 * callers.  Endless EINTR is no signal, since reading threads take none.  An
		 * endless ECANCELED is not our cancel. */
		bool other = result == -ENODATA || result == -EINTR || result == -ECANCELED;
		return end(request, other ? -EIO : (int)result);
	}
	return request->cancelled && end(request, -ECANCELED);
}

/* --- one call --- */

int64_t hoist__attempt_make(const struct hoist__attempt *call)
{
	struct iovec one = {.iov_base = call->address, .iov_len = call->bytes};
	off_t offset = (off_t)call->offset;
	ssize_t n = 0;
	switch (call->what) {
	case HOIST__ATTEMPT_WORK:
		return call->work(call->owner);
	case HOIST__ATTEMPT_WRITE:
		n = pwrite(call->fd, call->address, call->bytes, offset);
		break;
	case HOIST__ATTEMPT_RESCUE:
		return hoist__file_rescue(call->file, call->offset, call->address, call->bytes);
	case HOIST__ATTEMPT_DROP:
		return -posix_fadvise(call->fd, offset, call->bytes, POSIX_FADV_DONTNEED);
	case HOIST__ATTEMPT_READ:
		if (call->flags != 0)
			n = preadv2(call->fd, &one, 1, offset, call->flags);
		else
			n = pread(call->fd, call->address, call->bytes, offset);
	}
	return n < 0 ? -errno : n;
}
