/* SPDX-License-Identifier: MIT */
/* Scenarios: loads of every kind. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>

/* --- a load --- */

struct load_case {
	const char *file;
	const char *on; /* NULL: the CPU */
	const char *replica;
	hoist_load_options options;
	int (*look)(hoist_load *load); /* NULL: all tensors, all bytes */
	bool cancels;
	bool leaves; /* destroys it without a wait */
};

static int whole(hoist_load *load);

static int start(const struct load_case *c, hoist_device *const devices[2], hoist_load **ret)
{
	hoist_checkpoint *checkpoint = NULL;
	hoist_load_options o = c->options;
	o.size = sizeof o;
	o.budget = sweep_budget;
	o.chunk_bytes = 64 << 10;
	o.device = devices[0];
	if (devices[1] != NULL) {
		o.replicas = &devices[1];
		o.n_replicas = 1;
	}
	int err = hoist_checkpoint_open(sweep_path(c->file), 0, &checkpoint);
	if (err == 0)
		err = hoist_load_start(checkpoint, &o, ret);
	else if (checkpoint != NULL)
		sweep_wrong("a checkpoint that could not be opened is given");
	hoist_checkpoint_close(checkpoint);
	return err;
}

static int load(const struct load_case *c)
{
	hoist_device *devices[2] = {NULL, NULL};
	hoist_load *it = NULL;
	int err = 0;
	if (c->on != NULL)
		err = hoist_device_open(c->on, &devices[0]);
	if (err == 0 && c->replica != NULL)
		err = hoist_device_open(c->replica, &devices[1]);
	STEP(err, start(c, devices, &it));
	if (err != 0 && it != NULL)
		sweep_wrong("a load that could not be started is given");
	if (err == 0 && c->cancels)
		hoist_load_cancel(it);
	bool streams = (c->options.flags & HOIST_LOAD_STREAM) != 0;
	if (err == 0 && !c->leaves && !streams)
		err = hoist_load_wait(it);
	if (err == -ECANCELED && c->cancels)
		sweep_check_text(err);
	if (err == 0 && !c->leaves)
		err = (c->look != NULL ? c->look : whole)(it);
	hoist_load_destroy(it);
	hoist_device_unref(devices[1]);
	hoist_device_unref(devices[0]);
	return err == -ECANCELED && c->cancels ? 0 : err;
}

static int whole(hoist_load *it)
{
	int err = 0;
	if (hoist_load_n_tensors(it) != SWEEP_N_TENSORS)
		sweep_wrong("%zu tensors", hoist_load_n_tensors(it));
	for (size_t i = 0; err == 0 && i < SWEEP_N_TENSORS; i++) {
		hoist_buffer *buffer = NULL;
		size_t tensor = 0;
		err = hoist_load_tensor(it, i, &tensor, &buffer);
		STEP(err, sweep_compare(buffer, tensor, 0));
		hoist_buffer_unref(buffer);
	}
	return err;
}

static int poll_whole(hoist_load *it)
{
	int err = hoist_load_fd(it);
	return err < 0 ? err : whole(it);
}

#define LOAD(name, ...)                                                                            \
	static int name(void)                                                                      \
	{                                                                                          \
		static const struct load_case c = {__VA_ARGS__};                                   \
		return load(&c);                                                                   \
	}

LOAD(to_host, .file = "m.safetensors")
LOAD(to_host_threads, .file = "m.safetensors", .options = {.engine = HOIST_ENGINE_THREADS})
LOAD(to_host_cached, .file = "m.safetensors",
     .options = {.io = HOIST_IO_CACHED, .flags = HOIST_LOAD_DROP_CACHE})
LOAD(to_cuda, .file = "m.safetensors", .on = "cuda:0", .look = poll_whole)
LOAD(to_hip_threads, .file = "m.safetensors", .on = "hip:0",
     .options = {.engine = HOIST_ENGINE_THREADS})
LOAD(shards, .file = "shards", .options = {.flags = HOIST_LOAD_DIGEST})
LOAD(shards_to_cuda, .file = "shards", .on = "cuda:0",
     .options = {.flags = HOIST_LOAD_CALLER_DRIVEN})

