/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "io/populate.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "alloc/region.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/wait.h"
#include "io/worker.h"

/* Long enough to hide the lock and a wake-up, short enough that the reader starts
 * early: 1-2 ms.  Slices are cut at multiples of this in the address space, so
 * that no huge page is populated by two threads. */
#define SLICE_BYTES (16 * HOIST__MIB)
#define MAX_THREADS 4u

struct hoist__populator {
	uintptr_t start;
	uintptr_t end;
	size_t n_slices;
	pid_t pid;

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t progress;
	size_t n_claimed;    /* slices taken by a thread, in order */
	size_t n_prefix;     /* slices done without a gap from the start */
	unsigned char *done; /* one byte a slice */
	int err;
	bool stop;
	char text[HOIST__ERROR_BYTES];

	unsigned n_threads;
	pthread_t threads[MAX_THREADS];
};

/* Where slice @i begins; slice n_slices begins at the end. */
static uintptr_t slice_start(const struct hoist__populator *p, size_t i)
{
	uintptr_t grid = hoist__round_down(p->start, SLICE_BYTES);
	uintptr_t at = i == p->n_slices ? p->end : grid + i * SLICE_BYTES;
	return at < p->start ? p->start : at;
}

static void finish_slice(struct hoist__populator *p, size_t i, int err)
{
	if (err != 0) {
		if (p->err == 0) {
			p->err = err;
			hoist__error_copy(p->text, sizeof p->text);
		}
		p->stop = true;
	} else {
		p->done[i] = 1;
		while (p->n_prefix < p->n_slices && p->done[p->n_prefix])
			p->n_prefix++;
	}
	pthread_cond_broadcast(&p->progress);
}

static void *populate(void *argument)
{
	struct hoist__populator *p = argument;
	pthread_mutex_lock(&p->mutex);
	while (!p->stop && p->n_claimed < p->n_slices) {
		size_t i = p->n_claimed++;
		pthread_mutex_unlock(&p->mutex);
		uintptr_t from = slice_start(p, i);
		int err = hoist__populate((void *)from, slice_start(p, i + 1) - from);
		pthread_mutex_lock(&p->mutex);
		finish_slice(p, i, err);
	}
	pthread_mutex_unlock(&p->mutex);
	return NULL;
}

static int init_locks(struct hoist__populator *p)
{
	int err = -pthread_mutex_init(&p->mutex, NULL);
	if (err != 0)
		return err;
	err = hoist__condition_init(&p->progress);
	if (err != 0)
		pthread_mutex_destroy(&p->mutex);
	return err;
}

static struct hoist__populator *make(void *address, size_t bytes)
{
	struct hoist__populator *p = calloc(1, sizeof *p);
	if (p == NULL)
		return NULL;
	p->start = (uintptr_t)address;
	p->end = p->start + bytes;
	p->pid = getpid();
	uintptr_t grid = hoist__round_down(p->start, SLICE_BYTES);
	p->n_slices = (p->end - grid + SLICE_BYTES - 1) / SLICE_BYTES;
	p->done = calloc(p->n_slices + 1, 1);
	if (p->done == NULL || init_locks(p) != 0) {
		free(p->done);
		free(p);
		return NULL;
	}
	return p;
}

int hoist__populator_start(void *address, size_t bytes, unsigned n_threads,
			   struct hoist__populator **ret)
{
	struct hoist__populator *p = make(address, bytes);
	if (p == NULL)
		return hoist__fail_nomem("a populator", sizeof *p);
	if (n_threads == 0 || n_threads > MAX_THREADS)
		n_threads = MAX_THREADS;
	n_threads = (unsigned)hoist__min_u64(n_threads, hoist__worker_cpus());
	n_threads = (unsigned)hoist__min_u64(n_threads, p->n_slices);
	int err = 0;
	while (p->n_threads < n_threads && err == 0) {
		err = hoist__worker_start(&p->threads[p->n_threads], populate, p);
		if (err == 0)
			p->n_threads++;
	}
	if (p->n_threads == 0 && err != 0) {
		hoist__populator_stop(p);
		return hoist__fail_thread(err, "starting a populating thread");
	}
	*ret = p;
	return 0;
}

/* Under the lock: the populated prefix, or the failure. */
static int look(struct hoist__populator *p, size_t *ret)
{
	if (p->err != 0)
		return hoist__fail(p->err, "%s", p->text);
	*ret = slice_start(p, p->n_prefix) - p->start;
	return 0;
}

int hoist__populator_done(struct hoist__populator *populator, size_t *ret)
{
	pthread_mutex_lock(&populator->mutex);
	int err = look(populator, ret);
	pthread_mutex_unlock(&populator->mutex);
	return err;
}

int hoist__populator_wait(struct hoist__populator *populator, size_t bytes, uint64_t timeout_ns)
{
	struct hoist__populator *p = populator;
	uint64_t deadline = hoist__deadline(timeout_ns);
	size_t want = hoist__min_u64(bytes, p->end - p->start);
	size_t done = 0;
	pthread_mutex_lock(&p->mutex);
	int err = look(p, &done);
	while (err == 0 && done < want) {
		int waited = hoist__condition_wait(&p->progress, &p->mutex, deadline);
		err = look(p, &done);
		if (err == 0 && done < want && waited != 0)
			err = hoist__fail(-EAGAIN, "%zu of %zu bytes are populated so far", done,
					  want);
	}
	pthread_mutex_unlock(&p->mutex);
	return err;
}

void hoist__populator_stop(struct hoist__populator *populator)
{
	struct hoist__populator *p = populator;
	if (p == NULL)
		return;
	/* A child after fork has no such threads, and the lock may be theirs. */
	if (p->pid == getpid()) {
		pthread_mutex_lock(&p->mutex);
		p->stop = true;
		pthread_mutex_unlock(&p->mutex);
		for (unsigned i = 0; i < p->n_threads; i++)
			pthread_join(p->threads[i], NULL);
		pthread_cond_destroy(&p->progress);
		pthread_mutex_destroy(&p->mutex);
	}
	free(p->done);
	free(p);
}
