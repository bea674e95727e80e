/* SPDX-License-Identifier: MIT */
/* tests/support/child.h - the end of a child of fork. */
#ifndef HOIST_TESTS_CHILD_H
#define HOIST_TESTS_CHILD_H

#include <sys/types.h>
#include <sys/wait.h>

/* Waits for @child.  Returns: its exit status; 128 and the signal that ended it; -1: there is no
 * such child. */
static inline int child_status(pid_t child)
{
	int status = -1;
	if (child <= 0 || waitpid(child, &status, 0) != child)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
