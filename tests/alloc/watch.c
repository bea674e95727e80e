/* SPDX-License-Identifier: MIT */
/* Debug levels: fills, redzones, quarantine; of host memory, and of emulated devices. */
#include "config.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc/pool.h"
#include "alloc/watch.h"
#include "base/checked.h"
#include "base/error.h"
#include "emulator/control.h"
#include "tests/support/patience.h"

#define POISONED __attribute__((no_sanitize("address")))

/* --- memory of some kind, as a stray write and the test see it --- */

static struct hoist__dev *dev;		     /* NULL: host memory */
static struct hoist__dev_stream *own_stream; /* of the tests */

POISONED static void poke(uintptr_t address, unsigned char value)
{
	if (dev == NULL) {
		*(volatile unsigned char *)address = value;
		return;
	}
	cr_assert_eq(hoist__fill_async(own_stream, address, value, 1, 1), 0);
	cr_assert_eq(hoist__dev_stream_synchronize(own_stream), 0, "%s", hoist__error_text());
}

POISONED static bool all_are(uintptr_t address, size_t bytes, unsigned char value)
{
	for (size_t i = 0; i < bytes; i++)
		if (((const volatile unsigned char *)address)[i] != value)
			return false;
	return true;
}

static bool says(const char *part)
{
	return strstr(hoist__error_text(), part) != NULL;
}

#define CR_SAYS(part) cr_assert(says(part), "%s", hoist__error_text())

static struct hoist__watch *create(enum hoist__memory_kind kind, unsigned debug)
{
	const struct hoist__watch_options options = {.kind = kind, .dev = dev, .debug = debug};
	struct hoist__watch *watch = NULL;
	cr_assert_eq(hoist__watch_create(&options, &watch), 0);
	return watch;
}

static uintptr_t raw_memory(size_t bytes)
{
	uintptr_t address = 0;
	if (dev != NULL)
		cr_assert_eq(hoist__dev_mem_alloc(dev, bytes, &address), 0);
	else
		address = (uintptr_t)aligned_alloc(4096, hoist__round_up(bytes, 4096));
	cr_assert_neq(address, 0);
	return address;
}

static void give_raw(struct hoist__watch *watch, uintptr_t raw, size_t bytes)
{
	hoist__watch_region_ends(watch, raw, bytes);
	if (dev != NULL)
		cr_assert_eq(hoist__dev_mem_free(dev, raw, bytes), 0, "%s", hoist__error_text());
	else
		free((void *)raw);
}

static uintptr_t allocated(struct hoist__watch *watch, uintptr_t raw, size_t raw_bytes,
			   size_t bytes)
{
	uintptr_t user = 0;
	int err = hoist__watch_allocated(watch, raw, raw_bytes, bytes, 0, false, &user);
	cr_assert_eq(err, 0, "%s", hoist__error_text());
	return user;
}

static void empty(struct hoist__watch *watch)
{
	uintptr_t raw;
	do
		cr_assert_eq(hoist__watch_leaves(watch, true, &raw), 0, "%s", hoist__error_text());
	while (raw != 0);
	cr_assert_eq(hoist__watch_quarantined(watch), 0);
}

/* --- level 1 --- */

Test(alloc_watch, level_1_fills_what_is_new_and_what_is_free)
{
	struct hoist__watch *watch = create(HOIST__MEMORY_HOST, 1);
	uintptr_t raw = raw_memory(4096);
	uintptr_t back = 0;
	size_t bytes, align;
	hoist__watch_size(watch, 100, 0, &bytes, &align);
	cr_assert_eq(bytes, 100);
	cr_assert_eq(align, 0);
	cr_assert_eq(allocated(watch, raw, 4096, 100), raw);
	cr_assert(all_are(raw, 100, HOIST__POISON_NEW));
	memset((void *)raw, 7, 100);
	cr_assert_eq(hoist__watch_freed(watch, raw, &back), 0);
	cr_assert_eq(back, raw);
	cr_assert(all_are(raw, 4096, HOIST__POISON_FREE));
	cr_assert_eq(allocated(watch, raw, 4096, 200), raw);
	cr_assert(all_are(raw, 200, HOIST__POISON_NEW));
	cr_assert_eq(hoist__watch_freed(watch, raw, &back), 0);
	give_raw(watch, raw, 4096);
	hoist__watch_destroy(watch);
	hoist__watch_destroy(NULL);
}

