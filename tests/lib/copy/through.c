/* SPDX-License-Identifier: MIT */
/* Copies whose own memory comes from a resource that the caller names, and copies to one. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/lib-unit.h"

#define N 4096

/* Bytes i * 7 on device @device. */
static hoist_buffer *filled(int device)
{
	unsigned char bytes[N];
	for (int i = 0; i < N; i++)
		bytes[i] = (unsigned char)(i * 7);
	hoist_buffer *buffer = zeroed(devices[device], HOIST_U8, 1, SHAPE(N));
	OK(hoist_buffer_copy_in(buffer, bytes, N));
	return buffer;
}

/* Elements of @dtype of @base; @first to @last of the last axis of @rank, every @step. */
static hoist_buffer *part(hoist_buffer *base, hoist_dtype dtype, int rank, int64_t first,
			  int64_t last, int64_t step)
{
	const int64_t flat = N * 8 / (int64_t)hoist_dtype_bits(dtype);
	const int64_t shape[2] = {rank == 1 ? flat : 64, flat / 64};
	const hoist_slice range = HOIST_STEP(first, last, step);
	hoist_buffer *whole = make_view(base, 0, dtype, rank, shape);
	hoist_buffer *made = make_slice(whole, rank, rank == 1 ? &range : SLICES(HOIST_ALL, range));
	hoist_buffer_unref(whole);
	return made;
}

/* The ways of copy.h and transfer.h. */
static const struct {
	const char *way;
	int to, from;	/* devices */
	bool same_base; /* both are parts of one buffer */
	hoist_dtype dtype;
	int rank;
	int64_t dst[3]; /* first, last, step */
	int64_t src[3];
	int through; /* the device that the resource is pinned for */
} ways[] = {
	{"bounce in", 1, 0, false, HOIST_U8, 1, {0, N, 1}, {0, N, 1}, 1},
	{"bounce out", 0, 3, false, HOIST_U8, 1, {0, N, 1}, {0, N, 1}, 3},
	{"stage in", 1, 0, false, HOIST_U16, 2, {0, 32, 2}, {0, 32, 2}, 1},
	{"stage out", 0, 3, false, HOIST_U16, 2, {0, 32, 2}, {1, 32, 2}, 3},
	{"two apis", 3, 1, false, HOIST_U8, 1, {0, N, 1}, {0, N, 1}, 1},
	{"two apis, strided", 1, 3, false, HOIST_U16, 2, {0, 32, 2}, {0, 32, 2}, 3},
	{"onto itself there", 1, 1, true, HOIST_U8, 1, {0, N - 100, 1}, {100, N, 1}, 1},
	{"onto itself here", 0, 0, true, HOIST_I32, 2, {0, 15, 1}, {1, 16, 1}, 1},
	{"bits", 0, 1, false, HOIST_F4_E2M1FN, 1, {0, N, 1}, {1, N + 1, 1}, 1},
};
#define N_WAYS (sizeof ways / sizeof ways[0])

static hoist_memory *pinned_for(int device, size_t limit)
{
	return make_memory(OPTIONS(.kind = HOIST_MEMORY_PINNED, .device = devices[device],
				   .cache_bytes = 1, .limit_bytes = limit));
}

/* Copies, and gives the bytes of the destination's base in @ret.  Returns: the result of the
 * copy. */
static int copy(size_t i, hoist_stream *stream, hoist_memory *through, unsigned char ret[N])
{
	hoist_buffer *to = filled(ways[i].to);
	hoist_buffer *from = ways[i].same_base ? hoist_buffer_ref(to) : filled(ways[i].from);
	hoist_buffer *dst = part(to, ways[i].dtype, ways[i].rank, ways[i].dst[0], ways[i].dst[1],
				 ways[i].dst[2]);
	hoist_buffer *src = part(from, ways[i].dtype, ways[i].rank, ways[i].src[0], ways[i].src[1],
				 ways[i].src[2]);
	int err = hoist_buffer_copy_through(dst, src, stream, 0, through);
	if (err == 0 && stream != NULL)
		OK(hoist_stream_synchronize(stream));
	char text[1024];
	(void)snprintf(text, sizeof text, "%s", hoist_error());
	cr_assert_eq(hoist_buffer_copy_out(to, ret, N), 0, "%s", text);
	DROP(dst, src, to, from);
	return err;
}

/* proves: S3.10 */
Test(copy_through, takes_its_memory_from_the_named_resource, .init = open_all)
{
	static unsigned char expected[N];
	static unsigned char got[N];
	static unsigned char before[N];
	for (int i = 0; i < N; i++)
		before[i] = (unsigned char)(i * 7);
	for (size_t i = 0; i < N_WAYS; i++) {
		hoist_memory *memory = pinned_for(ways[i].through, 0);
		cr_assert_eq(copy(i, NULL, NULL, expected), 0, "%s: %s", ways[i].way,
			     hoist_error());
		cr_expect_eq(statistics_of(memory).n_allocs, 0);
		cr_assert_eq(copy(i, NULL, memory, got), 0, "%s: %s", ways[i].way, hoist_error());
		cr_expect_arr_eq(got, expected, N, "%s", ways[i].way);
		cr_expect(ways[i].to != ways[i].from || memcmp(got, before, N) != 0, "%s",
			  ways[i].way);
		cr_expect_geq(statistics_of(memory).n_allocs, 1, "%s", ways[i].way);
		cr_expect_eq(statistics_of(memory).n_blocks, 0, "%s: given back", ways[i].way);
		hoist_memory_unref(memory);
	}
	cr_assert(lib_drivers_content());
}

