/* SPDX-License-Identifier: MIT */
/* HOIST_LOAD_SPLIT: a block for each tensor or group of small ones, and blocks that go back one by
 * one, on the host and on devices. */
#include "config.h"

#include <string.h>

#include "tests/support/lib-custom.h"
#include "tests/support/load-support.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Two large tensors, each between small ones.  Blocks: {0, 1}, {2}, {3, 4, 5}, {6}, {7}. */
static const size_t sizes[] = {100, 300 * KIB, 3 * MIB + 5, MIB, 4 * KIB, 7, 2 * MIB + 1, 64};
enum { N = sizeof sizes / sizeof sizes[0], N_BLOCKS = 5 };
static const size_t block_of[N] = {0, 0, 1, 2, 2, 2, 3, 4};

static hoist_load *load_split(const hoist_load_options *o)
{
	hoist_checkpoint *checkpoint = support_open("m.safetensors");
	hoist_load *load = NULL;
	OK(hoist_load_start(checkpoint, o, &load));
	OK(hoist_load_wait(load));
	support_compare(checkpoint, load);
	hoist_checkpoint_close(checkpoint);
	return load;
}

/* The caller's resource sees each block come and go. */
static void each_block_goes_back_with_its_last_buffer(const char *spec)
{
	struct backing backing = {0};
	hoist_device *device = support_device(spec);
	hoist_memory *memory = make_custom(&backing, device, 1, 0);
	hoist_load_options o = {
		.size = sizeof o, .device = device, .memory = memory, .flags = HOIST_LOAD_SPLIT};
	hoist_load *load = load_split(&o);
	hoist_buffer *buffers[N];
	unsigned left[N_BLOCKS] = {0};
	unsigned n_gone = 0;
	CHECK(backing.n_allocs == N_BLOCKS && backing.n_frees == 0);
	for (size_t i = 0; i < N; i++) {
		OK(hoist_load_tensor(load, i, NULL, &buffers[i]));
		left[block_of[i]]++;
	}
	hoist_load_destroy(load);
	for (size_t i = 0; i < N; i++) {
		size_t tensor = i * 5 % N;
		hoist_buffer_unref(buffers[tensor]);
		n_gone += --left[block_of[tensor]] == 0;
		CHECK(backing.n_frees == n_gone);
	}
	CHECK(backing.n_frees == N_BLOCKS);
	hoist_memory_unref(memory);
	hoist_device_unref(device);
}

static size_t in_use(hoist_device *device)
{
	hoist_device_statistics statistics = {.size = sizeof statistics};
	OK(hoist_device_get_statistics(device, &statistics));
	return (size_t)statistics.used;
}

/* A tensor that is kept holds its own block, on each device. */
static void a_kept_tensor_holds_its_own_block(void)
{
	hoist_device *devices[] = {support_device("cuda:0"), support_device("cuda:1")};
	size_t before[] = {in_use(devices[0]), in_use(devices[1])};
	hoist_load_options o = {.size = sizeof o,
				.device = devices[0],
				.replicas = &devices[1],
				.n_replicas = 1,
				.flags = HOIST_LOAD_SPLIT};
	hoist_load *load = load_split(&o);
	hoist_buffer *kept[2];
	OK(hoist_load_tensor(load, 4, NULL, &kept[0]));
	OK(hoist_load_replica(load, 0, 4, &kept[1]));
	for (size_t d = 0; d < 2; d++)
		CHECK(in_use(devices[d]) - before[d] >= 6 * MIB);
	hoist_load_destroy(load);
	for (size_t d = 0; d < 2; d++) {
		size_t held = in_use(devices[d]) - before[d];
		CHECK(held >= MIB && held <= 2 * MIB);
		hoist_buffer_unref(kept[d]);
		CHECK(in_use(devices[d]) == before[d]);
		hoist_device_unref(devices[d]);
	}
}

/* Host tensors that keep the file's place within a page keep it in blocks of their own, too. */
static void every_way_of_loading_splits(void)
{
	static const char *const specs[] = {"cpu", "cuda:0"};
	for (size_t d = 0; d < 2; d++)
		for (int io = HOIST_IO_AUTO; io <= HOIST_IO_MAP; io++)
			for (size_t align = 1; align <= 4096; align += 4095) {
				hoist_device *device = support_device(specs[d]);
				hoist_load_options o = {.size = sizeof o,
							.device = device,
							.io = (enum hoist_io)io,
							.flags = HOIST_LOAD_SPLIT,
							.chunk_bytes = 64 * KIB,
							.tensor_align = align};
				hoist_load_destroy(load_split(&o));
				hoist_device_unref(device);
			}
}

int main(void)
{
	support_emulate("cuda:2");
	support_write("m.safetensors", 0, N, sizes, 1333);
	each_block_goes_back_with_its_last_buffer("cpu");
	a_kept_tensor_holds_its_own_block();
	every_way_of_loading_splits();
	support_cleanup();
	return 0;
}
