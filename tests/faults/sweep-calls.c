/* SPDX-License-Identifier: MIT */
/* System calls that fail: the errors that each may have, and the thread that makes the call.  The
 * kernel sends a notification of each call of the scenario's processes (SECCOMP_RET_USER_NOTIF) to
 * the parent, which counts, lets all of them go on, and answers one. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/pass-fd.h"

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

/* --- the tables --- */

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* everywhere */
#endif

#define MOST_WAYS 4
#define NO_BYTES (-1) /* 0, and no error: the file has ended */

/* Errors that a kernel gives for this call where nothing is wrong with its arguments. */
static const struct {
	const char *name;
	int nr;
	int ways[MOST_WAYS];
} calls[] = {
#define CALL(name, ...)                                                                            \
	{                                                                                          \
#name, SYS_##name,                                                                 \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
	CALL(openat, EMFILE, ENOMEM, EACCES),
	CALL(openat2, EMFILE, EAGAIN, ENOSYS),
	CALL(read, EIO, EINTR, NO_BYTES),
	CALL(pread64, EIO, EINTR, NO_BYTES),
	CALL(readv, EIO, EINTR),
	CALL(preadv, EIO, EINTR),
	CALL(preadv2, EOPNOTSUPP, EIO),
	CALL(write, EIO, ENOSPC, EINTR),
	CALL(pwrite64, EIO, ENOSPC, EINTR),
	CALL(writev, EIO, ENOSPC, EINTR),
	CALL(pwritev, EIO, ENOSPC, EINTR),
	CALL(mmap, ENOMEM, EAGAIN),
	CALL(mremap, ENOMEM),
	CALL(mprotect, ENOMEM),
	CALL(madvise, ENOMEM, EAGAIN, EINVAL),
	CALL(mincore, ENOMEM, EAGAIN),
	CALL(mlock, ENOMEM, EPERM, EAGAIN),
	CALL(mlock2, ENOMEM, EPERM, EAGAIN),
	CALL(msync, EIO),
	CALL(mbind, EPERM, ENOMEM, EIO),
	CALL(set_mempolicy, EPERM, ENOMEM),
	CALL(get_mempolicy, EPERM),
	CALL(move_pages, EPERM, ENOMEM),
	CALL(newfstatat, EIO, ENOMEM),
	CALL(fstat, ENOMEM, EIO),
	CALL(statx, EACCES, ENOMEM),
	CALL(fstatfs, EIO, ENOSYS),
	CALL(statfs, EACCES, EIO),
	CALL(lseek, EINVAL),
	CALL(fcntl, EINVAL, ENOLCK),
	CALL(ioctl, ENOMEM, EINTR, ENOTTY),
	CALL(fadvise64, EINVAL),
	CALL(readahead, EINVAL),
	CALL(sendfile, EINVAL, EIO, EINTR, NO_BYTES),
	CALL(cachestat, ENOSYS, EOPNOTSUPP),
	CALL(faccessat, EACCES),
	CALL(faccessat2, EACCES),
	CALL(getdents64, EIO, ENOMEM),
	CALL(readlinkat, EACCES, ENOMEM),
	CALL(getcwd, ENOMEM),
	CALL(flock, EINTR, ENOLCK),
	CALL(fallocate, ENOSPC, EOPNOTSUPP, EINTR),
	CALL(ftruncate, EIO, ENOSPC),
	CALL(fsync, EIO, ENOSPC),
	CALL(fdatasync, EIO, ENOSPC),
	CALL(sync_file_range, EIO),
	CALL(copy_file_range, EIO, EXDEV),
	CALL(linkat, EACCES, ENOSPC, EIO),
	CALL(renameat, EIO, ENOSPC),
	CALL(renameat2, EIO, EINVAL),
	CALL(unlinkat, EIO, EACCES),
	CALL(mkdirat, EACCES, ENOSPC),
	CALL(fchmod, EPERM, EIO),
	CALL(fchmodat, EPERM, EIO),
	CALL(fchown, EPERM, EIO),
	CALL(lgetxattr, EIO, ENOMEM),
	CALL(fgetxattr, EIO, ENOMEM),
	CALL(memfd_create, EMFILE, ENOMEM),
	CALL(io_uring_setup, ENOMEM, EPERM, ENOSYS, EMFILE),
	CALL(io_uring_enter, EINTR, EAGAIN, EBUSY),
	CALL(io_uring_register, ENOMEM, EINVAL),
	CALL(eventfd2, EMFILE, ENOMEM),
	CALL(pipe2, EMFILE),
	CALL(dup, EMFILE),
	CALL(dup3, EMFILE, EBUSY),
	CALL(epoll_create1, EMFILE, ENOMEM),
	CALL(epoll_ctl, ENOMEM, ENOSPC),
	CALL(epoll_pwait, EINTR),
	CALL(ppoll, EINTR, ENOMEM),
	CALL(timerfd_create, EMFILE),
	CALL(signalfd4, EMFILE),
	CALL(socket, EMFILE, EACCES, ENOBUFS),
	CALL(socketpair, EMFILE, ENOBUFS),
	CALL(connect, EACCES, EAGAIN, EINTR),
	CALL(bind, EADDRINUSE, EACCES, ENOMEM),
	CALL(listen, EADDRINUSE),
	CALL(accept4, EMFILE, EINTR, ENOMEM, ECONNABORTED),
	CALL(sendto, ENOBUFS, EPIPE, EINTR),
	CALL(sendmsg, ENOBUFS, EPIPE, EINTR, ETOOMANYREFS),
	CALL(recvfrom, ENOMEM, ECONNRESET, EINTR),
	CALL(recvmsg, ENOMEM, ECONNRESET, EINTR),
	CALL(getsockopt, ENOBUFS),
	CALL(setsockopt, ENOMEM),
	CALL(getsockname, ENOBUFS),
	CALL(shutdown, ENOTCONN),
	CALL(clone, EAGAIN, ENOMEM),
	CALL(clone3, EAGAIN, ENOMEM, ENOSYS),
	CALL(execve, ENOENT, ENOMEM, EACCES),
	CALL(execveat, ENOENT, ENOMEM),
	CALL(wait4, EINTR),
	CALL(waitid, EINTR),
	CALL(setsid, EPERM),
	CALL(fchdir, EACCES),
	CALL(chdir, EACCES),
	CALL(prctl, EINVAL),
	CALL(getrandom, EINTR, ENOSYS),
	CALL(prlimit64, EPERM),
	CALL(sched_getaffinity, EPERM),
	CALL(sched_setaffinity, EPERM),
	CALL(membarrier, EPERM, ENOSYS),
	CALL(process_vm_readv, EPERM),
	CALL(pidfd_open, EMFILE, ENOSYS),
	CALL(getcpu, ENOSYS),
	CALL(close_range, ENOSYS),
#ifdef SYS_open
	CALL(open, EMFILE, ENOMEM, EACCES),
	CALL(stat, EACCES, ENOMEM),
	CALL(lstat, EACCES, ENOMEM),
	CALL(access, EACCES),
	CALL(readlink, EACCES, ENOMEM),
	CALL(poll, EINTR, ENOMEM),
	CALL(epoll_wait, EINTR),
	CALL(pipe, EMFILE),
	CALL(dup2, EMFILE, EBUSY),
	CALL(rename, EIO, ENOSPC),
	CALL(unlink, EIO, EACCES),
	CALL(mkdir, EACCES, ENOSPC),
	CALL(rmdir, EIO, ENOTEMPTY),
	CALL(fork, EAGAIN, ENOMEM),
	CALL(vfork, EAGAIN, ENOMEM),
#endif
#undef CALL
};

/* Calls that are let through unseen, and why. */
static const struct {
	int nr;
	const char *why;
} excused[] = {
	{SYS_close, "releases the descriptor whatever it returns"},
	{SYS_munmap,
	 "of whole mappings of one's own it only fails for want of memory to split one"},
	{SYS_munlock, "the same; and what is unmapped is unlocked"},
	{SYS_munlockall, "fails for no reason"},
	{SYS_futex, "fails by its arguments alone; glibc ends the process then"},
	{SYS_brk, "malloc's own; that malloc fails is a sweep of its own"},
	{SYS_exit, "does not return"},
	{SYS_exit_group, "does not return"},
	{SYS_restart_syscall, "the kernel's own"},
	{SYS_rt_sigaction, "fails by its arguments alone"},
	{SYS_rt_sigprocmask, "fails by its arguments alone; glibc asserts that it did not"},
	{SYS_rt_sigreturn, "does not return"},
	{SYS_sigaltstack, "fails by its arguments alone"},
	{SYS_kill, "of one's own child, or to ask whether one is there"},
	{SYS_tgkill, "of a thread of one's own"},
	{SYS_getpid, "cannot fail"},
	{SYS_gettid, "cannot fail"},
	{SYS_getppid, "cannot fail"},
	{SYS_getuid, "cannot fail"},
	{SYS_geteuid, "cannot fail"},
	{SYS_getgid, "cannot fail"},
	{SYS_getegid, "cannot fail"},
	{SYS_umask, "cannot fail"},
	{SYS_uname, "fails by its arguments alone"},
	{SYS_sysinfo, "fails by its arguments alone"},
	{SYS_getrusage, "fails by its arguments alone"},
	{SYS_times, "fails by its arguments alone"},
	{SYS_sched_yield, "cannot fail"},
	{SYS_clock_gettime, "fails by its arguments alone"},
	{SYS_clock_getres, "fails by its arguments alone"},
	{SYS_clock_nanosleep, "is only ended early"},
	{SYS_nanosleep, "is only ended early"},
	{SYS_set_tid_address, "cannot fail; glibc's own"},
	{SYS_set_robust_list, "fails by its arguments alone; glibc's own"},
	{SYS_rseq, "glibc's own, which does without it"},
#ifdef SYS_arch_prctl
	{SYS_arch_prctl, "the loader's own, which ends the process if it fails"},
#endif
};

#define N_CALLS (sizeof calls / sizeof calls[0])
#define N_EXCUSED (sizeof excused / sizeof excused[0])

const char *sweep_call_name(int nr)
{
	static char text[32];
	for (size_t i = 0; i < N_CALLS; i++)
		if (calls[i].nr == nr)
			return calls[i].name;
	(void)snprintf(text, sizeof text, "system call %d", nr);
	return text;
}

/* --- the filter --- */

#define SOCKET 250 /* the one descriptor on which sendmsg() is not asked about */

/* AddressSanitizer's own memory and threads need these. */
static const int sanitizers[] = {SYS_mmap,   SYS_mprotect, SYS_madvise,
				 SYS_mremap, SYS_prctl,	   SYS_sched_getaffinity};

static size_t make_filter(struct sock_filter *code)
{
	size_t n = 0;
#define ADD(...)                                                                                   \
	do {                                                                                       \
		const struct sock_filter add = __VA_ARGS__;                                        \
		code[n++] = add;                                                                   \
	} while (0)
	ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
	for (size_t i = 0; i < N_EXCUSED; i++) {
		ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)excused[i].nr, 0, 1));
		ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	}
	for (size_t i = 0; SWEEP_SANITIZED && i < sizeof sanitizers / sizeof sanitizers[0]; i++) {
		ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)sanitizers[i], 0, 1));
		ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	}
	ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 3));
	ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])));
	ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCKET, 0, 1));
	ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
