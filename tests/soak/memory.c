/* SPDX-License-Identifier: MIT */
/* Copies between devices and streams, and blocks of pools that keep little. */
#include "config.h"

#include "tests/soak/worker.h"

#include <errno.h>
#include <string.h>

/* --- copies --- */

static hoist_buffer *hop_to_stream(hoist_buffer *from, hoist_device *device)
{
	hoist_stream *stream = NULL;
	hoist_buffer *to = NULL;
	OK(hoist_stream_create(device, &stream));
	OK(hoist_buffer_copy_to_stream(from, stream, &to));
	/* The source's memory goes back behind what was queued. */
	hoist_stream_unref(stream);
	return to;
}

static hoist_buffer *hop(hoist_buffer *from)
{
	hoist_device *device = soak_devices[soak_below(LIB_N_DEVICES)];
	hoist_buffer *to = NULL;
	switch (soak_below(4)) {
	case 0:
		return hop_to_stream(from, device);
	case 1:
		OK(hoist_buffer_to(from, device, &to));
		return to;
	case 2:
		OK(hoist_buffer_create(device, hoist_buffer_dtype(from), hoist_buffer_rank(from),
				       hoist_buffer_shape(from), HOIST_BUFFER_LAZY, &to));
		OK(hoist_buffer_copy_into(to, from));
		return to;
	default:
		OK(hoist_buffer_copy(from, device, &to));
		return to;
	}
}

void soak_copy(void)
{
	struct soak_model model;
	soak_model_make(soak_random(), &model);
	size_t t = soak_below(model.n);
	hoist_buffer *buffer = soak_make_buffer(&model, t);
	for (uint64_t hops = 1 + soak_below(5); hops > 0; hops--) {
		hoist_buffer *next = hop(buffer);
		hoist_buffer_unref(buffer);
		buffer = next;
		soak_beat();
	}
	soak_check_whole(&model, t, buffer);
	hoist_buffer_unref(buffer);
}

/* --- pools --- */

#define N_BLOCKS 24

/* @n bytes of the pattern @seed, there or back.  Returns: as they should be. */
static bool touch(hoist_memory *memory, uintptr_t address, size_t n, uint64_t seed, bool write)
{
	hoist_memory_info info = {.size = sizeof info};
	OK(hoist_memory_get_info(memory, &info));
	if (!info.is_host_accessible)
		return true;
	uint64_t *words = (uint64_t *)address;
	for (size_t i = 0; i < n / 8; i += 1 + i / 16) {
		if (write)
			words[i] = seed + i;
		else if (words[i] != seed + i)
			return false;
	}
	return true;
}

/* A block of a stream's: written by hand, or not at all. */
static void free_one(hoist_memory *memory, int pool, uintptr_t address, hoist_stream *stream)
{
	if (stream != NULL && pool != POOL_HOST && soak_chance(2))
		OK(hoist_memory_free_on(memory, address, stream));
	else
		OK(hoist_memory_free(memory, address));
}

void soak_pool(void)
{
	static const int devices[SOAK_N_POOLS] = {CPU, CUDA_0, CUDA_1, HIP_0};
	uintptr_t blocks[N_BLOCKS] = {0};
	size_t bytes[N_BLOCKS] = {0};
	int pool = (int)soak_below(SOAK_N_POOLS);
	hoist_memory *memory = soak_pools[pool];
	hoist_stream *stream = NULL;
	if (pool != POOL_HOST && soak_chance(2))
		OK(hoist_stream_create(soak_devices[devices[pool]], &stream));
	for (uint64_t n = 20 + soak_below(400); n > 0; n--) {
		size_t i = soak_below(N_BLOCKS);
		if (blocks[i] != 0) {
			CHECK(touch(memory, blocks[i], bytes[i], i, false));
			free_one(memory, pool, blocks[i], stream);
			blocks[i] = 0;
			continue;
		}
		bytes[i] = 1 + soak_below(soak_chance(10) ? 1500000 : 5000);
		int err = hoist_memory_alloc(memory, bytes[i], 0, &blocks[i]);
		CHECK(err == 0 || err == -EDQUOT);
		if (err == 0)
			CHECK(touch(memory, blocks[i], bytes[i], i, true));
		else
			soak_count(SOAK_N_no_memory, 1);
	}
	for (size_t i = 0; i < N_BLOCKS; i++)
		if (blocks[i] != 0) {
			CHECK(touch(memory, blocks[i], bytes[i], i, false));
			free_one(memory, pool, blocks[i], stream);
		}
	if (soak_chance(4))
		OK(hoist_memory_trim(memory, 0));
	hoist_stream_unref(stream);
}
