/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "lib/transfer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "lib/objects.h"

#define SLOT_BYTES (4 * HOIST__MIB)
#define N_SLOTS 2u
#define MAX_IDLE_LANES 4u

struct hoist__lane {
	struct hoist__lane *next;
	struct hoist__dev_stream *stream;
	struct hoist__dev_event *done[N_SLOTS]; /* the last copy from or into the slot */
};

void hoist__lanes_init(struct hoist__lanes *lanes)
{
	pthread_mutex_init(&lanes->lock, NULL);
	lanes->idle = NULL;
	lanes->n_idle = 0;
}

/* Takes a half-built one.  Destroying the stream waits for its work. */
static void destroy_lane(struct hoist__lane *lane)
{
	hoist__stream_destroy(lane->stream);
	for (unsigned i = 0; i < N_SLOTS; i++)
		hoist__event_destroy(lane->done[i]);
	free(lane);
}

static int create_lane(struct hoist__dev *dev, struct hoist__lane **ret)
{
	struct hoist__lane *lane = calloc(1, sizeof *lane);
	if (lane == NULL)
		return hoist__fail_nomem("a transfer", sizeof *lane);
	int err = hoist__stream_create(dev, &lane->stream);
	for (unsigned i = 0; err == 0 && i < N_SLOTS; i++)
		err = hoist__event_create(dev, 0, &lane->done[i]);
	if (err < 0) {
		destroy_lane(lane);
		return err;
	}
	*ret = lane;
	return 0;
}

void hoist__lanes_drain(struct hoist__lanes *lanes)
{
	pthread_mutex_lock(&lanes->lock);
	struct hoist__lane *lane = lanes->idle;
	lanes->idle = NULL;
	lanes->n_idle = 0;
	pthread_mutex_unlock(&lanes->lock);
	while (lane != NULL) {
		struct hoist__lane *next = lane->next;
		destroy_lane(lane);
		lane = next;
	}
}

static int acquire_lane(hoist_device *device, struct hoist__lane **ret)
{
	struct hoist__lanes *lanes = hoist__device_lanes(device);
	pthread_mutex_lock(&lanes->lock);
	struct hoist__lane *lane = lanes->idle;
	if (lane != NULL) {
		lanes->idle = lane->next;
		lanes->n_idle--;
	}
	pthread_mutex_unlock(&lanes->lock);
	if (lane == NULL)
		return create_lane(hoist__device_dev(device), ret);
	*ret = lane;
	return 0;
}

static void keep_lane(struct hoist__lanes *lanes, struct hoist__lane *lane)
{
	pthread_mutex_lock(&lanes->lock);
	bool keep = lanes->n_idle < MAX_IDLE_LANES;
	if (keep) {
		lane->next = lanes->idle;
		lanes->idle = lane;
		lanes->n_idle++;
	}
	pthread_mutex_unlock(&lanes->lock);
	if (!keep)
		destroy_lane(lane);
}

/* Waits for all of the lane's work, also after a failure (@err), and gives the
 * lane back.  One whose work failed is not used again: destroying it waits once
 * more, should the driver have refused to wait.
 * Returns: the first failure, with its text. */
static int release_lane(hoist_device *device, struct hoist__lane *lane, int err)
{
	char text[HOIST__ERROR_BYTES];
	if (err < 0)
		hoist__error_copy(text, sizeof text);
	int late = hoist__stream_synchronize(lane->stream);
	if (err == 0 && late == 0) {
		keep_lane(hoist__device_lanes(device), lane);
		return 0;
	}
	if (err == 0) {
		err = late;
		hoist__error_copy(text, sizeof text);
	}
	destroy_lane(lane);
	return hoist__fail(err, "%s", text);
}

static int copy_direct(hoist_device *device, enum hoist__copy kind, uintptr_t dst, uintptr_t src,
		       size_t bytes)
{
	struct hoist__lane *lane;
	int err = acquire_lane(device, &lane);
	if (err < 0)
		return err;
	err = hoist__copy_async(lane->stream, kind, dst, src, bytes);
	return release_lane(device, lane, err);
}

