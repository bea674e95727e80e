/* SPDX-License-Identifier: MIT */
/* Pointers of the caller's on hoist's objects (hoist/user.h): whose slot it is, when and where a
 * pointer is released; threads that set one at once, and forks in the middle of that. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "hoist/user.h"
#include "tests/support/lib-support.h"
#include "tests/support/quiet-fork.h"

#define N_THREADS 4
#define ROUNDS 200
#define CHILD_SECONDS 60

static hoist_device *devices[LIB_N_DEVICES];

static void require(bool condition, const char *what, const char *of)
{
	if (condition)
		return;
	(void)fprintf(stderr, "%s (%s): %s\n", what, of, hoist_error());
	exit(1);
}

/* --- objects of four kinds, as one --- */

struct object {
	int kind;
	void *it;
};

enum { BUFFER, DEVICE, STREAM, MEMORY, N_KINDS };
static const char *const kinds[N_KINDS] = {"buffer", "device", "stream", "memory"};

static struct object make(int kind, hoist_device *device)
{
	const int64_t shape[] = {4, 8};
	const hoist_memory_options options = {
		.size = sizeof options, .kind = HOIST_MEMORY_DEVICE, .device = device};
	struct object made = {kind, NULL};
	hoist_buffer *buffer = NULL;
	hoist_stream *stream = NULL;
	hoist_memory *memory = NULL;
	int err = 0;
	switch (kind) {
	case BUFFER:
		err = hoist_buffer_create(device, HOIST_U8, 2, shape, 0, &buffer);
		made.it = buffer;
		break;
	case DEVICE:
		made.it = hoist_device_ref(device);
		break;
	case STREAM:
		err = hoist_stream_create(device, &stream);
		made.it = stream;
		break;
	default:
		err = hoist_memory_create(&options, &memory);
		made.it = memory;
	}
	require(err == 0, "make", kinds[kind]);
	return made;
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

static int set(struct object object, void *expected, void *data, void (*release)(void *data))
{
	return object.kind == BUFFER   ? hoist_buffer_set_user(object.it, expected, data, release)
	       : object.kind == DEVICE ? hoist_device_set_user(object.it, expected, data, release)
	       : object.kind == STREAM ? hoist_stream_set_user(object.it, expected, data, release)
				       : hoist_memory_set_user(object.it, expected, data, release);
}

static void *get(struct object object)
{
	return object.kind == BUFFER   ? hoist_buffer_get_user(object.it)
	       : object.kind == DEVICE ? hoist_device_get_user(object.it)
	       : object.kind == STREAM ? hoist_stream_get_user(object.it)
				       : hoist_memory_get_user(object.it);
}

/* What a binding would have. */
struct wrapper {
	int n_released;
	pthread_t by;
};

static void release(void *data)
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

static void a_slot_holds_what_was_set_where_it_was_expected(int kind, hoist_device *device)
{
	struct object object = make(kind, device);
	struct wrapper first = {0};
	struct wrapper second = {0};
	struct wrapper last = {0};
	const char *of = kinds[kind];
	require(get(object) == NULL, "an empty slot", of);
	require(set(object, NULL, NULL, NULL) == 0, "nothing for nothing", of);
	require(set(object, NULL, &first, release) == 0 && get(object) == &first, "the first", of);
	require(set(object, NULL, &second, release) == -EBUSY, "it is taken", of);
	require(set(object, &last, &second, release) == -EBUSY, "by another", of);
	require(get(object) == &first && first.n_released + second.n_released == 0, "stays", of);
	require(set(object, &first, &second, NULL) == 0 && get(object) == &second, "replaced", of);
	require(released_here(&first), "released at once", of);
	require(set(object, &second, NULL, release) == -EINVAL, "release of NULL", of);
	require(get(object) == &second, "kept", of);
	require(set(object, &second, NULL, NULL) == 0 && get(object) == NULL, "cleared", of);
	require(second.n_released == 0, "without a function", of);
	require(set(object, NULL, &last, release) == 0, "the last", of);
	drop(object);
	if (kind == DEVICE) {
		require(last.n_released == 0 && get(object) == &last, "devices stay", of);
		require(set(object, &last, NULL, NULL) == 0, "until it is replaced", of);
	}
	require(released_here(&last), "released at the end", of);
	require(second.n_released == 0, "not what was taken out", of);
	const struct object none = {kind, NULL};
	require(set(none, NULL, &first, NULL) == -EINVAL, "NULL", of);
}

static void a_slot_is_of_the_object_and_not_of_its_memory(hoist_device *device)
{
	struct object base = make(BUFFER, device);
	struct object view = {BUFFER, NULL};
	hoist_buffer *same = NULL;
	hoist_buffer *slice = NULL;
	struct wrapper of_base = {0};
	struct wrapper of_view = {0};
	require(set(base, NULL, &of_base, release) == 0, "base", "set");
	require(hoist_buffer_slice(base.it, 1, (hoist_slice[]){HOIST_AT(1)}, &slice) == 0, "view",
		"slice");
	view.it = slice;
	require(get(view) == NULL && set(view, NULL, &of_view, release) == 0, "view", "its own");
	require(hoist_buffer_to(base.it, device, &same) == 0 && same == base.it, "base", "to");
	require(hoist_buffer_get_user(same) == &of_base, "base", "is itself");
	hoist_buffer_unref(same);
	require(hoist_buffer_close(base.it, NULL) == 0 && get(base) == &of_base, "base", "closed");
	drop(base);
	require(released_here(&of_base) && of_view.n_released == 0, "base", "dropped");
	drop(view);
	require(released_here(&of_view), "view", "dropped");
}

static void devices_and_their_default_streams_are_found_again(hoist_device *device)
{
	hoist_device *again = NULL;
	hoist_stream *first = NULL;
	hoist_stream *second = NULL;
	struct wrapper of_device = {0};
	struct wrapper of_stream = {0};
	const char *spec = hoist_device_spec(device);
	require(hoist_device_set_user(device, NULL, &of_device, NULL) == 0, "set", spec);
	require(hoist_device_open(spec, &again) == 0, "open", spec);
	require(hoist_device_get_user(again) == &of_device, "found", spec);
	require(hoist_device_default_stream(device, &first) == 0, "stream", spec);
	require(hoist_stream_set_user(first, NULL, &of_stream, NULL) == 0, "set", spec);
	require(hoist_device_default_stream(again, &second) == 0, "stream", spec);
	require(hoist_stream_get_user(second) == &of_stream, "found", spec);
	require(hoist_stream_set_user(first, &of_stream, NULL, NULL) == 0, "cleared", spec);
	require(hoist_device_set_user(again, &of_device, NULL, NULL) == 0, "cleared", spec);
	hoist_stream_unref(first);
	hoist_stream_unref(second);
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
	int err = set(shared, NULL, own, release);
	require(err == 0 || err == -EBUSY, "wrap", "thread");
	if (err == 0)
		atomic_fetch_add(&n_won, 1);
	struct wrapper *got = get(shared);
	require(got != NULL && (got == own) == (err == 0), "one wrapper for all", "thread");
	(void)pthread_barrier_wait(&barrier);
	drop(shared);
	return NULL;
}

static void of_several_threads_one_sets_its_pointer(int kind)
{
	pthread_t threads[N_THREADS];
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
	for (int i = 0; i < N_THREADS; i++)
		require(pthread_create(&threads[i], NULL, wrap_at_once, &wrappers[i]) == 0,
			"thread", "create");
	for (int i = 0; i < N_THREADS; i++)
		(void)pthread_join(threads[i], NULL);
	int n_released = 0;
	for (int i = 0; i < N_THREADS; i++)
		n_released += wrappers[i].n_released;
	require(atomic_load(&n_won) == 1 && n_released == 1, "one won, and was released",
		kinds[kind]);
}

/* --- fork --- */

static atomic_bool done;

static void *set_and_clear(void *context)
{
	struct object object = make(MEMORY, devices[0]);
	while (!atomic_load(&done)) {
		require(set(object, NULL, context, release) == 0, "set", "forking");
		require(set(object, context, NULL, NULL) == 0, "clear", "forking");
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
	require(set(object, NULL, &of_parent, release) == 0, "set", "parent");
	require(pthread_create(&thread, NULL, set_and_clear, &of_thread) == 0, "thread", "create");
	for (int i = 0; i < 50; i++) {
		int status;
		pid_t pid = quiet_fork();
		if (pid == 0) {
			(void)alarm(CHILD_SECONDS);
			int err = set(object, &of_parent, &of_child, release);
			drop(object);
			_exit(err == 0 && of_parent.n_released == 1 && of_child.n_released == 1
				      ? 0
				      : 1);
		}
		require(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "child", "fork");
	}
	atomic_store(&done, true);
	(void)pthread_join(thread, NULL);
	require(of_parent.n_released == 0, "the parent's", "fork");
	drop(object);
	require(released_here(&of_parent), "the parent's", "end");
}

int main(void)
{
	(void)alarm(250);
	if (!lib_emulate()) {
		(void)printf("skipped: the emulators are not built\n");
		return 77;
	}
	lib_open_all(devices);
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		for (int kind = 0; kind < N_KINDS; kind++)
			a_slot_holds_what_was_set_where_it_was_expected(kind, devices[i]);
		a_slot_is_of_the_object_and_not_of_its_memory(devices[i]);
		devices_and_their_default_streams_are_found_again(devices[i]);
	}
	(void)pthread_barrier_init(&barrier, NULL, N_THREADS);
	for (int i = 0; i < ROUNDS; i++)
		of_several_threads_one_sets_its_pointer(i % 2 == 0 ? BUFFER : MEMORY);
	a_child_of_fork_goes_on_setting();
	for (int i = 0; i < LIB_N_DEVICES; i++)
		hoist_device_unref(devices[i]);
	return 0;
}
