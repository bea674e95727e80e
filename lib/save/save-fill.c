/* SPDX-License-Identifier: MIT */
/* Fills one block with bytes from their sources.
 * The contract is in lib/save/save.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/past.h"
#include "lib/save/save.h"

/* Smaller reads gain nothing from being direct. */
#define DIRECT_MIN_BYTES ((size_t)256 << 10)
/* Smaller gaps between two tensors are read along rather than left out. */
#define MAX_GAP_BYTES ((uint64_t)64 << 10)

/* --- files --- */

/* The part of a tensor that is to be filled in next. */
struct part {
	size_t at; /* in the block */
	uint64_t from;
	size_t bytes;
};

static void take_part(const struct hoist_save *save, const struct hoist__save_block *block,
		      size_t tensor, struct part *ret)
{
	const struct hoist__out_tensor *t = &save->tensors[tensor];
	uint64_t begin = hoist__max_u64(t->offset, block->begin + block->filled);
	uint64_t end = hoist__min_u64(t->offset + t->bytes, block->begin + block->bytes);
	HOIST__ASSERT(block->filled <= block->bytes);
	ret->at = (size_t)(begin - block->begin);
	ret->from = begin - t->offset;
	ret->bytes = end > begin ? (size_t)(end - begin) : 0;
}

static const struct hoist__checkpoint_tensor *entry_of(const struct hoist__save_source *source)
{
	return &source->checkpoint->tensors[source->index];
}

/* One read: source bytes [begin, end), which are put in the slot from `at` on. */
struct group {
	uint64_t begin;
	uint64_t end;
	size_t at;
	size_t n; /* tensors */
};

/* The lowest place in the slot at which the read may begin so that @part, whose bytes are at
 * @source in the file, lies at or above its place, like all parts before. */
static size_t place_above(const struct group *group, const struct part *part, uint64_t source,
			  uint64_t align)
{
	uint64_t into = source - group->begin;
	uint64_t at = part->at > into ? part->at - into : 0;
	return (size_t)hoist__round_up(hoist__max_u64(at, group->at), align);
}

static bool fits(const struct hoist_save *save, const struct group *group, uint64_t align)
{
	uint64_t bytes = hoist__round_up(group->end, align) - group->begin;
	return group->at + bytes <= hoist__staging_slot_bytes(save->job.staging);
}

/* Plans a read of as many tensors, from the block's next on, as one read can take.  False: not even
 * one. */
static bool plan_group(const struct hoist_save *save, const struct hoist__save_block *block,
		       uint64_t align, struct group *ret)
{
	const struct hoist__save_source *first = &save->sources[block->tensor];
	size_t end = block->file->first + block->file->out.n_tensors;
	struct group group = {0};
	for (size_t t = block->tensor; t < end; t++) {
		const struct hoist__save_source *source = &save->sources[t];
		struct part part;
		take_part(save, block, t, &part);
		if (save->tensors[t].offset >= block->begin + block->bytes ||
		    (block->one_by_one && t > block->tensor))
			break;
		if (part.bytes == 0) {
			group.n++;
			continue;
		}
		if (source->way != HOIST__FROM_FILE || source->checkpoint != first->checkpoint ||
		    entry_of(source)->file != entry_of(first)->file)
			break;
		uint64_t offset = entry_of(source)->tensor->offset + part.from;
		struct group more = group;
		if (t == block->tensor) {
			more.begin = hoist__round_down(offset, align);
			more.at = part.at;
		} else if (offset < group.end || offset - group.end > MAX_GAP_BYTES) {
			break;
		}
		more.end = offset + part.bytes;
		more.at = place_above(&more, &part, offset, align);
		more.n++;
		if (!fits(save, &more, align))
			break;
		group = more;
	}
	HOIST__ASSERT(group.n == 0 || group.begin <= group.end);
	HOIST__ASSERT(group.at % align == 0 && fits(save, &group, align));
	*ret = group;
	return group.n > 0;
}