Test(alloc_watch, level_1_finds_a_write_after_free_when_the_block_is_given_out)
{
	struct hoist__watch *watch = create(HOIST__MEMORY_HOST, 1);
	uintptr_t raw = raw_memory(4096);
	uintptr_t back, user = 1;
	char where[64];
	(void)snprintf(where, sizeof where, "the block of 100 bytes at %#zx", (size_t)raw);
	(void)allocated(watch, raw, 4096, 100);
	cr_assert_eq(hoist__watch_freed(watch, raw, &back), 0);
	poke(raw + 16, 0x41);
	poke(raw + 18, 0x42);
	cr_assert_eq(hoist__watch_allocated(watch, raw, 4096, 50, 0, false, &user), -EFAULT);
	cr_assert_eq(user, 1);
	CR_SAYS(where);
	CR_SAYS("2 bytes of it overwritten after it was freed, the first at offset 16");
	CR_SAYS("found 41 db 42 db db db db db instead of db");
	CR_SAYS("use after free");
	/* It is found once, and is nobody's meanwhile. */
	size_t bytes;
	cr_assert_eq(hoist__watch_known(watch, raw, raw, &user, &bytes), -EINVAL);
	cr_assert_eq(user, 0);
	cr_assert_eq(allocated(watch, raw, 4096, 50), raw);
	give_raw(watch, raw, 4096);
	hoist__watch_destroy(watch);
}

Test(alloc_watch, knows_nothing_of_memory_whose_region_ended)
{
	struct hoist__watch *watch = create(HOIST__MEMORY_HOST, 1);
	uintptr_t raw = raw_memory(8192);
	uintptr_t back;
	(void)allocated(watch, raw, 4096, 100);
	(void)allocated(watch, raw + 4096, 4096, 100);
	cr_assert_eq(hoist__watch_freed(watch, raw, &back), 0);
	cr_assert_eq(hoist__watch_freed(watch, raw + 4096, &back), 0);
	hoist__watch_region_ends(watch, raw, 4096);
	hoist__watch_region(watch, raw, 4096);
	poke(raw, 1);
	poke(raw + 4096, 1);
	(void)allocated(watch, raw, 4096, 100);
	cr_assert_eq(hoist__watch_allocated(watch, raw + 4096, 4096, 1, 0, false, &back), -EFAULT);
	give_raw(watch, raw, 8192);
	hoist__watch_destroy(watch);
}

Test(alloc_watch, leaves_the_content_of_untouched_blocks_alone)
{
	struct hoist__watch *watch = create(HOIST__MEMORY_HOST, 2);
	uintptr_t raw = raw_memory(4096);
	uintptr_t user, back;
	memset((void *)raw, 0, 4096);
	cr_assert_eq(hoist__watch_allocated(watch, raw, 4096, 4000, 64, true, &user), 0);
	cr_assert_eq(user, raw);
	cr_assert(all_are(raw, 4096, 0));
	cr_assert_eq(hoist__watch_freed(watch, raw, &back), 0);
	cr_assert_eq(back, raw);
	cr_assert(all_are(raw, 4096, 0));
	poke(raw, 1);
	user = allocated(watch, raw, 4096, 1000);
	cr_assert_eq(hoist__watch_freed(watch, raw, &back), 0);
	empty(watch);
	give_raw(watch, raw, 4096);
	hoist__watch_destroy(watch);
}

/* --- level 2 --- */

