/* SPDX-License-Identifier: MIT */
/* lib/save/save.h - a save's state, and the files that work on it.
 *
 *   save.c          the object: options, adding, starting, waiting
 *   save-format.c   chooses the format that is written
 *   save-metadata.c strings beside the tensors
 *   save-tensor.c   adds tensors of checkpoints: as they are, converted, or parts of them
 *   save-sources.c  sources -> tensors as the format writes them
 *   save-batch.c    plans the loads that bring tensors which are not saved as they lie in their
 * files save-plan.c     tensors -> files: formats, shards, headers, the place of every tensor
 *   save-place.c    cuts files into blocks, and finds the bytes that need no slot
 *   save-begin.c    the means of the loop: slots, blocks, the engine; the report
 *   save-pump.c     the loop: blocks are begun, filled, sealed, written
 *   save-complete.c the ends of the blocks' requests
 *   save-fill.c     fills one block with bytes from their sources
 *   save-feed.c     runs these loads, and copies from their buffers into blocks
 *   save-gather.c   gathers bytes of a tensor that do not lie in the file's order
 *   save-seal.c     the work in the order of the file: digests
 *   save-publish.c  the end: synchronises, renames, removes stale files
 *
 * The bytes of a file (header, tensors, zeros between them) are cut into blocks.  Each block is one
 * write.  Each begins at a multiple of GRID, and all but the last of a file end at one, so that
 * writes are direct; the last is padded.
 *
 * Host tensors that follow each other in memory as in the file are a run.  The blocks within a run
 * are written from the tensors' own memory (straight) if the run is long, and if memory and file
 * are aligned to each other.  Such a block has no slot.  The bytes around go through slots: header,
 * ends of runs, all other tensors:
 *
 *     tensors     [   a   ][     b      ][ c ][ d ]|      e      |
 *     memory       contiguous: a run      on devices, or small
 *     GRID     |    .    .    .    .    .    .    .    .    .    |
 *     blocks   |slot|  straight    | slot                        |
 *
 * The tensors of a safetensors file begin at a multiple of a page, whatever their addresses: equal
 * tensors make equal files.  So tensors that were loaded from another writer's file, whose first
 * one rarely begins at the alignment of direct writes, go through slots.  A header padded for their
 * addresses would spare the copy, three quarters of 0.36 s of CPU time a GiB (bench/RESULTS.md,
 * "Saves"), and make files differ that have the same content.
 *
 * A block in a slot has the slot's state (io/staging.h):
 *
 *     slot       the block                                            ends
 *     READING    is being filled; or a file is read into the slot     in any order
 *     FETCHING   is being written by devices                          in the order of each device
 *     FULL       waits until the blocks before are sealed; is         in the order of the file
 *                sealed; is written by the engine                     in the disk's order
 *     FREE       is written
 *
 * A straight block is FULL from its beginning.  `window` holds the blocks that are not sealed:
 * numbers [n_sealed, n_begun).
 *
 * A block in a slot is filled from its first byte to its last.  The source of a tensor decides the
 * way:
 *
 *   HOST    row-major memory of the CPU: copied
 *   DEVICE  row-major memory of a device: noted, and fetched at the end, with one set of copies for
 *           each device
 *   MOVED   all other memory (strides; devices that the slots are not pinned for): gathered at once
 *           by the copies of lib/copy/copy.h, while other blocks are read and written
 *   FILE    of a checkpoint: read by the engine into the block's own slot, at or above its place,
 *           and moved down:
 *
 *     the slot    [ filled ]  [a  b     c  |pad]         a read of a, b and c, aligned in the file
 *                 [ filled ][a][b][c]                    and in memory
 *
 *           One read takes the tensors that lie near each other in the source file, in the same
 *           order (the whole block if tensors keep their order).  The read is direct if it is large
 *           and not in the page cache.  Moving down in ascending order overwrites no byte that is
 *           still needed as long as every part is read above its place.  Slots are larger than
 *           blocks to give the reads that room (`slack`).  A copy within a slot costs a tenth of
 *           the disk's time.  Source and destination are rarely aligned to each other; then no byte
 *           moves, and the case is not treated otherwise.
 *
 *   LOAD    of a checkpoint, and converted, sliced, or with strides in the file: comes by a load of
 *           the save's own, and is copied from the load's buffers by the crew (lib/save/feed.h),
 *           which also dequantises
 *
 * A read is a barrier in its block, so that later bytes of the block overwrite the read's surplus
 * bytes.  As many blocks as there are slots are filled at once, which keeps the disk busy.
 *
 * The crew: the pump's thread fills a block only as far as that is quick (HEAVY_BYTES), and then
 * has a thread of the engine's go on (the request's `work`).  So several blocks are filled at once
 * while the pump keeps disk and devices busy.  Such a thread owns its block until the request is
 * back, and touches nothing else of the save but what is constant, and `packed` under its lock.
 * Digests are made by the same threads, one block at a time, in the order of the file.
 *
 * Slots: two at first, two more whenever the disk could take another write and no slot is free.
 * Host tensors are copied into slots past the processor's cache, unless a digest reads the slot.
 *
 * Fetches from devices, reads of files and writes of blocks run in parallel.  Blocks are sealed,
 * and their writes submitted, in the order of the file: digests need that order, and disks
 * like it.
 *
 * No file has a name in the folder before all files are written and synchronised.
 *
 * Phases, failure, cancel, waiting and threads are the job's (lib/job/job.h).  The pump's state is
 * the driving thread's, but for a block that the crew has; `started` and `written` are any
 * thread's.
 */