static int copy_peer(const struct hoist__span *dst, const struct hoist__span *src, size_t bytes)
{
	struct hoist__lane *lane;
	int err = acquire_lane(src->device, &lane);
	if (err < 0)
		return err;
	err = hoist__copy_peer_async(lane->stream, hoist__device_dev(dst->device), dst->address,
				     hoist__device_dev(src->device), src->address, bytes);
	return release_lane(src->device, lane, err);
}

/* Queues one slot's copy and marks its end. */
static int queue_slot(struct hoist__lane *lane, unsigned slot, enum hoist__copy kind, uintptr_t dst,
		      uintptr_t src, size_t bytes)
{
	int err = hoist__copy_async(lane->stream, kind, dst, src, bytes);
	if (err == 0)
		err = hoist__event_record(lane->done[slot], lane->stream);
	return err;
}

/* Slots are filled in turn; one is filled again once its last copy is done. */
static int bounce_in(struct hoist__lane *lane, uintptr_t slots, uintptr_t dst, uintptr_t src,
		     size_t bytes)
{
	int err = 0;
	unsigned slot = 0;
	for (size_t at = 0; err == 0 && at < bytes; at += SLOT_BYTES) {
		size_t n = hoist__min_u64(SLOT_BYTES, bytes - at);
		uintptr_t middle = slots + slot * SLOT_BYTES;
		if (at >= N_SLOTS * SLOT_BYTES)
			err = hoist__event_synchronize(lane->done[slot]);
		if (err < 0)
			break;
		memcpy((void *)middle, (const void *)(src + at), n);
		err = queue_slot(lane, slot, HOIST__COPY_HOST_TO_DEVICE, dst + at, middle, n);
		slot = (slot + 1) % N_SLOTS;
	}
	return err;
}

/* The device is one slot ahead of the host: the slot that it copies into was
 * emptied in the round before. */
static int bounce_out(struct hoist__lane *lane, uintptr_t slots, uintptr_t dst, uintptr_t src,
		      size_t bytes)
{
	int err = 0;
	size_t emptied = 0;
	unsigned slot = 0;
	for (size_t at = 0; err == 0 && emptied < bytes; at += SLOT_BYTES) {
		if (at < bytes)
			err = queue_slot(lane, slot, HOIST__COPY_DEVICE_TO_HOST,
					 slots + slot * SLOT_BYTES, src + at,
					 hoist__min_u64(SLOT_BYTES, bytes - at));
		slot = (slot + 1) % N_SLOTS;
		if (err < 0 || at == 0)
			continue;
		err = hoist__event_synchronize(lane->done[slot]);
		if (err < 0)
			break;
		size_t n = hoist__min_u64(SLOT_BYTES, bytes - emptied);
		memcpy((void *)(dst + emptied), (const void *)(slots + slot * SLOT_BYTES), n);
		emptied += n;
	}
	return err;
}

/* The two slots are always of full size, so that every transfer of a device
 * finds the region of the one before it. */
static int acquire_slots(hoist_device *device, struct hoist__pool **ret_pool, uintptr_t *ret)
{
	int err = hoist__device_staging_pool(device, ret_pool);
	if (err == 0)
		err = hoist__pool_alloc(*ret_pool, N_SLOTS * SLOT_BYTES, 4096, 0, ret);
	return err;
}

static int copy_bounced(hoist_device *device, enum hoist__copy kind, uintptr_t dst, uintptr_t src,
			size_t bytes)
{
	struct hoist__pool *pool;
	uintptr_t slots;
	int err = acquire_slots(device, &pool, &slots);
	if (err < 0)
		return hoist__fail_in(err, "memory to copy through");
	struct hoist__lane *lane;
	err = acquire_lane(device, &lane);
	if (err == 0) {
		err = kind == HOIST__COPY_HOST_TO_DEVICE ? bounce_in(lane, slots, dst, src, bytes)
							 : bounce_out(lane, slots, dst, src, bytes);
		err = release_lane(device, lane, err);
	}
	hoist__pool_free(pool, slots);
	return err;
}

static bool on_host(const struct hoist__span *span)
{
	return span->kind != HOIST__MEMORY_DEVICE;
}

