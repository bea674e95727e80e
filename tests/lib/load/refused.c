/* SPDX-License-Identifier: MIT */
/* Calls that a seccomp filter refuses, as containers do.  io_uring: loads pass through
 * threads, the report says why, and asking for io_uring fails with the reason.
 * Threads: the load fails and says so. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/load-support.h"
#include "tests/support/numa-refuse.h"

/* io_uring_setup, io_uring_enter and io_uring_register are 425 to 427. */
static void refuse_io_uring(unsigned with)
{
	for (long call = 425; call <= 427; call++)
		OK(refuse(call, (int)with));
}

static void refuse_threads(void)
{
	OK(refuse(SYS_clone, EAGAIN));
	OK(refuse(SYS_clone3, EAGAIN));
}

/* The kernel says EAGAIN for a thread that it cannot give: the load must end, not
 * try for ever. */
static void load_without_threads(void)
{
	const size_t size = 9 << 20;
	const char *path = support_path("m.safetensors");
	support_write("m.safetensors", 0, 1, &size, -1);
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	hoist_load_options o = {.size = sizeof o,
				.engine = HOIST_ENGINE_THREADS,
				.flags = HOIST_LOAD_CALLER_DRIVEN};
	OK(hoist_load_start(checkpoint, &o, &load));
	refuse_threads();
	alarm(100);
	CHECK(hoist_load_wait(load) == -ENOMEM);
	support_said("thread");
	hoist_load_destroy(load);
	o.flags = 0;
	CHECK(hoist_load_start(checkpoint, &o, &load) == -ENOMEM);
	support_said("thread");
	hoist_checkpoint_close(checkpoint);
	support_cleanup();
	/* A leak checker would want a thread. */
	_exit(0);
}

static void load_refused(unsigned with, const char *word)
{
	refuse_io_uring(with);
	const size_t sizes[] = {100, 9 << 20, 4097};
	const char *path = support_path("m.safetensors");
	support_write("m.safetensors", 0, 3, sizes, -1);
	static const char *const devices[] = {"cpu", "cuda:0"};
	for (size_t d = 0; d < 2; d++) {
		hoist_load_options o = {.size = sizeof o};
		hoist_load_report report;
		hoist_checkpoint *checkpoint;
		hoist_load *load;
		OK(hoist_device_open(devices[d], &o.device));
		support_load_and_compare(path, &o, &report);
		CHECK(strcmp(report.engine, "threads") == 0);
		CHECK(strstr(report.engine_reason, word) != NULL);
		o.engine = HOIST_ENGINE_URING;
		OK(hoist_checkpoint_open(path, 0, &checkpoint));
		OK(hoist_load_start(checkpoint, &o, &load));
		CHECK(hoist_load_wait(load) == -(int)with);
		support_said("io_uring");
		hoist_load_destroy(load);
		hoist_checkpoint_close(checkpoint);
		hoist_device_unref(o.device);
	}
	support_cleanup();
}

static void wait_for(pid_t child)
{
	int status;
	CHECK(child > 0);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
	static const struct {
		unsigned with;
		const char *word;
	} refusals[] = {{EPERM, "EPERM"}, {ENOSYS, "ENOSYS"}};
	support_emulate("cuda:1");
	for (size_t i = 0; i < 2; i++) {
		pid_t child = fork();
		if (child == 0) {
			load_refused(refusals[i].with, refusals[i].word);
			exit(0);
		}
		wait_for(child);
	}
	pid_t child = fork();
	if (child == 0)
		load_without_threads();
	wait_for(child);
	return 0;
}
