/* SPDX-License-Identifier: MIT */
/* The child of `hoist bench alloc`: one measurement of one subject.  The contract is in
 * request.h. */
#include "config.h"

#include "bench/alloc-work.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hoist/error.h>

#include "cli/format.h"
#include "bench/request.h"
#include "cli/fail.h"

/* No measurement takes as long, so one that hangs ends here. */
#define LONGEST_SECONDS 100

uint64_t work_warm_ns(const struct work *work)
{
	return work->quick ? 1000000 : 50000000;
}

uint64_t work_timed_ns(const struct work *work)
{
	return work->quick ? 4000000 : 200000000;
}

int work_use_processors(int first, int n)
{
	cpu_set_t all;
	cpu_set_t some;
	CPU_ZERO(&some);
	if (sched_getaffinity(0, sizeof all, &all) != 0)
		return -errno;
	for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&some) < n; i++) {
		if (CPU_ISSET(i, &all) && first-- <= 0)
			CPU_SET(i, &some);
	}
	if (CPU_COUNT(&some) < n)
		return -EINVAL;
	return sched_setaffinity(0, sizeof some, &some) == 0 ? 0 : -errno;
}

void work_in_threads(int n, void *(*run)(void *), void *arguments, size_t stride)
{
	pthread_t *threads = calloc((size_t)n, sizeof *threads);
	int err = threads == NULL ? ENOMEM : 0;
	for (int i = 0; i < n && err == 0; i++)
		err = pthread_create(&threads[i], NULL, run,
				     (char *)arguments + (size_t)i * stride);
	if (err != 0) {
		(void)fail("making a thread: %s", strerror(err));
		_exit(STATUS_FAILED);
	}
	for (int i = 0; i < n; i++)
		(void)pthread_join(threads[i], NULL);
	free(threads);
}

/* --- subjects --- */

static uintptr_t hoist_alloc(const struct allocator *allocator, size_t bytes)
{
	uintptr_t address = 0;
	(void)hoist_memory_alloc(allocator->memory, bytes, 0, &address); /* 0 then */
	return address;
}

static int hoist_free(const struct allocator *allocator, uintptr_t address)
{
	return hoist_memory_free(allocator->memory, address);
}

static uintptr_t stream_alloc(const struct allocator *allocator, size_t bytes)
{
	uintptr_t address = 0;
	(void)hoist_memory_alloc_on(allocator->memory, bytes, 0, allocator->stream, &address);
	return address;
}

static int stream_free(const struct allocator *allocator, uintptr_t address)
{
	return hoist_memory_free_on(allocator->memory, address, allocator->stream);
}

static uintptr_t malloc_alloc(const struct allocator *allocator, size_t bytes)
{
	(void)allocator;
	return (uintptr_t)malloc(bytes);
}

static int malloc_free(const struct allocator *allocator, uintptr_t address)
{
	(void)allocator;
	free((void *)address);
	return 0;
}

static uintptr_t empty_alloc(const struct allocator *allocator, size_t bytes)
{
	(void)allocator;
	return bytes;
}

static int empty_free(const struct allocator *allocator, uintptr_t address)
{
	(void)allocator;
	(void)address;
	return 0;
}

struct allocator work_allocator(enum subject subject, hoist_memory *memory, hoist_stream *stream)
{
	switch (subject) {
	case SUBJECT_HOIST:
	case SUBJECT_HEAP:
		return (struct allocator){hoist_alloc, hoist_free, memory, NULL};
	case SUBJECT_STREAM:
		return (struct allocator){stream_alloc, stream_free, memory, stream};
	case SUBJECT_EMPTY:
		return (struct allocator){empty_alloc, empty_free, NULL, NULL};
	default:
		return (struct allocator){malloc_alloc, malloc_free, NULL, NULL};
	}
}

int work_fail(enum subject subject, const char *error)
{
	if (subject == SUBJECT_HOIST || subject == SUBJECT_HEAP || subject == SUBJECT_STREAM)
		return fail("%s", error);
	return fail("malloc: %s", strerror(ENOMEM));
}

/* The file of malloc; "" if the linker cannot say. */
static const char *malloc_file(void)
{
	Dl_info info;
	void *function = dlsym(RTLD_DEFAULT, "malloc");
	if (function == NULL || dladdr(function, &info) == 0 || info.dli_fname == NULL)
		return "";
	return info.dli_fname;
}

/* --- the child --- */

static int open_device(const char *spec, struct work *work, bool *emulated)
{
	hoist_device_info info = {.size = sizeof info};
	if (hoist_device_open(spec, &work->device) != 0 ||
	    hoist_device_get_info(work->device, &info) != 0)
		return fail_library();
	*emulated = info.emulated != 0;
	return STATUS_OK;
}

static int measure(struct work *work, const char *device)
{
	const struct measurement *measurement = work->measurement;
	double values[WORK_MAX_FIGURES] = {0};
	bool emulated = false;
	int status = STATUS_OK;
	(void)alarm(LONGEST_SECONDS);
	if (measurement->emulate)
		status = open_device(device, work, &emulated);
	if (status == STATUS_OK)
		status = measurement->run(work, values);
	hoist_device_unref(work->device);
	if (status != STATUS_OK)
		return status;
	(void)printf("result %d", emulated);
	for (int i = 0; i < WORK_MAX_FIGURES; i++)
		(void)printf(" %.9g", values[i]);
	(void)putchar('\n');
	return STATUS_OK;
}

/* The next number of a text like "7,3,0", which ends with a number; -1 if there is none. */
static long next_number(const char **text)
{
	char *end = NULL;
	long number = strtol(*text, &end, 10);
	if (end == *text || (*end != ',' && *end != '\0'))
		return -1;
	*text = *end == ',' ? end + 1 : end;
	return number;
}

int bench_alloc_worker(const char *spec, const char *device)
{
	long index = next_number(&spec);
	long subject = next_number(&spec);
	long quick = next_number(&spec);
	if (index < 0 || index > (long)n_measurements || subject < 0 || subject >= N_SUBJECTS ||
	    quick < 0 || *spec != '\0')
		return fail("this is run by `hoist bench alloc` only");
	const char *library = subjects[subject].library;
	if (library != NULL && strncmp(base_name(malloc_file()), library, strlen(library)) != 0) {
		(void)printf("missing %s\n", malloc_file());
		return STATUS_OK;
	}
	if (index == (long)n_measurements)
		return STATUS_OK;
	struct work work = {.measurement = &measurements[index],
			    .subject = (enum subject)subject,
			    .quick = quick != 0};
	return measure(&work, device);
}
