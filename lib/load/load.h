/* SPDX-License-Identifier: MIT */
/* lib/load/load.h - a load's state, and the files that work on it.
 *
 *   load.c           the object: start, drive, wait, cancel, end
 *   load-target.c    targets: what is asked for, devices, streams, wants
 *   load-memory.c    the memory of the lots on each target
 *   load-mapped.c    maps in place of devices, streams and memory (checkpoint-map.h)
 *   load-result.c    the results: buffers, figures, reasons
 *   load-next.c      tensors that are given while the load runs (give.h)
 *   pump.c           begin, one round, end
 *   pump-order.c     chooses the chunk that is read next
 *   pump-submit.c    turns chunks into requests
 *   pump-rows.c      hot rows, which are read straight to host memory
 *   pump-complete.c  handles finished requests, in order for digests
 *   pump-deliver.c   moves the pieces of a staged chunk: gathers, converts, copies to devices
 *   pump-source.c    chunks that another one reads (source.h)
 *
 * One pump moves the whole load forward; nothing calls back into it:
 *
 *     plan --chunk--> engine --+--image, hot rows-----------> [digest] done
 *       ^                      +--staged--> slot [digest] [settle] --> host: done
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
 *     settling  being gathered or converted by   n_open 1; in no list      FULL
 *               a thread of the crew
 *     copied    being copied out of its slot     in free_flights           COPYING
 *     arrived   counted (`arrived`)              in free_flights           FREE
 *
 * Hot rows: one request reads the pieces alone of a staged chunk that lies in the page cache
 * (`straight`), and leaves out the gaps between them.  To the host they go straight: the chunk
 * takes no slot, and may be larger than one.  For devices they lie in a slot, one behind the other.
 * Digested and converted bytes pass through slots as they lie in the file.  A load to the host
 * makes no slots before a chunk needs one: that takes longer than reading hot rows does.
 *
 * Mapped chunks: those of extents that HOIST_IO_ADAPTIVE maps are in their place already.  Their
 * flights take no request and arrive where they are submitted, in sequence with digests, for which
 * the bytes are read from the page cache: a touch of the map could raise SIGBUS.  The destination
 * is then a patchwork (lib/buffer/patchwork.h), and the populator leaves the maps out.
 *
 * Settling: a request of the engine's in which a thread gathers and converts the rows of a chunk to
 * host memory, and converts elements, or lays out small tensors, for devices in the slot.  If the
 * disk has no place for one more request, or the chunk is small, the pump's thread does that.  The
 * copies to devices are its own.
 *
 * Equations, for each disk, over its flights that are not free: load_disk.n_flights is their
 * number, n_requests + n_settling the sum of their n_open.
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
 * The next chunk is that of the disk with the fewest flights.  A disk has at most `depth` reads in
 * the engine, and at most as many flights; twice as many where flights wait for their order, or are
 * settled: the disk goes on reading meanwhile.  So a disk that stalls leaves the other disks their
 * flights and their share of the slots.  Digests
 * need bytes in order, but only within each disk, since a file is on one disk.
 *
 * Fresh memory: threads populate the places of hot images just before they copy.  A populator runs
 * ahead of each disk's cursor for all other images, and passes by places that were hot.  Pages of
 * staged chunks are made where the chunks are settled.  So a load begins to read before it has
 * pages.
 *
 * The destination of a target is divided into lots (lib/plan/plan.h): one, or, with
 * HOIST_LOAD_SPLIT, many.  Each lot is a storage of its own on each target that has the lot's want.
 * All are taken at the start, or, with a window, before their first chunks are read (give.h).  In
 * fresh memory they are portions of one block (lib/buffer/portions.h), whose pages go back lot by
 * lot.  A
 * lot's `left` decreases by the useful bytes of each chunk, when an image has been read, or when
 * the pieces of a slot have been moved to the host and their copies to all devices are queued.
 * After a success it is 0.
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
#include "lib/buffer/portions.h"
#include "lib/buffer/storage.h"
#include "lib/checkpoint/checkpoint.h"
#include "lib/checkpoint/checkpoint-map.h"
#include "lib/job/job.h"
#include "lib/load/source.h"
#include "lib/plan/digest.h"
#include "lib/plan/into.h"
#include "lib/plan/plan.h"

#define HOIST__LOAD_MAX_ALIGN 4096 /* of tensors, at most */

