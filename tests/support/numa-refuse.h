/* SPDX-License-Identifier: MIT */
/* Makes the kernel refuse a system call for the rest of this process's life, as
 * a container's seccomp filter does. */
#ifndef HOIST_TESTS_NUMA_REFUSE_H
#define HOIST_TESTS_NUMA_REFUSE_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define REFUSE_LOW_WORD 4u
#else
#define REFUSE_LOW_WORD 0u
#endif

static inline int refuse_install(struct sock_filter *filter, size_t n)
{
	struct sock_fprog program = {.len = (unsigned short)n, .filter = filter};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

/* Call @number fails with @error.  Returns 0, or -1 if this cannot be arranged. */
static inline int refuse(long number, int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	return refuse_install(filter, sizeof filter / sizeof filter[0]);
}

/* The same, only where the third argument (madvise's advice) is @value. */
static inline int refuse_where(long number, unsigned value, int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args[2]) + REFUSE_LOW_WORD),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	return refuse_install(filter, sizeof filter / sizeof filter[0]);
}

#endif
