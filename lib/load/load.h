/* SPDX-License-Identifier: MIT */
/* lib/load/load.h - a load's state, and the files that work on it.
 *
 *   load.c           the object: start, drive, wait, cancel, end
 *   load-target.c    devices, streams, and the memory that bytes go to
 *   load-mapped.c    maps in place of devices, streams and memory (load-map.h)
 *   load-result.c    the results: buffers, figures, reasons
 *   load-digest.c    digests of tensors while their bytes pass
 *   pump.c           begin, one round, end
 *   pump-order.c     chooses the chunk that is read next
 *   pump-submit.c    turns chunks into requests
 *   pump-complete.c  handles finished requests, in order for digests
 *   pump-deliver.c   moves the pieces of a staged chunk: copies to devices, gathers, converts
 *
 * One pump moves the whole load forward; nothing calls back into it:
 *
 *     plan --chunk--> engine --+--image---------------------> [digest] done
 *       ^                      +--staged--> slot [digest] --move--> host: done
 *       |                                                 --copy--> each device --> done
 *       +------- a free request or slot -------------------------------------+
 *
 * The place of a chunk:
 *
 *     state     the chunk is                     its flight                its slot, if staged
 *     next      load_disk.next (has_next)        -                         -
 *     read      in the engine                    n_open > 0; in no list    READING
 *     waiting   with digests, until the chunks   in load->waiting          FULL
 *               of the disk before it are read
 *     copied    being copied out of its slot     in free_flights           COPYING
 *     arrived   counted (`arrived`)              in free_flights           FREE
 *
 * Equations, for each disk, over its flights that are not free: load_disk.n_flights is their
 * number, n_requests the sum of their n_open.
 *
 *   begin    makes the things that the driving thread must own: the slots, the engine
 *   round    reclaim copied slots, submit chunks while there is room, reap, move
 *   end      on success, failure or cancel, once nothing is in flight: checks the files,
 *            then completes the report
 *
 * Where files lie on several disks (io/disks.h), each disk has a cursor of its own, which goes
 * through the extents of that disk's files in the order of the plan:
 *
 *     plan   file 0 [a b c]   file 1 [d e]   file 2 [f g]         files 0 and 2 on one disk
 *     disk 0  a b c f g
 *     disk 1  d e                                                 read: a d b e c f g
 *
 * The next chunk is that of the disk with the fewest flights.  A disk has at most `depth` requests
 * in the engine, and at most as many flights; twice as many where flights wait for their order.  So
 * a disk that stalls leaves the other disks their flights and their share of the slots.  Digests
 * need bytes in order, but only within each disk, since a file is on one disk.  Pages are populated
 * in front of each disk's cursor.
 *
 * Phases, failure, cancel, waiting and threads are the job's (lib/job/job.h).  The pump's state is
 * the driving thread's; `arrived` is any thread's.
 */
#ifndef HOIST_LIB_LOAD_LOAD_H
#define HOIST_LIB_LOAD_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>

#include "hoist/load.h"
#include "io/disks.h"
#include "io/engine.h"
#include "io/populate.h"
#include "io/staging.h"
#include "lib/buffer/storage.h"
#include "lib/checkpoint/checkpoint.h"
#include "lib/job/job.h"
#include "lib/load/load-map.h"
#include "lib/load/plan.h"

#define HOIST__LOAD_MAX_ALIGN 4096 /* of tensors, at most */

#define HOIST__LOAD_DIGESTS (HOIST_LOAD_DIGEST | HOIST_LOAD_VERIFY)

/* Reads of one chunk, at most; several only for rows of a slice whose gaps are left out. */
#define HOIST__LOAD_PARTS 32u

/* One chunk that is read or waiting. */
struct hoist__flight {
	struct hoist__chunk chunk;
	struct hoist__request *requests; /* one for each of the chunk's parts */
	unsigned n_open;		 /* the number of these that are in the engine */
	struct hoist__slot *slot;	 /* NULL: an image */
	unsigned char *address;		 /* of the chunk's first byte */
	unsigned disk;			 /* of load->disks */
	uint64_t sequence;		 /* the chunk's number on its disk, in plan order */
	struct hoist__list node;	 /* in free_flights or waiting */
};

/* The reading of one disk. */
struct hoist__load_disk {
	struct hoist__cursor cursor;
	struct hoist__chunk next; /* the chunk to submit next, if has_next */
	bool has_next;
	unsigned depth;	    /* requests in the engine, at most */
	size_t image_bytes; /* of a chunk, at most */
	unsigned most_flights;
	unsigned n_flights;
	unsigned n_requests;	/* in the engine */
	uint64_t next_sequence; /* of the chunk to submit next */
	uint64_t due_sequence;	/* of the chunk that is digested and moved next */
	size_t populated;	/* the disk's images are populated up to here in the destination */
};

