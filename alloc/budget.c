/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "alloc/budget.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/figure.h"
#include "base/list.h"
#include "base/wait.h"

struct hoist__budget {
	_Atomic size_t n_refs;
	size_t limit; /* constant */
	pthread_mutex_t lock;
	pthread_cond_t released; /* broadcast by every release; monotonic */
	size_t used;
	size_t peak;
	struct hoist__list link; /* in the list of all; its lock */
};

/* --- fork: a child finds whole books; those who wait are not there --- */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hoist__list all = {&all, &all};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int atfork_err;

static struct hoist__budget *budget_of(struct hoist__list *link)
{
	return HOIST__CONTAINER_OF(link, struct hoist__budget, link);
}

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
	for (struct hoist__list *link = all.next; link != &all; link = link->next)
		(void)hoist__condition_init(&budget_of(link)->released); /* as it was made */
	in_parent();
}

static void watch_forks(void)
{
	atfork_err = -pthread_atfork(before_fork, in_parent, in_child);
}

/* --- making, sharing, the end --- */

static int init_sync(struct hoist__budget *budget)
{
	int err = hoist__condition_init(&budget->released);
	if (err != 0)
		return err;
	err = pthread_mutex_init(&budget->lock, NULL);
	if (err != 0)
		pthread_cond_destroy(&budget->released);
	return -err;
}

int hoist__budget_create(size_t limit_bytes, struct hoist__budget **ret)
{
	if (limit_bytes == 0)
		return hoist__fail(-EINVAL, "a budget of 0 bytes");
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
	pthread_mutex_lock(&all_lock);
	hoist__list_push_back(&all, &budget->link);
	pthread_mutex_unlock(&all_lock);
	*ret = budget;
	return 0;
}

struct hoist__budget *hoist__budget_ref(struct hoist__budget *budget)
{
	atomic_fetch_add_explicit(&budget->n_refs, 1, memory_order_relaxed);
	return budget;
}

void hoist__budget_unref(struct hoist__budget *budget)
{
	if (budget == NULL || atomic_fetch_sub(&budget->n_refs, 1) != 1)
		return;
	pthread_mutex_lock(&all_lock);
	hoist__list_remove(&budget->link);
	pthread_mutex_unlock(&all_lock);
	pthread_cond_destroy(&budget->released);
	pthread_mutex_destroy(&budget->lock);
	free(budget);
}

/* --- bytes; the lock is below every other --- */

/* With the lock held. */
static int try_acquire(struct hoist__budget *budget, size_t bytes)
{
	if (bytes > budget->limit - budget->used)
		return -EAGAIN;
	budget->used += bytes;
	if (budget->used > budget->peak)
		budget->peak = budget->used;
	return 0;
}

static int check_limit(const struct hoist__budget *budget, size_t bytes)
{
	if (bytes <= budget->limit)
		return 0;
	return hoist__fail(-EDQUOT, "the budget is %s: %s can never fit",
			   hoist__figure(budget->limit).text, hoist__figure(bytes).text);
}

/* Sets the text for -EAGAIN; @used was read under the lock. */
static int busy(const struct hoist__budget *budget, size_t bytes, size_t used)
{
	return hoist__fail(-EAGAIN, "the budget is %s: %s asked, %s in use",
			   hoist__figure(budget->limit).text, hoist__figure(bytes).text,
			   hoist__figure(used).text);
}

int hoist__budget_acquire(struct hoist__budget *budget, size_t bytes)
{
	int err = check_limit(budget, bytes);
	if (err != 0)
		return err;
	pthread_mutex_lock(&budget->lock);
	err = try_acquire(budget, bytes);
	size_t used = budget->used;
	pthread_mutex_unlock(&budget->lock);
	return err == 0 ? 0 : busy(budget, bytes, used);
}

int hoist__budget_acquire_wait(struct hoist__budget *budget, size_t bytes, uint64_t timeout_ns)
{
	int err = check_limit(budget, bytes);
	if (err != 0)
		return err;
	uint64_t deadline = hoist__deadline(timeout_ns);
	pthread_mutex_lock(&budget->lock);
	bool late = false;
	while ((err = try_acquire(budget, bytes)) != 0 && !late)
		late = hoist__condition_wait(&budget->released, &budget->lock, deadline) != 0;
	size_t used = budget->used;
	pthread_mutex_unlock(&budget->lock);
	return err == 0 ? 0 : busy(budget, bytes, used);
}

void hoist__budget_release(struct hoist__budget *budget, size_t bytes)
{
	pthread_mutex_lock(&budget->lock);
	assert(bytes <= budget->used);
	budget->used -= bytes;
	pthread_cond_broadcast(&budget->released);
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
