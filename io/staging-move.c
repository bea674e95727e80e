/* SPDX-License-Identifier: MIT */
/* Queues copies between slots and devices, and finds their ends.
 * The contract is in io/staging.h. */
#include "config.h"

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "io/staging-private.h"

static struct hoist__ring_slot *ring_slot_of(struct hoist__slot *slot)
{
	return HOIST__CONTAINER_OF(slot, struct hoist__ring_slot, slot);
}

static struct hoist__dev_event *event_of(const struct hoist__staging *ring,
					 const struct hoist__slot *slot, unsigned stream)
{
	return ring->events[(size_t)slot->index * ring->n_streams + stream];
}

static int fail_failed(const struct hoist__staging *ring)
{
	return hoist__fail(ring->failed, "the staging ring's device has failed");
}

static int keep_failure(struct hoist__staging *ring, int err, const char *doing)
{
	ring->failed = err;
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
static void ask_to_tell(struct hoist__staging *ring, unsigned stream,
			struct hoist__dev_event *event)
{
	struct hoist__dev_stream *telling = ring->telling[stream];
	HOIST__ASSERT(ring->teller != NULL && telling != NULL);
	atomic_fetch_add_explicit(&ring->teller->refs, 1, memory_order_relaxed);
	if (hoist__dev_stream_wait_event(telling, event) == 0 &&
	    hoist__dev_stream_call(telling, tell, ring->teller) == 0)
		return;
	hoist__teller_unref(ring->teller);
	ring->tells = false;
}

/* --- queuing --- */

static int queue_piece(struct hoist__dev_stream *stream, enum hoist__copy kind,
		       const struct hoist__piece *piece, uintptr_t host)
{
	bool to_device = kind == HOIST__COPY_HOST_TO_DEVICE;
	uintptr_t dst = to_device ? piece->device_address : host;
	uintptr_t src = to_device ? host : piece->device_address;
	if (piece->rows <= 1)
		return hoist__copy_async(stream, kind, dst, src, piece->bytes);
	struct hoist__box box = {
		.dst = dst,
		.src = src,
		.width = piece->bytes,
		.rows = piece->rows,
		.planes = 1,
		.dst_pitch = to_device ? piece->device_stride : piece->slot_stride,
		.src_pitch = to_device ? piece->slot_stride : piece->device_stride,
	};
	box.dst_plane = box.rows * box.dst_pitch;
	box.src_plane = box.rows * box.src_pitch;
	return hoist__copy_box_async(stream, kind, &box);
}

static size_t end_in_slot(const struct hoist__piece *piece)
{
	size_t rows = piece->rows > 1 ? piece->rows - 1 : 0;
	return piece->slot_offset + rows * piece->slot_stride + piece->bytes;
}

/* Queues copies up to the first failure, which is returned; *n_queued pieces have been queued. */
static int queue_pieces(struct hoist__staging *ring, struct hoist__slot *slot, unsigned stream,
			enum hoist__copy kind, const struct hoist__piece *pieces, size_t n_pieces,
			size_t *n_queued)
{
	uintptr_t base = (uintptr_t)ring->address + slot->index * ring->slot_bytes;
	int err = 0;
	assert(stream < ring->n_streams);
	HOIST__ASSERT(slot == &ring->slots[slot->index].slot);
	for (*n_queued = 0; *n_queued < n_pieces; ++*n_queued) {
		const struct hoist__piece *piece = &pieces[*n_queued];
		assert(end_in_slot(piece) <= ring->slot_bytes);
		err = queue_piece(ring->streams[stream], kind, piece, base + piece->slot_offset);
		if (err != 0)
			break;
	}
	return err;
}

/* Records an event behind the copies that were queued for @slot on @stream.  After @err, the
 * failure of a copy, none is recorded and the stream is marked bare. */
static int mark(struct hoist__staging *ring, struct hoist__slot *slot, unsigned stream, int err)
{
	struct hoist__ring_slot *own = ring_slot_of(slot);
	HOIST__ASSERT(slot->state == HOIST__SLOT_COPYING || slot->state == HOIST__SLOT_FETCHING);
	HOIST__ASSERT(stream < ring->n_streams);
	own->queued |= 1u << stream;
	if (err == 0)
		err = hoist__dev_event_record(event_of(ring, slot, stream), ring->streams[stream]);
	if (err != 0)
		own->bare |= 1u << stream;
	else if (ring->tells)
		ask_to_tell(ring, stream, event_of(ring, slot, stream));
	return err;
}

int hoist__slot_copy(struct hoist__staging *ring, struct hoist__slot *slot, unsigned stream,
		     const struct hoist__piece *pieces, size_t n_pieces)
{
	assert(slot->state == HOIST__SLOT_FULL || slot->state == HOIST__SLOT_COPYING);
	if (ring->failed != 0)
		return fail_failed(ring);
	size_t n_queued;
	int err = queue_pieces(ring, slot, stream, HOIST__COPY_HOST_TO_DEVICE, pieces, n_pieces,
			       &n_queued);
	if (err != 0 && n_queued == 0)
		return err;
	if (slot->state == HOIST__SLOT_FULL) {
		HOIST__ASSERT(ring_slot_of(slot)->queued == 0 && hoist__list_empty(&slot->node));
		slot->state = HOIST__SLOT_COPYING;
		hoist__list_push_back(&ring->copying, &slot->node);
		ring->n_copying++;
	}
	err = mark(ring, slot, stream, err);
	HOIST__ASSERT(hoist__staging_adds_up(ring));
	return err;
}

int hoist__slot_fetch(struct hoist__staging *ring, struct hoist__slot *slot, unsigned stream,
		      const struct hoist__piece *pieces, size_t n_pieces)
{
	assert(slot->state == HOIST__SLOT_READING || slot->state == HOIST__SLOT_FETCHING);
	if (ring->failed != 0)
		return fail_failed(ring);
	size_t n_queued;
	int err = queue_pieces(ring, slot, stream, HOIST__COPY_DEVICE_TO_HOST, pieces, n_pieces,
			       &n_queued);
	if (err != 0 && n_queued == 0)
		return err;
	if (slot->state == HOIST__SLOT_READING) {
		HOIST__ASSERT(ring_slot_of(slot)->queued == 0 && hoist__list_empty(&slot->node));
		slot->state = HOIST__SLOT_FETCHING;
		hoist__list_push_back(&ring->fetching, &slot->node);
		ring->n_fetching++;
	}
	err = mark(ring, slot, stream, err);
	HOIST__ASSERT(hoist__staging_adds_up(ring));
	return err;
}

/* --- ends --- */

/* Returns: 0: all copies of the slot have ended; -EAGAIN: not yet; a device's error. */
static int query(struct hoist__staging *ring, struct hoist__slot *slot)
{
	struct hoist__ring_slot *own = ring_slot_of(slot);
	for (unsigned s = 0; s < ring->n_streams; s++) {
		if ((own->queued & 1u << s) == 0)
			continue;
		HOIST__ASSERT(slot->state == HOIST__SLOT_COPYING ||
			      slot->state == HOIST__SLOT_FETCHING);
		int err = (own->bare & 1u << s) != 0
				  ? hoist__dev_stream_synchronize(ring->streams[s])
				  : hoist__dev_event_query(event_of(ring, slot, s));
		if (err != 0)
			return err;
		own->queued &= ~(1u << s);
		own->bare &= ~(1u << s);
	}
	return 0;
}

int hoist__slot_finish(struct hoist__staging *ring, struct hoist__slot *slot)
{
	struct hoist__ring_slot *own = ring_slot_of(slot);
	int first = 0;
	for (unsigned s = 0; s < ring->n_streams; s++) {
		if ((own->queued & 1u << s) == 0)
			continue;
		int err = -EINVAL;
		if ((own->bare & 1u << s) == 0)
			err = hoist__dev_event_synchronize(event_of(ring, slot, s));
		if (err != 0)
			err = hoist__dev_stream_synchronize(ring->streams[s]);
		if (first == 0)
			first = err;
	}
	own->queued = own->bare = 0;
	return first;
}

int hoist__staging_reclaim(struct hoist__staging *ring)
{
	int n = 0;
	/* Streams run in order: copies behind an unfinished one have not finished either. */
	while (ring->failed == 0 && !hoist__list_empty(&ring->copying)) {
		struct hoist__slot *slot = hoist__slot_of(ring->copying.next);
		int err = query(ring, slot);
		if (err == -EAGAIN)
			break;
		if (err != 0)
			return keep_failure(ring, err, "copying to the device");
		HOIST__ASSERT(slot->state == HOIST__SLOT_COPYING && ring->n_copying != 0);
		hoist__list_remove(&slot->node);
		ring->n_copying--;
		ring->copied += slot->useful;
		hoist__slot_make_free(ring, slot);
		n++;
	}
	HOIST__ASSERT(hoist__staging_adds_up(ring));
	return ring->failed != 0 ? fail_failed(ring) : n;
}

uint64_t hoist__staging_take_copied(struct hoist__staging *ring)
{
	uint64_t bytes = ring->copied;
	ring->copied = 0;
	return bytes;
}

int hoist__staging_wait(struct hoist__staging *ring)
{
	if (hoist__list_empty(&ring->copying))
		return 0;
	int err = hoist__slot_finish(ring, hoist__slot_of(ring->copying.next));
	if (err != 0 && ring->failed == 0)
		return keep_failure(ring, err, "copying to the device");
	return hoist__staging_reclaim(ring);
}

int hoist__staging_fetched(struct hoist__staging *ring, struct hoist__slot **ret)
{
	if (ring->failed != 0)
		return fail_failed(ring);
	if (hoist__list_empty(&ring->fetching))
		return 0;
	struct hoist__slot *slot = hoist__slot_of(ring->fetching.next);
	int err = query(ring, slot);
	if (err == -EAGAIN)
		return 0;
	if (err != 0)
		return keep_failure(ring, err, "copying from the device");
	HOIST__ASSERT(slot->state == HOIST__SLOT_FETCHING && ring->n_fetching != 0);
	hoist__list_remove(&slot->node);
	ring->n_fetching--;
	slot->state = HOIST__SLOT_FULL;
	HOIST__ASSERT(hoist__staging_adds_up(ring));
	*ret = slot;
	return 1;
}
