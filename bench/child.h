/* SPDX-License-Identifier: MIT */
/* bench/child.h - another program, run to its end. */
#ifndef HOIST_BENCH_CHILD_H
#define HOIST_BENCH_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct child {
	const char *const *argv;     /* NULL at the end; argv[0] is looked for in PATH */
	const char *const *settings; /* "NAME=VALUE" for its environment, NULL at the end; may
				      * be NULL */
	const char *input;	     /* all that it reads; NULL: nothing */
	int output;		     /* where its stdout goes; -1: into the text */
};

struct child_result {
	int status;	 /* its exit status; 128 + the signal that ended it; 127: not to be run */
	char text[4096]; /* its stderr, and stdout if that goes nowhere else: the end */
};

/* Runs @child and waits for its end; it is killed if this process ends before.  This process
 * has one thread.  Returns a STATUS_*, FAILED (with the message printed) if it could not even be
 * started. */
int child_run(const struct child *child, struct child_result *ret);

/* Whether a child of this process has ended.  waitpid() of it is still to come. */
bool child_has_ended(pid_t child);

/* Its last line, without the end and without "hoist: "; "" if there is none. */
const char *child_last_line(struct child_result *result);

#endif
