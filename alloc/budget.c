/* SPDX-License-Identifier: MIT */
/* alloc/budget.c - shares a byte limit among users, and grants bytes in order.
 * The contract is in alloc/budget.h. */
#include "config.h"

#include "alloc/budget.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/figure.h"
#include "base/wait.h"

struct hoist__budget {
	_Atomic size_t n_refs;
	size_t limit; /* constant */
	pthread_mutex_t lock;
	pthread_cond_t granted; /* broadcast when a waiting user got its bytes; monotonic clock */
	size_t used;
	size_t peak;
	struct hoist__list waiting; /* tickets, in the order they came.  Between calls the bytes of
				     * the first are not free: a call that leaves the line or
				     * releases bytes grants the tickets that then fit */
	size_t passed;		    /* bytes taken past the first ticket since it is the first */
	struct hoist__list link;    /* in the list of all budgets; guarded by all_lock */
};

/* --- fork: the child finds consistent counts; the waiting threads are not there --- */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hoist__list all = {&all, &all};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int atfork_err;

static struct hoist__budget *budget_of(struct hoist__list *link)
{
	return HOIST__CONTAINER_OF(link, struct hoist__budget, link);
}

/* No function takes all_lock while it holds a budget's lock, so this order cannot deadlock. */
static void before_fork(void)
{
	pthread_mutex_lock(&all_lock);
	for (struct hoist__list *link = all.next; link != &all; link = link->next)
		pthread_mutex_lock(&budget_of(link)->lock);
}

static void in_parent(void)
{
	for (struct hoist__list *link = all.next; link != &all; link = link->next)
		pthread_mutex_unlock(&budget_of(link)->lock);
	pthread_mutex_unlock(&all_lock);
}

static void in_child(void)
{
	for (struct hoist__list *link = all.next; link != &all; link = link->next) {
		struct hoist__budget *budget = budget_of(link);
		(void)hoist__condition_init(&budget->granted); /* the condition may have waiters
								* that the child does not have */
		/* The tickets belong to threads that the child does not have, and to loads that a
		 * child cannot drive. */
		while (hoist__list_pop(&budget->waiting) != NULL)
			continue;
		budget->passed = 0;
	}
	in_parent();
}

static void watch_forks(void)
{
	atfork_err = -pthread_atfork(before_fork, in_parent, in_child);
}

/* --- making, sharing, the end --- */

static int init_sync(struct hoist__budget *budget)
{
	int err = hoist__condition_init(&budget->granted);
	if (err != 0)
		return err;
	err = pthread_mutex_init(&budget->lock, NULL);
	if (err != 0)
		pthread_cond_destroy(&budget->granted);
	return -err;
}

int hoist__budget_create(size_t limit_bytes, struct hoist__budget **ret)
{
	if (limit_bytes == 0)
		return hoist__fail(-EINVAL, "a budget of 0 bytes; a budget has at least 1 byte");
	struct hoist__budget *budget = calloc(1, sizeof *budget);
	if (budget == NULL)
		return hoist__fail_nomem("budget", sizeof *budget);
	(void)pthread_once(&once, watch_forks);
	int err = atfork_err != 0 ? atfork_err : init_sync(budget);
	if (err != 0) {
		free(budget);
		return hoist__fail_errno(err, "creating a budget");
	}
	atomic_init(&budget->n_refs, 1);
	budget->limit = limit_bytes;
	hoist__list_init(&budget->waiting);
	/* Last: a fork locks every budget in the list. */
	pthread_mutex_lock(&all_lock);
	hoist__list_push_back(&all, &budget->link);
	pthread_mutex_unlock(&all_lock);
	*ret = budget;
	return 0;
}

struct hoist__budget *hoist__budget_ref(struct hoist__budget *budget)
{
	HOIST__ASSERT(atomic_load(&budget->n_refs) != 0);
	atomic_fetch_add_explicit(&budget->n_refs, 1, memory_order_relaxed);
	return budget;
}

