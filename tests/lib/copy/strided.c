/* SPDX-License-Identifier: MIT */
/* Copies between random layouts in every pair of places, against a model that goes element by
 * element, guards and gaps compared too. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/copy/places.h"
#include "tests/support/random.h"

static void describe(const struct trial *t, uint64_t seed)
{
	(void)fprintf(stderr, "seed %#llx: %s to %s, %s:", (unsigned long long)seed, t->from->name,
		      t->to->name, hoist_dtype_name(t->dst.dtype));
	for (int i = 0; i < t->dst.rank; i++)
		(void)fprintf(stderr, " %lld (%lld <- %lld)", (long long)t->dst.shape[i],
			      (long long)t->dst.strides[i], (long long)t->src.strides[i]);
	(void)fprintf(stderr, "; bits %u <- %u\n", t->dst.bit, t->src.bit);
}

static void random_shape(uint64_t *seed, hoist_dtype dtype, struct lib_layout *ret)
{
	ret->dtype = dtype;
	ret->rank = (int)(random_next(seed) % 5);
	for (int i = 0; i < ret->rank; i++)
		ret->shape[i] = 1 + (int64_t)(random_next(seed) % 6);
}

static const hoist_dtype dtypes[] = {HOIST_U8,	 HOIST_I16,	  HOIST_F32,	  HOIST_I64,
				     HOIST_C128, HOIST_F4_E2M1FN, HOIST_F6_E2M3FN};

static hoist_dtype random_dtype(uint64_t *seed)
{
	return dtypes[random_next(seed) % (sizeof dtypes / sizeof dtypes[0])];
}

/* A device's memory where elements are parts of bytes and have gaps between them. */
static bool may_be_refused(const struct trial *t)
{
	return hoist_dtype_bits(t->dst.dtype) % 8 != 0 &&
	       hoist__storage_kind(t->views[0]->storage) == HOIST__MEMORY_DEVICE;
}

/* A stream of either device; NULL: the copy waits. */
static hoist_stream *random_stream(const struct trial *t, uint64_t *seed)
{
	hoist_stream *const choice[] = {NULL, t->to->stream, t->from->stream};
	return choice[random_next(seed) % 3];
}

static int copy(struct trial *t, hoist_stream *stream)
{
	if (stream == NULL)
		return hoist_buffer_copy_into(t->views[0], t->views[1]);
	int err = hoist_buffer_copy_on(t->views[0], t->views[1], stream);
	return err < 0 ? err : hoist_stream_synchronize(stream);
}

static void try(struct trial *t, uint64_t seed)
{
	uint64_t state = seed;
	const uint64_t n_places = LIB_N_PLACES;
	t->to = &places[random_next(&state) % n_places];
	t->from = &places[random_next(&state) % n_places];
	random_shape(&state, random_dtype(&state), &t->dst);
	t->src = t->dst;
	lib_random_layout(&state, false, &t->dst);
	lib_random_layout(&state, random_next(&state) % 4 == 0, &t->src);
	trial_begin(t, &state);
	int err = copy(t, random_stream(t, &state));
	if (err == -ENOTSUP && may_be_refused(t))
		expect_text("share bytes");
	else if (err == 0)
		lib_model_copy(t->models[0], &t->dst, t->models[1], &t->src);
	bool good = (err == 0 || (err == -ENOTSUP && may_be_refused(t))) &&
		    lib_has_bytes(t->bytes[0], t->models[0], t->dst.bytes) &&
		    lib_has_bytes(t->bytes[1], t->models[1], t->src.bytes);
	if (!good)
		describe(t, seed);
	cr_assert(good, "%d: %s", err, err < 0 ? hoist_error() : "wrong bytes");
	trial_end(t);
}

/* proves: S0.27 S2.08 */
Test(copy_strided, between_random_layouts_agrees_with_a_model, .init = open_places)
{
	struct trial t;
	lib_set_latency("cuda", 0, 20);
	lib_set_latency("hip", 0, 20);
	for (uint64_t seed = 1; seed <= 6000; seed++)
		try(&t, seed * UINT64_C(0x9e3779b97f4a7c15));
	close_places();
}

