/* SPDX-License-Identifier: MIT */
/* Cuts files into blocks, and finds the bytes that are written from where they are.
 * The contract is in lib/save/save.h. */
#include "config.h"

#include "base/assert.h"
#include "base/checked.h"
#include "lib/save/save.h"

/* Shorter runs are copied: each leaves a part of a block at either end, which is a write of its
 * own. */
#define RUN_LEAST_BYTES ((uint64_t)256 << 10)

/* --- runs --- */

static size_t end_of(const struct hoist__save_file *file)
{
	return file->first + file->out.n_tensors;
}

/* Some memory that a driver has registered cannot be written from directly. */
static bool lies_on_host(const struct hoist__save_source *source, uintptr_t *ret)
{
	if (source->way != HOIST__FROM_HOST)
		return false;
	struct hoist__span span = hoist__buffer_span(source->buffer, 0);
	*ret = span.address;
	return span.kind == HOIST__MEMORY_HOST;
}

/* Finds the run that begins with tensor *@t or behind, and moves *@t behind the run.  False: there
 * is none.  Tensors without bytes interrupt no run. */
static bool take_run(const struct hoist_save *save, const struct hoist__save_file *file, size_t *t,
		     struct hoist__save_run *ret)
{
	uintptr_t first = 0;
	uintptr_t address;
	const struct hoist__out_tensor *tensors = save->tensors;
	while (*t < end_of(file) && !lies_on_host(&save->sources[*t], &first))
		++*t;
	if (*t == end_of(file))
		return false;
	*ret = (struct hoist__save_run){
		.begin = tensors[*t].offset,
		.end = tensors[*t].offset + tensors[*t].bytes,
		.memory = (const unsigned char *)first,
	};
	for (++*t; *t < end_of(file); ++*t) {
		const struct hoist__out_tensor *tensor = &tensors[*t];
		if (tensor->bytes == 0)
			continue;
		if (tensor->offset != ret->end || !lies_on_host(&save->sources[*t], &address) ||
		    address - first != tensor->offset - ret->begin)
			break;
		ret->end += tensor->bytes;
	}
	return true;
}

/* --- blocks --- */

/* Moves to the next run that is long enough and aligned, if the present one has passed. */
static void find_run(struct hoist_save *save, struct hoist__save_file *file)
{
	const struct hoist__file *to = hoist__output_file(file->output);
	uint64_t grid = hoist__max_u64(HOIST__SAVE_GRID, to->offset_align);
	struct hoist__save_run run;
	while (save->run.end <= save->next_begin) {
		if (!take_run(save, file, &save->run_tensor, &run)) {
			save->run.begin = save->run.end = UINT64_MAX;
			return;
		}
		uint64_t begin = hoist__round_up(run.begin, grid);
		uint64_t end = hoist__round_down(run.end, grid);
		const unsigned char *memory = run.memory + (begin - run.begin);
		if (end >= begin + RUN_LEAST_BYTES &&
		    ((uintptr_t)memory % to->memory_align == 0 || to->direct_fd < 0))
			save->run = (struct hoist__save_run){begin, end, memory};
	}
}

/* `next_tensor` only moves forward: a tensor that ends before the block is in no later block
 * either. */
bool hoist__block_next(struct hoist_save *save, struct hoist__save_next *ret)
{
	while (save->next_file < save->n_files &&
	       save->next_begin >= save->files[save->next_file].out.bytes) {
		save->next_file++;
		save->next_begin = 0;
		save->run = (struct hoist__save_run){0};
		if (save->next_file < save->n_files)
			save->next_tensor = save->run_tensor = save->files[save->next_file].first;
	}
	if (save->next_file == save->n_files)
		return false;
	struct hoist__save_file *file = &save->files[save->next_file];
	while (save->next_tensor < end_of(file) &&
	       save->tensors[save->next_tensor].offset + save->tensors[save->next_tensor].bytes <=
		       save->next_begin)
		save->next_tensor++;
	find_run(save, file);
	const struct hoist__save_run *run = &save->run;
	ret->file = file;
	ret->begin = save->next_begin;
	ret->straight = NULL;
	if (run->begin <= ret->begin) {
		ret->straight = run->memory + (ret->begin - run->begin);
		ret->bytes =
			(size_t)hoist__min_u64(run->end - ret->begin, HOIST__SAVE_STRAIGHT_BYTES);
		return true;
	}
	uint64_t end = hoist__min_u64(run->begin, file->out.bytes);
	ret->bytes = (size_t)hoist__min_u64(save->block_bytes, end - ret->begin);
	return true;
}

struct hoist__save_block *hoist__block_begin(struct hoist_save *save,
					     const struct hoist__save_next *next,
					     struct hoist__slot *slot)
{
	HOIST__ASSERT(save->n_free != 0 && (slot == NULL) == (next->straight != NULL));
	unsigned index = save->free_blocks[--save->n_free];
	struct hoist__save_block *block = &save->blocks[index];
	for (unsigned s = 0; s < save->n_streams; s++)
		block->fetches[s].n = 0;
	block->slot = slot;
	block->memory = slot != NULL ? slot->request.address : NULL;
	block->file = next->file;
	block->begin = next->begin;
	block->bytes = next->bytes;
	block->straight = next->straight;
	block->filled = 0;
	block->tensor = save->next_tensor;
	block->one_by_one = false;
	block->group_end = 0;
	HOIST__ASSERT(block->bytes != 0 && block->begin == save->next_begin);
	HOIST__ASSERT(block->begin % hoist__output_file(block->file->output)->offset_align == 0);
	save->next_begin += block->bytes;
	save->window[save->n_begun++ % save->n_blocks] = index;
	return block;
}
