/* SPDX-License-Identifier: MIT */
/* A peer whose port of UCX is behind a firewall that swallows what goes there: who connects does
 * not wait for minutes.  Two network namespaces, each with a TUN device; whatever one process sends
 * to the other's address ends in the first one's TUN device, where this test counts it. Needs root.
 * Plain C.  Exit: 0, 1, 77. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/check.h"
#include "tests/support/child.h"
#include "tests/support/net-fabric.h"
#include "tests/support/no-leak-check.h"
#include "tests/support/patience.h"

#define DEVICE "hoisttun0"
#define OURS 0x0a630001u /* 10.99.0.1 */
#define THEIRS 0x0a630002u
#define MOST_RETRIES 4 /* that the kernel makes here, if nobody says otherwise */

static int tun = -1;

static void skip(const char *what)
{
	printf("skipped: %s: %s\n", what, strerror(errno));
	exit(77);
}

static struct sockaddr_in address_of(uint32_t address)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
}

/* The kernel's own patience would be two minutes. */
static void limit_tries(void)
{
	static const char text[] = {'0' + MOST_RETRIES, '\n'};
	int fd = open("/proc/sys/net/ipv4/tcp_syn_retries", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, sizeof text) != (ssize_t)sizeof text)
		skip("net.ipv4.tcp_syn_retries of a namespace cannot be set");
	(void)close(fd);
}

/* A namespace of the process's own, with @address alone, whose packets to 10.99.0.0/24 come to
 * `tun`.  UCX takes the names of devices from /sys. */
static void move_to(uint32_t address)
{
	struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
	struct sockaddr_in at = address_of(address), mask = address_of(0xffffff00u);
	(void)snprintf(request.ifr_name, sizeof request.ifr_name, DEVICE);
	if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0)
		skip("no namespaces of the network and of mounts; run as root");
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("sysfs", "/sys", "sysfs", 0, NULL) != 0)
		skip("/sys of a namespace of the network cannot be mounted");
	if ((tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0 ||
	    ioctl(tun, TUNSETIFF, &request) != 0)
		skip("no TUN device can be made (/dev/net/tun)");
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	memcpy(&request.ifr_addr, &at, sizeof at);
	OK(ioctl(fd, SIOCSIFADDR, &request));
	memcpy(&request.ifr_netmask, &mask, sizeof mask);
	OK(ioctl(fd, SIOCSIFNETMASK, &request));
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	limit_tries();
	OK(ioctl(fd, SIOCSIFFLAGS, &request));
	(void)close(fd);
}

/* The packets that begin a connection, of those that came to `tun`. */
static unsigned count_syns(void)
{
	unsigned char packet[2048];
	unsigned n = 0;
	for (ssize_t bytes; (bytes = read(tun, packet, sizeof packet)) > 0;) {
		struct iphdr ip;
		struct tcphdr tcp;
		memcpy(&ip, packet, sizeof ip);
		if (ip.version != 4 || ip.protocol != IPPROTO_TCP ||
		    (size_t)bytes < ip.ihl * 4u + sizeof tcp)
			continue;
		memcpy(&tcp, packet + ip.ihl * 4u, sizeof tcp);
		n += tcp.syn && !tcp.ack && ip.daddr == htonl(THEIRS);
	}
	return n;
}

static struct side side;

/* The peer: tells its address, and stays until it is told to go. */
static void be_peer(int fd)
{
	const void *address;
	size_t n;
	char go;
	move_to(THEIRS);
	side_open(&side, "tcp");
	hoist__fabric_address(side.fabric, &address, &n);
	CHECK(write(fd, address, n) == (ssize_t)n);
	CHECK(read(fd, &go, 1) == 0);
	side_close(&side);
}

/* Returns: the bytes of its address. */
static size_t start_peer(unsigned char ret[static HOIST__FABRIC_ADDRESS_MOST], int *ret_fd,
			 pid_t *ret_child)
{
	int ends[2];
	OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
	(void)fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		(void)close(ends[0]);
		be_peer(ends[1]);
		(void)fflush(NULL);
		_exit(0);
	}
	(void)close(ends[1]);
	ssize_t n = read(ends[0], ret, HOIST__FABRIC_ADDRESS_MOST);
	if (n <= 0)
		exit(child_status(child)); /* it was skipped, or failed, and said why */
	*ret_fd = ends[0];
	*ret_child = child;
	return (size_t)n;
}

/* Connects to the peer, which never answers, until UCX says so.  @ret_first: the packets that began
 * a connection until the call came back.  Returns: all of them. */
static unsigned connect_in_vain(unsigned *ret_first)
{
	static unsigned char theirs[HOIST__FABRIC_ADDRESS_MOST];
	int fd;
	pid_t child;
	uint64_t until = 0;
	size_t n = start_peer(theirs, &fd, &child);
	move_to(OURS);
	side_open(&side, "tcp");
	int err = hoist__fabric_connect(side.fabric, theirs, n, &side, &side.peer);
	*ret_first = count_syns();
	while (err == 0 && side.n_broken == 0) {
		CHECK(patience(&until));
		side_turn(&side, NULL, 100);
	}
	CHECK(err == 0 || err == -EHOSTUNREACH);
	unsigned n_syns = *ret_first + count_syns();
	if (err == 0)
		hoist__fabric_disconnect(side.peer);
	side_close(&side);
	(void)close(fd);
	CHECK(child_status(child) == 0);
	return n_syns;
}

int main(void)
{
	unsigned version = ucx_of_child();
	unsigned first;
	if (version == 0)
		return 77;
	unsigned all = connect_in_vain(&first);
	printf("%u packets began connections, %u of them within the call\n", all, first);
	CHECK(all >= 1);
	/* Linux from 6.5 on makes one try more than it is told.  A call that blocks to the end
	 * makes seven, of which the sixth comes after half a minute. */
	CHECK(version < UCX_VERSION(1, 16) ? all <= 3 : first < 6);
	return 0;
}