Test(alloc_watch, level_2_makes_room_for_redzones_at_every_alignment)
{
	struct hoist__watch *watch = create(HOIST__MEMORY_HOST, 2);
	const size_t aligns[] = {0, 1, 64, 128, 4096, 2 * HOIST__MIB};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(aligns); i++) {
		size_t bytes, align;
		hoist__watch_size(watch, 100, aligns[i], &bytes, &align);
		cr_assert_geq(align, aligns[i]);
		uintptr_t raw = (uintptr_t)aligned_alloc(align, hoist__round_up(bytes, align));
		uintptr_t user = 0, back;
		cr_assert_eq(
			hoist__watch_allocated(watch, raw, bytes, 100, aligns[i], false, &user), 0);
		cr_assert_eq(user % (aligns[i] == 0 ? 64 : aligns[i]), 0);
		cr_assert(all_are(user - HOIST__REDZONE_BYTES, HOIST__REDZONE_BYTES,
				  HOIST__POISON_RED));
		cr_assert(all_are(user, 100, HOIST__POISON_NEW));
		cr_assert(all_are(user + 100, raw + bytes - user - 100, HOIST__POISON_RED));
		cr_assert_geq(raw + bytes - user - 100, HOIST__REDZONE_BYTES);
		cr_assert_eq(hoist__watch_freed(watch, raw, &back), 0);
		cr_assert_eq(back, 0);
		cr_assert(hoist__watch_holds(watch, raw));
		cr_assert_eq(hoist__watch_leaves(watch, true, &back), 0);
		cr_assert_eq(back, raw);
		cr_assert(!hoist__watch_holds(watch, raw));
		hoist__watch_region_ends(watch, raw, bytes);
		free((void *)raw);
	}
	hoist__watch_destroy(watch);
}

/* One byte at @offset from a block of 1000 bytes; found when it is freed. */
static void stray_write(struct hoist__watch *watch, ptrdiff_t offset, const char *text)
{
	uintptr_t raw = raw_memory(4096);
	uintptr_t user = allocated(watch, raw, 4096, 1000);
	uintptr_t back = 1;
	poke(user, 1);
	poke(user + 999, 1);
	poke(user + (uintptr_t)offset, 0x41);
	cr_assert_eq(hoist__watch_freed(watch, raw, &back), -EFAULT);
	cr_assert_eq(back, 0);
	CR_SAYS("the block of 1000 bytes at ");
	CR_SAYS(text);
	CR_SAYS("instead of fd");
	empty(watch);
	give_raw(watch, raw, 4096);
}

static void stray_writes(enum hoist__memory_kind kind)
{
	struct hoist__watch *watch = create(kind, 2);
	stray_write(watch, -1, "1 byte before it overwritten, the first at offset -1: found 41 ");
	stray_write(watch, -64, "1 byte before it overwritten, the first at offset -64: found 41 ");
	stray_write(watch, 1000,
		    "1 byte behind it overwritten, the first at offset 1000: found 41 ");
	stray_write(watch, 1063,
		    "1 byte behind it overwritten, the first at offset 1063: found 41 ");
	/* And none where there was none. */
	uintptr_t raw = raw_memory(4096);
	uintptr_t user = allocated(watch, raw, 4096, 1000);
	uintptr_t back;
	for (uintptr_t i = 0; i < 1000; i += 111)
		poke(user + i, 0x41);
	cr_assert_eq(hoist__watch_freed(watch, raw, &back), 0, "%s", hoist__error_text());
	poke(user + 5, 0x42);
	cr_assert_eq(hoist__watch_leaves(watch, true, &back), -EFAULT);
	cr_assert_eq(back, raw);
	CR_SAYS("1 byte of it overwritten after it was freed, the first at offset 5: found 42 db");
	give_raw(watch, raw, 4096);
	hoist__watch_destroy(watch);
}

