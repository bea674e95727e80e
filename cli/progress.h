/* SPDX-License-Identifier: MIT */
/* cli/progress.h - how far it is, on stderr, only where somebody watches.
 *
 *     loading   1.21 GiB of 2.00 GiB   60 %   1.93 GB/s   0.44 s left
 *
 * Drawn when stderr is a terminal, first after a fifth of a second (what is over
 * by then needs none) and at most ten times a second.  There is one such line in
 * a process; fail() takes it away before it prints.
 */
#ifndef HOIST_CLI_PROGRESS_H
#define HOIST_CLI_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

void progress_begin(const char *doing);
void progress_update(uint64_t done, uint64_t total);

/* "measuring A 4096 B, jemalloc   12 of 210": where steps are counted; without
 * progress_begin(), at once and each time. */
void progress_steps(const char *what, const char *whom, size_t done, size_t total);

/* Takes the line away; harmless where there is none. */
void progress_end(void);

#endif
