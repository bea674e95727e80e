/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-driver.c - DRIVER_POOL: takes memory from the driver's stream-ordered pools.
 * The contract is in lib/memory/memory.h and lib/memory/memory-driver.h.
 *
 * The driver orders everything by streams.  A call without a stream uses a stream of the resource's
 * own: an allocation waits for this stream, so that the block can be used anywhere, and a free
 * makes this stream wait for the streams that use the block. */
#include "config.h"

#include <unistd.h>

#include "alloc/books.h"
#include "base/checked.h"
#include "base/error.h"
#include "device/ipc.h"
#include "lib/device/stream.h"
#include "lib/memory/memory-driver.h"
#include "lib/memory/snapshot.h"

static int driver_init(hoist_memory *memory)
{
	struct hoist__driver_memory *driver = hoist__driver_of(memory);
	driver->fd = -1;
	if ((memory->options.flags & HOIST_MEMORY_SHAREABLE) != 0) {
		int err = hoist__ipc_name_make(&driver->name);
		if (err < 0)
			return err;
	}
	return hoist__books_init(&driver->books);
}

static bool driver_done(hoist_memory *memory)
{
	struct hoist__driver_memory *driver = hoist__driver_of(memory);
	if (memory->generation != hoist__fork_now() || hoist__books_n(&driver->books) != 0)
		return false;
	/* Waits for the work on the stream. */
	hoist__dev_stream_destroy(atomic_load(&driver->xstream));
	hoist__dev_pool_destroy(atomic_load(&driver->xpool));
	if (driver->fd >= 0)
		(void)close(driver->fd);
	hoist__books_done(&driver->books);
	return true;
}

static int make_pool(const hoist_memory *memory, struct hoist__dev_pool **ret)
{
	const hoist_memory_options *o = &memory->options;
	if ((o->flags & HOIST_MEMORY_CURRENT_POOL) != 0)
		return hoist__dev_pool_current(memory->dev, ret);
	return (o->flags & HOIST_MEMORY_SHAREABLE) != 0
		       ? hoist__dev_pool_create_shareable(memory->dev, o->limit_bytes, ret)
		       : hoist__dev_pool_create(memory->dev, o->limit_bytes, ret);
}

int hoist__driver_use_pool(struct hoist__driver_memory *driver, struct hoist__dev_pool **ret)
{
	struct hoist__dev_pool *known = atomic_load(&driver->xpool);
	if (known == NULL) {
		struct hoist__dev_pool *made;
		int err = make_pool(&driver->memory, &made);
		if (err < 0)
			return err;
		if (atomic_compare_exchange_strong(&driver->xpool, &known, made))
			known = made;
		else
			hoist__dev_pool_destroy(made);
	}
	*ret = known;
	return 0;
}

static int use_stream(struct hoist__driver_memory *driver, struct hoist__dev_stream **ret)
{
	struct hoist__dev_stream *known = atomic_load(&driver->xstream);
	if (known == NULL) {
		struct hoist__dev_stream *made;
		int err = hoist__dev_stream_create(driver->memory.dev, &made);
		if (err < 0)
			return err;
		if (atomic_compare_exchange_strong(&driver->xstream, &known, made))
			known = made;
		else
			hoist__dev_stream_destroy(made);
	}
	*ret = known;
	return 0;
}

/* --- blocks --- */

/* Takes a block and enters it in the books.  @stream is the caller's, or ours, which is waited for
 * (@wait). */
static int take(struct hoist__driver_memory *driver, struct hoist__book *book, size_t align,
		struct hoist__dev_stream *stream, bool wait, uintptr_t *ret)
{
	struct hoist__dev_pool *pool;
	int err = hoist__driver_use_pool(driver, &pool);
	if (err == 0)
		err = hoist__dev_pool_alloc(pool, book->allocated, stream, &book->raw);
	if (err < 0)
		return err;
	uintptr_t address = hoist__round_up(book->raw, align);
	if (wait)
		err = hoist__dev_stream_synchronize(stream);
	/* A driver that gives an address twice: the block is not freed, as it has a live owner. */
	if (err == 0 && hoist__books_add(&driver->books, book, address) < 0)
		return hoist__fail(-EREMOTEIO, "the driver gave %#zx, which is in use",
				   (size_t)address);
	if (err < 0) {
		(void)hoist__dev_pool_free(pool, book->raw, stream);
		return err;
	}
	*ret = address;
	return 0;
}

