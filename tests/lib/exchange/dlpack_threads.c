/* SPDX-License-Identifier: MIT */
/* Threads that view, export and drop what came in by DLPack: its deleter is called once, by
 * whoever is last, and after all that was done with the memory. */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/dlpack.h"
#include "hoist/hoist.h"
#include "tests/support/lib-dlpack.h"
#include "tests/support/lib-support.h"
#include "tests/support/random.h"

#define N_THREADS 4
#define ROUNDS 300
#define N 256

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	(void)fprintf(stderr, "%s: %s\n", what, hoist_error());
	exit(1);
}

/* The deleter frees the memory: a reader that comes later is seen by the sanitizers. */
struct lent {
	hoist_dl_managed managed;
	int64_t shape[1];
	unsigned char *memory;
};

static atomic_uint n_deleted;

static void delete (struct DLManagedTensorVersioned *self)
{
	struct lent *lent = (struct lent *)(void *)self;
	free(lent->memory);
	free(lent);
	atomic_fetch_add(&n_deleted, 1);
}

static hoist_buffer *borrow(void)
{
	struct lent *lent = calloc(1, sizeof *lent);
	require(lent != NULL, "memory");
	lent->memory = malloc(N);
	require(lent->memory != NULL, "memory");
	memset(lent->memory, 5, N);
	lent->shape[0] = N;
	lent->managed = (hoist_dl_managed){
		.major = 1,
		.minor = 1,
		.deleter = delete,
		.tensor = {.data = lent->memory,
			   .device = {HOIST_DL_CPU, 0},
			   .rank = 1,
			   .dtype = {1, 8, 1},
			   .shape = lent->shape},
	};
	hoist_buffer *b = NULL;
	require(hoist_buffer_from_dlpack((struct DLManagedTensorVersioned *)(void *)lent, NULL, 0,
					 &b) == 0,
		"importing");
	return b;
}

static hoist_buffer *shared;
static pthread_barrier_t barrier;

static void view_export_and_drop(hoist_buffer *own, uint64_t *seed)
{
	hoist_buffer *view = NULL;
	hoist_buffer *back = NULL;
	struct DLManagedTensorVersioned *tensor = NULL;
	unsigned char got[N] = {0};
	int64_t at = (int64_t)(random_next(seed) % (N / 2));
	const hoist_slice slice[] = {HOIST_RANGE(at, at + N / 2)};
	require(hoist_buffer_slice(own, 1, slice, &view) == 0, "a view");
	require(hoist_buffer_to_dlpack(view, NULL, &tensor) == 0, "exporting");
	hoist_buffer_unref(own);
	hoist_buffer_unref(view);
	require(hoist_buffer_from_dlpack(tensor, NULL, 0, &back) == 0, "importing again");
	require(hoist_buffer_copy_out(back, got, N / 2) == 0, "reading");
	require(got[0] == 5 && got[N / 2 - 1] == 5, "the bytes");
	hoist_buffer_unref(back);
}

static void *work(void *argument)
{
	uint64_t seed = *(unsigned *)argument + 1;
	for (unsigned round = 0; round < ROUNDS; round++) {
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			shared = borrow();
		(void)pthread_barrier_wait(&barrier);
		hoist_buffer *own = hoist_buffer_ref(shared);
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			hoist_buffer_unref(shared);
		view_export_and_drop(own, &seed);
		(void)pthread_barrier_wait(&barrier);
		require(atomic_load(&n_deleted) == round + 1, "once a round");
		(void)pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* proves: S5.05 V208 */
static void run(void)
{
	pthread_t threads[N_THREADS];
	unsigned numbers[N_THREADS];
	require(pthread_barrier_init(&barrier, NULL, N_THREADS) == 0, "a barrier");
	for (unsigned i = 0; i < N_THREADS; i++) {
		numbers[i] = i;
		require(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0, "a thread");
	}
	for (unsigned i = 0; i < N_THREADS; i++)
		require(pthread_join(threads[i], NULL) == 0, "joining");
	(void)pthread_barrier_destroy(&barrier);
	require(atomic_load(&n_deleted) == ROUNDS, "each once");
}

int main(void)
{
	run();
	return 0;
}
