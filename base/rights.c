/* SPDX-License-Identifier: MIT */
/* File descriptors that go with a message.
 * The contract is in base/rights.h. */
#include "config.h"

#include "base/rights.h"

#include <string.h>
#include <unistd.h>

void hoist__rights_attach(struct msghdr *message, void *room, const int *fds, size_t n_fds)
{
	memset(room, 0, CMSG_SPACE(n_fds * sizeof *fds));
	message->msg_control = room;
	message->msg_controllen = CMSG_SPACE(n_fds * sizeof *fds);
	struct cmsghdr *part = CMSG_FIRSTHDR(message);
	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(n_fds * sizeof *fds);
	memcpy(CMSG_DATA(part), fds, n_fds * sizeof *fds);
}

size_t hoist__rights_take(struct msghdr *message, int *fds, size_t most)
{
	size_t count = 0;
	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL;
	     part = CMSG_NXTHDR(message, part)) {
		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
			if (count++ < most)
				fds[count - 1] = fd;
			else
				(void)close(fd);
		}
	}
	return count;
}
