/* SPDX-License-Identifier: MIT */
/* The process in which calls fail, seen from its parent: the parent answers for the kernel, shows a
 * process that does not go on, and finds the processes that are left. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/pass-fd.h"

#define HANG_NS (UINT64_C(120) * 1000000000)

/* --- a process that does not go on --- */

static void show_file(const char *what, long pid, long tid)
{
	char path[128];
	char text[512];
	(void)snprintf(path, sizeof path, "/proc/%ld/task/%ld/%s", pid, tid, what);
	FILE *file = fopen(path, "r");
	if (file == NULL)
		return;
	if (fgets(text, sizeof text, file) != NULL)
		printf("    %s: %s%s", what, text, strchr(text, '\n') != NULL ? "" : "\n");
	(void)fclose(file);
}

static void show_threads(pid_t pid)
{
	char text[128];
	(void)snprintf(text, sizeof text, "/proc/%d/task", (int)pid);
	DIR *folder = opendir(text);
	struct dirent *entry;
	while (folder != NULL && (entry = readdir(folder)) != NULL) {
		long tid = strtol(entry->d_name, NULL, 10);
		if (tid <= 0)
			continue;
		printf("  thread %ld:\n", tid);
		show_file("comm", pid, tid);
		show_file("syscall", pid, tid);
		show_file("wchan", pid, tid);
	}
	if (folder != NULL)
		(void)closedir(folder);
	(void)fflush(stdout);
	(void)snprintf(text, sizeof text,
		       "gdb -q -batch -p %d -ex 'thread apply all bt 16' 2>&1 </dev/null | "
		       "grep -E '^(Thread|#)'",
		       (int)pid);
	(void)!system(text);
}

/* --- one process --- */

const char *const sweep_kinds[] = {"calls", "memory", "driver", "async", "own"};
pid_t sweep_peer;

void sweep_describe(const struct sweep_job *job, const char *what)
{
	int nr = atomic_load(&sweep->nr);
	atomic_fetch_add(&sweep->n_wrong, 1);
	printf("%s:%s%s:%ld:%u (%s %s): %s\n", job->scenario->name, job->cold ? "cold-" : "",
	       sweep_kinds[job->kind], atomic_load(&sweep->n), atomic_load(&sweep->way),
	       nr >= 0 ? sweep_call_name(nr) : "no system call",
	       nr >= 0 ? strerrorname_np(atomic_load(&sweep->err)) : "", what);
}

/* Answers until @child has ended; gives its status. */
static int attend(const struct sweep_job *job, pid_t child, int listener)
{
	struct pollfd waits[2] = {{.fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN},
				  {.fd = listener, .events = POLLIN}};
	unsigned long beats = 0;
	uint64_t since = hoist__now_ns();
	int status = 0;
	while (true) {
		int n = poll(waits, 2, 1000);
		if (n > 0 && (waits[1].revents & POLLIN) != 0)
			sweep_answer(listener, child);
		else if (n > 0 && (waits[1].revents & POLLHUP) != 0)
			waits[1].fd = -1;
		else if (n > 0 && waits[0].revents != 0)
			break;
		if (beats != atomic_load(&sweep->beats)) {
			beats = atomic_load(&sweep->beats);
			since = hoist__now_ns();
		} else if (hoist__now_ns() - since > HANG_NS) {
			sweep_describe(job, "it does not go on");
			show_threads(child);
			(void)kill(child, SIGKILL);
			since = hoist__now_ns();
		}
	}
	(void)close(waits[0].fd);
	if (waitpid(child, &status, 0) != child)
		sweep_die("waitpid");
	return status;
}

/* The processes that the child started end with it. */
static void end_orphans(const struct sweep_job *job)
{
	char text[256] = "";
	FILE *file = fopen("/proc/thread-self/children", "r");
	if (file != NULL) {
		(void)!fgets(text, sizeof text, file);
		(void)fclose(file);
	}
	char *at = text;
	long pid;
	while ((pid = strtol(at, &at, 10)) > 0) {
		if (pid == sweep_peer)
			continue;
		sweep_describe(job, "a process is left");
		(void)kill((pid_t)pid, SIGKILL);
		(void)waitpid((pid_t)pid, NULL, 0);
	}
}

bool sweep_run(const struct sweep_job *job)
{
	int sockets[2];
	int listener = -1;
	(void)fflush(stdout);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
		sweep_die("socketpair");
	pid_t child = fork();
	if (child < 0)
		sweep_die("fork");
	if (child == 0) {
		close(sockets[0]);
		if (job->kind == SWEEP_CALLS && sweep_filter(sockets[1]) < 0)
			_exit(78);
		close(sockets[1]);
		sweep_child(job);
	}
	close(sockets[1]);
	if (job->kind == SWEEP_CALLS)
		listener = take_fd(sockets[0]);
	close(sockets[0]);
	int status = attend(job, child, listener);
	end_orphans(job);
	if (listener >= 0)
		close(listener);
	if (status == 0)
		return true;
	char text[64];
	(void)snprintf(text, sizeof text, "the process ended with status 0x%x", (unsigned)status);
	sweep_describe(job, text);
	return false;
}
