/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "io/engine-impl.h"

#include <assert.h>
#include <stdio.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

/* --- the policy: one request, from its first read to its end --- */

/* request->state: bit 0 says that what is left is read through the page cache;
 * above it, how often in a row the kernel said "again". */
#define STATE_CACHED 1
#define STATE_AGAIN 2

/* A regular file that answers EAGAIN this often in a row is not going to stop. */
#define MAX_AGAIN 1000

/* The kernel takes at most 2 GiB - 4096 in one read, io_uring 4 GiB - 1 and a
 * registered buffer 1 GiB; a power of two keeps direct reads aligned. */
#define MAX_ATTEMPT_BYTES HOIST__GIB

static void start(struct hoist__request *request)
{
	request->result = 0;
	request->done = 0;
	request->direct_done = 0;
	request->fell_back = false;
	request->cancelled = false;
	request->state = request->direct ? 0 : STATE_CACHED;
}

void hoist__request_next(const struct hoist__request *request, struct hoist__attempt *ret)
{
	ret->direct = (request->state & STATE_CACHED) == 0;
	ret->fd = ret->direct ? request->file->direct_fd : request->file->fd;
	ret->offset = request->offset + request->done;
	ret->address = request->address + request->done;
	ret->bytes = (uint32_t)hoist__min_u64(request->bytes - request->done, MAX_ATTEMPT_BYTES);
}

void hoist__request_end(struct hoist__request *request, int result)
{
	request->result = result;
}

static bool end(struct hoist__request *request, int result)
{
	hoist__request_end(request, result);
	return true;
}

static void fall_back(struct hoist__request *request)
{
	request->state = STATE_CACHED;
	request->fell_back = true;
}

/* Can a direct read go on where this request stopped? */
static bool at_aligned_place(const struct hoist__request *request)
{
	const struct hoist__file *file = request->file;
	return request->done % file->offset_align == 0 && request->done % file->memory_align == 0;
}

static void account(struct hoist__request *request, size_t bytes)
{
	bool cached = (request->state & STATE_CACHED) != 0;
	request->done += bytes;
	request->state &= STATE_CACHED;
	if (!cached) {
		request->direct_done += bytes;
		if (request->done < request->need && !at_aligned_place(request))
			fall_back(request);
	}
}

/* After the error @err: true if the request is to be read on. */
static bool worth_another_try(struct hoist__request *request, int err)
{
	if (err == -EINTR)
		return true;
	/* The kernel cancels what a thread has in flight when that thread exits: a
	 * shared engine's requests outlive the thread that submitted them. */
	if ((err == -EAGAIN || err == -ECANCELED) && request->state / STATE_AGAIN < MAX_AGAIN) {
		request->state += STATE_AGAIN;
		return true;
	}
	/* Refused (EINVAL, EOPNOTSUPP) or failed (EIO, ENODATA and the block layer's
	 * other names for it): the page cache may have the bytes, or reads around the
	 * bad place in smaller pieces. */
	if ((request->state & STATE_CACHED) == 0) {
		fall_back(request);
		return true;
	}
	return false;
}

bool hoist__request_finish(struct hoist__request *request, int64_t result)
{
	if (result > 0) {
		account(request, (size_t)result);
		if (request->done >= request->need)
			return end(request, 0);
	} else if (result == 0) {
		return end(request, request->done >= request->need ? 0 : -ENODATA);
	} else if (request->cancelled) {
		return end(request, -ECANCELED);
	} else if (!worth_another_try(request, (int)result)) {
		/* An NVMe medium error is called ENODATA, our word for a short file. */
		return end(request, result == -ENODATA ? -EIO : (int)result);
	}
	return request->cancelled && end(request, -ECANCELED);
}

/* --- the interface --- */

static int create_threads(const struct hoist__engine_options *options, const char *why,
			  struct hoist__engine **ret)
{
	int err = hoist__threads_create(options, ret);
	if (err != 0)
		return err;
	char said[sizeof(*ret)->reason];
	(void)snprintf(said, sizeof said, "%s", (*ret)->reason);
	if (why[0] != '\0')
		(void)snprintf((*ret)->reason, sizeof(*ret)->reason, "%.120s; %.120s", why, said);
	return 0;
}

static int create_auto(const struct hoist__engine_options *options, struct hoist__engine **ret)
{
	char why[128];
	int err = hoist__uring_probe(why, sizeof why);
	if (err != 0)
		return create_threads(options, why, ret);
	err = hoist__uring_create(options, ret);
	if (err == 0)
		return 0;
	hoist__error_copy(why, sizeof why);
	return create_threads(options, why, ret);
}

