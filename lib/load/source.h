/* SPDX-License-Identifier: MIT */
/* lib/load/source.h - bytes of a load that another one reads: lib/group gives a load a source.
 *
 * The load asks the source about each chunk before it reads it.  Some bytes are the load's own to
 * read, as without a source.  The others are foreign: they come to memory of the source's, and a
 * thread of the crew copies them to the place to which they would have been read.  Everything
 * behind that place is as without a source.
 *
 * A chunk of foreign bytes that devices get as they are in the file need not be copied by the crew:
 * if the source's memory is registered with the devices' driver, they copy the chunk from there.
 * The chunk then has a slot as any other, which counts it among the copies, but its bytes are never
 * in the slot; and the chunk lands once the copies have ended.
 *
 *     look    FILE: no byte is foreign.  READY: all foreign bytes of the chunk are there, and stay
 *             there until the chunk has landed.  LATER: the load goes on with other disks, and asks
 *             again once its engine was woken
 *
 * Threads: all functions are called by the thread that drives the load, but `alike` and `copy`,
 * which any thread may call between look and landed.
 */
#ifndef HOIST_LIB_LOAD_SOURCE_H
#define HOIST_LIB_LOAD_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hoist/load.h"

struct hoist__checkpoint_tensor;
struct hoist__chunk;
struct hoist__load_source;

enum hoist__load_source_state { HOIST__SOURCE_FILE, HOIST__SOURCE_READY, HOIST__SOURCE_LATER };

struct hoist__load_source_ops {
	/* Takes the bytes of the budget that the source needs, and in the same turn the @staging
	 * bytes with which the load's staging begins, as job.held.  Called before `begin`.
	 * Returns: 0; 1: to be called again; what failed. */
	int (*reserve)(struct hoist__load_source *source, struct hoist_load *load, size_t staging,
		       uint64_t timeout_ns);
	/* The plan is made, and the sizes of chunks are known; the engine runs.
	 * Returns: 0; 1: to be called again; what failed. */
	int (*begin)(struct hoist__load_source *source, struct hoist_load *load,
		     uint64_t timeout_ns);
	enum hoist__load_source_state (*look)(struct hoist__load_source *source,
					      const struct hoist__chunk *chunk);
	/* How many of the @bytes at @offset of the file, 1 and more, are as the first one: foreign,
	 * or not. */
	size_t (*alike)(struct hoist__load_source *source, size_t file, uint64_t offset,
			size_t bytes, bool *ret_foreign);
	/* Copies foreign bytes, which are alike.  Waits if the bytes were lost again.
	 * Returns: 0; an error: the source has failed. */
	int (*copy)(struct hoist__load_source *source, size_t file, uint64_t offset, size_t bytes,
		    unsigned char *to);
	/* Where the chunk's foreign bytes lie, one behind the other, if the load's devices may copy
	 * them from there until the chunk has landed; NULL: they may not.  Never written through.
	 * May be NULL. */
	unsigned char *(*reach)(struct hoist__load_source *source,
				const struct hoist__chunk *chunk);
	/* The source's memory is not needed for the chunk any more.  Chunks land in any order. */
	void (*landed)(struct hoist__load_source *source, const struct hoist__chunk *chunk);
	/* @whole: all bytes of the load have arrived.  Returns: 1, and the load may end; 0: not
	 * yet; the failure of the source. */
	int (*step)(struct hoist__load_source *source, bool whole);
	/* The tensor's digest is not the expected one: adds to hoist_error(), whose failure is
	 * @err, who read its bytes.  Returns: @err. */
	int (*damaged)(struct hoist__load_source *source,
		       const struct hoist__checkpoint_tensor *tensor, int err);
	/* The load has failed (load->job.failure), and devices may still copy from the source's
	 * memory: tells those that wait for this load's part.  Before `end`, also if begin failed
	 * or was not called.  May be NULL. */
	void (*fail)(struct hoist__load_source *source, struct hoist_load *load);
	/* Nothing is in flight, and the engine still runs.  Adds to the report, and lets all go.
	 * Called once, also if begin failed or was not called. */
	void (*end)(struct hoist__load_source *source, struct hoist_load *load);
	void (*destroy)(struct hoist__load_source *source);
};

struct hoist__load_source {
	const struct hoist__load_source_ops *ops;
};

/* The memory resource of the options gives one block without pages, 2 MiB-aligned if asked.  The
 * load has the pages made ahead of its reads: `populate` is called for each range once, by any
 * thread, until the load has ended.  A load of less than 8 MiB calls it for no range: its reads
 * fault the pages in. */
struct hoist__load_pages {
	/* Returns: 0; -ENOMEM, which fails the load. */
	int (*populate)(void *context, void *address, size_t bytes);
	void *context;
};

/* hoist_load_start() to such memory of the host. */
int hoist__load_start_paged(hoist_checkpoint *checkpoint, const hoist_load_options *options,
			    const struct hoist__load_pages *pages, hoist_load **ret);

/* hoist_load_start() with a source.  The source becomes the load's, also if the call fails. */
int hoist__load_start(hoist_checkpoint *checkpoint, const hoist_load_options *options,
		      struct hoist__load_source *source, hoist_load **ret);

/* Calls @visit for each chunk that the load will read, in order, until a call fails.  Pre: begin.
 * Returns: 0; the failure of @visit. */
int hoist__load_walk(const struct hoist_load *load,
		     int (*visit)(void *context, const struct hoist__chunk *chunk), void *context);

#endif
