/* SPDX-License-Identifier: MIT */
/* tests/faults/seccomp.h - the system calls that containers leave to a process.
 *
 * A profile refuses a call with an error, and the process goes on.  Profiles that kill
 * (SIGSYS) are no subject here: nobody can ask such a kernel what it allows. */
#ifndef HOIST_TESTS_FAULT_SECCOMP_H
#define HOIST_TESTS_FAULT_SECCOMP_H

#include <stdbool.h>

/* Docker's default profile of 25 and later for a container without capabilities of its own:
 * a list of what is allowed, EPERM for all else, ENOSYS for clone3.  Among what is missing:
 * io_uring, mbind, get_mempolicy, set_mempolicy, move_pages, perf_event_open, kcmp. */
bool fault_seccomp_docker(void);

/* A profile made before the calls of the last ten years: EPERM for statx, openat2, preadv2,
 * memfd_create, mlock2, copy_file_range, cachestat, io_uring and others. */
bool fault_seccomp_older(void);

/* Refuses the calls that a sandbox with a kernel of its own lacks: ENOSYS for io_uring, move_pages,
 * mbind, cachestat, copy_file_range, memfd_secret, preadv2 with flags; EINVAL for the
 * advice of later kernels (populate, collapse). */
bool fault_seccomp_sandbox(void);

#endif
