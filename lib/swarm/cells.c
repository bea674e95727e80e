/* SPDX-License-Identifier: MIT */
/* The cells of a checkpoint's files, and which of them a load touches.
 * The contract is in lib/swarm/cells.h. */
#include "config.h"

#include "lib/swarm/cells.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"

size_t hoist__cells_file(const struct hoist__cells *cells, size_t cell)
{
	size_t low = 0;
	size_t high = cells->load->checkpoint->n_files;
	while (high - low > 1) {
		size_t mid = low + (high - low) / 2;
		if (cells->first[mid] <= cell)
			low = mid;
		else
			high = mid;
	}
	return low;
}

bool hoist__cells_next(const struct hoist__cells *cells, const struct hoist__chunk *chunk,
		       struct hoist__cell_walk *walk)
{
	size_t file = hoist__cells_file_of(cells, chunk);
	if (walk->cell != SIZE_MAX && walk->cell < walk->last) {
		walk->cell++;
		return true;
	}
	for (unsigned part = walk->cell == SIZE_MAX ? 0 : walk->part + 1; part < chunk->n_parts;
	     part++) {
		uint64_t offset = chunk->offset + part * chunk->part_stride;
		size_t first = hoist__cells_at(cells, file, offset);
		size_t last = hoist__cells_at(cells, file, offset + chunk->need - 1);
		walk->part = part;
		if (walk->cell != SIZE_MAX && first <= walk->cell)
			first = walk->cell + 1;
		if (first > last)
			continue;
		walk->cell = first;
		walk->last = last;
		return true;
	}
	return false;
}

static int number_cells(struct hoist__cells *cells, const struct hoist_checkpoint *checkpoint)
{
	size_t n = 0;
	cells->first = calloc(checkpoint->n_files + 1, sizeof *cells->first);
	if (cells->first == NULL)
		return hoist__fail_nomem("a table of files", checkpoint->n_files);
	for (size_t f = 0; f < checkpoint->n_files; f++) {
		cells->first[f] = n;
		n += (size_t)((checkpoint->files[f].file->bytes + HOIST__CELL_BYTES - 1) /
			      HOIST__CELL_BYTES);
	}
	cells->first[checkpoint->n_files] = cells->n = n;
	cells->wants = calloc(hoist__wants_words(n) + 1, sizeof *cells->wants);
	cells->touches = calloc(n + 1, sizeof *cells->touches);
	if (cells->wants == NULL || cells->touches == NULL)
		return hoist__fail_nomem("the cells of a group",
					 hoist__wants_words(n) * sizeof *cells->wants);
	return 0;
}

static size_t step_of(const struct hoist__cells *cells, size_t cell)
{
	return cell >= cells->start ? cell - cells->start : cell + cells->n - cells->start;
}

static int count_chunk(void *context, const struct hoist__chunk *chunk)
{
	struct hoist__cells *cells = context;
	struct hoist__cell_walk at = {.cell = SIZE_MAX};
	size_t file = hoist__cells_file_of(cells, chunk);
	uint64_t base = cells->first[file] * (uint64_t)HOIST__CELL_BLOCKS;
	for (unsigned part = 0; part < chunk->n_parts; part++) {
		uint64_t offset = chunk->offset + part * chunk->part_stride;
		hoist__wants_add(cells->wants, base + offset / HOIST__BLOCK_BYTES,
				 base + (offset + chunk->need - 1) / HOIST__BLOCK_BYTES + 1);
	}
	while (hoist__cells_next(cells, chunk, &at)) {
		size_t step = step_of(cells, at.cell);
		cells->touches[at.cell]++;
		cells->last = step > cells->last ? step : cells->last;
	}
	size_t first = step_of(cells, hoist__cells_at(cells, file, chunk->offset));
	if (cells->last - first + 1 > cells->reach)
		cells->reach = cells->last - first + 1;
	return 0;
}

static int walk(struct hoist__cells *cells)
{
	memset(cells->wants, 0, cells->n * HOIST__CELL_WORDS * sizeof *cells->wants);
	memset(cells->touches, 0, cells->n * sizeof *cells->touches);
	cells->reach = 0;
	cells->last = 0;
	return hoist__load_walk(cells->load, count_chunk, cells);
}

int hoist__cells_make(struct hoist__cells *cells, struct hoist_load *load, size_t most)
{
	*cells = (struct hoist__cells){.load = load};
	int err = number_cells(cells, load->checkpoint);
	/* Devices may then copy a chunk from the memory of its only cell. */
	if (load->n_streams > 0 && !load->plan.has_conversion)
		load->plan.cut_bytes = HOIST__CELL_BYTES;
	if (err == 0)
		err = hoist__plan_interleave(&load->plan, HOIST__CELL_BYTES);
	for (unsigned d = 0; d < load->disk_table.n; d++)
		if (load->plan.max_parts >= load->disks[d].depth)
			load->plan.max_parts = load->disks[d].depth - 1;
	for (bool far = err == 0; far;) {
		err = walk(cells);
		far = err == 0 && cells->reach > most && load->plan.max_parts > 1;
		if (far)
			load->plan.max_parts /= 2;
	}
	HOIST__ASSERT(err < 0 || cells->reach <= most);
	return err;
}

/* Makes the extents before @k the last ones. */
static int rotate(struct hoist__plan *plan, size_t k)
{
	size_t n = plan->n_extents;
	struct hoist__plan_extent *rotated = calloc(n, sizeof *rotated);
	if (rotated == NULL)
		return hoist__fail_nomem("a plan", n * sizeof *rotated);
	memcpy(rotated, plan->extents + k, (n - k) * sizeof *rotated);
	memcpy(rotated + (n - k), plan->extents, k * sizeof *rotated);
	free(plan->extents);
	plan->extents = rotated;
	return 0;
}

size_t hoist__cells_start_at(struct hoist__cells *cells, size_t cell)
{
	struct hoist__plan *plan = &cells->load->plan;
	size_t k = 0;
	size_t behind = 0; /* all cells of the extents before k */
	size_t first = 0;
	for (; k < plan->n_extents; k++) {
		const struct hoist__plan_extent *extent = &plan->extents[k];
		first = hoist__cells_at(cells, extent->file, extent->begin);
		if (k > 0 && first >= cell && first >= behind)
			break;
		size_t end = hoist__cells_at(cells, extent->file, extent->end - 1) + 1;
		behind = end > behind ? end : behind;
	}
	if (k == 0 || k == plan->n_extents || rotate(plan, k) < 0)
		return cells->n;
	cells->start = first;
	if (walk(cells) < 0)
		return cells->n;
	HOIST__ASSERT(cells->reach <= cells->n);
	return first;
}

void hoist__cells_fini(struct hoist__cells *cells)
{
	free(cells->first);
	free(cells->wants);
	free(cells->touches);
	*cells = (struct hoist__cells){0};
}
