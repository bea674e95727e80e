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

int plan_make_one(const hoist_checkpoint *checkpoint, const struct plan_one *one,
		  struct hoist__plan *plan)
{
	const struct hoist__plan_asked asked = {.kind = one->kind,
						.patterns = one->patterns,
						.n_patterns = one->n_patterns,
						.slices = one->slices,
						.n_slices = one->n_slices,
						.dtype = one->dtype};
	const struct hoist__plan_options options = {.wants = &asked,
						    .n_wants = 1,
						    .tensor_align = one->tensor_align,
						    .lot_bytes = one->lot_bytes,
						    .max_parts = one->max_parts};
	return hoist__plan_make(checkpoint, &options, plan);
}

/* --- carrying out --- */

static void write_once(const struct plan_destination *destination, uint64_t target,
		       const unsigned char *bytes, size_t n)
{
	unsigned char before = 0;
	memcpy(destination->bytes + target, bytes, n);
	for (size_t i = 0; i < n; i++) {
		before |= destination->written[target + i]++;
		destination->when[target + i] = destination->chunk;
	}
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
	cr_assert_leq(chunk->bytes * chunk->n_parts, max_bytes / e->share);
	cr_assert(chunk->need <= chunk->bytes && chunk->skip < chunk->need && chunk->useful > 0,
		  "of %zu bytes %zu are needed, %zu skipped, %zu useful", chunk->bytes, chunk->need,
		  chunk->skip, chunk->useful);
	cr_assert_leq(chunk->need - 1, e->end - 1 - chunk->offset);
	cr_assert(chunk->n_parts == 1 || chunk->part_stride % e->align == 0);
	if (e->staged)
		return;
	cr_assert_eq(chunk->target % e->align, 0);
	if (!plan->lots[e->lot].in_place)
		cr_assert_leq(chunk->target + chunk->bytes, plan->lots[e->lot].bytes);
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

static uint64_t move_piece(const struct hoist__plan *plan, const struct hoist__plan_piece *piece,
			   const unsigned char *slot, size_t slot_bytes,
			   const struct plan_destination *destination)
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
		for (size_t p = 0; p < piece->n_places; p++) {
			const struct hoist__plan_tensor *place = hoist__plan_place(plan, piece, p);
			uint64_t first = place->target + (uint64_t)piece->within +
					 r * (uint64_t)piece->target_stride;
			uint64_t lot = destination->lots[place->lot];
			if (piece->rows > 1 && !plan->lots[place->lot].in_place)
				cr_assert_eq(piece->target_stride, (int64_t)bytes);
			cr_assert_leq(lot + first + bytes, destination->lots[place->lot + 1]);
			write_once(destination, lot + first, row, bytes);
			destination->useful[place->lot] += piece->row_bytes;
		}
	}
	free(row);
	return piece->rows * piece->row_bytes;
}

/* Lays a stack out, and compares the rows of its copy with what the pieces brought. */
static void check_rows(const struct hoist__plan *plan, const struct hoist__laid *laid,
		       const unsigned char *slot, const struct plan_destination *destination,
		       struct plan_seen *seen)
{
	size_t bytes = laid->stack.planes * laid->stack.piece.rows * laid->row_bytes;
	size_t row = bytes / laid->rows;
	uint64_t to = destination->lots[laid->lot] + laid->target;
	unsigned char *out = malloc(bytes);
	cr_assert(out != NULL && bytes % laid->rows == 0);
	hoist__plan_move(&laid->stack, out, slot + laid->stack.piece.at);
	cr_assert(laid->rows == 1 || (plan->lots[laid->lot].in_place && laid->stride > row));
	for (size_t r = 0; r < laid->rows; r++)
		cr_assert_eq(memcmp(destination->bytes + to + r * laid->stride, out + r * row, row),
			     0, "row %zu of %zu", r, laid->rows);
	seen->planes += laid->stack.planes > 1;
	free(out);
}

/* Compares one want's pieces in the slot with the places that they will have.  Returns the bytes in
 * the file. */
