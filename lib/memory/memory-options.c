/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-options.c - checks the options of a resource, and which kinds take which.
 * The contract is in lib/memory/memory.h. */
#include "config.h"

#include "base/checked.h"
#include "base/error.h"
#include "lib/device/device.h"
#include "lib/memory/memory.h"

#define MAX_DEBUG 2

static int refuse(const hoist_memory_options *options, const char *what)
{
	return hoist__fail(-EINVAL, "hoist_memory_options: %s memory has no %s",
			   hoist__memory_kind_text(options->kind), what);
}

/* Refuses an option that the kind does not take: the mistake would go unnoticed otherwise. */
static int check_applies(const hoist_memory_options *o, unsigned kinds)
{
	const struct {
		bool set;
		unsigned kinds;
		const char *what;
	} rows[] = {
		{o->placement != 0, HOIST__PLACED, "placement"},
		{o->n_nodes != 0, HOIST__PLACED, "nodes"},
		{o->pages != 0, HOIST__PLACED, "choice of pages"},
		{o->debug != 0, HOIST__POOLED, "debug level"},
		{o->region_bytes != 0, HOIST__POOLED | HOIST__KIND(HEAP), "region_bytes"},
		{o->keep_bytes != 0, HOIST__POOLED | HOIST__KIND(HEAP), "keep_bytes"},
		{o->cache_bytes != 0, HOIST__POOLED, "cache_bytes"},
		{o->limit_bytes != 0, HOIST__POOLED | HOIST__KIND(HEAP) | HOIST__KIND(DRIVER_POOL),
		 "limit_bytes"},
		{o->soft_limit_bytes != 0, HOIST__POOLED | HOIST__KIND(HEAP), "soft_limit_bytes"},
		{o->budget != NULL, HOIST__POOLED | HOIST__KIND(HEAP), "budget"},
		{o->preferred_location != 0, HOIST__KIND(MANAGED), "preferred location"},
		{o->preferred_node != 0, HOIST__KIND(MANAGED), "preferred node"},
		{o->virtual_options != NULL, HOIST__KIND(VIRTUAL), "virtual_options"},
		{o->functions != NULL, HOIST__KIND(CUSTOM), "functions"},
		{o->functions_context != NULL, HOIST__KIND(CUSTOM), "functions_context"},
		{o->upstream != NULL, HOIST__KIND(HOST) | HOIST__KIND(PINNED) | HOIST__KIND(DEVICE),
		 "upstream"},
		{(o->flags & HOIST_MEMORY_NO_STATISTICS) != 0, HOIST__POOLED,
		 "statistics to switch off"},
		{(o->flags & HOIST_MEMORY_CURRENT_POOL) != 0, HOIST__KIND(DRIVER_POOL),
		 "current pool"},
		{(o->flags & HOIST_MEMORY_SHAREABLE) != 0, HOIST__KIND(DRIVER_POOL),
		 "way to be shared as a resource"},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(rows); i++)
		if (rows[i].set && (rows[i].kinds & kinds) == 0)
			return refuse(o, rows[i].what);
	return 0;
}

