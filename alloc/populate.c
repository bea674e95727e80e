/* SPDX-License-Identifier: MIT */
/* alloc/populate.c - faults pages in, by several threads.
 * The contract is in alloc/populate.h and alloc/region.h. */
#include "config.h"

#include "alloc/populate.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alloc/map.h"
#include "alloc/region.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/figure.h"
#include "base/thread.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define MAX_THREADS 16
#define SLOW_SLICES 2	 /* in a row, of one thread: a single slow slice may be chance */
#define MAX_RETRIES 1000 /* of EAGAIN, which the kernel calls temporary */
#define COLLAPSE_TRIES 3 /* of EAGAIN where small pages will do */

bool hoist__populate_supported(void)
{
	/* An empty range is valid for any advice the kernel knows. */
	static char anywhere;
	uintptr_t page = hoist__round_down((uintptr_t)&anywhere, hoist__page_bytes());
	return madvise((void *)page, 0, MADV_POPULATE_WRITE) == 0;
}

/* The kernel ors 0 into the word there.  That is a write that changes nothing, also when another
 * thread writes there, and a page that cannot be had is an error instead of a signal.  No thread
 * waits at that address. */
static int touch_page(char *page)
{
	long err = syscall(SYS_futex, page, FUTEX_WAKE_OP_PRIVATE, 0, NULL, page,
			   FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 1));
	if (err >= 0)
		return 0;
	if (errno == EFAULT || errno == ENOMEM)
		return -errno;
	__atomic_fetch_or(page, 0, __ATOMIC_RELAXED); /* the system call is refused, so the page is
						       * touched directly */
	return 0;
}

static int touch(char *from, size_t bytes, size_t page_bytes)
{
	int err = 0;
	for (size_t i = 0; err == 0 && i < bytes; i += page_bytes)
		err = touch_page(from + i);
	return err;
}

/* Populates whole pages.  Returns: 0; 1 if they were touched instead; the kernel's refusal:
 * -ENOMEM; -EFAULT where hugetlb or a cgroup has none left. */
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
	int err = touch(from, bytes, hoist__page_bytes());
	return err < 0 ? err : 1;
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
	size_t slice_bytes;
	_Atomic size_t next_slice;
	_Atomic int err; /* the first failure; stops the others */
	_Atomic bool touched;
	_Atomic bool unpinned;
	_Atomic uint64_t slow_rate; /* the rate at which huge pages were given up; 0: they were
				     * not */
	_Atomic size_t small_at;
	_Atomic size_t collapsed;
	_Atomic int collapse_err; /* the last one */
	_Atomic bool no_collapse; /* collapsing is not to be tried again */
};

struct worker {
	struct shared *shared;
	int node; /* the node to run on; -1: anywhere */
	pthread_t thread;
};

/* --- how fast huge pages come --- */

/* One thread's clocks. */
struct pace {
	uint64_t wall_ns;
	uint64_t cpu_ns;
	long n_preempted;
	unsigned n_slow; /* slices in a row */
};

