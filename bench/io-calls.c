/* SPDX-License-Identifier: MIT */
/* Calls for each chunk.  The contract is in io-calls.h. */
#include "config.h"

#include "bench/io-calls.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/child.h"
#include "bench/made.h"
#include "cli/fail.h"

#define CHUNK_BYTES ((uint64_t)2 << 20)
#define N_CHUNKS 40 /* of each of two tensors: more than there are slots */

static const char work[] = "a chunk of 2 MiB, hot to cuda:0";

struct counts {
	double driver;
	double system;
	const char *why; /* they are not known; NULL: they are */
};

/* --- the child: the command under a filter --- */

/* Each call is reported to the holder of the listener, before it is made, but for futex(2), and for
 * msync(2), by which the stand-in looks at the memory of copies.
 * Returns: the listener; below 0: none. */
static int install_filter(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_msync, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	};
	struct sock_fprog program = {sizeof code / sizeof code[0], code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			    &program);
}

/* Becomes `hoist load` of @n_tensors of the file.  Its first call under the filter, the execve,
 * waits until the parent has the listener, whose number is *@listener. */
static _Noreturn void run_load(const struct made *made, int n_tensors, int report,
			       _Atomic int *listener)
{
	char counts[40];
	const char *const argv[] = {"hoist",	"load",	    "--device",
				    "cuda:0",	"--tensor", n_tensors == 1 ? "t0" : "*",
				    made->path, NULL};
	(void)snprintf(counts, sizeof counts, "/proc/%ld/fd/%d", (long)getppid(), report);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    setenv("HOIST_EMULATE", "cuda:1", 1) != 0 ||
	    setenv("HOIST_EMULATE_REPORT", counts, 1) != 0)
		_exit(1);
	int fd = install_filter();
	atomic_store(listener, fd < 0 ? -1 : fd + 1);
	if (fd >= 0)
		(void)execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
	_exit(1);
}

/* --- the parent --- */

/* Lets each call go on, and counts.  Returns: the number, once nobody is left that makes calls. */
static double count_calls(int listener)
{
	double n = 0;
	struct pollfd ready = {.fd = listener, .events = POLLIN};
	while (poll(&ready, 1, -1) >= 0 || errno == EINTR) {
		struct seccomp_notif call;
		struct seccomp_notif_resp answer = {.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
		if ((ready.revents & POLLIN) == 0) {
			if ((ready.revents & (POLLHUP | POLLERR)) != 0)
				break;
			continue;
		}
		memset(&call, 0, sizeof call);
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0)
			continue; /* its thread ended meanwhile */
		n++;
		answer.id = call.id;
		(void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	return n;
}

/* The child's listener, as a descriptor of this process; below 0: none. */
static int take_listener(pid_t child, _Atomic int *number)
{
	while (atomic_load(number) == 0) {
		if (child_has_ended(child))
			return -1;
		(void)usleep(1000);
	}
	int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	int listener = pidfd < 0 || atomic_load(number) < 0
			       ? -1
			       : (int)syscall(SYS_pidfd_getfd, pidfd, atomic_load(number) - 1, 0);
	if (pidfd >= 0)
		(void)close(pidfd);
	return listener;
}

/* The sum of "calls" over the lines of a report; below 0: there is none. */
static double driver_calls(int report)
{
	double sum = -1;
	int copy = dup(report);
	FILE *in = copy < 0 ? NULL : fdopen(copy, "r");
	if (in == NULL)
		return -1;
	rewind(in);
	json_t *line;
	while ((line = json_loadf(in, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
		sum = (sum < 0 ? 0 : sum) + json_number_value(json_object_get(line, "calls"));
		json_decref(line);
	}
	(void)fclose(in);
	return sum;
}

static struct counts count(const struct made *made, int n_tensors, _Atomic int *shared)
{
	struct counts counts = {.why = NULL};
	int status = 0;
	int report = memfd_create("hoist-bench", MFD_CLOEXEC);
	atomic_store(shared, 0);
	(void)fflush(NULL);
	pid_t child = report < 0 ? -1 : fork();
	if (child == 0)
		run_load(made, n_tensors, report, shared);
	int listener = child < 0 ? -1 : take_listener(child, shared);
	if (listener >= 0)
		counts.system = count_calls(listener);
	else if (child >= 0)
		(void)kill(child, SIGKILL);
	if (listener >= 0)
		(void)close(listener);
	if (child < 0 || listener < 0)
		counts.why = "no filter of system calls can be set here";
	if (child >= 0 && (waitpid(child, &status, 0) != child || status != 0) &&
	    counts.why == NULL)
		counts.why = "the command could not load to a stand-in";
	counts.driver = counts.why == NULL ? driver_calls(report) : -1;
	if (counts.why == NULL && counts.driver < 0)
		counts.why = "the stand-in gave no report";
	if (report >= 0)
		(void)close(report);
	return counts;
}

static void add(struct results *results, const struct counts *one, const struct counts *two)
{
	results_bar(results, work, "driver calls", (two->driver - one->driver) / N_CHUNKS, "",
		    false, 12);
	results_bar(results, work, "system calls", (two->system - one->system) / N_CHUNKS, "",
		    false, 3);
}

int bench_calls(struct results *results)
{
	struct made made = {.fd = -1};
	_Atomic int *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return fail_memory();
	int status = made_open(2, N_CHUNKS, CHUNK_BYTES, &made);
	if (status == STATUS_OK) {
		const struct counts one = count(&made, 1, shared);
		const struct counts two = count(&made, 2, shared);
		if (one.why != NULL || two.why != NULL)
			results_missing(results, work, one.why != NULL ? one.why : two.why);
		else
			add(results, &one, &two);
	}
	made_close(&made);
	(void)munmap(shared, sizeof *shared);
	return status;
}
