/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/checkpoint-map.h - maps of a checkpoint's files, for loads that map instead of
 * reading (HOIST_IO_MAP): one map for each file, from its first selected byte to its last
 * (io/map.h).
 *
 * With `populate`, threads read all wanted bytes ahead, into the page cache and the map
 * (io/ahead.h).
 *
 * Open makes the storages, which belong to the map.  A buffer over a storage takes a reference,
 * which keeps the storage's map beyond close.
 *
 * Threads: one owner; cancel and arrived from any thread.
 */
#ifndef HOIST_LIB_CHECKPOINT_CHECKPOINT_MAP_H
#define HOIST_LIB_CHECKPOINT_CHECKPOINT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/map.h"
#include "lib/buffer/storage.h"
#include "lib/checkpoint/checkpoint.h"

/* Bytes of one file. */
struct hoist__checkpoint_part {
	size_t file;
	uint64_t begin;
	uint64_t end; /* begin == end: an empty part, which is ignored */
};

struct hoist__checkpoint_map_options {
	hoist_checkpoint *checkpoint;
	hoist_device *device;		/* the CPU */
	enum hoist__file_map_mode mode; /* not WRITE */
	bool populate;
	/* The ranges to map: each tensor or slice, from its first byte to its last.  They are in
	 * order of (file, begin), and may overlap. */
	const struct hoist__checkpoint_part *parts;
	size_t n_parts;
	/* The ranges that `populate` reads, in this order; each begins in a part.  NULL: the
	 * parts. */
	const struct hoist__checkpoint_part *wanted;
	size_t n_wanted;
};

struct hoist__checkpoint_map;

/* Maps the files, and starts populating with `populate`.  Options are used only here.
 * Returns: 0; -ENODATA: a file has shrunk; READ_WRITE: -EACCES, -EROFS, -EPERM, -ETXTBSY, with the
 *   remedy; -ENOMEM and the like. */
int hoist__checkpoint_map_open(const struct hoist__checkpoint_map_options *options,
			       struct hoist__checkpoint_map **ret);

/* The storage, borrowed, that holds byte @offset of file @file, which is in one of the parts; *ret:
 * the byte's place in the storage. */
struct hoist__storage *hoist__checkpoint_map_place(const struct hoist__checkpoint_map *map,
						   size_t file, uint64_t offset, size_t *ret);

/* Waits up to @timeout_ns for populating.
 * Returns: true once it has ended (at once without `populate`), and *err: 0 or the failure, with
 * its text in the calling thread: -ENODATA, -EBADMSG, -EIO, ... with file and offset; -ECANCELED.
 */
bool hoist__checkpoint_map_step(struct hoist__checkpoint_map *map, uint64_t timeout_ns, int *err);
void hoist__checkpoint_map_cancel(struct hoist__checkpoint_map *map); /* never blocks */

/* The wanted bytes that have arrived, out of @total.  The figure is scaled, since gaps are read as
 * well. */
uint64_t hoist__checkpoint_map_arrived(struct hoist__checkpoint_map *map, uint64_t total);

/* The place where populating failed; false: the failure has no place. */
bool hoist__checkpoint_map_failed(const struct hoist__checkpoint_map *map, size_t *file,
				  uint64_t *offset);

/* For the report's io_reason. */
const char *hoist__checkpoint_map_note(const struct hoist__checkpoint_map *map);

/* Stops populating, and drops the storages.  Takes NULL. */
void hoist__checkpoint_map_close(struct hoist__checkpoint_map *map);

#endif
