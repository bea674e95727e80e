/* SPDX-License-Identifier: MIT */
/* Threads that view, export and drop a buffer over a DLPack tensor.  The last thread calls the
 * deleter, once, after every use of the memory. */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check.h"
#include "tests/support/lib-dlpack.h"
#include "tests/support/lib-make.h"
#include "tests/support/random.h"
#include "tests/support/threads.h"

#define N_THREADS 4
#define ROUNDS 300
#define N 256

/* The deleter frees the memory: a reader that comes later is seen by the sanitizers. */
struct lent {
	struct lib_offer offer;
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
	CHECK(lent != NULL);
	lent->memory = malloc(N);
	CHECK(lent->memory != NULL);
	memset(lent->memory, 5, N);
	lib_offer(&lent->offer, lent->memory, HOIST_U8, 1, SHAPE(N), NULL);
	lent->offer.u.managed.deleter = delete;
	return imported(lib_managed(&lent->offer), NULL, 0);
}

static hoist_buffer *shared;
static pthread_barrier_t barrier;

static void view_export_and_drop(hoist_buffer *own, uint64_t *seed)
{
	unsigned char got[N] = {0};
	int64_t at = (int64_t)(random_next(seed) % (N / 2));
	const hoist_slice slice[] = {HOIST_RANGE(at, at + N / 2)};
	hoist_buffer *view = make_slice(own, 1, slice);
	struct DLManagedTensorVersioned *tensor = exported(view, NULL);
	DROP(own, view);
	hoist_buffer *back = imported(tensor, NULL, 0);
	OK(hoist_buffer_copy_out(back, got, N / 2));
	CHECK(got[0] == 5 && got[N / 2 - 1] == 5);
	hoist_buffer_unref(back);
}

static void *work(void *argument)
{
	uint64_t seed = (uintptr_t)argument + 1;
	for (unsigned round = 0; round < ROUNDS; round++) {
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			shared = borrow();
		(void)pthread_barrier_wait(&barrier);
		hoist_buffer *own = hoist_buffer_ref(shared);
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			hoist_buffer_unref(shared);
		view_export_and_drop(own, &seed);
		(void)pthread_barrier_wait(&barrier);
		CHECK(atomic_load(&n_deleted) == round + 1);
		(void)pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* proves: S5.05 V208 */
int main(void)
{
	CHECK(pthread_barrier_init(&barrier, NULL, N_THREADS) == 0);
	run_threads(N_THREADS, work, NULL, 0);
	(void)pthread_barrier_destroy(&barrier);
	CHECK(atomic_load(&n_deleted) == ROUNDS);
	return 0;
}
