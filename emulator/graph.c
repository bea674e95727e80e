/* SPDX-License-Identifier: MIT */
/* emulator/graph.c - memory of graphs: nodes that a capturing stream allocates.
 * The contract is in emulator/graph.h. */
#include "config.h"

#include "emulator/graph.h"

#include <stdlib.h>

#include "base/checked.h"
#include "emulator/block.h"
#include "emulator/pool.h"
#include "emulator/stream.h"

struct node {
	struct hoist__list node;
	struct hoist__emu_block block; /* the node's place, which is never in the set of
					* allocations */
	const struct hoist__emu_stream *stream;
};

/* Under the stand-in's lock, like everything else. */
static struct hoist__list nodes = {&nodes, &nodes};
static uint64_t values[EMU_MAX_DEVICES][EMU_GRAPH_ATTRIBUTES];

static struct node *node_of(struct hoist__list *at)
{
	return HOIST__CONTAINER_OF(at, struct node, node);
}

static struct node *find(uintptr_t address)
{
	for (struct hoist__list *at = nodes.next; at != &nodes; at = at->next) {
		const struct hoist__emu_block *block = &node_of(at)->block;
		if (address - block->range.start < block->rounded)
			return node_of(at);
	}
	return NULL;
}

static void raise_value(uint64_t *value, unsigned current, uint64_t to)
{
	value[current] = to;
	value[current + 1] = hoist__max_u64(value[current + 1], to);
}

/* [locked] */
static int take(struct node *node)
{
	uint64_t *value = values[node->block.device->ordinal];
	uint64_t used = value[EMU_GRAPH_USED_CURRENT] + node->block.rounded;
	int result = hoist__emu_block_place(&node->block);
	if (result != EMU_SUCCESS)
		return result;
	raise_value(value, EMU_GRAPH_USED_CURRENT, used);
	raise_value(value, EMU_GRAPH_RESERVED_CURRENT,
		    hoist__max_u64(value[EMU_GRAPH_RESERVED_CURRENT], used));
	hoist__list_push_back(&nodes, &node->node);
	hoist__emu.count.live_allocations++;
	return EMU_SUCCESS;
}

/* [locked] */
static void give(struct node *node)
{
	values[node->block.device->ordinal][EMU_GRAPH_USED_CURRENT] -= node->block.rounded;
	hoist__list_remove(&node->node);
	hoist__emu_block_give(&node->block);
	hoist__emu_block_unplace(&node->block);
	hoist__emu.count.live_allocations--;
	free(node);
}

int hoist__emu_graph_add(struct hoist__emu_stream *stream, struct hoist__emu_device *device,
			 size_t rounded, uintptr_t *ret)
{
	if (stream->capture == EMU_CAPTURE_INVALIDATED)
		return EMU_CAPTURE_INVALID;
	struct node *node = calloc(1, sizeof *node);
	if (node == NULL)
		return EMU_OUT_OF_MEMORY;
	node->stream = stream;
	node->block.device = device;
	node->block.rounded = rounded;
	int result = take(node);
	if (result == EMU_SUCCESS)
		*ret = node->block.range.start;
	else
		free(node);
	return result;
}

int hoist__emu_graph_alloc(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
			   size_t bytes, uintptr_t *ret)
{
	struct hoist__emu_stream *stream = NULL;
	struct hoist__emu_pool *pool = NULL;
	hoist__emu_lock();
	int result = hoist__emu_stream_find(device, handle, &stream);
	struct hoist__emu_device *own = result == EMU_SUCCESS ? stream->device : NULL;
	hoist__emu_unlock();
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_of_device(own, &pool);
	return result != EMU_SUCCESS ? result
				     : hoist__emu_pool_alloc(device, pool, handle, bytes, ret);
}

bool hoist__emu_graph_has(uintptr_t address)
{
	return find(address) != NULL;
}

bool hoist__emu_graph_allows(const struct hoist__emu_stream *stream, uintptr_t address)
{
	const struct node *node = find(address);
	return node == NULL || (node->stream == stream && stream->capture == EMU_CAPTURE_ACTIVE);
}

int hoist__emu_graph_free(struct hoist__emu_stream *stream, uintptr_t address)
{
	struct node *node = find(address);
	if (node == NULL || node->block.range.start != address ||
	    !hoist__emu_graph_allows(stream, address)) {
		hoist__emu.count.bad_frees++;
		return EMU_INVALID_VALUE;
	}
	give(node);
	return EMU_SUCCESS;
}

void hoist__emu_graph_end(const struct hoist__emu_stream *stream)
{
	struct hoist__list *next = NULL;
	for (struct hoist__list *at = nodes.next; at != &nodes; at = next) {
		next = at->next;
		if (node_of(at)->stream == stream)
			give(node_of(at));
	}
}

int hoist__emu_graph_trim(struct hoist__emu_device *device)
{
	if (device == NULL)
		return EMU_INVALID_DEVICE;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	uint64_t *value = values[device->ordinal];
	value[EMU_GRAPH_RESERVED_CURRENT] = value[EMU_GRAPH_USED_CURRENT];
	hoist__emu_unlock();
	return EMU_SUCCESS;
}

int hoist__emu_graph_get(struct hoist__emu_device *device, unsigned attribute, uint64_t *value)
{
	if (device == NULL || value == NULL || attribute >= EMU_GRAPH_ATTRIBUTES)
		return device == NULL ? EMU_INVALID_DEVICE : EMU_INVALID_VALUE;
	hoist__emu_lock();
	*value = values[device->ordinal][attribute];
	hoist__emu_unlock();
	return EMU_SUCCESS;
}

int hoist__emu_graph_set(struct hoist__emu_device *device, unsigned attribute, uint64_t value)
{
	if (device == NULL)
		return EMU_INVALID_DEVICE;
	if ((attribute != EMU_GRAPH_USED_HIGH && attribute != EMU_GRAPH_RESERVED_HIGH) ||
	    value != 0)
		return EMU_INVALID_VALUE;
	hoist__emu_lock();
	values[device->ordinal][attribute] = values[device->ordinal][attribute - 1];
	hoist__emu_unlock();
	return EMU_SUCCESS;
}
