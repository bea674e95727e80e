/* SPDX-License-Identifier: MIT */
/* alloc/books.c - notes the live blocks of a resource, by address.
 * The contract is in alloc/books.h. */
#include "config.h"

#include "alloc/books.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"

int hoist__books_init(struct hoist__books *books)
{
	int err = pthread_mutex_init(&books->lock, NULL);
	if (err == 0 && (err = pthread_mutex_init(&books->users_lock, NULL)) != 0)
		pthread_mutex_destroy(&books->lock);
	books->random = (uintptr_t)books | 1;
	return err == 0 ? 0 : hoist__fail_errno(-err, "making a lock");
}

void hoist__books_done(struct hoist__books *books)
{
	HOIST__ASSERT(books->n_blocks == 0 && atomic_load(&books->n_used) == 0);
	pthread_mutex_destroy(&books->users_lock);
	pthread_mutex_destroy(&books->lock);
}

int hoist__book_create(size_t bytes, struct hoist__book **ret)
{
	struct hoist__book *made = calloc(1, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("the description of a block", sizeof *made);
	made->bytes = bytes;
	made->allocated = bytes;
	*ret = made;
	return 0;
}

void hoist__book_destroy(struct hoist__book *book)
{
	if (book != NULL)
		free(book->users);
	free(book);
}

static struct hoist__book *book_of(struct hoist__tree_node *node)
{
	return (struct hoist__book *)(void *)node; /* the node is the first member */
}

/* Returns: the last block that starts at or below @address.  Pre: lock held. */
static struct hoist__book *at_most(struct hoist__books *books, uintptr_t address)
{
	HOIST__ASSERT(hoist__mutex_held(&books->lock));
	return book_of(hoist__tree_at_most(&books->tree, address));
}

/* True if the sums are those of the blocks that are in the books.  Pre: lock held. */
HOIST__CONDITION static bool adds_up(const struct hoist__books *books)
{
	return books->n_allocs == books->n_frees + books->n_blocks &&
	       books->requested <= books->requested_peak &&
	       books->allocated <= books->allocated_peak &&
	       (books->n_blocks != 0 || (books->requested == 0 && books->allocated == 0)) &&
	       atomic_load(&books->n_used) <= books->n_blocks;
}

static bool starts_at(const struct hoist__book *book, uintptr_t address)
{
	return book != NULL && hoist__book_address(book) == address;
}

/* Lock held. */
static void enter(struct hoist__books *books, struct hoist__book *book)
{
	HOIST__ASSERT(hoist__mutex_held(&books->lock) && hoist__book_address(book) != 0);
	HOIST__ASSERT(!starts_at(at_most(books, hoist__book_address(book)), book->node.key));
	HOIST__ASSERT(book->raw <= hoist__book_address(book) && book->bytes <= book->allocated);
	hoist__tree_insert(&books->tree, &book->node);
	books->n_blocks++;
	books->requested += book->bytes;
	books->allocated += book->allocated;
	books->requested_peak = hoist__max_u64(books->requested_peak, books->requested);
	books->allocated_peak = hoist__max_u64(books->allocated_peak, books->allocated);
	if (book->n_users != 0)
		atomic_fetch_add(&books->n_used, 1);
}

/* xorshift64: the balance of the tree needs no better generator. */
static uint64_t next_random(struct hoist__books *books)
{
	books->random ^= books->random << 13;
	books->random ^= books->random >> 7;
	books->random ^= books->random << 17;
	return books->random;
}

/* Enters a new block.  Pre: lock held. */
static void enter_new(struct hoist__books *books, struct hoist__book *book, uintptr_t address)
{
	book->node.key = address;
	book->node.priority = next_random(books);
	enter(books, book);
	books->n_allocs++;
	HOIST__ASSERT(adds_up(books));
}

int hoist__books_add(struct hoist__books *books, struct hoist__book *book, uintptr_t address)
{
	pthread_mutex_lock(&books->lock);
	const struct hoist__book *before = at_most(books, address);
	bool known = starts_at(before, address);
	if (!known)
		enter_new(books, book, address);
	pthread_mutex_unlock(&books->lock);
	return known ? -EEXIST : 0;
}

struct hoist__book *hoist__books_take(struct hoist__books *books, uintptr_t address)
{
	pthread_mutex_lock(&books->lock);
	struct hoist__book *book = at_most(books, address);
	if (!starts_at(book, address))
		book = NULL;
	if (book != NULL) {
		hoist__tree_remove(&books->tree, &book->node);
		HOIST__ASSERT(!starts_at(at_most(books, address), address));
		books->n_blocks--;
		books->n_frees++;
		books->requested -= book->bytes;
		books->allocated -= book->allocated;
		if (book->n_users != 0)
			atomic_fetch_sub(&books->n_used, 1);
		HOIST__ASSERT(adds_up(books));
	}
	pthread_mutex_unlock(&books->lock);
	return book;
}

void hoist__books_put_back(struct hoist__books *books, struct hoist__book *book)
{
	pthread_mutex_lock(&books->lock);
	enter(books, book);
	books->n_frees--;
	HOIST__ASSERT(adds_up(books));
	pthread_mutex_unlock(&books->lock);
}

/* Finds the block around @address.  False if there is none.  Pre: lock held. */
static bool find(struct hoist__books *books, uintptr_t address, struct hoist__book **ret)
{
	*ret = at_most(books, address);
	HOIST__ASSERT(*ret == NULL || hoist__book_address(*ret) <= address);
	return *ret != NULL && address - hoist__book_address(*ret) < (*ret)->bytes;
}

int hoist__books_around(struct hoist__books *books, uintptr_t address, uintptr_t *ret)
{
	struct hoist__book *book;
	pthread_mutex_lock(&books->lock);
	bool found = find(books, address, &book);
	if (found)
		*ret = hoist__book_address(book);
	pthread_mutex_unlock(&books->lock);
	return found ? 0
		     : hoist__fail(-EINVAL, "%#zx lies in no block of this resource",
				   (size_t)address);
}

int hoist__books_given(struct hoist__books *books, uintptr_t address, uintptr_t *raw, size_t *bytes)
{
	struct hoist__book *book;
	pthread_mutex_lock(&books->lock);
	bool found = find(books, address, &book);
	if (found) {
		*raw = book->raw;
		*bytes = book->allocated;
	}
	pthread_mutex_unlock(&books->lock);
	return found ? 0
		     : hoist__fail(-EINVAL, "%#zx lies in no block of this resource",
				   (size_t)address);
}

int hoist__books_refuse(struct hoist__books *books, uintptr_t address)
{
	uintptr_t start;
	if (hoist__books_around(books, address, &start) == 0)
		return hoist__fail(-EINVAL,
				   "%#zx lies inside the block at %#zx; only its start can "
				   "be freed",
				   (size_t)address, (size_t)start);
	return hoist__fail(
		-EINVAL,
		"no live block starts at %#zx: the block was freed already, or never given out",
		(size_t)address);
}

/* Lock held. */
static int add_user(struct hoist__books *books, struct hoist__book *book,
		    struct hoist__dev_stream *stream)
{
	for (size_t i = 0; i < book->n_users; i++)
		if (book->users[i] == stream)
			return 0;
	size_t bytes = (book->n_users + 1) * sizeof book->users[0];
	struct hoist__dev_stream **users = realloc(book->users, bytes);
	if (users == NULL)
		return hoist__fail_nomem("the streams of a block", bytes);
	HOIST__ASSERT(hoist__mutex_held(&books->lock));
	book->users = users;
	book->users[book->n_users++] = stream;
	if (book->n_users == 1)
		atomic_fetch_add(&books->n_used, 1);
	return 0;
}

int hoist__books_use(struct hoist__books *books, uintptr_t address,
		     struct hoist__dev_stream *stream)
{
	struct hoist__book *book;
	pthread_mutex_lock(&books->lock);
	bool found = find(books, address, &book) && starts_at(book, address);
	int err = found ? add_user(books, book, stream) : 0;
	pthread_mutex_unlock(&books->lock);
	return found ? err : hoist__books_refuse(books, address);
}

/* Lock held. */
static struct hoist__book *next(struct hoist__books *books, uintptr_t address)
{
	HOIST__ASSERT(hoist__mutex_held(&books->lock));
	return book_of(hoist__tree_at_least(&books->tree, address));
}

static void drop_user(struct hoist__books *books, struct hoist__book *book,
		      const struct hoist__dev_stream *stream)
{
	for (size_t i = 0; i < book->n_users; i++)
		if (book->users[i] == stream) {
			HOIST__ASSERT(hoist__mutex_held(&books->users_lock));
			HOIST__ASSERT(atomic_load(&books->n_used) != 0);
			book->users[i] = book->users[--book->n_users];
			if (book->n_users == 0)
				atomic_fetch_sub(&books->n_used, 1);
			return;
		}
}

void hoist__books_forget(struct hoist__books *books, struct hoist__dev_stream *stream)
{
	if (atomic_load(&books->n_used) == 0)
		return;
	/* A failure of the stream is not reported here: after the wait none of its work runs any
	 * more. */
	(void)hoist__dev_stream_await(stream);
	pthread_mutex_lock(&books->users_lock);
	pthread_mutex_lock(&books->lock);
	for (struct hoist__book *book = next(books, 0); book != NULL;
	     book = next(books, hoist__book_address(book) + 1))
		drop_user(books, book, stream);
	pthread_mutex_unlock(&books->lock);
	pthread_mutex_unlock(&books->users_lock);
}

/* Returns: the live block that shares a byte with [@address, @address + @bytes), or starts there;
 * NULL if none does.  Pre: lock held. */
static struct hoist__book *overlapping(struct hoist__books *books, uintptr_t address, size_t bytes)
{
	struct hoist__book *before = at_most(books, address);
	if (before != NULL && (hoist__book_address(before) == address ||
			       address - hoist__book_address(before) < before->bytes))
		return before;
	struct hoist__book *behind = next(books, address);
	return behind != NULL && hoist__book_address(behind) - address < bytes ? behind : NULL;
}

int hoist__books_adopt(struct hoist__books *books, uintptr_t address, size_t bytes)
{
	struct hoist__book *book = NULL;
	int err = hoist__book_create(bytes, &book);
	if (err < 0)
		return err;
	pthread_mutex_lock(&books->lock);
	const struct hoist__book *other = overlapping(books, address, bytes);
	uintptr_t start = other != NULL ? hoist__book_address(other) : 0;
	if (other == NULL)
		enter_new(books, book, address);
	pthread_mutex_unlock(&books->lock);
	if (start == 0)
		return 0;
	hoist__book_destroy(book);
	return start == address
		       ? 0
		       : hoist__fail(-EINVAL, "%zu bytes at %#zx overlap the live block at %#zx",
				     bytes, (size_t)address, (size_t)start);
}

size_t hoist__books_n(struct hoist__books *books)
{
	pthread_mutex_lock(&books->lock);
	size_t n = books->n_blocks;
	pthread_mutex_unlock(&books->lock);
	return n;
}

void hoist__books_statistics(struct hoist__books *books, hoist_memory_statistics *ret)
{
	pthread_mutex_lock(&books->lock);
	ret->requested_bytes = books->requested;
	ret->requested_peak = books->requested_peak;
	ret->allocated_bytes = books->allocated;
	ret->reserved_bytes = books->allocated;
	ret->reserved_peak = books->allocated_peak;
	ret->n_blocks = books->n_blocks;
	ret->n_allocs = books->n_allocs;
	ret->n_frees = books->n_frees;
	pthread_mutex_unlock(&books->lock);
}

void hoist__books_reset_peaks(struct hoist__books *books)
{
	pthread_mutex_lock(&books->lock);
	books->requested_peak = books->requested;
	books->allocated_peak = books->allocated;
	pthread_mutex_unlock(&books->lock);
}

int hoist__books_walk(struct hoist__books *books,
		      int (*visit)(void *arg, const struct hoist__book *book), void *arg)
{
	int err = 0;
	pthread_mutex_lock(&books->lock);
	for (struct hoist__book *book = next(books, 0); err == 0 && book != NULL;
	     book = next(books, hoist__book_address(book) + 1))
		err = visit(arg, book);
	pthread_mutex_unlock(&books->lock);
	return err;
}
