/* SPDX-License-Identifier: MIT */
/* device/driver-graph.inc.h - memory that belongs to graphs, where a driver has it; part of
 * driver-ops.inc.h. */

/* The driver got these functions in one version, so one of them stands for all. */
static int check_graphs(const struct hoist__dev *dev)
{
	return CALL(DeviceGraphMemTrim) != NULL ? 0
						: hoist__driver_fail_lacks(dev, "memory of graphs");
}

static int driver_graph_alloc(struct hoist__dev_stream *stream, size_t bytes, uintptr_t *ret)
{
	NATIVE(device_ptr) address = 0;
	int err = check_graphs(stream->dev);
	if (err < 0)
		return err;
	err = RUN(stream->dev, "allocating memory of a graph",
		  CALL(MallocAsync)(&address, bytes, stream->native));
	if (err < 0)
		return hoist__driver_fail_alloc(stream->dev, err, bytes);
	*ret = (uintptr_t)address;
	return 0;
}

static int driver_graph_free(struct hoist__dev_stream *stream, uintptr_t address)
{
	return RELEASE(stream->dev, "freeing memory of a graph",
		       CALL(FreeAsync)((NATIVE(device_ptr))address, stream->native));
}

static NATIVE(graph_attribute) graph_attribute(enum hoist__pool_attribute attribute)
{
	switch (attribute) {
	case HOIST__POOL_RESERVED_CURRENT:
		return VALUE(GRAPH_RESERVED_CURRENT);
	case HOIST__POOL_RESERVED_HIGH:
		return VALUE(GRAPH_RESERVED_HIGH);
	case HOIST__POOL_USED_CURRENT:
		return VALUE(GRAPH_USED_CURRENT);
	default:
		return VALUE(GRAPH_USED_HIGH);
	}
}

static int driver_graph_get(struct hoist__dev *dev, enum hoist__pool_attribute attribute,
			    uint64_t *ret)
{
	uint64_t value = 0;
	int err = check_graphs(dev);
	if (err < 0)
		return err;
	err = RUN(dev, "asking for a figure of the memory of graphs",
		  CALL(DeviceGetGraphMemAttribute)(DEVICE_ID(dev), graph_attribute(attribute),
						   &value));
	if (err == 0)
		*ret = value;
	return err;
}

static int driver_graph_reset(struct hoist__dev *dev, enum hoist__pool_attribute attribute)
{
	uint64_t zero = 0;
	int err = check_graphs(dev);
	if (err < 0)
		return err;
	return RUN(dev, "resetting a figure of the memory of graphs",
		   CALL(DeviceSetGraphMemAttribute)(DEVICE_ID(dev), graph_attribute(attribute),
						    &zero));
}

static int driver_graph_trim(struct hoist__dev *dev)
{
	int err = check_graphs(dev);
	if (err < 0)
		return err;
	return RUN_RELAXED(dev, "trimming the memory of graphs",
			   CALL(DeviceGraphMemTrim)(DEVICE_ID(dev)));
}