/* Counts the reasons for the ways that chunks were read, for the report. */
struct hoist__routes {
	uint64_t resident;  /* chunks read through the cache because they lay in it */
	uint64_t unknown;   /* the kernel does not say what is cached; read directly */
	uint64_t no_direct; /* the file has no direct descriptor */
	uint64_t fell_back; /* direct reads that were finished through the cache */
	const char *note;   /* why one file has no direct descriptor */
};

/* A destination: first the device of the options, then the replicas. */
struct hoist__target {
	hoist_device *device;
	hoist_stream *stream; /* NULL for the host */
	struct hoist__storage *storage;
};

struct hoist__digests;

struct hoist_load {
	struct hoist__job job;

	/* Set at start, then constant. */
	hoist_checkpoint *checkpoint;
	hoist_load_options options; /* for its values; its pointers are not followed after start */
	bool to_host;
	bool populates; /* the destination is populated while it is read into */
	bool maps;	/* HOIST_IO_MAP to the host: nothing is read */
	struct hoist__plan plan;
	size_t n_targets; /* 1 and more */
	struct hoist__target *targets;
	struct hoist__load_map *map;	  /* if `maps` */
	const struct hoist__file **files; /* that are read, for the engine */
	size_t n_files;
	struct hoist__digests *digests; /* NULL: none are made */

	/* The pump's. */
	struct hoist__populator *populator; /* images in large fresh memory */
	struct hoist__disks disk_table;
	struct hoist__load_disk disks[HOIST__MAX_DISKS]; /* disk_table.n of them */
	struct hoist__flight *flights;
	struct hoist__request *requests; /* of the flights */
	unsigned n_parts;		 /* requests of each flight */
	struct hoist__list free_flights;
	struct hoist__list waiting;  /* flights behind the sequence that is due, in no order */
	struct hoist__slot_box *boxes; /* room for one batch of copies */
	size_t staged_bytes; /* of a chunk, at most */
	struct hoist__routes routes;
	hoist_load_report report;

	/* Shared. */
	_Atomic uint64_t arrived; /* useful bytes at their destination */
};

static inline struct hoist_load *hoist__load_of(struct hoist__job *job)
{
	return HOIST__CONTAINER_OF(job, struct hoist_load, job);
}

/* The checkpoint's entry of the @index-th selected tensor. */
static inline const struct hoist__checkpoint_tensor *
hoist__load_entry(const struct hoist_load *load, size_t index)
{
	return &load->checkpoint->tensors[load->plan.tensors[index].index];
}

/* The first takes devices and streams; the second, once the plan is laid out, takes the memory.
 * Returns: as hoist_load_start(). */
int hoist__load_take_devices(struct hoist_load *load, const hoist_load_options *options);
int hoist__load_allocate(struct hoist_load *load);
void hoist__load_drop_targets(struct hoist_load *load);

/* --- maps --- */

/* Returns: as hoist__load_map_open(); -ENOTSUP, -EINVAL for options that exclude maps. */
int hoist__mapped_open(struct hoist_load *load);

/* The place of the @index-th tensor, which is not empty: a borrowed storage, the view's offset and,
 * for a slice, the strides, which are kept in @strides.  Returns: 0; -EOVERFLOW. */
struct hoist__view;
int hoist__mapped_view(const struct hoist_load *load, size_t index,
		       int64_t strides[static HOIST_MAX_RANK], struct hoist__view *view,
		       struct hoist__storage **storage);

/* Adds to a failure of load->map the name of the tensor that it hit.  Returns: @err. */
int hoist__mapped_fail(const struct hoist_load *load, int err);

/* --- digests --- */

/* Makes the table of digests and, with VERIFY, finds the expected ones in the checkpoint.
 * Returns: 0; -ENODATA (the checkpoint holds none, or not one for each tensor); -ENOMEM. */
int hoist__digests_create(struct hoist_load *load);
void hoist__digests_destroy(struct hoist__digests *digests); /* takes NULL */

/* Digests the bytes of the flight whose sequence is due on its disk.
 * Returns: 0; -EBADMSG (a tensor's digest is not the expected one; the text has both); -ENOMEM. */
int hoist__digests_pass(struct hoist_load *load, const struct hoist__flight *flight);

/* --- the rest --- */

/* The pump: lib/load/pump.c. */
extern const struct hoist__job_kind hoist__load_kind;

/* The report's last fields, from the routes and counters. */
void hoist__load_finish_report(struct hoist_load *load);

#endif
