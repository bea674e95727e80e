/* SPDX-License-Identifier: MIT */
/* tests/io/faults-calls.h - spoils the library's system calls: the linker sends the calls to
 * faults-calls.c (--wrap), which changes the answer of the Nth call of a family.
 *
 * A ring's answers are spoiled where they lie, in its completion queue; user_data 0 and 1 are
 * its cancel and its poll. */
#ifndef HOIST_TESTS_IO_FAULTS_CALLS_H
#define HOIST_TESTS_IO_FAULTS_CALLS_H

#include <stdatomic.h>
#include <stdbool.h>

enum family {
	NONE,
	READS,	  /* what a read or a write gave */
	RINGS,	  /* the same, but what a ring gave alone */
	ENTERS,	  /* io_uring_enter itself */
	RESOURCES /* making and opening things */
};

extern struct fault {
	enum family family;
	int answer;  /* a negative errno, or the bytes at most */
	bool lasts;  /* the Nth and all that follow */
	unsigned at; /* N */
	unsigned n;  /* if it lasts: so many */
} fault;

extern atomic_uint n_preads;

void set_fault(enum family family, int answer, bool lasts, unsigned at);

/* Ends the fault.  Returns: true if the Nth call never came. */
bool unreached(void);

#endif
