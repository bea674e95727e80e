/* SPDX-License-Identifier: MIT */
/* Requests that bring work: the same tests for both engines. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "tests/support/io-helpers.h"
#include "tests/support/patience.h"

#define N 12u

struct task {
	struct hoist__request request;
	int result;	     /* to be returned */
	atomic_int *gate;    /* waited for, while 0; NULL: no wait */
	atomic_uint n_calls; /* of its function */
	bool elsewhere;	     /* called by another thread than the test's */
	pthread_t owner;
};

static int run(void *context)
{
	struct task *task = context;
	atomic_fetch_add(&task->n_calls, 1);
	task->elsewhere = pthread_equal(task->owner, pthread_self()) == 0;
	while (task->gate != NULL && atomic_load(task->gate) == 0)
		sched_yield();
	return task->result;
}

static void submit(struct hoist__engine *engine, const struct hoist__file *file, struct task *task)
{
	task->owner = pthread_self();
	task->request =
		(struct hoist__request){.file = file, .work = run, .owner = task, .buffer = -1};
	struct hoist__request *one = &task->request;
	cr_assert(hoist__engine_submit(engine, &one, 1) == 0, "%s", hoist__error_text());
}

/* Every function is called once, by another thread, and its result is the request's; reads of the
 * same engine end as always. */
Test(io_work, is_done_once_beside_reads)
{
	struct hoist__file *file = new_file(1 << 20);
	unsigned char *memory = new_memory(1 << 20);
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine *engine = new_engine(kind, N + 1, false);
		struct hoist__request read = read_of(file, memory, 0, 1 << 20);
		struct hoist__request *one = &read;
		struct task tasks[N] = {0};
		cr_assert(hoist__engine_submit(engine, &one, 1) == 0);
		for (unsigned i = 0; i < N; i++) {
			tasks[i].result = i % 3 == 0 ? -EDOM : 0;
			submit(engine, file, &tasks[i]);
		}
		reap_all(engine, N + 1);
		for (unsigned i = 0; i < N; i++) {
			cr_expect(atomic_load(&tasks[i].n_calls) == 1 && tasks[i].elsewhere);
			cr_expect(tasks[i].request.result == tasks[i].result);
		}
		cr_expect(read.result == 0 && first_wrong(file->fd, memory, 0, 1 << 20) == 1 << 20);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

/* Work that has begun ends with its own result, and work that has not is never called. */
Test(io_work, is_cancelled_before_its_call)
{
	struct hoist__file *file = new_file(4096);
	FOR_EACH_ENGINE(kind)
	{
		enum { MANY = 200 }; /* more than there are threads */
		struct hoist__engine *engine = new_engine(kind, MANY, false);
		struct task *tasks = calloc(MANY, sizeof *tasks);
		atomic_int gate = 0;
		unsigned n_called = 0;
		cr_assert(tasks != NULL);
		for (unsigned i = 0; i < MANY; i++) {
			tasks[i].gate = &gate;
			submit(engine, file, &tasks[i]);
		}
		while (atomic_load(&tasks[0].n_calls) == 0)
			sched_yield();
		hoist__engine_cancel(engine);
		atomic_store(&gate, 1);
		reap_all(engine, MANY);
		for (unsigned i = 0; i < MANY; i++) {
			bool called = atomic_load(&tasks[i].n_calls) == 1;
			cr_expect(tasks[i].request.result == (called ? 0 : -ECANCELED));
			n_called += called;
		}
		cr_expect(n_called >= 1 && n_called < MANY);
		free(tasks);
		hoist__engine_destroy(engine);
	}
	hoist__file_close(file);
}

/* The owner hears of a copy's end although works are queued that wait for the owner. */
Test(io_work, keeps_no_end_of_a_copy_from_its_owner)
{
	struct hoist__file *file = new_file(1 << 20);
	unsigned char *memory = new_memory(1 << 20);
	FOR_EACH_ENGINE(kind)
	{
		enum { MANY = 200 }; /* more than there are threads */
		struct hoist__engine *engine = new_engine(kind, MANY + 1, false);
		struct task *tasks = calloc(MANY, sizeof *tasks);
		struct hoist__request *batch[MANY + 1];
		struct hoist__request *ended = NULL;
		struct hoist__request read = read_of(file, memory, 0, 1 << 20);
		atomic_int gate = 0;
		cr_assert(tasks != NULL);
		read.hot = true;
		batch[0] = &read;
		for (unsigned i = 0; i < MANY; i++) {
			tasks[i].gate = &gate;
			tasks[i].request = (struct hoist__request){
				.file = file, .work = run, .owner = &tasks[i], .buffer = -1};
			batch[i + 1] = &tasks[i].request;
		}
		uint64_t until = patience_now() + PATIENCE_SECONDS * UINT64_C(1000000000);
		cr_assert(hoist__engine_submit(engine, batch, MANY + 1) == 0);
		int n = hoist__engine_reap(engine, &ended, 1,
					   PATIENCE_SECONDS * UINT64_C(1000000000));
		cr_expect(n == 1 && ended == &read && patience_now() < until);
		atomic_store(&gate, 1);
		reap_all(engine, MANY);
		cr_expect(first_wrong(file->fd, memory, 0, 1 << 20) == 1 << 20);
		free(tasks);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}
