/* SPDX-License-Identifier: MIT */
/* Copies, reads and writes between any two places against a model in plain
 * memory, with drivers whose streams finish late; and what the drivers saw. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/memory/lane.h"
#include "tests/support/child.h"
#include "tests/support/lib-unit.h"
#include "tests/support/random.h"

/* More than both slots of the bounce (8 MiB), and no multiple of anything. */
#define LONG_BYTES ((size_t)9 * 1024 * 1024 + 12345)

/* Every device's memory, then every device's pinned memory. */
#define N_PLACES (2 * LIB_N_DEVICES)

/* RLIMIT_MEMLOCK is 8 MiB by default, so the CPU pins little. */
static bool too_much_to_lock(int place, size_t bytes)
{
	return place == LIB_N_DEVICES && bytes > (size_t)1 << 20;
}

static hoist_buffer *create(int place, size_t bytes)
{
	return make_buffer(devices[place % LIB_N_DEVICES], HOIST_U8, 1, SHAPE((int64_t)bytes),
			   place < LIB_N_DEVICES ? 0 : HOIST_BUFFER_PINNED);
}

static unsigned char *allocate(size_t bytes)
{
	unsigned char *memory = malloc(bytes);
	cr_assert_not_null(memory);
	return memory;
}

static void expect_bytes(hoist_buffer *buffer, const unsigned char *expected, size_t bytes)
{
	unsigned char *got = allocate(bytes);
	memset(got, 0xee, bytes);
	OK(hoist_buffer_read(buffer, 0, got, bytes));
	cr_assert_eq(memcmp(got, expected, bytes), 0);
	free(got);
}

static void copy_between_all(size_t bytes)
{
	uint64_t seed = bytes;
	unsigned char *model = allocate(bytes);
	for (int from = 0; from < N_PLACES; from++)
		for (int to = 0; to < N_PLACES; to++) {
			if (too_much_to_lock(from, bytes) || too_much_to_lock(to, bytes))
				continue;
			random_fill(&seed, model, bytes);
			hoist_buffer *src = create(from, bytes);
			hoist_buffer *dst = create(to, bytes);
			OK(hoist_buffer_write(src, 0, model, bytes));
			cr_assert_eq(hoist_buffer_copy_into(dst, src), 0, "%d to %d: %s", from, to,
				     hoist_error());
			expect_bytes(dst, model, bytes);
			DROP(src, dst);
		}
	free(model);
	expect_all_given_back();
}

/* proves: S0.27 */
Test(transfer, reaches_every_place_from_every_place, .init = open_all)
{
	copy_between_all(1);
	copy_between_all(70001);
}

/* proves: S0.27 */
Test(transfer, many_slots_reach_every_place_from_every_place, .init = open_all)
{
	lib_set_latency("cuda", 0, 300);
	lib_set_latency("hip", 0, 300);
	copy_between_all(LONG_BYTES);
}

Test(transfer, at_the_edges_of_slots_is_exact, .init = open_all)
{
	const size_t slot = (size_t)4 << 20;
	const size_t sizes[] = {slot - 1, slot, slot + 1, 2 * slot - 1, 2 * slot, 2 * slot + 1};
	uint64_t seed = 5;
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		unsigned char *model = allocate(sizes[i]);
		random_fill(&seed, model, sizes[i]);
		hoist_buffer *b = create(1, sizes[i]);
		OK(hoist_buffer_write(b, 0, model, sizes[i]));
		expect_bytes(b, model, sizes[i]);
		hoist_buffer_unref(b);
		free(model);
	}
	cr_assert(lib_drivers_content());
}

Test(transfer, random_reads_and_writes_agree_with_a_model, .init = open_all)
{
	enum { BYTES = 60000, STEPS = 150 };
	static unsigned char model[BYTES];
	static unsigned char piece[BYTES];
	for (int place = 0; place < N_PLACES; place++) {
		uint64_t seed = (uint64_t)place;
		hoist_buffer *b = create(place, BYTES);
		random_fill(&seed, model, BYTES);
		OK(hoist_buffer_write(b, 0, model, BYTES));
		for (int step = 0; step < STEPS; step++) {
			size_t offset = random_next(&seed) % (BYTES + 1);
			size_t bytes = random_next(&seed) % (BYTES - offset + 1);
			if (step % 2 == 0) {
				random_fill(&seed, piece, bytes);
				memcpy(model + offset, piece, bytes);
				OK(hoist_buffer_write(b, offset, piece, bytes));
			} else {
				memset(piece, 0x5a, bytes);
				OK(hoist_buffer_read(b, offset, piece, bytes));
				cr_assert_eq(memcmp(piece, model + offset, bytes), 0,
					     "place %d, step %d", place, step);
			}
		}
		expect_bytes(b, model, BYTES);
		hoist_buffer_unref(b);
	}
	expect_all_given_back();
}

