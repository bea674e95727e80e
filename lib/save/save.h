/* SPDX-License-Identifier: MIT */
/* lib/save/save.h - a save's state: what its files share.
 *
 *   save.c          the object: options, adding, starting, waiting
 *   save-format.c   which format is written
 *   save-metadata.c strings beside the tensors
 *   save-sources.c  sources -> tensors as the format writes them
 *   save-plan.c     tensors -> files: formats, shards, headers, where every tensor goes
 *   save-begin.c    what the loop works with: slots, blocks, the engine; the report
 *   save-pump.c     the loop: blocks are begun, filled, sealed, written
 *   save-fill.c     one block's bytes, from wherever they are
 *   save-gather.c   bytes of a tensor that do not lie as the file wants them
 *   save-seal.c     what is done in the order of the file: digests
 *   save-publish.c  the end: synchronise, rename, remove what is stale
 *
 * A file is written as an image: header, tensors, zeros between them, cut into blocks of one size.
 * Every block but the last is one direct write at a multiple of its size, whatever lies in it, and
 * the last one is padded; so nothing about the alignment of tensors in the file matters.
 *
 * A block has a slot, whose state (io/staging.h) is the block's:
 *
 *     slot       the block                                            ends
 *     READING    is filled; or a file is read into the slot           in any order
 *     FETCHING   devices write to the slot                            in the order of each device
 *     FULL       waits until the blocks before are sealed; is         in the order of the file
 *                sealed; is written by the engine                     in the disk's order
 *     FREE       is written
 *
 * `window` has the blocks that are not sealed: numbers [n_sealed, n_begun).
 *
 * Filling goes from the block's first byte to its last, by what each tensor is:
 *
 *   HOST    memory of the CPU's, row-major: copied.  A block that lies in one such tensor, suitably
 *           aligned, is no copy at all but written from there (`straight`)
 *   DEVICE  row-major on a device: noted, and fetched with one set of copies for each device as
 *           the last thing
 *   MOVED   all else (strides; devices that the slots are not pinned for): gathered at once
 *           by the copies of lib/copy/copy.h, while other blocks are read and written
 *   FILE    of a checkpoint: read by the engine into the block's own slot, at or above where it
 *           belongs, and moved down:
 *
 *     the slot    [ filled ]  [a  b     c  |pad]         a read of a, b and c, aligned in the file
 *                 [ filled ][a][b][c]                    and in memory
 *
 *           One read takes what lies near each other in the source file and in the same order (the
 *           whole block if tensors keep their order), directly if it is large and not in the page
 *           cache.  Moving down in ascending order overwrites nothing that is still needed as long
 *           as every part is read above its place; slots are larger than blocks by what that takes
 *           (`slack`).  A copy within a slot costs a tenth of what the disk does; that source and
 *           destination are aligned to each other is so rare that nothing more is made of it than
 *           that no byte moves then.
 *
 * A read is a barrier in its block, so that its surplus bytes are overwritten by what comes later;
 * as many blocks as there are slots are filled at once, so that the disk does not notice.
 *
 * Bytes of the device's are fetched, of files read, and of blocks written in parallel; blocks are
 * sealed, and their writes submitted, in the order of the file: digests need that, and disks like
 * it.
 *
 * Nothing has a name in the folder before everything is written and synchronised.
 *
 * Phases, failure, cancel, waiting and threads are the job's (lib/job/job.h).  The pump's state is
 * the driving thread's; `started` and `written` are any thread's.
 */
#ifndef HOIST_LIB_SAVE_SAVE_H
#define HOIST_LIB_SAVE_SAVE_H

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

#define HOIST__SAVE_SLOT_BYTES ((size_t)4 << 20)
#define HOIST__SAVE_SLOTS 24u
#define HOIST__SAVE_WRITES 8u /* in flight: more make a disk no faster */

struct hoist__save_format {
	const char *name;
	const char *ending; /* of a path that asks for it */
	enum hoist__format format;
	bool has_metadata;
	int (*write)(struct hoist__out_file *file);
};

