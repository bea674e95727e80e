/* SPDX-License-Identifier: MIT */
/* Scenario of the failure sweep (tests/faults/sweep.h): buffers are made, viewed and closed.  The
 * caller's memory is released once or is still the caller's. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "hoist/hoist.h"
#include "hoist/mmap.h"
#include "tests/faults/sweep.h"

#define N_BUFFERS 15

struct scenario {
	hoist_stream *stream;
	hoist_memory *pool;
	hoist_memory *custom;
	hoist_buffer *buffers[N_BUFFERS];
	int n_wrapped, n_released; /* of what is the caller's until it is wrapped */
	char bytes[64];
};

static void release(void *context)
{
	((struct scenario *)context)->n_released++;
}

static int wrap(struct scenario *s, hoist_buffer **ret)
{
	const hoist_buffer_source source = {.size = sizeof source,
					    .address = (uintptr_t)s->bytes,
					    .bytes = sizeof s->bytes,
					    .release = release,
					    .context = s};
	int err = hoist_buffer_wrap(&source, HOIST_U8, 1, (const int64_t[]){64}, NULL, ret);
	s->n_wrapped += err == 0;
	return err;
}

/* A block that is the resource's again if it cannot become a buffer. */
static int adopt(struct scenario *s, hoist_buffer **ret)
{
	hoist_buffer_source source = {
		.size = sizeof source, .bytes = 3000, .memory = s->pool, .stream = s->stream};
	int err = hoist_memory_alloc_on(s->pool, 3000, 0, s->stream, &source.address);
	if (err < 0)
		return err;
	err = hoist_buffer_wrap(&source, HOIST_U8, 1, (const int64_t[]){3000}, NULL, ret);
	if (err < 0 && hoist_memory_free_on(s->pool, source.address, s->stream) < 0)
		sweep_die("a block that was not adopted is not ours either");
	return err;
}

static int give_nothing(void *context, size_t bytes, size_t align, hoist_stream *stream,
			uintptr_t *ret)
{
	(void)context;
	(void)bytes;
	(void)align;
	(void)stream;
	(void)ret;
	return -ENOMEM;
}

static void take_back(void *context, uintptr_t address, size_t bytes, hoist_stream *stream)
{
	struct scenario *s = context;
	if (address != (uintptr_t)s->bytes || bytes != sizeof s->bytes || stream != s->stream)
		sweep_die("its free function got %zu bytes at %#zx", bytes, (size_t)address);
	s->n_released++;
}

/* A block that a resource's functions made without hoist: it goes back to them only if it became a
 * buffer. */
static int wrap_custom(struct scenario *s, hoist_buffer **ret)
{
	const hoist_memory_functions functions = {.size = sizeof functions,
						  .alloc = give_nothing,
						  .free = take_back,
						  .is_host_accessible = 1};
	const hoist_memory_options options = {.size = sizeof options,
					      .kind = HOIST_MEMORY_CUSTOM,
					      .functions = &functions,
					      .functions_context = s};
	int err = hoist_memory_create(&options, &s->custom);
	if (err < 0)
		return err;
	const hoist_buffer_source source = {.size = sizeof source,
					    .address = (uintptr_t)s->bytes,
					    .bytes = sizeof s->bytes,
					    .memory = s->custom,
					    .stream = s->stream};
	err = hoist_buffer_wrap(&source, HOIST_U8, 1, (const int64_t[]){64}, NULL, ret);
	s->n_wrapped += err == 0;
	return err;
}

static int view(hoist_buffer **b)
{
	const hoist_slice rows[] = {HOIST_STEP(HOIST_NONE, HOIST_NONE, -2), HOIST_RANGE(0, 8)};
	int err = hoist_buffer_slice(b[0], 2, rows, &b[4]);
	STEP(err, hoist_buffer_view_as(b[4], HOIST_I32, &b[5]));
	STEP(err, hoist_buffer_permute(b[5], (const int[]){1, 0}, &b[6]));
	STEP(err, hoist_buffer_reshape(b[0], 1, (const int64_t[]){-1}, &b[7]));
	return err;
}

static int make(struct scenario *s, hoist_device *device, hoist_device *other)
{
	const int64_t shape[] = {40, 16};
	const hoist_memory_options options = {
		.size = sizeof options, .kind = HOIST_MEMORY_DRIVER_POOL, .device = device};
	hoist_buffer **b = s->buffers;
	int err = hoist_stream_create(device, &s->stream);
	STEP(err, hoist_memory_create(&options, &s->pool));
	STEP(err, hoist_buffer_create_on(s->stream, HOIST_U8, 2, shape, HOIST_BUFFER_ZERO, &b[0]));
	STEP(err, hoist_buffer_create(other, HOIST_U8, 2, shape,
				      HOIST_BUFFER_PINNED | HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO,
				      &b[1]));
	STEP(err, hoist_buffer_allocate(b[1]));
	STEP(err, hoist_buffer_create_from(s->pool, s->stream, HOIST_U8, 2, shape,
					   HOIST_BUFFER_ZERO, &b[2]));
	STEP(err, wrap(s, &b[3]));
	STEP(err, view(b));
	STEP(err, adopt(s, &b[8]));
	STEP(err, hoist_buffer_create(sweep_devices[0], HOIST_U8, 2, shape, HOIST_BUFFER_SHAREABLE,
				      &b[9]));
	STEP(err, hoist_buffer_mmap(sweep_path("mapped"), HOIST_U8, 2, shape, "w+", 3, 0, &b[10]));
	STEP(err, hoist_buffer_mmap(sweep_path("mapped"), HOIST_U8, 2, shape, "r", 3, 0, &b[11]));
	STEP(err, hoist_buffer_fork(2, (hoist_buffer *[]){b[0], b[4]}, 1, &b[12]));
	STEP(err, wrap_custom(s, &b[14]));
	STEP(err, hoist_buffer_free_on(b[0], s->stream));
	STEP(err, hoist_buffer_close(b[0], s->stream));
	return err;
}

static void drop(struct scenario *s)
{
	for (int i = 0; i < N_BUFFERS; i++)
		hoist_buffer_unref(s->buffers[i]);
	memset(s->buffers, 0, sizeof s->buffers);
	hoist_memory_unref(s->pool);
	hoist_memory_unref(s->custom);
	hoist_stream_unref(s->stream);
	s->pool = NULL;
	s->custom = NULL;
	s->stream = NULL;
	if (s->n_released != s->n_wrapped)
		sweep_die("released %d times of %d", s->n_released, s->n_wrapped);
}

/* proves: S0.02 S2.02 S2.03 S2.04 S4.06 S4.24 */
static int buffers_of_every_origin(void)
{
	static struct scenario s;
	int err = make(&s, sweep_devices[sweep_device], sweep_devices[4 - sweep_device]);
	drop(&s);
	return err;
}

const struct sweep_scenario sweep_lib_buffer[] = {
	SWEEP_BOTH("lib-buffer", 1, 3, .prepare = sweep_need_devices,
		   .run = buffers_of_every_origin, .check = sweep_check_devices),
	{.name = NULL},
};
