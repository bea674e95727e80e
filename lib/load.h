/* SPDX-License-Identifier: MIT */
/* lib/load.h - a load's state: what load.c (the object), load-result.c
 * (what it gave) and pump*.c (the work) share.
 *
 * One pump moves the whole load forward; nothing calls back into it:
 *
 *     plan --chunk--> engine --request--> [slot --copy--> device]
 *       ^                                    |
 *       +------- a free request or slot -----+
 *
 *   begin    opens what the driving thread must own: the engine
 *   step     reclaim copied slots, submit chunks while there is room, reap, copy
 *   end      on success, failure or cancel: everything in flight is brought
 *            home, then files are checked, then the report is final
 *
 * The first failure wins; it stops submission, cancels the engine, and the pump
 * goes on stepping until nothing is in flight: no buffer or slot is released
 * while the kernel or a device may still write or read it.
 *
 *   phase:  READY --begin--> RUNNING --all chunks read and copied--> DONE
 *                               |failure, cancel                      ^
 *                               +--------> DRAINING ------------------+
 *
 * Threads: pump state belongs to the driving thread.  What others read is written
 * before `done` is set: err, text, report.  `lock` is for waiting only, so that a
 * forked child can ask whether the load is done.  `cancelled`, `arrived` and `done`
 * are atomic.
 */
#ifndef HOIST_LIB_LOAD_H
#define HOIST_LIB_LOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "hoist/load.h"
#include "io/engine.h"
#include "io/populate.h"
#include "io/staging.h"
#include "lib/checkpoint.h"
#include "lib/plan.h"
#include "lib/storage.h"

#define HOIST__LOAD_DEPTH 32 /* reads in flight, of 2 MiB (device) or 4 MiB (host) */
#define HOIST__LOAD_CHUNK_BYTES ((size_t)4 << 20)

enum hoist__phase {
	HOIST__PHASE_READY,
	HOIST__PHASE_RUNNING,
	HOIST__PHASE_DRAINING,
	HOIST__PHASE_DONE
};

/* A read in flight to the host; a slot plays this part on the way to a device. */
struct hoist__inflight {
	struct hoist__request request;
	struct hoist__chunk chunk;
	struct hoist__inflight *next_free;
};

/* Why chunks went the way they went: counted for the report. */
struct hoist__routes {
	uint64_t resident;  /* chunks read through the cache because they lay in it */
	uint64_t unknown;   /* the kernel would not say; read directly */
	uint64_t no_direct; /* the file has no direct descriptor */
	uint64_t fell_back; /* direct reads that were finished through the cache */
	const char *note;   /* why one file has no direct descriptor */
};

struct hoist_load {
	/* Set at start, then constant. */
	hoist_checkpoint *checkpoint;
	hoist_device *device;
	hoist_stream *stream; /* NULL for the host */
	hoist_budget *budget;
	enum hoist_engine engine_kind;
	enum hoist_io io;
	bool caller_driven;
	bool to_host;
	pid_t pid;
	struct hoist__plan plan;
	struct hoist__storage **storages; /* one; for maps one a file (NULL if unused) */
	size_t n_storages;
	const struct hoist__file **files; /* the checkpoint's, for the engine */

	/* The pump's. */
	enum hoist__phase phase;
	struct hoist__engine *engine;
	struct hoist__populator *populator; /* host, large destinations */
	size_t populated;
	struct hoist__staging *ring; /* device */
	struct hoist__chunk *slots; /* what each slot holds, by its index in the ring */
	size_t *copying; /* useful bytes of each slot being copied, a FIFO */
	unsigned copying_first;
	struct hoist__inflight *inflight; /* host: HOIST__LOAD_DEPTH of them */
	struct hoist__inflight *free_inflight;
	unsigned n_inflight; /* reads submitted and not yet reaped */
	struct hoist__cursor cursor;
	struct hoist__chunk next; /* the chunk to submit next, if has_next */
	bool has_next;
	struct hoist__routes routes;
	hoist_load_report report;
	uint64_t start_ns;
	uint64_t start_cpu_ns;

	/* Shared. */
	_Atomic bool cancelled;
	_Atomic uint64_t arrived; /* useful bytes at their destination */
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	pthread_mutex_t driving; /* caller-driven: one step at a time */
	_Atomic bool done;
	int err;
	char text[HOIST__ERROR_BYTES];
};

/* Is the destination fresh memory that is populated while it is read into?  From
 * this size on the populating threads pay for themselves. */
#define HOIST__LOAD_LAZY_BYTES ((uint64_t)8 << 20)

static inline bool hoist__load_is_lazy(const struct hoist_load *load)
{
	return load->to_host && load->plan.destination_bytes >= HOIST__LOAD_LAZY_BYTES;
}

/* One round; waits up to @timeout_ns.  True once the phase is DONE. */
bool hoist__pump_step(struct hoist_load *load, uint64_t timeout_ns);

bool hoist__load_is_done(const struct hoist_load *load);

/* What a load that has ended came to, with its text in the calling thread. */
int hoist__load_outcome(const struct hoist_load *load);

/* The report's last fields, from the routes and counters. */
void hoist__load_finish_report(struct hoist_load *load);

#endif
