/* SPDX-License-Identifier: MIT */
/* tests/faults/fuse-answers.h - what becomes of an answer before it is given: the faults that
 * fuse.h's test has asked for.  Only of the process that serves. */
#ifndef HOIST_TESTS_FAULT_FUSE_ANSWERS_H
#define HOIST_TESTS_FAULT_FUSE_ANSWERS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "tests/faults/fuse-server.h"

#define FFS_FIRST 2u /* the inode of node 0; 1 is the folder */

/* First of each call, under no lock: fails it if its turn has come, holds it for as long as the
 * test wants.  Returns: 0, or the error to end it with. */
int ffs_spoil(fuse_req_t req, enum ffs_op op, fuse_ino_t ino);

/* Draws how many of @bytes are read or written: all, or 1 .. @most (0: all).  Under the lock. */
size_t ffs_less(size_t bytes, size_t most);

/* If it is time for `change`, it happens to node @index.  Under the lock. */
void ffs_change_if_due(unsigned index);

#endif
