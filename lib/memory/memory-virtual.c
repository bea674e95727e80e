/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-virtual.c - VIRTUAL: takes growing blocks of the driver's virtual memory.
 * The contract is in lib/memory/memory.h and lib/memory/virtual-block.h.
 *
 * The driver does not order these calls by streams, so the functions here wait for the streams that
 * use a block. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "alloc/books.h"
#include "base/checked.h"
#include "base/error.h"
#include "device/vmm.h"
#include "hoist/memory-driver.h"
#include "lib/core/options.h"
#include "lib/device/device.h"
#include "lib/device/stream.h"
#include "lib/memory/memory.h"
#include "lib/memory/snapshot.h"
#include "lib/memory/virtual-block.h"

static struct hoist__virtual *virtual_of(hoist_memory *memory)
{
	return (struct hoist__virtual *)memory;
}

static struct hoist__virtual_block *block_of(struct hoist__book *book)
{
	return (struct hoist__virtual_block *)(void *)book;
}

/* --- making --- */

static int check_peer(const hoist_memory *memory, hoist_device *peer)
{
	int can = 0;
	if (peer == NULL || peer == memory->device)
		return hoist__fail(-EINVAL, "hoist_virtual_options: a peer is %s",
				   peer == NULL ? "NULL" : "the resource's own device");
	int err = hoist_device_can_access(peer, memory->device, &can);
	if (err < 0 || can)
		return err;
	return hoist__fail(-ENOTSUP, "hoist_virtual_options: %s cannot access memory of %s",
			   hoist_device_spec(peer), hoist_device_spec(memory->device));
}

static int check_options(const hoist_memory *memory, const hoist_virtual_options *o)
{
	int err = 0;
	if (o->self_access < 0 || o->self_access > HOIST_ACCESS_NONE || o->peer_access < 0 ||
	    o->peer_access > HOIST_ACCESS_NONE)
		return hoist__fail(-EINVAL,
				   "hoist_virtual_options: access is %d for the device and "
				   "%d for peers; 0 to 2 are known",
				   o->self_access, o->peer_access);
	if (o->address_align != 0 && !hoist__is_power_of_two(o->address_align))
		return hoist__fail(-EINVAL,
				   "hoist_virtual_options: address_align %zu is no power of "
				   "two",
				   o->address_align);
	if (o->n_peers != 0 && o->peers == NULL)
		return hoist__fail(-EINVAL, "hoist_virtual_options: %zu peers, which are NULL",
				   o->n_peers);
	for (size_t i = 0; err == 0 && i < o->n_peers; i++)
		err = check_peer(memory, o->peers[i]);
	return err;
}

static int copy_peers(struct hoist__virtual *v)
{
	size_t bytes = v->options.n_peers * sizeof v->peers[0];
	if (bytes == 0)
		return 0;
	v->peers = malloc(bytes);
	if (v->peers == NULL)
		return hoist__fail_nomem("the peers of a memory resource", bytes);
	memcpy(v->peers, v->options.peers, bytes);
	return 0;
}

static int virtual_init(hoist_memory *memory)
{
	struct hoist__virtual *v = virtual_of(memory);
	int err = hoist__options_in("hoist_virtual_options", memory->options.virtual_options,
				    &v->options, sizeof v->options);
	memory->options.virtual_options = NULL;
	v->props = (struct hoist__vmm_props){.rdma = v->options.rdma != 0,
					     .recommended = v->options.minimum_granularity == 0};
	if (err == 0)
		err = check_options(memory, &v->options);
	if (err == 0)
		err = hoist__vmm_check(memory->dev, &v->props);
	if (err == 0)
		err = copy_peers(v);
	if (err == 0)
		err = hoist__books_init(&v->books);
	if (err < 0)
		free(v->peers);
	return err;
}

static bool virtual_done(hoist_memory *memory)
{
	struct hoist__virtual *v = virtual_of(memory);
	if (memory->generation != hoist__fork_now() || hoist__books_n(&v->books) != 0)
		return false;
	hoist__books_done(&v->books);
	free(v->peers);
	return true;
}

static int virtual_granularity(hoist_memory *memory, size_t *ret)
{
	struct hoist__virtual *v = virtual_of(memory);
	size_t known = atomic_load(&v->xgranularity);
	if (known == 0) {
		int err = hoist__vmm_granularity(memory->dev, &v->props, &known);
		if (err == 0 && (known == 0 || !hoist__is_power_of_two(known)))
			err = hoist__fail(-EREMOTEIO, "the driver's granularity is %zu bytes",
					  known);
		if (err < 0)
			return err;
		atomic_store(&v->xgranularity, known);
	}
	*ret = known;
	return hoist__dev_check(memory->dev);
}

