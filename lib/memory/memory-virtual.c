/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-virtual.c - VIRTUAL: blocks of the driver's virtual memory, that grow.
 *
 * A block is a chain of pieces, mapped one behind the other from its start; the pieces lie in one
 * or more reservations of addresses, of which each begins where the one before ends:
 *
 *   ranges   |------------- reserved -------------|---- reserved ----|
 *   pieces   |-- memory --|----- memory -----|     no piece lies in two ranges
 *
 * Growing adds pieces to the last range, and a range where that is full.  Where the addresses
 * behind are another's, the block moves: all its memory is mapped a second time, at the new
 * addresses, and only when nothing can fail any more the old mappings go.  So a failure leaves the
 * block as it was.
 *
 * The driver does not order any of this by streams: the caller waits for those that use a block. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "device/vmm.h"
#include "lib/memory/books.h"
#include "lib/memory/memory.h"
#include "lib/memory/snapshot.h"

struct virtual_memory {
	hoist_memory memory;
	struct hoist__books books;
	hoist_virtual_options options;
	hoist_device **peers; /* what options.peers points to */
	struct hoist__vmm_props props;
	_Atomic size_t xgranularity; /* 0: not asked for yet */
};

struct range {
	uintptr_t address;
	size_t bytes;
};

struct piece {
	uint64_t handle;
	size_t bytes;
};

/* book.raw is where it starts, book.allocated what its pieces are in all. */
struct block {
	struct hoist__book book; /* first: the books free it */
	struct range *ranges;
	size_t n_ranges;
	struct piece *pieces;
	size_t n_pieces;
};

static struct virtual_memory *virtual_of(hoist_memory *memory)
{
	return (struct virtual_memory *)memory;
}

static struct block *block_of(struct hoist__book *book)
{
	return (struct block *)(void *)book;
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

static int copy_peers(struct virtual_memory *v)
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
	struct virtual_memory *v = virtual_of(memory);
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
	struct virtual_memory *v = virtual_of(memory);
	if (memory->generation != hoist__fork_now() || hoist__books_n(&v->books) != 0)
		return false;
	hoist__books_done(&v->books);
	free(v->peers);
	return true;
}

