/* SPDX-License-Identifier: MIT */
/* lib/cache-fill.c - a checkpoint into a sealed file in memory: an ordinary load, and a table. */
#include "config.h"

#include <string.h>
#include <time.h>

#include "alloc/map.h"
#include "alloc/region.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "hoist/copy.h"
#include "lib/cache.h"

#define STEP_NS (100 * UINT64_C(1000000))

/* Where a tensor's bytes begin: large ones at a page of their own. */
#define SMALL_ALIGN 256
#define LARGE_ALIGN 4096
#define LARGE_BYTES ((size_t)64 << 10)

struct filling {
	hoist_checkpoint *checkpoint;
	const hoist_cache_options *options;
	hoist_load *load;
	struct hoist__memory_file file;
	struct hoist__image_table table;
	uint64_t data_offset;
};

static uint64_t place(uint64_t *end, size_t bytes)
{
	uint64_t at = hoist__round_up(*end, bytes >= LARGE_BYTES ? LARGE_ALIGN : SMALL_ALIGN);
	*end = at + bytes;
	return at;
}

/* --- the load --- */

static bool go_on(const struct filling *f)
{
	uint64_t done = 0;
	uint64_t total = 0;
	const hoist_cache_options *o = f->options;
	hoist_load_progress(f->load, &done, &total);
	return o->progress == NULL || o->progress(o->progress_context, done, total) == 0;
}

static int run_load(struct filling *f)
{
	const hoist_load_options load = {
		.size = sizeof load,
		.engine = f->options->engine,
		.io = f->options->io,
		.budget = f->options->budget,
		.flags = HOIST_LOAD_CALLER_DRIVEN,
	};
	int err = hoist_load_start(f->checkpoint, &load, &f->load);
	if (err < 0)
		return err;
	do {
		if (!go_on(f))
			hoist_load_cancel(f->load);
		err = hoist_load_step(f->load, STEP_NS);
	} while (err == 0);
	return err < 0 ? err : hoist_load_wait(f->load);
}

/* --- into the file --- */

static int copy_tensor(struct filling *f, size_t index, uint64_t *end)
{
	hoist_buffer *buffer = NULL;
	int err = hoist_load_tensor(f->load, index, NULL, &buffer);
	if (err < 0)
		return err;
	struct hoist__image_tensor *tensor = &f->table.tensors[index];
	int64_t *shape = f->table.dims + tensor->dims;
	size_t bytes = hoist_buffer_bytes(buffer);
	size_t dims = tensor->rank * sizeof *shape;
	memcpy(shape, hoist_buffer_shape(buffer), dims);
	memcpy(shape + tensor->rank, hoist_buffer_strides(buffer), dims);
	tensor->offset = place(end, bytes);
	if (bytes > 0)
		err = hoist_buffer_read(buffer, 0, f->file.base + tensor->offset, bytes);
	hoist_buffer_unref(buffer);
	return err;
}

static int measure(const struct filling *f, uint64_t *ret)
{
	uint64_t end = f->data_offset;
	for (size_t t = 0; t < hoist_checkpoint_n_tensors(f->checkpoint); t++) {
		hoist_tensor_info info = {.size = sizeof info};
		int err = hoist_checkpoint_tensor(f->checkpoint, t, &info);
		if (err < 0)
			return err;
		if (info.bytes > INT64_MAX / 2 - end)
			return hoist__fail(-ENOMEM, "an image of more than 2^62 bytes");
		(void)place(&end, (size_t)info.bytes);
	}
	*ret = end;
	return 0;
}

static uint64_t now_real(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * HOIST__NS_PER_S + (uint64_t)now.tv_nsec;
}

static int fill(struct filling *f, const char *path, const struct hoist__image_key *key)
{
	uint64_t end;
	uint64_t table_bytes = 0;
	int err = hoist__image_table_measure(f->checkpoint, key, path, &table_bytes);
	if (err < 0)
		return err;
	/* The table is read-only wherever it is mapped: it ends where a page of any kind does. */
	f->data_offset = hoist__round_up(table_bytes, f->options->pages == HOIST_PAGES_HUGETLB
							      ? HOIST__HUGE_PAGE_BYTES
							      : hoist__page_bytes());
	end = f->data_offset;
	err = run_load(f);
	if (err == 0)
		err = measure(f, &end);
	if (err == 0)
		err = hoist__memory_file_create((size_t)end, f->options, &f->file);
	if (err < 0)
		return err;
	hoist__image_table_write(f->checkpoint, key, path, f->file.base, &f->table);
	end = f->data_offset;
	for (size_t t = 0; err == 0 && t < f->table.header->n_tensors; t++)
		err = copy_tensor(f, t, &end);
	struct hoist__image_header *header = f->table.header;
	header->file_bytes = f->file.bytes;
	header->data_offset = f->data_offset;
	header->pages = (uint32_t)f->file.pages;
	header->node = f->file.node;
	header->added_ns = now_real();
	memcpy(header->note, f->file.note, sizeof header->note);
	return err < 0 ? err : hoist__memory_file_seal(&f->file);
}

int hoist__cache_fill(hoist_checkpoint *checkpoint, const char *path,
		      const struct hoist__image_key *key, const hoist_cache_options *options,
		      struct hoist__memory_file *ret)
{
	struct filling f = {.checkpoint = checkpoint, .options = options, .file = {.fd = -1}};
	int err = fill(&f, path, key);
	hoist_load_destroy(f.load);
	if (err < 0)
		hoist__memory_file_close(&f.file);
	else
		*ret = f.file;
	return err;
}
