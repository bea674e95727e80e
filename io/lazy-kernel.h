/* SPDX-License-Identifier: MIT */
/* io/lazy-kernel.h - the calls of userfaultfd(2) that lazy memory needs.
 *
 * Addresses and sizes are whole pages.  Nothing here wakes a thread that waits but
 * hoist__uffd_wake().
 */
#ifndef HOIST_IO_LAZY_KERNEL_H
#define HOIST_IO_LAZY_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A descriptor that does not block, for faults of user and kernel mode; *moves: it may know
 * UFFDIO_MOVE (Linux 6.8).
 * Returns: 0; -EPERM, -ENOSYS, ..., with the remedy. */
int hoist__uffd_open(int *ret, bool *moves);

/* From now on a touch of a page that is not there waits.  *moves becomes false if pages cannot be
 * moved into the range.  Returns: 0; the kernel's. */
int hoist__uffd_register(int fd, void *address, size_t bytes, bool *moves);
void hoist__uffd_unregister(int fd, void *address, size_t bytes); /* and wakes */

/* The page that somebody waits for.  False: nobody does. */
bool hoist__uffd_next(int fd, uintptr_t *ret);

/* Moves private pages of ours, up to the first failure; *moved: so many bytes.
 * Returns: 0; -EEXIST something is there; -EBUSY a page is in use elsewhere; the kernel's.  No
 * text. */
int hoist__uffd_move(int fd, void *to, void *from, size_t bytes, size_t *moved);

/* Copies where nothing is yet.
 * Returns: 0; the kernel's (-ENOMEM; -ENOENT not registered any more).  No text. */
int hoist__uffd_copy(int fd, void *to, const void *from, size_t bytes);

/* Who waits for a page of the range looks again. */
void hoist__uffd_wake(int fd, void *address, size_t bytes);

#endif