/* --- one by one --- */

/* A tensor that has been given is right, whatever fails then. */
static int take_each(hoist_load *it)
{
	hoist_load_item item = {.size = sizeof item};
	size_t n = 0;
	int got;
	while ((got = hoist_load_next(it, UINT64_MAX, &item)) == 1) {
		n++;
		got = sweep_compare(item.buffer, item.tensor, 0);
		hoist_buffer_unref(item.buffer);
		if (got != 0)
			break;
	}
	if (got == 0 && n != SWEEP_N_TENSORS)
		sweep_wrong("%zu tensors were given", n);
	return got == 0 ? hoist_load_wait(it) : got;
}

static int poll_each(hoist_load *it)
{
	int fd = hoist_load_fd(it);
	return fd < 0 ? fd : take_each(it);
}

static const char *const order[] = {"e"};
LOAD(stream, .file = "m.safetensors", .look = take_each,
     .options = {.flags = HOIST_LOAD_STREAM | HOIST_LOAD_DIGEST,
		 .window_bytes = 1,
		 .order = order,
		 .n_order = 1})
LOAD(stream_to_cuda, .file = "m.safetensors", .on = "cuda:0", .look = poll_each,
     .options = {.flags = HOIST_LOAD_STREAM, .window_bytes = SWEEP_MOST_BYTES})

/* --- replicas --- */

static int look_at_replicas(hoist_load *it)
{
	int err = whole(it);
	for (size_t i = 0; err == 0 && i < SWEEP_N_TENSORS; i++) {
		hoist_buffer *buffer = NULL;
		err = hoist_load_replica(it, 0, i, &buffer);
		STEP(err, sweep_compare(buffer, i, 0));
		hoist_buffer_unref(buffer);
	}
	return err;
}

LOAD(to_replicas, .file = "m.safetensors", .on = "cuda:0", .replica = "cuda:1",
     .look = look_at_replicas)

/* --- parts --- */

#define CUT_BEGIN 150
#define CUT_END 900

static int look_at_parts(hoist_load *it)
{
	static unsigned char all[SWEEP_MOST_BYTES];
	static unsigned char cut[SWEEP_MOST_BYTES];
	const size_t wide = CUT_END - CUT_BEGIN;
	hoist_buffer *buffer = NULL;
	sweep_fill(0, 0, all);
	for (size_t row = 0; row < SWEEP_ROWS; row++)
		memcpy(cut + row * wide, all + row * SWEEP_COLUMNS + CUT_BEGIN, wide);
	int err = hoist_load_buffer(it, "a", &buffer);
	STEP(err, sweep_compare_bytes(buffer, cut, SWEEP_ROWS * wide));
	hoist_buffer_unref(buffer);
	buffer = NULL;
	STEP(err, hoist_load_buffer(it, "e", &buffer));
	sweep_fill(4, 0, all);
	STEP(err, sweep_compare_bytes(buffer, all + 7, 50000 - 7));
	hoist_buffer_unref(buffer);
	return err;
}

static const hoist_load_slice parts[] = {
	{.tensor = "a", .axis = 1, .begin = CUT_BEGIN, .end = CUT_END},
	{.tensor = "e", .axis = 0, .begin = 7, .end = 50000},
};
#define PARTS .slices = parts, .n_slices = 2

LOAD(parts_to_host, .file = "m.safetensors", .look = look_at_parts, .options = {PARTS})
LOAD(parts_to_cuda, .file = "m.safetensors", .on = "cuda:0", .look = look_at_parts,
     .options = {PARTS, .engine = HOIST_ENGINE_THREADS})

/* --- targets --- */