void hoist__budget_unref(struct hoist__budget *budget)
{
	if (budget == NULL || atomic_fetch_sub(&budget->n_refs, 1) != 1)
		return;
	pthread_mutex_lock(&all_lock);
	HOIST__ASSERT(hoist__list_empty(&budget->waiting) && !hoist__list_empty(&budget->link));
	hoist__list_remove(&budget->link);
	pthread_mutex_unlock(&all_lock);
	pthread_cond_destroy(&budget->granted);
	pthread_mutex_destroy(&budget->lock);
	free(budget);
}

/* --- bytes; the lock is below every other --- */

static struct hoist__budget_ticket *ticket_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__budget_ticket, node);
}

/* The functions below are called with the lock held. */
static bool fits(const struct hoist__budget *budget, size_t bytes)
{
	return bytes <= budget->limit - budget->used;
}

/* True if the counts are within the limit, and the first in line waits for a reason. */
HOIST__CONDITION static bool in_order(const struct hoist__budget *budget)
{
	bool anyone = !hoist__list_empty(&budget->waiting);
	return hoist__mutex_held(&budget->lock) && budget->used <= budget->peak &&
	       budget->peak <= budget->limit && budget->passed <= budget->limit &&
	       (anyone ? !fits(budget, ticket_of(budget->waiting.next)->bytes)
		       : budget->passed == 0);
}

static void take(struct hoist__budget *budget, size_t bytes)
{
	HOIST__ASSERT(hoist__mutex_held(&budget->lock) && fits(budget, bytes));
	budget->used += bytes;
	if (budget->used > budget->peak)
		budget->peak = budget->used;
}

/* Takes bytes past the line, as far as the first in line may be passed. */
static bool try_take(struct hoist__budget *budget, size_t bytes)
{
	if (!fits(budget, bytes))
		return false;
	if (!hoist__list_empty(&budget->waiting)) {
		if (bytes > budget->limit - budget->passed)
			return false;
		HOIST__ASSERT(budget->passed + bytes <= budget->limit);
		budget->passed += bytes;
	}
	take(budget, bytes);
	return true;
}

/* Called when the first in line is another one, or when bytes became free.  Tickets that now fit
 * get their bytes at once, whenever their threads wake up. */
static void grant(struct hoist__budget *budget)
{
	HOIST__ASSERT(hoist__mutex_held(&budget->lock));
	bool any = false;
	while (!hoist__list_empty(&budget->waiting)) {
		struct hoist__budget_ticket *first = ticket_of(budget->waiting.next);
		if (!fits(budget, first->bytes))
			break;
		HOIST__ASSERT(first->in_line && !first->granted);
		take(budget, first->bytes);
		hoist__list_remove(&first->node);
		first->granted = any = true;
		budget->passed = 0;
	}
	if (any)
		pthread_cond_broadcast(&budget->granted);
}

/* Waits until @deadline, from the ticket's place in line, or else from the end of the line. */
static bool wait_turn(struct hoist__budget *budget, struct hoist__budget_ticket *ticket,
		      uint64_t deadline)
{
	bool late = false;
	HOIST__ASSERT(hoist__mutex_held(&budget->lock) && ticket->bytes <= budget->limit);
	if (!ticket->in_line && hoist__list_empty(&budget->waiting) &&
	    fits(budget, ticket->bytes)) {
		take(budget, ticket->bytes);
		return true;
	}
	if (!ticket->in_line) {
		hoist__list_push_back(&budget->waiting, &ticket->node);
		ticket->in_line = true;
		ticket->granted = false;
	}
	while (!ticket->granted && !late)
		late = hoist__condition_wait(&budget->granted, &budget->lock, deadline) != 0;
	HOIST__ASSERT(ticket->in_line && ticket->granted == hoist__list_empty(&ticket->node));
	if (ticket->granted)
		ticket->in_line = false;
	return ticket->granted;
}

/* The ticket may have blocked smaller ones behind it, so they are granted now. */
static void leave(struct hoist__budget *budget, struct hoist__budget_ticket *ticket)
{
	HOIST__ASSERT(ticket->in_line && !ticket->granted);
	if (budget->waiting.next == &ticket->node)
		budget->passed = 0;
	hoist__list_remove(&ticket->node);
	ticket->in_line = false;
	grant(budget);
}

