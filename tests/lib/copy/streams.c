/* SPDX-License-Identifier: MIT */
/* Copies on streams that a gate holds back: calls that return at once, calls that wait,
 * capturing streams, and memory that is dropped before the work is done. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/device/stream.h"
#include "tests/lib/copy/places.h"
#include "tests/support/lib-gate.h"

static void set_gate(struct gate *gate, hoist_stream *stream)
{
	gate_init(gate);
	OK(hoist__dev_stream_call(hoist__stream_dev_stream(stream), gate_pass, gate));
}

/* --- copies that return at once --- */

enum { BYTES = 6000 };

/* A contiguous run, rows, and columns into rows. */
static const struct lib_layout shapes[][2] = {
	{{.dtype = HOIST_I16, .rank = 1, .shape = {2000}, .strides = {1}},
	 {.dtype = HOIST_I16, .rank = 1, .shape = {2000}, .strides = {1}}},
	{{.dtype = HOIST_I16, .rank = 2, .shape = {10, 20}, .strides = {30, 1}},
	 {.dtype = HOIST_I16, .rank = 2, .shape = {10, 20}, .strides = {20, 1}}},
	{{.dtype = HOIST_I16, .rank = 2, .shape = {10, 20}, .strides = {20, 1}},
	 {.dtype = HOIST_I16, .rank = 2, .shape = {10, 20}, .strides = {1, 10}, .offset = 2}},
};

enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static void begin(struct trial *t, const struct lib_place *to, const struct lib_place *from,
		  const struct lib_layout shape[2])
{
	uint64_t seed = 4;
	*t = (struct trial){.to = to, .from = from, .dst = shape[0], .src = shape[1]};
	t->dst.bytes = t->src.bytes = BYTES;
	trial_begin(t, &seed);
	lib_model_copy(t->models[0], &t->dst, t->models[1], &t->src);
}

/* Pairs of places, and whose stream. */
static const struct {
	int to, from, stream;
} at_once[] = {
	{0, 0, 0},			 /* host and host, on a stream of the CPU */
	{0, 1, 0}, {3, 0, 0}, {2, 3, 2}, /* pinned to its device */
	{3, 2, 3}, {2, 6, 2},		 /* pinned for the other one */
	{2, 2, 2}, {4, 4, 4},		 /* managed */
	{4, 2, 2}, {2, 4, 2}, {3, 4, 4}, {8, 8, 8},
	{9, 8, 8}, {2, 5, 2}, {2, 5, 5}, /* peers, on either's */
};

static size_t shapes_at_once(size_t way)
{
	bool peers = at_once[way].to == 2 && at_once[way].from == 5;
	return peers ? N_SHAPES - 1 : N_SHAPES;
}

/* proves: S2.08 */
Test(copy_streams, direct_ones_return_before_the_stream_gets_there, .init = open_places)
{
	for (size_t i = 0; i < sizeof at_once / sizeof at_once[0]; i++)
		for (size_t k = 0; k < shapes_at_once(i); k++) {
			struct trial job;
			struct gate gate;
			hoist_stream *stream = places[at_once[i].stream].stream;
			begin(&job, &places[at_once[i].to], &places[at_once[i].from], shapes[k]);
			set_gate(&gate, stream);
			/* A call that waited would never return. */
			OK(hoist_buffer_copy_on(job.views[0], job.views[1], stream));
			gate_open(&gate);
			OK(hoist_stream_synchronize(stream));
			cr_assert(lib_has_bytes(job.bytes[0], job.models[0], BYTES),
				  "%s to %s, shape %zu", places[at_once[i].from].name,
				  places[at_once[i].to].name, k);
			trial_end(&job);
		}
	close_places();
}

/* proves: S2.08 */
Test(copy_streams, nothing_is_copied_before_the_stream_gets_there, .init = open_places)
{
	for (size_t k = 0; k < N_SHAPES; k++) {
		struct trial job;
		struct gate gate;
		unsigned char before[BYTES];
		begin(&job, &places[0], &places[0], shapes[k]);
		memcpy(before, hoist_buffer_data(job.bytes[0]), BYTES);
		set_gate(&gate, places[0].stream);
		OK(hoist_buffer_copy_on(job.views[0], job.views[1], places[0].stream));
		cr_expect_arr_eq(hoist_buffer_data(job.bytes[0]), before, BYTES);
		gate_open(&gate);
		OK(hoist_stream_synchronize(places[0].stream));
		cr_expect(lib_has_bytes(job.bytes[0], job.models[0], BYTES));
		trial_end(&job);
	}
	close_places();
}

