/* SPDX-License-Identifier: MIT */
/* Every call that can fail, failing: each scenario is run with its first call
 * made to fail, then its second, and so on until none is left.  Whatever
 * the scenario says then, nothing may be left behind.
 *
 * The calls are those of the library's own code: the linker sends them here
 * (--wrap), which works beside the sanitizers' own interception. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc/budget.h"
#include "alloc/pool-private.h"
#include "base/checked.h"
#include "base/error.h"
#include "numa/place.h"

#define ADVICE_POPULATE_WRITE 23

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s; %s, call %ld, %s (%s)\n", __FILE__, __LINE__,  \
				#condition, scenario_name, fail_at, strerror(fail_with),           \
				hoist__error_text());                                              \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static const char *scenario_name = "";
static long fail_at; /* the call to fail; 0: none */
static int fail_with = ENOMEM;
static atomic_long n_calls;
static atomic_long n_allocated; /* malloc and the like, not freed yet */
static atomic_long n_mapped;
static bool pretend_hugetlb;	  /* MAP_HUGETLB gives ordinary pages */
static bool hugetlb_node_is_full; /* ... that cannot be populated, the first time */
static void *unmap_refused;	  /* what munmap() was made to fail on */
static size_t unmap_refused_bytes;
static bool refused_was_emptied;
static void (*on_next_map)(void);   /* called once, before the mmap() */
static void (*on_next_chunk)(void); /* the same, before block descriptors are allocated */
#define CHUNK_BYTES 4096	    /* less than a chunk, more than all else */

static bool fails(void)
{
	if (atomic_fetch_add(&n_calls, 1) + 1 != fail_at)
		return false;
	errno = fail_with;
	return true;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void __real_free(void *memory);
void *__real_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
int __real_munmap(void *memory, size_t bytes);
int __real_mprotect(void *memory, size_t bytes, int access);
int __real_madvise(void *memory, size_t bytes, int advice);
int __real_mlock(const void *memory, size_t bytes);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*start)(void *), void *argument);
long __real_mbind(void *memory, unsigned long bytes, int mode, const unsigned long *mask,
		  unsigned long bits, unsigned flags);
long __real_move_pages(int pid, unsigned long n, void **pages, const int *nodes, int *status,
		       int flags);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void __wrap_free(void *memory);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
int __wrap_munmap(void *memory, size_t bytes);
int __wrap_mprotect(void *memory, size_t bytes, int access);
int __wrap_madvise(void *memory, size_t bytes, int advice);
int __wrap_mlock(const void *memory, size_t bytes);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*start)(void *), void *argument);
long __wrap_mbind(void *memory, unsigned long bytes, int mode, const unsigned long *mask,
		  unsigned long bits, unsigned flags);
long __wrap_move_pages(int pid, unsigned long n, void **pages, const int *nodes, int *status,
		       int flags);

static void *counted(void *memory)
{
	if (memory != NULL)
		atomic_fetch_add(&n_allocated, 1);
	return memory;
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	if (n * bytes >= CHUNK_BYTES && on_next_chunk != NULL) {
		void (*call)(void) = on_next_chunk;
		on_next_chunk = NULL;
		call();
	}
	return fails() ? NULL : counted(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	if (fails())
		return NULL;
	void *moved = __real_realloc(memory, bytes);
	return memory == NULL ? counted(moved) : moved;
}

void __wrap_free(void *memory)
{
	if (memory != NULL)
		atomic_fetch_sub(&n_allocated, 1);
	__real_free(memory);
}

void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset)
{
	if (on_next_map != NULL) {
		void (*call)(void) = on_next_map;
		on_next_map = NULL;
		call();
	}
	if (fails())
		return MAP_FAILED;
	if (pretend_hugetlb && (flags & MAP_HUGETLB) != 0)
		flags = MAP_PRIVATE | MAP_ANONYMOUS;
	void *memory = __real_mmap(at, bytes, access, flags, fd, offset);
	if (memory != MAP_FAILED)
		atomic_fetch_add(&n_mapped, 1);
	return memory;
}

int __wrap_munmap(void *memory, size_t bytes)
{
	if (fails()) {
		unmap_refused = memory;
		unmap_refused_bytes = bytes;
		return -1;
	}
	int err = __real_munmap(memory, bytes);
	if (err == 0)
		atomic_fetch_sub(&n_mapped, 1);
	return err;
}