/* Where the bytes of a tensor come from. */
struct hoist__save_source {
	char *name;
	enum { HOIST__FROM_HOST, HOIST__FROM_DEVICE, HOIST__FROM_MOVED, HOIST__FROM_FILE } way;
	unsigned stream;      /* DEVICE: of save->streams */
	hoist_buffer *buffer; /* or */
	hoist_checkpoint *checkpoint;
	size_t index;
	hoist_buffer *packed; /* MOVED: what had to be made first; while the tensor is written */
};

struct hoist__save_file {
	char *path;
	struct hoist__out_file out; /* its tensors are a part of save->tensors */
	size_t first;		    /* the first of them */
	struct hoist__metadata *metadata;
	char *digests; /* the value of HOIST__DIGEST_KEY; NULL without DIGEST */
	struct hoist__output *output;
};

/* To be fetched from one device. */
struct hoist__save_fetch {
	struct hoist__piece *pieces;
	size_t n;
	size_t room;
};

/* What is in a slot; one for each.  The slot's state is the block's (io/staging.h). */
struct hoist__save_block {
	struct hoist__slot *slot;
	unsigned char *memory; /* the slot's */
	struct hoist__save_file *file;
	uint64_t begin; /* in the file */
	size_t bytes;
	size_t filled;		       /* from the block's beginning */
	size_t tensor;		       /* of save->tensors: the next that is filled in */
	const unsigned char *straight; /* where the bytes are, if not in the slot */
	bool one_by_one;	       /* a read failed: each tensor has a read to itself */
	/* The read that was made last: tensors [tensor, group_end) lie in the slot from group_at
	 * on, as they lie in their file from group_from on. */
	size_t group_end;
	size_t group_at;
	uint64_t group_from;
	struct hoist__save_fetch *fetches; /* one for each stream */
};

/* Why bytes went the way they went, for the report. */
struct hoist__save_routes {
	uint64_t n_writes;
	uint64_t straight; /* written from where they were */
	uint64_t fell_back;
	const char *note; /* why there are no direct writes */
};

struct hoist_save {
	struct hoist__job job;

	/* Set when it was created. */
	char *path;
	const struct hoist__save_format *format;
	enum hoist_engine engine_kind;
	enum hoist_io io;
	uint64_t shard_bytes;
	unsigned flags;

	/* Added. */
	struct hoist__save_source *sources;
	size_t n_sources;
	size_t sources_room;
	struct hoist__metadata *metadata;
	char **strings; /* of these, each key and its value */
	size_t n_metadata;
	size_t metadata_room;
	hoist_checkpoint *like; /* whose GGUF metadata is kept */

	/* Planned; constant while the pump runs. */
	struct hoist__out_tensor *tensors; /* one for each source */
	struct hoist__save_file *files;
	size_t n_files;
	char *index_path;  /* of the shards that are written; NULL: one file is written */
	char *shadow_path; /* the index that readers take instead of that one file, and that goes
			    * if it is there; NULL: the file's name is none that an index has */
	char *index_text;
	size_t index_bytes;
	struct hoist__output *index;
	uint64_t tensor_bytes;
	uint64_t total_bytes; /* of all files */
	hoist_stream *streams[HOIST__STAGING_MAX_STREAMS];
	unsigned n_streams;
	uint64_t source_align; /* of direct reads; 0: nothing is read */

	/* The pump's. */
	struct hoist__save_block *blocks;  /* one for each slot */
	struct hoist__save_fetch *fetches; /* of these */
	unsigned *window; /* slots of the blocks that are not sealed: a circular queue */
	unsigned n_slots;
	uint64_t n_begun;  /* blocks */
	uint64_t n_sealed; /* and submitted */
	size_t block_bytes;
	size_t next_file; /* of the block that is begun next, */
	uint64_t next_begin;
	size_t next_tensor;  /* and the first tensor that may lie in it */
	unsigned n_writing;
	size_t seal_tensor; /* the first tensor whose end has not been sealed */
	void *digest;	    /* its XXH3_state_t */
	struct hoist__save_routes routes;
	hoist_save_report report;

