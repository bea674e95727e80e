/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-fill.c - fills a sealed file in memory with a checkpoint: a load and a table.
 * The contract is in lib/cache/cache.h. */
#include "config.h"

#include <string.h>
#include <time.h>

#include "alloc/map.h"
#include "alloc/region.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "lib/cache/cache.h"
#include "lib/load/source.h"

#define STEP_NS (100 * UINT64_C(1000000))

struct filling {
	hoist_checkpoint *checkpoint;
	const hoist_cache_options *options;
	hoist_memory *memory; /* gives the load its one block: in the file, behind the table */
	hoist_load *load;
	struct hoist__memory_file file;
	struct hoist__late_pages pages; /* of the file; set with it */
	struct hoist__image_table table;
	int err;		       /* why there is no file; 0: there is one, or the load has not
					* asked for it */
	struct hoist__failure failure; /* of @err */
	uint64_t table_bytes;
	uint64_t data_offset;
};

/* --- the memory of the load --- */

/* The table is made read-only wherever it is mapped, so it ends at a page boundary of every kind of
 * page. */
static int make_file(struct filling *f, size_t bytes, size_t align)
{
	uint64_t page = f->options->pages == HOIST_PAGES_HUGETLB ? HOIST__HUGE_PAGE_BYTES
								 : hoist__page_bytes();
	if (align > HOIST__HUGE_PAGE_BYTES || f->file.fd >= 0)
		return hoist__fail(-EINVAL, "an image has one block, aligned to 2 MiB at most");
	if (bytes > INT64_MAX / 2)
		return hoist__fail(-ENOMEM, "an image of more than 2^62 bytes");
	f->data_offset = hoist__round_up(f->table_bytes, hoist__max_u64(page, align));
	int err = hoist__memory_file_create((size_t)f->data_offset + bytes, f->options, &f->file);
	f->pages.late = f->file.late;
	f->pages.bytes = bytes;
	f->pages.wants_huge =
		f->file.pages == HOIST_PAGES_SMALL && f->options->pages != HOIST_PAGES_SMALL;
	return err;
}

static int give_block(void *context, size_t bytes, size_t align, hoist_stream *stream,
		      uintptr_t *ret)
{
	struct filling *f = context;
	(void)stream;
	int err = make_file(f, bytes, align);
	if (err == 0)
		*ret = (uintptr_t)f->file.base + f->data_offset;
	else
		hoist__failure_keep(&f->failure);
	f->err = err;
	return err;
}

/* The file belongs to the image, also if the load fails, so nothing is freed here. */
static void take_block(void *context, uintptr_t address, size_t bytes, hoist_stream *stream)
{
	(void)context;
	(void)address;
	(void)bytes;
	(void)stream;
}

static int make_memory(struct filling *f)
{
	const hoist_memory_functions functions = {
		.size = sizeof functions,
		.alloc = give_block,
		.free = take_block,
		.is_host_accessible = 1,
	};
	const hoist_memory_options options = {
		.size = sizeof options,
		.kind = HOIST_MEMORY_CUSTOM,
		.name = "an image of the cache",
		.functions = &functions,
		.functions_context = f,
	};
	return hoist_memory_create(&options, &f->memory);
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
		.memory = f->memory,
	};
	const struct hoist__load_pages pages = {hoist__late_populate, &f->pages};
	int err = hoist__load_start_paged(f->checkpoint, &load, &pages, &f->load);
	if (err < 0)
		return err;
	do {
		if (!go_on(f))
			hoist_load_cancel(f->load);
		err = hoist_load_step(f->load, STEP_NS);
	} while (err == 0);
	if (err > 0)
		err = hoist_load_wait(f->load);
	hoist__late_note(&f->pages, &f->file);
	return err;
}

/* --- the table --- */

/* Notes the place and strides of the @index-th tensor. */
static int note_tensor(struct filling *f, size_t index)
{
	size_t which = 0;
	hoist_buffer *buffer = NULL;
	int err = hoist_load_tensor(f->load, index, &which, &buffer);
	if (err < 0)
		return err;
	struct hoist__image_tensor *tensor = &f->table.tensors[which];
	int64_t *shape = f->table.dims + tensor->dims;
	size_t dims = tensor->rank * sizeof *shape;
	memcpy(shape, hoist_buffer_shape(buffer), dims);
	memcpy(shape + tensor->rank, hoist_buffer_strides(buffer), dims);
	tensor->offset = f->data_offset;
	if (hoist_buffer_elements(buffer) > 0)
		tensor->offset = hoist_buffer_address(buffer) - (uintptr_t)f->file.base;
	hoist_buffer_unref(buffer);
	return 0;
}

static uint64_t now_real(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * HOIST__NS_PER_S + (uint64_t)now.tv_nsec;
}

static int write_table(struct filling *f, const char *path, const struct hoist__image_key *key)
{
	int err = 0;
	hoist__image_table_write(f->checkpoint, key, path, f->file.base, &f->table);
	for (size_t i = 0; err == 0 && i < hoist_load_n_tensors(f->load); i++)
		err = note_tensor(f, i);
	struct hoist__image_header *header = f->table.header;
	header->file_bytes = f->file.bytes;
	header->data_offset = f->data_offset;
	header->pages = (uint32_t)f->file.pages;
	header->node = f->file.node;
	header->open_flags = f->options->open_flags;
	header->added_ns = now_real();
	memcpy(header->note, f->file.note, sizeof header->note);
	return err;
}

static int fill(struct filling *f, const char *path, const struct hoist__image_key *key)
{
	int err = hoist__image_table_measure(f->checkpoint, key, path, &f->table_bytes);
	if (err == 0)
		err = make_memory(f);
	if (err == 0)
		err = run_load(f);
	if (f->err != 0) /* the load has only the number, not the text */
		err = hoist__fail_again(f->err, &f->failure);
	if (err == 0 && f->file.fd < 0) /* the load asked for no bytes */
		err = make_file(f, 0, 1);
	return err < 0 ? err : write_table(f, path, key);
}

int hoist__cache_fill(hoist_checkpoint *checkpoint, const char *path,
		      const struct hoist__image_key *key, const hoist_cache_options *options,
		      struct hoist__memory_file *ret)
{
	struct filling f = {.checkpoint = checkpoint, .options = options, .file = {.fd = -1}};
	int err = fill(&f, path, key);
	hoist_load_destroy(f.load); /* before the file is sealed, as the load must not write any
				     * more */
	hoist_memory_unref(f.memory);
	if (err == 0)
		err = hoist__memory_file_seal(&f.file);
	if (err < 0)
		hoist__memory_file_close(&f.file);
	else
		*ret = f.file;
	return err;
}
