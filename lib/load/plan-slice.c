/* SPDX-License-Identifier: MIT */
/* Turns one tensor and its ranges into a shape, and into rows in the file.
 * The contract is in lib/load/plan-private.h. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "lib/load/plan-private.h"

const char *hoist__plan_shape_text(const struct hoist__tensor *tensor,
				   struct hoist__plan_text *text)
{
	size_t at = 0;
	text->text[at++] = '[';
	for (int a = 0; a < tensor->rank && at < sizeof text->text - 32; a++)
		at += (size_t)snprintf(text->text + at, sizeof text->text - at, "%s%" PRId64,
				       a > 0 ? ", " : "", tensor->shape[a]);
	(void)snprintf(text->text + at, sizeof text->text - at, "]");
	return text->text;
}

/* The ranges as text: "[:, 1:3]". */
static const char *ranges_text(const struct hoist__tensor *tensor,
			       const struct hoist__range *ranges, struct hoist__plan_text *text)
{
	size_t at = 0;
	text->text[at++] = '[';
	for (int a = 0; a < tensor->rank && at < sizeof text->text - 48; a++) {
		const char *comma = a > 0 ? ", " : "";
		if (ranges[a].begin < 0)
			at += (size_t)snprintf(text->text + at, sizeof text->text - at,
					       "%s:", comma);
		else
			at += (size_t)snprintf(text->text + at, sizeof text->text - at,
					       "%s%" PRId64 ":%" PRId64, comma, ranges[a].begin,
					       ranges[a].end);
	}
	(void)snprintf(text->text + at, sizeof text->text - at, "]");
	return text->text;
}

/* --- rows, counted in elements --- */

struct rows {
	uint64_t begin; /* of the first row */
	uint64_t row;	/* elements of a row */
	uint64_t n;
	int n_levels;
	struct hoist__level levels[HOIST_MAX_RANK]; /* innermost first */
};

/* Adds an axis outside the axes before.  An axis that continues the level inside without a change
 * of stride makes that level longer; another one is a level of its own. */
static void add_level(struct rows *rows, uint64_t count, uint64_t stride)
{
	rows->n *= count;
	if (count <= 1)
		return;
	struct hoist__level *inside = &rows->levels[rows->n_levels - (rows->n_levels > 0)];
	if (rows->n_levels > 0 && inside->count * inside->stride == stride)
		inside->count *= count;
	else
		rows->levels[rows->n_levels++] = (struct hoist__level){count, stride};
}

/* Pre: @shape is the slice's, and differs from the tensor's in at least one axis.  The innermost
 * such axis and the axes inside form a row. */
static void find_rows(const struct hoist__tensor *tensor, const struct hoist__range *ranges,
		      const int64_t *shape, struct rows *rows)
{
	rows->begin = 0;
	rows->n = 1;
	rows->n_levels = 0;
	uint64_t stride = 1;
	int axis = tensor->rank - 1;
	for (; shape[axis] == tensor->shape[axis]; axis--)
		stride *= (uint64_t)tensor->shape[axis];
	rows->row = (uint64_t)shape[axis] * stride;
	for (int a = axis; a >= 0; a--) {
		if (ranges[a].begin > 0)
			rows->begin += (uint64_t)ranges[a].begin * stride;
		if (a < axis)
			add_level(rows, (uint64_t)shape[a], stride);
		stride *= (uint64_t)tensor->shape[a];
	}
}

/* The elements and bytes of the smallest part of a tensor that has an address: a block, or the
 * elements that fill whole bytes. */
static void unit_of(const struct hoist__dtype_info *info, uint64_t *elements, uint64_t *bytes)
{
	*elements = info->block_elements;
	*bytes = info->block_bytes;
	if (info->block_bytes == 0) {
		*elements = 8u >> __builtin_ctz(info->bits);
		*bytes = *elements * info->bits / 8;
	}
}

/* Converts counts of elements to bytes.  False: a row begins or ends within a unit. */
static bool in_bytes(struct rows *rows, uint64_t elements, uint64_t bytes)
{
	bool whole = rows->begin % elements == 0 && rows->row % elements == 0;
	rows->begin = rows->begin / elements * bytes;
	rows->row = rows->row / elements * bytes;
	for (int i = 0; i < rows->n_levels; i++) {
		whole = whole && rows->levels[i].stride % elements == 0;
		rows->levels[i].stride = rows->levels[i].stride / elements * bytes;
	}
	return whole;
}

