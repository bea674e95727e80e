/* SPDX-License-Identifier: MIT */
/* device/graph.h - memory that belongs to graphs: what is allocated while a stream captures one.
 *
 * The address is known at once; the memory is there while the graph runs, and goes back where the
 * graph frees it.  Devices keep such memory for the next graph until it is trimmed.  All:
 * [context].
 *
 * Every function also returns -ENOTSUP (the CPU; the driver has no such calls), -EREMOTEIO,
 * -ESTALE.
 */
#ifndef HOIST_DEVICE_GRAPH_H
#define HOIST_DEVICE_GRAPH_H

#include "device/device.h"

/* @stream captures.  Returns: also -ENOSPC. */
int hoist__graph_alloc(struct hoist__dev_stream *stream, size_t bytes, uintptr_t *ret);
/* On a capturing stream: where its graph frees the memory.  On another, what a graph that ran left.
 */
int hoist__graph_free(struct hoist__dev_stream *stream, uintptr_t address);

/* One of HOIST__POOL_RESERVED_CURRENT and those after it.  set: a *_HIGH one, to what is current.
 */
int hoist__graph_get(struct hoist__dev *dev, enum hoist__pool_attribute attribute, uint64_t *ret);
int hoist__graph_reset(struct hoist__dev *dev, enum hoist__pool_attribute attribute);

/* What no graph uses goes back to the device. */
int hoist__graph_trim(struct hoist__dev *dev);

#endif
