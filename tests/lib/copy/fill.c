/* SPDX-License-Identifier: MIT */
/* Fills, and batches of copies. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/copy/places.h"
#include "tests/support/random.h"

static hoist_buffer *create(const struct lib_place *place, hoist_dtype dtype, int64_t n)
{
	return make_buffer_from(place->memory, NULL, dtype, 1, &n, 0);
}

/* --- fill --- */

static const struct {
	const char *number;
	size_t width;
	unsigned char pattern[16];
} patterns[] = {
	{"V133", 1, {0x42}},
	{"V133", 2, {0x34, 0x12}},
	{"V133", 4, {0xef, 0xbe, 0xad, 0xde}},
	{"8 bytes", 8, {1, 2, 3, 4, 5, 6, 7, 8}},
	{"8 bytes that are 2", 8, {1, 2, 1, 2, 1, 2, 1, 2}},
	{"16 bytes", 16, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}},
};

/* From @offset on; at odd places drivers set bytes alone. */
static void fill(const struct lib_place *place, size_t which, size_t offset, bool on_stream)
{
	enum { ALL = 1100, BYTES = 1024 };
	const size_t width = patterns[which].width;
	uint64_t seed = 3;
	unsigned char *model;
	hoist_buffer *all = lib_random_buffer(place, ALL, &seed, &model);
	hoist_buffer *part = make_view(all, offset, HOIST_U8, 1, SHAPE(BYTES));
	if (on_stream) {
		OK(hoist_buffer_fill_on(part, patterns[which].pattern, width, place->stream));
		OK(hoist_stream_synchronize(place->stream));
	} else {
		OK(hoist_buffer_fill(part, patterns[which].pattern, width));
	}
	for (size_t i = 0; i < BYTES; i++)
		model[offset + i] = patterns[which].pattern[i % width];
	cr_expect(lib_has_bytes(all, model, ALL), "%s, %s, from byte %zu", patterns[which].number,
		  place->name, offset);
	DROP(part, all);
	free(model);
}

/* proves: S2.09 V133 */
Test(fill, repeats_a_pattern_everywhere, .init = open_places)
{
	lib_set_latency("cuda", 0, 20);
	for (int i = 0; i < LIB_N_PLACES; i++)
		for (size_t k = 0; k < sizeof patterns / sizeof patterns[0]; k++)
			for (size_t offset = 0; offset < 8; offset++)
				fill(&places[i], k, offset, (offset + k) % 2 == 0);
	close_places();
}

static void model_fill(unsigned char *bytes, const struct lib_layout *layout,
		       const unsigned char *pattern, size_t width)
{
	unsigned char element[16];
	struct lib_layout one = *layout;
	one.offset = 0;
	one.bytes = sizeof element;
	for (int i = 0; i < one.rank; i++)
		one.strides[i] = 0;
	for (size_t i = 0; i < sizeof element; i++)
		element[i] = pattern[i % width];
	lib_model_copy(bytes, layout, element, &one);
}

static void fill_strided(uint64_t seed)
{
	static const hoist_dtype dtypes[] = {HOIST_I8, HOIST_F16, HOIST_F32, HOIST_F64, HOIST_C128};
	uint64_t state = seed;
	size_t log = random_next(&state) % 5;
	size_t width = (size_t)1 << random_next(&state) % (log + 1);
	const struct lib_place *place = &places[random_next(&state) % (uint64_t)LIB_N_PLACES];
	unsigned char pattern[16];
	unsigned char *model;
	struct lib_layout layout = {.dtype = dtypes[log], .rank = 3};
	for (int i = 0; i < 3; i++)
		layout.shape[i] = 1 + (int64_t)(random_next(&state) % 5);
	random_fill(&state, pattern, sizeof pattern);
	lib_random_layout(&state, false, &layout);
	hoist_buffer *all = lib_random_buffer(place, layout.bytes, &state, &model);
	hoist_buffer *view = lib_view(all, &layout);
	if (seed % 2 == 0) {
		OK(hoist_buffer_fill(view, pattern, width));
	} else {
		OK(hoist_buffer_fill_on(view, pattern, width, place->stream));
		OK(hoist_stream_synchronize(place->stream));
	}
	model_fill(model, &layout, pattern, width);
	cr_assert(lib_has_bytes(all, model, layout.bytes), "seed %llu, %s",
		  (unsigned long long)seed, place->name);
	DROP(view, all);
	free(model);
}