#ifndef HOIST_LIB_SAVE_SAVE_H
#define HOIST_LIB_SAVE_SAVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "format/digest.h"
#include "format/write.h"
#include "hoist/save.h"
#include "io/engine.h"
#include "io/output.h"
#include "io/staging.h"
#include "lib/checkpoint/checkpoint.h"
#include "lib/copy/copy.h"
#include "lib/job/job.h"
#include "lib/save/feed.h"

#define HOIST__SAVE_SLOT_BYTES ((size_t)4 << 20)
/* Some disks (Firecracker's virtual ones) answer only when nothing is left to write, all writes at
 * once, and then idle until the next write comes.  So a save has many bytes in flight, and four
 * slots more, for blocks that are ready by then.  Measured on such a disk, GB/s from the host and
 * from an emulated device: 24 slots, 16 writes 2.85, 2.83; 24, 22 2.98, 2.88; 32, 28 3.05, 3.04.
 */
#define HOIST__SAVE_SLOTS 32u
#define HOIST__SAVE_STEP 2u			     /* slots that are made at a time */
#define HOIST__SAVE_WRITES 28u			     /* in flight */
#define HOIST__SAVE_STRAIGHT_BYTES ((size_t)8 << 20) /* of a straight block at most */
/* Where blocks begin and end.  File systems write smaller parts of their blocks one after the
 * other. */
#define HOIST__SAVE_GRID 4096u

struct hoist__save_format {
	const char *name;
	const char *ending; /* of a path that selects the format */
	enum hoist__format format;
	bool has_metadata;
	int (*write)(struct hoist__out_file *file);
};

/* The source of a tensor's bytes. */
struct hoist__save_source {
	char *name;
	enum {
		HOIST__FROM_HOST,
		HOIST__FROM_DEVICE,
		HOIST__FROM_MOVED,
		HOIST__FROM_FILE,
		HOIST__FROM_LOAD
	} way;
	unsigned stream;      /* DEVICE: of save->streams */
	hoist_buffer *buffer; /* or */
	hoist_checkpoint *checkpoint;
	size_t index;
	hoist_dtype dtype; /* in which the checkpoint's tensor is saved */
	hoist_dtype asked; /* of the load that brings it; 0: the file's */
	int64_t *dims;	   /* the shape of the part that is saved; NULL: all of it */
	int64_t *begins;   /* the first index of the part on each axis */
	size_t segment;	   /* LOAD: the first of feed.segments */
};

struct hoist__save_file {
	char *path;
	struct hoist__out_file out; /* the tensors are a range of save->tensors */
	size_t first;		    /* the first of these tensors */
	struct hoist__metadata *metadata;
	char *digests; /* the value of HOIST__DIGEST_KEY; NULL without DIGEST */
	struct hoist__output *output;
};

/* The copies that fetch a block's bytes from one device. */
struct hoist__save_fetch {
	struct hoist__slot_box *boxes;
	size_t n;
	size_t room;
};

/* Tensors that follow each other in host memory as in the file. */
struct hoist__save_run {
	uint64_t begin; /* in the file */
	uint64_t end;
	const unsigned char *memory; /* of `begin` */
};

/* The block that is begun next. */
struct hoist__save_next {
	struct hoist__save_file *file;
	uint64_t begin;
	size_t bytes;
	const unsigned char *straight; /* NULL: the block needs a slot */
};