/* Two views of one buffer, @shift bytes apart, the one copied over the other. */
static void copy_overlapping(int place, size_t bytes, size_t shift, bool forward)
{
	size_t all = bytes + shift;
	uint64_t seed = bytes + shift;
	unsigned char *model = allocate(all);
	random_fill(&seed, model, all);
	hoist_buffer *b = create(place, all);
	OK(hoist_buffer_write(b, 0, model, all));
	const int64_t shape[] = {(int64_t)bytes};
	hoist_buffer *low = make_view(b, 0, HOIST_U8, 1, shape);
	hoist_buffer *high = make_view(b, shift, HOIST_U8, 1, shape);
	OK(hoist_buffer_copy_into(forward ? high : low, forward ? low : high));
	memmove(model + (forward ? shift : 0), model + (forward ? 0 : shift), bytes);
	expect_bytes(b, model, all);
	DROP(low, high, b);
	free(model);
}

/* proves: S0.27 */
Test(transfer, overlapping_views_are_copied_as_memmove_does, .init = open_all)
{
	for (int place = 0; place < 2; place++)
		for (int forward = 0; forward < 2; forward++) {
			copy_overlapping(place, 1000, 1, forward);
			copy_overlapping(place, 1000, 999, forward);
			copy_overlapping(place, 1000, 1000, forward);
			copy_overlapping(place, 1000, 0, forward);
			copy_overlapping(place, LONG_BYTES, 77777, forward);
			copy_overlapping(place, LONG_BYTES, (size_t)5 << 20, forward);
		}
	expect_all_given_back();
}

/* proves: S0.21 */
Test(transfer, copy_makes_an_equal_buffer_elsewhere, .init = open_all)
{
	const int64_t shape[] = {3, 5};
	uint64_t seed = 3;
	unsigned char model[30];
	random_fill(&seed, model, sizeof model);
	hoist_buffer *chain[LIB_N_DEVICES + 1] = {NULL};
	OK(hoist_buffer_create(devices[0], HOIST_F16, 2, shape, 0, &chain[0]));
	OK(hoist_buffer_write(chain[0], 0, model, sizeof model));
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_device *next = devices[(i + 1) % LIB_N_DEVICES];
		OK(hoist_buffer_copy(chain[i], next, &chain[i + 1]));
		cr_expect_eq(hoist_buffer_device(chain[i + 1]), next);
		cr_expect_eq(hoist_buffer_dtype(chain[i + 1]), HOIST_F16);
		cr_expect_arr_eq(hoist_buffer_shape(chain[i + 1]), shape, sizeof shape);
		expect_bytes(chain[i + 1], model, sizeof model);
	}
	for (int i = 0; i <= LIB_N_DEVICES; i++)
		hoist_buffer_unref(chain[i]);
	cr_assert(lib_nothing_outstanding(devices));
}

Test(transfer, keeps_within_two_slots_of_pinned_memory, .init = open_all)
{
	hoist_buffer *b = create(1, 10 * LONG_BYTES);
	unsigned char *host = allocate(10 * LONG_BYTES);
	memset(host, 1, 10 * LONG_BYTES);
	OK(hoist_buffer_write(b, 0, host, 10 * LONG_BYTES));
	OK(hoist_buffer_read(b, 0, host, 10 * LONG_BYTES));
	cr_expect_leq(lib_counters("cuda").peak_registered_bytes, (size_t)8 << 20);
	hoist_buffer_unref(b);
	free(host);
}

Test(transfer, direct_ones_pin_nothing_more, .init = open_all)
{
	hoist_buffer *b = create(1, LONG_BYTES);
	hoist_buffer *pinned = create(LIB_N_DEVICES + 2, LONG_BYTES);
	uint64_t before = lib_counters("cuda").peak_registered_bytes;
	/* cuda:1 pinned it, cuda:0 copies from it: registration is for the whole api. */
	OK(hoist_buffer_copy_into(b, pinned));
	OK(hoist_buffer_copy_into(pinned, b));
	cr_expect_eq(lib_counters("cuda").peak_registered_bytes, before);
	cr_expect_eq(lib_counters("cuda").copies, 2);
	DROP(b, pinned);
	cr_assert(lib_drivers_content());
}

