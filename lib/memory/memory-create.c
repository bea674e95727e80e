/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-create.c - makes a resource from options, and describes it.
 * The contract is in lib/memory/memory.h and hoist/memory.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/heap.h"
#include "base/checked.h"
#include "base/error.h"
#include "lib/core/options.h"
#include "lib/device/device.h"
#include "lib/memory/budget.h"
#include "lib/memory/memory.h"

/* Empty regions that are kept by default.  Making a region takes milliseconds, and a use that goes
 * up and down by some regions should not make them anew each time. */
#define KEPT_REGIONS 8

#define REGION_BYTES (32 * HOIST__MIB)
#define LOCKED_REGION_BYTES (2 * HOIST__MIB)

const char *hoist__memory_kind_text(int kind)
{
	static const char *const texts[] = {"host", "pinned", "device",	 "managed", "driver_pool",
					    "heap", "custom", "virtual", "graph"};
	return kind >= 0 && (size_t)kind < HOIST__ARRAY_SIZE(texts) ? texts[kind] : "unknown";
}

const char *hoist__placement_text(int placement)
{
	static const char *const texts[] = {"default", "local", "prefer", "bind", "interleave"};
	return texts[placement];
}

const char *hoist__pages_text(int pages)
{
	static const char *const texts[] = {"default", "small", "hugetlb"};
	return texts[pages];
}

const char *hoist__preference_text(int location)
{
	static const char *const texts[] = {"none", "device", "host", "host_node"};
	return texts[location];
}

/* --- CUSTOM --- */

static int take_functions(hoist_memory *memory, const hoist_memory_functions *given)
{
	if (memory->options.kind != HOIST_MEMORY_CUSTOM)
		return 0;
	if (given == NULL)
		return hoist__fail(-EINVAL, "hoist_memory_options: custom memory needs functions");
	int err = hoist__options_in("hoist_memory_functions", given, &memory->functions,
				    sizeof memory->functions);
	if (err < 0)
		return err;
	if (memory->functions.alloc == NULL || memory->functions.free == NULL)
		return hoist__fail(-EINVAL,
				   "hoist_memory_functions: %s is NULL; alloc and free are needed",
				   memory->functions.alloc == NULL ? "alloc" : "free");
	return 0;
}

/* --- placement --- */

static int take_nodes(hoist_memory *memory, const hoist_memory_options *o)
{
	bool takes = o->placement >= HOIST_PLACE_PREFER;
	if (!takes && o->n_nodes != 0)
		return hoist__fail(
			-EINVAL,
			"hoist_memory_options: nodes are for PREFER, BIND and INTERLEAVE; "
			"the placement is %s",
			hoist__placement_text(o->placement));
	if (takes && (o->n_nodes == 0 || o->nodes == NULL))
		return hoist__fail(-EINVAL, "hoist_memory_options: placement %s needs nodes",
				   hoist__placement_text(o->placement));
	for (size_t i = 0; i < o->n_nodes; i++) {
		if (!hoist__device_has_node(o->nodes[i]))
			return hoist__fail(-EINVAL,
					   "hoist_memory_options: this machine has no NUMA node %d",
					   o->nodes[i]);
		/* PREFER takes one node, as a set has no order. */
		if (o->placement != HOIST_PLACE_PREFER || i == 0)
			hoist__nodeset_add(&memory->placement.nodes, o->nodes[i]);
	}
	return 0;
}

static int take_placement(hoist_memory *memory, const hoist_memory_options *o)
{
	static const enum hoist__policy policies[] = {
		[HOIST_PLACE_DEFAULT] = HOIST__POLICY_LOCAL,
		[HOIST_PLACE_LOCAL] = HOIST__POLICY_LOCAL,
		[HOIST_PLACE_PREFER] = HOIST__POLICY_PREFER,
		[HOIST_PLACE_BIND] = HOIST__POLICY_BIND,
		[HOIST_PLACE_INTERLEAVE] = HOIST__POLICY_INTERLEAVE,
	};
	int err = take_nodes(memory, o);
	if (err < 0)
		return err;
	memory->placement.policy = policies[o->placement];
	int near = hoist__device_node(memory->device);
	if (o->placement == HOIST_PLACE_DEFAULT && near >= 0 &&
	    (1u << o->kind & HOIST__PLACED) != 0) {
		memory->placement.policy = HOIST__POLICY_PREFER;
		hoist__nodeset_add(&memory->placement.nodes, near);
	}
	return 0;
}

/* --- upstream --- */

