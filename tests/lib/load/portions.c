/* SPDX-License-Identifier: MIT */
/* Loads to the host give memory back tensor by tensor: the kernel is asked which pages are there.
 *
 * Exit: 0, 1. */
#include "config.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/lib-gate.h"
#include "tests/support/load-random.h"
#include "tests/support/load-support.h"
#include "tests/support/random.h"
#include "tests/support/threads.h"

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define LONE ((size_t)32 << 10) /* the least block with a region to itself, here */

/* --- what the kernel says --- */

/* The resident pages among those that have a byte of [address, address + bytes). */
static size_t resident(const void *address, size_t bytes)
{
	static unsigned char there[128 * MIB / PAGE];
	uintptr_t first = (uintptr_t)address & ~(PAGE - 1);
	size_t n = ((uintptr_t)address + bytes - first + PAGE - 1) / PAGE;
	size_t found = 0;
	CHECK(n <= sizeof there && mincore((void *)first, n * PAGE, there) == 0);
	for (size_t i = 0; i < n; i++)
		found += there[i] & 1;
	return found;
}

static hoist_buffer *tensor(hoist_load *load, size_t index)
{
	hoist_buffer *buffer;
	OK(hoist_load_tensor(load, index, NULL, &buffer));
	return buffer;
}

static uint64_t storage_of(const hoist_buffer *buffer)
{
	hoist_buffer_info info = {.size = sizeof info};
	OK(hoist_buffer_get_info(buffer, &info));
	return info.storage_id;
}

/* A resource of which blocks of this size have a region to themselves. */
static hoist_memory *own_regions(size_t bytes)
{
	const hoist_memory_options options = {
		.size = sizeof options, .region_bytes = bytes, .keep_bytes = 1};
	hoist_memory *memory;
	OK(hoist_memory_create(&options, &memory));
	return memory;
}

static uint64_t reserved(hoist_memory *memory)
{
	hoist_memory_statistics s = {.size = sizeof s};
	OK(hoist_memory_get_statistics(memory, &s));
	return s.reserved_bytes;
}

/* --- one tensor of many --- */

/* One tensor of 4 KiB stays of 64 MiB, whether the bytes were read straight to their place or
 * not. */
static void keeps_the_pages_of_one_tensor(void)
{
	static const size_t sizes[] = {32 * MIB, 4096, 32 * MIB};
	const hoist_load_slice halves[] = {{.tensor = "t000000", .begin = MIB, .end = 31 * MIB},
					   {.tensor = "t000002", .begin = MIB, .end = 31 * MIB}};
	const hoist_load_options ways[] = {
		{.size = sizeof ways[0]},
		{.size = sizeof ways[0], .io = HOIST_IO_CACHED},
		{.size = sizeof ways[0], .slices = halves, .n_slices = 2},
	};
	support_write("one.safetensors", 0, 3, sizes, 100);
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		hoist_load *load = support_load("one.safetensors", &ways[i]);
		hoist_buffer *large = tensor(load, 0);
		hoist_buffer *kept = tensor(load, 1);
		const unsigned char *begin = hoist_buffer_data(large);
		unsigned char copy[4096];
		memcpy(copy, hoist_buffer_data(kept), sizeof copy);
		size_t bytes = hoist_buffer_bytes(large);
		size_t rest = (size_t)((unsigned char *)hoist_buffer_data(kept) - begin);
		CHECK(rest >= bytes && resident(begin, 2 * rest) >= 60 * MIB / PAGE);
		hoist_load_destroy(load);
		/* The last tensor, which nobody asked for, is gone; the first is still there. */
		CHECK(resident(begin, bytes) >= bytes / PAGE);
		CHECK(resident(begin + rest + 2 * PAGE, bytes - 2 * PAGE) == 0);
		hoist_buffer_unref(large);
		size_t left = resident(begin, 2 * rest);
		CHECK(left >= 1 && left <= 2);
		CHECK(memcmp(copy, hoist_buffer_data(kept), sizeof copy) == 0);
		hoist_buffer_unref(kept);
	}
}

/* --- any order --- */

enum { N_TENSORS = 60 };

struct tensors {
	hoist_memory *memory;
	size_t sizes[N_TENSORS];
	hoist_buffer *buffers[N_TENSORS];
	unsigned char *copies[N_TENSORS];
};

