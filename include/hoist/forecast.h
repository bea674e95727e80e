/* SPDX-License-Identifier: MIT */
/* hoist/forecast.h - what a load would read from where, before it is started.
 *
 *     hoist_load_options o = {.size = sizeof o, .device = device};
 *     hoist_forecast f = {.size = sizeof f};
 *     hoist_load_forecast(checkpoint, &o, &f);
 *     if (!f.fits)
 *             choose(other_device);
 *     hoist_forecast_explain(&f, text, sizeof text);   // a line for a log
 *     hoist_load_start(checkpoint, &o, &load);
 *
 * A forecast is made by the code that a load runs until its first read: the same options, the same
 * plan, the same choice of reads.  It reads no byte of a tensor, and takes no memory for tensors or
 * slots.  The report of the load then has the same figures (hoist/load.h), unless something has
 * changed in between: bytes come into the page cache, or leave it; others take bytes of the budget.
 *
 * These things are decided while a load runs, and are in no forecast: whether io_uring or threads
 * read; direct reads that the kernel refuses, and that are finished through the page cache; how a
 * group divides the reads; fewer slots where a control group lacks memory; and, with the page cache
 * filling up meanwhile, the way of the later reads.
 */
#ifndef HOIST_FORECAST_H
#define HOIST_FORECAST_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/checkpoint.h>
#include <hoist/error.h>
#include <hoist/load.h>

HOIST_BEGIN

#define HOIST_FORECAST_TARGETS 16 /* a load has no more */

/* One destination.  Fields are never added to this struct. */
typedef struct hoist_forecast_target {
	char device[32];     /* "cuda:0" */
	int emulated;        /* 1: the device is an emulated one */
	uint64_t n_tensors;
	uint64_t bytes;      /* of memory that the load takes there for tensors: with a window, the
			      * most at one time; 0 for maps and in place.  Allocators round up */
	uint64_t free_bytes; /* of the device's memory, now, with what hoist keeps for reuse, up to
			      * memory_limit (hoist/device.h); of the CPU's: what the machine, or the
			      * control group if less, still gives; UINT64_MAX: unknown */
} hoist_forecast_target;

typedef struct hoist_forecast {
	size_t size;             /* in: sizeof(hoist_forecast) */
	uint64_t bytes;          /* as hoist_load_report.bytes, */
	uint64_t n_tensors;      /* and .n_tensors */
	uint64_t n_files;        /* that are read or mapped */
	uint64_t direct_bytes;   /* to be read with O_DIRECT (alignment included), */
	uint64_t cached_bytes;   /* and through the page cache.  The two exceed the bytes that are
				  * wanted by those that are read along: alignment, and gaps that
				  * cost less than a request */
	uint64_t mapped_bytes;   /* to be mapped */
	uint64_t resident_bytes; /* of the bytes to be read and mapped: in the page cache now; an
				  * estimate where the kernel does not count */
	uint64_t n_reads;
	uint64_t straight_bytes; /* of `bytes`: read straight to their place in host memory, */
	uint64_t staged_bytes;   /* and through slots, from which they are copied to devices, or
				  * moved to their place; the rest is mapped */
	uint64_t converted_bytes; /* of tensors that are converted, as in the files; once for targets
				   * that ask for the same */
	size_t slot_bytes;       /* of one slot; 0: the load needs none */
	size_t n_slots;          /* slot_bytes * n_slots of the budget are used at most */
	size_t budget_bytes;     /* the budget's limit */
	int fits;                /* 1: each device has the bytes free that its targets take */
	int residency;           /* 1: the kernel says what is in the page cache; 0: resident_bytes
				  * is 0 for want of an answer */
	char io_reason[256];     /* why bytes would be read that way */
	size_t n_targets;        /* targets[0 .. n_targets) */
	hoist_forecast_target targets[HOIST_FORECAST_TARGETS]; /* in the order of options.targets, or
								 * the device and its replicas */
} hoist_forecast;

/* Fills @ret up to ret->size with what hoist_load_start() with these options would do.  @options
 * NULL: all tensors to the CPU.  Lazy buffers of options.into take their memory, whose place the
 * reads depend on.  Makes the contexts of devices.  Threads: any.
 * Returns: 0; as hoist_load_start(), but for failures of what is not done here: memory for tensors,
 *   maps, streams that capture a graph; -EDQUOT (the budget is below the least that works); -EINVAL
 *   (ret->size is 0 or larger than this library knows). */
HOIST_API int hoist_load_forecast(hoist_checkpoint *checkpoint, const hoist_load_options *options,
				  hoist_forecast *ret);

/* Writes one line for a log, without a newline: bytes and where they go, whether they fit, the
 * reads and their ways, slots, and why.  Copies at most @bytes to @text, with a NUL; @text may be
 * NULL if @bytes is 0.  Pre: hoist_load_forecast() has filled @forecast, whose size is
 * sizeof *forecast.
 * Returns: the bytes of the whole line, without the NUL, as snprintf(). */
HOIST_API size_t hoist_forecast_explain(const hoist_forecast *forecast, char *text, size_t bytes);

HOIST_END

#endif