/* The buffers go while the copy still waits: their memory must not. */
/* proves: S2.08 */
Test(copy_streams, memory_stays_until_the_stream_has_passed, .init = open_places)
{
	for (size_t i = 0; i < sizeof at_once / sizeof at_once[0]; i++)
		for (size_t k = 0; k < shapes_at_once(i); k++) {
			struct trial job;
			struct gate gate;
			hoist_stream *stream = places[at_once[i].stream].stream;
			begin(&job, &places[at_once[i].to], &places[at_once[i].from], shapes[k]);
			set_gate(&gate, stream);
			OK(hoist_buffer_copy_on(job.views[0], job.views[1], stream));
			/* The drop of memory that no resource can free in order waits for the
			 * stream. */
			pthread_t opener = gate_open_soon(&gate);
			trial_end(&job);
			cr_assert_eq(pthread_join(opener, NULL), 0);
			OK(hoist_stream_synchronize(stream));
		}
	close_places();
}

/* Rows to a peer, the third of which the driver refuses: the memory of the first two must stay. */
/* proves: S2.08 */
Test(copy_streams, memory_stays_for_the_part_that_was_queued, .init = open_places)
{
	const hoist_slice slices[] = {HOIST_ALL, HOIST_RANGE(0, 20)};
	struct gate gate;
	hoist_buffer *whole[2];
	hoist_buffer *rows[2];
	hoist_stream *stream = places[2].stream;
	for (int i = 0; i < 2; i++) {
		whole[i] = zeroed(places[2 + 3 * i].device, HOIST_U8, 2, SHAPE(4, 30));
		rows[i] = make_slice(whole[i], 2, slices);
	}
	hoist_stream *own = default_stream(places[5].device);
	set_gate(&gate, stream);
	OK(lib_fail("cuda", "cuMemcpyPeerAsync:3"));
	REFUSED(hoist_buffer_copy_on(rows[0], rows[1], stream), -EREMOTEIO,
		"copying 80 bytes from cuda:1 to cuda:0");
	cr_expect_eq(hoist_stream_query(own), -EAGAIN);
	gate_open(&gate);
	OK(hoist_stream_synchronize(own));
	DROP(rows[0], whole[0], rows[1], whole[1]);
	hoist_stream_unref(own);
	close_places();
}

/* --- copies that wait --- */

static const int blocking[][3] = {
	{2, 0, 2}, {0, 2, 2}, {0, 2, 0}, {0, 0, 2}, {8, 2, 2}, {8, 2, 8}, {3, 3, 2}, {2, 1, 2},
};

/* proves: S2.08 */
Test(copy_streams, copies_through_the_host_wait_their_turn, .init = open_places)
{
	for (size_t i = 0; i < sizeof blocking / sizeof blocking[0]; i++)
		for (size_t k = 0; k < N_SHAPES; k++) {
			struct trial job;
			struct gate gate;
			hoist_stream *stream = places[blocking[i][2]].stream;
			begin(&job, &places[blocking[i][0]], &places[blocking[i][1]], shapes[k]);
			set_gate(&gate, stream);
			pthread_t opener = gate_open_soon(&gate);
			OK(hoist_buffer_copy_on(job.views[0], job.views[1], stream));
			cr_expect(atomic_load(&gate.passed), "%s to %s",
				  places[blocking[i][1]].name, places[blocking[i][0]].name);
			cr_assert_eq(pthread_join(opener, NULL), 0);
			/* Done already: nobody synchronizes the stream. */
			cr_assert(lib_has_bytes(job.bytes[0], job.models[0], BYTES));
			trial_end(&job);
		}
	close_places();
}

struct inside {
	hoist_buffer *dst;
	hoist_buffer *src;
	hoist_stream *stream;
	int got[2];
};

static int copy_inside(void *context)
{
	struct inside *inside = context;
	inside->got[0] = hoist_buffer_copy_on(inside->dst, inside->src, inside->stream);
	inside->got[1] = hoist_buffer_copy_into(inside->dst, inside->src);
	return 0;
}

/* A call that would wait for the stream that calls the function says so. */
/* proves: S2.08 */
Test(copy_streams, a_streams_function_does_not_wait_for_its_stream, .init = open_places,
     .timeout = 120)
{
	const int64_t shape[] = {10};
	struct inside inside = {.stream = places[0].stream};
	OK(hoist_buffer_create_on(places[0].stream, HOIST_U8, 1, shape, 0, &inside.dst));
	OK(hoist_buffer_create(places[2].device, HOIST_U8, 1, shape, 0, &inside.src));
	OK(hoist_stream_call(places[0].stream, copy_inside, &inside));
	OK(hoist_stream_synchronize(places[0].stream));
	cr_expect_eq(inside.got[0], -EDEADLK);
	cr_expect_eq(inside.got[1], -EDEADLK);
	DROP(inside.dst, inside.src);
	close_places();
}

