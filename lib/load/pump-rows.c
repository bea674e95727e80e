/* SPDX-License-Identifier: MIT */
/* Hot rows: staged chunks that lie in the page cache are read row by row, straight to host memory,
 * or for devices into a slot, one behind the other.
 * The contract is in lib/load/pump.h. */
#include "config.h"

#include "alloc/region.h"
#include "base/assert.h"
#include "base/checked.h"
#include "lib/load/pump.h"

/* The range of the file that one request covers, at most, and the bytes that it should copy.  One
 * thread serves the request: so long that a wake-up does not matter, and about a huge page. */
#define SPAN_BYTES (16 * HOIST__MIB)
#define USEFUL_BYTES (2 * HOIST__MIB)
#define LEAST_SPAN_BYTES (SPAN_BYTES / 64)

/* Many rows that are shorter are moved faster by the processor than by the kernel. */
#define LEAST_ROW_BYTES 512u

#define PARTLY_BYTES (2 * HOIST__MIB) /* not asked about again if a range is cached in part */

bool hoist__pump_may_go_straight(const struct hoist_load *load)
{
	bool mixed = false;
	for (size_t t = 0; t < load->n_targets; t++)
		mixed = mixed || load->targets[t].to_host != load->to_host;
	return load->plan.has_staged && !mixed && load->digests == NULL && load->source == NULL;
}

/* --- the choice --- */

/* Tells whether the chunk's pieces are few and long enough for a request, and none is converted.
 * To the host, none may go to several places.  For devices, all must fit a slot, and be half at
 * most of the bytes that would be read with the gaps. */
static bool suits(const struct hoist_load *load, const struct hoist__chunk *chunk)
{
	struct hoist__piece_cursor cursor = {0};
	struct hoist__plan_piece piece;
	size_t n = 0;
	if (!load->to_host &&
	    (chunk->useful > load->staged_bytes || chunk->useful > chunk->need / 2))
		return false;
	while (hoist__plan_piece(&load->plan, chunk, &cursor, &piece))
		if (++n > HOIST__LOAD_ROWS || piece.from != HOIST_DTYPE_INVALID ||
		    (piece.n_places > 1 && load->to_host) ||
		    (piece.rows > 1 && piece.row_bytes < LEAST_ROW_BYTES))
			return false;
	return true;
}

/* Tells whether all of the chunk's file range lies in the page cache. */
static bool is_hot(const struct hoist__file *file, struct hoist__load_disk *disk,
		   const struct hoist__chunk *chunk)
{
	uint64_t resident = 0;
	bool known = hoist__file_resident(file, chunk->offset, chunk->need, &resident) == 0;
	if (known && resident >= chunk->need)
		return true;
	disk->cold_extent = chunk->extent;
	disk->cold_until = chunk->offset + (resident > 0 ? PARTLY_BYTES : chunk->need);
	return false;
}

bool hoist__pump_next_rows(struct hoist_load *load, unsigned index)
{
	const struct hoist__plan *plan = &load->plan;
	struct hoist__load_disk *disk = &load->disks[index];
	const struct hoist__plan_extent *extent = &plan->extents[disk->cursor.extent];
	const struct hoist__file *file = load->checkpoint->files[extent->file].file;
	bool direct = load->options.io == HOIST_IO_DIRECT && file->direct_fd >= 0;
	bool cold =
		disk->cursor.extent == disk->cold_extent && disk->cursor.from < disk->cold_until;
	HOIST__ASSERT(!disk->has_next && extent->staged);
	if (!hoist__pump_may_go_straight(load) || direct || cold || extent->laid)
		return false;
	for (size_t span = SPAN_BYTES; span >= LEAST_SPAN_BYTES; span /= 8) {
		struct hoist__cursor next = disk->cursor;
		struct hoist__chunk chunk;
		size_t bytes = (size_t)hoist__max_u64(span, hoist__plan_least_bytes(plan));
		bool any = hoist__plan_next_rows(plan, bytes, HOIST__LOAD_ROWS, &next, &chunk);
		HOIST__ASSERT(!any || chunk.n_parts == 1);
		if (!any || (chunk.useful > 2 * USEFUL_BYTES && span > USEFUL_BYTES) ||
		    !suits(load, &chunk))
			continue;
		if (!is_hot(file, disk, &chunk))
			return false;
		disk->cursor = next;
		disk->next = chunk;
		disk->has_next = disk->straight = true;
		return true;
	}
	return false;
}

