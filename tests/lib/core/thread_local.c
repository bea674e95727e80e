/* SPDX-License-Identifier: MIT */
/* A program with many thread-local variables, which glibc puts into the stack of every thread:
 * those of hoist, which are small, still start.  Exit: 0, 1. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/hoist.h"
#include "tests/support/check.h"
#include "tests/support/lib-make.h"

static _Thread_local volatile unsigned char variables[1 << 20];

static int use(void *context)
{
	variables[sizeof variables - 1] = 1;
	*(int *)context += variables[sizeof variables - 1];
	return 0;
}

static int use_and_leave(void *context)
{
	hoist_stream_unref(context); /* of this very thread: another thread has to end the stream */
	return 0;
}

static void run_streams(void)
{
	hoist_device *cpu = NULL;
	int n = 0;
	OK(hoist_device_open("cpu", &cpu));
	hoist_stream *stream = make_stream(cpu);
	OK(hoist_stream_call(stream, use, &n));
	CHECK(hoist_stream_synchronize(stream) == 0 && n == 1);
	OK(hoist_stream_call(stream, use_and_leave, stream));
	OK(hoist_device_synchronize(cpu));
	hoist_device_unref(cpu);
}

static void load_itself(enum hoist_engine engine, enum hoist_io io)
{
	hoist_checkpoint *file = NULL;
	hoist_load *load = NULL;
	const hoist_load_options o = {
		.size = sizeof o, .engine = engine, .io = io, .flags = HOIST_LOAD_POPULATE};
	OK(hoist_checkpoint_open("/proc/self/exe", HOIST_OPEN_RAW, &file));
	OK(hoist_load_start(file, &o, &load));
	OK(hoist_load_wait(load));
	hoist_load_destroy(load);
	hoist_checkpoint_close(file);
}

int main(void)
{
	run_streams();
	load_itself(HOIST_ENGINE_AUTO, HOIST_IO_AUTO);
	load_itself(HOIST_ENGINE_THREADS, HOIST_IO_AUTO);
	load_itself(HOIST_ENGINE_AUTO, HOIST_IO_MAP);
	return 0;
}
