/* SPDX-License-Identifier: MIT */
/* Files made cold or hot, and loaded.  The contract is in io-file.h. */
#include "config.h"

#include "bench/io-file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/interrupt.h"
#include "bench/pages.h"
#include "bench/samples.h"
#include "cli/fail.h"
#include "cli/format.h"

#define STEP_NS 100000000

/* --- what is loaded --- */

static int select_names(struct bench_file *file, uint64_t most)
{
	size_t n = hoist_checkpoint_n_tensors(file->checkpoint);
	const char **names = calloc(n > 0 ? n : 1, sizeof *names);
	if (names == NULL)
		return fail_memory();
	free(file->names);
	file->names = names;
	file->n_names = 0;
	file->n_slices = 0;
	file->bytes = 0;
	for (size_t i = 0; i < n && file->bytes < most; i++) {
		hoist_tensor_info info = {.size = sizeof info};
		if (hoist_checkpoint_tensor(file->checkpoint, i, &info) != 0)
			return fail_library();
		bool fits = info.bytes <= most - file->bytes;
		/* The first tensor is taken in any case, in part where it can be sliced. */
		if (info.bytes == 0 || (!fits && file->n_names > 0))
			continue;
		names[file->n_names++] = info.name;
		if (!fits && info.rank > 0 && info.strides == NULL) {
			uint64_t row = info.bytes / (uint64_t)info.shape[0];
			uint64_t rows = row > 0 && row <= most ? most / row : 1;
			file->slice = (hoist_load_slice){.tensor = info.name, .end = (int64_t)rows};
			file->n_slices = 1;
			file->bytes = rows * row;
			break;
		}
		file->bytes += info.bytes;
	}
	return STATUS_OK;
}

int bench_file_select(struct bench_file *file, uint64_t most)
{
	int status = select_names(file, most);
	file->whole = most == UINT64_MAX && file->n_slices == 0;
	if (status == STATUS_OK && file->bytes == 0)
		return fail("there are no bytes to load; name a checkpoint that has some");
	return status;
}

int bench_file_open(const struct bench_request *request, struct bench_file *ret)
{
	*ret = (struct bench_file){.path = request->path, .open_flags = request->open_flags};
	int err = hoist_checkpoint_open(ret->path, ret->open_flags, &ret->checkpoint);
	if (err == -EBADMSG) {
		ret->open_flags |= HOIST_OPEN_RAW;
		err = hoist_checkpoint_open(ret->path, ret->open_flags, &ret->checkpoint);
	}
	return err == 0 ? bench_file_select(ret, UINT64_MAX) : fail_call(err);
}

void bench_file_close(struct bench_file *file)
{
	hoist_checkpoint_close(file->checkpoint);
	free(file->names);
	*file = (struct bench_file){0};
}

/* --- cold and hot --- */

static int read_span(const struct bench_span *span, void *context)
{
	(void)context;
	return pages_read(span->fd, span->offset, span->bytes);
}

static int halve_span(const struct bench_span *span, void *context)
{
	(void)context;
	return pages_halve(span->fd, span->offset, span->bytes);
}

static int drop_span(const struct bench_span *span, void *context)
{
	(void)context;
	return pages_drop(span->fd);
}

/* Adds to *@context the bytes of @span that lie in the page cache. */
static int count_span(const struct bench_span *span, void *context)
{
	return pages_count(span->fd, span->offset, span->bytes, context);
}

/* The bytes of the @index-th name in its file. */
static int find_span(const struct bench_file *file, size_t index, size_t *ret_file,
		     struct bench_span *ret)
{
	size_t tensor = 0;
	hoist_tensor_info info = {.size = sizeof info};
	if (hoist_checkpoint_find(file->checkpoint, file->names[index], &tensor) != 0 ||
	    hoist_checkpoint_tensor(file->checkpoint, tensor, &info) != 0)
		return fail_library();
	*ret_file = info.file;
	ret->offset = info.offset;
	ret->bytes = file->n_slices > 0 ? file->bytes : info.bytes;
	return STATUS_OK;
}

/* Tensors come in the order of their bytes. */
int bench_file_each(const struct bench_file *file, bench_span_work *work, void *context)
{
	int status = STATUS_OK;
	for (size_t i = 0; i < file->n_names && status == STATUS_OK;) {
		struct bench_span span = {.fd = -1};
		size_t of = 0;
		status = find_span(file, i, &of, &span);
		uint64_t end = span.offset + span.bytes;
		while (status == STATUS_OK && ++i < file->n_names) {
			struct bench_span next = {.fd = -1};
			size_t next_of = 0;
			status = find_span(file, i, &next_of, &next);
			if (next_of != of)
				break;
			end = next.offset + next.bytes > end ? next.offset + next.bytes : end;
		}
		span.bytes = end - span.offset;
		hoist_file_info info = {.size = sizeof info};
		if (status != STATUS_OK)
			break;
		if (hoist_checkpoint_file(file->checkpoint, of, &info) != 0)
			return fail_library();
		span.fd = open(info.path, O_RDONLY | O_CLOEXEC);
		if (span.fd < 0)
			return fail("%s: %s", info.path, strerror(errno));
		status = work(&span, context);
		(void)close(span.fd);
	}
	return status;
}

