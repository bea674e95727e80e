/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-place.c - places files in memory on NUMA nodes, and populates them.
 * The contract is in lib/cache/cache.h. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "alloc/map.h"
#include "alloc/populate.h"
#include "alloc/region.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/figure.h"
#include "lib/cache/cache.h"
#include "numa/place.h"
#include "numa/processors.h"

#define N_SAMPLES 64

/* The bytes populated between two checks for a cancel. */
#define PIECE_BYTES ((size_t)256 << 20)

/* Bytes per second of a thread: huge pages that come slower are given up.  An image is made once
 * and used by many processes, so its huge pages may cost more than elsewhere. */
#define THP_FLOOR (HOIST__THP_FLOOR / 5)

/* A file of fewer bytes is populated at once: its threads have ended before a read would. */
#define LATE_BYTES ((size_t)32 << 20)

static void placement_of(const hoist_cache_options *options, struct hoist__placement *ret)
{
	static const enum hoist__policy policies[] = {
		[HOIST_PLACE_DEFAULT] = HOIST__POLICY_LOCAL,
		[HOIST_PLACE_LOCAL] = HOIST__POLICY_LOCAL,
		[HOIST_PLACE_PREFER] = HOIST__POLICY_PREFER,
		[HOIST_PLACE_BIND] = HOIST__POLICY_BIND,
		[HOIST_PLACE_INTERLEAVE] = HOIST__POLICY_INTERLEAVE,
	};
	memset(ret, 0, sizeof *ret);
	ret->policy = policies[options->placement];
	for (size_t i = 0; i < options->n_nodes; i++)
		hoist__nodeset_add(&ret->nodes, options->nodes[i]);
}

/* By default the kernel gives shared memory small pages.  Huge pages are made of them, unless small
 * pages were asked for.  @collapsed of @populated bytes are huge pages. */
static void note_pages(struct hoist__memory_file *file, size_t populated, size_t collapsed, int err)
{
	size_t whole = (size_t)hoist__round_down(populated, HOIST__HUGE_PAGE_BYTES);
	if (whole > 0 && collapsed == whole)
		file->pages = HOIST_PAGES_DEFAULT;
	else if (file->note[0] != '\0')
		return;
	else if (whole == 0)
		(void)snprintf(file->note, sizeof file->note, "small pages: less than 2 MiB");
	else
		(void)snprintf(file->note, sizeof file->note,
			       "small pages: the kernel made huge ones of %s of %s only (%s)",
			       hoist__figure(collapsed).text, hoist__figure(whole).text,
			       err == -ETIME ? "slow" : strerrorname_np(-err));
}

/* Populates a piece at a time, so that the work can be cancelled. */
static int populate(struct hoist__memory_file *file, const hoist_cache_options *options,
		    struct hoist__populate_job *job)
{
	size_t collapsed = 0;
	int collapse_err = 0;
	int err = 0;
	for (size_t at = 0; err == 0 && at < file->bytes; at += PIECE_BYTES) {
		struct hoist__populate_report report = {0};
		job->base = file->base + at;
		job->bytes = (size_t)hoist__min_u64(PIECE_BYTES, file->bytes - at);
		if (options->progress != NULL &&
		    options->progress(options->progress_context, 0, file->bytes) != 0)
			return hoist__fail(-ECANCELED, "cancelled after %s of %s of the image",
					   hoist__figure(at).text, hoist__figure(file->bytes).text);
		err = hoist__populate_parallel(job, &report);
		collapsed += report.collapsed;
		if (report.slow)
			report.collapse_err = -ETIME;
		if (report.collapse_err != 0)
			collapse_err = report.collapse_err;
		job->collapse = job->collapse && (collapse_err == 0 || collapse_err == -EAGAIN);
	}
	if (err == 0 && file->pages == HOIST_PAGES_SMALL && options->pages != HOIST_PAGES_SMALL)
		note_pages(file, file->bytes, collapsed, collapse_err);
	return err;
}

/* Places the file.  *ret says how the kernel took the placement.  Bound memory only prefers its
 * nodes for now: see numa/place.h. */
static int place(const struct hoist__memory_file *file, const struct hoist__placement *placement,
		 const struct hoist__topology *topology, enum hoist__placed *ret)
{
	int err = hoist__place(file->base, file->bytes, placement, ret);
	if (placement->policy != HOIST__POLICY_BIND || file->pages == HOIST_PAGES_HUGETLB)
		return err;
	if (err == 0)
		err = hoist__place_has_room(topology, placement, file->bytes);
	if (err == 0 && *ret == HOIST__PLACED_KERNEL)
		hoist__place_softly(file->base, file->bytes, placement);
	return err;
}

