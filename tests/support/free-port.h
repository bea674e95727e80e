/* SPDX-License-Identifier: MIT */
/* tests/support/free-port.h - a port of 127.0.0.1 that nobody listens at. */
#ifndef HOIST_TESTS_FREE_PORT_H
#define HOIST_TESTS_FREE_PORT_H

#include <errno.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/check.h"

/* The port is none that the kernel gives to connections (ip_local_port_range; 32768 and more,
 * unless changed): a connection of another test could take such a port before this test listens. */
static inline unsigned free_port(void)
{
	unsigned port = 0;
	while (port == 0) {
		uint16_t number;
		CHECK(getrandom(&number, sizeof number, 0) == (ssize_t)sizeof number);
		const struct sockaddr_in at = {.sin_family = AF_INET,
					       .sin_port = htons(10000 + number % 20000),
					       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		CHECK(fd >= 0);
		if (bind(fd, (const struct sockaddr *)&at, sizeof at) == 0)
			port = ntohs(at.sin_port);
		else
			CHECK(errno == EADDRINUSE);
		(void)close(fd);
	}
	return port;
}

#endif