/* The driver aligns blocks to HOIST__DRIVER_ALIGN.  For a larger alignment the block is made
 * larger, and the address lies within. */
static int driver_alloc(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
			uintptr_t *ret)
{
	struct hoist__driver_memory *driver = hoist__driver_of(memory);
	struct hoist__dev_stream *on = stream != NULL ? hoist__stream_dev_stream(stream) : NULL;
	struct hoist__book *book;
	size_t beyond = align > HOIST__DRIVER_ALIGN ? align - HOIST__DRIVER_ALIGN : 0;
	if (bytes > SIZE_MAX / 2)
		return hoist__fail(-ENOSPC, "a block of %zu bytes exceeds every address space",
				   bytes);
	if (memory->info.is_mapped)
		return hoist__fail(-ENOTSUP,
				   "the pool belongs to another process and serves imported "
				   "blocks; allocate from a pool of this process");
	int err = hoist__dev_check(memory->dev);
	if (err == 0 && on == NULL)
		err = use_stream(driver, &on);
	/* A block that a driver gives on a capturing stream belongs to the graph. */
	if (err == 0 && hoist__dev_stream_forbids_wait(on))
		err = hoist__fail(-ENOTSUP, "the stream captures a graph, and nothing is taken "
					    "from a pool meanwhile; take memory of kind GRAPH");
	if (err == 0)
		err = hoist__book_create(bytes, &book);
	if (err < 0)
		return err;
	book->allocated = bytes + beyond;
	err = take(driver, book, align > HOIST__DRIVER_ALIGN ? align : 1, on, stream == NULL, ret);
	if (err < 0)
		hoist__book_destroy(book);
	return err;
}

/* --- freeing --- */

/* Orders later work on @stream behind the work that is queued on @user now. */
static int order(struct hoist__dev *dev, struct hoist__dev_stream *stream,
		 struct hoist__dev_stream *user)
{
	struct hoist__dev_event *event = NULL;
	int err = hoist__dev_event_create(dev, 0, &event);
	if (err == 0)
		err = hoist__dev_event_record(event, user);
	if (err == 0)
		err = hoist__dev_stream_wait_event(stream, event);
	hoist__dev_event_destroy(event);
	/* A wait here is slower, but gives the same order.  Work that failed does not run any
	 * more. */
	if (err < 0 && !hoist__dev_stream_forbids_wait(user))
		err = hoist__dev_stream_await(user);
	return err;
}

/* A driver does not take a block of a pool from a stream that captures. */
static int check_captures(const struct hoist__book *book, struct hoist__dev_stream *stream)
{
	bool capturing = hoist__dev_stream_forbids_wait(stream);
	for (size_t i = 0; i < book->n_users && !capturing; i++)
		capturing =
			book->users[i] != stream && hoist__dev_stream_forbids_wait(book->users[i]);
	if (!capturing)
		return 0;
	return hoist__fail(-EAGAIN, "a stream that uses the block captures a graph, or its driver "
				    "does not say; free the block when the capture has ended");
}

static int give(struct hoist__driver_memory *driver, struct hoist__book *book,
		struct hoist__dev_stream *stream)
{
	for (size_t i = 0; i < book->n_users; i++)
		if (book->users[i] != stream)
			(void)order(driver->memory.dev, stream, book->users[i]);
	return hoist__dev_pool_free(atomic_load(&driver->xpool), book->raw, stream);
}

static int take_and_give(struct hoist__driver_memory *driver, uintptr_t address,
			 struct hoist__dev_stream *stream)
{
	struct hoist__book *book = hoist__books_take(&driver->books, address);
	if (book == NULL)
		return hoist__books_refuse(&driver->books, address);
	int err = check_captures(book, stream);
	if (err < 0) {
		hoist__books_put_back(&driver->books, book);
		return err;
	}
	err = give(driver, book, stream);
	hoist__book_destroy(book);
	return err;
}

