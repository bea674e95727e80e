/* SPDX-License-Identifier: MIT */
/* Adds tensors of checkpoints to a save: as they are, converted, or parts of them.
 * The contract is in hoist/save.h; lib/save/save.h tells how their bytes come. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/blocks.h"
#include "base/convert.h"
#include "base/dtype.h"
#include "lib/core/options.h"
#include "lib/plan/plan.h"
#include "lib/save/save.h"

/* --- dtypes --- */

static bool is_float(hoist_dtype dtype)
{
	return dtype == HOIST_F32 || dtype == HOIST_F16 || dtype == HOIST_BF16;
}

/* Finds the dtype in which the tensor is saved. */
static int find_dtype(const struct hoist_save *save, const struct hoist__tensor *tensor,
		      hoist_dtype asked, hoist_dtype *ret)
{
	if (asked != HOIST_DTYPE_INVALID && !is_float(asked))
		return hoist__fail(-EINVAL,
				   "saving %s: hoist_save_tensor.dtype is %s; it is f32, f16, bf16 "
				   "or 0",
				   save->path, hoist_dtype_name(asked));
	*ret = tensor->dtype;
	if (asked == HOIST_DTYPE_INVALID)
		return 0;
	if (hoist__converts(tensor->dtype, asked) || hoist__blocks_are_known(tensor->dtype))
		*ret = asked;
	else if (hoist_dtype_bits(tensor->dtype) == 0)
		return hoist__fail(-ENOTSUP,
				   "saving tensor \"%.200s\" as %s: hoist does not dequantise %s; "
				   "leave the tensor out (--exclude), or save it as it is, as gguf",
				   tensor->name, hoist_dtype_name(asked),
				   hoist_dtype_name(tensor->dtype));
	return 0;
}

/* --- slices --- */

/* The elements between two places where a tensor may be cut. */
static int64_t unit_of(hoist_dtype dtype)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(dtype);
	return info->block_bytes != 0 ? (int64_t)info->block_elements
				      : 8 >> __builtin_ctz(info->bits);
}

/* The load that brings the part would say the same, but only when its turn has come. */
static int check_cut(const struct hoist__tensor *tensor, const struct hoist__save_source *source)
{
	int64_t unit = unit_of(tensor->dtype);
	int last = tensor->rank - 1;
	if (source->begins[last] % unit == 0 && source->dims[last] % unit == 0)
		return 0;
	return hoist__fail(-EINVAL,
			   "saving a slice of \"%.200s\": its last axis, of %s, can be cut at "
			   "multiples of %d elements only",
			   tensor->name, hoist_dtype_name(tensor->dtype), (int)unit);
}

/* Fills source->dims and source->begins. */
static int cut(const struct hoist__tensor *tensor, const hoist_save_tensor *as,
	       struct hoist__save_source *source)
{
	size_t rank = (size_t)tensor->rank;
	bool last = false;
	source->dims = calloc(2 * rank + 1, sizeof *source->dims);
	if (source->dims == NULL)
		return hoist__fail_nomem("a shape", 2 * rank * sizeof *source->dims);
	source->begins = source->dims + rank;
	if (rank > 0)
		memcpy(source->dims, tensor->shape, rank * sizeof *source->dims);
	uint64_t seen = 0; /* axes */
	for (size_t s = 0; s < as->n_slices; s++) {
		hoist_load_slice slice = as->slices[s];
		int axis;
		int64_t begin, end;
		slice.tensor = tensor->name;
		int err = hoist__plan_slice(&slice, s, tensor, &axis, &begin, &end);
		if (err < 0)
			return err;
		if ((seen & UINT64_C(1) << axis) != 0)
			return hoist__fail(-EINVAL,
					   "saving tensor \"%.200s\": two slices cut axis %d",
					   tensor->name, axis);
		seen |= UINT64_C(1) << axis;
		source->begins[axis] = begin;
		source->dims[axis] = end - begin;
		last = last || axis == tensor->rank - 1;
	}
	return last ? check_cut(tensor, source) : 0;
}

/* --- adding --- */

static int describe(const struct hoist_save *save, const struct hoist__tensor *tensor,
		    const hoist_save_tensor *as, struct hoist__save_source *source)
{
	int err = find_dtype(save, tensor, as->dtype, &source->dtype);
	if (err == 0 && as->n_slices > 0 && as->slices == NULL)
		err = hoist__fail(-EINVAL, "saving %s: hoist_save_tensor.slices is NULL",
				  save->path);
	if (err == 0 && as->n_slices > 0)
		err = cut(tensor, as, source);
	if (err < 0)
		return err;
	source->asked = source->dtype != tensor->dtype ? source->dtype : HOIST_DTYPE_INVALID;
	return 0;
}

int hoist_save_add_tensor_as(hoist_save *save, hoist_checkpoint *checkpoint, size_t index,
			     const hoist_save_tensor *as)
{
	struct hoist__save_source *source;
	hoist_save_tensor known;
	int err = hoist__save_check_open(save);
	if (err == 0)
		err = hoist__options_in("hoist_save_tensor", as, &known, sizeof known);
	if (err < 0)
		return err;
	if (checkpoint == NULL)
		return hoist__fail(-EINVAL, "saving %s: the checkpoint is NULL", save->path);
	if (index >= checkpoint->n_tensors)
		return hoist__fail(-EINVAL,
				   "saving %s: there is no tensor %zu: the checkpoint has %zu",
				   save->path, index, checkpoint->n_tensors);
	const struct hoist__tensor *tensor = checkpoint->tensors[index].tensor;
	err = hoist__save_new_source(save, known.name != NULL ? known.name : tensor->name, &source);
	if (err < 0)
		return err;
	err = describe(save, tensor, &known, source);
	if (err < 0) {
		hoist__save_free_source(source);
		return err;
	}
	source->checkpoint = hoist__checkpoint_ref(checkpoint);
	source->index = index;
	save->n_sources++;
	return 0;
}

int hoist_save_add_tensor(hoist_save *save, const char *name, hoist_checkpoint *checkpoint,
			  size_t index)
{
	const hoist_save_tensor as = {.size = sizeof as, .name = name};
	return hoist_save_add_tensor_as(save, checkpoint, index, &as);
}
