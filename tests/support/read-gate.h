/* SPDX-License-Identifier: MIT */
/* tests/support/read-gate.h - a disk that answers so many reads, and the others once the
 * test lets it: what a test does in the middle of reading, it does in the middle however slow the
 * machine is.
 *
 * A program's __wrap_pread() calls gate_pass() first.  One user per program. */
#ifndef HOIST_TESTS_READ_GATE_H
#define HOIST_TESTS_READ_GATE_H

#include <limits.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_uint gate_asked;		 /* since it was shut */
static atomic_uint gate_lets = UINT_MAX; /* so many of these */

static inline void gate_shut_after(unsigned n_reads)
{
	atomic_store(&gate_asked, 0);
	atomic_store(&gate_lets, n_reads);
}

static inline void gate_open(void)
{
	atomic_store(&gate_lets, UINT_MAX);
}

static inline void gate_pass(void)
{
	unsigned number = atomic_fetch_add(&gate_asked, 1) + 1;
	while (number > atomic_load(&gate_lets))
		(void)usleep(500);
}

#endif
