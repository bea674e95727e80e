/* SPDX-License-Identifier: MIT */
/* tests/faults/secure.h - two users of the machine, "mine" and "his", whom root becomes in child
 * processes; and a folder, the working one, in which both may make files. */
#ifndef HOIST_TESTS_FAULT_SECURE_H
#define HOIST_TESTS_FAULT_SECURE_H

#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/lib-cache.h"

#define MINE 64001u
#define HIS 64002u

static char secure_base[PATH_MAX];

static pid_t secure_owner;

/* Also where a check failed. */
static inline void secure_remove(void)
{
	static char command[PATH_MAX + 16];
	if (getpid() != secure_owner)
		return;
	(void)snprintf(command, sizeof command, "rm -rf '%s'", secure_base);
	if (chdir("/") == 0 && system(command) != 0)
		fprintf(stderr, "%s stays\n", secure_base);
}

/* The same for a process that a signal ends; children end, too. */
static inline void secure_end(int number)
{
	if (getpid() == secure_owner && chdir("/") == 0)
		(void)execl("/bin/rm", "rm", "-rf", secure_base, (char *)NULL);
	_exit(128 + number);
}

/* Where others can reach it: not in a folder of the test's own. */
static inline void secure_begin(void)
{
	if (geteuid() != 0) {
		printf("skipped: only root can become other users\n");
		exit(77);
	}
	(void)snprintf(secure_base, sizeof secure_base, "/tmp/hoist-secure.XXXXXX");
	(void)umask(022);
	CHECK(mkdtemp(secure_base) != NULL);
	OK(chmod(secure_base, 01777));
	OK(chdir(secure_base));
	secure_owner = getpid();
	check_cleanup(secure_remove);
	OK(atexit(secure_remove));
	CHECK(signal(SIGTERM, secure_end) != SIG_ERR && signal(SIGINT, secure_end) != SIG_ERR);
}

static inline void secure_become(uid_t user)
{
	if (user == 0)
		return;
	OK(setgroups(0, NULL));
	OK(setresgid(user, user, user));
	OK(setresuid(user, user, user));
}

static inline pid_t secure_start(uid_t user, void (*work)(void))
{
	(void)fflush(stdout);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child != 0)
		return child;
	secure_become(user);
	work();
	(void)fflush(stdout);
	_exit(0);
}

static inline void secure_await(pid_t child)
{
	int status = -1;
	CHECK(waitpid(child, &status, 0) == child);
	if (status != 0) {
		fprintf(stderr, "another user's process ended with %#x\n", (unsigned)status);
		exit(1);
	}
}

/* Runs @work as that user; a check that fails there fails the test. */
static inline void as(uid_t user, void (*work)(void))
{
	secure_await(secure_start(user, work));
}

#endif
