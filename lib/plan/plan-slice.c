/* SPDX-License-Identifier: MIT */
/* Turns one tensor and its ranges into a shape, and into rows in the file.
 * The contract is in lib/plan/plan-private.h. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "lib/plan/plan-private.h"

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

/* An axis with several indices, and the elements from one index to the next. */
struct axis {
	uint64_t count;
	uint64_t stride; /* in the file */
	int64_t to;	 /* in the destination */
};

/* Lists the axes from the innermost to the outermost, as they lie in the file.  @to NULL: the
 * destination is packed.  Returns: how many. */
static int list_axes(const struct hoist__tensor *tensor, const int64_t *shape, const int64_t *to,
		     struct axis axes[static HOIST_MAX_RANK])
{
	uint64_t stride = 1;
	int64_t packed = 1;
	int n = 0;
	for (int a = tensor->rank; a-- > 0;) {
		struct axis axis = {(uint64_t)shape[a], stride, to != NULL ? to[a] : packed};
		if (tensor->strides != NULL)
			axis.stride = (uint64_t)tensor->strides[a];
		stride *= (uint64_t)tensor->shape[a];
		packed *= shape[a];
		if (axis.count == 1)
			continue;
		int at = n++;
		for (; at > 0 && axes[at - 1].stride > axis.stride; at--)
			axes[at] = axes[at - 1];
		axes[at] = axis;
	}
	return n;
}

static bool overlaps_in_file(const struct axis *axes, int n)
{
	uint64_t reach = 0; /* of the axes inside */
	bool overlaps = false;
	for (int i = 0; i < n; i++) {
		overlaps = overlaps || axes[i].stride <= reach;
		reach += (axes[i].count - 1) * axes[i].stride;
	}
	return overlaps;
}

/* Adds an axis outside the axes before.  An axis that continues the level inside without a change
 * of stride makes that level longer; another one is a level of its own. */
static void add_level(struct rows *rows, const struct axis *axis)
{
	rows->n *= axis->count;
	struct hoist__level *inside = &rows->levels[rows->n_levels - (rows->n_levels > 0)];
	if (rows->n_levels > 0 && inside->count * inside->stride == axis->stride &&
	    (int64_t)inside->count * inside->target_stride == axis->to)
		inside->count *= axis->count;
	else
		rows->levels[rows->n_levels++] =
			(struct hoist__level){axis->count, axis->stride, axis->to};
}

/* The innermost axes form a row, as long as they continue each other on both sides.  Returns:
 * false if elements overlap in the file. */
static bool find_rows(const struct hoist__tensor *tensor, const struct hoist__range *ranges,
		      const int64_t *shape, const int64_t *to, struct rows *rows)
{
	struct axis axes[HOIST_MAX_RANK];
	int n = list_axes(tensor, shape, to, axes);
	uint64_t stride = 1;
	int i = 0;
	*rows = (struct rows){.row = 1, .n = 1};
	for (; i < n && axes[i].stride == rows->row && axes[i].to == (int64_t)rows->row; i++)
		rows->row *= axes[i].count;
	for (int level = i; level < n; level++)
		add_level(rows, &axes[level]);
	for (int a = tensor->rank; ranges != NULL && a-- > 0;) {
		if (ranges[a].begin > 0)
			rows->begin += (uint64_t)ranges[a].begin * stride;
		stride *= (uint64_t)tensor->shape[a];
	}
	bool empty = rows->n == 0 || rows->row == 0;
	return empty || tensor->strides == NULL || !overlaps_in_file(axes, n);
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

/* Converts counts of elements to bytes; a unit has @to bytes in the destination.  False: a row
 * begins or ends within a unit. */
static bool in_bytes(struct rows *rows, uint64_t elements, uint64_t bytes, uint64_t to)
{
	bool whole = rows->begin % elements == 0 && rows->row % elements == 0;
	rows->begin = rows->begin / elements * bytes;
	rows->row = rows->row / elements * bytes;
	for (int i = 0; i < rows->n_levels; i++) {
		struct hoist__level *level = &rows->levels[i];
		whole = whole && level->stride % elements == 0 &&
			level->target_stride % (int64_t)elements == 0;
		level->stride = level->stride / elements * bytes;
		level->target_stride = level->target_stride / (int64_t)elements * (int64_t)to;
	}
	return whole;
}

static int fail_cut(const struct hoist__tensor *tensor, const struct hoist__range *ranges,
		    const struct hoist__dtype_info *info, uint64_t elements)
{
	struct hoist__plan_text shape;
	struct hoist__plan_text what;
	const char *unit = info->block_elements > 1 ? "block" : "byte";
	hoist__plan_shape_text(tensor, &shape);
	if (ranges == NULL)
		return hoist__fail(
			-EINVAL,
			"the strides of the buffer for \"%.200s\", %s of shape %s, cut a "
			"%s; %d elements at a time must lie together, as they do in a "
			"contiguous buffer",
			tensor->name, info->name, shape.text, unit, (int)elements);
	return hoist__fail(-EINVAL,
			   "slice: %s of \"%.200s\", %s of shape %s, cuts a %s; each of its rows "
			   "must begin and end at a multiple of %d elements",
			   ranges_text(tensor, ranges, &what), tensor->name, info->name, shape.text,
			   unit, (int)elements);
}

static int fail_overlap(const struct hoist__tensor *tensor)
{
	return hoist__fail(-ENOTSUP,
			   "elements of \"%.200s\" overlap in the file, by its strides, so the "
			   "tensor cannot be read in place; load it into memory of the load's own, "
			   "and copy the buffer",
			   tensor->name);
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
		struct hoist__level *level = &levels[rows->n_levels - 1 - i];
		*level = rows->levels[i];
		run->end += (level->count - 1) * level->stride;
	}
	run->levels = levels;
	return 1;
}

