/* SPDX-License-Identifier: MIT */
/* lib/memory/transfer.c - copies and fills runs of bytes: directly, or through slots.
 * The contract is in lib/memory/transfer.h. */
#include "config.h"

#include "lib/memory/transfer.h"

#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "lib/device/device.h"

#define SLOT_BYTES HOIST__SLOT_BYTES
#define N_SLOTS HOIST__N_SLOTS

static int copy_direct(hoist_device *device, enum hoist__copy kind, uintptr_t dst, uintptr_t src,
		       size_t bytes)
{
	struct hoist__lane *lane;
	int err = hoist__lane_acquire(device, &lane);
	if (err < 0)
		return err;
	err = hoist__copy_async(lane->stream, kind, dst, src, bytes);
	return hoist__lane_release(device, lane, err);
}

static int copy_peer(const struct hoist__span *dst, const struct hoist__span *src, size_t bytes)
{
	struct hoist__lane *lane;
	int err = hoist__lane_acquire(src->device, &lane);
	if (err < 0)
		return err;
	err = hoist__copy_peer_async(lane->stream, hoist__device_dev(dst->device), dst->address,
				     hoist__device_dev(src->device), src->address, bytes);
	return hoist__lane_release(src->device, lane, err);
}

/* Queues one slot's copy and marks its end. */
static int queue_slot(struct hoist__lane *lane, unsigned slot, enum hoist__copy kind, uintptr_t dst,
		      uintptr_t src, size_t bytes)
{
	int err = hoist__copy_async(lane->stream, kind, dst, src, bytes);
	if (err == 0)
		err = hoist__dev_event_record(lane->done[slot], lane->stream);
	return err;
}

/* Slots are filled in turn.  A slot is filled again once its last copy is done. */
static int bounce_in(struct hoist__lane *lane, uintptr_t slots, uintptr_t dst, uintptr_t src,
		     size_t bytes)
{
	int err = 0;
	unsigned slot = 0;
	for (size_t at = 0; err == 0 && at < bytes; at += SLOT_BYTES) {
		size_t n = hoist__min_u64(SLOT_BYTES, bytes - at);
		uintptr_t middle = slots + slot * SLOT_BYTES;
		if (at >= N_SLOTS * SLOT_BYTES)
			err = hoist__dev_event_synchronize(lane->done[slot]);
		if (err < 0)
			break;
		HOIST__ASSERT(at + n <= bytes && middle + n <= slots + N_SLOTS * SLOT_BYTES);
		memcpy((void *)middle, (const void *)(src + at), n);
		err = queue_slot(lane, slot, HOIST__COPY_HOST_TO_DEVICE, dst + at, middle, n);
		slot = (slot + 1) % N_SLOTS;
	}
	return err;
}

/* The device is one slot ahead of the host.  The host emptied the slot that the device copies into
 * in the round before. */
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
		err = hoist__dev_event_synchronize(lane->done[slot]);
		if (err < 0)
			break;
		size_t n = hoist__min_u64(SLOT_BYTES, bytes - emptied);
		HOIST__ASSERT(emptied + n <= bytes && n <= SLOT_BYTES && emptied <= at);
		memcpy((void *)(dst + emptied), (const void *)(slots + slot * SLOT_BYTES), n);
		emptied += n;
	}
	return err;
}

static int copy_bounced(hoist_device *device, enum hoist__copy kind, uintptr_t dst, uintptr_t src,
			size_t bytes, hoist_memory *through)
{
	struct hoist__slots slots;
	int err = hoist__slots_acquire(device, through, &slots);
	if (err < 0)
		return err;
	struct hoist__lane *lane;
	err = hoist__lane_acquire(device, &lane);
	if (err == 0) {
		err = kind == HOIST__COPY_HOST_TO_DEVICE
			      ? bounce_in(lane, slots.address, dst, src, bytes)
			      : bounce_out(lane, slots.address, dst, src, bytes);
		err = hoist__lane_release(device, lane, err);
	}
	hoist__slots_release(&slots);
	return err;
}

enum hoist__api hoist__span_api(const struct hoist__span *span)
{
	return hoist__dev_api(hoist__device_dev(span->device));
}

bool hoist__span_on_host(const struct hoist__span *span)
{
	return span->kind != HOIST__MEMORY_DEVICE;
}

bool hoist__span_is_direct(const struct hoist__span *host, const struct hoist__span *on)
{
	bool known = host->kind == HOIST__MEMORY_PINNED || host->kind == HOIST__MEMORY_MANAGED;
	return known && hoist__span_api(host) == hoist__span_api(on);
}

