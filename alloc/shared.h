/* SPDX-License-Identifier: MIT */
/* alloc/shared.h - host memory that other processes can map.
 *
 * Each piece is a memfd of its own, so that passing one piece exposes no other.  The memfd is
 * sealed against shrinking and growing, so that no process can take away bytes that another one
 * uses (a touch would be SIGBUS).
 *
 * A piece is identified by its file.  If this process has mapped the file of a descriptor already,
 * because it made the piece or received it before, opening the descriptor gives the same piece with
 * one more reference.  Each reference is closed once, and the last close unmaps.
 *
 * fork: a child shares the bytes with its parent, as other processes do.
 *
 * Threads: any.
 */
#ifndef HOIST_ALLOC_SHARED_H
#define HOIST_ALLOC_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hoist__shared;

/* Makes a piece of @bytes (at least 1), zeroed.
 * Returns: 0; -ENOMEM; -ENOTSUP (the kernel has no memfd), -EPERM (it is forbidden), -EMFILE. */
int hoist__shared_create(size_t bytes, struct hoist__shared **ret);

/* Maps the memory behind @fd, which stays the caller's.  @fd may come from any process, so
 * everything that could be wrong with it is checked.  The piece is writable unless @read_only is
 * set, or @fd or a seal forbids writing.
 * Returns: 0; -EBADF; -EBADMSG (no memfd, not sealed, empty); -ENOMEM, -EMFILE. */
int hoist__shared_open(int fd, bool read_only, struct hoist__shared **ret);

/* Takes NULL.  The argument is a void pointer so that a storage can call the function. */
void hoist__shared_close(void *shared);

/* Returns: the piece around @address, with a reference to be closed; NULL: none. */
struct hoist__shared *hoist__shared_find(uintptr_t address);

uintptr_t hoist__shared_address(const struct hoist__shared *shared);
size_t hoist__shared_bytes(const struct hoist__shared *shared); /* of the file: whole pages */
bool hoist__shared_is_read_only(const struct hoist__shared *shared);
bool hoist__shared_is_foreign(const struct hoist__shared *shared); /* another process made it */

/* Gives a new descriptor of the piece, closed by exec.  @read_only: from now on no process that
 * gets a descriptor can write to the piece, for good.
 * Returns: 0; -EMFILE; -ENOTSUP (the kernel has no such seal), -EPERM (another has sealed it). */
int hoist__shared_export(struct hoist__shared *shared, bool read_only, int *ret);

#endif
