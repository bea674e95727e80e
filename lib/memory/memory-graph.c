/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-graph.c - GRAPH: takes memory that belongs to the graph that a stream captures.
 * The contract is in lib/memory/memory.h. */
#include "config.h"

#include "alloc/books.h"
#include "base/error.h"
#include "device/graph.h"
#include "lib/device/stream.h"
#include "lib/memory/memory.h"
#include "lib/memory/snapshot.h"

struct graph_memory {
	hoist_memory memory;
	struct hoist__books books;
};

static struct graph_memory *graph_of(hoist_memory *memory)
{
	return (struct graph_memory *)memory;
}

static int graph_init(hoist_memory *memory)
{
	return hoist__books_init(&graph_of(memory)->books);
}

static bool graph_done(hoist_memory *memory)
{
	struct hoist__books *books = &graph_of(memory)->books;
	if (memory->generation != hoist__fork_now() || hoist__books_n(books) != 0)
		return false;
	hoist__books_done(books);
	return true;
}

static int require_capture(hoist_stream *stream)
{
	bool capturing = false;
	int err = hoist__dev_stream_capturing(hoist__stream_dev_stream(stream), &capturing);
	if (err < 0 || capturing)
		return err;
	return hoist__fail(-EINVAL,
			   "the stream captures no graph that memory could belong to; begin "
			   "the capture first, or take memory of another kind");
}

static int graph_alloc(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
		       uintptr_t *ret)
{
	struct hoist__book *book;
	uintptr_t address;
	int err = hoist__dev_check(memory->dev);
	if (err == 0 && stream == NULL)
		err = hoist__fail(-EINVAL, "memory of graphs is taken on the stream that captures "
					   "the graph, and no stream was given");
	if (err == 0 && align > HOIST__DRIVER_ALIGN)
		err = hoist__fail(-EINVAL, "blocks of graphs are aligned to %zu bytes, not to %zu",
				  HOIST__DRIVER_ALIGN, align);
	if (err == 0)
		err = require_capture(stream);
	if (err == 0)
		err = hoist__book_create(bytes, &book);
	if (err < 0)
		return err;
	struct hoist__dev_stream *on = hoist__stream_dev_stream(stream);
	err = hoist__graph_alloc(on, bytes, &address);
	if (err == 0) {
		/* A graph that is gone may have left its address to the next graph. */
		hoist__book_destroy(hoist__books_take(&graph_of(memory)->books, address));
		book->raw = address;
		(void)hoist__books_add(&graph_of(memory)->books, book, address);
		*ret = address;
	} else {
		hoist__book_destroy(book);
	}
	return err;
}

static int graph_free(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	struct hoist__books *books = &graph_of(memory)->books;
	int err = hoist__dev_check(memory->dev);
	if (err < 0)
		return err;
	struct hoist__book *book = hoist__books_take(books, address);
	if (book == NULL)
		return hoist__books_refuse(books, address);
	hoist__book_destroy(book);
	return stream == NULL ? 0 : hoist__graph_free(hoist__stream_dev_stream(stream), address);
}

/* The graph orders its own work, and a stream that captures is never waited for. */
static int graph_use(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	uintptr_t start;
	(void)stream;
	int err = hoist__dev_check(memory->dev);
	return err < 0 ? err : hoist__books_around(&graph_of(memory)->books, address, &start);
}

static int graph_block_of(hoist_memory *memory, uintptr_t address, uintptr_t *ret)
{
	int err = hoist__dev_check(memory->dev);
	return err < 0 ? err : hoist__books_around(&graph_of(memory)->books, address, ret);
}

/* The driver cannot keep a part of this memory, so @keep_bytes has no effect. */
static int graph_trim(hoist_memory *memory, size_t keep_bytes)
{
	(void)keep_bytes;
	return hoist__graph_trim(memory->dev);
}

static int graph_statistics(hoist_memory *memory, hoist_memory_statistics *ret)
{
	int err = hoist__dev_check(memory->dev);
	if (err == 0)
		hoist__books_statistics(&graph_of(memory)->books, ret);
	return err;
}

static int graph_reset_peaks(hoist_memory *memory)
{
	int err = hoist__dev_check(memory->dev);
	if (err < 0)
		return err;
	hoist__books_reset_peaks(&graph_of(memory)->books);
	err = hoist__graph_reset(memory->dev, HOIST__POOL_RESERVED_HIGH);
	return err < 0 ? err : hoist__graph_reset(memory->dev, HOIST__POOL_USED_HIGH);
}

static int graph_collect(hoist_memory *memory, struct hoist__snapshot *snapshot)
{
	int err = hoist__dev_check(memory->dev);
	return err < 0 ? err : hoist__snapshot_books(snapshot, &graph_of(memory)->books);
}

const struct hoist__memory_ops hoist__memory_graph_ops = {
	.bytes = sizeof(struct graph_memory),
	.init = graph_init,
	.done = graph_done,
	.alloc = graph_alloc,
	.free = graph_free,
	.use = graph_use,
	.block_of = graph_block_of,
	.trim = graph_trim,
	.statistics = graph_statistics,
	.reset_peaks = graph_reset_peaks,
	.collect = graph_collect,
};