int hoist__span_check(const struct hoist__span *span)
{
	return span->kind == HOIST__MEMORY_PINNED || span->kind == HOIST__MEMORY_MANAGED
		       ? hoist__dev_check(hoist__device_dev(span->device))
		       : 0;
}

static bool overlap(const struct hoist__span *a, const struct hoist__span *b, size_t bytes)
{
	return a->address < b->address + bytes && b->address < a->address + bytes;
}

/* Copies piece by piece through host memory that is pinned for the source.  The order is right even
 * if the two overlap: no piece is written over one that is yet to be read. */
static int copy_through_host(const struct hoist__span *dst, const struct hoist__span *src,
			     size_t bytes, hoist_memory *through)
{
	struct hoist__slots slots;
	int err = hoist__slots_acquire(src->device, through, &slots);
	if (err < 0)
		return err;
	const struct hoist__span middle = {src->device, HOIST__MEMORY_PINNED, slots.address};
	bool backwards = dst->address > src->address;
	for (size_t done = 0; err == 0 && done < bytes;) {
		size_t n = hoist__min_u64(N_SLOTS * SLOT_BYTES, bytes - done);
		size_t at = backwards ? bytes - done - n : done;
		HOIST__ASSERT(n != 0 && at + n <= bytes);
		struct hoist__span from = *src;
		struct hoist__span to = *dst;
		from.address += at;
		to.address += at;
		err = hoist__transfer(&middle, &from, n);
		if (err == 0)
			err = hoist__transfer(&to, &middle, n);
		done += n;
	}
	hoist__slots_release(&slots);
	return err;
}

static int copy_between_devices(const struct hoist__span *dst, const struct hoist__span *src,
				size_t bytes, hoist_memory *through)
{
	if (dst->device == src->device) {
		if (overlap(dst, src, bytes))
			return copy_through_host(dst, src, bytes, through);
		return copy_direct(dst->device, HOIST__COPY_DEVICE_TO_DEVICE, dst->address,
				   src->address, bytes);
	}
	if (hoist__span_api(dst) == hoist__span_api(src))
		return copy_peer(dst, src, bytes);
	return copy_through_host(dst, src, bytes, through);
}

int hoist__transfer(const struct hoist__span *dst, const struct hoist__span *src, size_t bytes)
{
	return hoist__transfer_through(dst, src, bytes, NULL);
}

/* Pageable host memory bounces, as the header says.  The two ends may overlap, on the host as well
 * as on one device. */
int hoist__transfer_through(const struct hoist__span *dst, const struct hoist__span *src,
			    size_t bytes, hoist_memory *through)
{
	if (bytes == 0)
		return 0;
	int err = hoist__span_check(dst);
	if (err == 0)
		err = hoist__span_check(src);
	if (err < 0)
		return err;
	if (hoist__span_on_host(dst) && hoist__span_on_host(src)) {
		memmove((void *)dst->address, (const void *)src->address, bytes);
		return 0;
	}
	if (!hoist__span_on_host(dst) && !hoist__span_on_host(src)) {
		if (dst->device == src->device && dst->address == src->address)
			return 0;
		return copy_between_devices(dst, src, bytes, through);
	}
	const struct hoist__span *host = hoist__span_on_host(dst) ? dst : src;
	const struct hoist__span *on = hoist__span_on_host(dst) ? src : dst;
	enum hoist__copy kind =
		hoist__span_on_host(dst) ? HOIST__COPY_DEVICE_TO_HOST : HOIST__COPY_HOST_TO_DEVICE;
	if (hoist__span_is_direct(host, on))
		return copy_direct(on->device, kind, dst->address, src->address, bytes);
	return copy_bounced(on->device, kind, dst->address, src->address, bytes, through);
}

int hoist__fill(const struct hoist__span *dst, unsigned char value, size_t bytes)
{
	if (bytes == 0)
		return 0;
	int err = hoist__span_check(dst);
	if (err < 0)
		return err;
	if (hoist__span_on_host(dst)) {
		memset((void *)dst->address, value, bytes);
		return 0;
	}
	struct hoist__lane *lane;
	err = hoist__lane_acquire(dst->device, &lane);
	if (err < 0)
		return err;
	err = hoist__fill_async(lane->stream, dst->address, value, 1, bytes);
	return hoist__lane_release(dst->device, lane, err);
}