/* Returns: 0; -ENOSPC.  The bound of SIZE_MAX / 4 keeps every sum of these from overflowing. */
static int round_bytes(const struct hoist__virtual *v, size_t bytes, size_t granularity,
		       size_t *ret)
{
	if (bytes > SIZE_MAX / 4 || v->options.reserve_bytes > SIZE_MAX / 4)
		return hoist__fail(-ENOSPC, "a block of %zu bytes exceeds every address space",
				   bytes > v->options.reserve_bytes ? bytes
								    : v->options.reserve_bytes);
	*ret = (size_t)hoist__round_up(bytes, granularity);
	return 0;
}

static size_t align_of(const struct hoist__virtual *v, size_t align)
{
	size_t most = atomic_load(&v->xgranularity);
	most = (size_t)hoist__max_u64(most, v->options.address_align);
	return (size_t)hoist__max_u64(most, align);
}

/* The driver maps whole granules, and so the block has up to a granule more than @bytes. */
static int virtual_alloc(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
			 uintptr_t *ret)
{
	struct hoist__virtual *v = virtual_of(memory);
	size_t granularity;
	size_t total = 0;
	(void)stream; /* the block is mapped at once, and no stream used it before */
	int err = virtual_granularity(memory, &granularity);
	if (err == 0)
		err = round_bytes(v, bytes, granularity, &total);
	if (err < 0)
		return err;
	struct hoist__virtual_block *b = calloc(1, sizeof *b);
	if (b == NULL)
		return hoist__fail_nomem("the description of a block", sizeof *b);
	b->book.bytes = bytes;
	err = hoist__virtual_build(v, b, NULL, total, align_of(v, align), v->options.address_hint);
	if (err == 0 && hoist__books_add(&v->books, &b->book, b->book.raw) < 0)
		err = hoist__fail(-EREMOTEIO, "the driver gave %#zx, which is in use",
				  (size_t)b->book.raw);
	if (err < 0) {
		struct hoist__failure cause;
		hoist__failure_keep(&cause);
		hoist__virtual_shrink(v, b, 0, 0, 0);
		hoist__virtual_drop_arrays(b);
		free(b);
		return hoist__fail_again(err, &cause);
	}
	*ret = b->book.raw;
	return 0;
}

/* --- the streams that use a block --- */

static int fail_capture(void)
{
	return hoist__fail(-EAGAIN, "a stream that uses the block captures a graph, which would run "
				    "with an address that is gone, or its driver does not say; wait "
				    "until the capture has ended");
}

static int refuse_capture(struct hoist__dev_stream *stream)
{
	if (hoist__dev_stream_forbids_wait(stream))
		return fail_capture();
	return 0;
}

/* Returns: 0, also if work failed: failed work does not run any more; -EAGAIN if a wait was refused:
 * a stream began to capture after it was marked, and its work may still run. */
static int await_events(struct hoist__dev_event **events, size_t n)
{
	bool refused = false;
	for (size_t i = 0; i < n; i++) {
		int err = hoist__dev_event_synchronize(events[i]);
		refused = refused || err == -ENOTSUP || err == -EBUSY || err == -EAGAIN;
		hoist__dev_event_destroy(events[i]);
	}
	free(events);
	return refused ? fail_capture() : 0;
}

/* Returns: an event behind the work that @stream has now; NULL if no event can be had: then the
 * stream has been waited for.
 */
static struct hoist__dev_event *mark(struct hoist__dev_stream *stream)
{
	struct hoist__dev_event *event = NULL;
	if (hoist__dev_event_create(hoist__dev_stream_dev(stream), 0, &event) == 0 &&
	    hoist__dev_event_record(event, stream) == 0)
		return event;
	hoist__dev_event_destroy(event);
	(void)hoist__dev_stream_await(stream);
	return NULL;
}

static int mark_users(const struct hoist__book *book, struct hoist__dev_event ***ret, size_t *n)
{
	int err = 0;
	for (size_t i = 0; err == 0 && i < book->n_users; i++)
		err = refuse_capture(book->users[i]);
	if (err < 0 || book->n_users == 0)
		return err;
	struct hoist__dev_event **events = calloc(book->n_users, sizeof *events);
	for (size_t i = 0; i < book->n_users; i++)
		if (events == NULL)
			(void)hoist__dev_stream_await(book->users[i]);
		else if ((events[*n] = mark(book->users[i])) != NULL)
			++*n;
	*ret = events;
	return 0;
}

/* Takes the block at @address, which is not live until it is put back.  Returns: NULL and *err if
 * there is none. */
static struct hoist__book *take(struct hoist__virtual *v, uintptr_t address, int *err)
{
	struct hoist__book *book = hoist__books_take(&v->books, address);
	*err = book == NULL ? hoist__books_refuse(&v->books, address) : 0;
	return book;
}

/* Waits until no stream uses the block.  The streams report their own failures: failed work does
 * not run any more.  The lock keeps a stream while it is marked.  The stream may end while its
 * event is waited for. */
