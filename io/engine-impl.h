/* SPDX-License-Identifier: MIT */
/* io/engine-impl.h - shared by engine.c and its two implementations.
 *
 * The policy (what to do after a short read, an error, the end of the file, a
 * cancel) is written once, in request.c, as two functions on a request:
 *
 *     hoist__request_next()    chooses the next call to make for the request
 *     hoist__request_finish()  accounts for the call's result; the request ended, or next again
 *
 * An implementation only moves requests between its lists and the kernel.  It
 * calls the policy for one request from one thread at a time.
 */
#ifndef HOIST_IO_ENGINE_IMPL_H
#define HOIST_IO_ENGINE_IMPL_H

#include "io/engine.h"

struct hoist__engine_ops {
	const char *name;
	/* @n <= room; the requests are checked and started.  Returns: 0; the error of a broken
	 * ring, with no request taken. */
	int (*submit)(struct hoist__engine *engine, struct hoist__request *const *requests,
		      unsigned n);
	/* May be called with nothing in flight: it then waits for `wake`. */
	unsigned (*reap)(struct hoist__engine *engine, struct hoist__request **ret, unsigned max,
			 uint64_t timeout_ns);
	void (*cancel)(struct hoist__engine *engine);
	void (*wake)(struct hoist__engine *engine); /* from any thread */
	/* Everything is cancelled already.  @forked: called in a forked child, which may only give
	 * back memory and descriptors. */
	void (*destroy)(struct hoist__engine *engine, bool forked);
};

/* The head of each implementation's own struct. */
struct hoist__engine {
	const struct hoist__engine_ops *ops;
	unsigned depth;	    /* of all disks together */
	unsigned in_flight; /* submitted and not reaped */
	bool abandoned;	    /* hoist__engine_abandoned() */
	unsigned generation; /* of the creator's process: hoist__fork_now() */
	char reason[512];
};

/* One call to make. */
struct hoist__attempt {
	enum {
		HOIST__ATTEMPT_READ,
		HOIST__ATTEMPT_WRITE,
		HOIST__ATTEMPT_DROP,
		HOIST__ATTEMPT_RESCUE, /* hoist__file_rescue(): for a thread */
		HOIST__ATTEMPT_WORK,   /* the caller's function: for a thread */
	} what;
	const struct hoist__file *file;
	int fd;
	int flags; /* of preadv2(2) */
	bool direct;
	uint64_t offset;
	unsigned char *address;
	uint32_t bytes; /* DROP: the length for posix_fadvise(POSIX_FADV_DONTNEED) */
	int (*work)(void *owner);
	void *owner;
};

#define HOIST__REQUEST_MAX_DROP HOIST__GIB

void hoist__request_start(struct hoist__request *request);
void hoist__request_next(const struct hoist__request *request, struct hoist__attempt *ret);

/* @result is the call's result: bytes, 0 at the end of the file, or a negative errno.  Returns:
 * true if the request has ended (its result is set); false: next again. */
bool hoist__request_finish(struct hoist__request *request, int64_t result);

/* Returns: true if the kernel has cancelled the request so often that a thread of ours should make
 * the call. io_uring cancels requests for its own threads when it may not start any (RLIMIT_NPROC,
 * pids.max).  A request that is answered with EAGAIN stays with the ring: no thread of ours may
 * wait for a slow server. */
bool hoist__request_is_stuck(const struct hoist__request *request);

/* Makes the call in this thread.  Returns: its result, as hoist__request_finish() takes it. */
int64_t hoist__attempt_make(const struct hoist__attempt *call);

/* Ends a request that neither the kernel nor a worker is serving. */
void hoist__request_end(struct hoist__request *request, int result);

/* Both fill everything but the head's in_flight and generation. */
int hoist__uring_create(const struct hoist__engine_options *options, struct hoist__engine **ret);
int hoist__threads_create(const struct hoist__engine_options *options, struct hoist__engine **ret);

#endif
