/* SPDX-License-Identifier: MIT */
/* cli/progress.h - a command's progress, on stderr, only if that is a terminal.
 *
 *     loading  1.21 GiB of 2.00 GiB  60 %  1.93 GB/s  0.44 s left  waits for storage
 *
 * The line is drawn first after a fifth of a second (a command that is over by then needs none),
 * and at most ten times a second.  A line longer than the terminal is wide is cut: one that wraps
 * could not be removed.  There is one such line in a process; fail() removes it before it
 * prints.
 */
#ifndef HOIST_CLI_PROGRESS_H
#define HOIST_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void progress_begin(const char *doing);
void progress_update(uint64_t done, uint64_t total);

/* True if progress_update() would draw now. */
bool progress_is_due(void);

/* "waits for storage": the end of the lines from now on; a literal.  NULL: they have no such end.
 */
void progress_held(const char *held);

/* Draws "measuring A 4096 B, jemalloc   12 of 210", for commands that count steps; without
 * progress_begin(), at once and each time. */
void progress_steps(const char *what, const char *subject, size_t done, size_t total);

/* Removes the line; harmless if there is none. */
void progress_end(void);

#endif
