/* SPDX-License-Identifier: MIT */
/* Pieces in host memory: alone, and as planes of a stack.
 * The contract is in lib/plan/plan.h. */
#include "config.h"

#include <string.h>

#include "base/checked.h"
#include "base/convert.h"
#include "base/strided.h"
#include "lib/plan/plan-private.h"

/* Rows of so many bytes and more are moved one by one. */
#define LONG_ROW_BYTES ((size_t)256)

/* The sides of a square of elements that are converted before they are transposed. */
enum { SIDE = 64, MOST_ELEMENT = 4 };

size_t hoist__plan_row_after(const struct hoist__plan_piece *piece)
{
	if (piece->from == HOIST_DTYPE_INVALID)
		return piece->row_bytes;
	return piece->row_bytes / (hoist_dtype_bits(piece->from) / 8) *
	       (hoist_dtype_bits(piece->to) / 8);
}

bool hoist__plan_stack(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
		       struct hoist__piece_cursor *cursor, struct hoist__plan_stack *ret)
{
	const struct hoist__plan_piece *first = &ret->piece;
	struct hoist__plan_piece piece;
	*ret = (struct hoist__plan_stack){.planes = 1};
	if (!hoist__plan_piece(plan, chunk, cursor, &ret->piece))
		return false;
	struct hoist__piece_cursor next = *cursor;
	if (first->rows == 1 || plan->runs[cursor->run].n_levels < 2)
		return true;
	while (hoist__plan_piece(plan, chunk, &next, &piece) && next.run == cursor->run &&
	       piece.rows == first->rows && piece.at > first->at) {
		if (ret->planes == 1) {
			ret->at_plane = piece.at - first->at;
			ret->target_plane = piece.within - first->within;
		}
		if (piece.at - first->at != ret->planes * ret->at_plane ||
		    piece.within - first->within != (int64_t)ret->planes * ret->target_plane ||
		    piece.at_stride != first->at_stride)
			break;
		ret->planes++;
		*cursor = next;
	}
	return true;
}

/* --- moves --- */

static void move_rows(const struct hoist__plan_stack *stack, unsigned char *to,
		      const unsigned char *from)
{
	const struct hoist__plan_piece *piece = &stack->piece;
	for (size_t r = 0; r < piece->rows; r++) {
		unsigned char *row = to + (int64_t)r * piece->target_stride;
		const unsigned char *is = from + r * piece->at_stride;
		if (piece->from == HOIST_DTYPE_INVALID)
			memmove(row, is, piece->row_bytes);
		else
			hoist__convert(row, piece->to, is, piece->from,
				       piece->row_bytes / (hoist_dtype_bits(piece->from) / 8));
	}
}

/* Copies without converting.  The unit divides all distances. */
static void copy_planes(const struct hoist__plan_stack *stack, size_t row_bytes, unsigned char *to,
			const unsigned char *from)
{
	const struct hoist__plan_piece *piece = &stack->piece;
	uint64_t all = row_bytes | piece->at_stride | stack->at_plane |
		       (uint64_t)piece->target_stride | (uint64_t)stack->target_plane | 16;
	int64_t unit = (int64_t)(all & -all);
	const int64_t shape[] = {(int64_t)stack->planes, (int64_t)piece->rows,
				 (int64_t)row_bytes / unit};
	const int64_t target[] = {stack->target_plane / unit, piece->target_stride / unit, 1};
	const int64_t source[] = {(int64_t)stack->at_plane / unit, (int64_t)piece->at_stride / unit,
				  1};
	struct hoist__nest nest;
	if (hoist__nest_make(3, shape, target, source, (size_t)unit, &nest))
		hoist__nest_copy(&nest, to, from);
}

/* Converts and transposes, square by square.  Pre: rows are neighbouring elements. */
static void convert_planes(const struct hoist__plan_stack *stack, unsigned char *to,
			   const unsigned char *from)
{
	_Alignas(64) unsigned char square[SIDE * SIDE * MOST_ELEMENT];
	const struct hoist__plan_piece *piece = &stack->piece;
	size_t element = hoist__plan_row_after(piece);
	struct hoist__plan_stack part = *stack;
	part.piece.at_stride = element;
	part.at_plane = SIDE * element;
	for (size_t p = 0; p < stack->planes; p += part.planes) {
		part.planes = (size_t)hoist__min_u64(SIDE, stack->planes - p);
		for (size_t r = 0; r < piece->rows; r += part.piece.rows) {
			part.piece.rows = (size_t)hoist__min_u64(SIDE, piece->rows - r);
			for (size_t i = 0; i < part.planes; i++)
				hoist__convert(square + i * part.at_plane, piece->to,
					       from + (p + i) * stack->at_plane +
						       r * piece->at_stride,
					       piece->from, part.piece.rows);
			copy_planes(&part, element,
				    to + (int64_t)p * stack->target_plane +
					    (int64_t)r * piece->target_stride,
				    square);
		}
	}
}

void hoist__plan_move(const struct hoist__plan_stack *stack, unsigned char *to,
		      const unsigned char *from)
{
	const struct hoist__plan_piece *piece = &stack->piece;
	bool converts = piece->from != HOIST_DTYPE_INVALID;
	bool elements = converts && piece->row_bytes == hoist_dtype_bits(piece->from) / 8 &&
			piece->at_stride == piece->row_bytes;
	if (!converts && piece->rows > 1 && piece->row_bytes < LONG_ROW_BYTES) {
		copy_planes(stack, piece->row_bytes, to, from);
		return;
	}
	if (elements && stack->planes > 1) {
		convert_planes(stack, to, from);
		return;
	}
	for (size_t p = 0; p < stack->planes; p++)
		move_rows(stack, to + (int64_t)p * stack->target_plane, from + p * stack->at_plane);
}
