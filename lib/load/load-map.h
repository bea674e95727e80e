/* SPDX-License-Identifier: MIT */
/* lib/load/load-map.h - a load that maps files instead of reading them (HOIST_IO_MAP): one map for each
 * file, from its first selected byte to its last (io/map.h).
 *
 * With `populate` all wanted bytes are read ahead by threads, into the page cache and the map
 * (io/ahead.h).
 *
 * Storages are made at open and belong to the map; whoever makes a buffer over one takes a
 * reference, which keeps the storage's map beyond close.
 *
 * Threads: one owner; cancel and arrived from any thread.
 */
#ifndef HOIST_LIB_LOAD_LOAD_MAP_H
#define HOIST_LIB_LOAD_LOAD_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/map.h"
#include "lib/buffer/storage.h"
#include "lib/checkpoint/checkpoint.h"

/* Bytes of one file. */
struct hoist__load_part {
	size_t file;
	uint64_t begin;
	uint64_t end; /* empty ones are left out */
};

struct hoist__load_map_options {
	hoist_checkpoint *checkpoint;
	hoist_device *device;		/* the CPU */
	enum hoist__file_map_mode mode; /* not WRITE */
	bool populate;
	/* What has to be in one piece: from the first to the last byte of each tensor or slice; in
	 * order of (file, begin), they may overlap. */
	const struct hoist__load_part *parts;
	size_t n_parts;
	/* What `populate` reads: each begins in a part; in the same order.  NULL: the parts. */
	const struct hoist__load_part *wanted;
	size_t n_wanted;
};

struct hoist__load_map;

/* Maps, and starts populating if that is asked for.  Options are used only here.
 * Returns: 0; -ENODATA a file has shrunk; READ_WRITE: -EACCES,
 * -EROFS, -EPERM, -ETXTBSY, with the remedy; -ENOMEM and the like. */
int hoist__load_map_open(const struct hoist__load_map_options *options,
			 struct hoist__load_map **ret);

/* Where byte @offset of file @file is, which is in one of the parts: a borrowed storage, and the
 * place in it. */
struct hoist__storage *hoist__load_map_place(const struct hoist__load_map *map, size_t file,
					     uint64_t offset, size_t *ret);

/* Waits up to @timeout_ns for populating.
 * Returns: true once it has ended (at once without `populate`), and *err: 0 or the failure, with
 * its text in the calling thread: -ENODATA, -EBADMSG, -EIO, ... with file and offset; -ECANCELED.
 */
bool hoist__load_map_step(struct hoist__load_map *map, uint64_t timeout_ns, int *err);
void hoist__load_map_cancel(struct hoist__load_map *map); /* never blocks */

/* Wanted bytes that are there, out of @total of them: scaled, as gaps are read as well. */
uint64_t hoist__load_map_arrived(struct hoist__load_map *map, uint64_t total);

/* Where populating failed; false: not at a place. */
bool hoist__load_map_failed(const struct hoist__load_map *map, size_t *file, uint64_t *offset);

/* For the report's io_reason. */
const char *hoist__load_map_note(const struct hoist__load_map *map);

/* Ends populating; drops the storages.  Takes NULL. */
void hoist__load_map_close(struct hoist__load_map *map);

#endif
