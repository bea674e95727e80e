/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-message.c - sends and receives requests and replies of one size over a socket.
 * The contract is in lib/cache/cache.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/rights.h"
#include "lib/cache/cache.h"

/* Both sides have the same layout, without padding. */
_Static_assert(sizeof(struct hoist__cache_message) ==
		       32 + 6 * 8 + HOIST__NOTE_BYTES + HOIST__CACHE_PATH_BYTES,
	       "a new form is a new version");

static const char magic[8] = {'h', 'o', 'i', 's', 't', 'm', 's', 'g'};

/* The holder answers at once.  A holder that does not answer for a minute hangs, or is stopped. */
#define TIMEOUT_S 60

/* Room for several descriptors, so that all that come are seen, and closed. */
#define MOST_FDS 8

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(MOST_FDS * sizeof(int))];
};

int hoist__cache_message_init(enum hoist__cache_op op, const char *path,
			      struct hoist__cache_message *ret)
{
	size_t bytes = strlen(path) + 1;
	if (bytes > sizeof ret->path)
		return hoist__fail(-ENAMETOOLONG, "%s: the path is longer than %zu bytes", path,
				   sizeof ret->path - 1);
	memset(ret, 0, sizeof *ret);
	memcpy(ret->magic, magic, sizeof magic);
	ret->version = HOIST__CACHE_VERSION;
	ret->op = op;
	ret->node = -1;
	memcpy(ret->path, path, bytes);
	return 0;
}

/* A socket's address has at most 108 bytes, and a folder's path may be longer.  So the address
 * names the folder by its descriptor. */
void hoist__cache_address(int folder, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	(void)snprintf(ret->sun_path, sizeof ret->sun_path, "/proc/self/fd/%d/%s", folder,
		       HOIST__CACHE_SOCKET);
}

int hoist__cache_check_peer(int socket)
{
	struct ucred peer;
	socklen_t bytes = sizeof peer;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		return hoist__fail_errno(-errno, "asking for the credentials of the cache's peer");
	if (peer.uid != geteuid())
		return hoist__fail(-EPERM, "the cache's peer is process %d of user %u, not of %u",
				   (int)peer.pid, (unsigned)peer.uid, (unsigned)geteuid());
	return 0;
}

/* --- one record --- */

int hoist__cache_send(int socket, const struct hoist__cache_message *message, int fd)
{
	union control control;
	struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
	if (fd >= 0)
		hoist__rights_attach(&header, &control, &fd, 1);
	ssize_t n;
	do
		n = sendmsg(socket, &header, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof *message)
		return 0;
	/* ECONNRESET and EPIPE both mean that the peer ended.  Which one comes depends on the
	 * moment. */
	return hoist__fail_errno(n < 0 && errno != ECONNRESET ? -errno : -EPIPE,
				 "a message to the cache's peer");
}

/* The version comes before the size: a peer of another version may send other sizes, and its user
 * must learn of the version. */
static int check(const struct hoist__cache_message *message, size_t bytes, int flags)
{
	if (bytes < offsetof(struct hoist__cache_message, op) ||
	    memcmp(message->magic, magic, sizeof magic) != 0)
		return hoist__fail(-EBADMSG, "the cache's peer sent no message of hoist's");
	if (message->version != HOIST__CACHE_VERSION)
		return hoist__fail(
			-EBADMSG,
			"the cache's peer has version %u of the protocol, this library has %u; end "
			"the holder (`hoist cache drop --all` of its version)",
			message->version, HOIST__CACHE_VERSION);
	if (bytes != sizeof *message || (flags & MSG_TRUNC) != 0)
		return hoist__fail(-EBADMSG,
				   "the cache's peer sent a message of %zu bytes; they have %zu",
				   bytes, sizeof *message);
	if (message->op == 0 || message->op >= HOIST__CACHE_N_OPS || message->status > 0 ||
	    message->status < -4095 || message->reserved != 0)
		return hoist__fail(-EBADMSG,
				   "the cache's peer sent a message of kind %u with status %d",
				   message->op, message->status);
	if (memchr(message->path, '\0', sizeof message->path) == NULL ||
	    memchr(message->note, '\0', sizeof message->note) == NULL)
		return hoist__fail(-EBADMSG, "the cache's peer sent a text that does not end");
	return 0;
}