/* Chooses the way of the read: direct or cached, by the share of its bytes in the page cache. */
static void choose_way(const struct hoist_save *save, const struct hoist__file *file,
		       struct hoist__request *request)
{
	uint64_t resident = 0;
	int err = hoist__file_resident(file, request->offset, request->need, &resident);
	request->hot = err == 0 && resident >= request->need - request->need / 10;
	request->direct = file->direct_fd >= 0 && save->io != HOIST_IO_CACHED &&
			  request->need >= DIRECT_MIN_BYTES &&
			  (!request->hot || save->io == HOIST_IO_DIRECT);
	request->hot = request->hot && !request->direct;
	request->drop = !request->direct && err == 0 && resident == 0;
}

/* Tries a direct read first.  If its alignment leaves no room in the slot, or the read is better
 * cached, the group is planned again without alignment. */
static int read_group(struct hoist_save *save, struct hoist__save_block *block)
{
	const struct hoist__save_source *source = &save->sources[block->tensor];
	const struct hoist__file *file = source->checkpoint->files[entry_of(source)->file].file;
	struct hoist__request *request = &block->request;
	uint64_t align = save->source_align;
	struct group group;
	request->file = file;
	request->direct = false;
	/* A repeated read must hold no byte that is not wanted, so it is not direct. */
	if (!block->one_by_one && plan_group(save, block, align, &group)) {
		request->offset = group.begin;
		request->need = (size_t)(group.end - group.begin);
		choose_way(save, file, request);
	}
	if (!request->direct) {
		align = 1;
		if (!plan_group(save, block, align, &group))
			return hoist__fail(-EINVAL, "a block of %zu bytes holds no part of \"%s\"",
					   block->bytes, source->name);
		request->offset = group.begin;
		request->need = (size_t)(group.end - group.begin);
		choose_way(save, file, request);
		request->direct = false;
	}
	request->work = NULL;
	request->buffer = 0;
	request->address = block->memory + group.at;
	request->bytes = request->direct ? (size_t)(hoist__round_up(group.end, align) - group.begin)
					 : request->need;
	HOIST__ASSERT(group.at >= block->filled &&
		      group.at + request->bytes <= hoist__staging_slot_bytes(save->job.staging));
	HOIST__ASSERT(block->one_by_one ? group.n == 1 || !request->direct : group.n != 0);
	request->write = false;
	request->owner = block;
	block->group_end = block->tensor + group.n;
	block->group_at = group.at;
	block->group_from = group.begin;
	return HOIST__FILL_READ;
}

/* --- one part --- */

/* A part that continues the last copy, in the slot and on the device, makes that copy longer. */
static int note_box(struct hoist_save *save, struct hoist__save_block *block,
		    const struct part *part)
{
	const struct hoist__save_source *source = &save->sources[block->tensor];
	struct hoist__save_fetch *fetch = &block->fetches[source->stream];
	uintptr_t address = hoist__buffer_span(source->buffer, (int64_t)part->from).address;
	if (fetch->n > 0) {
		struct hoist__slot_box *last = &fetch->boxes[fetch->n - 1];
		if (last->slot_offset + last->bytes == part->at &&
		    last->device_address + last->bytes == address) {
			last->bytes += part->bytes;
			return 0;
		}
	}
	if (fetch->n == fetch->room) {
		size_t room = fetch->room == 0 ? 16 : 2 * fetch->room;
		struct hoist__slot_box *boxes = realloc(fetch->boxes, room * sizeof *boxes);
		if (boxes == NULL)
			return hoist__fail_nomem("a list of copies", room * sizeof *boxes);
		fetch->boxes = boxes;
		fetch->room = room;
	}
	HOIST__ASSERT(source->stream < save->n_streams && fetch->n < fetch->room);
	fetch->boxes[fetch->n++] = (struct hoist__slot_box){
		.slot_offset = part->at,
		.device_address = address,
		.bytes = part->bytes,
	};
	return 0;
}

