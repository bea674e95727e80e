/* SPDX-License-Identifier: MIT */
/* net/address.c - addresses of TCP, and the sockets that listen at them.
 * The contract is in net/address.h. */
#include "config.h"

#include "net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/if.h> /* not net/if.h, whose folder has the name of this one */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#define HOST_BYTES 256
#define MOST_WAITING 128 /* connections that the kernel keeps for accept() */
#define FORM "an address is HOST:PORT, 10.0.0.1:7000 or [fd00::1]:7000"

/* --- texts --- */

/* The pieces of "host:port". */
struct parts {
	char host[HOST_BYTES];
	char port[6];
	bool bracketed;
};

static int split(const char *text, struct parts *ret)
{
	ret->bracketed = text[0] == '[';
	const char *host = ret->bracketed ? text + 1 : text;
	const char *end = strchr(host, ret->bracketed ? ']' : ':');
	const char *port = end == NULL ? NULL : ret->bracketed ? end + 1 : end;
	if (port == NULL || port[0] != ':')
		return hoist__fail(-EINVAL, "\"%.300s\" has no port; " FORM, text);
	port++;
	if (end == host || (size_t)(end - host) >= sizeof(ret->host))
		return hoist__fail(-EINVAL,
				   "\"%.300s\" has no host, or one that is too long; " FORM, text);
	if (port[0] == '\0' || strlen(port) >= sizeof(ret->port) ||
	    port[strspn(port, "0123456789")] != '\0')
		return hoist__fail(-EINVAL, "\"%.300s\": the text behind the %s is no port; " FORM,
				   text, ret->bracketed ? "bracket" : "first colon");
	memcpy(ret->host, host, (size_t)(end - host));
	ret->host[end - host] = '\0';
	memcpy(ret->port, port, strlen(port) + 1);
	return 0;
}

static int check_port(const char *text, const char *port, bool any_port)
{
	unsigned number = 0;
	for (; *port != '\0'; port++)
		number = number * 10 + (unsigned)(*port - '0');
	if (number > 65535 || (number == 0 && !any_port))
		return hoist__fail(-EINVAL, "\"%.300s\": a port is a number from 1 to 65535", text);
	return 0;
}

/* @code: of getaddrinfo(). */
static int fail_host(int code, int errnum, const struct parts *parts)
{
	if (code == EAI_MEMORY)
		return hoist__fail_nomem("an address", sizeof(struct hoist__address));
	if (parts->bracketed && (code == EAI_NONAME || code == EAI_ADDRFAMILY))
		return hoist__fail(-EINVAL, "\"%s\" is no address of IPv6; " FORM, parts->host);
	return hoist__fail(-EHOSTUNREACH, "looking for the host \"%s\": %s", parts->host,
			   code == EAI_SYSTEM ? strerror(errnum) : gai_strerror(code));
}

int hoist__address_find(const char *text, bool any_port, struct hoist__address *ret, unsigned most)
{
	struct parts parts;
	int err = split(text, &parts);
	if (err == 0)
		err = check_port(text, parts.port, any_port);
	if (err < 0)
		return err;
	const struct addrinfo hints = {
		.ai_family = parts.bracketed ? AF_INET6 : AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV | (parts.bracketed ? AI_NUMERICHOST : 0),
	};
	struct addrinfo *list = NULL;
	int code = getaddrinfo(parts.host, parts.port, &hints, &list);
	if (code != 0)
		return fail_host(code, errno, &parts);
	unsigned n = 0;
	for (struct addrinfo *at = list; at != NULL && n < most; at = at->ai_next)
		if (hoist__address_make(at->ai_addr, at->ai_addrlen, &ret[n]) == 0)
			n++;
	freeaddrinfo(list);
	return n > 0 ? (int)n : fail_host(EAI_NONAME, 0, &parts);
}

/* --- addresses --- */

static void write_text(struct hoist__address *address)
{
	char host[INET6_ADDRSTRLEN] = "";
	unsigned port = hoist__address_port(address);
	if (address->socket.ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->socket;
		(void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		(void)snprintf(address->text, sizeof(address->text), "%s:%u", host, port);
		return;
	}
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->socket;
	(void)inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
	char zone[16] = "";
	if (v6->sin6_scope_id != 0)
		(void)snprintf(zone, sizeof(zone), "%%%u", v6->sin6_scope_id);
	(void)snprintf(address->text, sizeof(address->text), "[%s%s]:%u", host, zone, port);
}

/* Makes an address of IPv4 of ::ffff:10.0.0.1, as sockets of IPv6 have it. */
static void unmap(struct hoist__address *address)
{
	const struct sockaddr_in6 v6 = *(const struct sockaddr_in6 *)&address->socket;
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = v6.sin6_port};
	if (v6.sin6_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
		return;
	memcpy(&v4.sin_addr, &v6.sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
	memset(&address->socket, 0, sizeof(address->socket));
	memcpy(&address->socket, &v4, sizeof(v4));
	address->bytes = sizeof(v4);
}

int hoist__address_make(const struct sockaddr *socket, socklen_t bytes, struct hoist__address *ret)
{
	size_t least = bytes < sizeof(socket->sa_family) ? 0
		       : socket->sa_family == AF_INET	 ? sizeof(struct sockaddr_in)
		       : socket->sa_family == AF_INET6	 ? sizeof(struct sockaddr_in6)
							 : 0;
	if (least == 0 || bytes < least)
		return hoist__fail(-EAFNOSUPPORT, "an address is neither IPv4's nor IPv6's");
	memset(ret, 0, sizeof(*ret));
	memcpy(&ret->socket, socket, least);
	ret->bytes = (socklen_t)least;
	unmap(ret);
	write_text(ret);
	return 0;
}

/* The port lies at the same place in both. */
_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
	       "the ports of IPv4 and IPv6");

void hoist__address_set_port(struct hoist__address *address, unsigned port)
{
	((struct sockaddr_in *)&address->socket)->sin_port = htons((uint16_t)port);
	write_text(address);
}

unsigned hoist__address_port(const struct hoist__address *address)
{
	return ntohs(((const struct sockaddr_in *)&address->socket)->sin_port);
}

bool hoist__address_loopback(const struct hoist__address *address)
{
	if (address->socket.ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->socket;
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	}
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&address->socket)->sin6_addr);
}