struct hoist__save_block {
	struct hoist_save *save;
	struct hoist__request request; /* a read or a write, which the crew may plan */
	struct hoist__request work;    /* the crew's; one of the two at a time is in flight */
	struct hoist__slot *slot;      /* NULL: a straight block */
	unsigned char *memory;	       /* the slot's */
	struct hoist__save_file *file;
	uint64_t begin; /* in the file */
	size_t bytes;
	size_t filled;		       /* from the block's beginning */
	size_t tensor;		       /* of save->tensors: the next one to fill in */
	const unsigned char *straight; /* the bytes, if they are not in the slot */
	bool one_by_one;	       /* a read failed: each tensor gets a read of its own */
	/* The last read: tensors [tensor, group_end) lie in the slot from group_at on, as they lie
	 * in their file from group_from on. */
	size_t group_end;
	size_t group_at;
	uint64_t group_from;
	struct hoist__save_fetch *fetches; /* one for each stream */
	/* The crew's answer. */
	int step;
	struct hoist__failure failure;
};

/* Counts the ways that bytes were written, for the report. */
struct hoist__save_routes {
	uint64_t n_writes;
	uint64_t straight; /* of these, from the source's memory */
	uint64_t fell_back;
	const char *note; /* why there are no direct writes */
};

struct hoist_save {
	struct hoist__job job;

	/* Set at creation. */
	char *path;
	const struct hoist__save_format *format;
	enum hoist_engine engine_kind;
	enum hoist_io io;
	uint64_t shard_bytes;
	unsigned flags;

	/* Added by the caller. */
	struct hoist__save_source *sources;
	size_t n_sources;
	size_t sources_room;
	struct hoist__metadata *metadata;
	char **strings; /* of the metadata: each key and its value */
	size_t n_metadata;
	size_t metadata_room;
	hoist_checkpoint *like; /* whose GGUF metadata is kept */

	/* Planned; constant while the pump runs. */
	struct hoist__out_tensor *tensors; /* one for each source */
	struct hoist__save_file *files;
	size_t n_files;
	char *index_path;  /* of the shards that are written; NULL: one file is written */
	char *shadow_path; /* an index that readers would take instead of that one file; if it
			    * is there, it is removed; NULL: no index can belong to the name */
	char *index_text;
	size_t index_bytes;
	struct hoist__output *index;
	uint64_t tensor_bytes;
	uint64_t total_bytes; /* of all files */
	hoist_stream *streams[HOIST__STAGING_MAX_STREAMS];
	unsigned n_streams;
	uint64_t source_align; /* of direct reads; 0: nothing is read */
	struct hoist__save_feed feed;

	/* The pump's. */
	struct hoist__save_block *blocks;
	struct hoist__save_fetch *fetches; /* of the blocks, n_streams for each */
	unsigned *window;		   /* the blocks that are not sealed: a circular queue */
	unsigned *free_blocks;		   /* the first n_free of it: a stack */
	unsigned n_blocks;		   /* one for each slot, and one for each straight write */
	unsigned n_free;
	uint64_t n_begun;  /* blocks */
	uint64_t n_sealed; /* and submitted */
	bool sealing;	   /* the crew is sealing a block */
	size_t block_bytes;
	size_t next_file; /* of the block that is begun next, */
	uint64_t next_begin;
	size_t next_tensor;	    /* and the first tensor that may lie in it */
	size_t run_tensor;	    /* the first behind `run`, */
	struct hoist__save_run run; /* which ends behind next_begin: GRID's multiples */
	unsigned n_writing;
	size_t seal_tensor; /* the first tensor whose end has not been sealed */
	void *digest;	    /* that tensor's XXH3_state_t */
	struct hoist__save_routes routes;
	hoist_save_report report;

	/* The crew's, under the lock: a packed copy of one tensor that cannot be gathered, the one
	 * needed last. */
	pthread_mutex_t packing;
	hoist_buffer *packed;
	const struct hoist__save_source *packed_of;

	/* Shared. */
	_Atomic bool started;
	_Atomic uint64_t written;
};

static inline struct hoist_save *hoist__save_of(struct hoist__job *job)
{
	return HOIST__CONTAINER_OF(job, struct hoist_save, job);
}

/* --- save.c --- */

/* Returns: 0; -EINVAL, -ESTALE: nothing can be added any more. */
int hoist__save_check_open(const struct hoist_save *save);

/* Makes room for one more source, which is zeroed except for its name, and not counted yet. */
int hoist__save_new_source(struct hoist_save *save, const char *name,
			   struct hoist__save_source **ret);
void hoist__save_free_source(struct hoist__save_source *source);

/* --- save-format.c --- */

#define HOIST__SAVE_ENDING ".safetensors"
#define HOIST__SAVE_INDEX_ENDING HOIST__SAVE_ENDING ".index.json"

/* Finds the format @name; NULL: the format of the path's ending.  Returns: 0; -EINVAL. */
int hoist__save_format_find(const char *path, const char *name,
			    const struct hoist__save_format **ret);

