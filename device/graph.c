/* SPDX-License-Identifier: MIT */
/* device/graph.c - memory of graphs: checks arguments and the process, then calls the backend.
 * The contract is in device/graph.h. */
#include "config.h"

#include "device/graph.h"

#include "base/error.h"
#include "device/device-ops.h"

/* A backend has all of these operations or none, so one of them stands for all. */
static int check(struct hoist__dev *dev)
{
	int err = hoist__dev_check(dev);
	if (err == 0 && dev->ops->graph_alloc == NULL)
		err = hoist__fail(-ENOTSUP, "%s:%d has no driver, and no memory of graphs",
				  hoist__api_name(dev->api), dev->ordinal);
	return err;
}

int hoist__graph_alloc(struct hoist__dev_stream *stream, size_t bytes, uintptr_t *ret)
{
	int err = check(stream->dev);
	return err < 0 ? err : stream->dev->ops->graph_alloc(stream, bytes, ret);
}

int hoist__graph_free(struct hoist__dev_stream *stream, uintptr_t address)
{
	int err = check(stream->dev);
	return err < 0 ? err : stream->dev->ops->graph_free(stream, address);
}

int hoist__graph_get(struct hoist__dev *dev, enum hoist__pool_attribute attribute, uint64_t *ret)
{
	int err = check(dev);
	return err < 0 ? err : dev->ops->graph_get(dev, attribute, ret);
}

int hoist__graph_reset(struct hoist__dev *dev, enum hoist__pool_attribute attribute)
{
	int err = check(dev);
	return err < 0 ? err : dev->ops->graph_reset(dev, attribute);
}

int hoist__graph_trim(struct hoist__dev *dev)
{
	int err = check(dev);
	return err < 0 ? err : dev->ops->graph_trim(dev);
}
