/* SPDX-License-Identifier: MIT */
/* tests/lib/copy/places.h - the fixture of the Criterion tests of copies: all devices and their
 * places. */
#ifndef HOIST_TESTS_LIB_COPY_PLACES_H
#define HOIST_TESTS_LIB_COPY_PLACES_H

#include <stdlib.h>

#include "tests/support/lib-copy.h"
#include "tests/support/lib-unit.h"

static struct lib_place places[LIB_N_PLACES];

static inline void open_places(void)
{
	open_all();
	lib_open_places(devices, places);
}

/* At the end of a test's body: Criterion ignores assertions in a .fini. */
static inline void close_places(void)
{
	lib_close_places(places);
	cr_assert(lib_drivers_content());
	cr_assert(lib_only_default_streams(devices));
}

/* One copy between two layouts, beside a model in host memory. */
struct trial {
	const struct lib_place *to;
	const struct lib_place *from;
	struct lib_layout dst;
	struct lib_layout src;
	hoist_buffer *bytes[2];
	unsigned char *models[2];
	hoist_buffer *views[2];
};

static inline void trial_begin(struct trial *t, uint64_t *seed)
{
	t->bytes[0] = lib_random_buffer(t->to, t->dst.bytes, seed, &t->models[0]);
	t->bytes[1] = lib_random_buffer(t->from, t->src.bytes, seed, &t->models[1]);
	t->views[0] = lib_view(t->bytes[0], &t->dst);
	t->views[1] = lib_view(t->bytes[1], &t->src);
}

static inline void trial_end(struct trial *t)
{
	for (int i = 0; i < 2; i++) {
		DROP(t->views[i], t->bytes[i]);
		free(t->models[i]);
	}
}

/* Values of i32, counting from @first. */
static inline hoist_buffer *create_counting(hoist_device *device, int rank, const int64_t *shape,
					    int32_t first)
{
	int32_t values[64];
	hoist_buffer *buffer = zeroed(device, HOIST_I32, rank, shape);
	size_t n = hoist_buffer_elements(buffer);
	cr_assert_leq(n, 64);
	for (size_t i = 0; i < n; i++)
		values[i] = first + (int32_t)i;
	OK(hoist_buffer_copy_in(buffer, values, n * sizeof values[0]));
	return buffer;
}

static inline void expect_values(hoist_buffer *buffer, const int32_t *values, size_t n)
{
	int32_t got[64] = {0};
	cr_assert_eq(hoist_buffer_elements(buffer), n);
	OK(hoist_buffer_copy_out(buffer, got, n * sizeof got[0]));
	cr_expect_arr_eq(got, values, n * sizeof got[0]);
}

#endif
