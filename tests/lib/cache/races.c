/* SPDX-License-Identifier: MIT */
/* Processes that add, attach and drop at once; holders and adders that are killed; threads.
 * Exit: 0, 1. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/cache/cache.h"
#include "tests/support/lib-cache.h"
#include "tests/support/patience.h"
#include "tests/support/under-tsan.h"

#define N 3
#define BYTES 300000u
#define AT_LEAST 20 /* times, however slow */

static char model[4096];

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* At least so often, and until then. */
static bool goes_on(unsigned *n, double until)
{
	return (*n)++ < AT_LEAST || now() < until;
}

/* A process that does it for so many seconds, and with what seed. */
static pid_t start(void (*what)(double until, unsigned seed), double seconds, unsigned seed)
{
	(void)fflush(stdout);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		what(now() + seconds, seed);
		exit(0);
	}
	return child;
}

static void expect_well(pid_t child)
{
	int status = -1;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static size_t n_images(void)
{
	hoist_cache_list *list = NULL;
	OK(hoist_cache_list_create(&list));
	size_t n = hoist_cache_list_n_images(list);
	hoist_cache_list_destroy(list);
	return n;
}

static void drop_all(void)
{
	int err = hoist_cache_drop(NULL, NULL);
	CHECK(err == 0 || err == -ENOENT);
	cache_wait_for_end();
}

/* --- many processes that add one model --- */

static int n_loads; /* of this process */

static int count_load(void *context, uint64_t done, uint64_t total)
{
	(void)context;
	(void)done;
	n_loads |= total > 0;
	return 0;
}

static void add_once(double until, unsigned seed)
{
	hoist_image *image = NULL;
	const hoist_cache_options options = {.size = sizeof options, .progress = count_load};
	(void)until;
	(void)seed;
	OK(hoist_cache_add(model, &options, &image));
	cache_check(image, N, BYTES, 1);
	hoist_image_close(image);
	exit(n_loads);
}

static void run_many_adders(void)
{
	pid_t children[6];
	int loaded = 0;
	for (int i = 0; i < 6; i++)
		children[i] = start(add_once, 0, 0);
	for (int i = 0; i < 6; i++) {
		int status = -1;
		CHECK(waitpid(children[i], &status, 0) == children[i] && WIFEXITED(status));
		CHECK(WEXITSTATUS(status) <= 1);
		loaded += WEXITSTATUS(status);
	}
	CHECK(loaded == 1 && n_images() == 1);
	drop_all();
	cache_wait_for_no_folder();
}

/* --- all at once --- */

static void keep_adding(double until, unsigned seed)
{
	unsigned times = 0;
	while (goes_on(&times, until)) {
		const hoist_cache_options options = {
			.size = sizeof options, .flags = seed % 2 != 0 ? HOIST_CACHE_REPLACE : 0};
		hoist_image *image = NULL;
		OK(hoist_cache_add(model, &options, &image));
		CHECK(hoist_image_n_tensors(image) == N);
		hoist_image_close(image);
	}
}

static void keep_attaching(double until, unsigned seed)
{
	unsigned times = 0;
	unsigned long n = 0;
	(void)seed;
	while (goes_on(&times, until)) {
		hoist_image *image = NULL;
		int err = hoist_cache_attach(model, 0, &image);
		CHECK(err == 0 || err == -ENOENT);
		if (err == 0 && n++ % 8 == 0)
			cache_check(image, N, BYTES, 1);
		hoist_image_close(image);
	}
}

static void keep_dropping(double until, unsigned seed)
{
	unsigned times = 0;
	while (goes_on(&times, until)) {
		int err = hoist_cache_drop(seed % 2 != 0 ? model : NULL, NULL);
		CHECK(err == 0 || err == -ENOENT);
		(void)usleep(300 * seed);
		(void)n_images();
	}
}

static void keep_killing(double until, unsigned seed)
{
	unsigned times = 0;
	while (goes_on(&times, until)) {
		int holder = cache_holder();
		if (holder > 0)
			(void)kill(holder, SIGKILL);
		(void)usleep(1000 * seed);
	}
}

static void run_at_once(void)
{
	pid_t children[6];
	const double seconds = 1;
	children[0] = start(keep_adding, seconds, 0);
	children[1] = start(keep_adding, seconds, 1);
	children[2] = start(keep_attaching, seconds, 0);
	children[3] = start(keep_attaching, seconds, 0);
	children[4] = start(keep_dropping, seconds, 1);
	children[5] = start(keep_dropping, seconds, 2);
	for (int i = 0; i < 6; i++)
		expect_well(children[i]);
	drop_all();
	cache_wait_for_no_folder();
}

/* Each drop is the last one: its folder goes while the next adder takes a lock in it. */
static void add_and_drop(double until, unsigned seed)
{
	unsigned times = 0;
	char path[4096 + 16];
	(void)snprintf(path, sizeof path, "%s.%u", model, seed);
	cache_write(path, 1, 1, seed);
	while (goes_on(&times, until)) {
		OK(hoist_cache_add(path, NULL, NULL));
		int err = hoist_cache_drop(path, NULL);
		CHECK(err == 0 || err == -ENOENT);
	}
}

static void make_and_remove_folder(double until, unsigned seed)
{
	unsigned times = 0;
	while (goes_on(&times, until)) {
		struct hoist__cache_lock lock;
		struct hoist__lock_name name = hoist__cache_lock_name(seed == 0 ? "a" : "b");
		OK(hoist__cache_lock(name.text, &lock));
		hoist__cache_unlock(&lock);
	}
}

static void run_last_drops(void)
{
	pid_t children[4];
	children[0] = start(add_and_drop, 1, 1);
	children[1] = start(add_and_drop, 1, 2);
	children[2] = start(make_and_remove_folder, 1, 0);
	children[3] = start(make_and_remove_folder, 1, 1);
	for (int i = 0; i < 4; i++)
		expect_well(children[i]);
	cache_wait_for_no_folder();
}

/* An adder tries anew a few times; faster killers make the adder give up, and say so. */
static void keep_adding_among_killers(double until, unsigned seed)
{
	unsigned times = 0;
	(void)seed;
	while (goes_on(&times, until)) {
		int err = hoist_cache_add(model, NULL, NULL);
		CHECK(err == 0 || err == -EPIPE || err == -ECHILD || err == -EAGAIN);
	}
}

static void run_killed_holders(void)
{
	pid_t children[3];
	children[0] = start(keep_adding_among_killers, 1, 0);
	children[1] = start(keep_attaching, 1, 0);
	children[2] = start(keep_killing, 1, 20);
	for (int i = 0; i < 3; i++)
		expect_well(children[i]);
	/* One that was killed leaves its socket behind, which hurts nobody. */
	OK(hoist_cache_add(model, NULL, NULL));
	int holder = cache_holder();
	CHECK(holder > 0);
	OK(kill(holder, SIGKILL));
	for (uint64_t until = 0; cache_holder() == holder;)
		CHECK(patience(&until));
	CHECK(access(cache_path("hoist/holder"), F_OK) == 0);
	hoist_image *image = NULL;
	CHECK(hoist_cache_attach(model, 0, &image) == -ENOENT);
	CHECK(n_images() == 0);
	OK(hoist_cache_add(model, NULL, &image));
	CHECK(cache_holder() > 0 && cache_holder() != holder);
	cache_check(image, N, BYTES, 1);
	hoist_image_close(image);
	drop_all();
}

/* --- adders that are killed --- */

static void add_and_end(double until, unsigned seed)
{
	const hoist_cache_options options = {.size = sizeof options, .flags = HOIST_CACHE_REPLACE};
	(void)until;
	(void)seed;
	for (;;)
		OK(hoist_cache_add(model, &options, NULL));
}

/* Each image that is there is whole. */
static void run_killed_adders(void)
{
	unsigned long there = 0;
	for (unsigned i = 0; i < 30; i++) {
		hoist_image *image = NULL;
		int status = 0;
		pid_t child = start(add_and_end, 0, 0);
		(void)usleep(i * 700);
		OK(kill(child, SIGKILL));
		CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
		int err = hoist_cache_attach(model, 0, &image);
		CHECK(err == 0 || err == -ENOENT);
		if (err == 0)
			cache_check(image, N, BYTES, 1);
		hoist_image_close(image);
		there += err == 0;
		if (i % 8 == 7)
			drop_all();
	}
	printf("30 adders were killed; %lu images were there\n", there);
	/* Whatever lock they had is free. */
	OK(hoist_cache_add(model, NULL, NULL));
	CHECK(n_images() == 1);
	drop_all();
	cache_wait_for_no_folder();
}

/* --- threads, and a fork --- */

static _Atomic bool done;

static void *attach_often(void *argument)
{
	hoist_image *shared = argument;
	for (int i = 0; i < 50; i++) {
		hoist_image *image = NULL;
		hoist_buffer *buffer = NULL;
		OK(hoist_cache_attach(model, 0, &image));
		OK(hoist_image_buffer(image, (size_t)i % N, &buffer));
		hoist_image_close(image);
		((unsigned char *)hoist_buffer_data(buffer))[i] = 0xff;
		hoist_buffer_unref(buffer);
		OK(hoist_image_buffer(shared, (size_t)i % N, &buffer));
		CHECK(((const unsigned char *)hoist_buffer_data(buffer))[i] ==
		      cache_byte((size_t)i % N, (size_t)i, 1));
		hoist_buffer_unref(buffer);
		OK(hoist_cache_add(model, NULL, NULL));
	}
	return NULL;
}

static void *list_often(void *argument)
{
	(void)argument;
	while (!atomic_load(&done))
		CHECK(n_images() == 1);
	return NULL;
}

static void check_in_child(hoist_image *image)
{
	int status = -1;
	(void)fflush(stdout);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		cache_check(image, N, BYTES, 1);
		hoist_image_close(image);
		hoist_image *again = NULL;
		OK(hoist_cache_attach(model, 0, &again));
		cache_check(again, N, BYTES, 1);
		hoist_image_close(again);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void run_threads(void)
{
	hoist_image *image = NULL;
	pthread_t threads[4];
	OK(hoist_cache_add(model, NULL, &image));
	check_in_child(image);
	for (int i = 0; i < 4; i++)
		OK(pthread_create(&threads[i], NULL, i < 3 ? attach_often : list_often, image));
	for (int i = 0; i < 4; i++) {
		OK(pthread_join(threads[i], NULL));
		if (i == 2)
			atomic_store(&done, true);
	}
	hoist_image_close(image);
	drop_all();
}

int main(int argc, char **argv)
{
	(void)cache_test_begin(argc, argv);
	(void)snprintf(model, sizeof model, "%s", cache_path("model.safetensors"));
	cache_write(model, N, BYTES, 1);
	if (!UNDER_TSAN) { /* it starts no threads in children, which loads may */
		run_many_adders();
		run_at_once();
		run_last_drops();
		run_killed_holders();
		run_killed_adders();
	}
	run_threads();
	return 0;
}
