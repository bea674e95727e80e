/* SPDX-License-Identifier: MIT */
/* Copies on streams that are held up by a gate: what returns at once, what is done when, what a
 * capturing stream takes, and memory that goes before the work does. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/device/stream.h"
#include "tests/support/lib-copy.h"

static hoist_device *devices[LIB_N_DEVICES];
static struct lib_place places[LIB_N_PLACES];

static void open_all(void)
{
	if (!lib_emulate())
		cr_skip_test("the emulators are not built");
	lib_open_all(devices);
	lib_open_places(devices, places);
}

static void close_all(void)
{
	lib_close_places(places);
	cr_assert(lib_drivers_content());
	cr_assert(lib_only_default_streams(devices));
}

#define EXPECT_OK(call) cr_assert_eq(call, 0, "%s", hoist_error())

/* --- the gate --- */

struct gate {
	pthread_mutex_t lock;
	pthread_cond_t opened;
	bool is_open;
};

static int pass_gate(void *context)
{
	struct gate *gate = context;
	pthread_mutex_lock(&gate->lock);
	while (!gate->is_open)
		pthread_cond_wait(&gate->opened, &gate->lock);
	pthread_mutex_unlock(&gate->lock);
	return 0;
}

static void set_gate(struct gate *gate, hoist_stream *stream)
{
	pthread_mutex_init(&gate->lock, NULL);
	pthread_cond_init(&gate->opened, NULL);
	gate->is_open = false;
	EXPECT_OK(hoist__dev_stream_call(hoist__stream_dev_stream(stream), pass_gate, gate));
}

static void open_gate(struct gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	gate->is_open = true;
	pthread_cond_broadcast(&gate->opened);
	pthread_mutex_unlock(&gate->lock);
}

static void *open_later(void *context)
{
	usleep(20000);
	open_gate(context);
	return NULL;
}

/* --- what returns at once --- */

enum { BYTES = 6000 };

/* Of a contiguous run, of rows, of columns into rows. */
static const struct lib_layout shapes[][2] = {
	{{.dtype = HOIST_I16, .rank = 1, .shape = {2000}, .strides = {1}},
	 {.dtype = HOIST_I16, .rank = 1, .shape = {2000}, .strides = {1}}},
	{{.dtype = HOIST_I16, .rank = 2, .shape = {10, 20}, .strides = {30, 1}},
	 {.dtype = HOIST_I16, .rank = 2, .shape = {10, 20}, .strides = {20, 1}}},
	{{.dtype = HOIST_I16, .rank = 2, .shape = {10, 20}, .strides = {20, 1}},
	 {.dtype = HOIST_I16, .rank = 2, .shape = {10, 20}, .strides = {1, 10}, .offset = 2}},
};

enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

struct job {
	hoist_buffer *bytes[2];
	unsigned char *models[2];
	hoist_buffer *views[2];
};

static void begin(struct job *job, const struct lib_place *to, const struct lib_place *from,
		  const struct lib_layout shape[2])
{
	uint64_t seed = 4;
	struct lib_layout layouts[2] = {shape[0], shape[1]};
	const struct lib_place *at[2] = {to, from};
	for (int i = 0; i < 2; i++) {
		layouts[i].bytes = BYTES;
		job->bytes[i] = lib_random_buffer(at[i], BYTES, &seed, &job->models[i]);
		job->views[i] = lib_view(job->bytes[i], &layouts[i]);
	}
	lib_model_copy(job->models[0], &layouts[0], job->models[1], &layouts[1]);
}