int __wrap_mprotect(void *memory, size_t bytes, int access)
{
	return fails() ? -1 : __real_mprotect(memory, bytes, access);
}

int __wrap_madvise(void *memory, size_t bytes, int advice)
{
	if (fails())
		return -1;
	if (advice == ADVICE_POPULATE_WRITE && bytes > 0 && hugetlb_node_is_full) {
		hugetlb_node_is_full = false;
		errno = EFAULT;
		return -1;
	}
	if (advice == MADV_DONTNEED && unmap_refused != NULL)
		refused_was_emptied = true;
	return __real_madvise(memory, bytes, advice);
}

int __wrap_mlock(const void *memory, size_t bytes)
{
	return fails() ? -1 : __real_mlock(memory, bytes);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*start)(void *), void *argument)
{
	return fails() ? EAGAIN : __real_pthread_create(thread, attributes, start, argument);
}

long __wrap_mbind(void *memory, unsigned long bytes, int mode, const unsigned long *mask,
		  unsigned long bits, unsigned flags)
{
	return fails() ? -1 : __real_mbind(memory, bytes, mode, mask, bits, flags);
}

long __wrap_move_pages(int pid, unsigned long n, void **pages, const int *nodes, int *status,
		       int flags)
{
	return fails() ? -1 : __real_move_pages(pid, n, pages, nodes, status, flags);
}

/* --- scenarios: 0, or the error that stopped them; nothing is kept --- */

static int make_region(const struct hoist__region_options *options)
{
	struct hoist__region *region;
	int err = hoist__region_create(options, &region);
	if (err == 0) {
		memset((void *)region->base, 1, region->bytes);
		hoist__region_destroy(region);
	}
	return err;
}

static int host_region(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = 2 * HOIST__MIB, .n_threads = 1};
	return make_region(&options);
}

static int pinned_region(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_PINNED, .bytes = 32 * HOIST__KIB, .n_threads = 1};
	options.placement.policy = HOIST__POLICY_PREFER;
	hoist__nodeset_add(&options.placement.nodes, 0);
	return make_region(&options);
}

static int hugetlb_region(void)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 2 * HOIST__MIB,
						.hugetlb = true,
						.n_threads = 1};
	return make_region(&options);
}

static int lazy_region(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB, .lazy = true};
	struct hoist__region *region;
	int err = hoist__region_create(&options, &region);
	if (err != 0)
		return err;
	err = hoist__populate((void *)region->base, region->bytes);
	hoist__region_destroy(region);
	return err;
}

/* By two threads, three slices. */
static int region_by_threads(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = 33 * HOIST__MIB, .n_threads = 2};
	return make_region(&options);
}

/* Huge pages are given up behind the second slice of three. */
static int slow_region(void)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 33 * HOIST__MIB,
						.n_threads = 1,
						.thp_floor = UINT64_MAX};
	return make_region(&options);
}

static struct hoist__dev *emulated;

/* Two pieces, registered with a driver that no failure reaches. */
static int registered_region(void)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_PINNED,
						.bytes = 128 * HOIST__KIB,
						.dev = emulated,
						.piece_bytes = 64 * HOIST__KIB,
						.n_threads = 1};
	return make_region(&options);
}

static int device_region(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_DEVICE, .bytes = HOIST__MIB, .dev = emulated};
	struct hoist__region *region;
	int err = hoist__region_create(&options, &region);
	if (err == 0)
		hoist__region_destroy(region);
	return err;
}

static int managed_region(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_MANAGED, .bytes = HOIST__MIB, .dev = emulated};
	return make_region(&options);
}

static _Alignas(65536) char not_ours[3 * 65536];

/* Locked, and by a driver registered. */
static int given_region(void)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_PINNED,
						.bytes = sizeof not_ours,
						.given = (uintptr_t)not_ours};
	int err = make_region(&options);
	options.dev = emulated;
	return err == 0 ? make_region(&options) : err;
}

/* Not aligned, so that it is asked twice. */
static int lend(void *context, size_t bytes, size_t align, uintptr_t *ret)
{
	(void)align;
	if (fails() || bytes > sizeof not_ours - 4096)
		return hoist__fail(-ENOSPC, "a test's source has no more");
	++*(int *)context;
	*ret = (uintptr_t)not_ours + 4096;
	return 0;
}

static void take_back(void *context, uintptr_t address, size_t bytes)
{
	CHECK(address == (uintptr_t)not_ours + 4096 && bytes <= sizeof not_ours - 4096);
	--*(int *)context;
}

