/* SPDX-License-Identifier: MIT */
/* Pointers of the caller's on hoist's objects (hoist/user.h): the object that owns the slot, the
 * time and the thread of a pointer's release; threads that set one at once, and forks meanwhile. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hoist/user.h"
#include "tests/support/check.h"
#include "tests/support/child.h"
#include "tests/support/lib-make.h"
#include "tests/support/lib-support.h"
#include "tests/support/quiet-fork.h"
#include "tests/support/threads.h"

#define N_THREADS 4
#define ROUNDS 200
#define CHILD_SECONDS 60

static hoist_device *devices[LIB_N_DEVICES];

/* --- objects of four kinds, as one --- */

struct object {
	int kind;
	void *it;
};

enum { BUFFER, DEVICE, STREAM, MEMORY, N_KINDS };
static const char *const kinds[N_KINDS] = {"buffer", "device", "stream", "memory"};

static struct object make(int kind, hoist_device *device)
{
	if (kind == BUFFER)
		return (struct object){kind, make_buffer(device, HOIST_U8, 2, SHAPE(4, 8), 0)};
	if (kind == DEVICE)
		return (struct object){kind, hoist_device_ref(device)};
	if (kind == STREAM)
		return (struct object){kind, make_stream(device)};
	return (struct object){kind, make_kind(HOIST_MEMORY_DEVICE, device)};
}

static void drop(struct object object)
{
	if (object.kind == BUFFER)
		hoist_buffer_unref(object.it);
	else if (object.kind == DEVICE)
		hoist_device_unref(object.it);
	else if (object.kind == STREAM)
		hoist_stream_unref(object.it);
	else
		hoist_memory_unref(object.it);
}

static int set(struct object object, void *expected, void *data, void (*end)(void *data))
{
	return object.kind == BUFFER   ? hoist_buffer_set_user(object.it, expected, data, end)
	       : object.kind == DEVICE ? hoist_device_set_user(object.it, expected, data, end)
	       : object.kind == STREAM ? hoist_stream_set_user(object.it, expected, data, end)
				       : hoist_memory_set_user(object.it, expected, data, end);
}

static void *get(struct object object)
{
	return object.kind == BUFFER   ? hoist_buffer_get_user(object.it)
	       : object.kind == DEVICE ? hoist_device_get_user(object.it)
	       : object.kind == STREAM ? hoist_stream_get_user(object.it)
				       : hoist_memory_get_user(object.it);
}

/* The wrapper object of a binding. */
struct wrapper {
	int n_released;
	pthread_t by;
};

static void count_release(void *data)
{
	struct wrapper *wrapper = data;
	wrapper->n_released++;
	wrapper->by = pthread_self();
}

static bool released_here(const struct wrapper *wrapper)
{
	return wrapper->n_released == 1 && pthread_equal(wrapper->by, pthread_self());
}

/* --- one thread --- */

static void a_slot_takes_a_wrapper_only_for_the_expected_one(int kind, hoist_device *device)
{
	struct object object = make(kind, device);
	struct wrapper first = {0};
	struct wrapper second = {0};
	struct wrapper last = {0};
	check_at("%s of %s", kinds[kind], hoist_device_spec(device));
	CHECK(get(object) == NULL);
	CHECK(set(object, NULL, NULL, NULL) == 0);
	CHECK(set(object, NULL, &first, count_release) == 0 && get(object) == &first);
	CHECK(set(object, NULL, &second, count_release) == -EBUSY);
	CHECK(set(object, &last, &second, count_release) == -EBUSY);
	CHECK(get(object) == &first && first.n_released + second.n_released == 0);
	CHECK(set(object, &first, &second, NULL) == 0 && get(object) == &second);
	CHECK(released_here(&first));
	CHECK(set(object, &second, NULL, count_release) == -EINVAL);
	CHECK(get(object) == &second);
	CHECK(set(object, &second, NULL, NULL) == 0 && get(object) == NULL);
	CHECK(second.n_released == 0);
	CHECK(set(object, NULL, &last, count_release) == 0);
	drop(object);
	if (kind == DEVICE) {
		CHECK(last.n_released == 0 && get(object) == &last);
		CHECK(set(object, &last, NULL, NULL) == 0);
	}
	CHECK(released_here(&last));
	CHECK(second.n_released == 0);
	const struct object none = {kind, NULL};
	CHECK(set(none, NULL, &first, NULL) == -EINVAL);
}

static void a_slot_is_of_the_object_and_not_of_its_memory(hoist_device *device)
{
	struct object base = make(BUFFER, device);
	hoist_buffer *same = NULL;
	struct wrapper of_base = {0};
	struct wrapper of_view = {0};
	CHECK(set(base, NULL, &of_base, count_release) == 0);
	struct object view = {BUFFER, make_slice(base.it, 1, SLICES(HOIST_AT(1)))};
	CHECK(get(view) == NULL && set(view, NULL, &of_view, count_release) == 0);
	CHECK(hoist_buffer_to(base.it, device, &same) == 0 && same == base.it);
	CHECK(hoist_buffer_get_user(same) == &of_base);
	hoist_buffer_unref(same);
	CHECK(hoist_buffer_close(base.it, NULL) == 0 && get(base) == &of_base);
	drop(base);
	CHECK(released_here(&of_base) && of_view.n_released == 0);
	drop(view);
	CHECK(released_here(&of_view));
}

