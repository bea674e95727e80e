/* SPDX-License-Identifier: MIT */
/* device/pool.c - the drivers' own pools: checks arguments and the process, then calls the
 * backend.  The contract is in device/device.h, and for sharing in device/ipc.h. */
#include "config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "device/device-ops.h"

static int fill_pool(struct hoist__dev_pool *pool, int fd)
{
	const struct hoist__dev_ops *ops = pool->dev->ops;
	if (fd >= 0)
		return ops->pool_import(pool, fd);
	return pool->borrowed ? ops->pool_current(pool) : ops->pool_create(pool);
}

/* --- access of other devices --- */

/* The caller holds pools_lock. */
static int open_to(struct hoist__dev_pool *pool, const struct hoist__dev *peer)
{
	HOIST__ASSERT(hoist__mutex_held(&pool->dev->pools_lock) && peer->ordinal < 64);
	if ((pool->denied >> peer->ordinal & 1) != 0)
		return 0;
	return pool->dev->ops->pool_set_access(pool, peer, true);
}

int hoist__dev_pools_open_to(struct hoist__dev *dev, struct hoist__dev *peer)
{
	int err = 0;
	pthread_mutex_lock(&dev->pools_lock);
	struct hoist__list *at = dev->pools.next;
	for (; at != &dev->pools && err == 0; at = at->next)
		err = open_to(HOIST__CONTAINER_OF(at, struct hoist__dev_pool, node), peer);
	if (err == 0)
		dev->reached_by |= UINT64_C(1) << peer->ordinal;
	pthread_mutex_unlock(&dev->pools_lock);
	return err;
}

/* Opens a new pool to the devices that reach its device's memory already, and lists the pool. */
static int list_pool(struct hoist__dev_pool *pool)
{
	struct hoist__dev *dev = pool->dev;
	struct hoist__dev *peer;
	int err = 0;
	pthread_mutex_lock(&dev->pools_lock);
	/* In one step with listing the pool: a device that gets access from now on finds the pool
	 * in the list. */
	for (int n = 0; n < 64 && err == 0; n++) {
		if ((dev->reached_by >> n & 1) == 0)
			continue;
		err = hoist__dev_get(dev->api, n, &peer);
		if (err == 0)
			err = open_to(pool, peer);
	}
	if (err == 0)
		hoist__list_push_back(&dev->pools, &pool->node);
	pthread_mutex_unlock(&dev->pools_lock);
	return err;
}

static void unlist_pool(struct hoist__dev_pool *pool)
{
	pthread_mutex_lock(&pool->dev->pools_lock);
	hoist__list_remove(&pool->node);
	pthread_mutex_unlock(&pool->dev->pools_lock);
}

/* --- life --- */

/* Makes a pool like @wanted.  With @fd -1 the pool is not imported. */
static int make_pool(const struct hoist__dev_pool *wanted, int fd, struct hoist__dev_pool **ret)
{
	const struct hoist__dev *dev = wanted->dev;
	int err = hoist__dev_check(dev);
	if (err < 0)
		return err;
	if (dev->ops->pool_create == NULL)
		return hoist__fail(-ENOTSUP, "%s:%d has no driver, and so no driver's pool",
				   hoist__api_name(dev->api), dev->ordinal);
	struct hoist__dev_pool *pool = calloc(1, sizeof *pool);
	if (pool == NULL)
		return hoist__fail_nomem("a memory pool", sizeof *pool);
	*pool = *wanted;
	pool->generation = hoist__fork_now();
	err = fill_pool(pool, fd);
	if (err == 0) {
		err = list_pool(pool);
		if (err < 0 && !pool->borrowed)
			dev->ops->pool_destroy(pool);
	}
	if (err < 0) {
		free(pool);
		return err;
	}
	*ret = pool;
	return 0;
}

int hoist__dev_pool_create(struct hoist__dev *dev, size_t max_bytes, struct hoist__dev_pool **ret)
{
	const struct hoist__dev_pool wanted = {.dev = dev, .max_bytes = max_bytes};
	return make_pool(&wanted, -1, ret);
}

int hoist__dev_pool_create_shareable(struct hoist__dev *dev, size_t max_bytes,
				     struct hoist__dev_pool **ret)
{
	const struct hoist__dev_pool wanted = {
		.dev = dev, .max_bytes = max_bytes, .shareable = true};
	return make_pool(&wanted, -1, ret);
}

int hoist__dev_pool_import(struct hoist__dev *dev, int fd, struct hoist__dev_pool **ret)
{
	const struct hoist__dev_pool wanted = {.dev = dev, .shareable = true};
	/* Drivers take the descriptor as a pointer, and refuse NULL: so 0 is not passed. */
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 1);
	if (own < 0)
		return hoist__fail_errno(-errno, "descriptor %d of a memory pool", fd);
	int err = make_pool(&wanted, own, ret);
	(void)close(own);
	return err;
}

int hoist__dev_pool_current(struct hoist__dev *dev, struct hoist__dev_pool **ret)
{
	const struct hoist__dev_pool wanted = {.dev = dev, .borrowed = true};
	return make_pool(&wanted, -1, ret);
}