/* proves: S3.10 */
Test(copy_through, fails_where_the_resource_has_no_more, .init = open_all)
{
	static unsigned char got[N];
	/* The slots alone are larger than this. */
	for (size_t i = 0; i < 7; i++) {
		hoist_memory *memory = pinned_for(ways[i].through, 1 << 20);
		cr_expect_eq(copy(i, NULL, memory, got), -EDQUOT, "%s: %s", ways[i].way,
			     hoist_error());
		cr_expect_eq(statistics_of(memory).n_blocks, 0, "%s", ways[i].way);
		hoist_memory_unref(memory);
	}
	cr_assert(lib_drivers_content());
}

/* The stream's thread copies, when the caller has let go of the resource. */
Test(copy_through, a_queued_copy_keeps_the_resource, .init = open_all)
{
	static unsigned char expected[N];
	static unsigned char got[N];
	const size_t here = 7;
	hoist_memory *memory = pinned_for(1, 0);
	cr_assert_str_eq(ways[here].way, "onto itself here");
	hoist_stream *stream = make_stream(devices[0]);
	cr_assert_eq(copy(here, NULL, NULL, expected), 0);
	cr_assert_eq(copy(here, stream, memory, got), 0, "%s", hoist_error());
	cr_expect_arr_eq(got, expected, N);
	cr_expect_eq(statistics_of(memory).n_allocs, 1);
	cr_expect_eq(statistics_of(memory).n_blocks, 0);
	hoist_memory_unref(memory);
	hoist_stream_unref(stream);
}

/* proves: S3.10 */
Test(copy_through, memory_that_will_not_do_is_refused, .init = open_all)
{
	static unsigned char got[N];
	static const struct {
		size_t way;
		int kind, device;
		const char *text;
	} cases[] = {
		{0, HOIST_MEMORY_HOST, 0, "pinned for cuda:0"},
		{0, HOIST_MEMORY_DEVICE, 1, "pinned for cuda:0"},
		{0, HOIST_MEMORY_PINNED, 3, "pinned for cuda:0"},
		{1, HOIST_MEMORY_PINNED, 1, "pinned for hip:0"},
		{4, HOIST_MEMORY_PINNED, 3, "pinned for cuda:0"},
		{7, HOIST_MEMORY_DEVICE, 1, "memory that the CPU can touch"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		hoist_memory *memory = make_kind(cases[i].kind, devices[cases[i].device]);
		cr_expect_eq(copy(cases[i].way, NULL, memory, got), -EINVAL, "case %zu", i);
		hoist_memory_unref(memory);
	}
	hoist_buffer *buffer = filled(0);
	hoist_buffer *other = filled(1);
	hoist_memory *memory = pinned_for(3, 0);
	REFUSED(hoist_buffer_copy_through(other, buffer, NULL, 0, memory), -EINVAL,
		"pinned for cuda:0");
	cr_expect_eq(hoist_buffer_copy_through(buffer, buffer, NULL, 0, memory), 0, "no work");
	cr_expect_eq(hoist_buffer_copy_through(buffer, buffer, NULL, 64, memory), -EINVAL);
	hoist_memory_unref(memory);
	DROP(other, buffer);
}

/* proves: S3.10 */
Test(copy_through, a_clone_has_memory_from_the_resource_that_is_named, .init = open_all)
{
	unsigned char own[N];
	static unsigned char got[N];
	memset(own, 5, sizeof own);
	hoist_buffer *mine = make_wrapped(SOURCE(.address = (uintptr_t)own, .bytes = N), HOIST_U8,
					  1, SHAPE(N), NULL);
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory = pinned_for(i, 0);
		hoist_buffer *made = NULL;
		hoist_stream *stream = make_stream(devices[i]);
		OK(hoist_buffer_clone_from(mine, memory, stream, &made));
		OK(hoist_stream_synchronize(stream));
		cr_expect_eq(info_of(made).memory, memory);
		cr_expect(hoist_buffer_is_pinned(made));
		OK(hoist_buffer_copy_out(made, got, N));
		cr_expect_arr_eq(got, own, N);
		hoist_buffer_unref(made);
		made = NULL;
		cr_expect_eq(hoist_buffer_clone_from(mine, NULL, stream, &made), -EINVAL);
		cr_expect_eq(hoist_buffer_clone_from(mine, memory, NULL, &made), -EINVAL);
		cr_expect_null(made);
		hoist_stream_unref(stream);
		hoist_memory_unref(memory);
	}
	hoist_buffer_unref(mine);
}
