/* SPDX-License-Identifier: MIT */
/* Loads that map: turns the plan into parts of files, and a tensor into a view.
 * The contract is in lib/load/load.h.
 *
 * A mapped tensor lies as it does in its file.  A slice along the first axis is a part of the file;
 * a slice along another axis is a view with the strides of the whole tensor. */
#include "config.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "lib/buffer/buffer-private.h"
#include "lib/load/load.h"

/* The size of one wanted part: a multiple of any alignment of reads. */
#define WANTED_BYTES ((size_t)1 << 30)
/* Slices with more rows than this are populated with the gaps between their rows. */
#define MAX_WANTED ((size_t)1 << 16)

/* The strides of the whole tensor, in elements and C order; false: the tensor has too many
 * elements. */
static bool whole_strides(const struct hoist__tensor *tensor, int64_t *strides)
{
	int64_t stride = 1;
	for (int a = tensor->rank - 1; a >= 0; a--) {
		strides[a] = stride;
		if (__builtin_mul_overflow(stride, tensor->shape[a], &stride))
			return false;
	}
	return true;
}

/* The bytes from the tensor's or slice's first to its last.  Elements smaller than a byte and
 * blocks round the end up to a whole unit. */
static uint64_t span_of(const struct hoist_load *load, size_t index)
{
	const struct hoist__plan_tensor *planned = &load->plan.tensors[index];
	const struct hoist__tensor *tensor = hoist__load_entry(load, index)->tensor;
	int64_t strides[HOIST_MAX_RANK];
	uint64_t last = 0;
	size_t bytes = 0;
	if (planned->whole || !whole_strides(tensor, strides))
		return tensor->bytes;
	for (int a = 0; a < tensor->rank; a++)
		last += (uint64_t)(planned->shape[a] - 1) * (uint64_t)strides[a];
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	uint64_t unit = info->block_bytes != 0 ? info->block_elements : 8;
	(void)hoist_dtype_bytes(tensor->dtype, hoist__round_up(last + 1, unit), &bytes);
	uint64_t room = tensor->offset + tensor->bytes - planned->begin;
	return hoist__min_u64(bytes, room);
}

static int compare_parts(const void *a, const void *b)
{
	const struct hoist__checkpoint_part *p = a;
	const struct hoist__checkpoint_part *q = b;
	if (p->file != q->file)
		return p->file < q->file ? -1 : 1;
	return (p->begin > q->begin) - (p->begin < q->begin);
}

static void list_parts(const struct hoist_load *load, struct hoist__checkpoint_part *parts)
{
	for (size_t i = 0; i < load->plan.n_tensors; i++) {
		uint64_t begin = load->plan.tensors[i].begin;
		uint64_t span = load->plan.tensors[i].bytes > 0 ? span_of(load, i) : 0;
		parts[i] = (struct hoist__checkpoint_part){hoist__load_entry(load, i)->file, begin,
							   begin + span};
	}
	qsort(parts, load->plan.n_tensors, sizeof *parts, compare_parts);
}

/* Lists the wanted ranges of the files, without the gaps between rows of slices, in @wanted, which
 * has room for @most.  Returns: the number of parts; 0: there are more than @most. */
static size_t list_wanted(const struct hoist_load *load, struct hoist__checkpoint_part *wanted,
			  size_t most)
{
	struct hoist__cursor cursor = {0};
	struct hoist__chunk chunk;
	size_t n = 0;
	while (hoist__plan_next(&load->plan, WANTED_BYTES, &cursor, &chunk)) {
		if (n + chunk.n_parts > most)
			return 0;
		for (unsigned p = 0; p < chunk.n_parts; p++) {
			uint64_t offset = chunk.offset + p * chunk.part_stride;
			wanted[n++] = (struct hoist__checkpoint_part){
				load->plan.extents[chunk.extent].file, offset + chunk.skip,
				offset + chunk.need};
		}
	}
	return n;
}

/* Lists the extents with their gaps: the fallback when there are too many rows. */
static size_t list_extents(const struct hoist_load *load, struct hoist__checkpoint_part *wanted)
{
	for (size_t e = 0; e < load->plan.n_extents; e++) {
		const struct hoist__plan_extent *extent = &load->plan.extents[e];
		wanted[e] =
			(struct hoist__checkpoint_part){extent->file, extent->begin, extent->end};
	}
	return load->plan.n_extents;
}

