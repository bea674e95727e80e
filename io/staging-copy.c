/* SPDX-License-Identifier: MIT */
/* Queues copies between slots and devices, and finds their ends.
 * The contract is in io/staging.h. */
#include "config.h"

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "device/scope.h"
#include "io/staging-private.h"

static struct hoist__staging_slot *staging_slot_of(struct hoist__slot *slot)
{
	return HOIST__CONTAINER_OF(slot, struct hoist__staging_slot, slot);
}

static struct hoist__dev_event *event_of(const struct hoist__staging *staging,
					 const struct hoist__slot *slot, unsigned stream)
{
	return staging->events[(size_t)slot->index * staging->n_streams + stream];
}

static int fail_failed(const struct hoist__staging *staging)
{
	return hoist__fail(staging->failed, "the device of the staging slots has failed");
}

static int keep_failure(struct hoist__staging *staging, int err, const char *doing)
{
	staging->failed = err;
	return hoist__fail_in(err, "%s", doing);
}

/* --- being told --- */

static int tell(void *context)
{
	struct hoist__teller *teller = context;
	pthread_mutex_lock(&teller->lock);
	HOIST__ASSERT(atomic_load(&teller->refs) != 0);
	if (teller->moved != NULL)
		teller->moved(teller->context);
	pthread_mutex_unlock(&teller->lock);
	hoist__teller_unref(teller);
	return 0;
}

/* A driver that could not queue one call is not asked again: the owner then polls. */
static bool ask_behind(struct hoist__staging *staging, unsigned stream,
		       struct hoist__dev_event *event)
{
	struct hoist__dev_stream *telling = staging->telling[stream];
	HOIST__ASSERT(staging->teller != NULL && telling != NULL);
	atomic_fetch_add_explicit(&staging->teller->refs, 1, memory_order_relaxed);
	if (hoist__dev_stream_wait_event(telling, event) == 0 &&
	    hoist__dev_stream_call(telling, tell, staging->teller) == 0)
		return true;
	hoist__teller_unref(staging->teller);
	staging->tells = false;
	return false;
}

/* Asks about each stream that still works on the slot: the slot comes back with the last one. */
static bool ask_about(struct hoist__staging *staging, struct hoist__slot *slot)
{
	const struct hoist__staging_slot *own = staging_slot_of(slot);
	bool asked = own->bare == 0;
	for (unsigned s = 0; asked && s < staging->n_streams; s++)
		if ((own->queued & 1u << s) != 0)
			asked = ask_behind(staging, s, event_of(staging, slot, s));
	return asked;
}

/* The last slot of the oldest quarter of the copies.  A slot that waits for some streams may end
 * before an older one that waits for others: only a slot that waits for all streams of the older
 * ones is certain to come back with them. */
static struct hoist__slot *copy_to_await(const struct hoist__staging *staging)
{
	struct hoist__list *node = staging->copying.next;
	struct hoist__slot *ret = hoist__slot_of(node);
	uint32_t streams = 0;
	for (unsigned i = 0; i <= staging->n_copying / 4; i++, node = node->next) {
		struct hoist__slot *slot = hoist__slot_of(node);
		uint32_t own = staging_slot_of(slot)->queued;
		streams |= own;
		if ((streams & ~own) == 0)
			ret = slot;
	}
	return ret;
}

bool hoist__staging_ask(struct hoist__staging *staging)
{
	struct hoist__slot *copy = NULL;
	struct hoist__slot *fetch = NULL;
	if (staging->failed != 0 || !staging->tells)
		return false;
	if (!hoist__list_empty(&staging->copying) && staging->asked_copy == NULL)
		copy = copy_to_await(staging);
	if (!hoist__list_empty(&staging->fetching) && staging->asked_fetch == NULL)
		fetch = hoist__slot_of(staging->fetching.next);
	if ((copy != NULL && !ask_about(staging, copy)) ||
	    (fetch != NULL && !ask_about(staging, fetch)))
		return false;
	staging->asked_copy = copy != NULL ? copy : staging->asked_copy;
	staging->asked_fetch = fetch != NULL ? fetch : staging->asked_fetch;
	return staging->asked_copy != NULL || staging->asked_fetch != NULL;
}

/* --- queuing --- */

/* Larger rows, and rows farther apart, are copies of their own. */
#define JOINED_ROW_BYTES ((size_t)16 << 10)

bool hoist__slot_box_join(struct hoist__slot_box *last, const struct hoist__slot_box *box)
{
	size_t rows = last->rows > 1 ? last->rows : 1;
	size_t in_slot = (box->slot_offset - last->slot_offset) / rows;
	size_t on_device = (box->device_address - last->device_address) / rows;
	if (box->rows > 1 || box->slot_offset <= last->slot_offset ||
	    box->device_address <= last->device_address)
		return false;
	if (rows == 1 && in_slot == last->bytes && on_device == last->bytes) {
		last->bytes += box->bytes;
		return true;
	}
	if (rows == 1) {
		last->slot_stride = in_slot;
		last->device_stride = on_device;
	}
	if (box->bytes != last->bytes || box->bytes > JOINED_ROW_BYTES || in_slot < box->bytes ||
	    on_device < box->bytes || on_device > 16 * JOINED_ROW_BYTES ||
	    box->slot_offset != last->slot_offset + rows * last->slot_stride ||
	    box->device_address != last->device_address + rows * last->device_stride)
		return false;
	last->rows = rows + 1;
	return true;
}