static void end(struct job *job)
{
	for (int i = 0; i < 2; i++) {
		hoist_buffer_unref(job->views[i]);
		hoist_buffer_unref(job->bytes[i]);
		free(job->models[i]);
	}
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
Test(copy_streams, direct_ones_return_before_the_stream_gets_there, .init = open_all)
{
	for (size_t i = 0; i < sizeof at_once / sizeof at_once[0]; i++)
		for (size_t k = 0; k < shapes_at_once(i); k++) {
			struct job job;
			struct gate gate;
			hoist_stream *stream = places[at_once[i].stream].stream;
			begin(&job, &places[at_once[i].to], &places[at_once[i].from], shapes[k]);
			set_gate(&gate, stream);
			/* Would wait for ever if it waited. */
			EXPECT_OK(hoist_buffer_copy_on(job.views[0], job.views[1], stream));
			open_gate(&gate);
			EXPECT_OK(hoist_stream_synchronize(stream));
			cr_assert(lib_has_bytes(job.bytes[0], job.models[0], BYTES),
				  "%s to %s, shape %zu", places[at_once[i].from].name,
				  places[at_once[i].to].name, k);
			end(&job);
		}
	close_all();
}

/* proves: S2.08 */
Test(copy_streams, nothing_is_copied_before_the_stream_gets_there, .init = open_all)
{
	for (size_t k = 0; k < N_SHAPES; k++) {
		struct job job;
		struct gate gate;
		unsigned char before[BYTES];
		begin(&job, &places[0], &places[0], shapes[k]);
		memcpy(before, hoist_buffer_data(job.bytes[0]), BYTES);
		set_gate(&gate, places[0].stream);
		EXPECT_OK(hoist_buffer_copy_on(job.views[0], job.views[1], places[0].stream));
		cr_expect_arr_eq(hoist_buffer_data(job.bytes[0]), before, BYTES);
		open_gate(&gate);
		EXPECT_OK(hoist_stream_synchronize(places[0].stream));
		cr_expect(lib_has_bytes(job.bytes[0], job.models[0], BYTES));
		end(&job);
	}
	close_all();
}

/* The buffers go while the copy still waits: their memory must not. */
/* proves: S2.08 */
Test(copy_streams, memory_stays_until_the_stream_has_passed, .init = open_all)
{
	for (size_t i = 0; i < sizeof at_once / sizeof at_once[0]; i++)
		for (size_t k = 0; k < shapes_at_once(i); k++) {
			struct job job;
			struct gate gate;
			pthread_t opener;
			hoist_stream *stream = places[at_once[i].stream].stream;
			begin(&job, &places[at_once[i].to], &places[at_once[i].from], shapes[k]);
			set_gate(&gate, stream);
			EXPECT_OK(hoist_buffer_copy_on(job.views[0], job.views[1], stream));
			/* What no resource can free in order waits for the stream. */
			cr_assert_eq(pthread_create(&opener, NULL, open_later, &gate), 0);
			end(&job);
			cr_assert_eq(pthread_join(opener, NULL), 0);
			EXPECT_OK(hoist_stream_synchronize(stream));
		}
	close_all();
}

/* Rows to a peer, the third of which the driver refuses: the memory of the first two must stay. */
/* proves: S2.08 */
Test(copy_streams, memory_stays_for_the_part_that_was_queued, .init = open_all)
{
	const int64_t shape[] = {4, 30};
	const hoist_slice slices[] = {HOIST_ALL, HOIST_RANGE(0, 20)};
	struct gate gate;
	hoist_stream *own = NULL;
	hoist_buffer *whole[2] = {NULL, NULL};
	hoist_buffer *rows[2] = {NULL, NULL};
	hoist_stream *stream = places[2].stream;
	for (int i = 0; i < 2; i++) {
		EXPECT_OK(hoist_buffer_create(places[2 + 3 * i].device, HOIST_U8, 2, shape,
					      HOIST_BUFFER_ZERO, &whole[i]));
		EXPECT_OK(hoist_buffer_slice(whole[i], 2, slices, &rows[i]));
	}
	EXPECT_OK(hoist_device_default_stream(places[5].device, &own));
	set_gate(&gate, stream);
	cr_assert_eq(lib_fail("cuda", "cuMemcpyPeerAsync:3"), 0);
	cr_expect_eq(hoist_buffer_copy_on(rows[0], rows[1], stream), -EREMOTEIO);
	cr_expect_not_null(strstr(hoist_error(), "copying 80 bytes from cuda:1 to cuda:0"), "%s",
			   hoist_error());
	cr_expect_eq(hoist_stream_query(own), -EAGAIN);
	open_gate(&gate);
	EXPECT_OK(hoist_stream_synchronize(own));
	for (int i = 0; i < 2; i++) {
		hoist_buffer_unref(rows[i]);
		hoist_buffer_unref(whole[i]);
	}
	hoist_stream_unref(own);
	close_all();
}

/* --- what blocks --- */

static const int blocking[][3] = {
	{2, 0, 2}, {0, 2, 2}, {0, 2, 0}, {0, 0, 2}, {8, 2, 2}, {8, 2, 8}, {3, 3, 2}, {2, 1, 2},
};

/* proves: S2.08 */
Test(copy_streams, what_needs_the_host_waits_its_turn, .init = open_all)
{
	for (size_t i = 0; i < sizeof blocking / sizeof blocking[0]; i++)
		for (size_t k = 0; k < N_SHAPES; k++) {
			struct job job;
			struct gate gate;
			pthread_t opener;
			hoist_stream *stream = places[blocking[i][2]].stream;
			begin(&job, &places[blocking[i][0]], &places[blocking[i][1]], shapes[k]);
			set_gate(&gate, stream);
			cr_assert_eq(pthread_create(&opener, NULL, open_later, &gate), 0);
			EXPECT_OK(hoist_buffer_copy_on(job.views[0], job.views[1], stream));
			cr_expect(gate.is_open, "%s to %s", places[blocking[i][1]].name,
				  places[blocking[i][0]].name);
			cr_assert_eq(pthread_join(opener, NULL), 0);
			/* Done already: nobody synchronizes the stream. */
			cr_assert(lib_has_bytes(job.bytes[0], job.models[0], BYTES));
			end(&job);
		}
	close_all();
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

/* What would wait for the stream that calls it says so. */
/* proves: S2.08 */
Test(copy_streams, what_a_stream_calls_does_not_wait_for_it, .init = open_all, .timeout = 20)
{
	const int64_t shape[] = {10};
	struct inside inside = {.stream = places[0].stream};
	EXPECT_OK(hoist_buffer_create_on(places[0].stream, HOIST_U8, 1, shape, 0, &inside.dst));
	EXPECT_OK(hoist_buffer_create(places[2].device, HOIST_U8, 1, shape, 0, &inside.src));
	EXPECT_OK(hoist_stream_call(places[0].stream, copy_inside, &inside));
	EXPECT_OK(hoist_stream_synchronize(places[0].stream));
	cr_expect_eq(inside.got[0], -EDEADLK);
	cr_expect_eq(inside.got[1], -EDEADLK);
	hoist_buffer_unref(inside.dst);
	hoist_buffer_unref(inside.src);
	close_all();
}

/* proves: S3.10 */
Test(copy_streams, can_be_told_to_wait, .init = open_all)
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
		struct job job;
		struct gate gate;
		pthread_t opener;
		hoist_stream *stream = places[2].stream;
		begin(&job, &places[cases[i].to], &places[cases[i].from], shapes[0]);
		set_gate(&gate, stream);
		if (cases[i].waits)
			cr_assert_eq(pthread_create(&opener, NULL, open_later, &gate), 0);
		EXPECT_OK(
			hoist_buffer_copy_with(job.views[0], job.views[1], stream, cases[i].flags));
		if (cases[i].waits) {
			cr_expect_eq(hoist__dev_stream_query(hoist__stream_dev_stream(stream)), 0,
				     "case %zu", i);
			cr_assert_eq(pthread_join(opener, NULL), 0);
		}
		open_gate(&gate);
		EXPECT_OK(hoist_stream_synchronize(stream));
		cr_expect(lib_has_bytes(job.bytes[0], job.models[0], BYTES), "case %zu", i);
		end(&job);
	}
	close_all();
}

