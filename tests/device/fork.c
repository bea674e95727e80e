/* SPDX-License-Identifier: MIT */
/* A child of fork gets -ESTALE from what its parent opened, and can still use
 * what the parent never touched.  Exit: 0, 1, 77. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "device/device.h"
#include "tests/support/check.h"
#include "tests/support/emulator-driver.h"
#include "tests/support/under-tsan.h"

struct things {
	struct hoist__dev *dev;
	struct hoist__dev_stream *stream;
	struct hoist__dev_event *event;
	struct hoist__dev_pool *pool; /* NULL on the CPU */
	uintptr_t memory;
	uintptr_t pooled;
};

static void make(enum hoist__api api, struct things *t)
{
	CHECK(hoist__dev_get(api, 0, &t->dev) == 0);
	CHECK(hoist__dev_stream_create(t->dev, &t->stream) == 0);
	CHECK(hoist__dev_event_create(t->dev, 0, &t->event) == 0);
	CHECK(hoist__dev_mem_alloc(t->dev, 4096, &t->memory) == 0);
	t->pool = NULL;
	t->pooled = 0;
	if (api != HOIST__API_CPU) {
		CHECK(hoist__dev_pool_create(t->dev, 0, &t->pool) == 0);
		CHECK(hoist__dev_pool_alloc(t->pool, 4096, t->stream, &t->pooled) == 0);
	}
	CHECK(hoist__dev_event_record(t->event, t->stream) == 0);
	CHECK(hoist__dev_event_synchronize(t->event) == 0);
}

static void unmake(struct things *t)
{
	CHECK(hoist__dev_stream_synchronize(t->stream) == 0);
	CHECK(hoist__dev_pool_free(t->pool, t->pooled, t->stream) == 0);
	hoist__dev_pool_destroy(t->pool);
	hoist__dev_event_destroy(t->event);
	hoist__dev_stream_destroy(t->stream);
	CHECK(hoist__dev_mem_free(t->dev, t->memory, 4096) == 0);
}

static int not_called(void *context)
{
	(void)context;
	abort();
}

/* Streams and events are the parent's, whatever the device. */
static void stale_objects(struct things *t)
{
	const struct hoist__box box = {.dst = 1, .src = 1, .width = 1, .rows = 1, .planes = 1};
	CHECK(hoist__fill_async(t->stream, t->memory, 1, 1, 1) == -ESTALE);
	CHECK(hoist__copy_box_async(t->stream, HOIST__COPY_DEVICE_TO_DEVICE, &box) == -ESTALE);
	CHECK(hoist__dev_stream_call(t->stream, not_called, NULL) == -ESTALE);
	CHECK(strstr(hoist__error_text(), "fork") != NULL);
	CHECK(hoist__dev_stream_synchronize(t->stream) == -ESTALE);
	CHECK(hoist__dev_stream_query(t->stream) == -ESTALE);
	CHECK(hoist__dev_stream_wait_event(t->stream, t->event) == -ESTALE);
	CHECK(hoist__dev_event_record(t->event, t->stream) == -ESTALE);
	CHECK(hoist__dev_event_query(t->event) == -ESTALE);
	CHECK(hoist__dev_event_synchronize(t->event) == -ESTALE);
	hoist__dev_event_destroy(t->event);
	hoist__dev_stream_destroy(t->stream);
}

