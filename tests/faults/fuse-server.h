/* SPDX-License-Identifier: MIT */
/* tests/faults/fuse-server.h - between the two halves of fuse.h's file system. */
#ifndef HOIST_TESTS_FAULT_FUSE_SERVER_H
#define HOIST_TESTS_FAULT_FUSE_SERVER_H

#include "tests/faults/fuse.h"

/* Serves @folder until it is unmounted; '+', or why not, is written to @ready.  Returns: an exit
 * status. */
int ffs_serve(const char *folder, int ready);

/* Under the lock. */
int ffs_node_find(const char *name);
int ffs_node_make(const char *name); /* its index, or a negative errno value */
void ffs_node_touch(struct ffs_node *node);
void ffs_node_drop(struct ffs_node *node); /* if nobody knows it any more */
void ffs_node_change(unsigned index, enum ffs_change change);

#endif