/* --- whose stream --- */

/* proves: S2.08 */
Test(copy_streams, of_other_devices_are_refused, .init = open_all)
{
	static const int cases[][3] = {{2, 0, 5}, {2, 5, 8}, {2, 3, 0}, {8, 0, 2}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct job job;
		begin(&job, &places[cases[i][0]], &places[cases[i][1]], shapes[0]);
		cr_expect_eq(hoist_buffer_copy_on(job.views[0], job.views[1],
						  places[cases[i][2]].stream),
			     -EINVAL, "case %zu", i);
		cr_expect_not_null(strstr(hoist_error(), "it must be of one of the two"), "%s",
				   hoist_error());
		end(&job);
	}
	struct job job;
	begin(&job, &places[2], &places[2], shapes[0]);
	cr_expect_eq(hoist_buffer_copy_on(job.views[0], job.views[1], NULL), -EINVAL);
	end(&job);
	close_all();
}

/* --- captures --- */

static void expect_captured(struct job *job, hoist_stream *stream, int expected)
{
	int err = hoist_buffer_copy_on(job->views[0], job->views[1], stream);
	cr_expect_eq(err, expected, "%d: %s", err, err < 0 ? hoist_error() : "");
	if (expected == -ENOTSUP)
		cr_expect_not_null(strstr(hoist_error(), "captures a graph"), "%s", hoist_error());
}