/* --- this machine's --- */

/* Makes the address of an interface, if other machines may reach it: it is neither the loopback's
 * nor of one link alone. */
static bool make_reachable(const struct ifaddrs *at, sa_family_t family, struct hoist__address *ret)
{
	socklen_t bytes =
		family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	if (at->ifa_addr == NULL || at->ifa_addr->sa_family != family ||
	    (at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0 ||
	    hoist__address_make(at->ifa_addr, bytes, ret) < 0)
		return false;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&ret->socket;
	return family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

static bool is_bridge(const char *interface)
{
	char path[IFNAMSIZ + 32];
	(void)snprintf(path, sizeof path, "/sys/class/net/%.*s/bridge", IFNAMSIZ, interface);
	return access(path, F_OK) == 0;
}

int hoist__address_own(struct hoist__address *ret, unsigned most)
{
	/* In the order in which they are taken. */
	static const struct {
		sa_family_t family;
		bool bridge;
	} kinds[] = {{AF_INET, false}, {AF_INET, true}, {AF_INET6, false}, {AF_INET6, true}};
	struct ifaddrs *list;
	unsigned n = 0;
	if (getifaddrs(&list) < 0)
		return hoist__fail_errno(-errno, "this machine's addresses");
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
		if (n > 0 && ret[0].socket.ss_family != kinds[k].family)
			break;
		for (const struct ifaddrs *at = list; at != NULL && n < most; at = at->ifa_next)
			if (make_reachable(at, kinds[k].family, &ret[n]) &&
			    is_bridge(at->ifa_name) == kinds[k].bridge)
				n++;
	}
	freeifaddrs(list);
	return n > 0 ? (int)n : hoist__address_find("127.0.0.1:0", true, ret, 1);
}

/* --- listening --- */

const char *hoist__address_remedy(int errnum)
{
	switch (errnum) {
	case EADDRINUSE:
		return "; choose another port, or end its program";
	case EADDRNOTAVAIL:
		return "; the address must be one of this machine's (`ip address`)";
	case EACCES:
		return "; ports below 1024 need a privilege";
	case ECONNREFUSED:
		return "; does the other process listen there, and no firewall refuse?";
	case ENETUNREACH:
	case EHOSTUNREACH:
		return "; is this the address of a network that both machines are in?";
	case EMFILE:
		return "; raise the limit on open files (ulimit -n)";
	case ENFILE:
		return "; raise the system's limit on open files (sysctl fs.file-max)";
	default:
		return "";
	}
}

static int fail_listen(int errnum, const struct hoist__address *address)
{
	return hoist__fail(-errnum, "listening at %s: %s%s", address->text, strerror(errnum),
			   hoist__address_remedy(errnum));
}

/* A port at which a program listened a moment ago can be used again (SO_REUSEADDR). */
static int bind_and_listen(int fd, const struct hoist__address *address,
			   struct hoist__address *ret_at)
{
	const int on = 1;
	struct sockaddr_storage at;
	socklen_t bytes = sizeof(at);
	bool v6 = address->socket.ss_family == AF_INET6;
	int only = v6 && !IN6_IS_ADDR_UNSPECIFIED(
				 &((const struct sockaddr_in6 *)&address->socket)->sin6_addr);
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    (v6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only)) < 0) ||
	    bind(fd, (const struct sockaddr *)&address->socket, address->bytes) < 0 ||
	    listen(fd, MOST_WAITING) < 0 || getsockname(fd, (struct sockaddr *)&at, &bytes) < 0)
		return fail_listen(errno, address);
	return ret_at == NULL ? 0 : hoist__address_make((struct sockaddr *)&at, bytes, ret_at);
}

int hoist__address_listen(const struct hoist__address *address, int *ret_fd,
			  struct hoist__address *ret_at)
{
	int fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail_listen(errno, address);
	int err = bind_and_listen(fd, address, ret_at);
	if (err < 0)
		(void)close(fd);
	else
		*ret_fd = fd;
	return err;
}

/* Linux gives the errors of a connection that has already failed, too (accept(2)): the next one is
 * tried. */
static bool failed_before(int errnum)
{
	switch (errnum) {
	case EINTR:
	case ECONNABORTED:
	case ENETDOWN:
	case EPROTO:
	case ENOPROTOOPT:
	case EHOSTDOWN:
	case ENONET:
	case EHOSTUNREACH:
	case ENETUNREACH:
		return true;
	default:
		return false;
	}
}

int hoist__address_accept(int listening, int *ret_fd)
{
	int fd;
	do
		fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (fd < 0 && failed_before(errno));
	if (fd < 0)
		return errno == EAGAIN ? -EAGAIN
				       : hoist__fail(-errno, "accepting a connection: %s%s",
						     strerror(errno), hoist__address_remedy(errno));
	*ret_fd = fd;
	return 0;
}
