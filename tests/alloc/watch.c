/* SPDX-License-Identifier: MIT */
/* Debug levels: fills, redzones and quarantine, in host memory and on emulated devices. */
#include "config.h"

#include "tests/support/alloc-watch.h"

static struct hoist__watch *create(enum hoist__memory_kind kind, unsigned debug)
{
	const struct hoist__watch_options options = {.kind = kind, .dev = dev, .debug = debug};
	struct hoist__watch *watch = NULL;
	OK(hoist__watch_create(&options, &watch));
	return watch;
}

static uintptr_t raw_memory(size_t bytes)
{
	uintptr_t address = 0;
	if (dev != NULL)
		OK(hoist__dev_mem_alloc(dev, bytes, &address));
	else
		address = (uintptr_t)aligned_alloc(4096, hoist__round_up(bytes, 4096));
	cr_assert_neq(address, 0);
	return address;
}

static void give_raw(struct hoist__watch *watch, uintptr_t raw, size_t bytes)
{
	hoist__watch_region_ends(watch, raw, bytes);
	if (dev != NULL)
		OK(hoist__dev_mem_free(dev, raw, bytes));
	else
		free((void *)raw);
}

static uintptr_t allocated(struct hoist__watch *watch, uintptr_t raw, size_t raw_bytes,
			   size_t bytes)
{
	uintptr_t user = 0;
	OK(hoist__watch_allocated(watch, raw, raw_bytes, bytes, 0, false, &user));
	return user;
}

static void empty(struct hoist__watch *watch)
{
	uintptr_t raw;
	do
		OK(hoist__watch_leaves(watch, true, &raw));
	while (raw != 0);
	OK(hoist__watch_quarantined(watch));
}

/* --- level 1 --- */

Test(alloc_watch, level_1_fills_new_and_freed_blocks)
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
	OK(hoist__watch_freed(watch, raw, &back));
	cr_assert_eq(back, raw);
	cr_assert(all_are(raw, 4096, HOIST__POISON_FREE));
	cr_assert_eq(allocated(watch, raw, 4096, 200), raw);
	cr_assert(all_are(raw, 200, HOIST__POISON_NEW));
	OK(hoist__watch_freed(watch, raw, &back));
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
	OK(hoist__watch_freed(watch, raw, &back));
	poke(raw + 16, 0x41);
	poke(raw + 18, 0x42);
	cr_assert_eq(hoist__watch_allocated(watch, raw, 4096, 50, 0, false, &user), -EFAULT);
	cr_assert_eq(user, 1);
	SAYS(where);
	SAYS("2 bytes of it overwritten after it was freed, the first at offset 16");
	SAYS("found 41 db 42 db db db db db instead of db");
	SAYS("use after free");
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
	OK(hoist__watch_freed(watch, raw, &back));
	OK(hoist__watch_freed(watch, raw + 4096, &back));
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
	OK(hoist__watch_allocated(watch, raw, 4096, 4000, 64, true, &user));
	cr_assert_eq(user, raw);
	cr_assert(all_are(raw, 4096, 0));
	OK(hoist__watch_freed(watch, raw, &back));
	cr_assert_eq(back, raw);
	cr_assert(all_are(raw, 4096, 0));
	poke(raw, 1);
	user = allocated(watch, raw, 4096, 1000);
	OK(hoist__watch_freed(watch, raw, &back));
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
		OK(hoist__watch_freed(watch, raw, &back));
		cr_assert_eq(back, 0);
		cr_assert(hoist__watch_holds(watch, raw));
		OK(hoist__watch_leaves(watch, true, &back));
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
	SAYS("the block of 1000 bytes at ");
	SAYS(text);
	SAYS("instead of fd");
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
	OK(hoist__watch_freed(watch, raw, &back));
	poke(user + 5, 0x42);
	cr_assert_eq(hoist__watch_leaves(watch, true, &back), -EFAULT);
	cr_assert_eq(back, raw);
	SAYS("1 byte of it overwritten after it was freed, the first at offset 5: found 42 db");
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
	SAYS("5 bytes before it overwritten, the first at offset -5: found 00 01 02 03 04 ");
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
		OK(hoist__watch_freed(watch, raw + i * each, &back));
		cr_assert_eq(back, 0);
		OK(hoist__watch_leaves(watch, false, &back));
		if (i * each < HOIST__QUARANTINE_BYTES) {
			cr_assert_eq(back, 0, "%zu", i);
			continue;
		}
		cr_assert_eq(back, raw + out++ * each, "%zu", i);
		OK(hoist__watch_leaves(watch, false, &back));
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
		OK(hoist__watch_freed(watch, raw + i * 64, &back));
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
	OK(hoist__watch_tell_fault(watch));
	(void)hoist__fail(-EFAULT, "the first");
	hoist__watch_keep_fault(watch);
	(void)hoist__fail(-EFAULT, "the second");
	hoist__watch_keep_fault(watch);
	(void)hoist__fail(-EINVAL, "something else");
	cr_assert_eq(hoist__watch_tell_fault(watch), -EFAULT);
	cr_assert_str_eq(hoist__error_text(), "the first");
	OK(hoist__watch_tell_fault(watch));
	hoist__watch_destroy(watch);
}

/* --- devices --- */

static void stray_writes_on(enum hoist__api api)
{
	open_device(api);
	stray_writes(HOIST__MEMORY_DEVICE);
	if (api == HOIST__API_CUDA)
		cr_assert_gt(counters_of(&control).memsets, 0);
	expect_nothing_left();
}

Test(alloc_watch, level_2_finds_stray_writes_to_memory_of_the_cpu_device)
{
	stray_writes_on(HOIST__API_CPU);
}

Test(alloc_watch, level_2_finds_stray_writes_to_cuda_memory)
{
	stray_writes_on(HOIST__API_CUDA);
}

Test(alloc_watch, level_2_finds_stray_writes_to_hip_memory)
{
	stray_writes_on(HOIST__API_HIP);
}

Test(alloc_watch, reads_device_memory_back_piece_by_piece)
{
	const size_t all = 300 * HOIST__KIB;
	open_device(HOIST__API_CUDA);
	struct hoist__watch *watch = create(HOIST__MEMORY_DEVICE, 2);
	uintptr_t raw = raw_memory(all);
	uintptr_t user = allocated(watch, raw, all, all - 1000);
	uintptr_t back;
	OK(hoist__watch_freed(watch, raw, &back));
	poke(raw + 64 * HOIST__KIB - 1, 0);
	poke(raw + 64 * HOIST__KIB, 0);
	poke(raw + all - 1, 0);
	cr_assert_eq(hoist__watch_leaves(watch, true, &back), -EFAULT);
	char text[128];
	(void)snprintf(text, sizeof text,
		       "3 bytes of it overwritten after it was freed, the first "
		       "at offset %zu",
		       (size_t)(raw + 64 * HOIST__KIB - 1 - user));
	SAYS(text);
	give_raw(watch, raw, all);
	hoist__watch_destroy(watch);
	expect_nothing_left();
}

/* A failing call finds less; it never accuses. */
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
		uint64_t before = counters_of(&control).injected_failures;
		OK(control.fail(specs[i]));
		(void)allocated(watch, raw, 4096, 1000);
		cr_assert_eq(hoist__watch_freed(watch, raw, &back), 0, "%s: %s", specs[i],
			     hoist__error_text());
		empty(watch);
		cr_assert_gt(counters_of(&control).injected_failures, before, "%s", specs[i]);
		OK(control.fail(""));
		give_raw(watch, raw, 4096);
		hoist__watch_destroy(watch);
	}
	expect_nothing_left();
}