static int fail_cut(const struct hoist__tensor *tensor, const struct hoist__range *ranges,
		    const struct hoist__dtype_info *info, uint64_t elements)
{
	struct hoist__plan_text shape;
	struct hoist__plan_text what;
	return hoist__fail(-EINVAL,
			   "slice: %s of \"%.200s\", %s of shape %s, cuts a %s; each of its rows "
			   "must begin and end at a multiple of %d elements",
			   ranges_text(tensor, ranges, &what), tensor->name, info->name,
			   hoist__plan_shape_text(tensor, &shape),
			   info->block_elements > 1 ? "block" : "byte", (int)elements);
}

/* --- runs --- */

static int put_rows(struct hoist__plan *plan, const struct rows *rows, struct hoist__run *run)
{
	run->begin += rows->begin;
	run->end = run->begin + rows->row;
	run->row_bytes = rows->row;
	run->rows = rows->n;
	run->n_levels = (unsigned)rows->n_levels;
	if (rows->n_levels == 0)
		return 1;
	struct hoist__level *levels =
		hoist__plan_alloc(plan, (size_t)rows->n_levels * sizeof *levels);
	if (levels == NULL)
		return -ENOMEM;
	for (int i = 0; i < rows->n_levels; i++) {
		levels[i] = rows->levels[rows->n_levels - 1 - i];
		run->end += (levels[i].count - 1) * levels[i].stride;
	}
	run->levels = levels;
	return 1;
}

/* Makes the run of a slice.  Returns: 1; 0 if the slice is empty; -EINVAL, -ENOMEM. */
static int cut_slice(struct hoist__plan *plan, const struct hoist__tensor *tensor,
		     const struct hoist__range *ranges, const int64_t *shape,
		     struct hoist__run *run)
{
	struct rows rows;
	uint64_t elements;
	uint64_t bytes;
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	find_rows(tensor, ranges, shape, &rows);
	unit_of(info, &elements, &bytes);
	if (rows.n == 0 || rows.row == 0)
		return 0;
	if (!in_bytes(&rows, elements, bytes))
		return fail_cut(tensor, ranges, info, elements);
	return put_rows(plan, &rows, run);
}

/* The slice's shape, or the tensor's own if the slice is the whole tensor; NULL: no memory. */
static const int64_t *cut_shape(struct hoist__plan *plan, const struct hoist__tensor *tensor,
				const struct hoist__range *ranges)
{
	bool all = true;
	for (int a = 0; a < tensor->rank; a++)
		all = all &&
		      (ranges[a].begin < 0 || ranges[a].end - ranges[a].begin == tensor->shape[a]);
	if (all)
		return tensor->shape;
	int64_t *shape = hoist__plan_alloc(plan, (size_t)tensor->rank * sizeof *shape);
	for (int a = 0; shape != NULL && a < tensor->rank; a++)
		shape[a] = ranges[a].begin < 0 ? tensor->shape[a] : ranges[a].end - ranges[a].begin;
	return shape;
}

static unsigned char bytes_of(hoist_dtype dtype)
{
	return (unsigned char)(hoist_dtype_bits(dtype) / 8);
}

/* A slice that covers its whole tensor is no slice: the tensor keeps its own shape and strides. */
int hoist__plan_cut(const hoist_checkpoint *checkpoint, struct hoist__plan *plan, size_t i,
		    const struct hoist__range *ranges, struct hoist__run *run)
{
	struct hoist__plan_tensor *cut = &plan->tensors[i];
	const struct hoist__tensor *tensor = checkpoint->tensors[cut->index].tensor;
	*run = (struct hoist__run){
		.begin = tensor->offset,
		.end = tensor->offset + tensor->bytes,
		.row_bytes = tensor->bytes,
		.rows = 1,
		.element = 1,
		.becomes = 1,
		.tensor = i,
	};
	cut->shape = ranges == NULL ? tensor->shape : cut_shape(plan, tensor, ranges);
	cut->whole = cut->shape == tensor->shape;
	if (!cut->whole && cut->shape == NULL)
		return -ENOMEM;
	int made =
		cut->whole ? tensor->bytes > 0 : cut_slice(plan, tensor, ranges, cut->shape, run);
	if (made <= 0)
		return made;
	if (cut->dtype != tensor->dtype) {
		run->from = tensor->dtype;
		run->to = cut->dtype;
		run->element = bytes_of(run->from);
		run->becomes = bytes_of(run->to);
	}
	if (hoist__run_bytes(run) > INT64_MAX / 2)
		return hoist__fail(-EOVERFLOW, "tensor \"%.200s\": its bytes do not fit in 62 bits",
				   tensor->name);
	cut->begin = run->begin;
	cut->bytes = hoist__run_becomes(run, hoist__run_bytes(run));
	return 1;
}
