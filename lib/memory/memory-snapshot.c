/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-snapshot.c - writes a resource's options, statistics and blocks as JSON.
 * The contract is in hoist/memory.h, which also lists the keys. */
#include "config.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/json-out.h"
#include "lib/memory/memory.h"
#include "lib/memory/snapshot.h"
#include "numa/residence.h"

/* Pages of each region whose node the kernel is asked for. */
#define N_SAMPLES 64

struct writer {
	struct hoist__json_out out;
	hoist_memory *memory;
	hoist_memory_statistics statistics;
	struct hoist__snapshot snapshot;
	struct hoist__residence *residence; /* of each region; NULL if the kernel does not tell */
};

static void field(struct hoist__json_out *out, const char *key, uint64_t value)
{
	hoist__out_key(out, key);
	hoist__out_u64(out, value);
}

static void text_field(struct hoist__json_out *out, const char *key, const char *text)
{
	hoist__out_key(out, key);
	hoist__out_string(out, text);
}

static void flag_field(struct hoist__json_out *out, const char *key, bool value)
{
	hoist__out_key(out, key);
	hoist__out_bool(out, value);
}

/* --- options and statistics --- */

static void write_nodes(struct hoist__json_out *out, const struct hoist__nodeset *nodes)
{
	hoist__out_key(out, "nodes");
	hoist__out_open(out, "[");
	for (int node = 0; node < HOIST__MAX_NODES; node++)
		if (hoist__nodeset_has(nodes, node))
			hoist__out_i64(out, node);
	hoist__out_close(out, "]");
}

static void write_budget(struct hoist__json_out *out, struct hoist__budget *budget)
{
	hoist__out_key(out, "budget");
	if (budget == NULL) {
		hoist__out_null(out);
		return;
	}
	hoist__out_open(out, "{");
	field(out, "limit", hoist__budget_limit(budget));
	field(out, "used", hoist__budget_used(budget));
	field(out, "peak", hoist__budget_peak(budget));
	hoist__out_close(out, "}");
}

static void write_options(struct writer *w)
{
	struct hoist__json_out *out = &w->out;
	const hoist_memory_options *o = &w->memory->options;
	hoist__out_key(out, "options");
	hoist__out_open(out, "{");
	text_field(out, "placement", hoist__placement_text(o->placement));
	write_nodes(out, &w->memory->placement.nodes);
	text_field(out, "pages", hoist__pages_text(o->pages));
	flag_field(out, "statistics", (o->flags & HOIST_MEMORY_NO_STATISTICS) == 0);
	flag_field(out, "current_pool", (o->flags & HOIST_MEMORY_CURRENT_POOL) != 0);
	text_field(out, "preferred_location", hoist__preference_text(o->preferred_location));
	field(out, "debug", o->debug);
	field(out, "region_bytes", o->region_bytes);
	field(out, "keep_bytes", o->keep_bytes);
	field(out, "cache_bytes", o->cache_bytes);
	field(out, "limit_bytes", o->limit_bytes);
	field(out, "soft_limit_bytes", o->soft_limit_bytes);
	write_budget(out, w->memory->budget);
	field(out, "budget_wait_ns", o->budget_wait_ns);
	field(out, "exhausted_retries", o->exhausted_retries);
	hoist__out_key(out, "upstream");
	if (w->memory->upstream != NULL)
		hoist__out_string(out, w->memory->upstream->name);
	else
		hoist__out_null(out);
	hoist__out_close(out, "}");
}

static void write_calls(struct hoist__json_out *out, const hoist_memory_statistics *s)
{
	static const char *const names[HOIST_N_CALLS] = {"map",	  "register", "alloc",
							 "event", "query",    "wait"};
	hoist__out_key(out, "calls");
	hoist__out_open(out, "{");
	for (int i = 0; i < HOIST_N_CALLS; i++) {
		hoist__out_key(out, names[i]);
		hoist__out_open(out, "{");
		field(out, "n", s->calls[i].n);
		field(out, "ns", s->calls[i].ns);
		field(out, "longest_ns", s->calls[i].longest_ns);
		hoist__out_close(out, "}");
	}
	hoist__out_close(out, "}");
}