void hoist__dev_pool_destroy(struct hoist__dev_pool *pool)
{
	if (pool == NULL)
		return;
	/* In a child of fork the native pool is the parent's, and so is the list. */
	if (pool->generation == hoist__fork_now()) {
		unlist_pool(pool);
		if (!pool->borrowed)
			pool->dev->ops->pool_destroy(pool);
	}
	free(pool);
}

static int check_pool(const struct hoist__dev_pool *pool)
{
	return hoist__dev_check_process(pool->generation, "the memory pool");
}

static int check_stream(const struct hoist__dev_pool *pool, const struct hoist__dev_stream *stream)
{
	int err = check_pool(pool);
	if (err < 0)
		return err;
	err = hoist__dev_check_process(stream->generation, "the stream");
	if (err == 0 && stream->dev != pool->dev)
		err = hoist__fail(-EINVAL, "a stream of %s:%d cannot order a pool of %s:%d",
				  hoist__api_name(stream->dev->api), stream->dev->ordinal,
				  hoist__api_name(pool->dev->api), pool->dev->ordinal);
	return err;
}

int hoist__dev_pool_alloc(struct hoist__dev_pool *pool, size_t bytes,
			  struct hoist__dev_stream *stream, uintptr_t *ret)
{
	int err = check_stream(pool, stream);
	if (err < 0)
		return err;
	if (bytes == 0)
		return hoist__fail(-EINVAL, "%s:%d: 0 bytes of a memory pool were asked for",
				   hoist__api_name(pool->dev->api), pool->dev->ordinal);
	return pool->dev->ops->pool_alloc(pool, bytes, stream, ret);
}

int hoist__dev_pool_free(struct hoist__dev_pool *pool, uintptr_t address,
			 struct hoist__dev_stream *stream)
{
	if (address == 0)
		return 0;
	int err = check_stream(pool, stream);
	return err < 0 ? err : pool->dev->ops->pool_free(pool, address, stream);
}

int hoist__dev_pool_trim(struct hoist__dev_pool *pool, size_t keep_bytes)
{
	int err = check_pool(pool);
	return err < 0 ? err : pool->dev->ops->pool_trim(pool, keep_bytes);
}

int hoist__dev_pool_get(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			uint64_t *ret)
{
	int err = check_pool(pool);
	if (err < 0)
		return err;
	if ((unsigned)attribute >= HOIST__N_POOL_ATTRIBUTES)
		return hoist__fail(-EINVAL, "memory pools have no attribute %d", (int)attribute);
	return pool->dev->ops->pool_get(pool, attribute, ret);
}

/* NULL, or why @attribute cannot be set to @value. */
static const char *judge_value(enum hoist__pool_attribute attribute, uint64_t value)
{
	switch (attribute) {
	case HOIST__POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case HOIST__POOL_REUSE_ALLOW_OPPORTUNISTIC:
	case HOIST__POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		return value > 1 ? "is a flag: 0 or 1" : NULL;
	case HOIST__POOL_RELEASE_THRESHOLD:
		return NULL;
	case HOIST__POOL_RESERVED_CURRENT:
	case HOIST__POOL_USED_CURRENT:
		return "can only be read";
	case HOIST__POOL_RESERVED_HIGH:
	case HOIST__POOL_USED_HIGH:
		return value != 0 ? "can only be set to 0" : NULL;
	case HOIST__N_POOL_ATTRIBUTES:
		break;
	}
	return "does not exist";
}

int hoist__dev_pool_set(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			uint64_t value)
{
	int err = check_pool(pool);
	if (err < 0)
		return err;
	const char *why = judge_value(attribute, value);
	if (why != NULL)
		return hoist__fail(-EINVAL, "attribute %d of a memory pool %s", (int)attribute,
				   why);
	return pool->dev->ops->pool_set(pool, attribute, value);
}

/* hoist__dev_pools_open_to() does not give back an access that was denied here. */
static int set_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer, bool allowed)
{
	uint64_t bit = peer->ordinal < 64 ? UINT64_C(1) << peer->ordinal : 0;
	pthread_mutex_lock(&pool->dev->pools_lock);
	int err = pool->dev->ops->pool_set_access(pool, peer, allowed);
	if (err == 0)
		pool->denied = allowed ? pool->denied & ~bit : pool->denied | bit;
	pthread_mutex_unlock(&pool->dev->pools_lock);
	return err;
}

int hoist__dev_pool_set_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
			       bool allowed)
{
	const struct hoist__dev *own = pool->dev;
	int err = check_pool(pool);
	if (err < 0)
		return err;
	if (peer->api != own->api || (peer == own && !allowed))
		return hoist__fail(-EINVAL, "%s:%d %s a pool of %s:%d", hoist__api_name(peer->api),
				   peer->ordinal,
				   peer == own ? "always has access to" : "can have no access to",
				   hoist__api_name(own->api), own->ordinal);
	return peer == own ? 0 : set_access(pool, peer, allowed);
}

int hoist__dev_pool_get_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
			       bool *ret)
{
	int err = check_pool(pool);
	if (err < 0)
		return err;
	if (peer->api == pool->dev->api && peer != pool->dev)
		return pool->dev->ops->pool_get_access(pool, peer, ret);
	*ret = peer == pool->dev;
	return 0;
}

void *hoist__dev_pool_native(const struct hoist__dev_pool *pool)
{
	return pool->native;
}
