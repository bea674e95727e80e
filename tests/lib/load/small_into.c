/* SPDX-License-Identifier: MIT */
/* Very many small tensors into buffers of the caller's on a device: tensors that lie beside each
 * other, or at equal distances, in one allocation are few copies.  Bytes between them stay. */
#include "config.h"

#include <string.h>

#include "tests/support/format-bytes.h"
#include "tests/support/load-support.h"

#define N_TENSORS ((size_t)20000)
#define PATTERN 0xab

enum { ONE_BUFFER, BLOCKS, DRIVER_POOL };

struct way {
	const char *name;
	const char *file;
	int memory;
	size_t apart;  /* from tensor to tensor in the memory; 0: they touch */
	size_t copies; /* for each slot, at most; 0: one for each tensor */
};

static hoist_device *device;
static hoist_memory *driver_pool;
static hoist_load_into into[N_TENSORS];
static hoist_buffer *whole;   /* the memory; NULL: each tensor has a block of its own */
static unsigned char *should; /* its bytes after the load */
static size_t bytes;

static hoist_tensor_info info_of(hoist_checkpoint *checkpoint, size_t t)
{
	hoist_tensor_info info = {.size = sizeof info};
	OK(hoist_checkpoint_tensor(checkpoint, t, &info));
	return info;
}

static void write_files(void)
{
	static size_t sizes[N_TENSORS];
	for (size_t i = 0; i < N_TENSORS; i++)
		sizes[i] = 64;
	support_write("equal.safetensors", 0, N_TENSORS, sizes, -1);
	for (size_t i = 0; i < N_TENSORS; i++)
		sizes[i] = 1 + i % 199;
	support_write("other.safetensors", 0, N_TENSORS, sizes, -1);
}

static void take_memory(size_t n)
{
	const int64_t shape = (int64_t)n;
	bytes = n;
	should = malloc(n);
	CHECK(should != NULL);
	memset(should, PATTERN, n);
	OK(hoist_buffer_create(device, HOIST_U8, 1, &shape, 0, &whole));
	OK(hoist_buffer_copy_in(whole, should, n));
}

static void take_buffer(const struct way *way, const hoist_tensor_info *info, size_t at,
			hoist_buffer **ret)
{
	if (way->memory == BLOCKS)
		OK(hoist_buffer_create(device, HOIST_U8, 1, info->shape, 0, ret));
	else if (way->memory == DRIVER_POOL)
		OK(hoist_buffer_create_from(driver_pool, NULL, HOIST_U8, 1, info->shape, 0, ret));
	else
		OK(hoist_buffer_view(whole, at, HOIST_U8, 1, info->shape, ret));
}

static void take_buffers(const struct way *way, hoist_checkpoint *checkpoint)
{
	struct bytes file = {0};
	size_t at = 0;
	CHECK(bytes_load(&file, support_path(way->file)));
	if (way->memory == ONE_BUFFER)
		take_memory(N_TENSORS * (way->apart > 0 ? way->apart : 200));
	for (size_t t = 0; t < N_TENSORS; t++) {
		const hoist_tensor_info info = info_of(checkpoint, t);
		into[t].tensor = info.name;
		take_buffer(way, &info, at, &into[t].buffer);
		if (whole != NULL)
			memcpy(should + at, file.p + info.offset, info.bytes);
		at += way->apart > 0 ? way->apart : info.bytes;
	}
	bytes_free(&file);
}

static void give_buffers_back(void)
{
	for (size_t t = 0; t < N_TENSORS; t++)
		hoist_buffer_unref(into[t].buffer);
	hoist_buffer_unref(whole);
	whole = NULL;
	free(should);
	should = NULL;
}

static void check_memory(void)
{
	unsigned char *is = malloc(bytes);
	CHECK(is != NULL);
	OK(hoist_buffer_copy_out(whole, is, bytes));
	CHECK(memcmp(is, should, bytes) == 0);
	free(is);
}

static void load_and_check(const struct way *way)
{
	hoist_checkpoint *checkpoint = support_open(way->file);
	hoist_load *load = NULL;
	take_buffers(way, checkpoint);
	const hoist_load_options o = {.size = sizeof o, .into = into, .n_into = N_TENSORS};
	OK(hoist_load_start(checkpoint, &o, &load));
	OK(hoist_load_wait(load));
	const hoist_load_report report = support_report(load);
	printf("%s: %llu copies, %llu reads\n", way->name, (unsigned long long)report.n_copies,
	       (unsigned long long)report.n_reads);
	if (way->copies == 0)
		CHECK(report.n_copies >= N_TENSORS);
	else
		CHECK(report.n_copies <= way->copies * report.n_reads);
	support_compare(checkpoint, load);
	if (whole != NULL)
		check_memory();
	hoist_load_destroy(load);
	give_buffers_back();
	hoist_checkpoint_close(checkpoint);
}

int main(void)
{
	static const struct way ways[] = {
		{.name = "side by side", .file = "equal.safetensors", .copies = 1},
		{.name = "of many sizes", .file = "other.safetensors", .copies = 1},
		{.name = "apart", .file = "equal.safetensors", .apart = 256, .copies = 1},
		{.name = "apart, of many sizes", .file = "other.safetensors", .apart = 256},
		{.name = "blocks", .file = "equal.safetensors", .memory = BLOCKS, .copies = 16},
		/* Each may be an allocation of its own. */
		{.name = "driver's", .file = "equal.safetensors", .memory = DRIVER_POOL},
	};
	support_emulate("cuda:1");
	device = support_device("cuda:0");
	const hoist_memory_options options = {
		.size = sizeof options, .kind = HOIST_MEMORY_DRIVER_POOL, .device = device};
	OK(hoist_memory_create(&options, &driver_pool));
	write_files();
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
		load_and_check(&ways[i]);
	support_check_copies("cuda");
	hoist_memory_unref(driver_pool);
	hoist_device_unref(device);
	support_cleanup();
	return 0;
}