static int driver_free(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	struct hoist__driver_memory *driver = hoist__driver_of(memory);
	struct hoist__dev_stream *on = stream != NULL ? hoist__stream_dev_stream(stream) : NULL;
	int err = hoist__dev_check(memory->dev);
	if (err == 0 && on == NULL)
		err = use_stream(driver, &on);
	if (err < 0)
		return err;
	/* The lock keeps streams that use a block from ending while they are waited for. */
	bool used = atomic_load(&driver->books.n_used) != 0;
	if (used)
		pthread_mutex_lock(&driver->books.users_lock);
	err = take_and_give(driver, address, on);
	if (used)
		pthread_mutex_unlock(&driver->books.users_lock);
	return err;
}

static int driver_use(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	int err = hoist__dev_check(memory->dev);
	return err < 0 ? err
		       : hoist__books_use(&hoist__driver_of(memory)->books, address,
					  hoist__stream_dev_stream(stream));
}

static void driver_forget_stream(hoist_memory *memory, struct hoist__dev_stream *stream)
{
	if (memory->generation == hoist__fork_now())
		hoist__books_forget(&hoist__driver_of(memory)->books, stream);
}

static int driver_block_of(hoist_memory *memory, uintptr_t address, uintptr_t *ret)
{
	int err = hoist__dev_check(memory->dev);
	return err < 0 ? err : hoist__books_around(&hoist__driver_of(memory)->books, address, ret);
}

/* --- what the driver keeps --- */

static int driver_trim(hoist_memory *memory, size_t keep_bytes)
{
	int err = hoist__dev_check(memory->dev);
	struct hoist__dev_pool *pool = atomic_load(&hoist__driver_of(memory)->xpool);
	/* The process that made the pool trims it. */
	if (err < 0 || pool == NULL || memory->info.is_mapped)
		return err;
	return hoist__dev_pool_trim(pool, keep_bytes);
}

/* The driver's figure exceeds our books by the bytes that it keeps.  The books are used if the
 * driver does not tell, or tells less. */
static uint64_t attribute_or(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			     uint64_t otherwise)
{
	uint64_t value;
	if (pool == NULL || hoist__dev_pool_get(pool, attribute, &value) < 0)
		return otherwise;
	return hoist__max_u64(value, otherwise);
}

static int driver_statistics(hoist_memory *memory, hoist_memory_statistics *ret)
{
	struct hoist__driver_memory *driver = hoist__driver_of(memory);
	int err = hoist__dev_check(memory->dev);
	if (err < 0)
		return err;
	struct hoist__dev_pool *pool = atomic_load(&driver->xpool);
	hoist__books_statistics(&driver->books, ret);
	ret->reserved_bytes = attribute_or(pool, HOIST__POOL_RESERVED_CURRENT, ret->reserved_bytes);
	ret->reserved_peak = attribute_or(pool, HOIST__POOL_RESERVED_HIGH, ret->reserved_peak);
	return 0;
}

static int driver_reset_peaks(hoist_memory *memory)
{
	struct hoist__driver_memory *driver = hoist__driver_of(memory);
	int err = hoist__dev_check(memory->dev);
	if (err < 0)
		return err;
	hoist__books_reset_peaks(&driver->books);
	struct hoist__dev_pool *pool = atomic_load(&driver->xpool);
	if (pool == NULL || memory->info.is_mapped)
		return 0;
	err = hoist__dev_pool_set(pool, HOIST__POOL_RESERVED_HIGH, 0);
	if (err == 0)
		err = hoist__dev_pool_set(pool, HOIST__POOL_USED_HIGH, 0);
	return err == -ENOTSUP ? 0 : err; /* the driver has no peaks to reset */
}

static int driver_collect(hoist_memory *memory, struct hoist__snapshot *snapshot)
{
	int err = hoist__dev_check(memory->dev);
	return err < 0 ? err : hoist__snapshot_books(snapshot, &hoist__driver_of(memory)->books);
}

const struct hoist__memory_ops hoist__memory_driver_ops = {
	.bytes = sizeof(struct hoist__driver_memory),
	.init = driver_init,
	.done = driver_done,
	.alloc = driver_alloc,
	.free = driver_free,
	.use = driver_use,
	.block_of = driver_block_of,
	.trim = driver_trim,
	.statistics = driver_statistics,
	.reset_peaks = driver_reset_peaks,
	.collect = driver_collect,
	.forget_stream = driver_forget_stream,
};