Test(alloc_watch, level_2_finds_stray_writes_to_host_memory)
{
	stray_writes(HOIST__MEMORY_HOST);
	stray_writes(HOIST__MEMORY_PINNED);
}

Test(alloc_watch, level_2_reports_both_sides_and_names_the_first)
{
	struct hoist__watch *watch = create(HOIST__MEMORY_HOST, 2);
	uintptr_t raw = raw_memory(4096);
	uintptr_t user = allocated(watch, raw, 4096, 10);
	uintptr_t back;
	for (uintptr_t i = 0; i < 20; i++)
		poke(user - 5 + i, (unsigned char)i);
	cr_assert_eq(hoist__watch_freed(watch, raw, &back), -EFAULT);
	CR_SAYS("5 bytes before it overwritten, the first at offset -5: found 00 01 02 03 04 ");
	empty(watch);
	give_raw(watch, raw, 4096);
	hoist__watch_destroy(watch);
}

Test(alloc_watch, quarantine_is_first_in_first_out_by_bytes)
{
	enum { N = 20 };
	const size_t each = HOIST__MIB;
	struct hoist__watch *watch = create(HOIST__MEMORY_HOST, 2);
	uintptr_t raw = raw_memory(N * each);
	size_t out = 0;
	for (size_t i = 0; i < N; i++) {
		uintptr_t back;
		(void)allocated(watch, raw + i * each, each, 1000);
		cr_assert_eq(hoist__watch_freed(watch, raw + i * each, &back), 0);
		cr_assert_eq(back, 0);
		cr_assert_eq(hoist__watch_leaves(watch, false, &back), 0);
		if (i * each < HOIST__QUARANTINE_BYTES) {
			cr_assert_eq(back, 0, "%zu", i);
			continue;
		}
		cr_assert_eq(back, raw + out++ * each, "%zu", i);
		cr_assert_eq(hoist__watch_leaves(watch, false, &back), 0);
		cr_assert_eq(back, 0);
	}
	cr_assert_eq(out, N - HOIST__QUARANTINE_BYTES / each);
	cr_assert_eq(hoist__watch_quarantined(watch), HOIST__QUARANTINE_BYTES);
	empty(watch);
	give_raw(watch, raw, N * each);
	hoist__watch_destroy(watch);
}

/* --- the table --- */

static int fail_calloc;

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);

void *__wrap_calloc(size_t n, size_t bytes)
{
	if (fail_calloc > 0 && --fail_calloc == 0)
		return NULL;
	return __real_calloc(n, bytes);
}

Test(alloc_watch, notes_many_blocks_and_forgets_none)
{
	enum { N = 20000 };
	struct hoist__watch *watch = create(HOIST__MEMORY_HOST, 1);
	uintptr_t raw = raw_memory(N * 64);
	uintptr_t user, back;
	size_t bytes;
	for (size_t i = 0; i < N; i++)
		(void)allocated(watch, raw + i * 64, 64, i % 64 + 1);
	for (size_t i = 0; i < N; i += 3)
		cr_assert_eq(hoist__watch_freed(watch, raw + i * 64, &back), 0);
	for (size_t i = 0; i < N; i++) {
		int err = hoist__watch_known(watch, raw + i * 64, raw + i * 64, &user, &bytes);
		cr_assert_eq(err, i % 3 == 0 ? -EINVAL : 0);
		cr_assert_eq(user, i % 3 == 0 ? 0 : raw + i * 64);
		cr_assert_eq(bytes, i % 3 == 0 ? 0 : i % 64 + 1);
	}
	cr_assert_eq(hoist__watch_known(watch, raw + 64, raw + 65, &user, &bytes), -EINVAL);
	cr_assert_eq(user, raw + 64);
	/* Half of it goes and comes: slots are used again. */
	for (int round = 0; round < 20; round++) {
		hoist__watch_region_ends(watch, raw, N / 2 * 64);
		for (size_t i = 0; i < N / 2; i++)
			(void)allocated(watch, raw + i * 64, 64, 1);
	}
	cr_assert_eq(
		hoist__watch_known(watch, raw + (N - 1) * 64, raw + (N - 1) * 64, &user, &bytes),
		(N - 1) % 3 == 0 ? -EINVAL : 0);
	give_raw(watch, raw, N * 64);
	hoist__watch_destroy(watch);
}