static void pace_read(struct pace *pace)
{
	struct rusage usage;
	pace->wall_ns = hoist__now_ns();
	pace->cpu_ns = hoist__thread_cpu_ns();
	pace->n_preempted = getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

/* Returns: the time that populating took since the last reading.  If the thread was preempted, its
 * CPU time; else the wall time, which includes sleeps in the kernel. */
static uint64_t pace_ns(struct pace *pace)
{
	struct pace before = *pace;
	pace_read(pace);
	return pace->n_preempted != before.n_preempted ? pace->cpu_ns - before.cpu_ns
						       : pace->wall_ns - before.wall_ns;
}

/* Populates the rest with small pages from now on.  Slices that other threads have begun are not
 * touched. */
static void give_up_huge_pages(struct shared *shared, uint64_t rate)
{
	const struct hoist__populate_job *job = shared->job;
	uint64_t none = 0;
	if (!atomic_compare_exchange_strong(&shared->slow_rate, &none, rate))
		return;
	atomic_store(&shared->no_collapse, true);
	size_t at = atomic_load(&shared->next_slice) * shared->slice_bytes;
	if (at < job->bytes &&
	    madvise((char *)job->base + at, job->bytes - at, MADV_NOHUGEPAGE) == 0)
		atomic_store(&shared->small_at, at);
}

/* After each slice. */
static void check_pace(struct shared *shared, struct pace *pace, size_t bytes)
{
	uint64_t ns = hoist__max_u64(1, pace_ns(pace));
	uint64_t rate = (uint64_t)((unsigned __int128)bytes * HOIST__NS_PER_S / ns);
	pace->n_slow = rate < shared->job->thp_floor ? pace->n_slow + 1 : 0;
	if (pace->n_slow >= SLOW_SLICES)
		give_up_huge_pages(shared, hoist__max_u64(1, rate));
}

/* --- huge pages where the kernel gives small ones --- */

/* Makes whole huge pages.  The kernel needs one small page in each to begin with.  Nothing has been
 * written yet, so little is copied.
 * Returns: 0, also where the kernel cannot collapse; why a small page could not be had. */
static int collapse(struct shared *shared, char *from, size_t bytes)
{
	HOIST__ASSERT(bytes % HOIST__HUGE_PAGE_BYTES == 0);
	int err = 0;
	for (size_t i = 0; err >= 0 && i < bytes; i += HOIST__HUGE_PAGE_BYTES)
		err = populate_pages(from + i, hoist__page_bytes());
	if (err < 0)
		return err;
	for (int i = 0; i < COLLAPSE_TRIES; i++) {
		if (madvise(from, bytes, MADV_COLLAPSE) == 0) {
			atomic_fetch_add(&shared->collapsed, bytes);
			return 0;
		}
		err = -errno;
		if (err != -EAGAIN)
			break;
	}
	atomic_store(&shared->collapse_err, err);
	atomic_store(&shared->no_collapse, err != -EAGAIN);
	return 0;
}

static int populate_slice(struct shared *shared, char *from, size_t bytes)
{
	size_t whole = hoist__round_down(bytes, HOIST__HUGE_PAGE_BYTES);
	int err = 0;
	if (shared->job->collapse && whole > 0 && !atomic_load(&shared->no_collapse))
		err = collapse(shared, from, whole);
	return err < 0 ? err : populate_pages(from, bytes);
}

/* --- the work --- */

static void populate_slices(struct shared *shared)
{
	const struct hoist__populate_job *job = shared->job;
	struct pace pace = {0};
	if (job->thp_floor != 0)
		pace_read(&pace);
	while (atomic_load(&shared->err) == 0) {
		size_t at = atomic_fetch_add(&shared->next_slice, 1) * shared->slice_bytes;
		if (at >= job->bytes)
			return;
		size_t bytes = (size_t)hoist__min_u64(shared->slice_bytes, job->bytes - at);
		HOIST__ASSERT(bytes != 0 && at + bytes <= job->bytes);
		int err = populate_slice(shared, (char *)job->base + at, bytes);
		if (err < 0)
			atomic_store(&shared->err, err);
		else if (err > 0)
			atomic_store(&shared->touched, true);
		if (job->thp_floor != 0 && atomic_load(&shared->slow_rate) == 0)
			check_pace(shared, &pace, bytes);
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

/* Returns: the node after @node in the set, cyclically; -1 if the set is empty. */
static int next_node(const struct hoist__nodeset *set, int node)
{
	if (set == NULL)
		return -1;
	for (int i = 1; i <= HOIST__MAX_NODES; i++)
		if (hoist__nodeset_has(set, (node + i) % HOIST__MAX_NODES))
			return (node + i) % HOIST__MAX_NODES;
	return -1;
}

/* Starts up to @n threads.  Returns: how many started. */
static unsigned start_workers(struct shared *shared, struct worker *workers, unsigned n)
{
	unsigned i = 0;
	int node = -1;
	for (; i < n; i++) {
		node = next_node(shared->job->nodes, node);
		workers[i] = (struct worker){.shared = shared, .node = node};
		if (hoist__thread_start(NULL, worker_main, &workers[i], &workers[i].thread) < 0)
			break;
	}
	return i;
}

/* If no thread can be started, the caller does all the work, on whatever CPU it runs. */
int hoist__populate_parallel(const struct hoist__populate_job *job,
			     struct hoist__populate_report *report)
{
	struct shared shared = {
		.job = job,
		.slice_bytes = job->slice_bytes != 0 ? job->slice_bytes : HOIST__SLICE_BYTES,
		.small_at = job->bytes,
	};
	struct worker workers[MAX_THREADS];
	size_t n_slices = (job->bytes + shared.slice_bytes - 1) / shared.slice_bytes;
	unsigned n =
		(unsigned)hoist__min_u64(hoist__min_u64(job->n_threads, MAX_THREADS), n_slices);
	/* The caller works too, unless the work must run on a certain node: its own
	 * affinity is the program's. */
	unsigned n_helpers = job->nodes != NULL ? n : n - (n > 0);
	HOIST__ASSERT(n_helpers <= MAX_THREADS && n_helpers <= n_slices);
	unsigned n_started = start_workers(&shared, workers, n_helpers);
	if (job->nodes == NULL || n_started == 0)
		populate_slices(&shared);
	for (unsigned i = 0; i < n_started; i++)
		pthread_join(workers[i].thread, NULL);
	report->touched = atomic_load(&shared.touched);
	report->no_threads = n_started < n_helpers;
	report->unpinned = atomic_load(&shared.unpinned) || (job->nodes != NULL && n_started == 0);
	report->rate = atomic_load(&shared.slow_rate);
	report->slow = report->rate != 0;
	report->small_at = report->slow ? atomic_load(&shared.small_at) : 0;
	report->collapsed = atomic_load(&shared.collapsed);
	report->collapse_err = atomic_load(&shared.collapse_err);
	int err = atomic_load(&shared.err);
	return err == 0 ? 0 : populate_failed(err, job->bytes);
}