#define HOIST__LOAD_SPLITS (HOIST_LOAD_SPLIT | HOIST_LOAD_STREAM)

#define HOIST__LOAD_DIGESTS (HOIST_LOAD_DIGEST | HOIST_LOAD_VERIFY)

/* Reads of one chunk, at most; several only for rows of a slice whose gaps are left out. */
#define HOIST__LOAD_PARTS 32u

/* Lists of rows that one request reads straight to host memory, at most. */
#define HOIST__LOAD_ROWS 256u

/* One chunk that is read or waiting. */
struct hoist__flight {
	struct hoist__chunk chunk;
	struct hoist__request *requests; /* one for each of the chunk's parts */
	unsigned n_open;		 /* the number of these that are in the engine */
	bool straight;			 /* hot rows; with a slot: they are packed there */
	bool mapped;			 /* in its place: n_open is 0 */
	bool settling;			 /* requests[0] is the work, in the engine */
	bool sourced;			 /* bytes come from the load's source */
	bool reached;			 /* devices copy from the source's memory: n_open is 0 */
	struct hoist_load *load;	 /* for the work */
	struct hoist__rows *rows; /* room for HOIST__LOAD_ROWS, if any chunk may be straight */
	struct hoist__slot *slot; /* NULL: an image, or straight to the host */
	unsigned char *address;	  /* of the chunk's first byte; NULL: straight to the host */
	struct hoist__lap lap;	  /* without a slot: for the timeline */
	unsigned disk;		  /* of load->disks */
	uint64_t sequence;	  /* the chunk's number on its disk, in plan order */
	struct hoist__list node;  /* in free_flights or waiting */
};

/* A chunk that devices copy from the memory of the load's source. */
struct hoist__reached {
	const struct hoist__slot *slot; /* FREE once the copies have ended */
	struct hoist__chunk chunk;
};

/* The way of one read: direct or cached, and whether the pages that the read brings into the page
 * cache are dropped again.  The cache is left as it was found, unless the caller asked for cached
 * reads.  If the kernel itself knows the pages that a read brought in (dontcache), the range need
 * not have been empty before. */
struct hoist__way {
	bool direct;
	bool hot;
	bool drop;
};

/* The reading of one disk. */
struct hoist__load_disk {
	struct hoist__cursor cursor;
	struct hoist__chunk next; /* the chunk to submit next, if has_next */
	bool has_next;
	bool straight; /* `next` is */
	bool has_way;  /* `way` is that of `next`, an image */
	bool sourced;  /* bytes of `next` come from the load's source, and are there */
	struct hoist__way way;
	size_t cold_extent; /* before cold_until in this extent, not all bytes were cached: it is */
	uint64_t cold_until; /* not asked again whether rows are hot */
	unsigned depth;	     /* requests in the engine, at most */
	size_t image_bytes;  /* of a chunk, at most */
	unsigned most_flights;
	unsigned n_flights;
	unsigned n_requests;		      /* in the engine, of chunks being read */
	unsigned n_settling;		      /* flights */
	uint64_t next_sequence;		      /* of the chunk to submit next */
	uint64_t due_sequence;		      /* of the chunk that is digested and moved next */
	struct hoist__resident_window window; /* of the page cache, in front of the cursor */
	size_t populated; /* in the destination, the disk's images have their pages up to here, or
			   * are hot and get them from the threads that copy */
};

/* Counts the reasons for the ways that chunks were read, for the report. */
struct hoist__routes {
	uint64_t resident;  /* chunks read through the cache because they lay in it */
	uint64_t unknown;   /* the kernel does not say what is cached; read directly */
	uint64_t no_direct; /* the file has no direct descriptor */
	uint64_t fell_back; /* direct reads that were finished through the cache */
	uint64_t straight;  /* chunks of hot rows */
	const char *note;   /* why one file has no direct descriptor */
};

/* Targets of one load, at most: each device has a stream of the staging's. */
#define HOIST__LOAD_TARGETS HOIST__STAGING_MAX_STREAMS