Test(alloc_watch, notes_nothing_when_memory_is_exhausted)
{
	const struct hoist__watch_options options = {.kind = HOIST__MEMORY_HOST, .debug = 1};
	struct hoist__watch *watch = NULL;
	for (int n = 1; n <= 2; n++) {
		fail_calloc = n;
		cr_assert_eq(hoist__watch_create(&options, &watch), -ENOMEM);
		cr_assert_null(watch);
	}
	watch = create(HOIST__MEMORY_HOST, 1);
	uintptr_t raw = raw_memory(4096);
	uintptr_t user = 1;
	size_t bytes;
	memset((void *)raw, 3, 4096);
	fail_calloc = 1;
	cr_assert_eq(hoist__watch_allocated(watch, raw, 4096, 100, 0, false, &user), -ENOMEM);
	cr_assert_eq(user, 1);
	cr_assert(all_are(raw, 4096, 3));
	cr_assert_eq(hoist__watch_known(watch, raw, raw, &user, &bytes), -EINVAL);
	cr_assert_eq(user, 0);
	cr_assert_eq(allocated(watch, raw, 4096, 100), raw);
	give_raw(watch, raw, 4096);
	hoist__watch_destroy(watch);
}

Test(alloc_watch, tells_a_kept_fault_once)
{
	struct hoist__watch *watch = create(HOIST__MEMORY_HOST, 1);
	cr_assert_eq(hoist__watch_tell_fault(watch), 0);
	(void)hoist__fail(-EFAULT, "the first");
	hoist__watch_keep_fault(watch);
	(void)hoist__fail(-EFAULT, "the second");
	hoist__watch_keep_fault(watch);
	(void)hoist__fail(-EINVAL, "something else");
	cr_assert_eq(hoist__watch_tell_fault(watch), -EFAULT);
	cr_assert_str_eq(hoist__error_text(), "the first");
	cr_assert_eq(hoist__watch_tell_fault(watch), 0);
	hoist__watch_destroy(watch);
}

/* --- devices --- */

static void *stand_in;

static void open_device(enum hoist__api api)
{
	setenv("HOIST_EMULATE", "cuda:1,hip:1", 1);
	setenv("HOIST_EMULATE_MEMORY", "256M", 1);
	cr_assert_eq(hoist__dev_get(api, 0, &dev), 0, "%s", hoist__error_text());
	if (api != HOIST__API_CPU) {
		stand_in = dlopen(hoist__api_library(api), RTLD_NOW | RTLD_NOLOAD);
		cr_assert_not_null(stand_in, "%s", dlerror());
	}
	cr_assert_eq(hoist__dev_stream_create(dev, &own_stream), 0);
}

static struct hoist_emulator_counters counters(void)
{
	struct hoist_emulator_counters now;
	__typeof__(&hoist_emulator_counters) ask;
	*(void **)&ask = dlsym(stand_in, "hoist_emulator_counters");
	ask(&now);
	return now;
}

static void make_fail(const char *spec)
{
	__typeof__(&hoist_emulator_fail) fail;
	*(void **)&fail = dlsym(stand_in, "hoist_emulator_fail");
	cr_assert_eq(fail(spec), 0, "%s", spec);
}

static void expect_nothing_left(void)
{
	hoist__dev_stream_destroy(own_stream);
	if (stand_in == NULL)
		return;
	struct hoist_emulator_counters now = counters();
	cr_assert_eq(now.live_allocations, 0);
	cr_assert_eq(now.live_registrations, 0);
	cr_assert_eq(now.live_streams, 0);
	cr_assert_eq(now.pageable_copies, 0);
	cr_assert_eq(now.bad_copies, 0);
	cr_assert_eq(now.use_after_free, 0);
}