static int await_users(struct hoist__virtual *v, uintptr_t address, struct hoist__dev_stream *also)
{
	struct hoist__dev_event **events = NULL;
	size_t n = 0;
	int err = also != NULL ? refuse_capture(also) : 0;
	if (err == 0 && atomic_load(&v->books.n_used) != 0) {
		pthread_mutex_lock(&v->books.users_lock);
		struct hoist__book *book = take(v, address, &err);
		if (book != NULL) {
			err = mark_users(book, &events, &n);
			hoist__books_put_back(&v->books, book);
		}
		pthread_mutex_unlock(&v->books.users_lock);
	}
	if (err == 0 && also != NULL)
		(void)hoist__dev_stream_await(also);
	int refused = await_events(events, n);
	return err < 0 ? err : refused;
}

static int virtual_use(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	int err = hoist__dev_check(memory->dev);
	return err < 0 ? err
		       : hoist__books_use(&virtual_of(memory)->books, address,
					  hoist__stream_dev_stream(stream));
}

static void virtual_forget_stream(hoist_memory *memory, struct hoist__dev_stream *stream)
{
	if (memory->generation == hoist__fork_now())
		hoist__books_forget(&virtual_of(memory)->books, stream);
}

/* --- growing and freeing live blocks --- */

static int grow_taken(struct hoist__virtual *v, struct hoist__virtual_block *b, size_t bytes,
		      bool moves)
{
	size_t granularity = atomic_load(&v->xgranularity);
	size_t total = 0;
	int err = round_bytes(v, bytes, granularity, &total);
	if (err == 0)
		err = moves && b->book.allocated < total
			      ? hoist__virtual_move(v, b, total, align_of(v, 0))
			      : hoist__virtual_extend(v, b, total, granularity);
	if (err == 0)
		b->book.bytes = (size_t)hoist__max_u64(b->book.bytes, bytes);
	return err;
}

/* The lock keeps streams that use the block from ending while it is taken out: such a stream would
 * stay in its users. */
static int grow(struct hoist__virtual *v, uintptr_t address, size_t bytes, bool moves,
		uintptr_t *ret)
{
	int err;
	pthread_mutex_lock(&v->books.users_lock);
	struct hoist__book *book = take(v, address, &err);
	if (book != NULL) {
		err = grow_taken(v, block_of(book), bytes, moves);
		if (err == 0)
			*ret = book->raw;
		hoist__books_put_back(&v->books, book);
	}
	pthread_mutex_unlock(&v->books.users_lock);
	return err;
}

static int virtual_grow(hoist_memory *memory, uintptr_t address, size_t bytes, uintptr_t *ret)
{
	struct hoist__virtual *v = virtual_of(memory);
	int err = hoist__dev_check(memory->dev);
	if (err == 0)
		err = grow(v, address, bytes, false, ret);
	if (err != -EEXIST)
		return err;
	err = await_users(v, address, NULL);
	return err < 0 ? err : grow(v, address, bytes, true, ret);
}

static int virtual_free(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	struct hoist__virtual *v = virtual_of(memory);
	struct hoist__book *book = NULL;
	int err = hoist__dev_check(memory->dev);
	if (err == 0)
		err = await_users(v, address,
				  stream != NULL ? hoist__stream_dev_stream(stream) : NULL);
	if (err == 0)
		book = take(v, address, &err);
	if (err < 0)
		return err;
	hoist__virtual_shrink(v, block_of(book), 0, 0, 0);
	hoist__virtual_drop_arrays(block_of(book));
	hoist__book_destroy(book);
	return 0;
}

/* --- statistics --- */

static int virtual_block_of(hoist_memory *memory, uintptr_t address, uintptr_t *ret)
{
	int err = hoist__dev_check(memory->dev);
	return err < 0 ? err : hoist__books_around(&virtual_of(memory)->books, address, ret);
}

static int virtual_statistics(hoist_memory *memory, hoist_memory_statistics *ret)
{
	int err = hoist__dev_check(memory->dev);
	if (err == 0)
		hoist__books_statistics(&virtual_of(memory)->books, ret);
	return err;
}

static int virtual_reset_peaks(hoist_memory *memory)
{
	int err = hoist__dev_check(memory->dev);
	if (err == 0)
		hoist__books_reset_peaks(&virtual_of(memory)->books);
	return err;
}

static int virtual_collect(hoist_memory *memory, struct hoist__snapshot *snapshot)
{
	int err = hoist__dev_check(memory->dev);
	return err < 0 ? err : hoist__snapshot_books(snapshot, &virtual_of(memory)->books);
}

const struct hoist__memory_ops hoist__memory_virtual_ops = {
	.bytes = sizeof(struct hoist__virtual),
	.init = virtual_init,
	.done = virtual_done,
	.alloc = virtual_alloc,
	.free = virtual_free,
	.use = virtual_use,
	.grow = virtual_grow,
	.granularity = virtual_granularity,
	.block_of = virtual_block_of,
	.statistics = virtual_statistics,
	.reset_peaks = virtual_reset_peaks,
	.collect = virtual_collect,
	.forget_stream = virtual_forget_stream,
};
