/* SPDX-License-Identifier: MIT */
/* emulator/graph.h - memory of graphs: allocations made while a stream captures.
 *
 * An allocation from a pool on a capturing stream is a node, too: the pool has no part in it.  A
 * capturing stream can free only nodes.
 *
 * A node's memory has an address of the device.  Work that is captured may use that address; other
 * work may not, as no graph runs here.  A device keeps the memory that its graphs had, as
 * "reserved", until it is trimmed; the memory that nodes have now is "used".  When a capture ends,
 * its graph is gone, and so are the nodes that the graph did not free.
 */
#ifndef HOIST_EMULATOR_GRAPH_H
#define HOIST_EMULATOR_GRAPH_H

#include "emulator/core.h"
#include "emulator/stream.h"

enum {
	EMU_GRAPH_USED_CURRENT,
	EMU_GRAPH_USED_HIGH,
	EMU_GRAPH_RESERVED_CURRENT,
	EMU_GRAPH_RESERVED_HIGH,
	EMU_GRAPH_ATTRIBUTES
};

/* The same as hoist__emu_pool_alloc() from the own pool of the stream's device. */
int hoist__emu_graph_alloc(struct hoist__emu_device *device, struct hoist__emu_stream *stream,
			   size_t bytes, uintptr_t *ret);
int hoist__emu_graph_trim(struct hoist__emu_device *device);
int hoist__emu_graph_get(struct hoist__emu_device *device, unsigned attribute, uint64_t *value);
int hoist__emu_graph_set(struct hoist__emu_device *device, unsigned attribute, uint64_t value);

/* [locked] Adds a node to the graph that @stream captures, with memory of @device. */
int hoist__emu_graph_add(struct hoist__emu_stream *stream, struct hoist__emu_device *device,
			 size_t rounded, uintptr_t *ret);

/* [locked] True if a node's memory is at @address: only @stream's capture may use and free it. */
bool hoist__emu_graph_has(uintptr_t address);
bool hoist__emu_graph_allows(const struct hoist__emu_stream *stream, uintptr_t address);
int hoist__emu_graph_free(struct hoist__emu_stream *stream, uintptr_t address);

/* [locked] */
void hoist__emu_graph_end(const struct hoist__emu_stream *stream);

#endif
