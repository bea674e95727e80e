/* SPDX-License-Identifier: MIT */
/* A holder that nobody waits for ends by itself, and a set-uid program starts no holder that its
 * caller names.  Exit: 0, 1. */
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

#include "tests/support/lib-cache.h"

static char model[4096];

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

/* The holder that was run has seen this mark of the environment. */
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

/* Only an ordinary program runs the `hoist` that the user put into a folder of $PATH. */
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
	cache_write(model, 4, 3000, 4);
	hold_for_nobody();
	run_path();
	return 0;
}