Test(transfer, idle_lanes_are_used_again, .init = open_all)
{
	hoist_buffer *b = create(1, 100);
	char host[100] = "";
	for (int i = 0; i < 20; i++)
		OK(hoist_buffer_write(b, 0, host, sizeof host));
	cr_expect_eq(lib_counters("cuda").live_streams, 1);
	cr_expect_eq(lib_counters("cuda").live_registrations, 1);
	hoist_buffer_unref(b);
	cr_assert(lib_nothing_outstanding(devices));
}

Test(transfer, failure_of_the_driver_is_told_once_and_passes, .init = open_all)
{
	hoist_buffer *b = create(1, 100);
	char host[100] = "";
	OK(hoist_buffer_write(b, 0, host, sizeof host));
	OK(lib_fail("cuda", "async:1"));
	REFUSED(hoist_buffer_write(b, 0, host, sizeof host), -EREMOTEIO,
		"writing 100 bytes to cuda:0: ");
	lib_reset("cuda");
	OK(hoist_buffer_write(b, 0, host, sizeof host));
	hoist_buffer_unref(b);
	cr_assert(lib_nothing_outstanding(devices));
}

/* A driver refuses a copy across the edge of a registration: there must be none
 * within a buffer, however large. */
Test(transfer, a_large_pinned_buffer_has_no_seams, .init = open_all)
{
	const size_t bytes = (size_t)258 << 20;
	const size_t step = (size_t)2 << 20; /* at an odd place of every one */
	hoist_buffer *large = create(LIB_N_DEVICES + 1, bytes);
	hoist_buffer *part = create(1, step);
	for (size_t at = 4097; at + step <= bytes; at += step) {
		hoist_buffer *view = make_view(large, at, HOIST_U8, 1, SHAPE((int64_t)step));
		cr_assert_eq(hoist_buffer_copy_into(part, view), 0, "at %zu: %s", at,
			     hoist_error());
		hoist_buffer_unref(view);
	}
	DROP(part, large);
}

/* In the child: the parent's pools and idle streams look usable, and are not. */
static int use_in_child(hoist_buffer *memory, hoist_buffer *pinned)
{
	unsigned char byte = 0;
	hoist_buffer *made = NULL;
	const int64_t shape[] = {100};
	hoist_device *device = hoist_buffer_device(memory);
	if (hoist_buffer_read(memory, 0, &byte, 1) != -ESTALE ||
	    hoist_buffer_write(memory, 0, &byte, 1) != -ESTALE)
		return 1;
	if (hoist_buffer_read(pinned, 0, &byte, 1) != -ESTALE ||
	    hoist_buffer_write(pinned, 0, &byte, 1) != -ESTALE)
		return 2;
	if (hoist_buffer_create(device, HOIST_U8, 1, shape, 0, &made) != -ESTALE ||
	    hoist_buffer_create(device, HOIST_U8, 1, shape, HOIST_BUFFER_PINNED, &made) != -ESTALE)
		return 3;
	return strstr(hoist_error(), "fork") != NULL ? 0 : 4;
}

/* Another thread of the parent had the lock. */
Test(transfer, a_forked_child_takes_no_lock_that_nobody_will_give_back, .init = open_all)
{
	struct hoist__lanes *lanes = NULL;
	struct hoist__lane *lane;
	cr_assert_eq(hoist__lanes_of(devices[1], &lanes), 0);
	(void)pthread_mutex_lock(&lanes->lock);
	pid_t child = fork();
	if (child == 0) {
		(void)alarm(100);
		_exit(hoist__lane_acquire(devices[1], &lane) == -ESTALE ? 0 : 1);
	}
	(void)pthread_mutex_unlock(&lanes->lock);
	cr_assert_eq(child_status(child), 0);
}

Test(transfer, a_forked_child_is_told_whatever_its_parent_kept, .init = open_all)
{
	for (int place = 1; place < LIB_N_DEVICES; place++) {
		unsigned char byte = 7;
		hoist_buffer *memory = create(place, 100);
		hoist_buffer *pinned = create(LIB_N_DEVICES + place, 100);
		OK(hoist_buffer_write(memory, 0, &byte, 1));
		OK(hoist_buffer_write(pinned, 0, &byte, 1));
		pid_t child = fork();
		if (child == 0)
			_exit(use_in_child(memory, pinned));
		cr_assert_eq(child_status(child), 0, "%s", lib_specs[place]);
		DROP(memory, pinned);
	}
}
