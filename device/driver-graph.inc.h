/* SPDX-License-Identifier: MIT */
/* device/driver-graph.inc.h - memory that belongs to graphs, where the driver has it. */
#include "config.h"

#include "base/error.h"
#include "device/cuda-run.h"
#include "device/driver.h"

/* The functions came together, so one of them stands for all. */
static int check_graphs(const struct hoist__dev *dev)
{
	return hoist__cuda.cuDeviceGraphMemTrim != NULL
		       ? 0
		       : hoist__driver_fail_lacks(dev, "memory of graphs");
}

int hoist__cuda_graph_alloc(struct hoist__dev_stream *stream, size_t bytes, uintptr_t *ret)
{
	hoist__cu_device_ptr address = 0;
	int err = check_graphs(stream->dev);
	if (err < 0)
		return err;
	err = RUN(stream->dev, "allocating memory of a graph",
		  hoist__cuda.cuMemAllocAsync(&address, bytes, stream->native));
	if (err < 0)
		return hoist__driver_fail_alloc(stream->dev, err, bytes);
	*ret = (uintptr_t)address;
	return 0;
}

int hoist__cuda_graph_free(struct hoist__dev_stream *stream, uintptr_t address)
{
	return RELEASE(stream->dev, "freeing memory of a graph",
		       hoist__cuda.cuMemFreeAsync(address, stream->native));
}

static unsigned graph_attribute(enum hoist__pool_attribute attribute)
{
	switch (attribute) {
	case HOIST__POOL_RESERVED_CURRENT:
		return HOIST__CU_GRAPH_RESERVED_CURRENT;
	case HOIST__POOL_RESERVED_HIGH:
		return HOIST__CU_GRAPH_RESERVED_HIGH;
	case HOIST__POOL_USED_CURRENT:
		return HOIST__CU_GRAPH_USED_CURRENT;
	default:
		return HOIST__CU_GRAPH_USED_HIGH;
	}
}

int hoist__cuda_graph_get(struct hoist__dev *dev, enum hoist__pool_attribute attribute,
			  uint64_t *ret)
{
	uint64_t value = 0;
	int err = check_graphs(dev);
	if (err < 0)
		return err;
	err = RUN(dev, "asking for a figure of the memory of graphs",
		  hoist__cuda.cuDeviceGetGraphMemAttribute(dev->native, graph_attribute(attribute),
							   &value));
	if (err == 0)
		*ret = value;
	return err;
}

int hoist__cuda_graph_reset(struct hoist__dev *dev, enum hoist__pool_attribute attribute)
{
	uint64_t zero = 0;
	int err = check_graphs(dev);
	return err < 0 ? err
		       : RUN(dev, "resetting a figure of the memory of graphs",
			     hoist__cuda.cuDeviceSetGraphMemAttribute(
				     dev->native, graph_attribute(attribute), &zero));
}

int hoist__cuda_graph_trim(struct hoist__dev *dev)
{
	int err = check_graphs(dev);
	return err < 0 ? err
		       : RUN_RELAXED(dev, "trimming the memory of graphs",
				     hoist__cuda.cuDeviceGraphMemTrim(dev->native));
}