/* The options of all targets, while a load starts: the caller's targets, or those of the options
 * themselves and the replicas. */
struct hoist__load_asked {
	size_t n;
	hoist_load_target targets[HOIST__LOAD_TARGETS];
};

/* A destination: first the device of the options, then the replicas; or one of the options'
 * targets. */
struct hoist__target {
	hoist_device *device;
	hoist_stream *stream; /* NULL for the host */
	unsigned want;	      /* plan.wants[]; devices that ask for the same share one */
	unsigned number;      /* a device: that of `stream` among the staging's */
	bool to_host;
	bool has_fresh;	      /* on the host, and its memory is the load's to choose and to fill */
	bool shares_stream;   /* the stream is the caller's, and given buffers are on it */
	hoist_memory *memory; /* of the lots; referenced */
	struct hoist__storage **storages; /* as plan.lots; NULL: of another want, not taken yet, or
					   * given away */
	struct hoist__portions *_Atomic portions; /* of the only storage; NULL: no buffer has been
						   * asked for, or no page can go back */
};

/* The progress of one lot of the plan, on all targets that have its want. */
struct hoist__load_lot {
	uint64_t left; /* useful bytes that are neither in host memory nor queued to be copied to
			* each device; 0: the lot is complete */
	uint64_t at;   /* where the lot lies in load->fresh */
};

struct hoist__give;

struct hoist_load {
	struct hoist__job job;

	/* Set at start, then constant. */
	hoist_checkpoint *checkpoint;
	hoist_load_options options; /* for its values; its pointers are not followed after start */
	size_t n_wants;
	unsigned n_streams; /* of the targets on devices */
	bool to_host;	    /* no target is a device */
	bool maps;	    /* HOIST_IO_MAP to the host: nothing is read */
	size_t n_maps;	    /* HOIST_IO_ADAPTIVE: of hot ranges; above 0: the lot is a patchwork */
	struct hoist__plan plan;
	/* Memory without pages for all lots of the only target, on the host: it gets its pages
	 * while it is read into.  Each lot is a portion of it, or, the only lot, all of it.  NULL:
	 * lots have memory of their own.  Referenced until the populator has ended. */
	struct hoist__storage *fresh;
	size_t n_targets; /* 1 and more */
	struct hoist__target *targets;
	struct hoist__load_lot *lots;	   /* as plan.lots; the pump's */
	struct hoist__checkpoint_map *map; /* if `maps` */
	const struct hoist__file **files;  /* that are read, for the engine */
	size_t n_files;
	struct hoist__digests *digests;	   /* NULL: none are made */
	struct hoist__give *give;	   /* HOIST_LOAD_STREAM; else NULL */
	struct hoist__load_source *source; /* of bytes that others read; NULL: there is none */
	struct hoist__load_pages pages;	   /* of the resource's memory; NULL: it has its pages */
	struct hoist__into *into;	   /* NULL: no target is in place */

	/* The pump's. */
	struct hoist__populator *populator; /* from the first image on that is not hot */
	bool no_populator;		    /* starting it failed */
	struct hoist__disks disk_table;
	struct hoist__load_disk disks[HOIST__MAX_DISKS]; /* disk_table.n of them */
	struct hoist__flight *flights;
	struct hoist__request *requests; /* of the flights */
	struct hoist__rows *rows;	 /* of the flights */
	bool needs_slots;		 /* a disk's next chunk does, and there are none */
	unsigned n_parts;		 /* requests of each flight */
	struct hoist__list free_flights;
	struct hoist__list waiting;	/* flights behind the sequence that is due, in no order */
	struct hoist__slot_box *boxes;	/* room for one batch of copies */
	struct hoist__reached *reached; /* room for each slot */
	unsigned n_reached;
	uint64_t reached_bytes; /* useful bytes of all such chunks */
	size_t staged_bytes;	/* of a chunk, at most; 0: there are no slots yet */
	struct hoist__routes routes;
	hoist_load_report report;

	/* Shared. */
	_Atomic uint64_t arrived; /* useful bytes at their destination */
};