/* --- save-sources.c --- */

/* Makes the list of tensors, and opens the streams that their devices need. */
int hoist__save_plan_sources(struct hoist_save *save);

/* --- save-plan.c --- */

/* All steps from the sources to the first byte written; hoist__save_unplan() undoes them. */
int hoist__save_plan(struct hoist_save *save);
void hoist__save_unplan(struct hoist_save *save);

/* The last component of a path. */
static inline const char *hoist__save_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash != NULL ? slash + 1 : path;
}

/* Makes the header again, with the present digests. */
int hoist__save_header(struct hoist_save *save, struct hoist__save_file *file);

/* --- save-begin.c --- */

/* As the functions of the job's kind. */
int hoist__save_begin(struct hoist__job *job, uint64_t timeout_ns);
int hoist__save_make_staging(struct hoist__job *job);

/* Pre: nothing is in flight. */
void hoist__save_report(struct hoist_save *save);
void hoist__save_release(struct hoist_save *save);

/* --- save-pump.c --- */

extern const struct hoist__job_kind hoist__save_kind;

/* --- save-place.c --- */

/* Finds the next block of the save: its file, place, and straight memory.  May be repeated.
 * False: there are no more. */
bool hoist__block_next(struct hoist_save *save, struct hoist__save_next *ret);

/* Begins the block that was found, in @slot unless it is straight.  Pre: a block is free. */
struct hoist__save_block *hoist__block_begin(struct hoist_save *save,
					     const struct hoist__save_next *next,
					     struct hoist__slot *slot);

/* --- save-pump.c --- */

/* Goes on with a block behind hoist__block_fill(), which returned @step. */
void hoist__save_step(struct hoist_save *save, struct hoist__save_block *block, int step);

/* Writes the first block of the window, which is sealed and leaves the window. */
void hoist__save_write(struct hoist_save *save, struct hoist__save_block *block);

/* --- save-complete.c --- */

/* Takes requests that have ended. */
void hoist__save_reap(struct hoist_save *save, bool fetching, uint64_t timeout_ns);

/* --- save-fill.c --- */

/* More bytes than these are copied, and digested, by the crew: the pump has no time. */
#define HOIST__SAVE_HEAVY_BYTES ((size_t)64 << 10)

enum hoist__fill_step {
	HOIST__FILL_DONE, /* all bytes are in the slot, or noted to be fetched */
	HOIST__FILL_READ, /* block->request is to be submitted: a read */
	HOIST__FILL_HEAVY /* the crew is to go on */
};

/* Fills as far as that goes, and, unless @heavy, as far as that is quick.
 * Returns: a step; what failed. */
int hoist__block_fill(struct hoist_save *save, struct hoist__save_block *block, bool heavy);

/* After a read of the block failed.  Returns: true if filling is to go on with a read for each
 * tensor: bytes between tensors are then not read, and the failing tensor is known. */
bool hoist__block_retry(struct hoist__save_block *block);

/* The place in the source file of the next byte that the block needs of its present tensor. */
uint64_t hoist__block_wants(const struct hoist_save *save, const struct hoist__save_block *block);

static inline bool hoist__block_full(const struct hoist__save_block *block)
{
	return block->slot == NULL || block->slot->state == HOIST__SLOT_FULL;
}

/* The block's bytes, once it is FULL. */
static inline const unsigned char *hoist__block_data(const struct hoist__save_block *block)
{
	return block->straight != NULL ? block->straight : block->memory;
}

/* --- save-gather.c --- */

/* Copies bytes [@from, @from + @bytes) of the @source's @buffer, in row-major order, to @to.
 * Threads: any. */
int hoist__source_gather(struct hoist_save *save, const struct hoist__save_source *source,
			 hoist_buffer *buffer, uint64_t from, size_t bytes, unsigned char *to);

/* --- save-seal.c --- */

int hoist__seal_create(struct hoist_save *save);
void hoist__seal_destroy(struct hoist_save *save);

/* Seals the next block in the order of the files, which is FULL.  Threads: any, one at a time. */
void hoist__seal_block(struct hoist_save *save, const struct hoist__save_block *block);

/* --- save-publish.c --- */

/* Checks that replacing the old index loses no tensor by mistake: a caller that opened only some of
 * its shards cannot mean the others to go.  Pre: planned.
 * Returns: 0; -EEXIST: the save reads a shard that the old index names, and lacks a tensor of a
 *   shard that is in none of its checkpoints; -ENOMEM. */
int hoist__save_check_replaced(const struct hoist_save *save);

/* Gives the files their names, once all bytes are written.  Returns: 0; what failed. */
int hoist__save_publish(struct hoist_save *save);

#endif
