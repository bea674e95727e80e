/* SPDX-License-Identifier: MIT */
/* Every function of a load, from many threads at once, while two loads of one
 * checkpoint share a budget.  ThreadSanitizer watches. */
#include "config.h"

#include <hoist/timeline.h>

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#include "tests/support/load-support.h"
#include "tests/support/random.h"

#define MIB ((size_t)1 << 20)
#define N_USERS 4

struct job {
	hoist_load *load;
	bool steps;
	bool cancels;
	uint64_t seed;
};

static bool may_come(int err)
{
	return err == 0 || err == -EAGAIN || err == -ECANCELED;
}

static void *use(void *argument)
{
	struct job *job = argument;
	hoist_load *load = job->load;
	uint64_t before = 0;
	hoist_load_report times = {.size = sizeof times};
	for (int i = 0; i < 50; i++) {
		uint64_t done, total;
		hoist_load_progress(load, &done, &total);
		CHECK(done >= before && done <= total);
		before = done;
		hoist_load_report report = {.size = sizeof report};
		int err = hoist_load_get_report(load, &report);
		CHECK(err == 0 || err == -EAGAIN);
		support_times(load, &times);
		size_t n;
		err = hoist_load_n_intervals(load, &n, NULL);
		CHECK(err == 0 || err == -EAGAIN || err == -EINVAL);
		hoist_buffer *buffer = NULL;
		size_t tensor;
		err = hoist_load_tensor(load, (size_t)i % hoist_load_n_tensors(load), &tensor,
					&buffer);
		CHECK(may_come(err) && (err == 0) == (buffer != NULL));
		hoist_buffer_unref(buffer);
		buffer = NULL;
		err = hoist_load_buffer(load, "t000000", &buffer);
		CHECK(may_come(err) && (err == 0) == (buffer != NULL));
		hoist_buffer_unref(buffer);
		if (job->steps)
			CHECK(hoist_load_step(load, 10000) >= 0);
		if (job->cancels && i == 20)
			hoist_load_cancel(load);
		usleep((useconds_t)random_below(&job->seed, 50));
	}
	int err = hoist_load_wait(load);
	CHECK(err == 0 || err == -ECANCELED);
	return NULL;
}

static void two_loads(hoist_checkpoint *checkpoint, hoist_load_options o, bool cancels)
{
	hoist_load *load, *other;
	pthread_t threads[N_USERS];
	struct job jobs[N_USERS];
	OK(hoist_budget_create(3 * MIB, &o.budget));
	OK(hoist_load_start(checkpoint, &o, &load));
	bool steps = o.flags != 0;
	o.flags = 0;
	OK(hoist_load_start(checkpoint, &o, &other));
	for (unsigned i = 0; i < N_USERS; i++) {
		jobs[i] = (struct job){load, steps && i % 2 == 0, cancels && i == 1, i};
		OK(pthread_create(&threads[i], NULL, use, &jobs[i]));
	}
	for (unsigned i = 0; i < N_USERS; i++)
		OK(pthread_join(threads[i], NULL));
	hoist_load_destroy(load);
	OK(hoist_load_wait(other));
	support_compare(checkpoint, other);
	hoist_load_destroy(other);
	CHECK(hoist_budget_used(o.budget) == 0);
	hoist_budget_unref(o.budget);
}

/* Takes tensors of a load that gives them one by one; each goes to one of the threads. */
static void *take(void *argument)
{
	struct job *job = argument;
	hoist_load_item item = {.size = sizeof item};
	size_t n = 0;
	int got;
	while ((got = hoist_load_next(job->load, UINT64_MAX, &item)) != 0) {
		if (got == -ECANCELED)
			break;
		CHECK(got == 1 || got == -ENOBUFS);
		if (got == -ENOBUFS)
			usleep(50);
		if (got == 1)
			usleep((useconds_t)random_below(&job->seed, 300));
		if (got == 1)
			hoist_buffer_unref(item.buffer);
		n += got == 1;
		if (job->cancels && n == 3)
			hoist_load_cancel(job->load);
		if (!job->steps)
			CHECK(hoist_load_fd(job->load) >= 0);
	}
	return (void *)n;
}

static void take_together(hoist_checkpoint *checkpoint, hoist_load_options o, bool cancels)
{
	hoist_load *load;
	pthread_t threads[N_USERS];
	struct job jobs[N_USERS];
	size_t n = 0;
	bool steps = o.flags != 0;
	o.flags |= HOIST_LOAD_STREAM;
	o.window_bytes = 3 * MIB;
	OK(hoist_load_start(checkpoint, &o, &load));
	for (unsigned i = 0; i < N_USERS; i++) {
		jobs[i] = (struct job){load, steps, cancels && i == 1, i};
		OK(pthread_create(&threads[i], NULL, take, &jobs[i]));
	}
	for (unsigned i = 0; i < N_USERS; i++) {
		void *taken;
		OK(pthread_join(threads[i], &taken));
		n += (size_t)taken;
	}
	CHECK(cancels || n == hoist_load_n_tensors(load));
	hoist_load_destroy(load);
}

int main(void)
{
	static const char *const specs[] = {"cpu", "cuda:0"};
	static const size_t sizes[] = {MIB + 5, 3, 4 * MIB, 77777, 2 * MIB};
	const char *path = support_path("m.safetensors");
	support_emulate("cuda:1");
	support_write("m.safetensors", 0, 5, sizes, -1);
	hoist_checkpoint *checkpoint = support_open(path);
	for (unsigned i = 0; i < 32; i++) {
		hoist_load_options o = {.size = sizeof o,
					.engine = i / 2 % 2 ? HOIST_ENGINE_THREADS
							    : HOIST_ENGINE_AUTO,
					.io = i / 16 ? HOIST_IO_CACHED : HOIST_IO_AUTO,
					.flags = i / 4 % 2 ? HOIST_LOAD_CALLER_DRIVEN : 0};
		OK(hoist_device_open(specs[i % 2], &o.device));
		two_loads(checkpoint, o, i / 8 % 2 != 0);
		take_together(checkpoint, o, i / 8 % 2 != 0);
		hoist_device_unref(o.device);
	}
	hoist_checkpoint_close(checkpoint);
	support_cleanup();
	return 0;
}