/* Two devices and the host, which ask for the same parts. */
static int to_targets(void)
{
	hoist_device *devices[2] = {NULL};
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *it = NULL;
	int err = hoist_device_open("cuda:0", &devices[0]);
	STEP(err, hoist_device_open("cuda:1", &devices[1]));
	const hoist_load_target targets[] = {
		{.size = sizeof targets[0], .device = devices[0], PARTS},
		{.size = sizeof targets[0], .device = devices[1]},
		{.size = sizeof targets[0], PARTS},
	};
	const hoist_load_target *const all[] = {&targets[0], &targets[1], &targets[2]};
	const hoist_load_options o = {
		.size = sizeof o, .targets = all, .n_targets = 3, .flags = HOIST_LOAD_SPLIT};
	STEP(err, hoist_checkpoint_open(sweep_path("m.safetensors"), 0, &checkpoint));
	STEP(err, hoist_load_start(checkpoint, &o, &it));
	STEP(err, hoist_load_wait(it));
	STEP(err, look_at_parts(it));
	for (size_t i = 0; err == 0 && i < SWEEP_N_TENSORS; i++) {
		hoist_buffer *buffer = NULL;
		STEP(err, hoist_load_target_tensor(it, 1, i, NULL, &buffer));
		STEP(err, sweep_compare(buffer, i, 0));
		hoist_buffer_unref(buffer);
	}
	hoist_load_destroy(it);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(devices[1]);
	hoist_device_unref(devices[0]);
	return err;
}

/* --- in place --- */

/* After a failure, a buffer that is whole has the tensor. */
static int look_at_states(hoist_load *it, const hoist_load_into *into, int err)
{
	for (size_t i = 0; i < SWEEP_N_TENSORS; i++) {
		enum hoist_into_state state = HOIST_INTO_TORN;
		if (hoist_load_into_state(it, 0, i, &state) != 0)
			sweep_wrong("a buffer has no state");
		if (err == 0 && state != HOIST_INTO_WHOLE)
			sweep_wrong("buffer %zu is not whole", i);
	}
	for (size_t i = 0; err == 0 && i < SWEEP_N_TENSORS; i++)
		err = sweep_compare(into[i].buffer, i, 0);
	return err;
}

/* Into the memory of a load before, which is one of the calls that fail. */
static int in_place_on(const char *spec)
{
	hoist_device *device = NULL;
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *it = NULL;
	hoist_load_into into[SWEEP_N_TENSORS] = {{0}};
	hoist_load_options o = {.size = sizeof o, .budget = sweep_budget, .chunk_bytes = 64 << 10};
	int err = hoist_device_open(spec, &device);
	o.device = device;
	STEP(err, hoist_checkpoint_open(sweep_path("m.safetensors"), 0, &checkpoint));
	STEP(err, hoist_load_start(checkpoint, &o, &it));
	STEP(err, hoist_load_wait(it));
	for (size_t i = 0; err == 0 && i < SWEEP_N_TENSORS; i++) {
		hoist_tensor_info info = {.size = sizeof info};
		STEP(err, hoist_load_tensor(it, i, &(size_t){0}, &into[i].buffer));
		STEP(err, hoist_checkpoint_tensor(checkpoint, i, &info));
		into[i].tensor = info.name;
	}
	hoist_load_destroy(it);
	it = NULL;
	o.into = into;
	o.n_into = SWEEP_N_TENSORS;
	STEP(err, hoist_load_start(checkpoint, &o, &it));
	if (err == 0)
		err = look_at_states(it, into, hoist_load_wait(it));
	hoist_load_destroy(it);
	for (size_t i = 0; i < SWEEP_N_TENSORS; i++)
		hoist_buffer_unref(into[i].buffer);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	return err;
}

static int in_place(void)
{
	return in_place_on("cpu");
}

static int in_place_cuda(void)
{
	return in_place_on("cuda:0");
}

/* --- one by name; other types --- */

/* The half at @bytes is positive and finite. */
static float float_of(const unsigned char *bytes)
{
	uint16_t half;
	float single;
	memcpy(&half, bytes, 2);
	unsigned exponent = half >> 10;
	unsigned fraction = half & 0x3ffu;
	if (exponent == 0)
		return (float)fraction * 0x1p-24f;
	uint32_t bits = (exponent + 112) << 23 | fraction << 13;
	memcpy(&single, &bits, 4);
	return single;
}