Test(alloc_watch, level_2_finds_stray_writes_to_memory_of_the_cpu_device)
{
	open_device(HOIST__API_CPU);
	stray_writes(HOIST__MEMORY_DEVICE);
	expect_nothing_left();
}

Test(alloc_watch, level_2_finds_stray_writes_to_cuda_memory)
{
	open_device(HOIST__API_CUDA);
	stray_writes(HOIST__MEMORY_DEVICE);
	cr_assert_gt(counters().memsets, 0);
	expect_nothing_left();
}

Test(alloc_watch, level_2_finds_stray_writes_to_hip_memory)
{
	open_device(HOIST__API_HIP);
	stray_writes(HOIST__MEMORY_DEVICE);
	expect_nothing_left();
}

Test(alloc_watch, reads_device_memory_back_piece_by_piece)
{
	const size_t all = 300 * HOIST__KIB;
	open_device(HOIST__API_CUDA);
	struct hoist__watch *watch = create(HOIST__MEMORY_DEVICE, 2);
	uintptr_t raw = raw_memory(all);
	uintptr_t user = allocated(watch, raw, all, all - 1000);
	uintptr_t back;
	cr_assert_eq(hoist__watch_freed(watch, raw, &back), 0);
	poke(raw + 64 * HOIST__KIB - 1, 0);
	poke(raw + 64 * HOIST__KIB, 0);
	poke(raw + all - 1, 0);
	cr_assert_eq(hoist__watch_leaves(watch, true, &back), -EFAULT);
	char text[128];
	(void)snprintf(text, sizeof text,
		       "3 bytes of it overwritten after it was freed, the first "
		       "at offset %zu",
		       (size_t)(raw + 64 * HOIST__KIB - 1 - user));
	CR_SAYS(text);
	give_raw(watch, raw, all);
	hoist__watch_destroy(watch);
	expect_nothing_left();
}

/* What fails finds less; it never accuses. */
Test(alloc_watch, a_failing_driver_makes_no_false_report)
{
	const char *const specs[] = {"cuMemsetD8Async:1",     "cuMemsetD8Async:3",
				     "cuMemsetD8Async:4",     "cuMemcpyDtoHAsync:1",
				     "cuMemcpyDtoHAsync:3",   "cuMemHostRegister:1",
				     "cuStreamCreate:1",      "cuStreamSynchronize:1",
				     "cuStreamSynchronize:2", "cuStreamSynchronize:5"};
	open_device(HOIST__API_CUDA);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(specs); i++) {
		struct hoist__watch *watch = create(HOIST__MEMORY_DEVICE, 2);
		uintptr_t raw = raw_memory(4096);
		uintptr_t back;
		uint64_t before = counters().injected_failures;
		make_fail(specs[i]);
		(void)allocated(watch, raw, 4096, 1000);
		cr_assert_eq(hoist__watch_freed(watch, raw, &back), 0, "%s: %s", specs[i],
			     hoist__error_text());
		empty(watch);
		cr_assert_gt(counters().injected_failures, before, "%s", specs[i]);
		make_fail("");
		give_raw(watch, raw, 4096);
		hoist__watch_destroy(watch);
	}
	expect_nothing_left();
}

/* --- in a pool --- */

static struct hoist__pool *pool_of(enum hoist__memory_kind kind, unsigned debug)
{
	const struct hoist__pool_options options = {
		.kind = kind, .dev = dev, .debug = debug, .region_bytes = 4 * HOIST__MIB};
	struct hoist__pool *pool = NULL;
	cr_assert_eq(hoist__pool_create(&options, &pool), 0, "%s", hoist__error_text());
	return pool;
}