/* proves: S3.10 */
Test(copy_streams, can_be_told_to_wait, .init = open_places)
{
	const struct {
		int to, from;
		unsigned flags;
		bool waits;
	} cases[] = {
		{2, 2, HOIST_COPY_WAIT, true},
		{2, 2, HOIST_COPY_WAIT_HOST, false},
		{2, 3, HOIST_COPY_WAIT_HOST, true},
		{3, 2, HOIST_COPY_WAIT_HOST, true},
		{2, 3, 0, false},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct trial job;
		struct gate gate;
		pthread_t opener = 0;
		hoist_stream *stream = places[2].stream;
		begin(&job, &places[cases[i].to], &places[cases[i].from], shapes[0]);
		set_gate(&gate, stream);
		if (cases[i].waits)
			opener = gate_open_soon(&gate);
		OK(hoist_buffer_copy_with(job.views[0], job.views[1], stream, cases[i].flags));
		if (cases[i].waits) {
			cr_expect_eq(hoist__dev_stream_query(hoist__stream_dev_stream(stream)), 0,
				     "case %zu", i);
			cr_assert_eq(pthread_join(opener, NULL), 0);
		}
		gate_open(&gate);
		OK(hoist_stream_synchronize(stream));
		cr_expect(lib_has_bytes(job.bytes[0], job.models[0], BYTES), "case %zu", i);
		trial_end(&job);
	}
	close_places();
}

/* --- whose stream --- */

/* proves: S2.08 */
Test(copy_streams, streams_of_other_devices_are_refused, .init = open_places)
{
	static const int cases[][3] = {{2, 0, 5}, {2, 5, 8}, {2, 3, 0}, {8, 0, 2}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct trial job;
		begin(&job, &places[cases[i][0]], &places[cases[i][1]], shapes[0]);
		REFUSED(hoist_buffer_copy_on(job.views[0], job.views[1],
					     places[cases[i][2]].stream),
			-EINVAL, "it must be of one of the two");
		trial_end(&job);
	}
	struct trial job;
	begin(&job, &places[2], &places[2], shapes[0]);
	cr_expect_eq(hoist_buffer_copy_on(job.views[0], job.views[1], NULL), -EINVAL);
	trial_end(&job);
	close_places();
}

/* --- captures --- */

static void expect_captured(struct trial *job, hoist_stream *stream, int expected)
{
	int err = hoist_buffer_copy_on(job->views[0], job->views[1], stream);
	cr_expect_eq(err, expected, "%d: %s", err, err < 0 ? hoist_error() : "");
	if (expected == -ENOTSUP)
		expect_text("captures a graph");
}

/* proves: S2.08 */
Test(copy_streams, a_capture_takes_direct_copies_and_stays_whole, .init = open_places)
{
	struct trial direct;
	struct trial bounced;
	hoist_stream *stream = places[2].stream;
	begin(&direct, &places[2], &places[3], shapes[1]);
	begin(&bounced, &places[2], &places[0], shapes[0]);
	void *native = hoist_stream_native(stream);
	OK(lib_capture("cuda", native, 1));
	expect_captured(&direct, stream, 0);
	expect_captured(&bounced, stream, -ENOTSUP);
	cr_expect_eq(
		hoist_buffer_copy_with(direct.views[0], direct.views[1], stream, HOIST_COPY_WAIT),
		-ENOTSUP);
	/* The pair before the refused one is not captured either. */
	uint64_t before = lib_counters("cuda").copies;
	hoist_buffer *const dsts[] = {direct.views[0], bounced.views[0]};
	hoist_buffer *const srcs[] = {direct.views[1], bounced.views[1]};
	REFUSED(hoist_buffer_copy_batch(2, dsts, srcs, stream), -ENOTSUP, "pair 1: ");
	cr_expect_eq(lib_counters("cuda").copies, before);
	/* Memory that is taken now does not belong to the graph. */
	hoist_buffer *lazy = make_buffer_on(stream, HOIST_U8, 1, SHAPE(100),
					    HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO);
	OK(hoist_buffer_allocate(lazy));
	/* Calls without a stream would wait for the buffer's own. */
	hoist_buffer *view = NULL;
	char byte = 0;
	OK(hoist_buffer_on_stream(direct.bytes[0], stream, &view));
	cr_expect_eq(hoist_buffer_read(view, 0, &byte, 1), -ENOTSUP);
	cr_expect_eq(hoist_buffer_write(view, 0, &byte, 1), -ENOTSUP);
	cr_expect_eq(hoist_buffer_copy_into(view, direct.bytes[1]), -ENOTSUP);
	cr_expect_eq(hoist_buffer_fill(view, &byte, 1), -ENOTSUP);
	cr_expect_eq(lib_capture("cuda", native, 0), 0, "it was broken");
	DROP(view, lazy);
	trial_end(&direct);
	trial_end(&bounced);
	OK(hoist_memory_release_captured(places[2].memory));
	OK(hoist_memory_release_captured(places[3].memory));
	close_places();
}