static int make_hot(struct bench_file *file)
{
	uint64_t before = 0;
	int status = bench_file_each(file, count_span, &before);
	return status != STATUS_OK || before >= file->bytes
		       ? status
		       : bench_file_each(file, read_span, NULL);
}

static int make_cold(struct bench_file *file)
{
	uint64_t before = 0;
	uint64_t after = 0;
	int status = bench_file_each(file, count_span, &before);
	if (status != STATUS_OK)
		return status;
	if (before == 0)
		return STATUS_OK;
	status = bench_file_each(file, drop_span, NULL);
	if (status == STATUS_OK)
		status = bench_file_each(file, count_span, &after);
	if (after > before)
		after = before;
	if (before - after > file->dropped)
		file->dropped = before - after;
	file->never_cold = after > file->bytes / 50;
	return status;
}

int bench_file_prepare(struct bench_file *file, const struct bench_way *way)
{
	int status = way->hot ? make_hot(file) : make_cold(file);
	return status == STATUS_OK && way->half ? bench_file_each(file, halve_span, NULL) : status;
}

/* --- one load --- */

/* Does some of the work.  True: the load has ended. */
static bool step(hoist_load *load, bool streams)
{
	if (!streams)
		return hoist_load_step(load, STEP_NS) != 0;
	hoist_load_item item = {.size = sizeof item};
	int got = hoist_load_next(load, STEP_NS, &item);
	hoist_buffer_unref(item.buffer);
	return got != 1 && got != -ETIMEDOUT;
}

static int drive(hoist_load *load, bool streams)
{
	while (!step(load, streams)) {
		if (interrupted())
			hoist_load_cancel(load);
	}
	int err = hoist_load_wait(load);
	if (err == 0)
		return STATUS_OK;
	return interrupted() ? fail("stopped by a signal") : fail_call(err);
}

/* Reads every byte, in as little time as that takes. */
static void touch_bytes(const char *bytes, size_t n)
{
	uint64_t sum = 0;
	for (size_t i = 0; i + sizeof sum <= n; i += sizeof sum) {
		uint64_t word;
		memcpy(&word, bytes + i, sizeof word);
		sum += word;
	}
	for (size_t i = n - n % sizeof sum; i < n; i++)
		sum += (unsigned char)bytes[i];
	__asm__ volatile("" : : "r"(sum)); /* the sum is used */
}

static int touch_all(hoist_load *load)
{
	for (size_t i = 0; i < hoist_load_n_tensors(load); i++) {
		hoist_buffer *buffer = NULL;
		if (hoist_load_tensor(load, i, &(size_t){0}, &buffer) != 0)
			return fail_library();
		touch_bytes(hoist_buffer_data(buffer), hoist_buffer_bytes(buffer));
		hoist_buffer_unref(buffer);
	}
	return STATUS_OK;
}

static int touch_span(const struct bench_span *span, void *context)
{
	size_t before = (size_t)(span->offset % (uint64_t)sysconf(_SC_PAGESIZE));
	size_t bytes = before + (size_t)span->bytes;
	(void)context;
	char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, span->fd,
			 (off_t)(span->offset - before));
	if (map == MAP_FAILED)
		return fail("a map: %s", strerror(errno));
	touch_bytes(map + before, (size_t)span->bytes);
	(void)munmap(map, bytes);
	return STATUS_OK;
}

int bench_file_touch(struct bench_file *file, double *seconds)
{
	int status = bench_file_prepare(file, &(struct bench_way){.hot = true});
	double begin = clock_seconds();
	if (status == STATUS_OK)
		status = bench_file_each(file, touch_span, NULL);
	*seconds = clock_seconds() - begin;
	return status;
}

/* One load, from its start to its end.  *ret: the load, also after a failure; or NULL. */
static int run(struct bench_file *file, const hoist_load_options *options,
	       const struct bench_way *way, double *seconds, hoist_load **ret)
{
	double begin = clock_seconds();
	int err = hoist_load_start(file->checkpoint, options, ret);
	if (err != 0)
		return fail_call(err);
	int status = drive(*ret, (options->flags & HOIST_LOAD_STREAM) != 0);
	if (status == STATUS_OK && way->touch)
		status = touch_all(*ret);
	*seconds = clock_seconds() - begin;
	return status;
}

/* The buffers that a load in place reads into, with the names that the checkpoint has. */
struct buffers {
	hoist_load_into *into;
	size_t n;
};

static void drop_buffers(struct buffers *buffers)
{
	for (size_t i = 0; i < buffers->n; i++)
		hoist_buffer_unref(buffers->into[i].buffer);
	free(buffers->into);
}