static int check_limit(const struct hoist__budget *budget, size_t bytes)
{
	if (bytes <= budget->limit)
		return 0;
	return hoist__fail(-EDQUOT, "the budget is %s: %s can never fit; raise the budget",
			   hoist__figure(budget->limit).text, hoist__figure(bytes).text);
}

/* Unlocks, and sets the text for -EAGAIN. */
static int finish(struct hoist__budget *budget, size_t bytes, bool taken)
{
	HOIST__ASSERT(in_order(budget));
	size_t used = budget->used;
	bool waited_for = !hoist__list_empty(&budget->waiting);
	pthread_mutex_unlock(&budget->lock);
	if (taken)
		return 0;
	return hoist__fail(-EAGAIN, "the budget is %s: %s asked, %s in use%s",
			   hoist__figure(budget->limit).text, hoist__figure(bytes).text,
			   hoist__figure(used).text,
			   waited_for ? ", and others wait for the rest" : "");
}

int hoist__budget_acquire(struct hoist__budget *budget, size_t bytes)
{
	int err = check_limit(budget, bytes);
	if (err != 0)
		return err;
	pthread_mutex_lock(&budget->lock);
	return finish(budget, bytes, try_take(budget, bytes));
}

int hoist__budget_acquire_wait(struct hoist__budget *budget, size_t bytes, uint64_t timeout_ns)
{
	struct hoist__budget_ticket ticket = {.bytes = bytes};
	int err = check_limit(budget, bytes);
	if (err != 0 || timeout_ns == 0)
		return err != 0 ? err : hoist__budget_acquire(budget, bytes);
	uint64_t deadline = hoist__deadline(timeout_ns);
	pthread_mutex_lock(&budget->lock);
	bool taken = wait_turn(budget, &ticket, deadline);
	if (!taken)
		leave(budget, &ticket);
	return finish(budget, bytes, taken);
}

int hoist__budget_acquire_turn(struct hoist__budget *budget, struct hoist__budget_ticket *ticket,
			       size_t bytes, uint64_t timeout_ns)
{
	int err = ticket->in_line ? 0 : check_limit(budget, bytes);
	if (err != 0)
		return err;
	uint64_t deadline = hoist__deadline(timeout_ns);
	if (!ticket->in_line)
		ticket->bytes = bytes;
	pthread_mutex_lock(&budget->lock);
	return finish(budget, bytes, wait_turn(budget, ticket, deadline));
}

void hoist__budget_leave(struct hoist__budget *budget, struct hoist__budget_ticket *ticket)
{
	if (!ticket->in_line)
		return;
	pthread_mutex_lock(&budget->lock);
	/* The bytes may have come after the caller last looked. */
	if (ticket->granted) {
		HOIST__ASSERT(ticket->bytes <= budget->used);
		budget->used -= ticket->bytes;
		ticket->in_line = false;
		grant(budget);
	} else {
		leave(budget, ticket);
	}
	HOIST__ASSERT(in_order(budget) && !ticket->in_line);
	pthread_mutex_unlock(&budget->lock);
}

void hoist__budget_release(struct hoist__budget *budget, size_t bytes)
{
	pthread_mutex_lock(&budget->lock);
	assert(bytes <= budget->used);
	budget->used -= bytes;
	grant(budget);
	HOIST__ASSERT(in_order(budget));
	pthread_mutex_unlock(&budget->lock);
}

size_t hoist__budget_limit(const struct hoist__budget *budget)
{
	return budget->limit;
}

size_t hoist__budget_used(struct hoist__budget *budget)
{
	pthread_mutex_lock(&budget->lock);
	size_t used = budget->used;
	pthread_mutex_unlock(&budget->lock);
	return used;
}

size_t hoist__budget_peak(struct hoist__budget *budget)
{
	pthread_mutex_lock(&budget->lock);
	size_t peak = budget->peak;
	pthread_mutex_unlock(&budget->lock);
	return peak;
}
