/* SPDX-License-Identifier: MIT */
/* tests/support/wrap-uring.h - liburing's calls that enter the kernel: URING_ENTERS(ENTER) expands
 * ENTER(name, (parameters), (arguments)) for each, where the parameter `ring` is the ring.  The linker
 * sends these calls to the test (--wrap, see wrap.h). */
#ifndef HOIST_TESTS_WRAP_URING_H
#define HOIST_TESTS_WRAP_URING_H

#include <liburing.h>

#include "tests/support/wrap.h"

#define URING_ENTERS(ENTER)                                                                        \
	ENTER(io_uring_submit, (struct io_uring * ring), (ring))                                   \
	ENTER(io_uring_submit_and_wait, (struct io_uring * ring, unsigned n), (ring, n))           \
	ENTER(io_uring_submit_and_get_events, (struct io_uring * ring), (ring))                    \
	ENTER(io_uring_submit_and_wait_timeout,                                                    \
	      (struct io_uring * ring, struct io_uring_cqe * *cqe, unsigned n,                     \
	       struct __kernel_timespec * timeout, sigset_t * mask),                               \
	      (ring, cqe, n, timeout, mask))

#endif
