/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "lib/load-map.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "alloc/pool.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "io/ahead.h"
#include "io/disks.h"
#include "io/lazy.h"

/* Parts of a file that are so close share a piece of lazy memory: a piece begins a new window. */
#define NEAR_BYTES HOIST__LAZY_WINDOW_BYTES

/* A run of bytes of one file in one storage. */
struct piece {
	size_t file;
	uint64_t begin;
	uint64_t end;
	struct hoist__storage *storage; /* referenced */
	size_t at;
};

/* What the bytes of a lazy storage need. */
struct keeper {
	struct hoist__lazy *lazy;
	hoist_checkpoint *checkpoint;
};

struct hoist__load_map {
	hoist_checkpoint *checkpoint; /* referenced */
	size_t n_pieces;
	struct piece *pieces; /* in order of (file, begin) */
	struct hoist__ahead *ahead;
	struct hoist__lazy *lazy; /* its storage's */
	bool populate;
	char note[256];
};

static const struct hoist__file *file_of(const struct hoist__load_map *map, size_t file)
{
	return map->checkpoint->files[file].file;
}

/* --- pieces --- */

/* Parts of one file become one piece unless a gap is wider than @gap. */
static int join_parts(struct hoist__load_map *map, const struct hoist__load_map_options *o,
		      uint64_t gap)
{
	map->pieces = calloc(o->n_parts + 1, sizeof *map->pieces);
	if (map->pieces == NULL)
		return hoist__fail_nomem("a load", o->n_parts * sizeof *map->pieces);
	struct piece *last = NULL;
	for (size_t i = 0; i < o->n_parts; i++) {
		const struct hoist__load_part *part = &o->parts[i];
		if (part->begin == part->end)
			continue;
		if (last != NULL && last->file == part->file &&
		    (part->begin <= last->end || part->begin - last->end <= gap)) {
			last->end = hoist__max_u64(last->end, part->end);
			continue;
		}
		last = &map->pieces[map->n_pieces++];
		*last = (struct piece){part->file, part->begin, part->end, NULL, 0};
	}
	return 0;
}

static void drop_pieces(struct hoist__load_map *map)
{
	for (size_t i = 0; i < map->n_pieces; i++)
		hoist__storage_unref(map->pieces[i].storage);
	free(map->pieces);
	map->pieces = NULL;
	map->n_pieces = 0;
}

/* The one that holds the byte, or NULL. */
static const struct piece *piece_at(const struct hoist__load_map *map, size_t file, uint64_t offset)
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

/* So much of @part, which begins in the piece: it may end behind it, in bytes that nobody asked
 * for. */
static uint64_t bytes_in(const struct piece *piece, const struct hoist__load_part *part)
{
	return hoist__min_u64(part->end, piece->end) - part->begin;
}

/* --- maps --- */

static int map_files(struct hoist__load_map *map, const struct hoist__load_map_options *o)
{
	int err = join_parts(map, o, UINT64_MAX);
	for (size_t i = 0; i < map->n_pieces && err == 0; i++) {
		struct piece *piece = &map->pieces[i];
		struct hoist__map made = {0};
		err = hoist__map_open(file_of(map, piece->file), o->mode, piece->begin,
				      (size_t)(piece->end - piece->begin), &made);
		if (err == 0)
			err = hoist__storage_map(o->device, &made, o->mode == HOIST__MAP_READ_ONLY,
						 &piece->storage);
		if (err < 0)
			hoist__map_close(&made);
	}
	return err;
}

/* What is wanted, each where it lies in its map. */
/* Of the files that are wanted, which are in order.  Returns: 0; -ENOMEM, without a text. */
static int find_disks(const struct hoist__load_map *map, const struct hoist__load_part *wanted,
		      size_t n, struct hoist__disks *ret)
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

static int start_ahead(struct hoist__load_map *map, const struct hoist__load_part *wanted, size_t n)
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

/* --- lazy --- */

static void end_keeper(void *context)
{
	struct keeper *keeper = context;
	hoist__lazy_close(keeper->lazy);
	hoist_checkpoint_close(keeper->checkpoint);
	free(keeper);
}

/* Takes over @lazy. */
static int wrap_lazy(const struct hoist__load_map_options *o, struct hoist__lazy *lazy,
		     struct hoist__storage **ret)
{
	struct keeper *keeper = malloc(sizeof *keeper);
	const struct hoist__foreign foreign = {
		.device = o->device,
		.kind = HOIST__MEMORY_HOST,
		.address = (uintptr_t)hoist__lazy_data(lazy),
		.bytes = hoist__lazy_bytes(lazy),
		.read_only = o->mode == HOIST__MAP_READ_ONLY,
		.release = end_keeper,
		.context = keeper,
	};
	int err = keeper == NULL ? hoist__fail_nomem("a load", sizeof *keeper)
				 : hoist__storage_wrap(&foreign, ret);
	if (err < 0) {
		free(keeper);
		hoist__lazy_close(lazy);
		return err;
	}
	*keeper = (struct keeper){lazy, hoist__checkpoint_ref(o->checkpoint)};
	return 0;
}

