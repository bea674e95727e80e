/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-start.c - starts the program that becomes the holder.
 * The contract is in lib/cache/cache.h.
 *
 * The holder is a program of its own, so that it keeps nothing of the caller's: no memory, no locks
 * of other threads, no driver. */
#include "config.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/wait.h"
#include "lib/cache/cache.h"

extern char **environ;

#define START_NS (UINT64_C(20) * 1000000000)

struct words {
	char text[512];
	size_t n;
};

/* In a set-uid program the user that started it chose $PATH, so no program is looked up there. */
static const char *choose_program(const char *given)
{
	static const char installed[] = HOIST_BINDIR "/hoist";
	if (given != NULL)
		return given;
	given = secure_getenv("HOIST_CACHE_HOLDER");
	if (given != NULL && given[0] != '\0')
		return given;
	return access(installed, X_OK) == 0 || getauxval(AT_SECURE) != 0 ? installed : "hoist";
}

/* A set-uid program may have become another user altogether.  A program that it starts would take
 * the environment for its own user's.  So that program gets no environment, and is not looked up in
 * $PATH. */
static int run(pid_t *ret, const char *program, const posix_spawn_file_actions_t *actions,
	       const posix_spawnattr_t *attributes)
{
	static char hoist[] = "hoist", cache[] = "cache", hold[] = "hold";
	char *const words[] = {hoist, cache, hold, NULL};
	char *const nothing[] = {NULL};
	if (getauxval(AT_SECURE) != 0 && program[0] != '/')
		return EACCES; /* the program would be looked up in the caller's current folder */
	if (getauxval(AT_SECURE) != 0)
		return posix_spawn(ret, program, actions, attributes, words, nothing);
	return posix_spawnp(ret, program, actions, attributes, words, environ);
}

/* The program starts with no signal blocked or handled, whatever the caller's state.  Its stderr
 * goes to @said. */
static int spawn(const char *program, int said, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	int err = posix_spawn_file_actions_init(&actions);
	if (err != 0)
		return -err;
	err = posix_spawnattr_init(&attributes);
	if (err != 0) {
		posix_spawn_file_actions_destroy(&actions);
		return -err;
	}
	err = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (err == 0)
		err = posix_spawnattr_setsigmask(&attributes, &none);
	if (err == 0)
		err = posix_spawnattr_setsigdefault(&attributes, &all);
	if (err == 0)
		err = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	if (err == 0)
		err = posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	if (err == 0)
		err = posix_spawn_file_actions_adddup2(&actions, said, 2);
	if (err == 0)
		err = run(ret, program, &actions, &attributes);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return -err;
}

/* Reads until the program closes its end: then it has ended, or is in the background. */
static int listen_to(int from, struct words *ret)
{
	uint64_t deadline = hoist__deadline(START_NS);
	for (;;) {
		struct pollfd one = {.fd = from, .events = POLLIN};
		int ready = poll(&one, 1, (int)(hoist__deadline_left(deadline) / 1000000));
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			return -ETIMEDOUT;
		char rest[64];
		size_t room = sizeof ret->text - 1 - ret->n;
		ssize_t n = room > 0 ? read(from, ret->text + ret->n, room)
				     : read(from, rest, sizeof rest);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		ret->n += room > 0 ? (size_t)n : 0;
	}
	while (ret->n > 0 && ret->text[ret->n - 1] == '\n')
		ret->n--;
	ret->text[ret->n] = '\0';
	return 0;
}

/* The calling program may have waited for all its children already, and so for this one. */
static bool ended_well(pid_t child)
{
	int status = 0;
	pid_t seen;
	do
		seen = waitpid(child, &status, 0);
	while (seen < 0 && errno == EINTR);
	return seen != child || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int hoist__cache_start(const char *given)
{
	const char *program = choose_program(given);
	struct words words = {.n = 0};
	int ends[2];
	pid_t child;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return hoist__fail_errno(-errno, "starting the cache's holder");
	int err = spawn(program, ends[1], &child);
	(void)close(ends[1]);
	if (err < 0) {
		(void)close(ends[0]);
		return hoist__fail_errno(err,
					 "starting the cache's holder, %s; set HOIST_CACHE_HOLDER "
					 "to the command `hoist`",
					 program);
	}
	err = listen_to(ends[0], &words);
	(void)close(ends[0]);
	if (err < 0)
		(void)kill(child, SIGKILL);
	/* Waits for the child in any case: a zombie would stay with the host program. */
	bool well = ended_well(child);
	if (err < 0)
		return hoist__fail(-ECHILD, "the cache's holder, %s, did not start in time",
				   program);
	if (!well)
		return hoist__fail(-ECHILD, "the cache's holder, %s, did not start: %s", program,
				   words.n > 0 ? words.text : "the process ended without a word");
	return 0;
}