static int fail_upstream(const hoist_memory *memory, const hoist_memory *up, const char *why)
{
	return hoist__fail(-EINVAL, "hoist_memory_options: %s memory from \"%s\": %s",
			   hoist__memory_kind_text(memory->options.kind), up->name, why);
}

static int take_upstream(hoist_memory *memory, hoist_memory *up)
{
	if (up == NULL)
		return 0;
	const hoist_memory_options *o = &memory->options;
	bool of_device = o->kind == HOIST_MEMORY_DEVICE && !hoist__device_is_cpu(memory->device);
	if (o->placement != 0 || o->pages != 0)
		return fail_upstream(memory, up, "placement and pages are that resource's own");
	/* Only one allocator may know which block an address belongs to, so pools do not nest. */
	if (up->options.kind != HOIST_MEMORY_CUSTOM && up->options.kind != HOIST_MEMORY_DRIVER_POOL)
		return fail_upstream(memory, up,
				     "that resource takes its blocks from regions; only custom "
				     "memory and drivers' pools can be under another resource");
	if (!of_device && !up->info.is_host_accessible)
		return fail_upstream(memory, up, "the host cannot access that memory");
	if (o->kind == HOIST_MEMORY_PINNED && up->info.is_device_accessible)
		return fail_upstream(
			memory, up,
			"that memory is registered with a driver already; ask for host memory");
	if (of_device && (up->device != memory->device || !up->info.is_device_accessible))
		return fail_upstream(memory, up, "that memory is not of the device asked for");
	memory->upstream = hoist_memory_ref(up);
	return 0;
}

/* --- names and description --- */

static void name_it(hoist_memory *memory, const char *name)
{
	static _Atomic unsigned xn_named;
	if (name != NULL)
		(void)snprintf(memory->name, sizeof memory->name, "%s", name);
	else
		(void)snprintf(memory->name, sizeof memory->name, "%s memory %u",
			       hoist__memory_kind_text(memory->options.kind),
			       atomic_fetch_add(&xn_named, 1) + 1);
}

/* Returns: the only node of the set; -1 if there are several, or for LOCAL. */
static int single_node(const struct hoist__placement *placement)
{
	int first = hoist__nodeset_first(&placement->nodes);
	struct hoist__nodeset alone = {{0}};
	hoist__nodeset_add(&alone, first);
	return placement->policy != HOIST__POLICY_LOCAL &&
			       memcmp(&alone, &placement->nodes, sizeof alone) == 0
		       ? first
		       : -1;
}

static void describe(hoist_memory *memory)
{
	const hoist_memory *up = memory->upstream;
	int kind = memory->options.kind;
	bool cpu = hoist__device_is_cpu(memory->device);
	bool of_device = !cpu && (1u << kind & (HOIST__KIND(DEVICE) | HOIST__KIND(MANAGED) |
						HOIST__KIND(DRIVER_POOL) | HOIST__KIND(VIRTUAL) |
						HOIST__KIND(GRAPH))) != 0;
	bool custom = kind == HOIST_MEMORY_CUSTOM;
	bool pinned = kind == HOIST_MEMORY_PINNED || kind == HOIST_MEMORY_HEAP;
	hoist_memory_info *info = &memory->info;
	info->size = sizeof *info;
	info->kind = kind;
	info->name = memory->name;
	info->device = memory->device;
	info->is_managed = custom ? memory->functions.is_managed != 0
				  : kind == HOIST_MEMORY_MANAGED || (up && up->info.is_managed);
	info->is_host_accessible = custom ? memory->functions.is_host_accessible != 0
				   : up	  ? up->info.is_host_accessible
					  : !of_device || kind == HOIST_MEMORY_MANAGED;
	info->is_device_accessible =
		custom ? memory->functions.is_device_accessible != 0
		       : of_device || (pinned && !cpu) || (up && up->info.is_device_accessible);
	info->device_id = of_device || (custom && !cpu) ? hoist__dev_ordinal(memory->dev) : -1;
	info->is_own = (memory->options.flags & HOIST_MEMORY_CURRENT_POOL) == 0;
	info->is_shareable = (memory->options.flags & HOIST_MEMORY_SHAREABLE) != 0;
	info->node = single_node(&memory->placement);
	/* Drivers align every allocation to 256 bytes at least (CUDA C++ Programming Guide, "Device
	 * Memory Accesses").  Custom memory has no such promise. */
	info->alignment = custom		      ? 1
			  : of_device		      ? 256
			  : kind == HOIST_MEMORY_HEAP ? HOIST__HEAP_ALIGN
						      : 64;
}

/* --- putting it together --- */

