/* SPDX-License-Identifier: MIT */
/* tools/progress.h - how far it is, on stderr, only where somebody watches.
 *
 *     loading   1.21 GiB of 2.00 GiB   60 %   1.93 GB/s   0.44 s left
 *
 * Drawn when stderr is a terminal, first after a fifth of a second (what is over
 * by then needs none) and at most ten times a second.  There is one such line in
 * a process; fail() takes it away before it prints.
 */
#ifndef HOIST_TOOLS_PROGRESS_H
#define HOIST_TOOLS_PROGRESS_H

#include <stdint.h>

void progress_begin(const char *doing);
void progress_update(uint64_t done, uint64_t total);

/* Takes the line away; harmless where there is none. */
void progress_end(void);

#endif
