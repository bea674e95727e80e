/* SPDX-License-Identifier: MIT */
/* The lists of system calls of each profile, and the filters that libseccomp makes of them. */
#include "config.h"

#include "tests/faults/seccomp.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* By what they are about.  Names that this machine or this libseccomp does not know are left out:
 * they cannot be called either. */
static const char *const allowed[] = {
	/* files */
	"access",
	"chdir",
	"chmod",
	"chown",
	"close",
	"close_range",
	"copy_file_range",
	"creat",
	"dup",
	"dup2",
	"dup3",
	"faccessat",
	"faccessat2",
	"fadvise64",
	"fallocate",
	"fanotify_mark",
	"fchdir",
	"fchmod",
	"fchmodat",
	"fchmodat2",
	"fchown",
	"fchownat",
	"fcntl",
	"fdatasync",
	"fgetxattr",
	"flistxattr",
	"flock",
	"fremovexattr",
	"fsetxattr",
	"fstat",
	"fstatfs",
	"fsync",
	"ftruncate",
	"futimesat",
	"getcwd",
	"getdents",
	"getdents64",
	"getxattr",
	"inotify_add_watch",
	"inotify_init",
	"inotify_init1",
	"inotify_rm_watch",
	"ioctl",
	"lchown",
	"lgetxattr",
	"link",
	"linkat",
	"listxattr",
	"llistxattr",
	"lremovexattr",
	"lseek",
	"lsetxattr",
	"lstat",
	"mkdir",
	"mkdirat",
	"mknod",
	"mknodat",
	"name_to_handle_at",
	"newfstatat",
	"open",
	"openat",
	"openat2",
	"pipe",
	"pipe2",
	"pread64",
	"preadv",
	"preadv2",
	"pwrite64",
	"pwritev",
	"pwritev2",
	"read",
	"readahead",
	"readlink",
	"readlinkat",
	"readv",
	"removexattr",
	"rename",
	"renameat",
	"renameat2",
	"rmdir",
	"sendfile",
	"setxattr",
	"splice",
	"stat",
	"statfs",
	"statx",
	"symlink",
	"symlinkat",
	"sync",
	"sync_file_range",
	"syncfs",
	"tee",
	"truncate",
	"umask",
	"unlink",
	"unlinkat",
	"utime",
	"utimensat",
	"utimes",
	"vmsplice",
	"write",
	"writev",
	"cachestat",
	/* the older asynchronous reads */
	"io_cancel",
	"io_destroy",
	"io_getevents",
	"io_pgetevents",
	"io_setup",
	"io_submit",
	"ioprio_get",
	"ioprio_set",
	/* waiting */
	"epoll_create",
	"epoll_create1",
	"epoll_ctl",
	"epoll_ctl_old",
	"epoll_pwait",
	"epoll_pwait2",
	"epoll_wait",
	"epoll_wait_old",
	"eventfd",
	"eventfd2",
	"poll",
	"ppoll",
	"pselect6",
	"select",
	"signalfd",
	"signalfd4",
	/* memory */
	"brk",
	"madvise",
	"map_shadow_stack",
	"membarrier",
	"memfd_create",
	"memfd_secret",
	"mincore",
	"mlock",
	"mlock2",
	"mlockall",
	"mmap",
	"mprotect",
	"mremap",
	"msync",
	"munlock",
	"munlockall",
	"munmap",
	"pkey_alloc",
	"pkey_free",
	"pkey_mprotect",
	"process_mrelease",
	"remap_file_pages",
	/* sockets and messages */
	"accept",
	"accept4",
	"bind",
	"connect",
	"getpeername",
	"getsockname",
	"getsockopt",
	"listen",
	"recv",
	"recvfrom",
	"recvmmsg",
	"recvmsg",
	"send",
	"sendmmsg",
	"sendmsg",
	"sendto",
	"setsockopt",
	"shutdown",
	"socketpair",
	"mq_getsetattr",
	"mq_notify",
	"mq_open",
	"mq_timedreceive",
	"mq_timedsend",
	"mq_unlink",
	"msgctl",
	"msgget",
	"msgrcv",
	"msgsnd",
	"semctl",
	"semget",
	"semop",
	"semtimedop",
	"shmat",
	"shmctl",
	"shmdt",
	"shmget",
	/* processes and threads */
	"arch_prctl",
	"capget",
	"capset",
	"execve",
	"execveat",
	"exit",
	"exit_group",
	"fork",
	"futex",
	"futex_requeue",
	"futex_wait",
	"futex_waitv",
	"futex_wake",
	"get_robust_list",
	"get_thread_area",
	"getcpu",
	"getpgid",
	"getpgrp",
	"getpid",
	"getppid",
	"getpriority",
	"getsid",
	"gettid",
	"kill",
	"landlock_add_rule",
	"landlock_create_ruleset",
	"landlock_restrict_self",
	"modify_ldt",
	"pause",
	"pidfd_open",
	"pidfd_send_signal",
	"prctl",
	"process_vm_readv",
	"process_vm_writev",
	"ptrace",
	"restart_syscall",
	"rseq",
	"rt_sigaction",
	"rt_sigpending",
	"rt_sigprocmask",
	"rt_sigqueueinfo",
	"rt_sigreturn",
	"rt_sigsuspend",
	"rt_sigtimedwait",
	"rt_tgsigqueueinfo",
	"sched_get_priority_max",
	"sched_get_priority_min",
	"sched_getaffinity",
	"sched_getattr",
	"sched_getparam",
	"sched_getscheduler",
	"sched_rr_get_interval",
	"sched_setaffinity",
	"sched_setattr",
	"sched_setparam",
	"sched_setscheduler",
	"sched_yield",
	"seccomp",
	"set_robust_list",
	"set_thread_area",
	"set_tid_address",
	"setpgid",
	"setpriority",
	"setsid",
	"sigaltstack",
	"tgkill",
	"tkill",
	"uname",
	"vfork",
	"wait4",
	"waitid",
	/* users, limits, times */
	"adjtimex",
	"alarm",
	"clock_adjtime",
	"clock_getres",
	"clock_gettime",
	"clock_nanosleep",
	"getegid",
	"geteuid",
	"getgid",
	"getgroups",
	"getitimer",
	"getrandom",
	"getresgid",
	"getresuid",
	"getrlimit",
	"getrusage",
	"gettimeofday",
	"getuid",
	"nanosleep",
	"prlimit64",
	"setfsgid",
	"setfsuid",
	"setgid",
	"setgroups",
	"setitimer",
	"setregid",
	"setresgid",
	"setresuid",
	"setreuid",
	"setrlimit",
	"setuid",
	"sysinfo",
	"time",
	"timer_create",
	"timer_delete",
	"timer_getoverrun",
	"timer_gettime",
	"timer_settime",
	"timerfd_create",
	"timerfd_gettime",
	"timerfd_settime",
	"times",
	"chroot",
};

