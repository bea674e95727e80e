/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-attribute.c - reads and sets a driver's pool: attributes, handle, peers.
 * The contract is in hoist/memory.h. */
#include "config.h"

#include "base/error.h"
#include "device/graph.h"
#include "hoist/memory-driver.h"
#include "lib/device/device.h"
#include "lib/memory/memory-driver.h"

_Static_assert((int)HOIST__POOL_USED_HIGH == (int)HOIST_POOL_USED_HIGH,
	       "both lists of attributes have one order");

/* Gives the pool, made if there is none yet. */
static int pool_of(hoist_memory *memory, const char *what, struct hoist__dev_pool **ret)
{
	if (memory == NULL)
		return hoist__fail(-EINVAL, "the memory resource is NULL");
	if (memory->ops != &hoist__memory_driver_ops)
		return hoist__fail(-ENOTSUP, "\"%s\" is %s memory; only a driver's pool has %s",
				   memory->name, hoist__memory_kind_text(memory->options.kind),
				   what);
	int err = hoist__dev_check(memory->dev);
	return err < 0 ? err : hoist__driver_use_pool(hoist__driver_of(memory), ret);
}

/* --- attributes --- */

static int pool_for_attribute(hoist_memory *memory, int attribute, struct hoist__dev_pool **ret)
{
	if (attribute < 0 || attribute >= HOIST__N_POOL_ATTRIBUTES)
		return hoist__fail(-EINVAL, "%d is no attribute of a driver's pool", attribute);
	return pool_of(memory, "attributes", ret);
}

/* Memory of graphs has only the attributes that are figures, and no pool. */
static bool is_of_graphs(const hoist_memory *memory, int attribute)
{
	return memory != NULL && memory->ops == &hoist__memory_graph_ops &&
	       attribute >= HOIST__POOL_RESERVED_CURRENT && attribute < HOIST__N_POOL_ATTRIBUTES;
}

static int set_of_graphs(const hoist_memory *memory, int attribute, uint64_t value)
{
	bool high = attribute == HOIST__POOL_RESERVED_HIGH || attribute == HOIST__POOL_USED_HIGH;
	if (!high || value != 0)
		return hoist__fail(-EINVAL, "attribute %d of the memory of graphs can only be %s",
				   attribute, high ? "set to 0" : "read");
	return hoist__graph_reset(memory->dev, (enum hoist__pool_attribute)attribute);
}

int hoist_memory_get_attribute(hoist_memory *memory, int attribute, uint64_t *ret)
{
	struct hoist__dev_pool *pool;
	if (is_of_graphs(memory, attribute))
		return hoist__graph_get(memory->dev, (enum hoist__pool_attribute)attribute, ret);
	int err = pool_for_attribute(memory, attribute, &pool);
	if (err == 0)
		err = hoist__dev_pool_get(pool, (enum hoist__pool_attribute)attribute, ret);
	return err;
}

int hoist_memory_set_attribute(hoist_memory *memory, int attribute, uint64_t value)
{
	struct hoist__dev_pool *pool;
	if (is_of_graphs(memory, attribute))
		return set_of_graphs(memory, attribute, value);
	int err = pool_for_attribute(memory, attribute, &pool);
	if (err == 0)
		err = hoist__dev_pool_set(pool, (enum hoist__pool_attribute)attribute, value);
	return err;
}

/* --- the handle --- */

int hoist_memory_native_pool(hoist_memory *memory, void **ret)
{
	struct hoist__dev_pool *pool;
	int err = pool_of(memory, "a handle", &pool);
	if (err == 0)
		*ret = hoist__dev_pool_native(pool);
	return err;
}

/* --- peers --- */

static int pool_for_peer(hoist_memory *memory, const hoist_device *peer,
			 struct hoist__dev_pool **ret)
{
	if (peer == NULL)
		return hoist__fail(-EINVAL, "the device that may access a pool is NULL");
	return pool_of(memory, "peers", ret);
}

/* Drivers only say "invalid device" of a device that cannot access the pool, so reach is checked
 * before. */
static int check_reach(const hoist_memory *memory, hoist_device *peer)
{
	int can = 0;
	int err = hoist_device_can_access(peer, memory->device, &can);
	if (err < 0 || can)
		return err;
	return hoist__fail(-ENOTSUP, "\"%s\": %s cannot access memory of %s: copy it instead",
			   memory->name, hoist_device_spec(peer),
			   hoist_device_spec(memory->device));
}

int hoist_memory_set_peer_access(hoist_memory *memory, hoist_device *peer, int allowed)
{
	struct hoist__dev_pool *pool;
	int err = pool_for_peer(memory, peer, &pool);
	if (err < 0)
		return err;
	const struct hoist__dev *dev = hoist__device_dev(peer);
	if (allowed && hoist__dev_api(dev) == hoist__dev_api(memory->dev))
		err = check_reach(memory, peer);
	if (err == 0)
		err = hoist__dev_pool_set_access(pool, dev, allowed != 0);
	return err;
}

int hoist_memory_get_peer_access(hoist_memory *memory, hoist_device *peer, int *ret)
{
	struct hoist__dev_pool *pool;
	bool can = false;
	int err = pool_for_peer(memory, peer, &pool);
	if (err == 0)
		err = hoist__dev_pool_get_access(pool, hoist__device_dev(peer), &can);
	if (err == 0)
		*ret = can;
	return err;
}