static uintptr_t pool_alloc(struct hoist__pool *pool, size_t bytes, size_t align)
{
	uintptr_t address = 0;
	cr_assert_eq(hoist__pool_alloc(pool, bytes, align, 0, &address), 0, "%s",
		     hoist__error_text());
	cr_assert_eq(address % (align == 0 ? 64 : align), 0);
	return address;
}

/* Frees of what is no block, at every level. */
static void wrong_frees(enum hoist__memory_kind kind, unsigned debug)
{
	const size_t sizes[] = {1, 100, 64 * HOIST__KIB, 3 * HOIST__MIB};
	struct hoist__pool *pool = pool_of(kind, debug);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		uintptr_t address = pool_alloc(pool, sizes[i], 0);
		struct hoist__block block;
		cr_assert_eq(hoist__pool_find(pool, address + sizes[i] - 1, &block), 0);
		cr_assert_eq(block.address, address);
		cr_assert_eq(block.bytes, sizes[i]);
		cr_assert_eq(hoist__pool_free(pool, address + 1), -EINVAL);
		if (debug >= 2) {
			cr_assert_eq(hoist__pool_find(pool, address + sizes[i], &block), -ENOENT);
			cr_assert_eq(hoist__pool_find(pool, address - 1, &block), -ENOENT);
			cr_assert_eq(hoist__pool_free(pool, address - HOIST__REDZONE_BYTES),
				     -EINVAL);
		}
		cr_assert_eq(hoist__pool_free(pool, address), 0, "%s", hoist__error_text());
		cr_assert_eq(hoist__pool_free(pool, address), -EINVAL);
		CR_SAYS("freed already");
		cr_assert_eq(hoist__pool_find(pool, address, &block), -ENOENT);
	}
	struct hoist__pool_stats stats;
	hoist__pool_stats(pool, &stats);
	cr_assert_eq(stats.n_allocs, HOIST__ARRAY_SIZE(sizes));
	cr_assert_eq(stats.n_frees, HOIST__ARRAY_SIZE(sizes));
	cr_assert_eq(stats.requested_bytes, 0);
	cr_assert_eq(stats.allocated_bytes, 0);
	cr_assert_eq(stats.pending_bytes > 0, debug >= 2);
	hoist__pool_check(pool);
	hoist__pool_trim(pool, 0);
	hoist__pool_stats(pool, &stats);
	cr_assert_eq(stats.pending_bytes, 0);
	cr_assert_eq(stats.reserved_bytes, 0);
	hoist__pool_unref(pool);
}

Test(alloc_watch, a_pool_refuses_wrong_frees_at_every_level)
{
	for (unsigned debug = 0; debug <= 2; debug++)
		wrong_frees(HOIST__MEMORY_HOST, debug);
	open_device(HOIST__API_CUDA);
	for (unsigned debug = 0; debug <= 2; debug++)
		wrong_frees(HOIST__MEMORY_DEVICE, debug);
	expect_nothing_left();
}

Test(alloc_watch, a_pool_reports_a_write_after_free_and_goes_on)
{
	struct hoist__pool *pool = pool_of(HOIST__MEMORY_HOST, 1);
	uintptr_t address = pool_alloc(pool, 100, 0);
	uintptr_t other = 0;
	cr_assert_eq(hoist__pool_free(pool, address), 0);
	poke(address, 1);
	int err = 0;
	for (int i = 0; err == 0 && i < 10000; i++)
		err = hoist__pool_alloc(pool, 100, 0, 0, &other);
	cr_assert_eq(err, -EFAULT);
	CR_SAYS("overwritten after it was freed, the first at offset 0");
	cr_assert_eq(hoist__pool_alloc(pool, 100, 0, 0, &other), 0);
	hoist__pool_unref(pool);
}