static void take(struct tensors *t, uint64_t seed)
{
	static const size_t most[] = {50, 6000, 150000};
	size_t bytes = 0;
	for (size_t i = 0; i < N_TENSORS; i++) {
		t->sizes[i] = random_below(&seed, most[random_below(&seed, 3)]);
		bytes += t->sizes[i];
	}
	support_write("many.safetensors", 0, N_TENSORS, t->sizes, (int)random_below(&seed, 4096));
	t->memory = own_regions(bytes);
	const hoist_load_options o = {.size = sizeof o, .memory = t->memory};
	hoist_load *load = support_load("many.safetensors", &o);
	for (size_t i = 0; i < N_TENSORS; i++) {
		t->buffers[i] = tensor(load, i);
		CHECK(hoist_buffer_bytes(t->buffers[i]) == t->sizes[i]);
		t->copies[i] = malloc(t->sizes[i] + 1);
		CHECK(t->copies[i] != NULL);
		if (t->sizes[i] > 0)
			memcpy(t->copies[i], hoist_buffer_data(t->buffers[i]), t->sizes[i]);
	}
	hoist_load_destroy(load);
}

static void compare(const struct tensors *t, size_t i)
{
	if (t->sizes[i] > 0)
		CHECK(memcmp(t->copies[i], hoist_buffer_data(t->buffers[i]), t->sizes[i]) == 0);
}

static void drops_in_any_order(void)
{
	size_t n_drops = 0;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct tensors t;
		uint64_t state = seed;
		uint64_t before;
		check_at("seed %llu", (unsigned long long)seed);
		take(&t, seed);
		before = reserved(t.memory);
		for (size_t n = N_TENSORS; n > 0; n--) {
			size_t i = random_below(&state, N_TENSORS);
			while (t.buffers[i] == NULL)
				i = (i + 1) % N_TENSORS;
			hoist_buffer_unref(t.buffers[i]);
			t.buffers[i] = NULL;
			n_drops++;
			size_t held = 0;
			for (size_t k = 0; k < N_TENSORS; k++)
				if (t.buffers[k] != NULL && t.sizes[k] > 0) {
					compare(&t, k);
					held += t.sizes[k];
				}
			CHECK(reserved(t.memory) <= before && reserved(t.memory) >= held);
			CHECK(reserved(t.memory) <= held + 2 * PAGE * n);
			before = reserved(t.memory);
		}
		CHECK(reserved(t.memory) == 0);
		for (size_t i = 0; i < N_TENSORS; i++)
			free(t.copies[i]);
		hoist_memory_unref(t.memory);
	}
	printf("figure: portions.drops %zu tensors, each dropped beside those that stay\n",
	       n_drops);
	check_at("any order is over");
}

/* --- many threads --- */

static struct tensors shared;

static void *drop_some(void *number)
{
	for (size_t i = (uintptr_t)number; i < N_TENSORS; i += 4) {
		compare(&shared, i);
		hoist_buffer_unref(shared.buffers[i]);
	}
	return NULL;
}

static void drops_from_many_threads(void)
{
	for (uint64_t seed = 100; seed < 105; seed++) {
		take(&shared, seed);
		run_threads(4, drop_some, NULL, 0);
		CHECK(reserved(shared.memory) == 0);
		for (size_t i = 0; i < N_TENSORS; i++)
			free(shared.copies[i]);
		hoist_memory_unref(shared.memory);
	}
}

static hoist_load *common;
static uint64_t ids[4][N_TENSORS];

static void *ask_for_all(void *number)
{
	for (size_t i = 0; i < N_TENSORS; i++) {
		hoist_buffer *buffer = tensor(common, i);
		ids[(uintptr_t)number][i] = hoist_buffer_bytes(buffer) > 0 ? storage_of(buffer) : 0;
		hoist_buffer_unref(buffer);
	}
	return NULL;
}

/* A tensor has one storage, whoever asks for it first, as long as its load lives. */
static void many_threads_get_one_storage(void)
{
	size_t sizes[N_TENSORS];
	hoist_memory *memory = own_regions(2 * LONE);
	const hoist_load_options o = {.size = sizeof o, .memory = memory};
	for (size_t i = 0; i < N_TENSORS; i++)
		sizes[i] = 1000 * (i % 7);
	support_write("many.safetensors", 0, N_TENSORS, sizes, 0);
	for (int round = 0; round < 20; round++) {
		common = support_load("many.safetensors", &o);
		run_threads(4, ask_for_all, NULL, 0);
		for (size_t i = 1; i < N_TENSORS; i++) {
			CHECK(ids[0][i] == 0 || ids[0][i] != ids[0][i - 1]);
			for (size_t k = 1; k < 4; k++)
				CHECK(ids[k][i] == ids[0][i]);
		}
		hoist_load_destroy(common);
		CHECK(reserved(memory) == 0);
	}
	hoist_memory_unref(memory);
}