/* Both views over one storage, anywhere in it. */
static void try_overlapping(uint64_t seed)
{
	uint64_t state = seed;
	struct trial t;
	t.to = t.from = &places[random_next(&state) % (uint64_t)LIB_N_PLACES];
	random_shape(&state, dtypes[random_next(&state) % 5], &t.dst);
	t.src = t.dst;
	lib_random_layout(&state, false, &t.dst);
	lib_random_layout(&state, random_next(&state) % 4 == 0, &t.src);
	size_t bytes = t.dst.bytes > t.src.bytes ? t.dst.bytes : t.src.bytes;
	t.dst.bytes = t.src.bytes = bytes;
	hoist_buffer *whole = lib_random_buffer(t.to, bytes, &state, &t.models[0]);
	t.views[0] = lib_view(whole, &t.dst);
	t.views[1] = lib_view(whole, &t.src);
	lib_model_copy(t.models[0], &t.dst, t.models[0], &t.src);
	int err = copy(&t, random_next(&state) % 2 == 0 ? NULL : t.to->stream);
	bool good = err == 0 && lib_has_bytes(whole, t.models[0], bytes);
	if (!good)
		describe(&t, seed);
	cr_assert(good, "%d: %s", err, err < 0 ? hoist_error() : "wrong bytes");
	DROP(t.views[0], t.views[1], whole);
	free(t.models[0]);
}

/* proves: S0.27 */
Test(copy_strided, overlapping_views_are_copied_as_if_through_a_third_place, .init = open_places)
{
	for (uint64_t seed = 1; seed <= 3000; seed++)
		try_overlapping(seed * UINT64_C(0xd1b54a32d192ed03));
	close_places();
}

/* --- how many copies the driver is asked for --- */

/* Strides in elements of f32. */
struct known {
	const char *name;
	int rank;
	int64_t shape[4];
	int64_t dst[4];
	int64_t src[4];
};

static const struct {
	struct known layout;
	int to, from;
	uint64_t n_copies;
} counts[] = {
	{{"axes that are one run", 3, {4, 50, 20}, {1000, 20, 1}, {1000, 20, 1}}, 2, 3, 1},
	{{"rows", 2, {100, 200}, {300, 1}, {200, 1}}, 2, 3, 1},
	{{"rows back", 2, {100, 200}, {200, 1}, {300, 1}}, 3, 2, 1},
	{{"rows on one device", 2, {100, 200}, {250, 1}, {300, 1}}, 2, 2, 1},
	{{"planes of rows", 3, {5, 20, 200}, {8000, 400, 1}, {6000, 300, 1}}, 2, 3, 1},
	{{"planes on one device", 3, {5, 20, 200}, {8000, 400, 1}, {6000, 300, 1}}, 2, 2, 1},
	{{"four loops on one device", 4, {3, 2, 4, 50}, {2000, 600, 60, 1}, {3000, 840, 70, 1}},
	 2,
	 2,
	 3},
	{{"few rows to a peer", 2, {10, 200}, {300, 1}, {200, 1}}, 5, 2, 10},
	{{"many short rows to a peer, through the host", 2, {100, 200}, {300, 1}, {200, 1}},
	 5,
	 2,
	 2},
	{{"turned on the way", 2, {70, 80}, {80, 1}, {1, 70}}, 2, 0, 1},
	{{"turned on the way, from pinned memory", 2, {70, 80}, {80, 1}, {1, 70}}, 2, 3, 1},
	{{"turned on the way back", 2, {70, 80}, {80, 1}, {1, 70}}, 0, 2, 1},
	{{"every second element, with those between", 1, {5000}, {1}, {2}}, 0, 2, 1},
	{{"backwards", 1, {5000}, {1}, {-1}}, 0, 2, 1},
	{{"one row for all", 2, {70, 80}, {80, 1}, {0, 1}}, 2, 0, 1},
	{{"one row from the device for all", 2, {70, 80}, {80, 1}, {0, 1}}, 0, 2, 1},
};

static void bound(struct lib_layout *layout)
{
	int64_t low = 0;
	int64_t high = 0;
	for (int i = 0; i < layout->rank; i++) {
		int64_t way = (layout->shape[i] - 1) * layout->strides[i];
		low += way < 0 ? way : 0;
		high += way > 0 ? way : 0;
	}
	layout->bit = 0;
	layout->offset = (size_t)(-low * 4 + 8);
	layout->bytes = (size_t)((high - low + 1) * 4 + 24);
}

