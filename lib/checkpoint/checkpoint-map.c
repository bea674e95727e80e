/* SPDX-License-Identifier: MIT */
/* Maps the files of a checkpoint, and populates the maps.
 * The contract is in lib/checkpoint/checkpoint-map.h. */
#include "config.h"

#include "lib/checkpoint/checkpoint-map.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "io/ahead.h"
#include "io/disks.h"

/* The range of a file, from its first selected byte to its last, that is one map. */
struct piece {
	size_t file;
	uint64_t begin;
	uint64_t end;
	struct hoist__storage *storage; /* referenced */
};

struct hoist__checkpoint_map {
	hoist_checkpoint *checkpoint; /* referenced */
	size_t n_pieces;
	struct piece *pieces; /* in order of (file, begin) */
	struct hoist__ahead *ahead;
	char note[64];
};

static const struct hoist__file *file_of(const struct hoist__checkpoint_map *map, size_t file)
{
	return map->checkpoint->files[file].file;
}

/* --- pieces --- */

/* Parts of one file become one piece. */
static int join_parts(struct hoist__checkpoint_map *map,
		      const struct hoist__checkpoint_map_options *o)
{
	map->pieces = calloc(o->n_parts + 1, sizeof *map->pieces);
	if (map->pieces == NULL)
		return hoist__fail_nomem("a load", o->n_parts * sizeof *map->pieces);
	struct piece *last = NULL;
	for (size_t i = 0; i < o->n_parts; i++) {
		const struct hoist__checkpoint_part *part = &o->parts[i];
		if (part->begin == part->end)
			continue;
		if (last != NULL && last->file == part->file) {
			last->end = hoist__max_u64(last->end, part->end);
			continue;
		}
		last = &map->pieces[map->n_pieces++];
		*last = (struct piece){part->file, part->begin, part->end, NULL};
	}
	return 0;
}

/* The piece that holds the byte, or NULL. */
static const struct piece *piece_at(const struct hoist__checkpoint_map *map, size_t file,
				    uint64_t offset)
{
	size_t low = 0;
	size_t high = map->n_pieces;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct piece *piece = &map->pieces[middle];
		if (piece->file < file || (piece->file == file && piece->end <= offset))
			low = middle + 1;
		else
			high = middle;
	}
	const struct piece *found = low < map->n_pieces ? &map->pieces[low] : NULL;
	return found != NULL && found->file == file && found->begin <= offset ? found : NULL;
}

/* The bytes of @part within the piece, in which it begins: the part may end behind the piece, with
 * bytes that were not selected. */
static uint64_t bytes_in(const struct piece *piece, const struct hoist__checkpoint_part *part)
{
	return hoist__min_u64(part->end, piece->end) - part->begin;
}

/* --- maps --- */

static int map_files(struct hoist__checkpoint_map *map,
		     const struct hoist__checkpoint_map_options *o)
{
	int err = join_parts(map, o);
	for (size_t i = 0; i < map->n_pieces && err == 0; i++) {
		struct piece *piece = &map->pieces[i];
		struct hoist__file_map made = {0};
		err = hoist__file_map_open(file_of(map, piece->file), o->mode, piece->begin,
					   (size_t)(piece->end - piece->begin), &made);
		if (err == 0)
			err = hoist__storage_map(o->device, &made, o->mode == HOIST__MAP_READ_ONLY,
						 &piece->storage);
		if (err < 0)
			hoist__file_map_close(&made);
	}
	return err;
}

/* Finds the disks of the wanted parts' files, some of which it may name several times.  Returns: 0;
 * -ENOMEM, without a text. */