/* --- storages --- */

static hoist_tensor_info info_of(hoist_checkpoint *checkpoint, size_t index)
{
	hoist_tensor_info info = {.size = sizeof info};
	OK(hoist_checkpoint_tensor(checkpoint, index, &info));
	return info;
}

/* Puts tensors of one class that have bytes in common, also by way of others. */
static void classify(hoist_checkpoint *checkpoint, size_t n, size_t *classes)
{
	bool changed = true;
	for (size_t i = 0; i < n; i++)
		classes[i] = i;
	while (changed) {
		changed = false;
		for (size_t i = 0; i < n; i++)
			for (size_t k = 0; k < i; k++) {
				const hoist_tensor_info a = info_of(checkpoint, i);
				const hoist_tensor_info b = info_of(checkpoint, k);
				if (a.file != b.file || a.offset >= b.offset + b.bytes ||
				    b.offset >= a.offset + a.bytes || classes[i] == classes[k])
					continue;
				size_t least = classes[i] < classes[k] ? classes[i] : classes[k];
				classes[i] = classes[k] = least;
				changed = true;
			}
	}
}

/* Returns: the pairs of tensors of a checkpoint of PyTorch's that share a storage. */
static size_t check_shares(hoist_memory *memory)
{
	const hoist_load_options o = {.size = sizeof o, .memory = memory};
	hoist_buffer *buffers[RANDOM_MOST_TENSORS];
	size_t classes[RANDOM_MOST_TENSORS];
	size_t n_shares = 0;
	const char *path = random_checkpoint_of(0);
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load = support_load(path, &o);
	size_t n = hoist_load_n_tensors(load);
	classify(checkpoint, n, classes);
	for (size_t i = 0; i < n; i++)
		buffers[i] = tensor(load, i);
	for (size_t i = 0; reserved(memory) >= LONE && i < n; i++) {
		hoist_buffer *again = tensor(load, i);
		bool any = hoist_buffer_bytes(again) > 0;
		CHECK(!any || storage_of(again) == storage_of(buffers[i]));
		hoist_buffer_unref(again);
		for (size_t k = 0; k < i; k++) {
			bool shares = storage_of(buffers[i]) == storage_of(buffers[k]);
			CHECK(shares == (any && classes[i] == classes[k]));
			n_shares += shares;
		}
	}
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	for (size_t i = 0; i < n; i++)
		hoist_buffer_unref(buffers[i]);
	CHECK(reserved(memory) == 0);
	return n_shares;
}

static void tensors_that_share_bytes_share_a_storage(void)
{
	hoist_memory *memory = own_regions(2 * LONE);
	size_t n_shares = 0;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		check_at("seed %llu", (unsigned long long)seed);
		random_seed(seed);
		n_shares += check_shares(memory);
	}
	CHECK(n_shares > 20);
	check_at("shared storages are over");
	hoist_memory_unref(memory);
}

/* A view keeps the pages of its tensor; a fork has its own. */
static void views_keep_their_tensor(void)
{
	static const size_t sizes[] = {100000, 4096};
	const hoist_slice some[] = {HOIST_RANGE(50000, 50001)};
	hoist_memory *memory = own_regions(104096);
	const hoist_load_options o = {.size = sizeof o, .memory = memory};
	hoist_buffer_info info = {.size = sizeof info};
	hoist_buffer *view, *fork;
	support_write("small.safetensors", 0, 2, sizes, 0);
	hoist_load *load = support_load("small.safetensors", &o);
	hoist_buffer *large = tensor(load, 0);
	hoist_buffer *kept = tensor(load, 1);
	OK(hoist_buffer_get_info(large, &info));
	CHECK(info.memory == memory && info.offset == 0 && info.storage_bytes == 100000);
	OK(hoist_buffer_slice(large, 1, some, &view));
	OK(hoist_buffer_fork(1, &view, 1, &fork));
	const unsigned char *begin = hoist_buffer_data(large);
	unsigned char byte = begin[50000];
	hoist_load_destroy(load);
	hoist_buffer_unref(large);
	CHECK(resident(begin, 100000) >= 100000 / PAGE && begin[50000] == byte);
	hoist_buffer_unref(view);
	CHECK(resident(begin, 100000) <= 1);
	CHECK(*(unsigned char *)hoist_buffer_data(fork) == byte);
	hoist_buffer_unref(fork);
	hoist_buffer_unref(kept);
	hoist_memory_unref(memory);
}

