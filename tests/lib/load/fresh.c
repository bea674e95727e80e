/* SPDX-License-Identifier: MIT */
/* Loads to fresh host memory of several blocks, or of several targets: no page is made before bytes
 * come, bytes arrive where they belong, and pages go back block by block.
 *
 * Exit: 0, 1. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/load-support.h"
#include "tests/support/random.h"

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)

enum { N_TENSORS = 40 };

static size_t sizes[N_TENSORS];
static size_t all_bytes;
static unsigned n_starts;

/* Tensors that share a block, that fill one, and that are larger than a huge page. */
static void write_tensors(uint64_t seed)
{
	static const size_t most[] = {50, 20000, 900000, 2200000, 5000000};
	all_bytes = 0;
	for (size_t i = 0; i < N_TENSORS; i++) {
		sizes[i] = random_below(&seed, most[random_below(&seed, 5)]);
		all_bytes += sizes[i];
	}
	/* Above the size from which on memory is left without pages. */
	sizes[7] += 9 * MIB;
	all_bytes += 9 * MIB;
	support_write("many.safetensors", 0, N_TENSORS, sizes, (int)random_below(&seed, 4096));
}

/* Pages of memory that the process has. */
static size_t resident_of_process(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file != NULL && fscanf(file, "%*u %lu", &pages) == 1);
	(void)fclose(file);
	return pages;
}

/* The resident pages in the middle of [address, address + bytes), which others have no byte of; 0,
 * too, where no memory is left. */