static int find_disks(const struct hoist__checkpoint_map *map,
		      const struct hoist__checkpoint_part *wanted, size_t n,
		      struct hoist__disks *ret)
{
	const struct hoist__file **files = calloc(n + 1, sizeof *files);
	unsigned n_files = 0;
	if (files == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (i == 0 || wanted[i].file != wanted[i - 1].file)
			files[n_files++] = file_of(map, wanted[i].file);
	hoist__disks_find(files, n_files, ret);
	free(files);
	return 0;
}

/* Starts reading the wanted parts ahead, each with its address in its map. */
static int start_ahead(struct hoist__checkpoint_map *map,
		       const struct hoist__checkpoint_part *wanted, size_t n)
{
	struct hoist__disks disks;
	struct hoist__ahead_part *parts = calloc(n + 1, sizeof *parts);
	if (parts == NULL || find_disks(map, wanted, n, &disks) < 0) {
		free(parts);
		return hoist__fail_nomem("a load", n * sizeof *parts);
	}
	for (size_t i = 0; i < n; i++) {
		const struct piece *piece = piece_at(map, wanted[i].file, wanted[i].begin);
		if (piece == NULL)
			continue; /* an empty part */
		uintptr_t base = hoist__storage_address(piece->storage);
		const struct hoist__file *file = file_of(map, piece->file);
		parts[i] = (struct hoist__ahead_part){
			.fd = file->fd,
			.path = file->path,
			.offset = wanted[i].begin,
			.bytes = bytes_in(piece, &wanted[i]),
			.address = (void *)(base + (wanted[i].begin - piece->begin)),
			.disk = hoist__disk_of(&disks, file),
		};
	}
	int err = hoist__ahead_start(parts, n, 0, &map->ahead);
	free(parts);
	return err;
}

/* --- the object --- */

static void note_mode(struct hoist__checkpoint_map *map,
		      const struct hoist__checkpoint_map_options *o)
{
	static const char *const modes[] = {
		[HOIST__MAP_READ_ONLY] = "read-only",
		[HOIST__MAP_COPY_ON_WRITE] = "copy-on-write",
		[HOIST__MAP_READ_WRITE] = "writes are the files'",
	};
	(void)snprintf(map->note, sizeof map->note, "mapped, %s%s", modes[o->mode],
		       o->populate ? ", populated" : "");
}

int hoist__checkpoint_map_open(const struct hoist__checkpoint_map_options *options,
			       struct hoist__checkpoint_map **ret)
{
	const struct hoist__checkpoint_part *wanted =
		options->wanted != NULL ? options->wanted : options->parts;
	size_t n_wanted = options->wanted != NULL ? options->n_wanted : options->n_parts;
	struct hoist__checkpoint_map *map = calloc(1, sizeof *map);
	if (map == NULL)
		return hoist__fail_nomem("a load", sizeof *map);
	map->checkpoint = hoist__checkpoint_ref(options->checkpoint);
	note_mode(map, options);
	int err = map_files(map, options);
	if (err == 0 && options->populate)
		err = start_ahead(map, wanted, n_wanted);
	if (err < 0) {
		hoist__checkpoint_map_close(map);
		return err;
	}
	*ret = map;
	return 0;
}

struct hoist__storage *hoist__checkpoint_map_place(const struct hoist__checkpoint_map *map,
						   size_t file, uint64_t offset, size_t *ret)
{
	const struct piece *piece = piece_at(map, file, offset);
	if (piece == NULL)
		return NULL;
	*ret = (size_t)(offset - piece->begin);
	return piece->storage;
}

bool hoist__checkpoint_map_step(struct hoist__checkpoint_map *map, uint64_t timeout_ns, int *err)
{
	int waited = 0;
	if (map->ahead != NULL)
		waited = hoist__ahead_wait(map->ahead, timeout_ns);
	if (waited == -EAGAIN)
		return false;
	*err = waited;
	return true;
}

void hoist__checkpoint_map_cancel(struct hoist__checkpoint_map *map)
{
	if (map->ahead != NULL)
		hoist__ahead_cancel(map->ahead);
}

uint64_t hoist__checkpoint_map_arrived(struct hoist__checkpoint_map *map, uint64_t total)
{
	uint64_t done = 0;
	uint64_t all = 0;
	if (map->ahead != NULL)
		hoist__ahead_progress(map->ahead, &done, &all);
	return all == 0 ? 0 : (uint64_t)((unsigned __int128)total * done / all);
}

bool hoist__checkpoint_map_failed(const struct hoist__checkpoint_map *map, size_t *file,
				  uint64_t *offset)
{
	const struct hoist__ahead_part *ahead =
		map->ahead != NULL ? hoist__ahead_failed(map->ahead, offset) : NULL;
	if (ahead == NULL)
		return false;
	size_t f = 0;
	while (file_of(map, f)->fd != ahead->fd)
		f++;
	*file = f;
	return true;
}

const char *hoist__checkpoint_map_note(const struct hoist__checkpoint_map *map)
{
	return map->note;
}

void hoist__checkpoint_map_close(struct hoist__checkpoint_map *map)
{
	if (map == NULL)
		return;
	hoist__ahead_stop(map->ahead);
	for (size_t i = 0; i < map->n_pieces; i++)
		hoist__storage_unref(map->pieces[i].storage);
	free(map->pieces);
	hoist_checkpoint_close(map->checkpoint);
	free(map);
}
