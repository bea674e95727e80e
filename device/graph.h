/* SPDX-License-Identifier: MIT */
/* device/graph.h - memory that belongs to graphs: allocated while a stream captures one.
 *
 * The address is known at once.  The memory is there while the graph runs, and goes back where the
 * graph frees it.  Devices keep such memory for the next graph until it is trimmed.  All functions:
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
/* On a capturing stream, adds the place where its graph frees the memory.  On another stream, frees
 * memory that a graph left when it ran. */
int hoist__graph_free(struct hoist__dev_stream *stream, uintptr_t address);

/* @attribute is HOIST__POOL_RESERVED_CURRENT or one after it.  Reset sets a *_HIGH one to the
 * current value. */
int hoist__graph_get(struct hoist__dev *dev, enum hoist__pool_attribute attribute, uint64_t *ret);
int hoist__graph_reset(struct hoist__dev *dev, enum hoist__pool_attribute attribute);

/* Gives memory that no graph uses back to the device. */
int hoist__graph_trim(struct hoist__dev *dev);

#endif
