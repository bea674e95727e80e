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
	if (cells->last - first + 1 > cells->span)
		cells->span = cells->last - first + 1;
	return 0;
}

static int walk(struct hoist__cells *cells)
{
	memset(cells->wants, 0, cells->n * HOIST__CELL_WORDS * sizeof *cells->wants);
	memset(cells->touches, 0, cells->n * sizeof *cells->touches);
	cells->span = 0;
	cells->last = 0;
	return hoist__load_walk(cells->load, count_chunk, cells);
}

/* Walks with fewer and fewer parts in a chunk, until the span is small enough. */
static int walk_near(struct hoist__cells *cells)
{
	struct hoist__plan *plan = &cells->load->plan;
	int err = walk(cells);
	while (err == 0 && cells->span > cells->most && plan->max_parts > 1) {
		plan->max_parts /= 2;
		err = walk(cells);
	}
	HOIST__ASSERT(err < 0 || cells->span <= cells->most);
	return err;
}

int hoist__cells_make(struct hoist__cells *cells, struct hoist_load *load, size_t most)
{
	*cells = (struct hoist__cells){.load = load, .most = most};
	int err = number_cells(cells, load->checkpoint);
	/* Devices may then copy a chunk from the memory of its only cell. */
	if (load->n_streams > 0 && !load->plan.has_conversion)
		load->plan.cut_bytes = HOIST__CELL_BYTES;
	if (err == 0)
		err = hoist__plan_interleave(&load->plan, HOIST__CELL_BYTES);
	for (unsigned d = 0; d < load->disk_table.n; d++)
		if (load->plan.max_parts >= load->disks[d].depth)
			load->plan.max_parts = load->disks[d].depth - 1;
	return err == 0 ? walk_near(cells) : err;
}

/* Has the plan begin at the cell.  Returns: as hoist__plan_begin_at(). */
static int begin_at(struct hoist__cells *cells, size_t cell)
{
	size_t file = hoist__cells_file(cells, cell);
	return hoist__plan_begin_at(&cells->load->plan, file,
				    (cell - cells->first[file]) * HOIST__CELL_BYTES,
				    cells->load->digests == NULL);
}

/* In each extent, its first cell and the next one are tried: a reason against these is one against
 * all others of the extent. */
size_t hoist__cells_start_at(struct hoist__cells *cells, size_t cell)
{
	const struct hoist__plan *plan = &cells->load->plan;
	int err = 1;
	for (size_t e = 0; err == 1 && e < plan->n_extents; e++) {
		const struct hoist__plan_extent *extent = &plan->extents[e];
		size_t first = hoist__cells_at(cells, extent->file, extent->begin);
		size_t last = hoist__cells_at(cells, extent->file, extent->end - 1);
		first = first > cell ? first : cell;
		for (size_t c = first; err == 1 && c <= last && c <= first + 1; c++)
			err = begin_at(cells, c);
	}
	if (err != 0)
		return cells->n;
	cells->start = hoist__cells_at(cells, plan->extents[0].file, plan->extents[0].begin);
	return walk_near(cells) == 0 ? cells->start : cells->n;
}

void hoist__cells_fini(struct hoist__cells *cells)
{
	free(cells->first);
	free(cells->wants);
	free(cells->touches);
	*cells = (struct hoist__cells){0};
}