bool hoist__pump_begins_straight(struct hoist_load *load, unsigned index)
{
	const struct hoist__plan *plan = &load->plan;
	struct hoist__load_disk *disk = &load->disks[index];
	struct hoist__cursor begin = disk->cursor;
	size_t e = 0;
	while (e < plan->n_extents && (!plan->extents[e].staged ||
				       hoist__pump_disk_of(load, plan->extents[e].file) != index))
		e++;
	if (e == plan->n_extents)
		return true;
	disk->cursor = (struct hoist__cursor){.extent = e};
	bool straight = hoist__pump_next_rows(load, index);
	disk->cursor = begin;
	disk->has_next = disk->straight = false;
	return straight;
}

/* --- the request --- */

void hoist__pump_set_fresh(const struct hoist_load *load, uintptr_t from, uintptr_t to,
			   struct hoist__request *request)
{
	/* Places that lie far apart are populated by the reads. */
	if (load->fresh == NULL || load->pages.populate != NULL || to - from > 2 * request->bytes)
		return;
	uintptr_t end = hoist__storage_address(load->fresh) + hoist__storage_bytes(load->fresh);
	from = hoist__round_up(from, HOIST__HUGE_PAGE_BYTES);
	to = hoist__min_u64(hoist__round_up(to, HOIST__HUGE_PAGE_BYTES), end);
	request->fresh = (unsigned char *)from;
	request->fresh_bytes = from < to ? to - from : 0;
}

static uintptr_t place_of(const struct hoist_load *load, const struct hoist__plan_piece *piece)
{
	uintptr_t place = 0;
	for (size_t t = 0; t < load->n_targets && place == 0; t++)
		place = hoist__pump_address_on(load, &load->targets[t], piece);
	return place;
}

struct hoist__request *hoist__pump_fill_rows(struct hoist_load *load, struct hoist__flight *flight)
{
	const struct hoist__chunk *chunk = &flight->chunk;
	struct hoist__request *request = &flight->requests[0];
	struct hoist__piece_cursor cursor = {0};
	struct hoist__plan_piece piece;
	uintptr_t from = UINTPTR_MAX;
	uintptr_t to = 0;
	*request = (struct hoist__request){
		.file = load->checkpoint->files[load->plan.extents[chunk->extent].file].file,
		.buffer = -1,
		.hot = true,
		.rows = flight->rows,
		.owner = flight,
	};
	while (hoist__plan_piece(&load->plan, chunk, &cursor, &piece)) {
		struct hoist__rows *rows = &flight->rows[request->n_rows++];
		bool in_slot = flight->slot != NULL;
		HOIST__ASSERT(request->n_rows <= HOIST__LOAD_ROWS);
		*rows = (struct hoist__rows){
			.offset = chunk->offset + piece.at,
			.address = in_slot ? flight->address + request->bytes
					   : (unsigned char *)place_of(load, &piece),
			.bytes = piece.row_bytes,
			.n = piece.rows,
			.stride = piece.at_stride,
			.address_stride = in_slot ? (int64_t)piece.row_bytes : piece.target_stride,
		};
		uintptr_t first = (uintptr_t)rows->address;
		uintptr_t last = first + (piece.rows - 1) * (uintptr_t)rows->address_stride;
		from = hoist__min_u64(from, hoist__min_u64(first, last));
		to = hoist__max_u64(to, hoist__max_u64(first, last) + piece.row_bytes);
		request->bytes += piece.rows * piece.row_bytes;
	}
	HOIST__ASSERT(request->bytes == chunk->useful);
	request->need = request->bytes;
	request->offset = flight->rows[0].offset;
	request->address = flight->rows[0].address;
	hoist__pump_set_fresh(load, from, to, request);
	load->routes.straight++;
	return request;
}
