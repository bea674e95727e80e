/* SPDX-License-Identifier: MIT */
/* Builds checkpoints of structs, and carries plans out in memory, read by read. */
#include "config.h"

#include "tests/support/lib-plan.h"
#include "tests/support/random.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/convert.h"
#include "base/dtype.h"

struct plan_checkpoint plan_made;

/* --- checkpoints --- */

void plan_begin(void)
{
	uint64_t seed = 7;
	for (size_t f = 0; f < PLAN_FILES; f++) {
		plan_made.files[f] = (struct hoist__file){.offset_align = 512};
		plan_made.shards[f].file = &plan_made.files[f];
		if (plan_made.bytes[f] != NULL)
			continue;
		plan_made.bytes[f] = malloc(PLAN_FILE_BYTES);
		cr_assert_not_null(plan_made.bytes[f]);
		random_fill(&seed, plan_made.bytes[f], PLAN_FILE_BYTES);
	}
	plan_made.checkpoint = (hoist_checkpoint){.n_files = PLAN_FILES,
						  .files = plan_made.shards,
						  .tensors = plan_made.entries,
						  .by_name = plan_made.by_name};
}

uint64_t plan_bytes(hoist_dtype dtype, uint64_t n)
{
	size_t bytes = 0;
	cr_assert_eq(hoist_dtype_bytes(dtype, n, &bytes), 0);
	return bytes;
}

struct hoist__tensor *plan_add(size_t file, uint64_t offset, hoist_dtype dtype, int rank,
			       const int64_t *shape)
{
	size_t i = plan_made.checkpoint.n_tensors++;
	cr_assert_lt(i, PLAN_MAX_TENSORS);
	snprintf(plan_made.names[i], sizeof plan_made.names[i], "t%03zu", i);
	uint64_t n = 1;
	for (int a = 0; a < rank; a++) {
		plan_made.shapes[i][a] = shape[a];
		n *= (uint64_t)shape[a];
	}
	plan_made.tensors[i] = (struct hoist__tensor){
		.name = plan_made.names[i],
		.name_bytes = strlen(plan_made.names[i]),
		.dtype = dtype,
		.rank = rank,
		.shape = rank > 0 ? plan_made.shapes[i] : NULL,
		.bytes = plan_bytes(dtype, n),
		.offset = offset,
	};
	plan_made.entries[i] =
		(struct hoist__checkpoint_tensor){.tensor = &plan_made.tensors[i], .file = file};
	plan_made.by_name[i] = i;
	return &plan_made.tensors[i];
}

/* --- carrying out --- */

static void write_once(const struct plan_destination *destination, uint64_t target,
		       const unsigned char *bytes, size_t n)
{
	unsigned char before = 0;
	memcpy(destination->bytes + target, bytes, n);
	for (size_t i = 0; i < n; i++)
		before |= destination->written[target + i]++;
	cr_assert_eq(before, 0, "some of bytes %llu.. are written twice",
		     (unsigned long long)target);
}

static void check_chunk(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
			size_t max_bytes)
{
	const struct hoist__plan_extent *e = &plan->extents[chunk->extent];
	cr_assert(e->align >= HOIST__PLAN_ALIGN && plan->align >= e->align);
	cr_assert_eq(chunk->offset % e->align, 0);
	cr_assert_eq(chunk->bytes % e->align, 0);
	cr_assert(chunk->bytes > 0 && chunk->n_parts >= 1 && chunk->n_parts <= plan->max_parts);
	cr_assert_leq(chunk->bytes * chunk->n_parts, e->half ? max_bytes / 2 : max_bytes);
	cr_assert(chunk->need <= chunk->bytes && chunk->skip < chunk->need && chunk->useful > 0,
		  "of %zu bytes %zu are needed, %zu skipped, %zu useful", chunk->bytes, chunk->need,
		  chunk->skip, chunk->useful);
	cr_assert_leq(chunk->need - 1, e->end - 1 - chunk->offset);
	cr_assert(chunk->n_parts == 1 || chunk->part_stride % e->align == 0);
	if (e->staged)
		return;
	cr_assert_eq(chunk->target % e->align, 0);
	cr_assert_leq(chunk->target + chunk->bytes, plan->destination_bytes);
	cr_assert_eq(chunk->target - e->image,
		     chunk->offset - hoist__round_down(e->begin, e->align));
	uint64_t end = chunk->target + chunk->bytes;
	cr_assert(end % max_bytes == 0 || chunk->offset + chunk->need == e->end);
	cr_assert_eq(chunk->target / max_bytes, (end - 1) / max_bytes);
}