/* Fills in one part.  Returns: a step, DONE for the part; what failed. */
static int fill_part(struct hoist_save *save, struct hoist__save_block *block,
		     const struct part *part)
{
	const struct hoist__save_source *source = &save->sources[block->tensor];
	unsigned char *to = block->memory + part->at;
	HOIST__ASSERT(part->bytes != 0 && part->at + part->bytes <= block->bytes);
	HOIST__ASSERT(part->from + part->bytes <= save->tensors[block->tensor].bytes);
	switch (source->way) {
	case HOIST__FROM_HOST: {
		struct hoist__span span = hoist__buffer_span(source->buffer, (int64_t)part->from);
		/* A digest reads the bytes next. */
		if (save->digest != NULL)
			memcpy(to, (const void *)span.address, part->bytes);
		else
			hoist__copy_past(to, (const void *)span.address, part->bytes);
		return 0;
	}
	case HOIST__FROM_DEVICE:
		return note_box(save, block, part);
	case HOIST__FROM_FILE:
		if (block->tensor >= block->group_end)
			return read_group(save, block);
		/* No byte is overwritten that is still to be moved down. */
		HOIST__ASSERT(part->at <= block->group_at + (entry_of(source)->tensor->offset +
							     part->from - block->group_from));
		memmove(to,
			block->memory + block->group_at +
				(entry_of(source)->tensor->offset + part->from - block->group_from),
			part->bytes);
		return 0;
	case HOIST__FROM_LOAD:
		return hoist__feed_copy(save, block->tensor, part->from, part->bytes, to);
	case HOIST__FROM_MOVED:
		break;
	}
	int err = hoist__source_gather(save, source, source->buffer, part->from, part->bytes, to);
	return err < 0 ? hoist__fail_in(err, "saving tensor \"%.200s\"", source->name) : 0;
}

/* --- the block --- */

/* Fills in the header, or zeros up to the next tensor.  Returns: the bytes that were filled in. */
static size_t fill_between(const struct hoist_save *save, const struct hoist__save_block *block)
{
	const struct hoist__out_file *out = &block->file->out;
	uint64_t at = block->begin + block->filled;
	uint64_t end = block->begin + block->bytes;
	if (at < out->header_bytes) {
		size_t n = (size_t)(hoist__min_u64(out->header_bytes, end) - at);
		memcpy(block->memory + block->filled, out->header + at, n);
		return n;
	}
	if (block->tensor < block->file->first + out->n_tensors)
		end = hoist__min_u64(end, save->tensors[block->tensor].offset);
	if (end <= at)
		return 0;
	memset(block->memory + block->filled, 0, (size_t)(end - at));
	return (size_t)(end - at);
}

bool hoist__block_retry(struct hoist__save_block *block)
{
	if (block->one_by_one)
		return false;
	block->one_by_one = true;
	block->group_end = block->tensor;
	return true;
}

uint64_t hoist__block_wants(const struct hoist_save *save, const struct hoist__save_block *block)
{
	struct part part;
	take_part(save, block, block->tensor, &part);
	return entry_of(&save->sources[block->tensor])->tensor->offset + part.from;
}

/* True if filling in the part moves no bytes here: they are noted for a fetch, or must be read. */
static bool is_quick(const struct hoist_save *save, const struct hoist__save_block *block)
{
	unsigned way = save->sources[block->tensor].way;
	return way == HOIST__FROM_DEVICE ||
	       (way == HOIST__FROM_FILE && block->tensor >= block->group_end);
}

/* A tensor whose bytes go on in the next block stays the block's present one: only a tensor that
 * ends within the block is left behind. */
int hoist__block_fill(struct hoist_save *save, struct hoist__save_block *block, bool heavy)
{
	size_t end = block->file->first + block->file->out.n_tensors;
	size_t moved = 0;
	HOIST__ASSERT(block->straight == NULL);
	while (block->filled < block->bytes) {
		struct part part = {0};
		size_t n = fill_between(save, block);
		block->filled += n;
		if (n > 0)
			continue;
		if (block->tensor < end)
			take_part(save, block, block->tensor, &part);
		if (part.bytes > 0) {
			moved += is_quick(save, block) ? 0 : part.bytes;
			bool waits = save->sources[block->tensor].way == HOIST__FROM_LOAD;
			if (!heavy && (waits || moved > HOIST__SAVE_HEAVY_BYTES))
				return HOIST__FILL_HEAVY;
			int step = fill_part(save, block, &part);
			if (step != HOIST__FILL_DONE)
				return step;
			block->filled = part.at + part.bytes;
		}
		if (block->filled < block->bytes)
			block->tensor++;
	}
	HOIST__ASSERT(block->filled == block->bytes);
	return HOIST__FILL_DONE;
}
