/* SPDX-License-Identifier: MIT */
/* device/query.c - questions about devices and addresses, and waiting for a whole device.
 * The contract is in device/device.h. */
#include "config.h"

#include <errno.h>

#include "base/error.h"
#include "base/log.h"
#include "device/device-ops.h"
#include "device/query.h"

/* Drivers enable access by direction, once.  If two threads enable the same access at the same
 * time, the second thread finds it enabled.  So nothing is locked. */
static int enable_access(struct hoist__dev *dev, struct hoist__dev *peer, bool *ret)
{
	/* No machine has more devices than this.  A further device's access would stay disabled. */
	if (peer->ordinal >= 64) {
		*ret = false;
		return 0;
	}
	uint64_t bit = UINT64_C(1) << peer->ordinal;
	bool can = (atomic_load(&dev->peers_reached) & bit) != 0;
	int err = 0;
	if (!can && (atomic_load(&dev->peers_refused) & bit) == 0) {
		err = dev->ops->can_access(dev, peer, &can);
		if (err == 0 && can)
			err = dev->ops->enable_access(dev, peer);
		if (err == 0 && can)
			err = hoist__dev_pools_open_to(peer, dev);
		if (err == -ENOTSUP) {
			hoist__log(device, "%s", hoist__error_text());
			can = false;
			err = 0;
		}
		if (err == 0)
			atomic_fetch_or(can ? &dev->peers_reached : &dev->peers_refused, bit);
	}
	if (err == 0)
		*ret = can;
	return err;
}

int hoist__dev_can_access(struct hoist__dev *dev, struct hoist__dev *peer, bool *ret)
{
	int err = hoist__dev_check(dev);
	if (err < 0)
		return err;
	if (dev->api == peer->api && dev->native != peer->native)
		return enable_access(dev, peer, ret);
	*ret = dev->api == peer->api;
	return 0;
}

/* --- waiting for a whole device --- */

/* A stream whose native handle the caller has destroyed does not capture. */
static int ask(struct hoist__dev_stream *stream, bool *ret)
{
	int err = hoist__dev_stream_capturing(stream, ret);
	return err == -EBADF ? 0 : err;
}

/* Finds out whether a stream of @dev captures.  hoist asks the streams that it knows.  The driver
 * tells of another stream only if that is a blocking one: then the default stream is unusable. */
static int find_capture(struct hoist__dev *dev, bool *ret)
{
	int err = 0;
	*ret = false;
	if (dev->ops->stream_capturing == NULL)
		return 0;
	pthread_mutex_lock(&dev->streams_lock);
	struct hoist__list *node = dev->streams.next;
	for (; node != &dev->streams && !*ret && err == 0; node = node->next) {
		struct hoist__dev_stream *stream =
			HOIST__CONTAINER_OF(node, struct hoist__dev_stream, node);
		if (hoist__dev_stream_may_capture(stream))
			err = ask(stream, ret);
	}
	bool any = !hoist__list_empty(&dev->streams);
	pthread_mutex_unlock(&dev->streams_lock);
	/* CUDA: where nobody has used the device through hoist, asking would make its context. */
	bool unused = !any && dev->api == HOIST__API_CUDA && atomic_load(&dev->context) == NULL;
	if (err < 0 || *ret || unused)
		return err;
	struct hoist__dev_stream null = {0};
	hoist__dev_stream_init(&null, dev, NULL);
	return ask(&null, ret);
}

bool hoist__dev_reaches(const struct hoist__dev *dev, const struct hoist__dev *peer)
{
	return dev != peer && dev->api == peer->api && peer->ordinal < 64 &&
	       (atomic_load(&dev->peers_reached) >> peer->ordinal & 1) != 0;
}

static _Atomic uint64_t waits_begun; /* of all devices */

uint64_t hoist__dev_next_wait(void)
{
	return atomic_load(&waits_begun) + 1;
}

bool hoist__dev_waited(const struct hoist__dev *dev, uint64_t wait)
{
	return atomic_load(&dev->waits_ended) >= wait;
}

static void raise(_Atomic uint64_t *value, uint64_t to)
{
	uint64_t known = atomic_load(value);
	while (known < to && !atomic_compare_exchange_weak(value, &known, to)) {
	}
}

int hoist__dev_synchronize(struct hoist__dev *dev)
{
	int err = hoist__dev_check(dev);
	if (err < 0 || dev->ops->synchronize == NULL)
		return err;
	bool captures;
	err = find_capture(dev, &captures);
	if (err < 0)
		return err;
	if (captures)
		return hoist__fail(-EBUSY,
				   "%s:%d: a stream captures a graph, which waiting for the "
				   "device would break; end the capture first",
				   hoist__api_name(dev->api), dev->ordinal);
	uint64_t wait = atomic_fetch_add(&waits_begun, 1) + 1;
	err = dev->ops->synchronize(dev);
	if (err == 0)
		raise(&dev->waits_ended, wait);
	return err;
}

/* --- addresses --- */

int hoist__pointer_find(uintptr_t address, struct hoist__pointer *ret)
{
	static const struct {
		enum hoist__api api;
		const char *prefix;
		int (*find)(void *library, uintptr_t address, struct hoist__pointer *ret);
	} drivers[] = {
		{HOIST__API_CUDA, HOIST__CUDA_PREFIX, hoist__cuda_pointer},
		{HOIST__API_HIP, HOIST__HIP_PREFIX, hoist__hip_pointer},
	};
	for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++) {
		void *library = NULL; /* the driver that hoist opened */
		int opened = hoist__api_opened(drivers[i].api);
		if (opened == -ESTALE)
			return opened;
		if (opened < 0) { /* or the one that other code loaded */
			library = hoist__loaded(drivers[i].api, drivers[i].prefix);
			if (library == NULL)
				continue;
		}
		int err = drivers[i].find(library, address, ret);
		/* A driver that cannot be started may fail for every address. */
		if (err == -EREMOTEIO && opened == -ENODEV)
			continue;
		if (err != -ENOENT)
			return err;
	}
	*ret = (struct hoist__pointer){
		.api = HOIST__API_CPU, .ordinal = -1, .host = true, .host_address = address};
	return 0;
}
