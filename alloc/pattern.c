/* SPDX-License-Identifier: MIT */
/* alloc/pattern.c - fills memory with a byte, and finds bytes that have changed.
 * The contract is in alloc/pattern.h. */
#include "config.h"

#include "alloc/pattern.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

#define BUFFER_BYTES (64 * HOIST__KIB)

struct hoist__pattern {
	struct hoist__dev *dev; /* NULL: host memory */
	pthread_mutex_t lock;	/* guards the creation of the stream and the buffer's content */
	struct hoist__dev_stream *stream;
	unsigned char *buffer;
};

int hoist__pattern_create(struct hoist__dev *dev, struct hoist__pattern **ret)
{
	struct hoist__pattern *pattern = calloc(1, sizeof *pattern);
	if (pattern == NULL)
		return hoist__fail_nomem("watching a pool", sizeof *pattern);
	int err = pthread_mutex_init(&pattern->lock, NULL);
	if (err != 0) {
		free(pattern);
		return hoist__fail_errno(-err, "watching a pool");
	}
	pattern->dev = dev;
	*ret = pattern;
	return 0;
}

static void free_buffer(struct hoist__pattern *pattern)
{
	(void)hoist__dev_host_unregister(pattern->dev, pattern->buffer, BUFFER_BYTES);
	(void)munmap(pattern->buffer, BUFFER_BYTES);
	pattern->buffer = NULL;
}

void hoist__pattern_destroy(struct hoist__pattern *pattern)
{
	if (pattern == NULL)
		return;
	/* A child of fork has neither the stream nor the buffer, which are the parent's. */
	if (pattern->buffer != NULL && hoist__dev_check(pattern->dev) == 0) {
		hoist__dev_stream_destroy(pattern->stream);
		free_buffer(pattern);
	}
	pthread_mutex_destroy(&pattern->lock);
	free(pattern);
}

/* The buffer is registered, as hoist has drivers copy to registered memory alone.  So a child of
 * fork does not have it. */
static int make_buffer(struct hoist__dev *dev, unsigned char **ret)
{
	void *buffer = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	if (buffer == MAP_FAILED)
		return hoist__fail_nomem("reading back device memory", BUFFER_BYTES);
	(void)madvise(buffer, BUFFER_BYTES, MADV_DONTFORK);
	int err = hoist__dev_host_register(dev, buffer, BUFFER_BYTES);
	if (err != 0) {
		(void)munmap(buffer, BUFFER_BYTES);
		return err;
	}
	*ret = buffer;
	return 0;
}

/* Makes the stream and the buffer, both or neither.  Pre: locked. */
static int make_ready(struct hoist__pattern *pattern)
{
	if (pattern->buffer != NULL)
		return 0;
	int err = make_buffer(pattern->dev, &pattern->buffer);
	if (err == 0) {
		err = hoist__dev_stream_create(pattern->dev, &pattern->stream);
		if (err != 0)
			free_buffer(pattern);
	}
	return err;
}

/* The same without the lock.  In a child of fork the lock may be held for ever, so the device is
 * checked first. */
static int need_ready(struct hoist__pattern *pattern)
{
	int err = hoist__dev_check(pattern->dev);
	if (err != 0)
		return err;
	pthread_mutex_lock(&pattern->lock);
	err = make_ready(pattern);
	pthread_mutex_unlock(&pattern->lock);
	return err;
}

/* Waits until no work of the stream uses the memory, also where the driver reports a failure. A
 * failure may come from an earlier operation or from the call itself, so the call is repeated
 * once. */
static int wait_for(struct hoist__dev_stream *stream)
{
	int err = hoist__dev_stream_synchronize(stream);
	if (err != 0)
		(void)hoist__dev_stream_synchronize(stream);
	return err;
}

static bool worked(int err, const char *what)
{
	if (err != 0)
		hoist__log(alloc, "%s memory that is watched: %s", what, hoist__error_text());
	return err == 0;
}

bool hoist__pattern_fill(struct hoist__pattern *pattern, uintptr_t address, size_t bytes,
			 unsigned char value)
{
	if (bytes == 0)
		return true;
	if (pattern->dev == NULL) {
		memset((void *)address, value, bytes);
		return true;
	}
	int err = need_ready(pattern);
	if (err == 0)
		err = hoist__fill_async(pattern->stream, address, value, 1, bytes);
	return worked(err, "filling");
}

bool hoist__pattern_settle(struct hoist__pattern *pattern)
{
	if (pattern->dev == NULL)
		return true;
	int err = need_ready(pattern);
	if (err == 0)
		err = wait_for(pattern->stream);
	return worked(err, "filling");
}

/* --- comparing --- */

static bool all_are(const unsigned char *bytes, size_t n, unsigned char value)
{
	return n == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, n - 1) == 0);
}

/* Adds the differences in @n bytes at @bytes, which are the bytes at @address or a copy of them. */
static void compare(const unsigned char *bytes, size_t n, unsigned char value, uintptr_t address,
		    struct hoist__change *change)
{
	if (all_are(bytes, n, value))
		return;
	for (size_t i = 0; i < n; i++) {
		if (bytes[i] == value)
			continue;
		if (change->n++ == 0) {
			change->first = address + i;
			change->n_found = hoist__min_u64(n - i, HOIST__FOUND_BYTES);
			memcpy(change->found, bytes + i, change->n_found);
		}
	}
}

/* Pre: locked. */
static int compare_on_device(struct hoist__pattern *pattern, uintptr_t address, size_t bytes,
			     unsigned char value, struct hoist__change *change)
{
	int err = 0;
	for (size_t at = 0; err == 0 && at < bytes; at += BUFFER_BYTES) {
		size_t n = hoist__min_u64(bytes - at, BUFFER_BYTES);
		err = hoist__copy_async(pattern->stream, HOIST__COPY_DEVICE_TO_HOST,
					(uintptr_t)pattern->buffer, address + at, n);
		if (err == 0)
			err = wait_for(pattern->stream);
		if (err == 0)
			compare(pattern->buffer, n, value, address + at, change);
	}
	return err;
}

bool hoist__pattern_changed(struct hoist__pattern *pattern, uintptr_t address, size_t bytes,
			    unsigned char value, struct hoist__change *ret)
{
	struct hoist__change change = {0};
	if (pattern->dev == NULL) {
		compare((const unsigned char *)address, bytes, value, address, &change);
	} else if (bytes != 0) {
		int err = need_ready(pattern);
		if (err == 0) {
			pthread_mutex_lock(&pattern->lock);
			err = compare_on_device(pattern, address, bytes, value, &change);
			pthread_mutex_unlock(&pattern->lock);
		}
		(void)worked(err, "reading");
	}
	if (change.n != 0)
		*ret = change;
	return change.n != 0;
}
