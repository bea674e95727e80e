/* SPDX-License-Identifier: MIT */
/* alloc/books.h - the live blocks of a resource that keeps no books itself.
 *
 * The driver's pools and the caller's functions provide memory, but are not relied on for accounts.
 * The books note by address which block was given and how many bytes were asked for.  So a block
 * freed twice is an error, and the size of a block is known when it is freed.
 *
 * A book is made before its block exists, so that nothing can fail once the block is there.
 *
 * Threads: any.  `lock` is held only for a search.  `users_lock` is held while a caller decides how
 * to wait for the streams of a block that several streams use, so that none of these streams is
 * destroyed meanwhile.
 */
#ifndef HOIST_ALLOC_BOOKS_H
#define HOIST_ALLOC_BOOKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tree.h"
#include "device/device.h"
#include "hoist/memory.h"

struct hoist__book {
	struct hoist__tree_node node; /* its key is the user's address */
	uintptr_t raw;		      /* the start of the memory that was given; the address is
				       * within */
	size_t bytes;		      /* as asked for */
	size_t allocated;	      /* bytes of the memory that was given */
	struct hoist__dev_stream **users;
	size_t n_users;
};

struct hoist__books {
	pthread_mutex_t lock;	    /* guards all but the next two */
	pthread_mutex_t users_lock; /* comes before `lock` */
	_Atomic size_t n_used;	    /* blocks with users */
	struct hoist__tree tree;
	uint64_t random;
	uint64_t requested, requested_peak, allocated, allocated_peak;
	uint64_t n_blocks, n_allocs, n_frees;
};

int hoist__books_init(struct hoist__books *books); /* -ENOMEM */
/* Pre: the books hold no block. */
void hoist__books_done(struct hoist__books *books);

int hoist__book_create(size_t bytes, struct hoist__book **ret); /* -ENOMEM */
void hoist__book_destroy(struct hoist__book *book);		/* takes NULL */

static inline uintptr_t hoist__book_address(const struct hoist__book *book)
{
	return book->node.key;
}

/* Enters the block at @address.  Returns: 0; -EEXIST if another one is there. */
int hoist__books_add(struct hoist__books *books, struct hoist__book *book, uintptr_t address);

/* Enters a block of @bytes that this resource did not give out.  A block that starts at @address
 * already stays as it is.  Returns: 0; -EINVAL, with the text, if it overlaps another; -ENOMEM. */
int hoist__books_adopt(struct hoist__books *books, uintptr_t address, size_t bytes);

/* Takes the block that starts at @address out of the books: the block is no longer live.
 * Returns: the book; NULL if no block starts there. */
struct hoist__book *hoist__books_take(struct hoist__books *books, uintptr_t address);

/* Undoes hoist__books_take().  The address and the sizes may have changed since. */
void hoist__books_put_back(struct hoist__books *books, struct hoist__book *book);

/* Finds the start of the live block around @address.  Returns: 0; -EINVAL, with the text. */
int hoist__books_around(struct hoist__books *books, uintptr_t address, uintptr_t *ret);

/* Finds the memory that was given for the live block around @address.  Returns: as above. */
int hoist__books_given(struct hoist__books *books, uintptr_t address, uintptr_t *raw,
		       size_t *bytes);

/* Sets the text that says why no live block can be freed at @address.  Returns: -EINVAL. */
int hoist__books_refuse(struct hoist__books *books, uintptr_t address);

/* Notes that @stream uses the block that starts at @address.  Returns: 0; -EINVAL; -ENOMEM. */
int hoist__books_use(struct hoist__books *books, uintptr_t address,
		     struct hoist__dev_stream *stream);

/* Removes @stream from the users of all blocks.  Waits for the work of the stream if any block has
 * users. */
void hoist__books_forget(struct hoist__books *books, struct hoist__dev_stream *stream);

size_t hoist__books_n(struct hoist__books *books);
void hoist__books_statistics(struct hoist__books *books, hoist_memory_statistics *ret);
void hoist__books_reset_peaks(struct hoist__books *books);

/* Calls @visit for each block in the order of addresses, under the lock, until it fails. */
int hoist__books_walk(struct hoist__books *books,
		      int (*visit)(void *arg, const struct hoist__book *book), void *arg);

#endif