int hoist__engine_create(const struct hoist__engine_options *options, struct hoist__engine **ret)
{
	if (options->depth < 1 || options->depth > HOIST__ENGINE_MAX_DEPTH)
		return hoist__fail(-EINVAL, "engine depth %u is outside 1..%u", options->depth,
				   HOIST__ENGINE_MAX_DEPTH);
	struct hoist__engine *engine = NULL;
	int err = -EINVAL;
	switch (options->kind) {
	case HOIST__ENGINE_AUTO:
		err = create_auto(options, &engine);
		break;
	case HOIST__ENGINE_URING:
		err = hoist__uring_create(options, &engine);
		break;
	case HOIST__ENGINE_THREADS:
		err = create_threads(options, "", &engine);
		break;
	default:
		return hoist__fail(-EINVAL, "%d is no kind of engine", (int)options->kind);
	}
	if (err != 0)
		return err;
	engine->depth = options->depth;
	engine->in_flight = 0;
	engine->pid = getpid();
	hoist__log(io, "engine of depth %u: %s", engine->depth, engine->reason);
	*ret = engine;
	return 0;
}

static bool forked(const struct hoist__engine *engine)
{
	return getpid() != engine->pid;
}

static int fail_forked(void)
{
	return hoist__fail(-ESTALE, "this engine was made before fork(); the child must make "
				    "its own");
}

void hoist__engine_destroy(struct hoist__engine *engine)
{
	if (engine == NULL)
		return;
	bool child = forked(engine);
	if (!child)
		engine->ops->cancel(engine);
	engine->ops->destroy(engine, child);
}

const char *hoist__engine_name(const struct hoist__engine *engine)
{
	return engine->ops->name;
}

const char *hoist__engine_reason(const struct hoist__engine *engine)
{
	return engine->reason;
}

bool hoist__engine_abandoned(const struct hoist__engine *engine)
{
	return engine->abandoned;
}

unsigned hoist__engine_room(const struct hoist__engine *engine)
{
	return engine->depth - engine->in_flight;
}

static int check_direct(const struct hoist__request *request)
{
	const struct hoist__file *file = request->file;
	if (file->direct_fd < 0)
		return hoist__fail(-EINVAL, "reading %s: no direct reads here (%s)", file->path,
				   file->direct_note);
	if (request->offset % file->offset_align != 0 || request->bytes % file->offset_align != 0 ||
	    (uintptr_t)request->address % file->memory_align != 0)
		return hoist__fail(-EINVAL,
				   "reading %zu bytes at %llu of %s to %p: a direct read wants "
				   "offsets and lengths in multiples of %u, addresses of %u",
				   request->bytes, (unsigned long long)request->offset, file->path,
				   (void *)request->address, file->offset_align,
				   file->memory_align);
	return 0;
}

static int check(const struct hoist__request *request)
{
	uint64_t end_offset;
	if (request->bytes == 0 || request->need > request->bytes ||
	    hoist__add_overflow(request->offset, request->bytes, &end_offset) ||
	    end_offset > INT64_MAX)
		return hoist__fail(-EINVAL, "reading %s: %zu bytes, %zu needed, at %llu",
				   request->file->path, request->bytes, request->need,
				   (unsigned long long)request->offset);
	return request->direct ? check_direct(request) : 0;
}

int hoist__engine_submit(struct hoist__engine *engine, struct hoist__request *const *requests,
			 unsigned n)
{
	if (forked(engine))
		return fail_forked();
	if (n > hoist__engine_room(engine))
		return hoist__fail(-EAGAIN, "%u requests, but room for %u of %u", n,
				   hoist__engine_room(engine), engine->depth);
	for (unsigned i = 0; i < n; i++) {
		int err = check(requests[i]);
		if (err != 0)
			return err;
	}
	for (unsigned i = 0; i < n; i++)
		start(requests[i]);
	int err = engine->ops->submit(engine, requests, n);
	if (err == 0)
		engine->in_flight += n;
	return err;
}

int hoist__engine_reap(struct hoist__engine *engine, struct hoist__request **ret, unsigned max,
		       uint64_t timeout_ns)
{
	if (forked(engine))
		return fail_forked();
	if (engine->in_flight == 0 || max == 0)
		return 0;
	unsigned n = engine->ops->reap(engine, ret, max, timeout_ns);
	assert(n <= max && n <= engine->in_flight);
	engine->in_flight -= n;
	return (int)n;
}

void hoist__engine_cancel(struct hoist__engine *engine)
{
	if (!forked(engine))
		engine->ops->cancel(engine);
}