static int check_values(const hoist_memory_options *o)
{
	unsigned unknown = o->flags & ~(HOIST_MEMORY_NO_STATISTICS | HOIST_MEMORY_CURRENT_POOL |
					HOIST_MEMORY_SHAREABLE);
	if (unknown != 0)
		return hoist__fail(-EINVAL, "hoist_memory_options: 0x%x are no flags", unknown);
	if (o->placement < 0 || o->placement > HOIST_PLACE_INTERLEAVE)
		return hoist__fail(-EINVAL, "hoist_memory_options: %d is no placement",
				   o->placement);
	if (o->pages < 0 || o->pages > HOIST_PAGES_HUGETLB)
		return hoist__fail(-EINVAL, "hoist_memory_options: %d is no kind of pages",
				   o->pages);
	if (o->debug > MAX_DEBUG)
		return hoist__fail(-EINVAL,
				   "hoist_memory_options: debug level %u; the highest is %d",
				   o->debug, MAX_DEBUG);
	if (o->exhausted == NULL && o->exhausted_retries != 0)
		return hoist__fail(-EINVAL,
				   "hoist_memory_options: exhausted_retries is %u, but "
				   "there is no exhausted function to call",
				   o->exhausted_retries);
	if (o->budget == NULL && o->budget_wait_ns != 0)
		return hoist__fail(-EINVAL,
				   "hoist_memory_options: budget_wait_ns is set, but there "
				   "is no budget to wait for");
	if (o->limit_bytes != 0 && o->soft_limit_bytes > o->limit_bytes)
		return hoist__fail(-EINVAL,
				   "hoist_memory_options: soft_limit_bytes (%zu) exceeds "
				   "limit_bytes (%zu)",
				   o->soft_limit_bytes, o->limit_bytes);
	if (o->limit_bytes != 0 && (o->flags & HOIST_MEMORY_CURRENT_POOL) != 0)
		return hoist__fail(-EINVAL,
				   "hoist_memory_options: the device's current pool has no "
				   "limit_bytes of ours");
	if ((o->flags & HOIST_MEMORY_SHAREABLE) != 0 && (o->flags & HOIST_MEMORY_CURRENT_POOL) != 0)
		return hoist__fail(-EINVAL,
				   "hoist_memory_options: whether the device's current pool "
				   "is shareable is not ours to say; make one without "
				   "HOIST_MEMORY_CURRENT_POOL");
	return 0;
}

static int check_preference(const hoist_memory_options *o)
{
	bool of_node = o->preferred_location == HOIST_PREFER_HOST_NODE;
	if (o->preferred_location < 0 || o->preferred_location > HOIST_PREFER_HOST_NODE)
		return hoist__fail(-EINVAL, "hoist_memory_options: %d is no preferred location",
				   o->preferred_location);
	if (!of_node && o->preferred_node != 0)
		return hoist__fail(-EINVAL,
				   "hoist_memory_options: preferred_node is set, but the preferred "
				   "location is no node's");
	if (of_node && !hoist__device_has_node(o->preferred_node))
		return hoist__fail(-EINVAL,
				   "hoist_memory_options: this machine has no NUMA node %d",
				   o->preferred_node);
	return 0;
}

static int check_device(const hoist_memory_options *o, bool cpu)
{
	if ((1u << o->kind &
	     (HOIST__KIND(DEVICE) | HOIST__KIND(MANAGED) | HOIST__KIND(DRIVER_POOL) |
	      HOIST__KIND(VIRTUAL) | HOIST__KIND(GRAPH))) == 0)
		return 0;
	if (o->device == NULL)
		return hoist__fail(
			-EINVAL,
			"hoist_memory_options: %s memory needs a device, and the device is NULL",
			hoist__memory_kind_text(o->kind));
	if (cpu && o->kind == HOIST_MEMORY_MANAGED)
		return hoist__fail(-ENOTSUP, "the CPU has no managed memory; all of its memory is "
					     "its own (HOIST_MEMORY_HOST)");
	if (cpu && o->kind == HOIST_MEMORY_DRIVER_POOL)
		return hoist__fail(-ENOTSUP, "the CPU has no driver, and no driver's pools");
	if (cpu && o->kind == HOIST_MEMORY_GRAPH)
		return hoist__fail(-ENOTSUP, "the CPU has no graphs, and no memory of theirs");
	return 0;
}

/* DEVICE on the CPU is HOST, and takes the options of HOST. */
int hoist__memory_check_options(const hoist_memory_options *o, bool cpu)
{
	unsigned kinds = 1u << o->kind;
	if (o->kind == HOIST_MEMORY_DEVICE && cpu)
		kinds |= HOIST__KIND(HOST);
	int err = check_values(o);
	if (err == 0)
		err = check_preference(o);
	if (err == 0)
		err = check_device(o, cpu);
	if (err == 0)
		err = check_applies(o, kinds);
	return err;
}