static int source_region(void)
{
	int n_lent = 0;
	struct hoist__source source = {lend, take_back, &n_lent};
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_PINNED, .bytes = 4096, .source = &source};
	int err = make_region(&options);
	CHECK(n_lent == 0);
	return err;
}

static int topology(void)
{
	struct hoist__topology *loaded;
	int err = hoist__topology_load("/sys", &loaded);
	if (err != 0)
		return err;
	CHECK(loaded->n_nodes > 0);
	hoist__topology_destroy(loaded);
	return 0;
}

static int budget(void)
{
	struct hoist__budget *made;
	int err = hoist__budget_create(1, &made);
	if (err == 0)
		hoist__budget_unref(made);
	return err;
}

/* Blocks of all sorts: shared, own, lazy; growth, reuse, trim. */
static int pool(void)
{
	struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_HOST,
		.region_bytes = 256 * HOIST__KIB,
		.keep_bytes = HOIST__MIB,
		.limit_bytes = 2 * HOIST__MIB,
	};
	static const size_t sizes[] = {100, 90000, 400000, 90000, 5000, 90000, 400000};
	struct hoist__block blocks[HOIST__ARRAY_SIZE(sizes)];
	struct hoist__pool *made;
	int err = hoist__pool_create(&options, &made);
	if (err != 0)
		return err;
	int first_err = 0;
	size_t n = 0;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		unsigned flags = i == 4 ? HOIST__ALLOC_LAZY : 0;
		err = hoist__pool_alloc(made, sizes[i], 0, flags, &blocks[n]);
		if (err == 0)
			memset((void *)blocks[n].address, 1, blocks[n].bytes);
		if (err == 0)
			n++;
		else if (first_err == 0)
			first_err = err;
	}
	struct hoist__pool_stats stats;
	hoist__pool_stats(made, &stats);
	CHECK(stats.n_blocks == n && stats.reserved_bytes <= 2 * HOIST__MIB);
	CHECK((long)stats.n_regions == atomic_load(&n_mapped) || unmap_refused != NULL);
	for (size_t i = 0; i < n; i++)
		CHECK(hoist__pool_free(made, blocks[i].address) == 0);
	hoist__pool_stats(made, &stats);
	CHECK(stats.n_blocks == 0 && stats.allocated_bytes == 0 && stats.requested_bytes == 0);
	hoist__pool_trim(made, 0);
	hoist__pool_stats(made, &stats);
	CHECK(stats.reserved_bytes == 0 && stats.n_regions == 0);
	hoist__pool_unref(made);
	return first_err;
}

/* --- the sweep --- */

static void expect_nothing_left(void)
{
	if (unmap_refused != NULL) {
		/* The address space is lost to the kernel's refusal; the pages are not. */
		CHECK(refused_was_emptied);
		CHECK(__real_munmap(unmap_refused, unmap_refused_bytes) == 0);
		atomic_fetch_sub(&n_mapped, 1);
		unmap_refused = NULL;
		refused_was_emptied = false;
	}
	CHECK(atomic_load(&n_allocated) == 0);
	CHECK(atomic_load(&n_mapped) == 0);
}

static void sweep(const char *name, int (*scenario)(void), int error)
{
	long n_failed = 0;
	scenario_name = name;
	fail_with = error;
	fail_at = 0;
	CHECK(scenario() == 0);
	expect_nothing_left();
	for (fail_at = 1;; fail_at++) {
		atomic_store(&n_calls, 0);
		int err = scenario();
		expect_nothing_left();
		if (atomic_load(&n_calls) < fail_at) {
			CHECK(err == 0);
			break;
		}
		CHECK(err == 0 || hoist__error_text()[0] != '\0');
		n_failed += err != 0;
	}
	CHECK(fail_at > 1 && n_failed > 0);
	printf("%s: %ld calls failed (%s), %ld of them could not be helped\n", name, fail_at - 1,
	       strerror(error), n_failed);
}

/* A pool of huge pages that turns out empty on the node asked for. */
static void check_hugetlb_fallback(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB, .hugetlb = true, .n_threads = 1};
	struct hoist__region *region;
	fail_at = 0;
	hugetlb_node_is_full = true;
	CHECK(hoist__region_create(&options, &region) == 0);
	CHECK(!hugetlb_node_is_full);
	CHECK(region->pages == HOIST__PAGES_SMALL && region->bytes == HOIST__MIB);
	CHECK(strstr(region->step_note[HOIST__STEP_HUGE], "no such page left") != NULL);
	hoist__region_destroy(region);
	CHECK(hoist__region_create(&options, &region) == 0);
	CHECK(region->pages == HOIST__PAGES_HUGETLB && region->bytes == 2 * HOIST__MIB);
	CHECK(region->step_note[HOIST__STEP_HUGE][0] == '\0');
	hoist__region_destroy(region);
	expect_nothing_left();
}