/* A load whose memory cannot go back in parts has one storage. */
static void other_memory_stays_until_the_last_tensor(void)
{
	static const size_t sizes[] = {300000, 4096};
	const hoist_memory_options options = {
		.size = sizeof options, .kind = HOIST_MEMORY_PINNED, .region_bytes = 400000};
	hoist_memory *pinned;
	OK(hoist_memory_create(&options, &pinned));
	const hoist_load_options ways[] = {{.size = sizeof ways[0]},
					   {.size = sizeof ways[0], .memory = pinned}};
	support_write("small.safetensors", 0, 2, sizes, 0);
	for (size_t i = 0; i < 2; i++) {
		hoist_load *load = support_load("small.safetensors", &ways[i]);
		hoist_buffer *large = tensor(load, 0);
		hoist_buffer *kept = tensor(load, 1);
		const unsigned char *begin = hoist_buffer_data(large);
		hoist_load_destroy(load);
		CHECK(storage_of(large) == storage_of(kept));
		hoist_buffer_unref(large);
		CHECK(resident(begin, 300000) >= 300000 / PAGE);
		hoist_buffer_unref(kept);
	}
	hoist_memory_unref(pinned);
}

/* --- fork --- */

/* A child drops its own pages, and the parent's stay. */
static void a_child_gives_back_its_own_pages(void)
{
	static const size_t sizes[] = {300000, 4096};
	hoist_memory *memory = own_regions(304096);
	const hoist_load_options o = {.size = sizeof o, .memory = memory};
	int status = 0;
	support_write("small.safetensors", 0, 2, sizes, 0);
	hoist_load *load = support_load("small.safetensors", &o);
	hoist_buffer *large = tensor(load, 0);
	hoist_buffer *kept = tensor(load, 1);
	const unsigned char *begin = hoist_buffer_data(large);
	unsigned char first = begin[0] | 1;
	*(unsigned char *)hoist_buffer_data(large) = first;
	hoist_load_destroy(load);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		hoist_buffer_unref(large);
		CHECK(resident(begin, 290000) == 0);
		hoist_buffer_unref(kept);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(resident(begin, 300000) >= 300000 / PAGE && begin[0] == first);
	hoist_buffer_unref(kept);
	hoist_buffer_unref(large);
	hoist_memory_unref(memory);
}

/* --- streams --- */

/* Pages go back behind the work that uses them: here a copy that waits for a gate. */
static void pages_wait_for_a_stream(void)
{
	static const size_t sizes[] = {300000, 4096};
	hoist_memory *memory = own_regions(304096);
	const hoist_load_options o = {.size = sizeof o, .memory = memory};
	hoist_device *cpu = support_device("cpu");
	hoist_stream *stream;
	hoist_buffer *to;
	pthread_t opener;
	struct gate gate;
	gate_init(&gate);
	OK(hoist_stream_create(cpu, &stream));
	OK(hoist_buffer_create(cpu, HOIST_U8, 1, (const int64_t[]){300000}, 0, &to));
	support_write("small.safetensors", 0, 2, sizes, 0);
	hoist_load *load = support_load("small.safetensors", &o);
	hoist_buffer *large = tensor(load, 0);
	hoist_buffer *kept = tensor(load, 1);
	const unsigned char *begin = hoist_buffer_data(large);
	unsigned char *copy = malloc(300000);
	CHECK(copy != NULL);
	memcpy(copy, begin, 300000);
	OK(hoist_stream_call(stream, gate_pass, &gate));
	OK(hoist_buffer_copy_on(to, large, stream));
	hoist_load_destroy(load);
	OK(pthread_create(&opener, NULL, gate_open_after_20_ms, &gate));
	hoist_buffer_unref(large); /* returns when the copy has read the bytes */
	OK(pthread_join(opener, NULL));
	CHECK(resident(begin, 299000) == 0);
	OK(hoist_stream_synchronize(stream));
	CHECK(memcmp(copy, hoist_buffer_data(to), 300000) == 0);
	free(copy);
	hoist_buffer_unref(to);
	hoist_buffer_unref(kept);
	hoist_stream_unref(stream);
	hoist_device_unref(cpu);
	hoist_memory_unref(memory);
}

int main(void)
{
	check_cleanup(support_cleanup);
	CASE(keeps_the_pages_of_one_tensor);
	CASE(drops_in_any_order);
	CASE(drops_from_many_threads);
	CASE(many_threads_get_one_storage);
	CASE(tensors_that_share_bytes_share_a_storage);
	CASE(views_keep_their_tensor);
	CASE(other_memory_stays_until_the_last_tensor);
	CASE(a_child_gives_back_its_own_pages);
	CASE(pages_wait_for_a_stream);
	support_cleanup();
	return 0;
}