/* Loads as @options say, and keeps the buffers alone. */
static int make_buffers(struct bench_file *file, const hoist_load_options *options,
			const struct bench_way *way, struct buffers *ret)
{
	double seconds = 0;
	hoist_load *load = NULL;
	int status = run(file, options, way, &seconds, &load);
	size_t n = status == STATUS_OK ? hoist_load_n_tensors(load) : 0;
	ret->into = calloc(n + 1, sizeof *ret->into);
	if (ret->into == NULL)
		status = fail_memory();
	for (size_t i = 0; i < n && status == STATUS_OK; i++) {
		size_t which = 0;
		hoist_tensor_info info = {.size = sizeof info};
		if (hoist_load_tensor(load, i, &which, &ret->into[i].buffer) != 0)
			status = fail_library();
		else if (++ret->n, hoist_checkpoint_tensor(file->checkpoint, which, &info) != 0)
			status = fail_library();
		ret->into[i].tensor = info.name;
	}
	hoist_load_destroy(load);
	return status;
}

int bench_file_load(struct bench_file *file, hoist_device *device, hoist_budget *budget,
		    const struct bench_way *way, double *seconds, hoist_load_report *report)
{
	void *touched = NULL;
	const size_t touched_bytes = pages_to_touch(file->bytes);
	hoist_load *load = NULL;
	struct buffers buffers = {0};
	const bool streams = way->streams || way->window_bytes > 0;
	const bool own = way->n_targets == 0;
	hoist_load_options options = {
		.size = sizeof options,
		.device = own ? device : NULL,
		.engine = way->engine,
		.io = way->io,
		.budget = budget,
		.memory = way->memory,
		.tensors = own && !file->whole ? file->names : NULL,
		.n_tensors = own && !file->whole ? file->n_names : 0,
		.flags = way->flags | HOIST_LOAD_CALLER_DRIVEN | (streams ? HOIST_LOAD_STREAM : 0),
		.slices = own && file->n_slices > 0 ? &file->slice : NULL,
		.n_slices = own ? file->n_slices : 0,
		.chunk_bytes = way->chunk_bytes,
		.depth = way->depth,
		.window_bytes = way->window_bytes,
		.targets = way->targets,
		.n_targets = way->n_targets,
	};
	int status = way->in_place ? make_buffers(file, &options, way, &buffers) : STATUS_OK;
	if (way->in_place) {
		options.device = NULL;
		options.tensors = NULL;
		options.n_tensors = 0;
		options.into = buffers.into;
		options.n_into = buffers.n;
	}
	if (status == STATUS_OK)
		status = bench_file_prepare(file, way);
	/* Memory is touched after that: else the file's pages would take that memory. */
	if (status == STATUS_OK && !way->in_place && way->memory == NULL)
		status = pages_touch(touched_bytes, &touched);
	if (touched != NULL)
		(void)munmap(touched, touched_bytes);
	if (status == STATUS_OK)
		status = run(file, &options, way, seconds, &load);
	*report = (hoist_load_report){.size = sizeof *report};
	if (status == STATUS_OK && hoist_load_get_report(load, report) != 0)
		status = fail_library();
	hoist_load_destroy(load);
	drop_buffers(&buffers);
	return status;
}

int bench_file_try(const struct bench_file *file, hoist_device *device, enum hoist_engine engine)
{
	hoist_load *load = NULL;
	const hoist_load_options options = {.size = sizeof options,
					    .device = device,
					    .engine = engine,
					    .tensors = file->names,
					    .n_tensors = 1,
					    .slices = file->n_slices > 0 ? &file->slice : NULL,
					    .n_slices = file->n_slices};
	int err = hoist_load_start(file->checkpoint, &options, &load);
	if (err == 0)
		err = hoist_load_wait(load);
	hoist_load_destroy(load);
	return err;
}

void bench_file_add(struct results *results, const struct bench_run *run)
{
	double gib = (double)run->bytes / (double)((uint64_t)1 << 30);
	struct result_row row = {.work = run->work,
				 .subject = run->subject,
				 .unit = "GB/s",
				 .threads = 1,
				 .emulated = run->emulated,
				 .compared = run->compared,
				 .more = true};
	results_add(results, &row, rate_of(run->bytes, run->seconds) / 1e9);
	row.unit = "CPU s/GiB";
	row.more = false;
	results_add(results, &row, (double)run->cpu_ns / 1e9 / gib);
}

int bench_add_buffers(hoist_save *save, hoist_checkpoint *checkpoint, hoist_load *load)
{
	int err = 0;
	for (size_t i = 0; i < hoist_load_n_tensors(load) && err == 0; i++) {
		size_t which = 0;
		hoist_buffer *buffer = NULL;
		hoist_tensor_info info = {.size = sizeof info};
		err = hoist_load_tensor(load, i, &which, &buffer);
		if (err == 0)
			err = hoist_checkpoint_tensor(checkpoint, which, &info);
		if (err == 0)
			err = hoist_save_add(save, info.name, buffer);
		hoist_buffer_unref(buffer);
	}
	return err;
}