static void devices_and_their_default_streams_are_found_again(hoist_device *device)
{
	struct wrapper of_device = {0};
	struct wrapper of_stream = {0};
	check_at("%s", hoist_device_spec(device));
	OK(hoist_device_set_user(device, NULL, &of_device, NULL));
	hoist_device *again = open_device(hoist_device_spec(device));
	CHECK(hoist_device_get_user(again) == &of_device);
	hoist_stream *first = default_stream(device);
	OK(hoist_stream_set_user(first, NULL, &of_stream, NULL));
	hoist_stream *second = default_stream(again);
	CHECK(hoist_stream_get_user(second) == &of_stream);
	OK(hoist_stream_set_user(first, &of_stream, NULL, NULL));
	OK(hoist_device_set_user(again, &of_device, NULL, NULL));
	DROP_STREAMS(first, second);
	hoist_device_unref(again);
}

/* --- threads --- */

static pthread_barrier_t barrier;
static struct object shared;
static struct wrapper wrappers[N_THREADS];
static atomic_int n_won;

/* All find the object without a wrapper, and make one each. */
static void *wrap_at_once(void *context)
{
	struct wrapper *own = context;
	(void)pthread_barrier_wait(&barrier);
	int err = set(shared, NULL, own, count_release);
	CHECK(err == 0 || err == -EBUSY);
	if (err == 0)
		atomic_fetch_add(&n_won, 1);
	struct wrapper *got = get(shared);
	CHECK(got != NULL && (got == own) == (err == 0));
	(void)pthread_barrier_wait(&barrier);
	drop(shared);
	return NULL;
}

static void one_of_several_threads_sets_its_pointer(int kind)
{
	shared = make(kind, devices[0]);
	atomic_store(&n_won, 0);
	for (int i = 0; i < N_THREADS; i++) {
		wrappers[i] = (struct wrapper){0};
		if (kind == BUFFER)
			(void)hoist_buffer_ref(shared.it);
		else
			(void)hoist_memory_ref(shared.it);
	}
	drop(shared);
	run_threads(N_THREADS, wrap_at_once, wrappers, sizeof wrappers[0]);
	int n_released = 0;
	for (int i = 0; i < N_THREADS; i++)
		n_released += wrappers[i].n_released;
	CHECK(atomic_load(&n_won) == 1 && n_released == 1);
}

/* --- fork --- */

static atomic_bool done;

static void *set_and_clear(void *context)
{
	struct object object = make(MEMORY, devices[0]);
	while (!atomic_load(&done)) {
		CHECK(set(object, NULL, context, count_release) == 0);
		CHECK(set(object, context, NULL, NULL) == 0);
	}
	drop(object);
	return NULL;
}

static void a_child_of_fork_goes_on_setting(void)
{
	struct wrapper of_thread = {0};
	struct wrapper of_parent = {0};
	struct wrapper of_child = {0};
	pthread_t thread;
	struct object object = make(BUFFER, devices[0]);
	CHECK(set(object, NULL, &of_parent, count_release) == 0);
	CHECK(pthread_create(&thread, NULL, set_and_clear, &of_thread) == 0);
	for (int i = 0; i < 50; i++) {
		pid_t pid = quiet_fork();
		if (pid == 0) {
			(void)alarm(CHILD_SECONDS);
			int err = set(object, &of_parent, &of_child, count_release);
			drop(object);
			_exit(err == 0 && of_parent.n_released == 1 && of_child.n_released == 1
				      ? 0
				      : 1);
		}
		CHECK(child_status(pid) == 0);
	}
	atomic_store(&done, true);
	(void)pthread_join(thread, NULL);
	CHECK(of_parent.n_released == 0);
	drop(object);
	CHECK(released_here(&of_parent));
}

int main(void)
{
	(void)alarm(250);
	lib_need_emulators();
	lib_open_all(devices);
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		for (int kind = 0; kind < N_KINDS; kind++)
			a_slot_takes_a_wrapper_only_for_the_expected_one(kind, devices[i]);
		a_slot_is_of_the_object_and_not_of_its_memory(devices[i]);
		devices_and_their_default_streams_are_found_again(devices[i]);
	}
	(void)pthread_barrier_init(&barrier, NULL, N_THREADS);
	for (int i = 0; i < ROUNDS; i++)
		one_of_several_threads_sets_its_pointer(i % 2 == 0 ? BUFFER : MEMORY);
	a_child_of_fork_goes_on_setting();
	for (int i = 0; i < LIB_N_DEVICES; i++)
		hoist_device_unref(devices[i]);
	return 0;
}