/* Makes the run of a tensor that is not one row in its order of bytes.  @to: the strides of its
 * place; NULL: packed.  Returns: 1; 0 if there is no element; -EINVAL, -ENOTSUP, -ENOMEM. */
static int cut_rows(struct hoist__plan *plan, const struct hoist__tensor *tensor,
		    const struct hoist__range *ranges, const int64_t *shape, const int64_t *to,
		    struct hoist__run *run)
{
	struct rows rows;
	uint64_t elements;
	uint64_t bytes;
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	if (!find_rows(tensor, ranges, shape, to, &rows))
		return fail_overlap(tensor);
	unit_of(info, &elements, &bytes);
	if (rows.n == 0 || rows.row == 0)
		return 0;
	if (!in_bytes(&rows, elements, bytes, hoist__run_becomes(run, bytes)))
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

/* The tensor's bytes are one row if neither a slice nor the strides of a place divide them. */
static int cut(struct hoist__plan *plan, const struct hoist__tensor *tensor,
	       const struct hoist__plan_tensor *planned, const struct hoist__range *ranges,
	       const struct hoist__plan_into *into, struct hoist__run *run)
{
	bool strided = into != NULL && (into->strides != NULL || tensor->strides != NULL);
	if (planned->whole && !strided)
		return tensor->bytes > 0;
	run->crowded = planned->whole && tensor->strides != NULL;
	return cut_rows(plan, tensor, planned->whole ? NULL : ranges, planned->shape,
			into != NULL ? into->strides : NULL, run);
}

/* A slice that covers its whole tensor is no slice: the tensor keeps its own shape and strides. */
int hoist__plan_cut(const hoist_checkpoint *checkpoint, struct hoist__plan *plan, size_t i,
		    const struct hoist__range *ranges, const struct hoist__plan_into *into,
		    struct hoist__run *run)
{
	struct hoist__plan_tensor *planned = &plan->tensors[i];
	const struct hoist__tensor *tensor = checkpoint->tensors[planned->index].tensor;
	*run = (struct hoist__run){
		.begin = tensor->offset,
		.end = tensor->offset + tensor->bytes,
		.row_bytes = tensor->bytes,
		.rows = 1,
		.element = 1,
		.becomes = 1,
		.tensor = i,
	};
	planned->shape = ranges == NULL ? tensor->shape : cut_shape(plan, tensor, ranges);
	planned->whole = planned->shape == tensor->shape;
	if (!planned->whole && planned->shape == NULL)
		return -ENOMEM;
	if (planned->dtype != tensor->dtype) {
		run->from = tensor->dtype;
		run->to = planned->dtype;
		run->element = bytes_of(run->from);
		run->becomes = bytes_of(run->to);
	}
	int made = into != NULL ? hoist__plan_fits(tensor, planned, into) : 0;
	if (made == 0)
		made = cut(plan, tensor, planned, ranges, into, run);
	if (made <= 0)
		return made;
	if (hoist__run_bytes(run) > INT64_MAX / 2)
		return hoist__fail(-EOVERFLOW, "tensor \"%.200s\": its bytes do not fit in 62 bits",
				   tensor->name);
	planned->begin = run->begin;
	planned->bytes = hoist__run_becomes(run, hoist__run_bytes(run));
	planned->target = into != NULL ? into->address : 0;
	return 1;
}