static void stale_driver(struct things *t)
{
	enum hoist__api api = hoist__dev_api(t->dev);
	struct hoist__dev_stream *stream = NULL;
	struct hoist__dev_event *event = NULL;
	struct hoist__dev *dev = NULL;
	uintptr_t memory = 0;
	uint64_t number = 0;
	struct hoist__pointer pointer;
	bool capturing = false;
	int count = 0;
	CHECK(hoist__dev_stream_capturing(t->stream, &capturing) == -ESTALE);
	CHECK(hoist__dev_pool_alloc(t->pool, 1, t->stream, &memory) == -ESTALE);
	CHECK(hoist__dev_pool_free(t->pool, t->pooled, t->stream) == -ESTALE);
	CHECK(hoist__dev_pool_trim(t->pool, 0) == -ESTALE);
	CHECK(hoist__dev_pool_get(t->pool, HOIST__POOL_USED_CURRENT, &number) == -ESTALE);
	CHECK(hoist__dev_pool_set(t->pool, HOIST__POOL_USED_HIGH, 0) == -ESTALE);
	hoist__dev_pool_destroy(t->pool);
	stale_objects(t);
	CHECK(hoist__dev_managed_alloc(t->dev, 1, &memory) == -ESTALE);
	CHECK(hoist__dev_can_access(t->dev, t->dev, &capturing) == -ESTALE);
	CHECK(hoist__dev_synchronize(t->dev) == -ESTALE);
	CHECK(hoist__pointer_find(t->memory, &pointer) == -ESTALE);
	CHECK(hoist__dev_count(api, &count) == -ESTALE);
	CHECK(hoist__dev_get(api, 0, &dev) == -ESTALE);
	CHECK(hoist__dev_mem_info(t->dev, &number, &number) == -ESTALE);
	CHECK(hoist__dev_mem_alloc(t->dev, 4096, &memory) == -ESTALE);
	CHECK(hoist__dev_mem_free(t->dev, t->memory, 4096) == -ESTALE);
	CHECK(hoist__dev_host_register(t->dev, &number, 8) == -ESTALE);
	CHECK(hoist__dev_stream_create(t->dev, &stream) == -ESTALE);
	CHECK(hoist__dev_event_create(t->dev, 0, &event) == -ESTALE);
	CHECK(dev == NULL && stream == NULL && event == NULL && memory == 0 && count == 0);
}

static void in_child(void (*body)(struct things *), struct things *t)
{
	int status = -1;
	unsigned before = hoist__fork_now();
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(hoist__fork_now() == before + 1);
		body(t);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(status == 0);
	CHECK(hoist__fork_now() == before);
}

/* The parent has not opened this driver: the child may. */
static void use_afresh(struct things *t)
{
	struct things own;
	make(HOIST__API_CPU, &own);
	unmake(&own);
	stale_objects(t);
}

static void use_drivers(struct things *t)
{
	struct things own;
	(void)t;
	make(HOIST__API_CUDA, &own);
	unmake(&own);
	make(HOIST__API_HIP, &own);
	in_child(stale_driver, &own);
	unmake(&own);
}

/* A driver that failed for the parent has failed for the child, with the same words. */
static void use_failed(struct things *t)
{
	int count = 0;
	(void)t;
	CHECK(hoist__dev_count(HOIST__API_HIP, &count) == -ENODEV);
	CHECK(strstr(hoist__error_text(), "/nowhere/libdriver.so") != NULL);
}

int main(void)
{
	struct things cpu;
	struct things cuda;
	int count = 0;
	if (UNDER_TSAN) {
		printf("skipped: ThreadSanitizer cannot start threads in a child of fork\n");
		return 77;
	}
	make(HOIST__API_CPU, &cpu);
	in_child(use_afresh, &cpu);
	unmake(&cpu);
	if (!have_stand_ins()) {
		printf("the stand-in drivers are not built: the CPU only\n");
		return 0;
	}
	setenv("HOIST_EMULATE", "cuda:1,hip:1", 1);
	in_child(use_drivers, NULL);
	make(HOIST__API_CUDA, &cuda);
	in_child(stale_driver, &cuda);
	unmake(&cuda);
	setenv("HOIST_EMULATE", "cuda:1", 1);
	setenv("HOIST_HIP_LIBRARY", "/nowhere/libdriver.so", 1);
	CHECK(hoist__dev_count(HOIST__API_HIP, &count) == -ENODEV);
	in_child(use_failed, NULL);
	return 0;
}
