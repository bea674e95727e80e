/* SPDX-License-Identifier: MIT */
/* tests/support/pass-fd.h - file descriptors over a Unix socket. */
#ifndef HOIST_TESTS_PASS_FD_H
#define HOIST_TESTS_PASS_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#define PASS_FDS 40 /* at most */

union pass_fd_control {
	struct cmsghdr header;
	char room[CMSG_SPACE(PASS_FDS * sizeof(int))];
};

/* @n bytes, and @n_fds descriptors with them. */
static inline bool pass_fds(int socket, const void *bytes, size_t n, const int *fds, size_t n_fds)
{
	union pass_fd_control control;
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	memset(&control, 0, sizeof control);
	if (n_fds > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof *fds);
		struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(n_fds * sizeof *fds);
		memcpy(CMSG_DATA(rights), fds, n_fds * sizeof *fds);
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)n;
}

static inline bool pass_fd(int socket, int fd)
{
	return pass_fds(socket, "f", 1, &fd, 1);
}

/* -1: none came. */
static inline int take_fd(int socket)
{
	int fd = -1;
	char byte = 0;
	union pass_fd_control control;
	struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &bytes,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = CMSG_SPACE(sizeof fd)};
	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1)
		return -1;
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	if (part != NULL && part->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(part), sizeof fd);
	return fd;
}

#endif