int hoist__mapped_check(const struct hoist_load *load)
{
	if (load->plan.has_conversion)
		return hoist__fail(-ENOTSUP, "mapped tensors cannot be converted; read the tensors "
					     "instead (HOIST_IO_AUTO, --io auto)");
	if (load->options.memory != NULL)
		return hoist__fail(-EINVAL, "mapped tensors cannot go to the caller's memory; read "
					    "the tensors instead (HOIST_IO_AUTO)");
	if (load->options.window_bytes > 0)
		return hoist__fail(-EINVAL, "maps take no memory that a window could bound; read "
					    "the tensors instead (HOIST_IO_AUTO), or set no "
					    "window_bytes");
	if ((load->options.flags & HOIST__LOAD_DIGESTS) != 0)
		return hoist__fail(
			-EINVAL,
			"digests are made of bytes while they are read, and maps read none; read "
			"the tensors instead (HOIST_IO_AUTO, --io auto), or ask for no digests");
	return 0;
}

/* `parts` are mapped, `wanted` ranges are populated.  With too many rows, the gaps between them are
 * populated, too, instead of listing each row. */
int hoist__mapped_open(struct hoist_load *load)
{
	static const enum hoist__file_map_mode modes[] = {
		[HOIST_MAP_COPY_ON_WRITE] = HOIST__MAP_COPY_ON_WRITE,
		[HOIST_MAP_READ_ONLY] = HOIST__MAP_READ_ONLY,
		[HOIST_MAP_READ_WRITE] = HOIST__MAP_READ_WRITE,
	};
	int err = 0;
	bool populate = (load->options.flags & HOIST_LOAD_POPULATE) != 0;
	struct hoist__checkpoint_part *parts = calloc(load->plan.n_tensors + 1, sizeof *parts);
	size_t room = load->plan.n_extents + MAX_WANTED;
	struct hoist__checkpoint_part *wanted = populate ? calloc(room, sizeof *wanted) : NULL;
	if (parts == NULL || (populate && wanted == NULL)) {
		err = hoist__fail_nomem("a load", (load->plan.n_tensors + room) * sizeof *parts);
	} else {
		list_parts(load, parts);
		size_t n_wanted = populate ? list_wanted(load, wanted, room) : 0;
		if (populate && n_wanted == 0)
			n_wanted = list_extents(load, wanted);
		const struct hoist__checkpoint_map_options options = {
			.checkpoint = load->checkpoint,
			.device = load->targets[0].device,
			.mode = modes[load->options.map],
			.populate = populate,
			.parts = parts,
			.n_parts = load->plan.n_tensors,
			.wanted = wanted,
			.n_wanted = n_wanted,
		};
		err = hoist__checkpoint_map_open(&options, &load->map);
	}
	free(wanted);
	free(parts);
	return err;
}

int hoist__mapped_view(const struct hoist_load *load, size_t index,
		       int64_t strides[static HOIST_MAX_RANK], struct hoist__view *view,
		       struct hoist__storage **storage)
{
	const struct hoist__plan_tensor *planned = &load->plan.tensors[index];
	const struct hoist__checkpoint_tensor *entry = hoist__load_entry(load, index);
	if (!planned->whole) {
		if (!whole_strides(entry->tensor, strides))
			return hoist__fail(-EOVERFLOW, "tensor \"%.200s\" has too many elements",
					   entry->tensor->name);
		view->strides = strides;
	}
	*storage =
		hoist__checkpoint_map_place(load->map, entry->file, planned->begin, &view->offset);
	return 0;
}

/* The name of the first selected tensor with bytes in [@begin, @end) of the file; NULL: none. */
static const char *tensor_in(const struct hoist_load *load, size_t file, uint64_t begin,
			     uint64_t end)
{
	const struct hoist__tensor *first = NULL;
	for (size_t i = 0; i < load->plan.n_tensors; i++) {
		const struct hoist__checkpoint_tensor *entry = hoist__load_entry(load, i);
		const struct hoist__tensor *tensor = entry->tensor;
		if (entry->file == file && tensor->offset < end &&
		    tensor->offset + tensor->bytes > begin &&
		    (first == NULL || tensor->offset < first->offset))
			first = tensor;
	}
	return first != NULL ? first->name : NULL;
}

int hoist__mapped_fail(const struct hoist_load *load, int err)
{
	size_t file;
	uint64_t at;
	if (err == 0 || !hoist__checkpoint_map_failed(load->map, &file, &at))
		return err;
	/* A whole page could not be read: the failure belongs to the first tensor in that page. */
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const char *name = tensor_in(load, file, at, hoist__round_down(at, page) + page);
	return name != NULL ? hoist__fail_in(err, "tensor \"%.200s\"", name) : err;
}