static int queue_box(struct hoist__dev_stream *stream, enum hoist__copy kind,
		     const struct hoist__slot_box *box, uintptr_t host)
{
	bool to_device = kind == HOIST__COPY_HOST_TO_DEVICE;
	uintptr_t dst = to_device ? box->device_address : host;
	uintptr_t src = to_device ? host : box->device_address;
	if (box->rows <= 1)
		return hoist__copy_async(stream, kind, dst, src, box->bytes);
	struct hoist__box copy = {
		.dst = dst,
		.src = src,
		.width = box->bytes,
		.rows = box->rows,
		.planes = 1,
		.dst_pitch = to_device ? box->device_stride : box->slot_stride,
		.src_pitch = to_device ? box->slot_stride : box->device_stride,
	};
	copy.dst_plane = copy.rows * copy.dst_pitch;
	copy.src_plane = copy.rows * copy.src_pitch;
	return hoist__copy_box_async(stream, kind, &copy);
}

static size_t end_in_slot(const struct hoist__slot_box *box)
{
	size_t rows = box->rows > 1 ? box->rows - 1 : 0;
	return box->slot_offset + rows * box->slot_stride + box->bytes;
}

/* Queues copies up to the first failure, which is returned; *n_queued boxes have been queued. */
static int queue_boxes(struct hoist__staging *staging, struct hoist__slot *slot, unsigned stream,
		       enum hoist__copy kind, const struct hoist__slot_box *boxes, size_t n_boxes,
		       size_t *n_queued)
{
	uintptr_t base =
		slot->from != NULL ? (uintptr_t)slot->from : staging_slot_of(slot)->address;
	int err = 0;
	assert(stream < staging->n_streams);
	HOIST__ASSERT(slot == &staging->slots[slot->index].slot);
	for (*n_queued = 0; *n_queued < n_boxes; ++*n_queued) {
		const struct hoist__slot_box *box = &boxes[*n_queued];
		assert(end_in_slot(box) <= staging->slot_bytes);
		err = queue_box(staging->streams[stream], kind, box, base + box->slot_offset);
		if (err != 0)
			break;
	}
	return err;
}

/* Queues the boxes and an event behind them; the caller sets the slot's state.  After the failure
 * of a copy, no event is recorded and the stream is marked bare.  *queued: copies are on their way,
 * also after a failure. */
static int queue(struct hoist__staging *staging, struct hoist__slot *slot, unsigned stream,
		 enum hoist__copy kind, const struct hoist__slot_box *boxes, size_t n_boxes,
		 bool *queued)
{
	struct hoist__staging_slot *own = staging_slot_of(slot);
	struct hoist__dev_scope scope;
	size_t n_queued;
	hoist__dev_enter(hoist__dev_stream_dev(staging->streams[stream]), &scope);
	int err = queue_boxes(staging, slot, stream, kind, boxes, n_boxes, &n_queued);
	*queued = err == 0 || n_queued > 0;
	if (err == 0)
		err = hoist__dev_event_record(event_of(staging, slot, stream),
					      staging->streams[stream]);
	hoist__dev_leave(&scope);
	/* The driver was asked about an earlier event. */
	if (staging->asked_copy == slot)
		staging->asked_copy = NULL;
	if (staging->asked_fetch == slot)
		staging->asked_fetch = NULL;
	own->queued |= (uint32_t)*queued << stream;
	own->lap.streams |= own->queued;
	own->bare |= (uint32_t)(*queued && err != 0) << stream;
	return err;
}

int hoist__slot_copy(struct hoist__staging *staging, struct hoist__slot *slot, unsigned stream,
		     const struct hoist__slot_box *boxes, size_t n_boxes)
{
	assert(slot->state == HOIST__SLOT_FULL || slot->state == HOIST__SLOT_COPYING);
	if (staging->failed != 0)
		return fail_failed(staging);
	bool queued;
	int err = queue(staging, slot, stream, HOIST__COPY_HOST_TO_DEVICE, boxes, n_boxes, &queued);
	if (queued && slot->state == HOIST__SLOT_FULL) {
		HOIST__ASSERT(hoist__list_empty(&slot->node));
		slot->state = HOIST__SLOT_COPYING;
		staging_slot_of(slot)->lap.copy_ns = hoist__timeline_now(staging->timeline);
		hoist__list_push_back(&staging->copying, &slot->node);
		staging->n_copying++;
	}
	HOIST__ASSERT(hoist__staging_adds_up(staging));
	return err;
}

