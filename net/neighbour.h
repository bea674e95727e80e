/* SPDX-License-Identifier: MIT */
/* net/neighbour.h - memory of another process of this machine, found by what that process says.
 *
 * A process has a memfd (alloc/shared.h), and tells others over channels where the memfd is: its
 * machine, its process id, the number of a descriptor, and the inode of the file.  A process of the
 * same machine opens /proc/PID/fd/NUMBER.  No socket, and no waiting, is needed.
 *
 *   machine    a number that two processes have in common if they share the kernel, the namespaces
 *              of processes, of users and of the network, the user, and the group's secret.  Nobody
 *              without the secret can compute the kernel's boot id from the number
 *
 * Safety: the kernel lets a process open descriptors of another one only where the first could read
 * the other's memory anyway (PTRACE_MODE_READ: the same user and groups, no more privileges).  The
 * other process is trusted no further.  Another process may have got its process id, and opening a
 * device or a pipe may block or act.  So the file is opened only once it is known to lie in the
 * memfds' file system and to have the inode.  hoist__shared_open() then checks its seals and its
 * size.
 */
#ifndef HOIST_NET_NEIGHBOUR_H
#define HOIST_NET_NEIGHBOUR_H

#include <stdint.h>

#include "net/secret.h"

struct hoist__neighbour {
	uint64_t machine; /* 0: this process can share no memory */
	uint32_t process;
	uint32_t descriptor;
	uint64_t inode;
};

/* Describes the memfd @fd of this process.  `machine` is 0 where the kernel does not tell enough
 * (no /proc). */
void hoist__neighbour_describe(const struct hoist__secret *secret, int fd,
			       struct hoist__neighbour *ret);

/* Opens the memory of @other for reading.  @own_fd: this process's own memfd.
 * Returns: 0; -EACCES and the like, as open(); -ESTALE (another file is there now). */
int hoist__neighbour_open(const struct hoist__neighbour *other, int own_fd, int *ret);

#endif
