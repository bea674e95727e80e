/* SPDX-License-Identifier: MIT */
/* lib/memory/lane.c - keeps a device's idle lanes, and takes slots.
 * The contract is in lib/memory/lane.h. */
#include "config.h"

#include "lib/memory/lane.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "lib/device/device-private.h"
#include "lib/device/device.h"
#include "lib/memory/device-memory.h"

#define MAX_IDLE 4u

int hoist__lanes_of(hoist_device *device, struct hoist__lanes **ret)
{
	struct hoist__lanes *known = atomic_load(&device->xlanes);
	if (known == NULL) {
		struct hoist__lanes *made = calloc(1, sizeof *made);
		if (made == NULL)
			return hoist__fail_nomem("the idle transfers of a device", sizeof *made);
		pthread_mutex_init(&made->lock, NULL);
		if (atomic_compare_exchange_strong(&device->xlanes, &known, made)) {
			known = made;
		} else {
			pthread_mutex_destroy(&made->lock);
			free(made);
		}
	}
	*ret = known;
	return 0;
}

/* Takes a half-built lane.  Destroying the stream waits for its work. */
static void destroy(struct hoist__lane *lane)
{
	hoist__dev_stream_destroy(lane->stream);
	for (unsigned i = 0; i < HOIST__N_SLOTS; i++)
		hoist__dev_event_destroy(lane->done[i]);
	free(lane);
}

static int create(struct hoist__dev *dev, struct hoist__lane **ret)
{
	struct hoist__lane *lane = calloc(1, sizeof *lane);
	if (lane == NULL)
		return hoist__fail_nomem("a transfer", sizeof *lane);
	int err = hoist__dev_stream_create(dev, &lane->stream);
	for (unsigned i = 0; err == 0 && i < HOIST__N_SLOTS; i++)
		err = hoist__dev_event_create(dev, 0, &lane->done[i]);
	if (err < 0) {
		destroy(lane);
		return err;
	}
	*ret = lane;
	return 0;
}

void hoist__lanes_drain(hoist_device *device)
{
	struct hoist__lanes *lanes = atomic_load(&device->xlanes);
	if (lanes == NULL)
		return;
	pthread_mutex_lock(&lanes->lock);
	struct hoist__lane *lane = lanes->idle;
	lanes->idle = NULL;
	lanes->n_idle = 0;
	pthread_mutex_unlock(&lanes->lock);
	while (lane != NULL) {
		struct hoist__lane *next = lane->next;
		destroy(lane);
		lane = next;
	}
}

/* The device is checked first: a child of fork may find the lock taken, and could not use the lanes
 * anyway. */
int hoist__lane_acquire(hoist_device *device, struct hoist__lane **ret)
{
	struct hoist__lanes *lanes = NULL;
	int err = hoist__dev_check(hoist__device_dev(device));
	if (err == 0)
		err = hoist__lanes_of(device, &lanes);
	if (err < 0)
		return err;
	pthread_mutex_lock(&lanes->lock);
	struct hoist__lane *lane = lanes->idle;
	HOIST__ASSERT((lane == NULL) == (lanes->n_idle == 0));
	if (lane != NULL) {
		lanes->idle = lane->next;
		lanes->n_idle--;
	}
	pthread_mutex_unlock(&lanes->lock);
	if (lane == NULL)
		return create(hoist__device_dev(device), ret);
	*ret = lane;
	return 0;
}

static void keep(struct hoist__lanes *lanes, struct hoist__lane *lane)
{
	pthread_mutex_lock(&lanes->lock);
	bool kept = lanes->n_idle < MAX_IDLE;
	if (kept) {
		lane->next = lanes->idle;
		lanes->idle = lane;
		lanes->n_idle++;
	}
	HOIST__ASSERT(lanes->n_idle <= MAX_IDLE && lanes->idle != NULL);
	pthread_mutex_unlock(&lanes->lock);
	if (!kept)
		destroy(lane);
}

/* A lane whose work failed is not used again.  Destroying it waits once more, in case the driver
 * refused the first wait. */
int hoist__lane_release(hoist_device *device, struct hoist__lane *lane, int err)
{
	HOIST__ASSERT(err <= 0 && hoist__dev_stream_dev(lane->stream) == hoist__device_dev(device));
	struct hoist__failure failure;
	if (err < 0)
		hoist__failure_keep(&failure);
	int late = hoist__dev_stream_synchronize(lane->stream);
	if (err == 0 && late == 0) {
		keep(atomic_load(&device->xlanes), lane);
		return 0;
	}
	if (err == 0) {
		err = late;
		hoist__failure_keep(&failure);
	}
	destroy(lane);
	return hoist__fail_again(err, &failure);
}

int hoist__slots_acquire(hoist_device *device, hoist_memory *through, struct hoist__slots *ret)
{
	const size_t bytes = HOIST__N_SLOTS * HOIST__SLOT_BYTES;
	struct hoist__slots slots = {NULL, through, 0};
	int err = through != NULL ? hoist_memory_alloc(through, bytes, 4096, &slots.address)
				  : hoist__device_staging_pool(device, &slots.pool);
	if (err == 0 && through == NULL)
		err = hoist__pool_alloc(slots.pool, bytes, 4096, 0, &slots.address);
	if (err < 0)
		return hoist__fail_in(err, "memory to copy through");
	HOIST__ASSERT(slots.address % 4096 == 0 && (slots.pool == NULL) != (slots.memory == NULL));
	*ret = slots;
	return 0;
}

/* The address is a live block, so only a driver can fail, and no caller can be told. */
void hoist__slots_release(struct hoist__slots *slots)
{
	if (slots->memory != NULL)
		(void)hoist_memory_free(slots->memory, slots->address);
	else
		(void)hoist__pool_free(slots->pool, slots->address);
}