/* --- order --- */

/* A copy to another stream comes after the work on the source's own stream. */
/* proves: S0.21 */
Test(copy_streams, a_new_buffer_is_ordered_behind_its_source, .init = open_places)
{
	static const int ways[][2] = {{2, 2}, {2, 5}, {2, 0}, {0, 2}, {0, 0}, {2, 8}};
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		struct gate gate;
		hoist_buffer *made = NULL;
		hoist_stream *stream = places[ways[i][1]].stream;
		hoist_stream *own = make_stream(places[ways[i][0]].device);
		hoist_buffer *src = make_buffer_on(own, HOIST_U8, 1, SHAPE(100), HOIST_BUFFER_ZERO);
		OK(hoist_stream_synchronize(own));
		set_gate(&gate, own);
		OK(hoist_buffer_fill_on(src, "x", 1, own));
		pthread_t opener = gate_open_soon(&gate);
		OK(hoist_buffer_copy_to_stream(src, stream, &made));
		OK(hoist_stream_synchronize(stream));
		char got[100];
		OK(hoist_buffer_copy_out(made, got, sizeof got));
		for (int k = 0; k < 100; k++)
			cr_assert_eq(got[k], 'x', "way %zu", i);
		cr_assert_eq(pthread_join(opener, NULL), 0);
		DROP(src, made);
		hoist_stream_unref(own);
	}
	close_places();
}

/* The first call that needs the memory of a LAZY buffer takes the memory and sets it to zero,
 * even on another stream than the buffer's, which is late. */
/* proves: S2.08 */
Test(copy_streams, lazy_memory_is_taken_behind_any_stream, .init = open_places)
{
	static const int at[] = {0, 2, 4, 8};
	const unsigned flags = HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO;
	const int64_t shape[] = {100};
	for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
		const struct lib_place *place = &places[at[i]];
		struct gate gate;
		hoist_buffer *lazy[2] = {NULL, NULL};
		hoist_buffer *view = NULL;
		char got[2][100];
		hoist_stream *own = make_stream(place->device);
		hoist_buffer *src =
			make_buffer_from(place->memory, place->stream, HOIST_U8, 1, shape, 0);
		OK(hoist_buffer_fill_on(src, "x", 1, place->stream));
		for (int k = 0; k < 2; k++)
			OK(hoist_buffer_create_from(place->memory, own, HOIST_U8, 1, shape, flags,
						    &lazy[k]));
		OK(hoist_buffer_on_stream(lazy[1], place->stream, &view));
		set_gate(&gate, own);
		OK(hoist_buffer_copy_on(lazy[0], src, place->stream));
		OK(hoist_stream_synchronize(place->stream));
		OK(hoist_buffer_read(view, 0, got[1], 100));
		gate_open(&gate);
		OK(hoist_buffer_read(lazy[0], 0, got[0], 100));
		for (int k = 0; k < 100; k++)
			cr_assert(got[0][k] == 'x' && got[1][k] == 0, "%s", place->name);
		DROP(src, lazy[0], lazy[1], view);
		hoist_stream_unref(own);
	}
	close_places();
}

/* Functions without a stream wait for the buffer's stream. */
/* proves: S4.14 */
Test(copy_streams, those_without_one_wait_for_the_buffers, .init = open_places)
{
	for (int i = 0; i < 3; i += 2) {
		struct gate gate;
		char got[100];
		hoist_stream *stream = places[i].stream;
		hoist_buffer *src = make_buffer_on(stream, HOIST_U8, 1, SHAPE(100), 0);
		set_gate(&gate, stream);
		OK(hoist_buffer_fill_on(src, "yz", 2, stream));
		pthread_t opener = gate_open_soon(&gate);
		OK(hoist_buffer_copy_out(src, got, sizeof got));
		cr_assert_eq(pthread_join(opener, NULL), 0);
		cr_expect_arr_eq(got, "yzyz", 4);
		hoist_buffer_unref(src);
	}
	close_places();
}