static uint64_t check_laid_want(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
				unsigned want, const unsigned char *slot,
				const struct plan_destination *destination, struct plan_seen *seen)
{
	struct hoist__lay_cursor cursor = {0};
	struct hoist__laid laid;
	size_t used = plan->wants[want].number * chunk->laid;
	size_t end = used + chunk->laid;
	uint64_t bytes = 0;
	uint64_t last = 0; /* where the copy ends in the destination */
	while (hoist__plan_lay(plan, chunk, want, &cursor, &laid)) {
		uint64_t lot = destination->lots[laid.lot];
		size_t rows = laid.stack.planes * laid.stack.piece.rows;
		size_t moved = rows * laid.row_bytes;
		cr_assert_eq(laid.at - laid.gap, used);
		cr_assert(plan->lots[laid.lot].want == want && (laid.joins || laid.gap == 0));
		cr_assert(!laid.joins || lot + laid.target - laid.gap == last);
		for (size_t i = 1; i <= laid.gap; i++)
			destination->padding[lot + laid.target - i] = true;
		seen->copies += !laid.joins;
		check_rows(plan, &laid, slot, destination, seen);
		used = laid.at + moved;
		last = lot + laid.target + moved;
		bytes += rows * laid.stack.piece.row_bytes;
	}
	cr_assert_leq(used, end);
	return bytes;
}

/* The pieces of all wants of devices have room in the slot, and none is left out. */
static void check_laid(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
		       size_t max_bytes, const unsigned char *slot,
		       const struct plan_destination *destination, struct plan_seen *seen)
{
	struct hoist__piece_cursor cursor = {0};
	struct hoist__plan_piece piece;
	uint64_t should = 0;
	uint64_t is = 0;
	cr_assert_leq(chunk->laid * plan->n_device_wants, max_bytes - chunk->bytes);
	while (hoist__plan_piece(plan, chunk, &cursor, &piece))
		for (size_t p = 0; p < piece.n_places; p++) {
			unsigned want = hoist__plan_place(plan, &piece, p)->want;
			if (plan->wants[want].kind == HOIST__PLAN_DEVICE)
				should += piece.rows * piece.row_bytes;
		}
	for (unsigned w = 0; w < plan->n_wants; w++)
		if (plan->wants[w].kind == HOIST__PLAN_DEVICE)
			is += check_laid_want(plan, chunk, w, slot, destination, seen);
	cr_assert_eq(is, should);
	seen->laid++;
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
		bytes += move_piece(plan, &piece, slot, chunk->bytes * chunk->n_parts, destination);
		n++;
	}
	cr_assert_eq(bytes, chunk->useful);
	cr_assert_not(hoist__plan_piece(plan, chunk, &cursor, &piece));
	seen->pieces += n;
	seen->most_pieces = n > seen->most_pieces ? n : seen->most_pieces;
}

static bool goes_to_device(const struct hoist__plan *plan)
{
	bool any = false;
	for (size_t w = 0; w < plan->n_wants; w++)
		any = any || plan->wants[w].kind == HOIST__PLAN_DEVICE;
	return any;
}

void plan_check_extents(const struct hoist__plan *plan)
{
	for (size_t e = 1; e < plan->n_extents; e++) {
		const struct hoist__plan_extent *last = &plan->extents[e - 1];
		const struct hoist__plan_extent *next = &plan->extents[e];
		/* Tensors of one want that overlap, one of them converted for a device, are read for
		 * each. */
		bool overlap = goes_to_device(plan) && plan->has_conversion && !last->tight &&
			       !next->tight;
		cr_assert_leq(last->tier, next->tier);
		cr_assert(last->tier < next->tier || last->file < next->file ||
			  (last->file == next->file && last->begin <= next->begin &&
			   (overlap || last->end <= next->begin)));
	}
}

/* Behind the last byte of a lot; places in place are addresses from 0 on. */
static uint64_t bytes_of_lot(const struct hoist__plan *plan, size_t lot)
{
	uint64_t bytes = plan->lots[lot].bytes;
	for (size_t t = 0; plan->lots[lot].in_place && t < plan->n_tensors; t++)
		if (plan->tensors[t].lot == lot)
			bytes = hoist__max_u64(bytes,
					       plan->tensors[t].target + plan->tensors[t].bytes);
	return bytes;
}

