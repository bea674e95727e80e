/* SPDX-License-Identifier: MIT */
/* lib/exchange/ipc-socket.c - sends and receives buffers over Unix sockets.
 * The contract is in hoist/ipc.h.
 *
 * A message is a descriptor.  With its first byte comes the file descriptor that its kind needs.
 * The peer may send anything, in any pieces, or nothing, or close the socket. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/rights.h"
#include "hoist/ipc.h"
#include "lib/exchange/ipc.h"

/* More than is allowed, so that every descriptor that comes is seen, and closed. */
#define MOST_FDS 16

/* The kernel adds a pidfd of the sending process if the socket's owner asked for one
 * (SO_PASSPIDFD): since Linux 6.5. */
#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04
#endif

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(MOST_FDS * sizeof(int)) + 512];
};

/* --- both ways --- */

/* Accepts a peer of this user, or root, as root can do anything anyway.  A socket without a peer
 * passes here: sending or receiving will fail. */
static int check_peer(int socket)
{
	struct ucred peer;
	socklen_t bytes = sizeof peer;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		return hoist__fail_errno(-errno, "asking for the peer of socket %d", socket);
	if (peer.uid == geteuid() || peer.uid == 0 || peer.uid == (uid_t)-1)
		return 0;
	return hoist__fail(
		-EPERM,
		"the peer of socket %d is process %d of user %u, not of %u; pass buffers "
		"to other users with hoist_ipc_export() and hoist_ipc_import()",
		socket, (int)peer.pid, (unsigned)peer.uid, (unsigned)geteuid());
}

static int check_socket(int socket, bool *packets)
{
	int domain = 0, type = 0;
	socklen_t bytes = sizeof domain;
	if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) < 0 ||
	    (bytes = sizeof type, getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &bytes)) < 0)
		return hoist__fail_errno(errno == ENOTSOCK ? -EINVAL : -errno, "socket %d", socket);
	if (domain != AF_UNIX || (type != SOCK_STREAM && type != SOCK_SEQPACKET))
		return hoist__fail(-EINVAL,
				   "socket %d is no Unix socket of type STREAM or SEQPACKET: file "
				   "descriptors do not pass",
				   socket);
	*packets = type == SOCK_SEQPACKET;
	return check_peer(socket);
}

/* Returns when the timeout is over; UINT64_MAX: never. */
static uint64_t deadline_of(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : hoist__now_ns() + (uint64_t)timeout_ms * 1000000u;
}

/* Waits until the socket is ready, or closed. */
static int wait_for(int socket, short events, uint64_t deadline)
{
	for (;;) {
		int ms = -1;
		uint64_t now = hoist__now_ns();
		/* rounded up: the wait must not end before the deadline */
		if (deadline != UINT64_MAX)
			ms = deadline > now ? (int)((deadline - now + 999999) / 1000000) : 0;
		struct pollfd one = {.fd = socket, .events = events};
		int n = poll(&one, 1, ms);
		if (n > 0)
			return 0;
		if (n == 0 && hoist__now_ns() >= deadline)
			return -ETIMEDOUT;
		if (n < 0 && errno != EINTR)
			return hoist__fail_errno(-errno, "waiting for socket %d", socket);
	}
}

static bool would_block(int error)
{
	return error == EAGAIN || error == EWOULDBLOCK;
}

/* --- sending --- */

/* Sends one part, and with the first part @fd.
 * Returns: how many bytes were sent, or a negative errno value. */
static ssize_t send_some(int socket, const char *at, size_t bytes, int fd, uint64_t deadline)
{
	union control control;
	struct iovec part = {.iov_base = (void *)(uintptr_t)at, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (fd >= 0)
		hoist__rights_attach(&message, &control, &fd, 1);
	for (;;) {
		ssize_t n = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0)
			return n;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && !would_block(errno))
			return hoist__fail_errno(-errno, "sending a buffer");
		int err = wait_for(socket, POLLOUT, deadline);
		if (err == -ETIMEDOUT)
			return hoist__fail(err, "sending a buffer: the peer takes nothing");
		if (err < 0)
			return err;
	}
}

/* The descriptor goes with the first part alone: the peer would get one more open file with each
 * part.  The message has a reference of its own, so the descriptor is closed here in any case. */
int hoist_ipc_send(int socket, hoist_buffer *buffer, int timeout_ms)
{
	hoist_ipc_descriptor d;
	bool packets;
	int fd = -1;
	uint64_t deadline = deadline_of(timeout_ms);
	int err = check_socket(socket, &packets);
	if (err == 0)
		err = hoist_ipc_export(buffer, &d, &fd);
	if (err < 0)
		return err;
	for (size_t sent = 0; err == 0 && sent < sizeof d;) {
		ssize_t n = send_some(socket, (const char *)&d + sent, sizeof d - sent,
				      sent == 0 ? fd : -1, deadline);
		if (n < 0)
			err = (int)n;
		else
			sent += (size_t)n;
	}
	if (fd >= 0)
		(void)close(fd);
	return err;
}