#undef ADD
	return n;
}

int sweep_filter(int socket)
{
	struct sock_filter code[2 * (N_EXCUSED + sizeof sanitizers / sizeof sanitizers[0]) + 8];
	struct sock_fprog program = {.filter = code};
	program.len = (unsigned short)make_filter(code);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || dup2(socket, SOCKET) < 0)
		return -errno;
	/* A thread that waits for its answer is not interrupted (Linux 5.19): only there a signal
	 * may be sent that shows where the call came from. */
	bool calm = true;
	long listener =
		syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
			&program);
	if (listener < 0) {
		calm = false;
		listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
				   SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	}
	if (listener < 0)
		return -errno;
	atomic_store(&sweep->traces, calm);
	bool sent = pass_fd(SOCKET, (int)listener);
	close((int)listener);
	close(SOCKET);
	return sent ? 0 : -EPIPE;
}

/* --- the answers --- */

/* How a call may fail; false if it is in no table. */
static bool choose(int nr, unsigned way, bool strikes, int *ret)
{
	for (size_t i = 0; i < N_CALLS; i++) {
		if (calls[i].nr != nr)
			continue;
		unsigned n = 0;
		while (n < MOST_WAYS && calls[i].ways[n] != 0)
			n++;
		if (strikes)
			atomic_store(&sweep->n_ways, n);
		*ret = calls[i].ways[way % n];
		return true;
	}
	return false;
}

void sweep_answer(int listener, pid_t child)
{
	struct seccomp_notif question;
	struct seccomp_notif_resp answer;
	memset(&question, 0, sizeof question);
	memset(&answer, 0, sizeof answer);
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &question) < 0)
		return; /* the asking process has ended */
	answer.id = question.id;
	answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	int err = 0;
	if (atomic_load(&sweep->armed)) {
		bool strikes = atomic_fetch_add(&sweep->seen, 1) + 1 == atomic_load(&sweep->at);
		if (!choose(question.data.nr, atomic_load(&sweep->way), strikes, &err))
			atomic_store(&sweep->unknown, question.data.nr);
		if (strikes && err != 0) {
			answer.flags = 0;
			answer.error = err == NO_BYTES ? 0 : -err;
			atomic_store(&sweep->err, err == NO_BYTES ? 0 : err);
			atomic_store(&sweep->nr, question.data.nr);
			if (atomic_load(&sweep->traces))
				(void)syscall(SYS_tgkill, child, question.pid, SIGUSR2);
		}
	}
	(void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}