/* The threads that fill would otherwise decide it, who may run anywhere. */
static struct hoist__placement near_caller(void)
{
	struct hoist__placement placement = {.policy = HOIST__POLICY_LOCAL};
	unsigned cpu;
	unsigned node;
	if (getcpu(&cpu, &node) == 0) {
		placement.policy = HOIST__POLICY_PREFER;
		hoist__nodeset_add(&placement.nodes, (int)node);
	}
	return placement;
}

static int open_lazy(struct hoist__load_map *map, const struct hoist__load_map_options *o,
		     struct hoist__storage **ret)
{
	struct hoist__placement here = near_caller();
	struct hoist__lazy_range *ranges = calloc(map->n_pieces + 1, sizeof *ranges);
	if (ranges == NULL)
		return hoist__fail_nomem("a load", map->n_pieces * sizeof *ranges);
	for (size_t i = 0; i < map->n_pieces; i++)
		ranges[i] = (struct hoist__lazy_range){
			.file = file_of(map, map->pieces[i].file),
			.begin = map->pieces[i].begin,
			.end = map->pieces[i].end,
		};
	struct hoist__lazy *lazy;
	int err = hoist__lazy_open(ranges, map->n_pieces,
				   o->placement != NULL ? o->placement : &here, &lazy);
	if (err == 0)
		err = wrap_lazy(o, lazy, ret);
	for (size_t i = 0; err == 0 && i < map->n_pieces; i++)
		map->pieces[i].at = ranges[i].at;
	if (err == 0)
		map->lazy = lazy;
	free(ranges);
	return err;
}

static int fill_lazily(struct hoist__load_map *map, const struct hoist__load_map_options *o)
{
	int err = join_parts(map, o, NEAR_BYTES);
	if (err < 0 || map->n_pieces == 0)
		return err;
	struct hoist__storage *storage;
	err = open_lazy(map, o, &storage);
	if (err < 0)
		return err;
	for (size_t i = 0; i < map->n_pieces; i++)
		map->pieces[i].storage = hoist__storage_ref(storage);
	hoist__storage_unref(storage);
	return 0;
}

static int want_lazily(struct hoist__load_map *map, const struct hoist__load_part *wanted, size_t n)
{
	int err = 0;
	for (size_t i = 0; i < n && err == 0; i++) {
		const struct piece *piece = piece_at(map, wanted[i].file, wanted[i].begin);
		if (piece != NULL && wanted[i].end > wanted[i].begin)
			err = hoist__lazy_want(map->lazy,
					       piece->at + (size_t)(wanted[i].begin - piece->begin),
					       (size_t)bytes_in(piece, &wanted[i]));
	}
	return err;
}

/* --- the object --- */

static void note_mode(struct hoist__load_map *map, const struct hoist__load_map_options *o)
{
	static const char *const modes[] = {
		[HOIST__MAP_READ_ONLY] = "read-only",
		[HOIST__MAP_COPY_ON_WRITE] = "copy-on-write",
		[HOIST__MAP_READ_WRITE] = "writes are the files'",
	};
	if (map->lazy != NULL)
		(void)snprintf(map->note, sizeof map->note, "%s", hoist__lazy_note(map->lazy));
	else
		(void)snprintf(map->note, sizeof map->note, "mapped, %s%s", modes[o->mode],
			       o->populate ? ", populated" : "");
}

/* Memory that is filled on touch, or, whatever it is that forbids that, maps. */
static int take_memory(struct hoist__load_map *map, const struct hoist__load_map_options *o)
{
	if (o->lazy && o->mode == HOIST__MAP_READ_WRITE)
		return hoist__fail(-EINVAL,
				   "memory that is filled when touched (HOIST_IO_LAZY) is not the "
				   "files': writes to them need HOIST_IO_MAP");
	int err = o->lazy ? fill_lazily(map, o) : map_files(map, o);
	note_mode(map, o);
	if (err == 0 || !o->lazy)
		return err;
	char why[160];
	(void)snprintf(why, sizeof why, "%s", hoist__error_text());
	hoist__log(load, "not lazy, but mapped: %s", why);
	drop_pieces(map);
	(void)snprintf(map->note, sizeof map->note, "mapped, as it cannot be lazy: %s", why);
	return map_files(map, o);
}

/* Lazy memory that is populated is memory of the process; pages of files can be taken back.
 * Windows are filled whole, and those of parts in order come in order. */