static int look_at_floats(hoist_load *it)
{
	static unsigned char halves[SWEEP_MOST_BYTES];
	static unsigned char floats[2 * SWEEP_MOST_BYTES];
	hoist_buffer *buffer = NULL;
	sweep_fill(3, 0, halves);
	int err = hoist_load_buffer(it, "d", &buffer);
	if (err == 0 && hoist_buffer_bytes(buffer) != 2 * sweep_bytes(3))
		sweep_wrong("not converted");
	else if (err == 0)
		err = hoist_buffer_copy_out(buffer, floats, 2 * sweep_bytes(3));
	for (size_t i = 0; err == 0 && i < sweep_bytes(3) / 2; i++) {
		float single;
		memcpy(&single, floats + 4 * i, 4);
		if (single != float_of(halves + 2 * i)) {
			sweep_wrong("element %zu is not what it was", i);
			break;
		}
	}
	hoist_buffer_unref(buffer);
	return err;
}

static const char *const one[] = {"d"};

LOAD(floats_to_hip, .file = "m.safetensors", .on = "hip:0", .look = look_at_floats,
     .options = {.dtype = HOIST_F32, .tensors = one, .n_tensors = 1})

static int look_at_gguf(hoist_load *it)
{
	hoist_buffer *buffer = NULL;
	int err = hoist_load_buffer(it, "a", &buffer);
	STEP(err, sweep_compare_gguf(buffer, 0));
	hoist_buffer_unref(buffer);
	return err;
}

LOAD(gguf, .file = "m.gguf", .on = "cuda:0", .look = look_at_gguf)

/* --- other files --- */

static int look_at_first(hoist_load *it)
{
	hoist_buffer *buffer = NULL;
	size_t tensor = 1;
	int err = hoist_load_tensor(it, 0, &tensor, &buffer);
	if (err == 0 && tensor != 0)
		sweep_wrong("tensor 0 is %zu", tensor);
	STEP(err, sweep_compare(buffer, 0, 0));
	hoist_buffer_unref(buffer);
	return err;
}

/* Columns were written one after the other. */
static int look_at_columns(hoist_load *it)
{
	static unsigned char file[SWEEP_MOST_BYTES];
	static unsigned char want[SWEEP_MOST_BYTES];
	hoist_buffer *buffer = NULL;
	sweep_fill(0, 0, file);
	for (size_t i = 0; i < sweep_bytes(0); i++)
		want[i] = file[i % SWEEP_COLUMNS * SWEEP_ROWS + i / SWEEP_COLUMNS];
	int err = hoist_load_buffer(it, "a", &buffer);
	STEP(err, sweep_compare_bytes(buffer, want, sweep_bytes(0)));
	hoist_buffer_unref(buffer);
	return err;
}

LOAD(npy, .file = "o.npy", .look = look_at_first)
LOAD(npz, .file = "o.npz", .look = look_at_first)
LOAD(max, .file = "o.max")
LOAD(pytorch, .file = "o.pt", .look = look_at_columns)
LOAD(verified, .file = "o.safetensors", .options = {.flags = HOIST_LOAD_VERIFY})

/* --- tensor by tensor --- */

/* The load's memory has a region to itself.  The load ends first, then each tensor. */
static int drop_one_by_one(hoist_load *it, hoist_buffer *buffers[SWEEP_N_TENSORS])
{
	int err = hoist_load_wait(it);
	for (size_t i = 0; err == 0 && i < SWEEP_N_TENSORS; i++)
		err = hoist_load_tensor(it, i, NULL, &buffers[i]);
	hoist_load_destroy(it);
	for (size_t i = 0; i < SWEEP_N_TENSORS; i++) {
		for (size_t k = i; err == 0 && k < SWEEP_N_TENSORS; k++)
			err = sweep_compare(buffers[k], k, 0);
		hoist_buffer_unref(buffers[i]);
	}
	return err;
}