static int virtual_granularity(hoist_memory *memory, size_t *ret)
{
	struct virtual_memory *v = virtual_of(memory);
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

/* --- pieces and ranges --- */

/* What cannot be given back is lost; there is nobody to tell. */
static void note(int err)
{
	if (err < 0)
		hoist__log(alloc, "virtual memory is not given back: %s", hoist__error_text());
}

static int room_for(void **array, size_t n, size_t bytes)
{
	void *larger = realloc(*array, (n + 1) * bytes);
	if (larger == NULL)
		return hoist__fail_nomem("what a block is made of", (n + 1) * bytes);
	*array = larger;
	return 0;
}

static int add_range(struct virtual_memory *v, struct block *b, size_t bytes, size_t align,
		     uintptr_t hint)
{
	struct range range = {.bytes = bytes};
	int err = room_for((void **)&b->ranges, b->n_ranges, sizeof b->ranges[0]);
	if (err == 0)
		err = hoist__vmm_reserve(v->memory.dev, bytes, align, hint, &range.address);
	if (err == 0)
		b->ranges[b->n_ranges++] = range;
	return err;
}

static void drop_range(struct virtual_memory *v, struct block *b)
{
	const struct range *last = &b->ranges[--b->n_ranges];
	note(hoist__vmm_unreserve(v->memory.dev, last->address, last->bytes));
}

static enum hoist__vmm_access access_of(int access)
{
	return access == HOIST_ACCESS_READ_WRITE ? HOIST__VMM_READ_WRITE
	       : access == HOIST_ACCESS_READ	 ? HOIST__VMM_READ
						 : HOIST__VMM_NONE;
}

/* Who may access what was mapped; nobody may at first. */
static int grant(struct virtual_memory *v, uintptr_t address, size_t bytes)
{
	struct hoist__dev *dev = v->memory.dev;
	enum hoist__vmm_access own = access_of(v->options.self_access);
	enum hoist__vmm_access others = access_of(v->options.peer_access);
	int err = 0;
	if (own != HOIST__VMM_NONE)
		err = hoist__vmm_set_access(dev, address, bytes, dev, own);
	for (size_t i = 0; err == 0 && others != HOIST__VMM_NONE && i < v->options.n_peers; i++)
		err = hoist__vmm_set_access(dev, address, bytes, hoist__device_dev(v->peers[i]),
					    others);
	return err;
}

/* Shows @piece behind the others of @b; its bytes are counted, its handle stays the caller's if it
 * fails. */
static int show(struct virtual_memory *v, struct block *b, const struct piece *piece)
{
	struct hoist__failure cause;
	uintptr_t address = b->book.raw + b->book.allocated;
	int err = room_for((void **)&b->pieces, b->n_pieces, sizeof b->pieces[0]);
	if (err == 0)
		err = hoist__vmm_map(v->memory.dev, address, piece->bytes, piece->handle);
	if (err < 0)
		return err;
	err = grant(v, address, piece->bytes);
	if (err < 0) {
		hoist__failure_keep(&cause);
		note(hoist__vmm_unmap(v->memory.dev, address, piece->bytes));
		return hoist__fail_again(err, &cause);
	}
	b->pieces[b->n_pieces++] = *piece;
	b->book.allocated += piece->bytes;
	return 0;
}

static int add_piece(struct virtual_memory *v, struct block *b, size_t bytes)
{
	struct hoist__failure cause;
	struct piece piece = {.bytes = bytes};
	int err = hoist__vmm_create(v->memory.dev, &v->props, bytes, &piece.handle);
	if (err < 0)
		return err;
	err = show(v, b, &piece);
	if (err < 0) {
		hoist__failure_keep(&cause);
		note(hoist__vmm_release(v->memory.dev, piece.handle));
		return hoist__fail_again(err, &cause);
	}
	return 0;
}

/* The last piece; its memory too, unless it is @shown elsewhere. */
static void drop_piece(struct virtual_memory *v, struct block *b, bool shown)
{
	const struct piece *last = &b->pieces[--b->n_pieces];
	b->book.allocated -= last->bytes;
	note(hoist__vmm_unmap(v->memory.dev, b->book.raw + b->book.allocated, last->bytes));
	if (!shown)
		note(hoist__vmm_release(v->memory.dev, last->handle));
}

/* Down to so many pieces and ranges, of which the first @n_shown are shown elsewhere. */
static void shrink(struct virtual_memory *v, struct block *b, size_t n_pieces, size_t n_ranges,
		   size_t n_shown)
{
	while (b->n_pieces > n_pieces)
		drop_piece(v, b, b->n_pieces <= n_shown);
	while (b->n_ranges > n_ranges)
		drop_range(v, b);
}

static void drop_arrays(struct block *b)
{
	free(b->pieces);
	free(b->ranges);
}

/* --- growing --- */

/* The addresses behind the last range, if they can be had; -EEXIST, without a text, if not. */
static int reserve_behind(struct virtual_memory *v, struct block *b, size_t bytes, size_t align)
{
	const struct range *last = &b->ranges[b->n_ranges - 1];
	uintptr_t end = last->address + last->bytes;
	int err = add_range(v, b, bytes, align, end);
	if (err < 0 || b->ranges[b->n_ranges - 1].address == end)
		return err == -ENOSPC ? -EEXIST : err;
	drop_range(v, b);
	return -EEXIST;
}

/* Adds pieces until there are @total bytes.  A failure, of which -EEXIST says that the addresses
 * are another's, leaves it as it was. */
static int extend(struct virtual_memory *v, struct block *b, size_t total, size_t granularity)
{
	struct hoist__failure cause;
	size_t n_pieces = b->n_pieces;
	size_t n_ranges = b->n_ranges;
	int err = 0;
	while (err == 0 && b->book.allocated < total) {
		const struct range *last = &b->ranges[b->n_ranges - 1];
		size_t missing = total - b->book.allocated;
		size_t room = last->address + last->bytes - (b->book.raw + b->book.allocated);
		err = room == 0 ? reserve_behind(v, b, missing, granularity)
				: add_piece(v, b, room < missing ? room : missing);
	}
	if (err < 0) {
		hoist__failure_keep(&cause);
		shrink(v, b, n_pieces, n_ranges, 0);
		return err == -EEXIST ? err : hoist__fail_again(err, &cause);
	}
	return 0;
}

/* Addresses for @total bytes, and pieces that show the memory of @from, if any, then new ones. */
static int build(struct virtual_memory *v, struct block *b, const struct block *from, size_t total,
		 size_t align, uintptr_t hint)
{
	size_t granularity = atomic_load(&v->xgranularity);
	size_t n_shown = from != NULL ? from->n_pieces : 0;
	size_t reserved = (size_t)hoist__round_up(v->options.reserve_bytes, granularity);
	int err = add_range(v, b, reserved > total ? reserved : total, align, hint);
	if (err < 0)
		return err;
	b->book.raw = b->ranges[0].address;
	for (size_t i = 0; err == 0 && i < n_shown; i++)
		err = show(v, b, &from->pieces[i]);
	if (err == 0)
		err = extend(v, b, total, granularity);
	if (err < 0) {
		struct hoist__failure cause;
		hoist__failure_keep(&cause);
		shrink(v, b, 0, 0, n_shown);
		return hoist__fail_again(err, &cause);
	}
	return 0;
}

/* 0, or -ENOSPC: no sum of these is beyond what a number holds. */
static int round_bytes(const struct virtual_memory *v, size_t bytes, size_t granularity,
		       size_t *ret)
{
	if (bytes > SIZE_MAX / 4 || v->options.reserve_bytes > SIZE_MAX / 4)
		return hoist__fail(-ENOSPC, "a block of %zu bytes exceeds every address space",
				   bytes > v->options.reserve_bytes ? bytes
								    : v->options.reserve_bytes);
	*ret = (size_t)hoist__round_up(bytes, granularity);
	return 0;
}

static size_t align_of(const struct virtual_memory *v, size_t align)
{
	size_t most = atomic_load(&v->xgranularity);
	most = (size_t)hoist__max_u64(most, v->options.address_align);
	return (size_t)hoist__max_u64(most, align);
}

static int virtual_alloc(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
			 uintptr_t *ret)
{
	struct virtual_memory *v = virtual_of(memory);
	size_t granularity;
	size_t total = 0;
	(void)stream; /* it is there at once, and was nobody's */
	int err = virtual_granularity(memory, &granularity);
	if (err == 0)
		err = round_bytes(v, bytes, granularity, &total);
	if (err < 0)
		return err;
	struct block *b = calloc(1, sizeof *b);
	if (b == NULL)
		return hoist__fail_nomem("what is noted of a block", sizeof *b);
	b->book.bytes = bytes;
	err = build(v, b, NULL, total, align_of(v, align), v->options.address_hint);
	if (err == 0 && hoist__books_add(&v->books, &b->book, b->book.raw) < 0)
		err = hoist__fail(-EREMOTEIO, "the driver gave %#zx, which is in use",
				  (size_t)b->book.raw);
	if (err < 0) {
		struct hoist__failure cause;
		hoist__failure_keep(&cause);
		shrink(v, b, 0, 0, 0);
		drop_arrays(b);
		free(b);
		return hoist__fail_again(err, &cause);
	}
	*ret = b->book.raw;
	return 0;
}

/* --- who uses a block --- */

static int refuse_capture(struct hoist__dev_stream *stream)
{
	bool capturing = false;
	if (hoist__stream_capturing(stream, &capturing) == 0 && capturing)
		return hoist__fail(-EAGAIN, "a stream that uses the block captures a graph, which "
					    "would run with an address that is gone; wait until it "
					    "has ended");
	return 0;
}

/* What failed on them is theirs to report: nothing of it runs any more. */
static int await_users(const struct hoist__book *book, struct hoist__dev_stream *also)
{
	int err = also != NULL ? refuse_capture(also) : 0;
	for (size_t i = 0; err == 0 && i < book->n_users; i++)
		err = refuse_capture(book->users[i]);
	if (err < 0)
		return err;
	if (also != NULL)
		(void)hoist__stream_await(also);
	for (size_t i = 0; i < book->n_users; i++)
		(void)hoist__stream_await(book->users[i]);
	return 0;
}

/* Streams that use a block stay while they are waited for. */
static bool lock_users(struct virtual_memory *v)
{
	bool used = atomic_load(&v->books.n_used) != 0;
	if (used)
		pthread_mutex_lock(&v->books.users_lock);
	return used;
}

static void unlock_users(struct virtual_memory *v, bool used)
{
	if (used)
		pthread_mutex_unlock(&v->books.users_lock);
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

/* --- growing and freeing what is live --- */

/* Elsewhere, with the same memory. */
static int move(struct virtual_memory *v, struct block *b, size_t total)
{
	struct block there = {.book = {.raw = 0}};
	int err = await_users(&b->book, NULL);
	if (err == 0)
		err = build(v, &there, b, total, align_of(v, 0), 0);
	if (err < 0) {
		drop_arrays(&there);
		return err;
	}
	shrink(v, b, 0, 0, b->n_pieces);
	drop_arrays(b);
	b->ranges = there.ranges;
	b->n_ranges = there.n_ranges;
	b->pieces = there.pieces;
	b->n_pieces = there.n_pieces;
	b->book.raw = there.book.raw;
	b->book.allocated = there.book.allocated;
	b->book.node.key = b->book.raw;
	return 0;
}

static int grow_taken(struct virtual_memory *v, struct block *b, size_t bytes)
{
	size_t granularity = atomic_load(&v->xgranularity);
	size_t total = 0;
	int err = round_bytes(v, bytes, granularity, &total);
	if (err == 0)
		err = extend(v, b, total, granularity);
	if (err == -EEXIST)
		err = move(v, b, total);
	if (err == 0)
		b->book.bytes = (size_t)hoist__max_u64(b->book.bytes, bytes);
	return err;
}

static int virtual_grow(hoist_memory *memory, uintptr_t address, size_t bytes, uintptr_t *ret)
{
	struct virtual_memory *v = virtual_of(memory);
	int err = hoist__dev_check(memory->dev);
	if (err < 0)
		return err;
	bool used = lock_users(v);
	struct hoist__book *book = hoist__books_take(&v->books, address);
	if (book == NULL) {
		err = hoist__books_refuse(&v->books, address);
	} else {
		err = grow_taken(v, block_of(book), bytes);
		if (err == 0)
			*ret = book->raw;
		hoist__books_put_back(&v->books, book);
	}
	unlock_users(v, used);
	return err;
}

static int virtual_free(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	struct virtual_memory *v = virtual_of(memory);
	int err = hoist__dev_check(memory->dev);
	if (err < 0)
		return err;
	bool used = lock_users(v);
	struct hoist__book *book = hoist__books_take(&v->books, address);
	if (book == NULL) {
		err = hoist__books_refuse(&v->books, address);
	} else {
		err = await_users(book, stream != NULL ? hoist__stream_dev_stream(stream) : NULL);
		if (err < 0)
			hoist__books_put_back(&v->books, book);
	}
	unlock_users(v, used);
	if (err < 0)
		return err;
	shrink(v, block_of(book), 0, 0, 0);
	drop_arrays(block_of(book));
	hoist__book_destroy(book);
	return 0;
}

/* --- what is known --- */

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
	.bytes = sizeof(struct virtual_memory),
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
