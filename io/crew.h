/* SPDX-License-Identifier: MIT */
/* io/crew.h - threads that serve requests with pread and pwrite.
 *
 * The whole of the threads engine, and beside a ring the hands for what is no work for one:
 * copies out of the page cache, which would keep the thread that submits from handing the next
 * read to an idle disk.
 *
 *     submit -> queued --worker--> running --policy--> finished -> reap
 *                  ^                   |
 *                  +---- (cancel) -----+--> finished
 *
 * A hot request is cut in pieces, so that few requests keep all threads busy; it still ends
 * once, with `done` up to the first piece that stopped short.
 *
 * They pread, and never copy out of a mapping.  A memcpy from one ends the program where
 * another shortens the file; what cannot (process_vm_readv of one's own mapping) is not faster
 * anywhere, so that there is nothing to choose at run time.  GB of CPU time per second, best of 40,
 * 1 MiB at a time, Linux 6.18, EPYC:
 *                              pread  vm_readv, map and unmap included  (memcpy, mapped before)
 *     ext4 (large folios)       7.9    6.9      6.4                      8.3 to 8.7
 *     tmpfs (4 KiB pages)       5.3    6.1      5.3                      8.4
 *
 * Threads: submit, reap and cancel by one at a time; wake by any.
 */
#ifndef HOIST_IO_CREW_H
#define HOIST_IO_CREW_H

#include "io/disks.h"
#include "io/engine.h"

#define HOIST__CREW_MAX_THREADS 64u

struct hoist__crew;

struct hoist__crew_options {
	unsigned n_threads;
	struct hoist__disks disks; /* none occupies more than its share of the threads */
	/* Called by a worker after each request that it finished; NULL: nobody */
	void (*ended)(void *context);
	void *context;
};

/* Fewer threads than wanted are only slower; none is a failure.
 * Returns: 0; -ENOMEM, also if the system gives no thread; -EPERM, a filter forbids them. */
int hoist__crew_create(const struct hoist__crew_options *options, struct hoist__crew **ret);

/* The threads end what they are at.  @forked: in a child, where there are none.  Takes NULL. */
void hoist__crew_destroy(struct hoist__crew *crew, bool forked);

unsigned hoist__crew_n_threads(const struct hoist__crew *crew);

/* Requests that were started, and may have got somewhere already. */
void hoist__crew_submit(struct hoist__crew *crew, struct hoist__request *const *requests,
			unsigned n);

/* Waits for the first one, up to @timeout_ns, or for hoist__crew_wake(). */
unsigned hoist__crew_reap(struct hoist__crew *crew, struct hoist__request **ret, unsigned max,
			  uint64_t timeout_ns);

/* Moves all that has finished to the end of @list. */
void hoist__crew_take(struct hoist__crew *crew, struct hoist__list *list);

void hoist__crew_cancel(struct hoist__crew *crew);
void hoist__crew_wake(struct hoist__crew *crew);

#endif
