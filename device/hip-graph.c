/* SPDX-License-Identifier: MIT */
/* device/hip-graph.c - memory that belongs to graphs, where the driver has it. */
#include "config.h"

#include "base/error.h"
#include "device/driver.h"
#include "device/hip-run.h"

/* The functions came together, so one of them stands for all. */
static int check(const struct hoist__dev *dev)
{
	return hoist__hip.hipDeviceGraphMemTrim != NULL
		       ? 0
		       : hoist__driver_fail_lacks(dev, "memory of graphs");
}

int hoist__hip_graph_alloc(struct hoist__dev_stream *stream, size_t bytes, uintptr_t *ret)
{
	void *address = 0;
	int err = check(stream->dev);
	if (err < 0)
		return err;
	err = RUN(stream->dev, "allocating memory of a graph",
		  hoist__hip.hipMallocAsync(&address, bytes, stream->native));
	if (err < 0)
		return hoist__driver_fail_alloc(stream->dev, err, bytes);
	*ret = (uintptr_t)address;
	return 0;
}

int hoist__hip_graph_free(struct hoist__dev_stream *stream, uintptr_t address)
{
	return RELEASE(stream->dev, "freeing memory of a graph",
		       hoist__hip.hipFreeAsync((void *)address, stream->native));
}

static unsigned native_attribute(enum hoist__pool_attribute attribute)
{
	switch (attribute) {
	case HOIST__POOL_RESERVED_CURRENT:
		return HOIST__HIP_GRAPH_RESERVED_CURRENT;
	case HOIST__POOL_RESERVED_HIGH:
		return HOIST__HIP_GRAPH_RESERVED_HIGH;
	case HOIST__POOL_USED_CURRENT:
		return HOIST__HIP_GRAPH_USED_CURRENT;
	default:
		return HOIST__HIP_GRAPH_USED_HIGH;
	}
}

int hoist__hip_graph_get(struct hoist__dev *dev, enum hoist__pool_attribute attribute,
			 uint64_t *ret)
{
	uint64_t value = 0;
	int err = check(dev);
	if (err < 0)
		return err;
	err = RUN(dev, "asking for a figure of the memory of graphs",
		  hoist__hip.hipDeviceGetGraphMemAttribute(dev->ordinal,
							   native_attribute(attribute), &value));
	if (err == 0)
		*ret = value;
	return err;
}

int hoist__hip_graph_reset(struct hoist__dev *dev, enum hoist__pool_attribute attribute)
{
	uint64_t zero = 0;
	int err = check(dev);
	return err < 0 ? err
		       : RUN(dev, "resetting a figure of the memory of graphs",
			     hoist__hip.hipDeviceSetGraphMemAttribute(
				     dev->ordinal, native_attribute(attribute), &zero));
}

int hoist__hip_graph_trim(struct hoist__dev *dev)
{
	int err = check(dev);
	return err < 0 ? err
		       : RUN_RELAXED(dev, "trimming the memory of graphs",
				     hoist__hip.hipDeviceGraphMemTrim(dev->ordinal));
}
