/* SPDX-License-Identifier: MIT */
/* Another program, run to its end.  The contract is in child.h. */
#include "config.h"

#include "bench/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/fail.h"

/* A file that holds @text and is read from its beginning; -1 and errno. */
static int input_file(const char *text)
{
	if (text == NULL)
		return open("/dev/null", O_RDONLY | O_CLOEXEC);
	int fd = memfd_create("input", MFD_CLOEXEC);
	size_t length = strlen(text);
	for (size_t done = 0; fd >= 0 && done < length;) {
		ssize_t put = write(fd, text + done, length - done);
		if (put < 0 && errno != EINTR) {
			(void)close(fd);
			return -1;
		}
		if (put > 0)
			done += (size_t)put;
	}
	if (fd >= 0)
		(void)lseek(fd, 0, SEEK_SET);
	return fd;
}

static _Noreturn void become(const struct child *child, pid_t parent, int input, int text)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127); /* it ended in between */
	(void)signal(SIGPIPE, SIG_DFL);
	if (dup2(input, STDIN_FILENO) < 0 || dup2(text, STDERR_FILENO) < 0 ||
	    dup2(child->output >= 0 ? child->output : text, STDOUT_FILENO) < 0)
		_exit(127);
	for (size_t i = 0; child->settings != NULL && child->settings[i] != NULL; i++) {
		char *setting = strdup(child->settings[i]);
		if (setting == NULL || putenv(setting) != 0)
			_exit(127);
	}
	(void)execvp(child->argv[0], (char *const *)(uintptr_t)child->argv);
	_exit(127);
}

/* Reads until the child and all processes that it started have closed their ends. */
static void read_text(int fd, struct child_result *ret)
{
	const size_t half = sizeof ret->text / 2;
	size_t n = 0;
	for (;;) {
		if (n == sizeof ret->text - 1) {
			memmove(ret->text, ret->text + n - half, half);
			n = half;
		}
		ssize_t got = read(fd, ret->text + n, sizeof ret->text - 1 - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	ret->text[n] = '\0';
}

static int wait_for(pid_t pid)
{
	int status = 0;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return 127;
	}
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int child_run(const struct child *child, struct child_result *ret)
{
	int ends[2];
	int input = input_file(child->input);
	if (input < 0 || pipe2(ends, O_CLOEXEC) < 0) {
		int err = errno;
		if (input >= 0)
			(void)close(input);
		return fail("running %s: %s", child->argv[0], strerror(err));
	}
	pid_t parent = getpid();
	pid_t pid = fork();
	if (pid == 0)
		become(child, parent, input, ends[1]);
	int err = errno;
	/* read_text() ends when no process has this end open any more. */
	(void)close(ends[1]);
	(void)close(input);
	if (pid > 0) {
		read_text(ends[0], ret);
		ret->status = wait_for(pid);
	}
	(void)close(ends[0]);
	return pid > 0 ? STATUS_OK : fail("running %s: %s", child->argv[0], strerror(err));
}

bool child_has_ended(pid_t child)
{
	siginfo_t ended = {0};
	return waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
	       ended.si_pid != 0;
}

const char *child_last_line(struct child_result *result)
{
	static const char prefix[] = "hoist: ";
	size_t length = strlen(result->text);
	while (length > 0 && result->text[length - 1] == '\n')
		result->text[--length] = '\0';
	const char *newline = strrchr(result->text, '\n');
	const char *line = newline != NULL ? newline + 1 : result->text;
	return strncmp(line, prefix, strlen(prefix)) == 0 ? line + strlen(prefix) : line;
}