static int check_room(const struct hoist__load_map *map, const struct hoist__load_part *wanted,
		      size_t n)
{
	uint64_t bytes = 0;
	uint64_t counted = 0; /* up to this byte of the memory */
	for (size_t i = 0; i < n; i++) {
		const struct piece *piece = piece_at(map, wanted[i].file, wanted[i].begin);
		if (piece == NULL || wanted[i].end <= wanted[i].begin)
			continue;
		uint64_t at = piece->at + (wanted[i].begin - piece->begin);
		uint64_t end =
			hoist__round_up(at + bytes_in(piece, &wanted[i]), HOIST__LAZY_WINDOW_BYTES);
		at = hoist__max_u64(hoist__round_down(at, HOIST__LAZY_WINDOW_BYTES), counted);
		bytes += end > at ? end - at : 0;
		counted = hoist__max_u64(end, counted);
	}
	return hoist__pools_make_room(bytes, "host memory");
}

int hoist__load_map_open(const struct hoist__load_map_options *options,
			 struct hoist__load_map **ret)
{
	const struct hoist__load_part *wanted =
		options->wanted != NULL ? options->wanted : options->parts;
	size_t n_wanted = options->wanted != NULL ? options->n_wanted : options->n_parts;
	struct hoist__load_map *map = calloc(1, sizeof *map);
	if (map == NULL)
		return hoist__fail_nomem("a load", sizeof *map);
	map->checkpoint = hoist__checkpoint_ref(options->checkpoint);
	map->populate = options->populate;
	int err = take_memory(map, options);
	if (err == 0 && map->populate && map->lazy != NULL)
		err = check_room(map, wanted, n_wanted);
	if (err == 0 && map->populate && map->lazy != NULL)
		err = want_lazily(map, wanted, n_wanted);
	else if (err == 0 && map->populate)
		err = start_ahead(map, wanted, n_wanted);
	if (err < 0) {
		hoist__load_map_close(map);
		return err;
	}
	*ret = map;
	return 0;
}

struct hoist__storage *hoist__load_map_place(const struct hoist__load_map *map, size_t file,
					     uint64_t offset, size_t *ret)
{
	const struct piece *piece = piece_at(map, file, offset);
	if (piece == NULL)
		return NULL;
	*ret = piece->at + (size_t)(offset - piece->begin);
	return piece->storage;
}

bool hoist__load_map_step(struct hoist__load_map *map, uint64_t timeout_ns, int *err)
{
	int waited = 0;
	if (map->populate && map->lazy != NULL)
		waited = hoist__lazy_wait(map->lazy, timeout_ns);
	else if (map->ahead != NULL)
		waited = hoist__ahead_wait(map->ahead, timeout_ns);
	if (waited == -EAGAIN)
		return false;
	*err = waited;
	return true;
}

void hoist__load_map_cancel(struct hoist__load_map *map)
{
	if (map->lazy != NULL)
		hoist__lazy_unwant(map->lazy);
	if (map->ahead != NULL)
		hoist__ahead_cancel(map->ahead);
}

uint64_t hoist__load_map_arrived(struct hoist__load_map *map, uint64_t total)
{
	uint64_t done = 0;
	uint64_t all = 0;
	if (map->lazy != NULL && map->populate)
		hoist__lazy_progress(map->lazy, &done, &all);
	else if (map->ahead != NULL)
		hoist__ahead_progress(map->ahead, &done, &all);
	return all == 0 ? 0 : (uint64_t)((unsigned __int128)total * done / all);
}

int hoist__load_map_error(struct hoist__load_map *map)
{
	return map->lazy != NULL ? hoist__lazy_error(map->lazy) : 0;
}

bool hoist__load_map_failed(const struct hoist__load_map *map, size_t *file, uint64_t *offset)
{
	const struct hoist__file *lazily = NULL;
	const struct hoist__ahead_part *ahead = NULL;
	if (map->lazy != NULL)
		lazily = hoist__lazy_failed(map->lazy, offset);
	else if (map->ahead != NULL)
		ahead = hoist__ahead_failed(map->ahead, offset);
	if (lazily == NULL && ahead == NULL)
		return false;
	size_t f = 0;
	while (file_of(map, f) != lazily && (ahead == NULL || file_of(map, f)->fd != ahead->fd))
		f++;
	*file = f;
	return true;
}

bool hoist__load_map_is_lazy(const struct hoist__load_map *map)
{
	return map->lazy != NULL;
}

const char *hoist__load_map_note(const struct hoist__load_map *map)
{
	return map->note;
}

void hoist__load_map_close(struct hoist__load_map *map)
{
	if (map == NULL)
		return;
	hoist__ahead_stop(map->ahead);
	drop_pieces(map);
	hoist_checkpoint_close(map->checkpoint);
	free(map);
}
