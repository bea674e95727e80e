/* SPDX-License-Identifier: MIT */
/* alloc/shared.h - host memory that other processes can map.
 *
 * Each piece is a memfd of its own, so that passing one exposes no neighbours, sealed
 * against shrinking and growing, so that no process can take bytes away under another
 * one's feet (a touch would be SIGBUS).
 *
 * A piece is known by its file: opening a descriptor of a file that this process has
 * mapped already, because it made it or because it received it before, gives the same
 * piece once more.  Each of them is closed once; the last one unmaps.
 *
 * fork: a child shares the bytes with its parent, as other processes do.
 *
 * Threads: any.
 */
#ifndef HOIST_LIB_SHARED_H
#define HOIST_LIB_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hoist__shared;

/* @bytes (at least 1) of zeroed memory.
 * Returns: 0; -ENOMEM; -ENOTSUP (the kernel has no memfd), -EPERM (it is forbidden), -EMFILE. */
int hoist__shared_create(size_t bytes, struct hoist__shared **ret);

/* The memory behind @fd, which stays the caller's.  @fd comes from anywhere: all that could be
 * wrong with it is checked.  It can be written to unless @read_only, or @fd or a seal forbids it.
 * Returns: 0; -EBADF; -EBADMSG (no memfd, not sealed, empty); -ENOMEM, -EMFILE. */
int hoist__shared_open(int fd, bool read_only, struct hoist__shared **ret);

/* Takes NULL.  Of this form so that a storage can call it. */
void hoist__shared_close(void *shared);

/* The piece around @address, with a reference to be closed; NULL: none. */
struct hoist__shared *hoist__shared_find(uintptr_t address);

uintptr_t hoist__shared_address(const struct hoist__shared *shared);
size_t hoist__shared_bytes(const struct hoist__shared *shared); /* of the file: whole pages */
bool hoist__shared_is_read_only(const struct hoist__shared *shared);
bool hoist__shared_is_foreign(const struct hoist__shared *shared); /* another process made it */

/* A new descriptor of it, closed by exec.  @read_only: nobody who gets one from now on can write
 * there, for good.
 * Returns: 0; -EMFILE; -ENOTSUP (the kernel has no such seal), -EPERM (another has sealed it). */
int hoist__shared_export(struct hoist__shared *shared, bool read_only, int *ret);

#endif