static void write_statistics(struct writer *w)
{
	struct hoist__json_out *out = &w->out;
	const hoist_memory_statistics *s = &w->statistics;
	hoist__out_key(out, "statistics");
	hoist__out_open(out, "{");
	field(out, "requested_bytes", s->requested_bytes);
	field(out, "requested_peak", s->requested_peak);
	field(out, "allocated_bytes", s->allocated_bytes);
	field(out, "cached_bytes", s->cached_bytes);
	field(out, "pending_bytes", s->pending_bytes);
	field(out, "reserved_bytes", s->reserved_bytes);
	field(out, "reserved_peak", s->reserved_peak);
	field(out, "largest_free_bytes", s->largest_free_bytes);
	hoist__out_key(out, "fragmentation");
	hoist__out_share(out, s->fragmentation);
	field(out, "n_blocks", s->n_blocks);
	field(out, "n_regions", s->n_regions);
	field(out, "n_allocs", s->n_allocs);
	field(out, "n_frees", s->n_frees);
	field(out, "n_growths", s->n_growths);
	field(out, "n_events", s->n_events);
	field(out, "n_exhausted", s->n_exhausted);
	field(out, "parked_bytes", s->parked_bytes);
	write_calls(out, s);
	hoist__out_close(out, "}");
}

/* --- regions --- */

static bool is_host(const struct hoist__region *region)
{
	return region->options.kind == HOIST__MEMORY_HOST ||
	       region->options.kind == HOIST__MEMORY_PINNED;
}

static void write_huge_share(struct hoist__json_out *out, double resident, double huge)
{
	hoist__out_key(out, "huge_page_share");
	if (resident > 0)
		hoist__out_share(out, huge < resident ? huge / resident : 1);
	else
		hoist__out_null(out);
}

static void add_pages(struct hoist__whereabouts *sum, const struct hoist__whereabouts *pages)
{
	sum->n_sampled += pages->n_sampled;
	sum->n_absent += pages->n_absent;
	sum->n_unknown += pages->n_unknown;
	for (int node = 0; node < HOIST__MAX_NODES; node++)
		sum->per_node[node] += pages->per_node[node];
}

/* Writes null if the kernel was asked for no page, as for memory of a device. */
static void write_pages(struct hoist__json_out *out, const struct hoist__whereabouts *pages)
{
	hoist__out_key(out, "pages_per_node");
	if (pages->n_sampled == 0) {
		hoist__out_null(out);
		return;
	}
	hoist__out_open(out, "{");
	field(out, "sampled", pages->n_sampled);
	field(out, "absent", pages->n_absent);
	field(out, "unknown", pages->n_unknown);
	hoist__out_key(out, "nodes");
	hoist__out_open(out, "[");
	for (int node = 0; node < HOIST__MAX_NODES; node++) {
		if (pages->per_node[node] == 0)
			continue;
		hoist__out_open(out, "{");
		field(out, "node", (uint64_t)node);
		field(out, "pages", pages->per_node[node]);
		hoist__out_close(out, "}");
	}
	hoist__out_close(out, "]");
	hoist__out_close(out, "}");
}

static void write_steps(struct hoist__json_out *out, const struct hoist__region *region)
{
	static const char *const names[HOIST__N_STEPS] = {"reserve",  "huge",	"place",
							  "populate", "verify", "pin"};
	hoist__out_key(out, "steps");
	hoist__out_open(out, "{");
	for (int i = 0; i < HOIST__N_STEPS; i++) {
		hoist__out_key(out, names[i]);
		hoist__out_open(out, "{");
		field(out, "ns", region->step_ns[i]);
		text_field(out, "note", region->step_note[i]);
		hoist__out_close(out, "}");
	}
	hoist__out_close(out, "}");
}

static void write_region(struct writer *w, size_t i, struct hoist__whereabouts *sum)
{
	static const char *const kinds[] = {"host", "pinned", "device", "managed"};
	static const char *const pages[] = {"small", "thp", "hugetlb"};
	static const char *const placed[] = {"default", "kernel", "first_touch"};
	struct hoist__json_out *out = &w->out;
	const struct hoist__region *region = &w->snapshot.regions[i];
	const struct hoist__residence *residence = w->residence != NULL ? &w->residence[i] : NULL;
	hoist__out_open(out, "{");
	field(out, "address", region->base);
	field(out, "bytes", region->bytes);
	text_field(out, "kind", kinds[region->options.kind]);
	text_field(out, "pages", pages[region->pages]);
	hoist__out_key(out, "node");
	hoist__out_i64(out, region->node);
	text_field(out, "placed", placed[region->placed]);
	flag_field(out, "pinned", region->pinned);
	field(out, "piece_bytes", region->piece_bytes);
	flag_field(out, "given", region->options.given != 0);
	write_steps(out, region);
	write_huge_share(out, residence != NULL ? residence->resident : 0,
			 residence != NULL ? residence->huge : 0);
	struct hoist__whereabouts found;
	if (is_host(region) &&
	    hoist__whereabouts((void *)region->base, region->bytes, N_SAMPLES, &found) == 0) {
		add_pages(sum, &found);
		write_pages(out, &found);
	} else {
		hoist__out_key(out, "pages_per_node");
		hoist__out_null(out);
	}
	hoist__out_close(out, "}");
}