static struct trial begin_known(const struct known *known, int to, int from, uint64_t seed)
{
	struct trial t = {.to = &places[to], .from = &places[from]};
	t.dst.dtype = HOIST_F32;
	t.dst.rank = known->rank;
	memcpy(t.dst.shape, known->shape, sizeof known->shape);
	t.src = t.dst;
	memcpy(t.dst.strides, known->dst, sizeof known->dst);
	memcpy(t.src.strides, known->src, sizeof known->src);
	bound(&t.dst);
	bound(&t.src);
	trial_begin(&t, &seed);
	return t;
}

/* proves: S0.27 */
Test(copy_strided, takes_the_driver_few_calls, .init = open_places)
{
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		const char *name = counts[i].layout.name;
		struct trial t = begin_known(&counts[i].layout, counts[i].to, counts[i].from, i);
		uint64_t before = lib_counters("cuda").copies;
		cr_assert_eq(copy(&t, NULL), 0, "%s: %s", name, hoist_error());
		cr_expect_eq(lib_counters("cuda").copies - before, counts[i].n_copies, "%s: %llu",
			     name, (unsigned long long)(lib_counters("cuda").copies - before));
		lib_model_copy(t.models[0], &t.dst, t.models[1], &t.src);
		cr_expect(lib_has_bytes(t.bytes[0], t.models[0], t.dst.bytes), "%s", name);
		trial_end(&t);
	}
	close_places();
}

/* --- more than the slots hold --- */

static const struct known larges[] = {
	{"rows of a wider array", 2, {1500, 1500}, {1500, 1}, {1600, 1}},
	{"into rows of a wider array", 2, {1500, 1500}, {1601, 1}, {1500, 1}},
	{"transposed", 2, {1500, 1501}, {1501, 1}, {1, 1500}},
	{"transposed into gaps", 2, {1100, 1100}, {1, 2200}, {1100, 1}},
	{"every third element", 1, {900000}, {1}, {3}},
	{"into every third element", 1, {900000}, {3}, {1}},
	{"backwards", 1, {2300000}, {1}, {-1}},
	{"one row over and over", 2, {1400, 1300}, {1300, 1}, {0, 1}},
	{"one column over and over", 2, {1300, 1400}, {1400, 1}, {1, 0}},
	{"a cube turned", 3, {130, 120, 110}, {13200, 110, 1}, {1, 130, 15600}},
	{"rows longer than a slot", 2, {2, 1200000}, {1300000, 1}, {1200001, 1}},
	{"few that lie far apart", 2, {40, 25}, {25, 1}, {100000, 2000}},
	{"into few that lie far apart", 2, {40, 25}, {100000, 2000}, {25, 1}},
};

static void try_large(const struct known *large, int to, int from)
{
	struct trial t = begin_known(large, to, from, 77);
	int err = copy(&t, NULL);
	lib_model_copy(t.models[0], &t.dst, t.models[1], &t.src);
	cr_assert(err == 0 && lib_has_bytes(t.bytes[0], t.models[0], t.dst.bytes),
		  "%s, %s to %s: %s", large->name, places[from].name, places[to].name,
		  hoist_error());
	trial_end(&t);
}

/* Into a device from pageable and from pinned memory, and back; on one device, to its peer, to
 * another driver's. */
static const int ways[][2] = {{2, 0}, {2, 3}, {0, 2}, {3, 2}, {2, 2}, {5, 2}, {8, 2}};

static void try_larges(size_t first, size_t end)
{
	for (size_t k = first; k < end; k++)
		for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
			try_large(&larges[k], ways[i][0], ways[i][1]);
	close_places();
}

/* proves: S0.27 */
Test(copy_strided, many_slots_arrive, .init = open_places)
{
	try_larges(0, 6);
}

/* proves: S0.27 */
Test(copy_strided, many_slots_arrive_2, .init = open_places)
{
	try_larges(6, sizeof larges / sizeof larges[0]);
}

/* proves: S2.08 */
Test(copy_strided, keeps_within_two_slots_of_pinned_memory, .init = open_places)
{
	for (size_t k = 0; k < sizeof larges / sizeof larges[0]; k++) {
		try_large(&larges[k], 2, 0);
		try_large(&larges[k], 0, 2);
	}
	cr_expect_leq(lib_counters("cuda").peak_registered_bytes, (size_t)8 << 20);
	close_places();
}