static inline struct hoist_load *hoist__load_of(struct hoist__job *job)
{
	return HOIST__CONTAINER_OF(job, struct hoist_load, job);
}

/* The address of a target's lot.  Pre: the target has the lot's want. */
static inline uintptr_t hoist__load_lot_address(const struct hoist__target *target, size_t lot)
{
	return hoist__storage_address(target->storages[lot]);
}

/* The checkpoint's entry of the @index-th selected tensor. */
static inline const struct hoist__checkpoint_tensor *
hoist__load_entry(const struct hoist_load *load, size_t index)
{
	return &load->checkpoint->tensors[load->plan.tensors[index].index];
}

/* Makes a load up to its plan, as a load that starts and a forecast both have it: no memory is
 * taken for tensors but that of lazy buffers of `into`, and no thread, slot or engine is made.
 * Returns: 0, and hoist__load_free() is due; as hoist_load_start(). */
int hoist__load_plan(hoist_checkpoint *checkpoint, const hoist_load_options *options,
		     struct hoist__load_asked *asked, struct hoist_load **ret);

/* Pre: the load has no thread, and is not being driven. */
void hoist__load_free(struct hoist_load *load);

/* Lists and checks the targets that the options ask for.
 * Returns: 0; -EINVAL. */
int hoist__load_ask(const hoist_load_options *options, struct hoist__load_asked *asked);

/* The first takes devices and streams, and finds the wants; the second checks the resources that
 * memory is asked of; the third, once the plan is laid out, takes the memory.
 * Returns: as hoist_load_start(). */
int hoist__load_take_targets(struct hoist_load *load, const struct hoist__load_asked *asked);
int hoist__load_check_memory(const struct hoist_load *load, const struct hoist__load_asked *asked);
int hoist__load_allocate(struct hoist_load *load, const struct hoist__load_asked *asked);

/* Takes the buffers of targets that are in place; without any, load->into stays NULL.  Comes behind
 * hoist__load_take_targets().
 * Returns: as hoist__into_open(). */
int hoist__load_open_into(struct hoist_load *load, const struct hoist__load_asked *asked);

/* The device whose pool the slots are of: the first that is an accelerator, else the CPU. */
hoist_device *hoist__load_staging_device(const struct hoist_load *load);
void hoist__load_drop_targets(struct hoist_load *load);

/* Takes the memory of one lot on one target.  Returns: as hoist_load_start(). */
int hoist__load_take_lot(struct hoist_load *load, struct hoist__target *target, size_t lot);

/* Makes a buffer over the selected tensor @index on a target, which has its memory.
 * Returns: 0; -ENOMEM, -EOVERFLOW. */
int hoist__load_make_buffer(struct hoist_load *load, size_t index, size_t target,
			    hoist_buffer **ret);

/* True if every tensor has been given.  Pre: HOIST_LOAD_STREAM. */
bool hoist__load_has_given_all(struct hoist_load *load);

/* --- maps --- */

/* Returns: 0; -ENOTSUP, -EINVAL for options that exclude maps. */
int hoist__mapped_check(const struct hoist_load *load);

/* Pre: checked.  Returns: as hoist__checkpoint_map_open(). */
int hoist__mapped_open(struct hoist_load *load);

/* The place of the @index-th tensor, which is not empty: a borrowed storage, the view's offset and,
 * for a slice, the strides, which are kept in @strides.  Returns: 0; -EOVERFLOW. */
struct hoist__view;
int hoist__mapped_view(const struct hoist_load *load, size_t index,
		       int64_t strides[static HOIST_MAX_RANK], struct hoist__view *view,
		       struct hoist__storage **storage);

/* Adds to a failure of load->map the name of the tensor that it hit.  Returns: @err. */
int hoist__mapped_fail(const struct hoist_load *load, int err);

/* --- the rest --- */

/* The pump: lib/load/pump.c. */
extern const struct hoist__job_kind hoist__load_kind;

/* The rule by which files are read, as the options and the targets give it; text for people. */
const char *hoist__load_io_rule(const struct hoist_load *load);

/* The report's last fields, from the routes and counters. */
void hoist__load_finish_report(struct hoist_load *load);

#endif