static const struct hoist__memory_ops *ops_of(int kind)
{
	switch (kind) {
	case HOIST_MEMORY_HOST:
	case HOIST_MEMORY_PINNED:
	case HOIST_MEMORY_DEVICE:
	case HOIST_MEMORY_MANAGED:
		return &hoist__memory_pool_ops;
	case HOIST_MEMORY_DRIVER_POOL:
		return &hoist__memory_driver_ops;
	case HOIST_MEMORY_HEAP:
		return &hoist__memory_heap_ops;
	case HOIST_MEMORY_CUSTOM:
		return &hoist__memory_custom_ops;
	case HOIST_MEMORY_VIRTUAL:
		return &hoist__memory_virtual_ops;
	case HOIST_MEMORY_GRAPH:
		return &hoist__memory_graph_ops;
	default:
		return NULL;
	}
}

static void fill_defaults(hoist_memory *memory)
{
	hoist_memory_options *o = &memory->options;
	bool pooled = (1u << o->kind & HOIST__POOLED) != 0;
	bool locked = o->kind == HOIST_MEMORY_PINNED && hoist__device_is_cpu(memory->device);
	if (o->region_bytes == 0 && (pooled || o->kind == HOIST_MEMORY_HEAP))
		o->region_bytes = locked ? LOCKED_REGION_BYTES : REGION_BYTES;
	if (o->keep_bytes == 0)
		o->keep_bytes = o->region_bytes > SIZE_MAX / KEPT_REGIONS
					? SIZE_MAX
					: KEPT_REGIONS * o->region_bytes;
	if (o->cache_bytes == 0 && pooled)
		o->cache_bytes = HOIST__CACHE_BYTES;
	if (o->exhausted != NULL && o->exhausted_retries == 0)
		o->exhausted_retries = 1;
	o->name = memory->name;
	o->nodes = NULL;
	o->functions = NULL;
}

/* Pre: @o has full size, and memory->options is a copy of @o. */
static int fill(hoist_memory *memory, const hoist_memory_options *o)
{
	int err = hoist_device_open("cpu", &memory->device);
	if (err < 0)
		return err;
	if (o->device != NULL)
		memory->device = o->device;
	memory->dev = hoist__device_dev(memory->device);
	name_it(memory, o->name);
	err = hoist__memory_check_options(o, hoist__device_is_cpu(memory->device));
	if (err == 0)
		err = take_functions(memory, o->functions);
	if (err == 0)
		err = take_placement(memory, o);
	if (err == 0)
		err = take_upstream(memory, o->upstream);
	if (err < 0)
		return err;
	if (o->budget != NULL)
		memory->budget = hoist__budget_ref(hoist__budget_of(o->budget));
	fill_defaults(memory);
	describe(memory);
	return 0;
}

int hoist__memory_make(const hoist_memory_options *options, hoist_memory **ret)
{
	const struct hoist__memory_ops *ops = ops_of(options->kind);
	if (ops == NULL)
		return hoist__fail(-EINVAL, "hoist_memory_options: %d is no kind of memory",
				   options->kind);
	hoist_memory *memory = calloc(1, ops->bytes);
	if (memory == NULL)
		return hoist__fail_nomem("a memory resource", ops->bytes);
	memory->ops = ops;
	memory->options = *options;
	memory->generation = hoist__fork_now();
	atomic_init(&memory->xrefs, 1);
	int err = fill(memory, options);
	if (err == 0 && ops->init != NULL)
		err = ops->init(memory);
	if (err < 0) {
		hoist__budget_unref(memory->budget);
		hoist_memory_unref(memory->upstream);
		free(memory);
		return err;
	}
	/* Last: other threads find the resource in the list from here on. */
	hoist__memory_join(memory);
	*ret = memory;
	return 0;
}

int hoist_memory_create(const hoist_memory_options *given, hoist_memory **ret)
{
	hoist_memory_options options;
	int err = hoist__options_in("hoist_memory_options", given, &options, sizeof options);
	if (err < 0)
		return err;
	if (options.kind == HOIST_MEMORY_GRAPH)
		return hoist__fail(-EINVAL,
				   "hoist_memory_options: each device has one resource for the "
				   "memory of graphs; ask hoist_memory_of_device() for it");
	return hoist__memory_make(&options, ret);
}

int hoist_memory_get_info(const hoist_memory *memory, hoist_memory_info *info)
{
	if (memory == NULL)
		return hoist__fail(-EINVAL, "the memory resource is NULL");
	return hoist__options_out("hoist_memory_info", info, &memory->info, sizeof memory->info);
}
