/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "tests/lib-failing.h"

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