	/* Shared. */
	_Atomic bool started;
	_Atomic uint64_t written;
};

static inline struct hoist_save *hoist__save_of(struct hoist__job *job)
{
	return HOIST__CONTAINER_OF(job, struct hoist_save, job);
}

/* --- save.c --- */

/* 0; -EINVAL, -ESTALE: nothing can be added any more. */
int hoist__save_check_open(const struct hoist_save *save);

/* --- save-format.c --- */

#define HOIST__SAVE_ENDING ".safetensors"
#define HOIST__SAVE_INDEX_ENDING HOIST__SAVE_ENDING ".index.json"

/* @name NULL: by the path's ending.  Returns: 0; -EINVAL. */
int hoist__save_format_find(const char *path, const char *name,
			    const struct hoist__save_format **ret);

/* --- save-sources.c --- */

/* Makes the list of tensors, and opens the streams that their devices need. */
int hoist__save_plan_sources(struct hoist_save *save);

/* --- save-plan.c --- */

/* Everything between the sources and the first byte written; can be taken back. */
int hoist__save_plan(struct hoist_save *save);
void hoist__save_unplan(struct hoist_save *save);

/* The last component of a path. */
static inline const char *hoist__save_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash != NULL ? slash + 1 : path;
}

/* The header again, with digests as they are now. */
int hoist__save_header(struct hoist_save *save, struct hoist__save_file *file);

/* --- save-begin.c --- */

/* As the functions of the job's kind. */
int hoist__save_begin(struct hoist__job *job, uint64_t timeout_ns);
int hoist__save_make_staging(struct hoist__job *job);

/* Nothing is in flight any more. */
void hoist__save_report(struct hoist_save *save);
void hoist__save_release(struct hoist_save *save);

/* --- save-pump.c --- */

extern const struct hoist__job_kind hoist__save_kind;

/* --- save-fill.c --- */

/* Begins the next block of the save in @slot.  False: there are no more. */
bool hoist__block_begin(struct hoist_save *save, struct hoist__slot *slot);

/* Fills until a file must be read, or the slot is FETCHING or FULL.
 * Returns: 0; 1: the slot's request is to be submitted; what failed. */
int hoist__block_fill(struct hoist_save *save, struct hoist__save_block *block);

/* After a read of the block failed: true if it is to be filled on, with a read for each tensor, so
 * that bytes between them are not read, and it is known whose cannot be. */
bool hoist__block_retry(struct hoist__save_block *block);

/* The first byte, in its file, of what the block wants of the tensor that it is at. */
uint64_t hoist__block_wants(const struct hoist_save *save, const struct hoist__save_block *block);

/* Where the block's bytes are, once its slot is FULL. */
static inline const unsigned char *hoist__block_data(const struct hoist__save_block *block)
{
	return block->straight != NULL ? block->straight : block->memory;
}

/* --- save-gather.c --- */

/* Bytes [@from, @from + @bytes) of the tensor, row-major, to @to. */
int hoist__source_gather(struct hoist_save *save, struct hoist__save_source *source,
			 const struct hoist__out_tensor *tensor, uint64_t from, size_t bytes,
			 unsigned char *to);

/* --- save-seal.c --- */

int hoist__seal_create(struct hoist_save *save);
void hoist__seal_destroy(struct hoist_save *save);

/* The slot of the next block in the order of the files is FULL. */
void hoist__seal_block(struct hoist_save *save, const struct hoist__save_block *block);

/* --- save-publish.c --- */

/* Who opened some shards only cannot mean the others to go: looks at the index that is replaced.
 * Pre: planned.  Returns: 0; -EEXIST: the save reads a shard that the index names, and lacks a tensor
 *   of a shard that is in none of its checkpoints; -ENOMEM. */
int hoist__save_check_replaced(const struct hoist_save *save);

/* All is written: gives the files their names.  Returns: 0; what failed. */
int hoist__save_publish(struct hoist_save *save);

#endif
