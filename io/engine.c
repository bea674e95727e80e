/* SPDX-License-Identifier: MIT */
/* Chooses an implementation of the engine, and checks requests before it sees them.
 * The contract is in io/engine.h. */
#include "config.h"

#include "io/engine-impl.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "device/device.h"

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

/* The probe makes a ring; creating the real one can still fail, for want of memory or descriptors.
 * Either refusal becomes part of the threads engine's reason. */
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
	int err = hoist__fork_watch();
	if (err < 0)
		return err;
	err = -EINVAL;
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
	HOIST__ASSERT(engine->depth >= options->depth && engine->ops->reap != NULL);
	engine->in_flight = 0;
	engine->generation = hoist__fork_now();
	hoist__log(io, "engine of depth %u: %s", engine->depth, engine->reason);
	*ret = engine;
	return 0;
}

static bool forked(const struct hoist__engine *engine)
{
	return hoist__fork_now() != engine->generation;
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
	/* In a child of fork the requests are the parent's, and must not be cancelled. */
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

unsigned hoist__engine_in_flight(const struct hoist__engine *engine)
{
	return engine->in_flight;
}

static const char *doing(const struct hoist__request *request)
{
	return request->write ? "writing" : "reading";
}

static int check_direct(const struct hoist__request *request)
{
	const struct hoist__file *file = request->file;
	if (file->direct_fd < 0)
		return hoist__fail(-EINVAL, "%s %s: the file has no direct descriptor (%s)",
				   doing(request), file->path, file->direct_note);
	if (request->offset % file->offset_align != 0 || request->bytes % file->offset_align != 0 ||
	    (uintptr_t)request->address % file->memory_align != 0)
		return hoist__fail(-EINVAL,
				   "%s %zu bytes at %llu of %s, memory %p: direct, this wants "
				   "offsets and lengths in multiples of %u, addresses of %u",
				   doing(request), request->bytes,
				   (unsigned long long)request->offset, file->path,
				   (void *)request->address, file->offset_align,
				   file->memory_align);
	return 0;
}

static bool rows_add_up(const struct hoist__request *request)
{
	size_t bytes = 0;
	for (size_t i = 0; i < request->n_rows; i++) {
		const struct hoist__rows *rows = &request->rows[i];
		uint64_t last;
		if (rows->n == 0 || rows->bytes == 0 ||
		    __builtin_mul_overflow(rows->n - 1, rows->stride, &last) ||
		    __builtin_add_overflow(last, rows->offset, &last) ||
		    __builtin_add_overflow(last, rows->bytes, &last) || last > INT64_MAX)
			return false;
		bytes += rows->n * rows->bytes;
	}
	return request->hot && !request->write && !request->direct && bytes == request->bytes;
}

static int check(const struct hoist__request *request)
{
	uint64_t end_offset;
	if (request->work != NULL)
		return 0;
	/* A write has no rest that is not needed, and the dropped range of a read has a bound. */
	if (request->bytes == 0 || request->need > request->bytes ||
	    (request->write && request->need != request->bytes) ||
	    (request->n_rows > 0 && !rows_add_up(request)) ||
	    (request->drop && request->bytes > HOIST__REQUEST_MAX_DROP) ||
	    hoist__add_overflow(request->offset, request->bytes, &end_offset) ||
	    end_offset > INT64_MAX)
		return hoist__fail(-EINVAL, "%s %s: %zu bytes, %zu needed, at %llu%s",
				   doing(request), request->file->path, request->bytes,
				   request->need, (unsigned long long)request->offset,
				   request->drop ? ", to be dropped" : "");
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
	/* All requests are checked before any starts, so that a refused call has started none. */
	for (unsigned i = 0; i < n; i++) {
		int err = check(requests[i]);
		if (err != 0)
			return err;
	}
	for (unsigned i = 0; i < n; i++)
		hoist__request_start(requests[i]);
	int err = engine->ops->submit(engine, requests, n);
	if (err == 0)
		engine->in_flight += n;
	HOIST__ASSERT(engine->in_flight <= engine->depth);
	return err;
}

/* True if a request that is handed back says how it ended. */
HOIST__CONDITION static bool has_ended(const struct hoist__request *request)
{
	return request->result <= 0 && request->done <= request->bytes &&
	       request->direct_done <= request->done &&
	       (request->result != 0 || request->done >= request->need);
}

int hoist__engine_reap(struct hoist__engine *engine, struct hoist__request **ret, unsigned max,
		       uint64_t timeout_ns)
{
	if (forked(engine))
		return fail_forked();
	if (max == 0)
		return 0;
	unsigned n = engine->ops->reap(engine, ret, max, timeout_ns);
	assert(n <= max && n <= engine->in_flight);
	for (unsigned i = 0; i < n; i++)
		HOIST__ASSERT(has_ended(ret[i]));
	engine->in_flight -= n;
	return (int)n;
}

void hoist__engine_wake(struct hoist__engine *engine)
{
	if (!forked(engine))
		engine->ops->wake(engine);
}

void hoist__engine_cancel(struct hoist__engine *engine)
{
	if (!forked(engine))
		engine->ops->cancel(engine);
}