/* proves: S2.09 */
Test(fill, random_layouts_agree_with_a_model, .init = open_places)
{
	for (uint64_t seed = 1; seed <= 1500; seed++)
		fill_strided(seed);
	close_places();
}

/* proves: S2.09 V135 */
Test(fill, refuses_patterns_that_do_not_fit, .init = open_places)
{
	const unsigned char pattern[16] = {0};
	for (int i = 0; i < 3; i++) {
		hoist_buffer *b = create(&places[i], HOIST_U8, 1025);
		hoist_buffer *c = create(&places[i], HOIST_U8, 1026);
		hoist_buffer *every_other =
			make_slice(c, 1, SLICES(HOIST_STEP(HOIST_NONE, HOIST_NONE, -2)));
		cr_expect_eq(hoist_buffer_fill(b, pattern, 2), -EINVAL, "V135");
		expect_text("the 1025 bytes of the buffer are not divisible by the pattern's 2");
		cr_expect_eq(hoist_buffer_fill(c, pattern, 4), -EINVAL, "V135");
		expect_text("the 1026 bytes of the buffer are not divisible by the pattern's 4");
		for (size_t width = 0; width < 40; width++)
			if (width != 1 && width != 2 && width != 4 && width != 8 && width != 16) {
				REFUSED(hoist_buffer_fill(b, pattern, width), -EINVAL,
					"it must be 1, 2, 4, 8 or 16");
			}
		OK(hoist_buffer_fill(every_other, pattern, 1));
		hoist_buffer *few = make_slice(every_other, 1, SLICES(HOIST_RANGE(0, 8)));
		REFUSED(hoist_buffer_fill(few, pattern, 2), -EINVAL,
			"a pattern of 2 bytes over elements of 1 that are not contiguous");
		cr_expect_eq(hoist_buffer_fill(b, NULL, 1), -EINVAL);
		cr_expect_eq(hoist_buffer_fill(NULL, pattern, 1), -EINVAL);
		cr_expect_eq(hoist_buffer_fill_on(b, pattern, 1, NULL), -EINVAL);
		REFUSED(hoist_buffer_fill_on(b, pattern, 1, places[5].stream), -EINVAL,
			"a stream of cuda:1 cannot fill a buffer on ");
		DROP(b, c, few, every_other);
	}
	close_places();
}

/* --- batches --- */

static hoist_buffer *filled(int place, const char *letter)
{
	hoist_buffer *buffer = create(&places[place], HOIST_U8, 64);
	OK(hoist_buffer_fill(buffer, letter, 1));
	return buffer;
}

static void expect_letter(hoist_buffer *buffer, char letter)
{
	char got[64];
	OK(hoist_buffer_copy_out(buffer, got, sizeof got));
	for (int i = 0; i < 64; i++)
		cr_assert_eq(got[i], letter);
}

/* Each pair in order, whatever the way: the last word is the last copy's. */
/* proves: S0.34 */
Test(batch, copies_in_order, .init = open_places)
{
	static const int at[] = {2, 3, 2, 0, 5, 8, 2, 0};
	enum { N = sizeof at / sizeof at[0] };
	hoist_buffer *chain[N];
	for (int i = 0; i < N; i++)
		chain[i] = filled(at[i], i == 0 ? "a" : "-");
	OK(hoist_buffer_copy_batch(N - 1, chain + 1, chain, NULL));
	for (int i = 0; i < N; i++)
		expect_letter(chain[i], 'a');
	drop_buffers(chain, N);
	close_places();
}