/* --- receiving --- */

struct message {
	hoist_ipc_descriptor d;
	size_t bytes; /* of the descriptor, received so far */
	int fds[MOST_FDS];
	size_t n_fds;
	bool too_many;
	bool lost; /* the kernel dropped some of the file descriptors */
};

static void close_all(struct message *m)
{
	while (m->n_fds > 0)
		(void)close(m->fds[--m->n_fds]);
}

static void keep_fds(struct message *m, const struct cmsghdr *part)
{
	size_t n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	for (size_t i = 0; i < n; i++) {
		int fd;
		memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
		if (m->n_fds < MOST_FDS) {
			m->fds[m->n_fds++] = fd;
		} else {
			(void)close(fd);
			m->too_many = true;
		}
	}
}

static void close_pidfd(const struct cmsghdr *part)
{
	int fd = -1;
	memcpy(&fd, CMSG_DATA(part), sizeof fd);
	if (fd >= 0)
		(void)close(fd);
}

static void keep_control(struct message *m, struct msghdr *header)
{
	struct cmsghdr *part = CMSG_FIRSTHDR(header);
	for (; part != NULL; part = CMSG_NXTHDR(header, part))
		if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
			keep_fds(m, part);
		else if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_PIDFD)
			close_pidfd(part);
	/* There were more file descriptors than room; the kernel has closed the others. */
	if ((header->msg_flags & MSG_CTRUNC) != 0)
		m->lost = true;
}

static int fail_end(const struct message *m)
{
	if (m->bytes == 0)
		return hoist__fail(-EPIPE, "receiving a buffer: the peer has closed its end");
	return hoist__fail(-ECONNRESET, "receiving a buffer: the peer ended after %zu of %zu bytes",
			   m->bytes, sizeof m->d);
}

/* Receives some of the missing bytes. */
static int receive_some(int socket, bool packets, uint64_t deadline, struct message *m)
{
	union control control;
	struct iovec part = {.iov_base = (char *)&m->d + m->bytes,
			     .iov_len = sizeof m->d - m->bytes};
	struct msghdr header = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = &control,
				.msg_controllen = sizeof control};
	ssize_t n = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0 && errno == EINTR)
		return 0;
	if (n < 0 && would_block(errno)) {
		int err = wait_for(socket, POLLIN, deadline);
		return err == -ETIMEDOUT
			       ? hoist__fail(err, "receiving a buffer: %zu of %zu bytes came",
					     m->bytes, sizeof m->d)
			       : err;
	}
	if (n < 0 && errno == ECONNRESET)
		return fail_end(m);
	if (n < 0)
		return hoist__fail_errno(-errno, "receiving a buffer");
	keep_control(m, &header);
	if (n == 0)
		return fail_end(m);
	m->bytes += (size_t)n;
	if (packets && ((header.msg_flags & MSG_TRUNC) != 0 || m->bytes != sizeof m->d))
		return hoist__fail(-EBADMSG,
				   "receiving a buffer: a record that is no descriptor, which has "
				   "%zu bytes",
				   sizeof m->d);
	return 0;
}

/* Checks the number of file descriptors against the kind of memory. */
static int check_fds(const struct message *m)
{
	size_t expected = m->d.kind == HOIST_IPC_HOST || m->d.kind == HOIST_IPC_POOL;
	bool more = m->too_many || m->lost;
	if (m->n_fds == expected && !more)
		return 0;
	/* There was room in the message, but this process cannot open more files. */
	if (m->lost && m->n_fds < MOST_FDS)
		return hoist__fail(-EMFILE,
				   "receiving a buffer: not all of its file descriptors came: this "
				   "process has as many open as it may (RLIMIT_NOFILE)");
	return hoist__fail(-EBADMSG,
			   "receiving a buffer: %zu file descriptors%s came with it; memory of "
			   "kind %u takes %zu",
			   m->n_fds, more ? ", and more," : "", m->d.kind, expected);
}

static int receive(int socket, bool packets, uint64_t deadline, struct message *m)
{
	const size_t head = offsetof(hoist_ipc_descriptor, kind);
	bool checked = false;
	int err = 0;
	while (err == 0 && m->bytes < sizeof m->d) {
		err = receive_some(socket, packets, deadline, m);
		/* Check the head before waiting for the rest: a message of another kind may be
		 * shorter, so that the rest would never come. */
		if (err == 0 && !checked && m->bytes >= head) {
			err = hoist__ipc_check_head(&m->d);
			checked = true;
		}
	}
	return err < 0 ? err : check_fds(m);
}

int hoist_ipc_receive(int socket, int timeout_ms, hoist_buffer **ret)
{
	struct message m = {.bytes = 0};
	bool packets;
	int err = check_socket(socket, &packets);
	if (err == 0)
		err = receive(socket, packets, deadline_of(timeout_ms), &m);
	if (err == 0)
		err = hoist_ipc_import(&m.d, sizeof m.d, m.n_fds > 0 ? m.fds[0] : -1, NULL, ret);
	close_all(&m);
	return err;
}
