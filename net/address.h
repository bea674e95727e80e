/* SPDX-License-Identifier: MIT */
/* net/address.h - addresses of TCP, IPv4 and IPv6, and the sockets that listen at them. */
#ifndef HOIST_NET_ADDRESS_H
#define HOIST_NET_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#define HOIST__ADDRESS_TEXT 72u

struct hoist__address {
	struct sockaddr_storage socket;
	socklen_t bytes;
	char text[HOIST__ADDRESS_TEXT]; /* "10.0.0.1:7000", "[::1]:7000" */
};

/* Finds the addresses of "host:port", "[v6]:port" or "1.2.3.4:port"; the port is a number, 1 to
 * 65535, or 0 if @any_port.  May ask a name server, and so may block.
 * Returns: how many, 1 to @most; -EINVAL (the text is not of this form: says the form);
 * -EHOSTUNREACH (no such host; the text is the resolver's); -ENOMEM. */
int hoist__address_find(const char *text, bool any_port, struct hoist__address *ret, unsigned most);

/* Finds the addresses at which other machines may reach this one, with port 0: those of interfaces
 * that are up, of IPv4, or of IPv6 where there is none of IPv4; of bridges, as containers have
 * them, behind the others.  A machine without a network has 127.0.0.1.
 * Returns: how many, 1 to @most; -ENOMEM and the like. */
int hoist__address_own(struct hoist__address *ret, unsigned most);

/* 127.0.0.0/8 and ::1. */
bool hoist__address_loopback(const struct hoist__address *address);

/* Makes an address of the kernel's; of IPv4 for ::ffff:10.0.0.1.  Returns: 0; -EAFNOSUPPORT
 * (neither IPv4 nor IPv6). */
int hoist__address_make(const struct sockaddr *socket, socklen_t bytes, struct hoist__address *ret);

/* The same address with another port. */
void hoist__address_set_port(struct hoist__address *address, unsigned port);
unsigned hoist__address_port(const struct hoist__address *address);

/* The remedy for the error, as the end of a text: "; raise ...", or "". */
const char *hoist__address_remedy(int errnum);

/* Listens without blocking; the descriptor is closed on exec.  Port 0: the kernel chooses; @ret_at,
 * if not NULL, is where the socket listens.  [::] takes IPv4, too.
 * Returns: 0; -EADDRINUSE; -EADDRNOTAVAIL (the address is another machine's); -EACCES (a port that
 * needs a privilege); -EMFILE. */
int hoist__address_listen(const struct hoist__address *address, int *ret_fd,
			  struct hoist__address *ret_at);

/* Accepts without blocking; the new socket does not block either, and is closed on exec.
 * Returns: 0; -EAGAIN: nobody waits, without a text; -EMFILE and the like. */
int hoist__address_accept(int listening, int *ret_fd);

#endif
