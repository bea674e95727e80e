/* SPDX-License-Identifier: MIT */
/* tests/pass-fd.h - a file descriptor, and nothing else, over a Unix socket. */
#ifndef HOIST_TESTS_PASS_FD_H
#define HOIST_TESTS_PASS_FD_H

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

union pass_fd_control {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int))];
};

static inline bool pass_fd(int socket, int fd)
{
	union pass_fd_control control = {.header = {0}};
	char byte = 'f';
	struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &bytes,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof control};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(part), &fd, sizeof fd);
	return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
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
				 .msg_controllen = sizeof control};
	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1)
		return -1;
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	if (part != NULL && part->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(part), sizeof fd);
	return fd;
}

#endif
