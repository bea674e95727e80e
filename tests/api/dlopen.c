/* SPDX-License-Identifier: MIT */
/* The library is opened, used and closed by threads, again and again, as
 * plug-ins and language runtimes do: nothing of it may outlive its code. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hoist/hoist.h>

#define LIBRARY "/lib/.libs/libhoist.so"

static char path[4096];

/* ISO C knows no conversion from an object's pointer to a function's. */
static int find(void *library, const char *name, void *function)
{
	void *symbol = dlsym(library, name);
	if (symbol == NULL)
		return -1;
	memcpy(function, &symbol, sizeof symbol);
	return 0;
}

static const char *use(void *library)
{
	__typeof__(&hoist_version) version;
	__typeof__(&hoist_error) error;
	__typeof__(&hoist_device_open) device_open;
	__typeof__(&hoist_device_unref) device_unref;
	__typeof__(&hoist_stream_create) stream_create;
	__typeof__(&hoist_stream_synchronize) stream_synchronize;
	__typeof__(&hoist_buffer_create) buffer_create;
	__typeof__(&hoist_buffer_unref) buffer_unref;
	if (find(library, "hoist_version", &version) < 0 ||
	    find(library, "hoist_error", &error) < 0 ||
	    find(library, "hoist_device_open", &device_open) < 0 ||
	    find(library, "hoist_device_unref", &device_unref) < 0 ||
	    find(library, "hoist_stream_create", &stream_create) < 0 ||
	    find(library, "hoist_stream_synchronize", &stream_synchronize) < 0 ||
	    find(library, "hoist_buffer_create", &buffer_create) < 0 ||
	    find(library, "hoist_buffer_unref", &buffer_unref) < 0)
		return dlerror();
	if (version()[0] == '\0')
		return "no version";
	hoist_device *device = NULL;
	hoist_stream *stream = NULL;
	hoist_buffer *buffer = NULL;
	const int64_t shape[] = {1000};
	if (device_open("no such device", &device) == 0)
		return "a device that is none";
	if (device_open("cpu", &device) < 0 || stream_create(device, &stream) < 0 ||
	    buffer_create(device, HOIST_U8, 1, shape, 0, &buffer) < 0 ||
	    stream_synchronize(stream) < 0)
		return error();
	buffer_unref(buffer);
	__typeof__(&hoist_stream_unref) stream_unref;
	if (find(library, "hoist_stream_unref", &stream_unref) < 0)
		return dlerror();
	stream_unref(stream);
	device_unref(device);
	return NULL;
}

/* Returns what went wrong, or NULL; the text is the caller's to free. */
static void *work(void *unused)
{
	(void)unused;
	for (int round = 0; round < 5; round++) {
		void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (library == NULL)
			return strdup(dlerror());
		const char *failed = use(library);
		char *copy = failed != NULL ? strdup(failed) : NULL;
		dlclose(library);
		if (copy != NULL)
			return copy;
	}
	return NULL;
}

int main(void)
{
	const char *build = getenv("abs_top_builddir");
	(void)snprintf(path, sizeof path, "%s%s", build != NULL ? build : "..", LIBRARY);
	pthread_t threads[2];
	int status = 0;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, work, NULL) != 0)
			return 1;
	for (int i = 0; i < 2; i++) {
		void *failed = NULL;
		pthread_join(threads[i], &failed);
		if (failed != NULL) {
			(void)fprintf(stderr, "%s: %s\n", path, (char *)failed);
			status = 1;
		}
		free(failed);
	}
	return status;
}