static enum hoist__api api_of(const struct hoist__span *span)
{
	return hoist__dev_api(hoist__device_dev(span->device));
}

/* True if @host is registered with the driver of @on's device. */
static bool is_direct(const struct hoist__span *host, const struct hoist__span *on)
{
	return host->kind == HOIST__MEMORY_PINNED && api_of(host) == api_of(on);
}

static bool overlap(const struct hoist__span *a, const struct hoist__span *b, size_t bytes)
{
	return a->address < b->address + bytes && b->address < a->address + bytes;
}

/* Piece by piece through host memory that is pinned for the source, in the order
 * that is right should the two overlap: no piece is written over one that is yet
 * to be read. */
static int copy_through_host(const struct hoist__span *dst, const struct hoist__span *src,
			     size_t bytes)
{
	struct hoist__pool *pool;
	uintptr_t slots;
	int err = acquire_slots(src->device, &pool, &slots);
	if (err < 0)
		return hoist__fail_in(err, "memory to copy through");
	const struct hoist__span middle = {src->device, HOIST__MEMORY_PINNED, slots};
	bool backwards = dst->address > src->address;
	for (size_t done = 0; err == 0 && done < bytes;) {
		size_t n = hoist__min_u64(N_SLOTS * SLOT_BYTES, bytes - done);
		size_t at = backwards ? bytes - done - n : done;
		struct hoist__span from = *src;
		struct hoist__span to = *dst;
		from.address += at;
		to.address += at;
		err = hoist__transfer(&middle, &from, n);
		if (err == 0)
			err = hoist__transfer(&to, &middle, n);
		done += n;
	}
	hoist__pool_free(pool, slots);
	return err;
}

static int copy_between_devices(const struct hoist__span *dst, const struct hoist__span *src,
				size_t bytes)
{
	if (dst->device == src->device) {
		if (overlap(dst, src, bytes))
			return copy_through_host(dst, src, bytes);
		return copy_direct(dst->device, HOIST__COPY_DEVICE_TO_DEVICE, dst->address,
				   src->address, bytes);
	}
	if (api_of(dst) == api_of(src))
		return copy_peer(dst, src, bytes);
	return copy_through_host(dst, src, bytes);
}

/* What a driver pinned is not there in a child of fork. */
static int check_there(const struct hoist__span *span)
{
	return span->kind == HOIST__MEMORY_PINNED
		       ? hoist__dev_check(hoist__device_dev(span->device))
		       : 0;
}

int hoist__transfer(const struct hoist__span *dst, const struct hoist__span *src, size_t bytes)
{
	if (bytes == 0)
		return 0;
	int err = check_there(dst);
	if (err == 0)
		err = check_there(src);
	if (err < 0)
		return err;
	if (on_host(dst) && on_host(src)) {
		memmove((void *)dst->address, (const void *)src->address, bytes);
		return 0;
	}
	if (!on_host(dst) && !on_host(src)) {
		if (dst->device == src->device && dst->address == src->address)
			return 0;
		return copy_between_devices(dst, src, bytes);
	}
	const struct hoist__span *host = on_host(dst) ? dst : src;
	const struct hoist__span *on = on_host(dst) ? src : dst;
	enum hoist__copy kind =
		on_host(dst) ? HOIST__COPY_DEVICE_TO_HOST : HOIST__COPY_HOST_TO_DEVICE;
	if (is_direct(host, on))
		return copy_direct(on->device, kind, dst->address, src->address, bytes);
	return copy_bounced(on->device, kind, dst->address, src->address, bytes);
}

int hoist__fill(const struct hoist__span *dst, unsigned char value, size_t bytes)
{
	if (bytes == 0)
		return 0;
	int err = check_there(dst);
	if (err < 0)
		return err;
	if (on_host(dst)) {
		memset((void *)dst->address, value, bytes);
		return 0;
	}
	struct hoist__lane *lane;
	err = acquire_lane(dst->device, &lane);
	if (err < 0)
		return err;
	err = hoist__fill_async(lane->stream, dst->address, value, 1, bytes);
	return release_lane(dst->device, lane, err);
}
