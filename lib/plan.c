/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "lib/plan.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

void hoist__plan_fini(struct hoist__plan *plan)
{
	free(plan->tensors);
	free(plan->targets);
	free(plan->extents);
	free(plan->pieces);
	*plan = (struct hoist__plan){0};
}

/* --- selection --- */

/* Marks what @pattern selects; an exact name is that tensor alone. */
static int mark(const hoist_checkpoint *checkpoint, const char *pattern, unsigned char *wanted)
{
	size_t exact;
	if (hoist_checkpoint_find(checkpoint, pattern, &exact) == 0) {
		wanted[exact] = 1;
		return 0;
	}
	bool found = false;
	for (size_t t = 0; strpbrk(pattern, "*?[") != NULL && t < checkpoint->n_tensors; t++)
		if (fnmatch(pattern, checkpoint->tensors[t].tensor->name, 0) == 0) {
			wanted[t] = 1;
			found = true;
		}
	if (found)
		return 0;
	return hoist__fail(-ENOENT,
			   "no tensor is called or matches \"%.200s\"; `hoist ls` lists them",
			   pattern);
}

int hoist__plan_select(const hoist_checkpoint *checkpoint, const char *const *patterns,
		       size_t n_patterns, struct hoist__plan *plan)
{
	size_t n = checkpoint->n_tensors;
	unsigned char *wanted = calloc(n > 0 ? n : 1, 1);
	plan->tensors = calloc(n > 0 ? n : 1, sizeof *plan->tensors);
	plan->targets = calloc(n > 0 ? n : 1, sizeof *plan->targets);
	int err = 0;
	if (wanted == NULL || plan->tensors == NULL || plan->targets == NULL)
		err = hoist__fail_nomem("a plan", n * 2 * sizeof *plan->tensors);
	else
		memset(wanted, patterns == NULL, n);
	for (size_t p = 0; err == 0 && p < n_patterns; p++)
		err = mark(checkpoint, patterns[p], wanted);
	for (size_t t = 0; err == 0 && t < n; t++)
		if (wanted[t]) {
			plan->tensors[plan->n_tensors++] = t;
			plan->bytes += checkpoint->tensors[t].tensor->bytes;
		}
	free(wanted);
	return err;
}

/* --- layout --- */

static struct hoist__extent *add_extent(const hoist_checkpoint *checkpoint,
					struct hoist__plan *plan, const struct hoist__entry *entry)
{
	struct hoist__extent *last =
		plan->n_extents > 0 ? &plan->extents[plan->n_extents - 1] : NULL;
	const struct hoist__tensor *tensor = entry->tensor;
	if (last == NULL || last->file != entry->file || last->end != tensor->offset) {
		const struct hoist__file *file = checkpoint->files[entry->file].file;
		uint64_t align = hoist__max_u64(file->offset_align, file->memory_align);
		last = &plan->extents[plan->n_extents++];
		*last = (struct hoist__extent){
			.file = entry->file,
			.begin = tensor->offset,
			.align = hoist__max_u64(HOIST__PLAN_ALIGN, align),
			.first_piece = plan->n_pieces,
		};
		plan->align = hoist__max_u64(plan->align, last->align);
	}
	last->end = tensor->offset + tensor->bytes;
	return last;
}

/* The tensor goes on where its neighbour in the file ended if that is aligned. */
static bool add_to_piece(struct hoist__plan *plan, struct hoist__extent *extent,
			 const struct hoist__tensor *tensor, uint64_t align, uint64_t *target)
{
	struct hoist__plan_piece *last =
		extent->n_pieces > 0 ? &plan->pieces[plan->n_pieces - 1] : NULL;
	if (last == NULL || (last->target + last->bytes) % align != 0) {
		uint64_t start = hoist__round_up(plan->destination_bytes, align);
		last = &plan->pieces[plan->n_pieces++];
		*last = (struct hoist__plan_piece){.begin = tensor->offset, .target = start};
		extent->n_pieces++;
	}
	*target = last->target + last->bytes;
	last->bytes += tensor->bytes;
	plan->destination_bytes = last->target + last->bytes;
	return plan->destination_bytes <= INT64_MAX;
}

/* Each extent's image begins where the one before it ended; tensors lie in it as
 * in the file. */