static bool allow(scmp_filter_ctx filter, const char *name)
{
	int number = seccomp_syscall_resolve_name(name);
	return number == __NR_SCMP_ERROR || number < 0 ||
	       seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0) == 0;
}

/* Calls of which some arguments are allowed only. */
static bool allow_some(scmp_filter_ctx filter)
{
	static const uint64_t personalities[] = {0, 0x8, 0x20000, 0x20008, 0xffffffff};
	const uint64_t namespaces = 0x7e020000; /* CLONE_NEW... */
	bool ok = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
				   SCMP_A0(SCMP_CMP_MASKED_EQ, namespaces, 0)) == 0;
	ok = ok && seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
				    SCMP_A0(SCMP_CMP_NE, AF_VSOCK, 0)) == 0;
	for (size_t i = 0; ok && i < sizeof personalities / sizeof personalities[0]; i++)
		ok = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1,
				      SCMP_A0(SCMP_CMP_EQ, personalities[i], 0)) == 0;
	return ok && seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0;
}

/* EPERM, as a list of what is allowed says of what it does not know. */
bool fault_seccomp_older(void)
{
	static const char *const unknown[] = {
		"cachestat",	   "clone3",	     "close_range",
		"copy_file_range", "faccessat2",     "fchmodat2",
		"io_uring_enter",  "io_uring_setup", "io_uring_register",
		"memfd_create",	   "mlock2",	     "openat2",
		"pidfd_open",	   "preadv2",	     "pwritev2",
		"renameat2",	   "statx",
	};
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	bool ok = filter != NULL;
	for (size_t i = 0; ok && i < sizeof unknown / sizeof unknown[0]; i++) {
		int number = seccomp_syscall_resolve_name(unknown[i]);
		int err = strcmp(unknown[i], "clone3") == 0 ? ENOSYS : EPERM;
		if (number >= 0)
			ok = seccomp_rule_add(filter, SCMP_ACT_ERRNO((unsigned)err), number, 0) ==
			     0;
	}
	ok = ok && seccomp_load(filter) == 0;
	seccomp_release(filter);
	return ok;
}

bool fault_seccomp_docker(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	bool ok = filter != NULL;
	for (size_t i = 0; ok && i < sizeof allowed / sizeof allowed[0]; i++)
		ok = allow(filter, allowed[i]);
	ok = ok && allow_some(filter) && seccomp_load(filter) == 0;
	seccomp_release(filter);
	return ok;
}

bool fault_seccomp_sandbox(void)
{
	static const char *const unknown[] = {
		"io_uring_setup",  "io_uring_enter", "io_uring_register", "move_pages",
		"mbind",	   "get_mempolicy",  "set_mempolicy",	  "cachestat",
		"copy_file_range", "memfd_secret",   "process_vm_readv",  "kcmp",
		"perf_event_open", "close_range",    "faccessat2",	  "openat2",
		"clone3",
	};
	static const int advice[] = {22, 23, 24, 25}; /* populate, collapse */
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	bool ok = filter != NULL;
	for (size_t i = 0; ok && i < sizeof unknown / sizeof unknown[0]; i++) {
		int number = seccomp_syscall_resolve_name(unknown[i]);
		if (number >= 0)
			ok = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), number, 0) == 0;
	}
	for (size_t i = 0; ok && i < sizeof advice / sizeof advice[0]; i++)
		ok = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(madvise), 1,
				      SCMP_A2(SCMP_CMP_EQ, (uint64_t)advice[i], 0)) == 0;
	ok = ok &&
	     seccomp_rule_add(filter, SCMP_ACT_ERRNO(EOPNOTSUPP), SCMP_SYS(preadv2), 1,
			      SCMP_A5(SCMP_CMP_NE, 0, 0)) == 0 &&
	     seccomp_load(filter) == 0;
	seccomp_release(filter);
	return ok;
}