int hoist__cache_receive(int socket, struct hoist__cache_message *ret, int *fd)
{
	union control control;
	struct iovec part = {.iov_base = ret, .iov_len = sizeof *ret};
	struct msghdr header = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = &control,
				.msg_controllen = sizeof control};
	int first = -1;
	ssize_t n;
	do
		n = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return hoist__fail_errno(errno == ECONNRESET ? -EPIPE : -errno,
					 "a message from the cache's peer");
	/* Descriptors are taken before the message is judged, so that none stays open. */
	size_t count = hoist__rights_take(&header, &first, 1);
	int err = n == 0 ? hoist__fail(-EPIPE, "the cache's peer has closed the connection")
			 : check(ret, (size_t)n, header.msg_flags);
	if (err == 0 && count > 1)
		err = hoist__fail(-EBADMSG, "the cache's peer sent %zu descriptors at once", count);
	if (err == 0 && count == 0 && (header.msg_flags & MSG_CTRUNC) != 0)
		err = hoist__fail(-EMFILE, "a descriptor from the cache's peer did not come: this "
					   "process has as many as it may (RLIMIT_NOFILE)");
	if (err < 0 && first >= 0)
		(void)close(first);
	else if (err == 0)
		*fd = first;
	return err;
}

/* --- a request and its reply --- */

static int connect_to(int folder, int *ret)
{
	struct sockaddr_un address;
	const struct timeval limit = {.tv_sec = TIMEOUT_S};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return hoist__fail_errno(-errno, "a socket to the cache's holder");
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	hoist__cache_address(folder, &address);
	int err = 0;
	while (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0 && err == 0)
		if (errno != EINTR)
			err = errno == ECONNREFUSED ? -ENOENT : -errno; /* no holder listens, or not
									 * now */
	if (err < 0 && err != -ENOENT)
		err = hoist__fail_errno(err, "connecting to the cache's holder");
	if (err == 0)
		err = hoist__cache_check_peer(fd);
	if (err < 0)
		(void)close(fd);
	else
		*ret = fd;
	return err;
}

static int exchange(int socket, struct hoist__cache_message *message, int fd, int *ret_fd)
{
	uint32_t op = message->op;
	int came = -1;
	int err = hoist__cache_send(socket, message, fd);
	if (err == 0)
		err = hoist__cache_receive(socket, message, &came);
	if (err == 0 && message->op != op)
		err = hoist__fail(-EBADMSG, "the cache's holder answered %u to %u", message->op,
				  op);
	if (err == 0)
		err = message->status;
	if (err == 0 && (came >= 0) != (ret_fd != NULL))
		err = hoist__fail(-EBADMSG, "the cache's holder sent %s descriptor",
				  came >= 0 ? "a" : "no");
	if (err == 0 && ret_fd != NULL)
		*ret_fd = came;
	else if (came >= 0)
		(void)close(came);
	return err;
}

static int ask_once(struct hoist__cache_message *message, int fd, int *ret_fd)
{
	int folder = -1;
	int socket = -1;
	int err = hoist__cache_folder(&folder);
	if (err < 0)
		return err;
	err = connect_to(folder, &socket);
	if (err == 0) {
		err = exchange(socket, message, fd, ret_fd);
		(void)close(socket);
	}
	(void)close(folder);
	return err;
}

/* A holder that closed the connection has ended, or could not serve this request (no memory, no
 * descriptor).  A second try gets an answer, or finds no holder.  Only a PUT is not repeated here:
 * the holder may have taken the image. */
int hoist__cache_ask(struct hoist__cache_message *message, int fd, int *ret_fd)
{
	int err = -EPIPE;
	for (int tries = 0; tries < HOIST__CACHE_TRIES && err == -EPIPE; tries++) {
		err = ask_once(message, fd, ret_fd);
		if (message->op == HOIST__CACHE_PUT)
			break;
	}
	return err;
}