static bool place_images(const hoist_checkpoint *checkpoint, struct hoist__plan *plan)
{
	uint64_t used = 0;
	for (size_t e = 0; e < plan->n_extents; e++) {
		struct hoist__extent *extent = &plan->extents[e];
		extent->image = hoist__round_up(used, extent->align);
		used = extent->image + hoist__round_up(extent->end, extent->align) -
		       hoist__round_down(extent->begin, extent->align);
		if (used > INT64_MAX)
			return false;
	}
	plan->destination_bytes = used;
	size_t e = 0;
	for (size_t i = 0; i < plan->n_tensors; i++) {
		const struct hoist__entry *entry = &checkpoint->tensors[plan->tensors[i]];
		if (entry->tensor->bytes == 0)
			continue;
		while (plan->extents[e].file != entry->file ||
		       plan->extents[e].end <= entry->tensor->offset)
			e++;
		const struct hoist__extent *extent = &plan->extents[e];
		plan->targets[i] = extent->image + entry->tensor->offset -
				   hoist__round_down(extent->begin, extent->align);
	}
	return true;
}

int hoist__plan_lay_out(const hoist_checkpoint *checkpoint, enum hoist__plan_kind kind,
			uint64_t tensor_align, struct hoist__plan *plan)
{
	size_t n = plan->n_tensors > 0 ? plan->n_tensors : 1;
	plan->kind = kind;
	plan->align = HOIST__PLAN_ALIGN;
	plan->extents = calloc(n, sizeof *plan->extents);
	plan->pieces = kind == HOIST__PLAN_DEVICE ? calloc(n, sizeof *plan->pieces) : NULL;
	if (plan->extents == NULL || (kind == HOIST__PLAN_DEVICE && plan->pieces == NULL))
		return hoist__fail_nomem("a plan", n * sizeof *plan->extents);
	bool fits = true;
	for (size_t i = 0; i < plan->n_tensors && fits; i++) {
		const struct hoist__entry *entry = &checkpoint->tensors[plan->tensors[i]];
		if (entry->tensor->bytes == 0)
			continue;
		struct hoist__extent *extent = add_extent(checkpoint, plan, entry);
		if (kind == HOIST__PLAN_DEVICE)
			fits = add_to_piece(plan, extent, entry->tensor, tensor_align,
					    &plan->targets[i]);
	}
	if (fits && kind == HOIST__PLAN_HOST)
		fits = place_images(checkpoint, plan);
	if (!fits)
		return hoist__fail(-EOVERFLOW,
				   "the selected tensors do not fit in 63 bits of address");
	return 0;
}

/* --- chunks --- */

bool hoist__plan_next(const struct hoist__plan *plan, size_t max_bytes,
		      struct hoist__cursor *cursor, struct hoist__chunk *ret)
{
	if (cursor->extent == plan->n_extents)
		return false;
	const struct hoist__extent *extent = &plan->extents[cursor->extent];
	uint64_t first = hoist__round_down(extent->begin, extent->align);
	uint64_t offset = cursor->offset > first ? cursor->offset : first;
	uint64_t target = extent->image + (offset - first);
	uint64_t most = plan->kind == HOIST__PLAN_HOST ? max_bytes - target % max_bytes : max_bytes;
	uint64_t end = hoist__min_u64(offset + most, hoist__round_up(extent->end, extent->align));
	*ret = (struct hoist__chunk){
		.extent = cursor->extent,
		.offset = offset,
		.bytes = (size_t)(end - offset),
		.need = (size_t)(hoist__min_u64(end, extent->end) - offset),
		.skip = (size_t)(extent->begin > offset ? extent->begin - offset : 0),
		.target = target,
	};
	if (end >= extent->end) {
		cursor->extent++;
		cursor->offset = 0;
	} else {
		cursor->offset = end;
	}
	return true;
}

const struct hoist__tensor *hoist__plan_tensor_at(const hoist_checkpoint *checkpoint,
						  const struct hoist__plan *plan, size_t file,
						  uint64_t offset)
{
	size_t low = 0;
	size_t high = plan->n_tensors;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct hoist__entry *entry = &checkpoint->tensors[plan->tensors[middle]];
		bool before = entry->file < file ||
			      (entry->file == file &&
			       entry->tensor->offset + entry->tensor->bytes <= offset);
		if (before)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == plan->n_tensors || checkpoint->tensors[plan->tensors[low]].file != file)
		return NULL;
	return checkpoint->tensors[plan->tensors[low]].tensor;
}
