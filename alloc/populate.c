/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "alloc/populate.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/figure.h"
#include "alloc/map.h"
#include "alloc/region.h"
#include "base/checked.h"
#include "base/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SLICE_BYTES (16 * HOIST__MIB) /* small enough that threads end together */
#define MAX_THREADS 16
#define MAX_RETRIES 1000 /* of EAGAIN, which the kernel calls temporary */

bool hoist__populate_supported(void)
{
	/* An empty range is valid for any advice the kernel knows. */
	static char anywhere;
	uintptr_t page = hoist__round_down((uintptr_t)&anywhere, hoist__page_bytes());
	return madvise((void *)page, 0, MADV_POPULATE_WRITE) == 0;
}

/* A write that changes nothing, also when another thread writes there. */
static void touch(char *from, size_t bytes, size_t page_bytes)
{
	for (size_t i = 0; i < bytes; i += page_bytes)
		__atomic_fetch_or(from + i, 0, __ATOMIC_RELAXED);
}

/* Whole pages.  Returns 0, 1 if they were touched instead, or the kernel's
 * refusal: -ENOMEM; -EFAULT where hugetlb or a cgroup has none left. */
static int populate_pages(char *from, size_t bytes)
{
	for (int i = 0; i < MAX_RETRIES; i++) {
		if (madvise(from, bytes, MADV_POPULATE_WRITE) == 0)
			return 0;
		if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON)
			return -errno;
		if (errno != EINTR && errno != EAGAIN)
			break;
		sched_yield();
	}
	touch(from, bytes, hoist__page_bytes());
	return 1;
}

static int populate_failed(int err, size_t bytes)
{
	struct hoist__figure figure = hoist__figure(bytes);
	if (err == -EFAULT)
		return hoist__fail(-ENOMEM,
				   "populating %s: the kernel has no such page left (the nodes' "
				   "hugetlb pool, or a cgroup's limit)",
				   figure.text);
	return hoist__fail_errno(-ENOMEM, "populating %s", figure.text);
}

int hoist__populate(void *address, size_t bytes)
{
	size_t page_bytes = hoist__page_bytes();
	uintptr_t from = hoist__round_down((uintptr_t)address, page_bytes);
	uintptr_t to = hoist__round_up((uintptr_t)address + bytes, page_bytes);
	int err = populate_pages((char *)from, to - from);
	return err < 0 ? populate_failed(err, to - from) : 0;
}

/* One call of hoist__populate_parallel(), shared by its threads. */
struct shared {
	const struct hoist__populate_job *job;
	_Atomic size_t next_slice;
	_Atomic int err; /* the first failure; stops the others */
	_Atomic bool touched;
	_Atomic bool unpinned;
};

struct worker {
	struct shared *shared;
	int node; /* to run on; -1: anywhere */
	pthread_t thread;
};

static void populate_slices(struct shared *shared)
{
	const struct hoist__populate_job *job = shared->job;
	while (atomic_load(&shared->err) == 0) {
		size_t at = atomic_fetch_add(&shared->next_slice, 1) * SLICE_BYTES;
		if (at >= job->bytes)
			return;
		size_t bytes = (size_t)hoist__min_u64(SLICE_BYTES, job->bytes - at);
		int err = populate_pages((char *)job->base + at, bytes);
		if (err < 0)
			atomic_store(&shared->err, err);
		else if (err > 0)
			atomic_store(&shared->touched, true);
	}
}

static void *worker_main(void *argument)
{
	struct worker *worker = argument;
	struct shared *shared = worker->shared;
	if (worker->node >= 0 && hoist__run_on_node(shared->job->topology, worker->node) != 0)
		atomic_store(&shared->unpinned, true);
	populate_slices(shared);
	return NULL;
}

/* The node after @node in the set, round and round; -1 if the set is empty. */
static int next_node(const struct hoist__nodeset *set, int node)
{
	if (set == NULL)
		return -1;
	for (int i = 1; i <= HOIST__MAX_NODES; i++)
		if (hoist__nodeset_has(set, (node + i) % HOIST__MAX_NODES))
			return (node + i) % HOIST__MAX_NODES;
	return -1;
}

/* Starts up to @n threads with all signals blocked: the program's handlers run
 * in the program's threads.  Returns how many started. */
static unsigned start_workers(struct shared *shared, struct worker *workers, unsigned n)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	unsigned i = 0;
	int node = -1;
	for (; i < n; i++) {
		node = next_node(shared->job->nodes, node);
		workers[i] = (struct worker){.shared = shared, .node = node};
		if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0)
			break;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return i;
}

int hoist__populate_parallel(const struct hoist__populate_job *job,
			     struct hoist__populate_report *report)
{
	struct shared shared = {.job = job};
	struct worker workers[MAX_THREADS];
	size_t n_slices = (job->bytes + SLICE_BYTES - 1) / SLICE_BYTES;
	unsigned n =
		(unsigned)hoist__min_u64(hoist__min_u64(job->n_threads, MAX_THREADS), n_slices);
	/* The caller works too, unless the work must run on a certain node: its own
	 * affinity is the program's. */
	unsigned n_helpers = job->nodes != NULL ? n : n - (n > 0);
	unsigned n_started = start_workers(&shared, workers, n_helpers);
	if (job->nodes == NULL || n_started == 0)
		populate_slices(&shared);
	for (unsigned i = 0; i < n_started; i++)
		pthread_join(workers[i].thread, NULL);
	report->touched = atomic_load(&shared.touched);
	report->no_threads = n_started < n_helpers;
	report->unpinned = atomic_load(&shared.unpinned) || (job->nodes != NULL && n_started == 0);
	int err = atomic_load(&shared.err);
	return err == 0 ? 0 : populate_failed(err, job->bytes);
}