static struct plan_destination make_destination(const struct hoist__plan *plan)
{
	struct plan_destination ret = {.lots = calloc(plan->n_lots + 1, sizeof *ret.lots),
				       .useful = calloc(plan->n_lots + 1, sizeof *ret.useful)};
	cr_assert(ret.lots != NULL && ret.useful != NULL);
	for (size_t l = 0; l < plan->n_lots; l++)
		ret.lots[l + 1] = ret.lots[l] + bytes_of_lot(plan, l);
	ret.bytes = calloc(1, ret.lots[plan->n_lots] + 1);
	ret.written = calloc(1, ret.lots[plan->n_lots] + 1);
	ret.when = calloc(ret.lots[plan->n_lots] + 1, sizeof *ret.when);
	ret.padding = calloc(ret.lots[plan->n_lots] + 1, sizeof *ret.padding);
	cr_assert(ret.bytes != NULL && ret.written != NULL && ret.when != NULL &&
		  ret.padding != NULL);
	return ret;
}

static void write_image(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
			const unsigned char *slot, const struct plan_destination *destination)
{
	size_t lot = plan->extents[chunk->extent].lot;
	write_once(destination, destination->lots[lot] + chunk->target + chunk->skip,
		   slot + chunk->skip, chunk->need - chunk->skip);
	destination->useful[lot] += chunk->useful;
}

struct plan_destination plan_run(const struct hoist__plan *plan, size_t max_bytes,
				 struct plan_seen *seen)
{
	struct plan_destination ret = make_destination(plan);
	unsigned char *slot = malloc(max_bytes);
	cr_assert_not_null(slot);
	*seen = (struct plan_seen){0};
	struct hoist__cursor cursor = {0};
	struct hoist__chunk chunk;
	uint64_t useful = 0;
	while (hoist__plan_next(plan, max_bytes, &cursor, &chunk)) {
		check_chunk(plan, &chunk, max_bytes);
		read_chunk(plan, &chunk, slot);
		if (plan->extents[chunk.extent].staged)
			move_pieces(plan, &chunk, slot, &ret, seen);
		else
			write_image(plan, &chunk, slot, &ret);
		if (chunk.laid > 0)
			check_laid(plan, &chunk, max_bytes, slot, &ret, seen);
		useful += chunk.useful;
		seen->chunks++;
		ret.chunk++;
		seen->reads += chunk.n_parts;
		seen->read += chunk.n_parts * chunk.bytes;
	}
	cr_assert_eq(useful, plan->bytes);
	for (size_t l = 0; l < plan->n_lots; l++)
		cr_assert_eq(ret.useful[l], plan->lots[l].useful, "lot %zu", l);
	bool hit = false;
	for (uint64_t i = 0; i < ret.lots[plan->n_lots]; i++)
		hit = hit || (ret.padding[i] && ret.written[i] > 0);
	cr_assert_not(hit, "padding hits a tensor");
	cr_assert_not(hoist__plan_next(plan, max_bytes, &cursor, &chunk));
	free(slot);
	return ret;
}

void plan_put_away(struct plan_destination *destination)
{
	free(destination->bytes);
	free(destination->written);
	free(destination->when);
	free(destination->padding);
	free(destination->lots);
	free(destination->useful);
}

uint64_t plan_place(const struct plan_destination *destination,
		    const struct hoist__plan_tensor *tensor)
{
	return destination->lots[tensor->lot] + tensor->target;
}

bool plan_is_written(const struct plan_destination *destination,
		     const struct hoist__plan_tensor *tensor)
{
	bool ret = true;
	for (uint64_t i = 0; i < tensor->bytes; i++)
		ret = ret && destination->written[plan_place(destination, tensor) + i] == 1;
	return ret;
}

void plan_check_interleaved(const struct hoist__plan *plan, size_t max_bytes, uint64_t step)
{
	struct hoist__cursor cursor = {0};
	struct hoist__chunk chunk;
	const struct hoist__plan_extent *before = NULL;
	uint64_t end = 0; /* of the chunks so far */
	while (hoist__plan_next(plan, max_bytes, &cursor, &chunk)) {
		const struct hoist__plan_extent *extent = &plan->extents[chunk.extent];
		if (before != NULL &&
		    (before->file != extent->file || before->tier != extent->tier))
			end = 0;
		before = extent;
		cr_assert_leq(end, chunk.offset + step + extent->align);
		end = hoist__max_u64(end, chunk.offset + (chunk.n_parts - 1) * chunk.part_stride +
						  chunk.need);
	}
}
