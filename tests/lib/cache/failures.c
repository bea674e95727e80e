/* SPDX-License-Identifier: MIT */
/* Every allocation of adding, attaching, listing and dropping fails in turn: it comes out as an
 * error, leaves nothing half done, and works the next time.  What becomes of a holder that nobody
 * waits for.  And what a set-uid program must not start.  Exit: 0, 1. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/count.h"
#include "tests/support/lib-cache.h"
#include "tests/support/lib-failing.h"

#define N 4
#define BYTES 3000u

static char model[4096];

static int use(void)
{
	const hoist_cache_options options = {.size = sizeof options, .flags = HOIST_CACHE_REPLACE};
	hoist_image *image = NULL;
	hoist_buffer *buffer = NULL;
	hoist_cache_list *list = NULL;
	int err = hoist_cache_add(model, &options, NULL);
	if (err == 0)
		err = hoist_cache_attach(model, 0, &image);
	if (err == 0)
		err = hoist_image_buffer(image, 1, &buffer);
	if (err == 0)
		err = hoist_cache_list_create(&list);
	if (err == 0)
		CHECK(hoist_cache_list_n_images(list) == 2);
	hoist_cache_list_destroy(list);
	hoist_buffer_unref(buffer);
	hoist_image_close(image);
	return err == 0 ? hoist_cache_drop(model, NULL) : err;
}

static void scenario(unsigned long n)
{
	unsigned before = count_entries("/proc/self/fd");
	lib_fail_allocation(n);
	int err = use();
	lib_fail_allocation(0);
	if (err != 0 && (!lib_is_failure(err) || hoist_error()[0] == '\0'))
		lib_die("allocation %lu: an unexpected error, %d", n, err);
	if (count_entries("/proc/self/fd") != before)
		lib_die("allocation %lu: %u descriptors more", n,
			count_entries("/proc/self/fd") - before);
	if (use() != 0)
		lib_die("after allocation %lu: does not work any more", n);
}

/* --- a holder that is ready when nobody waits for it any more --- */

static pid_t waiting; /* its reads fail; 0: nobody's */

ssize_t __real_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n)
{
	if (waiting == 0 || waiting != getpid())
		return __real_read(fd, to, n);
	errno = EIO;
	return -1;
}

int __real_listen(int fd, int most);
int __wrap_listen(int fd, int most);
int __wrap_listen(int fd, int most)
{
	while (waiting != 0 && waiting == getppid())
		(void)usleep(1000);
	return __real_listen(fd, most);
}

/* It leaves; it is not killed. */
static void hold_for_nobody(void)
{
	OK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		(void)signal(SIGPIPE, SIG_DFL); /* as a holder that is started has it */
		waiting = getpid();
		_exit(hoist_cache_hold() == -ECHILD ? 0 : 2);
	}
	for (int i = 0; i < 2; i++) {
		int status = 0;
		pid_t ended = wait(&status);
		CHECK(ended > 0 && WIFEXITED(status));
		CHECK(WEXITSTATUS(status) == (ended == child ? 0 : 1));
	}
	OK(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0));
}

/* --- a set-uid program, or as good as one --- */

static bool is_secure;

unsigned long __real_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type)
{
	return is_secure && type == AT_SECURE ? 1 : __real_getauxval(type);
}

static int no_load(void *context, uint64_t done, uint64_t total)
{
	(void)context;
	fprintf(stderr, "%llu of %llu bytes were loaded, for nobody\n", (unsigned long long)done,
		(unsigned long long)total);
	exit(1);
}

/* What the holder that was run has seen of the environment. */
static void expect_run(const char *trace, const char *mark)
{
	char seen[16] = "";
	FILE *file = fopen(trace, "r");
	CHECK(file != NULL && fgets(seen, sizeof seen, file) != NULL);
	OK(fclose(file));
	OK(unlink(trace));
	CHECK(strcmp(seen, mark) == 0);
}

/* A holder that is named is run, with the environment of an ordinary program alone. */
static void run_named(const char *program, const char *trace)
{
	const hoist_cache_options named = {.size = sizeof named, .holder = program};
	const hoist_cache_options bare = {.size = sizeof bare, .holder = "hoist"};
	OK(setenv("HOIST_TEST_MARK", "seen", 1));
	CHECK(hoist_cache_add(model, &named, NULL) == -ECHILD);
	expect_run(trace, "seen\n");
	is_secure = true;
	CHECK(hoist_cache_add(model, &named, NULL) == -ECHILD);
	expect_run(trace, "none\n");
	OK(chdir(cache_path("bin")));
	CHECK(hoist_cache_add(model, &bare, NULL) == -EACCES);
	CHECK(access(trace, F_OK) != 0);
	is_secure = false;
}

/* A `hoist` that whoever sets $PATH put there is run by an ordinary program alone. */
static void run_path(void)
{
	static const char text[] =
		"#!/bin/sh\n"
		"echo \"${HOIST_TEST_MARK-none}\" >\"${0%/*}/was-run\"; exit 1\n";
	char program[4096];
	char trace[4096];
	OK(mkdir(cache_path("bin"), 0700));
	OK(setenv("PATH", cache_path("bin"), 1));
	OK(unsetenv("HOIST_CACHE_HOLDER"));
	(void)snprintf(trace, sizeof trace, "%s", cache_path("bin/was-run"));
	(void)snprintf(program, sizeof program, "%s", cache_path("bin/hoist"));
	FILE *file = fopen(program, "w");
	CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
	OK(chmod(program, 0700));
	run_named(program, trace);
	if (access(HOIST_BINDIR "/hoist", X_OK) == 0) {
		printf("hoist is installed: $PATH is not looked at\n");
		return;
	}
	const hoist_cache_options options = {.size = sizeof options, .progress = no_load};
	is_secure = true;
	REFUSED(hoist_cache_add(model, &options, NULL), -ENOENT, HOIST_BINDIR "/hoist");
	CHECK(access(trace, F_OK) != 0);
	is_secure = false;
	CHECK(hoist_cache_add(model, &options, NULL) == -ECHILD);
	CHECK(access(trace, F_OK) == 0);
}

int main(int argc, char **argv)
{
	(void)cache_test_begin(argc, argv);
	(void)snprintf(model, sizeof model, "%s", cache_path("model.safetensors"));
	cache_write(model, N, BYTES, 4);
	/* One more, so that the holder stays. */
	cache_write(cache_path("other.safetensors"), 1, 1, 4);
	CHECK(hoist_cache_add(cache_path("other.safetensors"), NULL, NULL) == 0);
	lib_sweep_allocations(scenario, 2000);
	OK(hoist_cache_drop(NULL, NULL));
	cache_wait_for_end();
	hold_for_nobody();
	run_path();
	return 0;
}