static size_t resident_inside(const void *address, size_t bytes)
{
	static unsigned char there[32 * MIB / PAGE];
	uintptr_t first = ((uintptr_t)address + PAGE - 1) & ~(PAGE - 1);
	uintptr_t end = ((uintptr_t)address + bytes) & ~(PAGE - 1);
	size_t found = 0;
	if (first >= end)
		return 0;
	size_t n = (end - first) / PAGE;
	CHECK(n <= sizeof there);
	if (mincore((void *)first, n * PAGE, there) != 0) {
		CHECK(errno == ENOMEM);
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		found += there[i] & 1;
	return found;
}

/* The file's bytes of tensor @index. */
static unsigned char *bytes_of(hoist_checkpoint *checkpoint, size_t index)
{
	hoist_tensor_info info = {.size = sizeof info};
	hoist_file_info file = {.size = sizeof file};
	OK(hoist_checkpoint_tensor(checkpoint, index, &info));
	OK(hoist_checkpoint_file(checkpoint, info.file, &file));
	unsigned char *bytes = malloc((size_t)info.bytes + 1);
	FILE *stream = fopen(file.path, "rb");
	CHECK(bytes != NULL && stream != NULL && fseek(stream, (long)info.offset, SEEK_SET) == 0);
	CHECK(fread(bytes, 1, (size_t)info.bytes, stream) == info.bytes);
	(void)fclose(stream);
	return bytes;
}

static void compare(hoist_buffer *const *buffers, unsigned char *const *bytes)
{
	for (size_t i = 0; i < N_TENSORS; i++)
		if (buffers[i] != NULL && sizes[i] > 0)
			CHECK(memcmp(hoist_buffer_data(buffers[i]), bytes[i], sizes[i]) == 0);
}

/* A tensor of more than 2 MiB has a block of its own.  The huge pages at the block's ends may have
 * been made with its neighbours'. */
static bool is_alone(size_t index)
{
	return sizes[index] > 4 * MIB;
}

static void drop_all(hoist_buffer **buffers, unsigned char *const *bytes, uint64_t *seed)
{
	for (size_t n = N_TENSORS; n > 0; n--) {
		size_t i = random_below(seed, N_TENSORS);
		while (buffers[i] == NULL)
			i = (i + 1) % N_TENSORS;
		const void *address = sizes[i] > 0 ? hoist_buffer_data(buffers[i]) : NULL;
		hoist_buffer_unref(buffers[i]);
		buffers[i] = NULL;
		if (is_alone(i))
			CHECK(resident_inside(address, sizes[i]) == 0);
		compare(buffers, bytes);
	}
}

/* Starts a load that this thread drives.  Before its first step, it has made no pages. */
static hoist_load *start(hoist_checkpoint *checkpoint, const hoist_load_options *o)
{
	hoist_load *load = NULL;
	size_t before = resident_of_process();
	OK(hoist_load_start(checkpoint, o, &load));
	n_starts++;
	CHECK(resident_of_process() - before < all_bytes / PAGE / 2);
	return load;
}

static void take_streamed(hoist_load *load, hoist_buffer **buffers)
{
	hoist_load_item item = {.size = sizeof item};
	int got;
	while ((got = hoist_load_next(load, UINT64_MAX, &item)) == 1) {
		CHECK(item.tensor < N_TENSORS && buffers[item.tensor] == NULL);
		buffers[item.tensor] = item.buffer;
	}
	OK(got);
	OK(hoist_load_wait(load));
}

static void take_split(hoist_load *load, hoist_buffer **buffers)
{
	size_t which = 0;
	OK(hoist_load_wait(load));
	for (size_t i = 0; i < N_TENSORS; i++) {
		OK(hoist_load_tensor(load, i, &which, &buffers[i]));
		CHECK(which == i);
	}
}

static void blocks_get_pages_as_their_bytes_come(void)
{
	static const enum hoist_io ways[] = {HOIST_IO_AUTO, HOIST_IO_CACHED, HOIST_IO_DIRECT};
	for (uint64_t seed = 1; seed <= 12; seed++) {
		uint64_t state = seed;
		hoist_buffer *buffers[N_TENSORS] = {NULL};
		unsigned char *bytes[N_TENSORS];
		bool streams = seed % 2 == 0;
		check_at("seed %llu", (unsigned long long)seed);
		write_tensors(seed);
		hoist_checkpoint *checkpoint = support_open("many.safetensors");
		for (size_t i = 0; i < N_TENSORS; i++)
			bytes[i] = bytes_of(checkpoint, i); /* and all are in the page cache */
		const hoist_load_options o = {
			.size = sizeof o,
			.io = ways[seed % 3],
			.engine = seed % 4 < 2 ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS,
			.flags = HOIST_LOAD_CALLER_DRIVEN |
				 (streams ? HOIST_LOAD_STREAM : HOIST_LOAD_SPLIT)};
		hoist_load *load = start(checkpoint, &o);
		if (streams)
			take_streamed(load, buffers);
		else
			take_split(load, buffers);
		compare(buffers, bytes);
		hoist_load_destroy(load);
		drop_all(buffers, bytes, &state);
		hoist_checkpoint_close(checkpoint);
		for (size_t i = 0; i < N_TENSORS; i++)
			free(bytes[i]);
	}
	check_at("blocks are over");
}

/* Each tensor goes as it comes: the process never has all of them. */
static void a_stream_that_is_dropped_gives_its_pages_back(void)
{
	static const size_t equal[] = {6 * MIB, 6 * MIB, 6 * MIB, 6 * MIB, 6 * MIB, 6 * MIB};
	const hoist_load_options o = {.size = sizeof o,
				      .flags = HOIST_LOAD_CALLER_DRIVEN | HOIST_LOAD_STREAM};
	hoist_load_item item = {.size = sizeof item};
	hoist_load *load = NULL;
	int got;
	support_write("equal.safetensors", 0, 6, equal, 0);
	hoist_checkpoint *checkpoint = support_open("equal.safetensors");
	OK(hoist_load_start(checkpoint, &o, &load));
	for (size_t i = 0; (got = hoist_load_next(load, UINT64_MAX, &item)) == 1; i++) {
		const unsigned char *address = hoist_buffer_data(item.buffer);
		CHECK(resident_inside(address, equal[i]) > 0);
		hoist_buffer_unref(item.buffer);
		CHECK(resident_inside(address, equal[i]) == 0);
	}
	OK(got);
	OK(hoist_load_wait(load));
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

/* --- several targets --- */

enum { RANKS = 3, ROWS = 3000, WIDE = 3000 };

static void targets_get_pages_as_their_bytes_come(void)
{
	const size_t bytes = (size_t)ROWS * WIDE * RANKS;
	hoist_load_slice slices[RANKS];
	hoist_load_target targets[RANKS];
	const hoist_load_target *list[RANKS];
	unsigned char *matrix = malloc(bytes);
	char header[128];
	CHECK(matrix != NULL);
	for (size_t i = 0; i < bytes; i++)
		matrix[i] = (unsigned char)(i * 2654435761u >> 13);
	(void)snprintf(header, sizeof header,
		       "{\"m\":{\"dtype\":\"U8\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}}",
		       ROWS, WIDE * RANKS, bytes);
	support_put_safetensors("wide.safetensors", header, matrix, bytes);
	for (int r = 0; r < RANKS; r++) {
		slices[r] =
			(hoist_load_slice){.tensor = "m", .axis = 1, .rank = r, .n_ranks = RANKS};
		targets[r] = (hoist_load_target){
			.size = sizeof targets[r], .slices = &slices[r], .n_slices = 1};
		list[r] = &targets[r];
	}
	const hoist_load_options o = {.size = sizeof o,
				      .targets = list,
				      .n_targets = RANKS,
				      .flags = HOIST_LOAD_CALLER_DRIVEN};
	hoist_checkpoint *checkpoint = support_open("wide.safetensors");
	all_bytes = bytes;
	hoist_load *load = start(checkpoint, &o);
	OK(hoist_load_wait(load));
	for (size_t rank = 0; rank < RANKS; rank++) {
		hoist_buffer *buffer;
		OK(hoist_load_target_tensor(load, rank, 0, NULL, &buffer));
		const unsigned char *is = hoist_buffer_data(buffer);
		for (size_t row = 0; row < ROWS; row++)
			CHECK(memcmp(is + row * WIDE, matrix + (row * RANKS + rank) * WIDE, WIDE) ==
			      0);
		hoist_buffer_unref(buffer);
	}
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	free(matrix);
}

int main(void)
{
	check_cleanup(support_cleanup);
	CASE(blocks_get_pages_as_their_bytes_come);
	CASE(a_stream_that_is_dropped_gives_its_pages_back);
	CASE(targets_get_pages_as_their_bytes_come);
	printf("figure: fresh.pages %u loads of several blocks or targets\n", n_starts);
	support_cleanup();
	return 0;
}