/* proves: S0.34 V104 */
Test(batch, skips_pairs_without_work, .init = open_places)
{
	hoist_buffer *s = filled(2, "s");
	hoist_buffer *d = filled(2, "d");
	hoist_buffer *x = filled(2, "x");
	hoist_buffer *none = create(&places[2], HOIST_U8, 0);
	hoist_buffer *const dsts[] = {s, none, d, d};
	hoist_buffer *const srcs[] = {s, none, x, x};
	for (int i = 0; i < 2; i++) {
		uint64_t before = lib_counters("cuda").copies;
		OK(hoist_buffer_copy_batch(4, dsts, srcs, i == 0 ? NULL : places[2].stream));
		OK(hoist_stream_synchronize(places[2].stream));
		cr_expect_eq(lib_counters("cuda").copies, before + 1);
		expect_letter(s, 's'); /* V104 */
		expect_letter(d, 'x');
	}
	OK(hoist_buffer_copy_batch(0, NULL, NULL, NULL));
	cr_expect_eq(hoist_buffer_copy_batch(1, NULL, srcs, NULL), -EINVAL);
	DROP(s, d, x, none);
	close_places();
}

/* proves: S0.34 */
Test(batch, waits_once_for_one_device, .init = open_places)
{
	enum { N = 20 };
	hoist_buffer *dsts[N];
	hoist_buffer *srcs[N];
	for (int i = 0; i < N; i++) {
		dsts[i] = filled(2, "-");
		srcs[i] = filled(i % 2 == 0 ? 2 : 3, "b");
	}
	uint64_t before = lib_calls("cuda", "cuStreamSynchronize");
	OK(hoist_buffer_copy_batch(N, dsts, srcs, NULL));
	cr_expect_eq(lib_calls("cuda", "cuStreamSynchronize"), before + 1);
	for (int i = 0; i < N; i++)
		expect_letter(dsts[i], 'b');
	drop_buffers(dsts, N);
	drop_buffers(srcs, N);
	close_places();
}

/* proves: S0.34 V103 */
Test(batch, is_checked_before_anything_is_written, .init = open_places)
{
	hoist_buffer *src = filled(0, "s");
	hoist_buffer *dsts[] = {filled(2, "0"), filled(5, "1")};
	hoist_buffer *const both[] = {src, src};
	cr_expect_eq(hoist_buffer_copy_batch(2, dsts, both, places[2].stream), -EINVAL, "V103");
	expect_text("destination 0 is on cuda:0 and destination 1 on cuda:1; those of a batch on a "
		    "stream must be on the same device");
	expect_letter(dsts[0], '0');
	expect_letter(dsts[1], '1');
	hoist_buffer *shorter = create(&places[2], HOIST_U8, 63);
	hoist_buffer *const wrong[] = {dsts[0], shorter};
	REFUSED(hoist_buffer_copy_batch(2, wrong, both, NULL), -EINVAL,
		"pair 1: copying 64 elements of u8 into a buffer of 63");
	hoist_buffer *const missing[] = {dsts[0], NULL};
	cr_expect_eq(hoist_buffer_copy_batch(2, missing, both, NULL), -EINVAL);
	REFUSED(hoist_buffer_copy_batch(2, missing, both, places[2].stream), -EINVAL,
		"pair 1: the destination is NULL");
	OK(hoist_buffer_freeze(dsts[1]));
	cr_expect_eq(hoist_buffer_copy_batch(2, dsts, both, NULL), -EROFS);
	expect_letter(dsts[0], '0');
	/* Without a stream destinations may be anywhere. */
	hoist_buffer *other = filled(8, "2");
	hoist_buffer *const anywhere[] = {dsts[0], other};
	OK(hoist_buffer_copy_batch(2, anywhere, both, NULL));
	expect_letter(other, 's');
	DROP(src, dsts[0], dsts[1], shorter, other);
	close_places();
}
