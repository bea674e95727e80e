/* SPDX-License-Identifier: MIT */
/* base/rights.h - file descriptors that go with a message over a Unix socket (SCM_RIGHTS).
 *
 * A peer may send as many descriptors as it likes: each one that comes is either kept or closed, so
 * that none stays open unseen.
 */
#ifndef HOIST_BASE_RIGHTS_H
#define HOIST_BASE_RIGHTS_H

#include <stddef.h>
#include <sys/socket.h>

/* Attaches @n_fds descriptors, 1 and more, to a message that is to be sent.  @room is aligned for a
 * cmsghdr, has CMSG_SPACE(n_fds * sizeof(int)) bytes, and lives until the message is sent. */
void hoist__rights_attach(struct msghdr *message, void *room, const int *fds, size_t n_fds);

/* Stores the first @most descriptors that came with a message in @fds, and closes the others.
 * Returns: how many came. */
size_t hoist__rights_take(struct msghdr *message, int *fds, size_t most);

#endif
