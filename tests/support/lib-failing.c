/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "tests/support/lib-failing.h"
#include "tests/support/patience.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long countdown; /* allocations until one fails; 0: none does */
static unsigned long n_failed;

static bool fails(void)
{
	if (__atomic_load_n(&countdown, __ATOMIC_RELAXED) == 0 ||
	    __atomic_sub_fetch(&countdown, 1, __ATOMIC_RELAXED) != 0)
		return false;
	__atomic_add_fetch(&n_failed, 1, __ATOMIC_RELAXED);
	return true;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	return fails() ? NULL : __real_realloc(memory, bytes);
}

void lib_fail_allocation(unsigned long n)
{
	countdown = n;
}

bool lib_is_failure(int err)
{
	return err == -ENOMEM || err == -ENOSPC || err == -EREMOTEIO || err == -EPERM ||
	       err == -ENODEV;
}

void lib_die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	(void)vfprintf(stderr, format, args);
	va_end(args);
	(void)fprintf(stderr, "\n  hoist_error(): %s\n", hoist_error());
	exit(1);
}

/* Returns true if an allocation failed. */
static bool fail_one(void (*scenario)(unsigned long n), unsigned long n)
{
	pid_t child = fork();
	if (child < 0)
		lib_die("fork: %s", strerror(errno));
	if (child == 0) {
		scenario(n);
		exit(n_failed != 0 ? 10 : 11);
	}
	int status = 0;
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
	    (WEXITSTATUS(status) != 10 && WEXITSTATUS(status) != 11))
		lib_die("allocation %lu: the process ended with status 0x%x", n, (unsigned)status);
	return WEXITSTATUS(status) == 10;
}

void lib_sweep_allocations(void (*scenario)(unsigned long n), unsigned long most)
{
	unsigned long n = 1;
	while (n < most && fail_one(scenario, n))
		n++;
	if (n == most || n < 20)
		lib_die("the sweep over allocations ended at %lu", n);
	printf("%lu allocations failed in turn\n", n - 1);
}

/* --- whole programs --- */

#define MOST 5000

hoist_device *lib_swept[LIB_N_DEVICES];
static int (*swept)(int device);

/* A stream that could not be waited for before it was destroyed frees a little later. */
static void check_clean(const char *what, unsigned long n)
{
	for (uint64_t until = 0; !lib_nothing_outstanding(lib_swept);)
		if (!patience(&until))
			lib_die("%s %lu: something is left", what, n);
	if (!lib_drivers_content())
		lib_die("%s %lu: the drivers saw a misuse", what, n);
}

static void run_alone(unsigned long n)
{
	lib_open_all(lib_swept);
	lib_fail_allocation(n);
	int err = swept(1);
	if (err != 0 && (!lib_is_failure(err) || hoist_error()[0] == '\0'))
		lib_die("allocation %lu: an unexpected error, %d", n, err);
	lib_fail_allocation(0);
	check_clean("allocation", n);
	if (swept(1) != 0)
		lib_die("after allocation %lu: does not work any more", n);
	check_clean("after allocation", n);
}

static void sweep_driver(int device, const char *api)
{
	unsigned long n = 1;
	for (; n < MOST; n++) {
		char fault[64];
		(void)snprintf(fault, sizeof fault, "any:%lu", n);
		if (lib_fail(api, fault) != 0)
			lib_die("%s: %s is not understood", api, fault);
		int err = swept(device);
		if (err != 0 && (!lib_is_failure(err) || hoist_error()[0] == '\0'))
			lib_die("%s %s: an unexpected error, %d", api, fault, err);
		bool struck = lib_counters(api).injected_failures != 0;
		check_clean(fault, n);
		lib_reset(api);
		lib_set_latency(api, 0, 20);
		if (!struck)
			break;
	}
	if (n == MOST || n < 20)
		lib_die("%s: the sweep ended at %lu", api, n);
	if (swept(device) != 0)
		lib_die("%s: does not work any more", api);
	printf("%s: %lu calls failed in turn\n", api, n - 1);
}

int lib_sweep_failures(int (*scenario)(int device), int cuda, int hip)
{
	if (!lib_emulate()) {
		printf("skipped: the emulators are not built\n");
		return 77;
	}
	(void)fflush(stdout);
	swept = scenario;
	setenv("HOIST_EMULATE_LATENCY", "0..20", 1);
	lib_sweep_allocations(run_alone, MOST);
	lib_open_all(lib_swept);
	if (scenario(cuda) != 0 || scenario(hip) != 0)
		lib_die("without failures");
	check_clean("without failures", 0);
	sweep_driver(cuda, "cuda");
	sweep_driver(hip, "hip");
	return 0;
}