/* proves: S2.08 */
Test(copy_streams, a_capture_takes_what_is_direct_and_stays_whole, .init = open_all)
{
	struct job direct;
	struct job bounced;
	hoist_stream *stream = places[2].stream;
	begin(&direct, &places[2], &places[3], shapes[1]);
	begin(&bounced, &places[2], &places[0], shapes[0]);
	void *native = hoist_stream_native(stream);
	cr_assert_eq(lib_capture("cuda", native, 1), 0);
	expect_captured(&direct, stream, 0);
	expect_captured(&bounced, stream, -ENOTSUP);
	cr_expect_eq(
		hoist_buffer_copy_with(direct.views[0], direct.views[1], stream, HOIST_COPY_WAIT),
		-ENOTSUP);
	/* Not even what comes before it in a batch is captured. */
	uint64_t before = lib_counters("cuda").copies;
	hoist_buffer *const dsts[] = {direct.views[0], bounced.views[0]};
	hoist_buffer *const srcs[] = {direct.views[1], bounced.views[1]};
	cr_expect_eq(hoist_buffer_copy_batch(2, dsts, srcs, stream), -ENOTSUP);
	cr_expect_not_null(strstr(hoist_error(), "pair 1: "), "%s", hoist_error());
	cr_expect_eq(lib_counters("cuda").copies, before);
	/* Memory that is taken now is none of the graph's. */
	hoist_buffer *lazy = NULL;
	EXPECT_OK(hoist_buffer_create_on(stream, HOIST_U8, 1, (const int64_t[]){100},
					 HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO, &lazy));
	EXPECT_OK(hoist_buffer_allocate(lazy));
	/* Without a stream they would wait for the buffer's own. */
	hoist_buffer *view = NULL;
	char byte = 0;
	EXPECT_OK(hoist_buffer_on_stream(direct.bytes[0], stream, &view));
	cr_expect_eq(hoist_buffer_read(view, 0, &byte, 1), -ENOTSUP);
	cr_expect_eq(hoist_buffer_write(view, 0, &byte, 1), -ENOTSUP);
	cr_expect_eq(hoist_buffer_copy_into(view, direct.bytes[1]), -ENOTSUP);
	cr_expect_eq(hoist_buffer_fill(view, &byte, 1), -ENOTSUP);
	cr_expect_eq(lib_capture("cuda", native, 0), 0, "it was broken");
	hoist_buffer_unref(view);
	hoist_buffer_unref(lazy);
	end(&direct);
	end(&bounced);
	EXPECT_OK(hoist_memory_release_captured(places[2].memory));
	EXPECT_OK(hoist_memory_release_captured(places[3].memory));
	close_all();
}

/* --- order --- */