Test(alloc_watch, a_pool_reports_what_was_overwritten_around_a_block)
{
	struct hoist__pool *pool = pool_of(HOIST__MEMORY_HOST, 2);
	for (size_t align = 1; align <= 2 * HOIST__MIB; align *= 8) {
		uintptr_t address = pool_alloc(pool, 100, align);
		poke(address + 100, 1);
		cr_assert_eq(hoist__pool_free(pool, address), -EFAULT);
		CR_SAYS("1 byte behind it overwritten, the first at offset 100");
		cr_assert_eq(hoist__pool_free(pool, address), -EINVAL);
	}
	/* Found when it leaves the quarantine, by whoever frees then. */
	uintptr_t address = pool_alloc(pool, 100, 0);
	cr_assert_eq(hoist__pool_free(pool, address), 0);
	poke(address, 1);
	int err = 0;
	for (int i = 0; err == 0 && i < 100; i++) {
		uintptr_t other = pool_alloc(pool, HOIST__MIB, 0);
		err = hoist__pool_free(pool, other);
	}
	cr_assert_eq(err, -EFAULT);
	CR_SAYS("the block of 100 bytes");
	/* Or when it is taken out: the next free tells. */
	address = pool_alloc(pool, 100, 0);
	cr_assert_eq(hoist__pool_free(pool, address), 0);
	poke(address + 1, 1);
	hoist__pool_trim(pool, 0);
	address = pool_alloc(pool, 200, 0);
	cr_assert_eq(hoist__pool_free(pool, address), -EFAULT);
	CR_SAYS("the first at offset 1");
	hoist__pool_unref(pool);
}

Test(alloc_watch, lazy_blocks_are_zero_at_every_level)
{
	for (unsigned debug = 0; debug <= 2; debug++) {
		struct hoist__pool *pool = pool_of(HOIST__MEMORY_HOST, debug);
		uintptr_t address = 0;
		for (int i = 0; i < 3; i++) {
			cr_assert_eq(hoist__pool_alloc(pool, 100000, 0, HOIST__ALLOC_UNPOPULATED,
						       &address),
				     0);
			cr_assert(all_are(address, 100000, 0));
			memset((void *)address, 1, 100000);
			cr_assert_eq(hoist__pool_free(pool, address), 0, "%s", hoist__error_text());
		}
		hoist__pool_unref(pool);
	}
}

/* An event is recorded by the first trim, and has passed by a later one. */
static void trim_until_none_is_pending(struct hoist__pool *pool)
{
	struct hoist__pool_stats stats;
	uint64_t until = 0;
	do {
		hoist__pool_trim(pool, 0);
		hoist__pool_stats(pool, &stats);
	} while (stats.pending_bytes != 0 && patience(&until));
	cr_assert_eq(stats.pending_bytes, 0);
}

/* The stream is behind, the host frees: checked when the stream has passed. */
Test(alloc_watch, blocks_freed_on_a_stream_are_checked_when_it_has_passed)
{
	open_device(HOIST__API_CUDA);
	struct hoist__pool *pool = pool_of(HOIST__MEMORY_DEVICE, 2);
	uintptr_t address = 0;
	cr_assert_eq(hoist__pool_alloc_on(pool, 0, 0, own_stream, &address), -EINVAL);
	cr_assert_eq(hoist__pool_alloc_on(pool, 1000, 3, own_stream, &address), -EINVAL);
	cr_assert_eq(hoist__pool_alloc_on(pool, 1000, 0, own_stream, &address), 0);
	cr_assert_eq(hoist__fill_async(own_stream, address, 1, 1, 1001), 0);
	cr_assert_eq(hoist__pool_free_on(pool, address, own_stream), 0);
	cr_assert_eq(hoist__pool_free_on(pool, address, own_stream), -EINVAL);
	trim_until_none_is_pending(pool);
	address = pool_alloc(pool, 1, 0);
	cr_assert_eq(hoist__pool_free(pool, address), -EFAULT);
	CR_SAYS("the block of 1000 bytes");
	CR_SAYS("1 byte behind it overwritten, the first at offset 1000: found 01 ");
	hoist__pool_unref(pool);
	expect_nothing_left();
}
