/* SPDX-License-Identifier: MIT */
/* The report that a stand-in driver writes when the process ends, told of a
 * program that leaks and exits with a stream asleep on queued work.  The
 * program is this one, run again: a sanitizer's leak check does not understand a
 * process that was only forked. */
#include "config.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/emulator-driver.h"

static struct cuda cu;

static int leave_things_behind(void)
{
	hoist__cu_device_ptr memory = 0;
	hoist__cu_stream stream = NULL;
	cuda_start(&cu, "cuda:1", 0);
	bool good = cu.cuMemAlloc(&memory, 1000) == 0 && cu.cuStreamCreate(&stream, 1) == 0 &&
		    cu.cuMemcpyHtoDAsync(memory, &cu, 100, stream) == 0;
	hoist__cu_result (*lacked)(void *) = NULL;
	*(void **)&lacked = driver_symbol(cu.so, "cuGraphCreate");
	good = good && lacked(NULL) == HOIST__CU_ERROR_NOT_SUPPORTED;
	cu.control.hold(1);
	good = good && cu.cuMemsetD8Async(memory, 0, 1000, stream) == 0;
	return good ? 0 : 1;
}

static int run_again(const char *program, const char *report)
{
	pid_t child = fork();
	if (child == 0) {
		(void)setenv("HOIST_EMULATE_REPORT", report, 1);
		(void)execl("/proc/self/exe", program, "child", (char *)NULL);
		_exit(1);
	}
	int status = -1;
	return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

static int check(const json_t *object, const char *name, json_int_t expected)
{
	const json_t *value = json_object_get(object, name);
	if (json_is_integer(value) && json_integer_value(value) == expected)
		return 0;
	fprintf(stderr, "%s is %lld, not %lld\n", name, (long long)json_integer_value(value),
		(long long)expected);
	return 1;
}

static int judge(const json_t *report)
{
	const char *emulator = json_string_value(json_object_get(report, "emulator"));
	int failures = emulator == NULL || strcmp(emulator, "cuda") != 0;
	failures += check(report, "devices", 1);
	failures += check(report, "live_allocations", 1);
	failures += check(report, "live_bytes", 1024);
	failures += check(report, "live_streams", 1);
	failures += check(report, "live_events", 0);
	failures += check(report, "pageable_copies", 1);
	failures += check(report, "host_to_device_bytes", 100);
	failures += check(json_object_get(report, "functions"), "cuMemAlloc_v2", 1);
	failures += check(json_object_get(report, "functions"), "cuMemFree_v2", 0);
	const json_t *lacked = json_object_get(report, "not_supported");
	failures += check(lacked, "cuGraphCreate", 1);
	failures += json_object_size(lacked) != 1;
	return failures;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return leave_things_behind();
	char path[] = "emulator-report-XXXXXX";
	int fd = mkstemp(path);
	if (fd < 0)
		return 1;
	(void)close(fd);
	int status = run_again(argv[0], path);
	json_t *report = json_load_file(path, 0, NULL);
	(void)unlink(path);
	if (status != 0 || report == NULL) {
		fprintf(stderr, "status %d, %s\n", status,
			report == NULL ? "no line of JSON" : "but a report");
		json_decref(report);
		return 1;
	}
	int failures = judge(report);
	json_decref(report);
	return failures == 0 ? 0 : 1;
}
