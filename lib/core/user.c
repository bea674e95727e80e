/* SPDX-License-Identifier: MIT */
/* lib/core/user.c - pointers of the caller's on hoist's objects. */
#include "config.h"

#include "hoist/user.h"

#include <pthread.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/log.h"
#include "lib/buffer/buffer-private.h"
#include "lib/device/device-private.h"
#include "lib/memory/memory.h"
#include "lib/device/stream-private.h"
#include "lib/core/user.h"

/* The pairs of pointer and release function, of all objects. */
static struct hoist__lock slots_lock;

/* A child of fork goes on setting. */
static void lock_slots(void)
{
	hoist__lock(&slots_lock);
}

static void unlock_slots(void)
{
	hoist__unlock(&slots_lock);
}

static void watch_forks(void)
{
	if (pthread_atfork(lock_slots, unlock_slots, unlock_slots) != 0)
		hoist__log(device, "a child of fork may hang in user pointers: no handlers");
}

static int set(struct hoist__user *user, void *expected, void *data, void (*release)(void *data))
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if (data == NULL && release != NULL)
		return hoist__fail(-EINVAL, "there is a function to release a pointer, which is "
					    "NULL");
	(void)pthread_once(&once, watch_forks);
	hoist__lock(&slots_lock);
	void *before = atomic_load(&user->xdata);
	void (*release_before)(void *data) = user->release;
	if (before == expected) {
		user->release = release;
		atomic_store(&user->xdata, data);
	}
	hoist__unlock(&slots_lock);
	if (before != expected)
		return hoist__fail(-EBUSY, "the slot holds %p, not %p; take what is there", before,
				   expected);
	if (release_before != NULL)
		release_before(before);
	return 0;
}

static void *get(const struct hoist__user *user)
{
	return atomic_load_explicit(&user->xdata, memory_order_acquire);
}

void hoist__user_end(struct hoist__user *user)
{
	if (user->release != NULL)
		user->release(atomic_load(&user->xdata));
}

static int fail_null(const char *what)
{
	return hoist__fail(-EINVAL, "the %s to set a pointer on is NULL", what);
}

int hoist_buffer_set_user(hoist_buffer *buffer, void *expected, void *data,
			  void (*release)(void *data))
{
	return buffer != NULL ? set(&buffer->user, expected, data, release) : fail_null("buffer");
}

int hoist_device_set_user(hoist_device *device, void *expected, void *data,
			  void (*release)(void *data))
{
	return device != NULL ? set(&device->user, expected, data, release) : fail_null("device");
}

int hoist_stream_set_user(hoist_stream *stream, void *expected, void *data,
			  void (*release)(void *data))
{
	return stream != NULL ? set(&stream->user, expected, data, release) : fail_null("stream");
}

int hoist_memory_set_user(hoist_memory *memory, void *expected, void *data,
			  void (*release)(void *data))
{
	return memory != NULL ? set(&memory->user, expected, data, release)
			      : fail_null("memory resource");
}

void *hoist_buffer_get_user(const hoist_buffer *buffer)
{
	return get(&buffer->user);
}

void *hoist_device_get_user(const hoist_device *device)
{
	return get(&device->user);
}

void *hoist_stream_get_user(const hoist_stream *stream)
{
	return get(&stream->user);
}

void *hoist_memory_get_user(const hoist_memory *memory)
{
	return get(&memory->user);
}
