/* SPDX-License-Identifier: MIT */
/* bench/io-file.h - files that are loaded again and again, cold and hot, as `hoist bench io`
 * and `hoist bench load` need it.
 *
 * Cold is made by dropping the files from the page cache, hot by reading the part that is loaded;
 * both are checked with mincore().  The cache does not get its former content back: the
 * results say how much was dropped.
 *
 * The destination of each load is memory that was in use just before (as much is touched and given
 * back): a virtual machine whose host takes idle memory back pays many times over for the first
 * touch of it, and that is no figure of any load.
 */
#ifndef HOIST_BENCH_IO_FILE_H
#define HOIST_BENCH_IO_FILE_H

#include <hoist/hoist.h>

#include "bench/results.h"
#include "bench/request.h"

/* One way to load. */
struct bench_way {
	enum hoist_engine engine;
	enum hoist_io io;
	bool hot;
	bool half;	    /* not hot, but of every 32 MiB the first 16 */
	bool touch;	    /* reads every byte of the tensors before the clock stops */
	unsigned flags;	    /* HOIST_LOAD_..., added to those that the load needs */
	size_t chunk_bytes; /* 0: the library's choice; likewise */
	unsigned depth;
	bool in_place;	      /* into the buffers of a load that comes first and is not measured */
	bool streams;	      /* tensors are taken one by one, and dropped */
	size_t window_bytes;  /* above 0: through such a window, which also streams */
	hoist_memory *memory; /* that the destination is taken from; NULL: fresh memory */
	const hoist_load_target *const *targets; /* in place of the device and what is selected */
	size_t n_targets;
};

struct bench_file {
	const char *path;
	unsigned open_flags; /* that @path was opened with */
	hoist_checkpoint *checkpoint;
	const char **names; /* of the tensors that are loaded; they belong to the checkpoint */
	size_t n_names;
	hoist_load_slice slice; /* of the only one, if it is larger than what is to be loaded */
	size_t n_slices;
	bool whole;	  /* these are all */
	uint64_t bytes;	  /* of all these */
	uint64_t dropped; /* most that was in the page cache when it was made cold */
	bool never_cold;  /* it stays in the page cache, whatever is done */
};

/* Opens what lies at @path: a checkpoint, or any other file as one tensor of its bytes.  All of it
 * is selected.  Returns a STATUS_*; bench_file_close() is owed in any case. */
int bench_file_open(const struct bench_request *request, struct bench_file *ret);
void bench_file_close(struct bench_file *file);

/* Selects the first tensors, about @most bytes in all.  Returns a STATUS_*. */
int bench_file_select(struct bench_file *file, uint64_t most);

/* The part of one file that is loaded. */
struct bench_span {
	int fd;
	uint64_t offset;
	uint64_t bytes;
};
typedef int bench_span_work(const struct bench_span *span, void *context); /* a STATUS_* */

/* Calls @work for each of the files, until one fails.  Returns a STATUS_*. */
int bench_file_each(const struct bench_file *file, bench_span_work *work, void *context);

/* Makes the files hot, cold or half-cached.  Returns a STATUS_*. */
int bench_file_prepare(struct bench_file *file, const struct bench_way *way);

/* Maps the hot files, as safetensors does, and reads every byte.  Returns a STATUS_*. */
int bench_file_touch(struct bench_file *file, double *seconds);

/* One load of it; *seconds is from its start to its end, or until every byte was touched.
 * Everything is freed again. Returns a STATUS_*. */
int bench_file_load(struct bench_file *file, hoist_device *device, hoist_budget *budget,
		    const struct bench_way *way, double *seconds, hoist_load_report *report);

/* Loads the first of it by @engine.  Returns: 0; what the library says, where it cannot. */
int bench_file_try(const struct bench_file *file, hoist_device *device, enum hoist_engine engine);

/* Adds the rows of one run over @bytes: GB/s and CPU s/GiB. */
struct bench_run {
	const char *work;
	const char *subject;
	bool compared;
	bool emulated;
	uint64_t bytes;
	double seconds;
	uint64_t cpu_ns;
};
void bench_file_add(struct results *results, const struct bench_run *run);

/* Adds every buffer of @load, which loads from @checkpoint, to @save.  Returns: 0; what the
 * library says. */
int bench_add_buffers(hoist_save *save, hoist_checkpoint *checkpoint, hoist_load *load);

#endif