int hoist__memory_file_place(struct hoist__memory_file *file, const hoist_cache_options *options)
{
	struct hoist__placement placement;
	struct hoist__topology *topology = NULL;
	enum hoist__placed placed = HOIST__PLACED_DEFAULT;
	placement_of(options, &placement);
	int err = placement.policy != HOIST__POLICY_LOCAL ? hoist__topology_load("/sys", &topology)
							  : 0;
	if (err == 0)
		err = place(file, &placement, topology, &placed);
	struct hoist__processors processors;
	hoist__processors_for(file->base, &processors);
	bool collapse = file->pages == HOIST_PAGES_SMALL && options->pages != HOIST_PAGES_SMALL;
	struct hoist__populate_job job = {
		.n_threads = (unsigned)hoist__min_u64(processors.n, HOIST__PROCESSORS_POPULATE),
		.topology = topology,
		.nodes = placed == HOIST__PLACED_FIRST_TOUCH ? &placement.nodes : NULL,
		.collapse = collapse,
		.thp_floor = collapse ? THP_FLOOR : 0,
	};
	bool strict = placement.policy == HOIST__POLICY_BIND && placed == HOIST__PLACED_KERNEL &&
		      file->pages != HOIST_PAGES_HUGETLB;
	unsigned n = 0;
	file->late = err == 0 && !strict && placed != HOIST__PLACED_FIRST_TOUCH &&
		     file->pages != HOIST_PAGES_HUGETLB && file->bytes >= LATE_BYTES;
	/* Strict placement moves pages after they were populated, and may have to be repeated: see
	 * numa/place.h. */
	while (err == 0 && !file->late) {
		err = populate(file, options, &job);
		if (err < 0 || !strict)
			break;
		err = hoist__place_strictly(file->base, file->bytes, &placement, n++);
		if (err <= 0)
			break;
		err = 0;
	}
	hoist__topology_destroy(topology);
	if (placed == HOIST__PLACED_FIRST_TOUCH && file->note[0] == '\0')
		(void)snprintf(
			file->note, sizeof file->note,
			"the kernel refuses mbind here: the first touch of each page decided");
	return err;
}

/* --- pages that come while the file is filled --- */

int hoist__late_populate(void *context, void *address, size_t bytes)
{
	struct hoist__late_pages *pages = context;
	struct hoist__populate_report report = {0};
	bool collapse = pages->wants_huge && !atomic_load(&pages->gave_up);
	/* The pace of huge pages is judged by two slices. */
	const struct hoist__populate_job job = {
		.base = address,
		.bytes = bytes,
		.slice_bytes = (size_t)hoist__round_up(bytes / 2, HOIST__HUGE_PAGE_BYTES),
		.n_threads = 1,
		.collapse = collapse,
		.thp_floor = collapse ? THP_FLOOR : 0,
	};
	if (!pages->late)
		return 0;
	int err = hoist__populate_parallel(&job, &report);
	atomic_fetch_add(&pages->populated, bytes);
	atomic_fetch_add(&pages->collapsed, report.collapsed);
	if (report.slow)
		report.collapse_err = -ETIME;
	if (report.collapse_err != 0)
		atomic_store(&pages->collapse_err, report.collapse_err);
	if (report.collapse_err != 0 && report.collapse_err != -EAGAIN)
		atomic_store(&pages->gave_up, true);
	return err;
}

void hoist__late_note(const struct hoist__late_pages *pages, struct hoist__memory_file *file)
{
	size_t populated = atomic_load(&pages->populated);
	if (!pages->late)
		return;
	/* Slots are copied to places whose pages come with the copies. */
	if (pages->wants_huge && populated < pages->bytes && file->note[0] == '\0')
		(void)snprintf(file->note, sizeof file->note,
			       "small pages: only %s of %s were read straight to their places",
			       hoist__figure(populated).text, hoist__figure(pages->bytes).text);
	else if (pages->wants_huge)
		note_pages(file, populated, atomic_load(&pages->collapsed),
			   atomic_load(&pages->collapse_err));
	file->node = hoist__memory_file_node(file);
}

int hoist__memory_file_node(const struct hoist__memory_file *file)
{
	struct hoist__whereabouts where;
	int found = -1;
	if (hoist__whereabouts(file->base, file->bytes, N_SAMPLES, &where) < 0)
		return -1;
	for (int node = 0; node < HOIST__MAX_NODES; node++) {
		if (where.per_node[node] == 0)
			continue;
		if (found >= 0)
			return -1;
		found = node;
	}
	return found;
}