/* The disk gives no more of each part than is needed. */
static void read_chunk(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
		       unsigned char *slot)
{
	const unsigned char *file = plan_made.bytes[plan->extents[chunk->extent].file];
	for (unsigned p = 0; p < chunk->n_parts; p++) {
		uint64_t offset = chunk->offset + p * chunk->part_stride;
		cr_assert_leq(offset + chunk->need, PLAN_FILE_BYTES);
		memset(slot + p * chunk->bytes, 0xee, chunk->bytes);
		memcpy(slot + p * chunk->bytes, file + offset, chunk->need);
	}
}

static size_t size_of(hoist_dtype dtype)
{
	return hoist_dtype_bits(dtype) / 8;
}

static uint64_t move_piece(const struct hoist__plan_piece *piece, const unsigned char *slot,
			   size_t slot_bytes, const struct plan_destination *destination)
{
	unsigned char *row = malloc(2 * piece->row_bytes);
	cr_assert(row != NULL && piece->rows > 0 && piece->row_bytes > 0);
	for (size_t r = 0; r < piece->rows; r++) {
		size_t at = piece->at + r * piece->at_stride;
		size_t bytes = piece->row_bytes;
		cr_assert_leq(at + bytes, slot_bytes);
		memcpy(row, slot + at, bytes);
		if (piece->to != HOIST_DTYPE_INVALID) {
			size_t n = bytes / size_of(piece->from);
			cr_assert_eq(bytes % size_of(piece->from), 0, "a piece cuts an element");
			hoist__convert(row, piece->to, slot + at, piece->from, n);
			bytes = n * size_of(piece->to);
		}
		if (piece->rows > 1)
			cr_assert_eq(piece->target_stride, bytes);
		write_once(destination, piece->target + r * piece->target_stride, row, bytes);
	}
	free(row);
	return piece->rows * piece->row_bytes;
}

static void move_pieces(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
			const unsigned char *slot, const struct plan_destination *destination,
			struct plan_seen *seen)
{
	struct hoist__piece_cursor cursor = {0};
	struct hoist__plan_piece piece;
	size_t n = 0;
	uint64_t bytes = 0;
	while (hoist__plan_piece(plan, chunk, &cursor, &piece)) {
		bytes += move_piece(&piece, slot, chunk->bytes * chunk->n_parts, destination);
		n++;
	}
	cr_assert_eq(bytes, chunk->useful);
	cr_assert_not(hoist__plan_piece(plan, chunk, &cursor, &piece));
	seen->pieces += n;
	seen->most_pieces = n > seen->most_pieces ? n : seen->most_pieces;
}

static void check_extents(const struct hoist__plan *plan)
{
	for (size_t e = 1; e < plan->n_extents; e++) {
		const struct hoist__plan_extent *last = &plan->extents[e - 1];
		const struct hoist__plan_extent *next = &plan->extents[e];
		/* A tensor that is converted for a device is read for itself. */
		bool overlap = plan->kind == HOIST__PLAN_DEVICE && plan->has_conversion;
		cr_assert(last->file < next->file ||
			  (last->file == next->file && last->begin <= next->begin &&
			   (overlap || last->end <= next->begin)));
	}
}

struct plan_destination plan_run(const struct hoist__plan *plan, size_t max_bytes,
				 struct plan_seen *seen)
{
	struct plan_destination ret = {calloc(1, plan->destination_bytes + 1),
				       calloc(1, plan->destination_bytes + 1)};
	unsigned char *slot = malloc(max_bytes);
	cr_assert(ret.bytes != NULL && ret.written != NULL && slot != NULL);
	*seen = (struct plan_seen){0};
	check_extents(plan);
	struct hoist__cursor cursor = {0};
	struct hoist__chunk chunk;
	uint64_t useful = 0;
	while (hoist__plan_next(plan, max_bytes, &cursor, &chunk)) {
		check_chunk(plan, &chunk, max_bytes);
		read_chunk(plan, &chunk, slot);
		if (plan->extents[chunk.extent].staged)
			move_pieces(plan, &chunk, slot, &ret, seen);
		else
			write_once(&ret, chunk.target + chunk.skip, slot + chunk.skip,
				   chunk.need - chunk.skip);
		useful += chunk.useful;
		seen->chunks++;
		seen->reads += chunk.n_parts;
		seen->read += chunk.n_parts * chunk.bytes;
	}
	cr_assert_eq(useful, plan->bytes);
	cr_assert_not(hoist__plan_next(plan, max_bytes, &cursor, &chunk));
	free(slot);
	return ret;
}

void plan_put_away(struct plan_destination *destination)
{
	free(destination->bytes);
	free(destination->written);
}

bool plan_is_written(const struct plan_destination *destination, uint64_t target, uint64_t bytes)
{
	bool ret = true;
	for (uint64_t i = 0; i < bytes; i++)
		ret = ret && destination->written[target + i] == 1;
	return ret;
}
