/* SPDX-License-Identifier: MIT */
/* io/direct.h - opens a file for direct reads, past the page cache, where that works. */
#ifndef HOIST_IO_DIRECT_H
#define HOIST_IO_DIRECT_H

#include "io/file.h"

/* Sets direct_fd and the alignments of @file, whose `fd` is open, or says in direct_note why there
 * is no direct descriptor.  Never fails: every file can be read through the page cache. */
void hoist__direct_open(struct hoist__file *file, bool wanted);

/* Why a file has no direct descriptor when the process may open no more. */
#define HOIST__TOO_FEW_DESCRIPTORS "too few descriptors: raise ulimit -n"

/* Closes the direct descriptor of @file, which has no reads in flight; @why goes to direct_note. */
void hoist__direct_give_up(struct hoist__file *file, const char *why);

#endif
