/* SPDX-License-Identifier: MIT */
/* io/crew.h - threads that serve requests with pread and pwrite.
 *
 * The threads engine is a crew and nothing else.  The io_uring engine keeps a crew beside its ring
 * for work that does not suit a ring: copies out of the page cache, which would keep the submitting
 * thread from handing the next read to an idle disk; and the work that a request brings as a
 * function of its owner's.
 *
 *     submit -> queued --worker--> running --policy--> finished -> reap
 *                  ^                   |
 *                  +---- (cancel) -----+--> finished
 *
 * A hot request is cut into pieces at multiples of 2 MiB in memory, so that few requests keep all
 * threads busy, and no two threads populate one huge page.  The request still ends once, with
 * `done` up to the first piece that stopped short.  A worker populates fresh memory piece by piece:
 * the pages that the kernel has just cleared are still in the processor's cache when the bytes
 * come.
 *
 * Workers call pread, and never copy out of a mapping.  A memcpy from a mapping raises SIGBUS if
 * another process shortens the file.  process_vm_readv of the process's own mapping cannot, but is
 * nowhere faster than pread, so there is nothing to choose at run time.  GB per second of CPU time,
 * best of 40, 1 MiB at a time, Linux 6.18, EPYC:
 *                              pread  vm_readv, map and unmap included  (memcpy, mapped before)
 *     ext4 (large folios)       7.9    6.9      6.4                      8.3 to 8.7
 *     tmpfs (4 KiB pages)       5.3    6.1      5.3                      8.4
 *
 * Threads: submit, reap and cancel from one thread at a time; wake from any.
 */
#ifndef HOIST_IO_CREW_H
#define HOIST_IO_CREW_H

#include "io/disks.h"
#include "io/engine.h"

#define HOIST__CREW_MAX_THREADS 64u

struct hoist__crew;

struct hoist__crew_options {
	unsigned n_threads;
	struct hoist__disks disks; /* no disk occupies more than its share of the threads */
	/* A worker calls this after requests that the workers finished: after a few, while more are
	 * queued or about to end, and behind the last one.  NULL: no call. */
	void (*ended)(void *context);
	void *context;
};

/* Fewer threads than wanted are no error, only slower; no thread at all is an error.
 * Returns: 0; -ENOMEM, also if the system gives no thread; -EPERM, a filter forbids them. */
int hoist__crew_create(const struct hoist__crew_options *options, struct hoist__crew **ret);

/* The workers finish the requests that they are serving.  @forked: called in a forked child, which
 * has no workers.  Takes NULL. */
void hoist__crew_destroy(struct hoist__crew *crew, bool forked);

unsigned hoist__crew_n_threads(const struct hoist__crew *crew);

/* Takes requests that were started.  Some of their bytes may be done already. */
void hoist__crew_submit(struct hoist__crew *crew, struct hoist__request *const *requests,
			unsigned n);

/* Takes up to @max finished requests.  Waits up to @timeout_ns for the first one, or for
 * hoist__crew_wake(). */
unsigned hoist__crew_reap(struct hoist__crew *crew, struct hoist__request **ret, unsigned max,
			  uint64_t timeout_ns);

/* Moves all finished requests to the end of @list. */
void hoist__crew_take(struct hoist__crew *crew, struct hoist__list *list);

void hoist__crew_cancel(struct hoist__crew *crew);
void hoist__crew_wake(struct hoist__crew *crew);

#endif