/* --- a thread that waits for what another's growth leaves of the limit --- */

static struct hoist__pool *tight; /* room for two regions: one is used, one wanted */
static struct hoist__block filler;
static pthread_t waiter;
static int waiter_err;

static void use_a_spare(void)
{
	CHECK(hoist__pool_alloc(tight, 64, 0, 0, &filler) == 0);
}

static void *want_a_region(void *unused)
{
	struct hoist__block block;
	waiter_err = hoist__pool_alloc(tight, HOIST__MIB, 0, 0, &block);
	return unused;
}

/* The pause lets it come to wait.  If it does not, it has nothing to wait for. */
static void start_waiter(void)
{
	CHECK(pthread_create(&waiter, NULL, want_a_region, NULL) == 0);
	(void)usleep(50000);
}

/* While a region is made, another thread uses up the descriptors, so that the pool's
 * lock is dropped once more before the region counts: who waits for the limit
 * meanwhile must be told when it does. */
static void check_waiter_is_told(void)
{
	struct hoist__pool_options options = {.kind = HOIST__MEMORY_HOST,
					      .region_bytes = HOIST__MIB,
					      .limit_bytes = 2 * HOIST__MIB};
	struct hoist__block blocks[128], large;
	size_t n = 0;
	scenario_name = "waiting for the limit";
	fail_at = 0;
	CHECK(hoist__pool_create(&options, &tight) == 0);
	do {
		CHECK(n < HOIST__ARRAY_SIZE(blocks));
		CHECK(hoist__pool_alloc(tight, 64, 0, 0, &blocks[n++]) == 0);
	} while (tight->spans.n_spares > HOIST__SPANS_NEEDED);
	on_next_map = use_a_spare;
	on_next_chunk = start_waiter;
	(void)alarm(60); /* the failure to see is a thread that waits for ever */
	CHECK(hoist__pool_alloc(tight, HOIST__MIB, 0, 0, &large) == 0);
	CHECK(on_next_map == NULL && on_next_chunk == NULL);
	CHECK(pthread_join(waiter, NULL) == 0);
	(void)alarm(0);
	CHECK(waiter_err == -EDQUOT);
	while (n > 0)
		CHECK(hoist__pool_free(tight, blocks[--n].address) == 0);
	CHECK(hoist__pool_free(tight, filler.address) == 0);
	CHECK(hoist__pool_free(tight, large.address) == 0);
	hoist__pool_unref(tight);
	expect_nothing_left();
}

int main(void)
{
	static const int errors[] = {ENOMEM, EPERM, EINVAL};
	struct hoist__dev *cpu;
	/* Devices, and what their drivers need to begin, are there for the life of the process. */
	CHECK(setenv("HOIST_EMULATE", "cuda:1", 1) == 0);
	CHECK(hoist__dev_get(HOIST__API_CPU, 0, &cpu) == 0);
	CHECK(hoist__dev_get(HOIST__API_CUDA, 0, &emulated) == 0);
	CHECK(registered_region() == 0);
	atomic_store(&n_allocated, 0);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(errors); i++) {
		sweep("host region", host_region, errors[i]);
		sweep("pinned region", pinned_region, errors[i]);
		sweep("lazy region", lazy_region, errors[i]);
		sweep("region by threads", region_by_threads, errors[i]);
		sweep("slow region", slow_region, errors[i]);
		sweep("registered region", registered_region, errors[i]);
		sweep("device region", device_region, errors[i]);
		sweep("managed region", managed_region, errors[i]);
		sweep("given region", given_region, errors[i]);
		sweep("source region", source_region, errors[i]);
		sweep("topology", topology, errors[i]);
		sweep("budget", budget, errors[i]);
		sweep("pool", pool, errors[i]);
		pretend_hugetlb = true;
		sweep("hugetlb region", hugetlb_region, errors[i]);
		pretend_hugetlb = false;
	}
	pretend_hugetlb = true;
	check_hugetlb_fallback();
	pretend_hugetlb = false;
	check_waiter_is_told();
	return 0;
}
