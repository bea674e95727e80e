/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-custom.c - CUSTOM: takes memory from the caller's functions.
 * The contract is in lib/memory/memory.h. */
#include "config.h"

#include "alloc/books.h"
#include "base/checked.h"
#include "base/error.h"
#include "device/scope.h"
#include "lib/memory/memory.h"
#include "lib/memory/snapshot.h"

struct custom_memory {
	hoist_memory memory;
	struct hoist__books books;
};

static struct custom_memory *custom_of(hoist_memory *memory)
{
	return (struct custom_memory *)memory;
}

static int custom_init(hoist_memory *memory)
{
	return hoist__books_init(&custom_of(memory)->books);
}

/* A child of fork never calls the caller's functions: see check_process(). */
static bool custom_done(hoist_memory *memory)
{
	struct hoist__books *books = &custom_of(memory)->books;
	if (memory->generation != hoist__fork_now() || hoist__books_n(books) != 0)
		return false;
	hoist__books_done(books);
	struct hoist__dev_steps steps;
	hoist__dev_step_out(&steps);
	if (memory->functions.destroy != NULL)
		memory->functions.destroy(memory->options.functions_context);
	hoist__dev_step_in(&steps);
	return true;
}

/* In a child of fork, a thread that is not there may hold a lock. */
static int check_process(const hoist_memory *memory)
{
	if (memory->generation == hoist__fork_now())
		return 0;
	return hoist__fail(-ESTALE, "the resource belongs to the process that forked this one");
}

/* The caller's functions find the thread's current device as the caller left it. */
static void give_back(hoist_memory *memory, uintptr_t address, size_t bytes, hoist_stream *stream)
{
	struct hoist__dev_steps steps;
	hoist__dev_step_out(&steps);
	memory->functions.free(memory->options.functions_context, address, bytes, stream);
	hoist__dev_step_in(&steps);
}

static int ask(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
	       uintptr_t *ret)
{
	const hoist_memory_functions *functions = &memory->functions;
	void *context = memory->options.functions_context;
	uintptr_t address = 0;
	struct hoist__dev_steps steps;
	hoist__dev_step_out(&steps);
	int err = functions->alloc(context, bytes, align, stream, &address);
	hoist__dev_step_in(&steps);
	if (err < 0)
		return hoist__fail_errno(err, "its alloc function, asked for %zu bytes", bytes);
	if (err > 0 || address == 0)
		return hoist__fail(
			-EINVAL,
			"its alloc function gave %d and the address %#zx; it must give 0 "
			"and a block, or a negative errno value",
			err, (size_t)address);
	if ((address & (align - 1)) != 0) {
		/* For the caller's functions the block is in use until it is freed. */
		give_back(memory, address, bytes, stream);
		return hoist__fail(
			-EINVAL, "its alloc function gave %#zx, which is not aligned to %zu bytes",
			(size_t)address, align);
	}
	*ret = address;
	return 0;
}

static int custom_alloc(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
			uintptr_t *ret)
{
	struct hoist__book *book = NULL;
	uintptr_t address = 0;
	int err = check_process(memory);
	if (err == 0)
		/* The book comes first: nothing of ours may fail once the caller's function gave a
		 * block. */
		err = hoist__book_create(bytes, &book);
	if (err == 0)
		err = ask(memory, bytes, align != 0 ? align : 1, stream, &address);
	if (err == 0 && hoist__books_add(&custom_of(memory)->books, book, address) < 0)
		/* The address is not given back, as a live block has that address. */
		err = hoist__fail(-EINVAL, "its alloc function gave %#zx, which is in use",
				  (size_t)address);
	if (err < 0) {
		hoist__book_destroy(book);
		return err;
	}
	*ret = address;
	return 0;
}

static int custom_free(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	int err = check_process(memory);
	if (err < 0)
		return err;
	struct hoist__books *books = &custom_of(memory)->books;
	/* The book goes first: the function may give the address to another thread at once. */
	struct hoist__book *book = hoist__books_take(books, address);
	if (book == NULL)
		return hoist__books_refuse(books, address);
	give_back(memory, address, book->bytes, stream);
	hoist__book_destroy(book);
	return 0;
}

static int custom_adopt(hoist_memory *memory, uintptr_t address, size_t bytes)
{
	int err = check_process(memory);
	return err < 0 ? err : hoist__books_adopt(&custom_of(memory)->books, address, bytes);
}

static int custom_synchronize(hoist_memory *memory)
{
	int err = check_process(memory);
	if (err < 0 || memory->functions.synchronize == NULL)
		return err;
	err = memory->functions.synchronize(memory->options.functions_context);
	if (err > 0)
		return hoist__fail(-EINVAL,
				   "its synchronize function gave %d; it must give 0 or a "
				   "negative errno value",
				   err);
	return err < 0 ? hoist__fail_errno(err, "its synchronize function") : 0;
}

static int custom_block_of(hoist_memory *memory, uintptr_t address, uintptr_t *ret)
{
	int err = check_process(memory);
	return err < 0 ? err : hoist__books_around(&custom_of(memory)->books, address, ret);
}

static int custom_statistics(hoist_memory *memory, hoist_memory_statistics *ret)
{
	int err = check_process(memory);
	if (err == 0)
		hoist__books_statistics(&custom_of(memory)->books, ret);
	return err;
}

static int custom_reset_peaks(hoist_memory *memory)
{
	int err = check_process(memory);
	if (err == 0)
		hoist__books_reset_peaks(&custom_of(memory)->books);
	return err;
}

static int custom_collect(hoist_memory *memory, struct hoist__snapshot *snapshot)
{
	int err = check_process(memory);
	return err < 0 ? err : hoist__snapshot_books(snapshot, &custom_of(memory)->books);
}

const struct hoist__memory_ops hoist__memory_custom_ops = {
	.bytes = sizeof(struct custom_memory),
	.init = custom_init,
	.done = custom_done,
	.alloc = custom_alloc,
	.free = custom_free,
	.adopt = custom_adopt,
	.synchronize = custom_synchronize,
	.block_of = custom_block_of,
	.statistics = custom_statistics,
	.reset_peaks = custom_reset_peaks,
	.collect = custom_collect,
};