/* A copy to another stream is behind what is queued on the source's own. */
/* proves: S0.21 */
Test(copy_streams, a_new_buffer_is_ordered_behind_its_source, .init = open_all)
{
	static const int ways[][2] = {{2, 2}, {2, 5}, {2, 0}, {0, 2}, {0, 0}, {2, 8}};
	const int64_t shape[] = {100};
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		struct gate gate;
		pthread_t opener;
		hoist_stream *own = NULL;
		hoist_buffer *src = NULL;
		hoist_buffer *made = NULL;
		hoist_stream *stream = places[ways[i][1]].stream;
		EXPECT_OK(hoist_stream_create(places[ways[i][0]].device, &own));
		EXPECT_OK(hoist_buffer_create_on(own, HOIST_U8, 1, shape, HOIST_BUFFER_ZERO, &src));
		EXPECT_OK(hoist_stream_synchronize(own));
		set_gate(&gate, own);
		EXPECT_OK(hoist_buffer_fill_on(src, "x", 1, own));
		cr_assert_eq(pthread_create(&opener, NULL, open_later, &gate), 0);
		EXPECT_OK(hoist_buffer_copy_to_stream(src, stream, &made));
		EXPECT_OK(hoist_stream_synchronize(stream));
		char got[100];
		EXPECT_OK(hoist_buffer_copy_out(made, got, sizeof got));
		for (int k = 0; k < 100; k++)
			cr_assert_eq(got[k], 'x', "way %zu", i);
		cr_assert_eq(pthread_join(opener, NULL), 0);
		hoist_buffer_unref(src);
		hoist_buffer_unref(made);
		hoist_stream_unref(own);
	}
	close_all();
}

/* The memory of a LAZY one is taken, and set to zero, by what needs it first: also if that is on
 * another stream than the buffer's, which is far behind. */
/* proves: S2.08 */
Test(copy_streams, of_lazy_memory_need_not_know_its_stream, .init = open_all)
{
	static const int at[] = {0, 2, 4, 8};
	const unsigned flags = HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO;
	const int64_t shape[] = {100};
	for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
		const struct lib_place *place = &places[at[i]];
		struct gate gate;
		hoist_stream *own = NULL;
		hoist_buffer *src = NULL;
		hoist_buffer *lazy[2] = {NULL, NULL};
		hoist_buffer *view = NULL;
		char got[2][100];
		EXPECT_OK(hoist_stream_create(place->device, &own));
		EXPECT_OK(hoist_buffer_create_from(place->memory, place->stream, HOIST_U8, 1, shape,
						   0, &src));
		EXPECT_OK(hoist_buffer_fill_on(src, "x", 1, place->stream));
		for (int k = 0; k < 2; k++)
			EXPECT_OK(hoist_buffer_create_from(place->memory, own, HOIST_U8, 1, shape,
							   flags, &lazy[k]));
		EXPECT_OK(hoist_buffer_on_stream(lazy[1], place->stream, &view));
		set_gate(&gate, own);
		EXPECT_OK(hoist_buffer_copy_on(lazy[0], src, place->stream));
		EXPECT_OK(hoist_stream_synchronize(place->stream));
		EXPECT_OK(hoist_buffer_read(view, 0, got[1], 100));
		open_gate(&gate);
		EXPECT_OK(hoist_buffer_read(lazy[0], 0, got[0], 100));
		for (int k = 0; k < 100; k++)
			cr_assert(got[0][k] == 'x' && got[1][k] == 0, "%s", place->name);
		hoist_buffer_unref(src);
		hoist_buffer_unref(lazy[0]);
		hoist_buffer_unref(lazy[1]);
		hoist_buffer_unref(view);
		hoist_stream_unref(own);
	}
	close_all();
}

/* Functions without a stream wait for that of the buffer. */
/* proves: S4.14 */
Test(copy_streams, those_without_one_wait_for_the_buffers, .init = open_all)
{
	const int64_t shape[] = {100};
	for (int i = 0; i < 3; i += 2) {
		struct gate gate;
		pthread_t opener;
		hoist_buffer *src = NULL;
		char got[100];
		hoist_stream *stream = places[i].stream;
		EXPECT_OK(hoist_buffer_create_on(stream, HOIST_U8, 1, shape, 0, &src));
		set_gate(&gate, stream);
		EXPECT_OK(hoist_buffer_fill_on(src, "yz", 2, stream));
		cr_assert_eq(pthread_create(&opener, NULL, open_later, &gate), 0);
		EXPECT_OK(hoist_buffer_copy_out(src, got, sizeof got));
		cr_assert_eq(pthread_join(opener, NULL), 0);
		cr_expect_arr_eq(got, "yzyz", 4);
		hoist_buffer_unref(src);
	}
	close_all();
}