int hoist__slot_fetch(struct hoist__staging *staging, struct hoist__slot *slot, unsigned stream,
		      const struct hoist__slot_box *boxes, size_t n_boxes)
{
	assert(slot->state == HOIST__SLOT_READING || slot->state == HOIST__SLOT_FETCHING);
	if (staging->failed != 0)
		return fail_failed(staging);
	bool queued;
	int err = queue(staging, slot, stream, HOIST__COPY_DEVICE_TO_HOST, boxes, n_boxes, &queued);
	if (queued && slot->state == HOIST__SLOT_READING) {
		HOIST__ASSERT(hoist__list_empty(&slot->node));
		slot->state = HOIST__SLOT_FETCHING;
		hoist__list_push_back(&staging->fetching, &slot->node);
		staging->n_fetching++;
	}
	HOIST__ASSERT(hoist__staging_adds_up(staging));
	return err;
}

/* --- ends --- */

/* Returns: 0: all copies of the slot have ended; -EAGAIN: not yet; a device's error. */
static int query(struct hoist__staging *staging, struct hoist__slot *slot)
{
	struct hoist__staging_slot *own = staging_slot_of(slot);
	for (unsigned s = 0; s < staging->n_streams; s++) {
		if ((own->queued & 1u << s) == 0)
			continue;
		HOIST__ASSERT(slot->state == HOIST__SLOT_COPYING ||
			      slot->state == HOIST__SLOT_FETCHING);
		int err = (own->bare & 1u << s) != 0
				  ? hoist__dev_stream_synchronize(staging->streams[s])
				  : hoist__dev_event_query(event_of(staging, slot, s));
		if (err != 0)
			return err;
		own->queued &= ~(1u << s);
		own->bare &= ~(1u << s);
	}
	return 0;
}

int hoist__slot_finish(struct hoist__staging *staging, struct hoist__slot *slot)
{
	struct hoist__staging_slot *own = staging_slot_of(slot);
	int first = 0;
	for (unsigned s = 0; s < staging->n_streams; s++) {
		if ((own->queued & 1u << s) == 0)
			continue;
		int err = -EINVAL;
		if ((own->bare & 1u << s) == 0)
			err = hoist__dev_event_synchronize(event_of(staging, slot, s));
		if (err != 0)
			err = hoist__dev_stream_synchronize(staging->streams[s]);
		if (first == 0)
			first = err;
	}
	own->queued = own->bare = 0;
	return first;
}

int hoist__staging_reclaim(struct hoist__staging *staging)
{
	int n = 0;
	/* Streams run in order: copies behind an unfinished one have not finished either. */
	while (staging->failed == 0 && !hoist__list_empty(&staging->copying)) {
		struct hoist__slot *slot = hoist__slot_of(staging->copying.next);
		int err = query(staging, slot);
		if (err == -EAGAIN)
			break;
		if (err != 0)
			return keep_failure(staging, err, "copying to the device");
		HOIST__ASSERT(slot->state == HOIST__SLOT_COPYING && staging->n_copying != 0);
		hoist__list_remove(&slot->node);
		staging->n_copying--;
		if (staging->asked_copy == slot)
			staging->asked_copy = NULL;
		staging->copied += slot->useful;
		hoist__slot_make_free(staging, slot);
		n++;
	}
	HOIST__ASSERT(hoist__staging_adds_up(staging));
	return staging->failed != 0 ? fail_failed(staging) : n;
}

uint64_t hoist__staging_take_copied(struct hoist__staging *staging)
{
	uint64_t bytes = staging->copied;
	staging->copied = 0;
	return bytes;
}

int hoist__staging_wait(struct hoist__staging *staging)
{
	if (hoist__list_empty(&staging->copying))
		return 0;
	int err = hoist__slot_finish(staging, hoist__slot_of(staging->copying.next));
	if (err != 0 && staging->failed == 0)
		return keep_failure(staging, err, "copying to the device");
	return hoist__staging_reclaim(staging);
}

int hoist__staging_fetched(struct hoist__staging *staging, struct hoist__slot **ret)
{
	if (staging->failed != 0)
		return fail_failed(staging);
	if (hoist__list_empty(&staging->fetching))
		return 0;
	struct hoist__slot *slot = hoist__slot_of(staging->fetching.next);
	int err = query(staging, slot);
	if (err == -EAGAIN)
		return 0;
	if (err != 0)
		return keep_failure(staging, err, "copying from the device");
	HOIST__ASSERT(slot->state == HOIST__SLOT_FETCHING && staging->n_fetching != 0);
	hoist__list_remove(&slot->node);
	staging->n_fetching--;
	if (staging->asked_fetch == slot)
		staging->asked_fetch = NULL;
	slot->state = HOIST__SLOT_FULL;
	HOIST__ASSERT(hoist__staging_adds_up(staging));
	*ret = slot;
	return 1;
}