static int in_portions(void)
{
	const hoist_memory_options options = {
		.size = sizeof options, .region_bytes = 128 << 10, .keep_bytes = 1};
	hoist_memory_statistics statistics = {.size = sizeof statistics};
	hoist_buffer *buffers[SWEEP_N_TENSORS] = {NULL};
	hoist_device *const on[2] = {NULL, NULL};
	struct load_case c = {.file = "m.safetensors"};
	hoist_load *it = NULL;
	int err = hoist_memory_create(&options, &c.options.memory);
	STEP(err, start(&c, on, &it));
	if (it != NULL)
		err = drop_one_by_one(it, buffers);
	if (c.options.memory != NULL &&
	    (hoist_memory_get_statistics(c.options.memory, &statistics) != 0 ||
	     statistics.reserved_bytes != 0 || statistics.n_blocks != 0))
		sweep_wrong("memory of dropped tensors is still counted");
	hoist_memory_unref(c.options.memory);
	return err;
}

/* --- loads that nobody waits for --- */

LOAD(ended, .file = "m.safetensors", .on = "cuda:0", .cancels = true)
LOAD(left, .file = "m.safetensors", .on = "hip:0", .leaves = true)
LOAD(to_hip, .file = "m.safetensors", .on = "hip:0")

/* Some come as far as this: what is then kept is there before anything fails. */
static void load_all(void)
{
	if (to_cuda() != 0 || to_hip() != 0)
		sweep_die("a load in the beginning");
}

/* --- maps --- */

LOAD(map, .file = "m.safetensors", .options = {.io = HOIST_IO_MAP, .map = HOIST_MAP_READ_ONLY})
LOAD(map_shards, .file = "shards", .options = {.io = HOIST_IO_MAP, .flags = HOIST_LOAD_POPULATE})

static int look_at_hot(hoist_load *it)
{
	int err = 0;
	for (size_t t = 0; err == 0 && t < 2; t++) {
		hoist_buffer *buffer = NULL;
		err = hoist_load_tensor(it, t, NULL, &buffer);
		const unsigned char *bytes = err == 0 ? hoist_buffer_data(buffer) : NULL;
		for (size_t i = 0; err == 0 && i < SWEEP_HOT_BYTES / 2; i++)
			if (bytes[i] != sweep_hot_byte(t * SWEEP_HOT_BYTES / 2 + i))
				sweep_wrong("byte %zu", i);
		hoist_buffer_unref(buffer);
	}
	return err;
}

/* A map that fails is a range that is read. */
LOAD(adaptive, .file = "hot.safetensors", .look = look_at_hot,
     .options = {.io = HOIST_IO_ADAPTIVE, .flags = HOIST_LOAD_DIGEST})
LOAD(split, .file = "hot.safetensors", .look = look_at_hot, .options = {.flags = HOIST_LOAD_SPLIT})

#define S(text, driver, load)                                                                      \
	{                                                                                          \
		.name = text, .api = driver, .run = load                                           \
	}

const struct sweep_scenario sweep_loads[] = {
	S("load-host", NULL, to_host),
	S("load-host-threads", NULL, to_host_threads),
	S("load-host-cached", NULL, to_host_cached),
	S("load-cuda", "cuda", to_cuda),
	S("load-hip-threads", "hip", to_hip_threads),
	S("load-stream", NULL, stream),
	S("load-stream-cuda", "cuda", stream_to_cuda),
	S("load-replicas", "cuda", to_replicas),
	S("load-targets", "cuda", to_targets),
	S("load-shards", NULL, shards),
	S("load-shards-cuda", "cuda", shards_to_cuda),
	S("load-parts", NULL, parts_to_host),
	S("load-parts-cuda", "cuda", parts_to_cuda),
	S("load-in-place", NULL, in_place),
	S("load-in-place-cuda", "cuda", in_place_cuda),
	S("load-floats", "hip", floats_to_hip),
	S("load-gguf", "cuda", gguf),
	S("load-npy", NULL, npy),
	S("load-npz", NULL, npz),
	S("load-max", NULL, max),
	S("load-pytorch", NULL, pytorch),
	S("load-verify", NULL, verified),
	S("load-portions", NULL, in_portions),
	{.name = "load-cancel", .api = "cuda", .prepare = load_all, .run = ended, .varies = true},
	{.name = "load-destroy", .api = "hip", .prepare = load_all, .run = left, .varies = true},
	S("load-map", NULL, map),
	S("load-map-shards", NULL, map_shards),
	S("load-adaptive", NULL, adaptive),
	S("load-split", NULL, split),
	{.name = NULL},
};