static void write_regions(struct writer *w)
{
	struct hoist__whereabouts pages = {0};
	double resident = 0;
	double huge = 0;
	hoist__out_key(&w->out, "regions");
	hoist__out_open(&w->out, "[");
	for (size_t i = 0; i < w->snapshot.n_regions; i++) {
		write_region(w, i, &pages);
		resident += w->residence != NULL ? w->residence[i].resident : 0;
		huge += w->residence != NULL ? w->residence[i].huge : 0;
	}
	hoist__out_close(&w->out, "]");
	write_huge_share(&w->out, resident, huge);
	write_pages(&w->out, &pages);
}

static void write_blocks(struct writer *w)
{
	static const char *const states[] = {"live", "cached", "pending", "free"};
	struct hoist__json_out *out = &w->out;
	hoist__out_key(out, "blocks");
	hoist__out_open(out, "[");
	for (size_t i = 0; i < w->snapshot.n_blocks && out->err == 0; i++) {
		const struct hoist__snapshot_block *block = &w->snapshot.blocks[i];
		hoist__out_open(out, "{");
		field(out, "address", block->address);
		field(out, "bytes", block->bytes);
		field(out, "requested", block->requested);
		text_field(out, "state", states[block->state]);
		hoist__out_close(out, "}");
	}
	hoist__out_close(out, "]");
}

/* --- collecting --- */

static int by_base(const void *a, const void *b)
{
	const struct hoist__region *one = a;
	const struct hoist__region *other = b;
	return (one->base > other->base) - (one->base < other->base);
}

/* Asks for host memory only.  Figures that the kernel does not tell are written as null. */
static int ask_residence(struct writer *w)
{
	size_t n = w->snapshot.n_regions;
	/* All regions of a resource are of one kind. */
	if (n == 0 || !is_host(&w->snapshot.regions[0]))
		return 0;
	qsort(w->snapshot.regions, n, sizeof w->snapshot.regions[0], by_base);
	w->residence = calloc(n, sizeof *w->residence);
	if (w->residence == NULL)
		return hoist__fail_nomem("a snapshot", n * sizeof *w->residence);
	for (size_t i = 0; i < n; i++) {
		w->residence[i].base = w->snapshot.regions[i].base;
		w->residence[i].bytes = w->snapshot.regions[i].bytes;
	}
	if (hoist__residence("/proc/self/smaps", w->residence, n) < 0) {
		free(w->residence);
		w->residence = NULL;
	}
	return 0;
}

/* Everything is collected before the first byte is written, so that no lock is held while @fd
 * blocks.  The parts are collected one after the other: a call of another thread in between may
 * show in the blocks and not in the statistics. */
static int collect(struct writer *w)
{
	w->statistics.size = sizeof w->statistics;
	int err = w->memory->ops->statistics(w->memory, &w->statistics);
	w->statistics.n_exhausted = atomic_load(&w->memory->xn_exhausted);
	w->statistics.parked_bytes = atomic_load(&w->memory->xparked_bytes);
	if (err == 0)
		err = w->memory->ops->collect(w->memory, &w->snapshot);
	if (err == 0)
		err = ask_residence(w);
	return err;
}

static int write_all(struct writer *w, int fd)
{
	struct hoist__json_out *out = &w->out;
	hoist__out_start(out, fd);
	hoist__out_open(out, "{");
	text_field(out, "name", w->memory->name);
	text_field(out, "kind", hoist__memory_kind_text(w->memory->options.kind));
	text_field(out, "device", hoist_device_spec(w->memory->device));
	write_options(w);
	write_statistics(w);
	write_regions(w);
	write_blocks(w);
	hoist__out_close(out, "}");
	return hoist__out_end(out);
}

int hoist_memory_snapshot(hoist_memory *memory, int fd)
{
	if (memory == NULL)
		return hoist__fail(-EINVAL, "the memory resource is NULL");
	struct writer *w = calloc(1, sizeof *w);
	if (w == NULL)
		return hoist__fail_nomem("a snapshot", sizeof *w);
	w->memory = memory;
	int err = collect(w);
	if (err == 0)
		err = write_all(w, fd);
	free(w->residence);
	free(w->snapshot.regions);
	free(w->snapshot.blocks);
	free(w);
	return err < 0 ? hoist__fail_in(err, "a snapshot of \"%s\"", memory->name) : 0;
}
