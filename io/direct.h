/* SPDX-License-Identifier: MIT */
/* io/direct.h - finding out whether a file can be read without the page cache. */
#ifndef HOIST_IO_DIRECT_H
#define HOIST_IO_DIRECT_H

#include "io/file.h"

/* Sets direct_fd and the alignments of @file, whose `fd` is open, or direct_note.
 * There is no failure: every file can be read through the page cache. */
void hoist__direct_open(struct hoist__file *file, bool wanted);

/* From now on @file, which nobody reads yet, has no direct descriptor; @why goes to direct_note. */
void hoist__direct_give_up(struct hoist__file *file, const char *why);

#endif
