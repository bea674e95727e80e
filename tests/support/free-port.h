/* SPDX-License-Identifier: MIT */
/* tests/support/free-port.h - a port of 127.0.0.1 that nobody listens at. */
#ifndef HOIST_TESTS_FREE_PORT_H
#define HOIST_TESTS_FREE_PORT_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/check.h"

static inline unsigned free_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 &&
	      getsockname(fd, (struct sockaddr *)&at, &n) == 0);
	(void)close(fd);
	return ntohs(at.sin_port);
}

#endif
