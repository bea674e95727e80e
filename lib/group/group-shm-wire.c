/* SPDX-License-Identifier: MIT */
/* Messages between ranks that meet.
 * The contract is in lib/group/group-shm.h. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/rights.h"
#include "lib/group/group-shm.h"

_Static_assert(sizeof(struct hoist__shm_message) == 56 + HOIST__SHM_TEXT_BYTES,
	       "both sides have the same layout; a new form is a new version");

static const char magic[8] = {'h', 'o', 'i', 's', 't', 'g', 'r', 'p'};

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(HOIST__SHM_MOST_FDS * sizeof(int))];
};

socklen_t hoist__shm_address(const char *name, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	int n = snprintf(ret->sun_path + 1, sizeof ret->sun_path - 1, "hoist-group-%u-%s",
			 (unsigned)geteuid(), name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int hoist__shm_check_peer(int socket, const char *name)
{
	struct ucred peer;
	socklen_t bytes = sizeof peer;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		return hoist__fail_errno(-errno, "asking for the credentials of a rank");
	if (peer.uid != geteuid())
		return hoist__fail(
			-EPERM,
			"process %d in the group \"%s\" is of user %u, not of %u; choose "
			"another name for the group",
			(int)peer.pid, name, (unsigned)peer.uid, (unsigned)geteuid());
	return 0;
}

int hoist__shm_process(int socket)
{
	struct ucred peer = {.pid = 0};
	socklen_t bytes = sizeof peer;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0 || peer.pid <= 0)
		return -1;
	return (int)syscall(SYS_pidfd_open, peer.pid, 0);
}

void hoist__shm_message_init(const struct hoist__transport *t, enum hoist__shm_kind kind,
			     struct hoist__shm_message *ret)
{
	*ret = (struct hoist__shm_message){
		.version = HOIST__SHM_VERSION,
		.kind = kind,
		.rank = t->options.rank,
		.n_ranks = t->options.n_ranks,
		.n_cells = t->options.n_cells,
		.identity = {t->options.identity[0], t->options.identity[1]},
	};
	memcpy(ret->magic, magic, sizeof magic);
}

void hoist__shm_clean(char text[static HOIST__SHM_TEXT_BYTES])
{
	text[HOIST__SHM_TEXT_BYTES - 1] = '\0';
	for (char *c = text; *c != '\0'; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
}

int hoist__shm_send(int socket, const struct hoist__shm_message *message, const int *fds,
		    unsigned n_fds)
{
	union control control;
	struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
	if (n_fds > 0)
		hoist__rights_attach(&header, &control, fds, n_fds);
	ssize_t n;
	do
		n = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof *message)
		return 0;
	bool ended = n >= 0 || errno == EPIPE || errno == ECONNRESET || errno == EAGAIN;
	return hoist__fail_errno(ended ? -ECONNRESET : -errno, "a message to a rank");
}

static int check(struct hoist__shm_message *message, size_t bytes, int flags)
{
	if (bytes < offsetof(struct hoist__shm_message, kind) ||
	    memcmp(message->magic, magic, sizeof magic) != 0)
		return hoist__fail(-EBADMSG, "a rank sent no message of hoist's");
	if (message->version != HOIST__SHM_VERSION)
		return hoist__fail(
			-EPROTO,
			"a rank has version %u of the protocol, this one has %u; use one "
			"version of hoist for all ranks",
			message->version, HOIST__SHM_VERSION);
	if (bytes != sizeof *message || (flags & MSG_TRUNC) != 0 || message->kind == 0 ||
	    message->kind >= HOIST__SHM_KINDS || message->err > 0 || message->err < -4095 ||
	    message->reserved != 0)
		return hoist__fail(-EBADMSG, "a rank sent %zu bytes that are no message", bytes);
	hoist__shm_clean(message->text);
	return 0;
}

int hoist__shm_receive(int socket, struct hoist__shm_message *ret, int *fds, unsigned *n_fds)
{
	union control control;
	struct iovec part = {.iov_base = ret, .iov_len = sizeof *ret};
	struct msghdr header = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = &control,
				.msg_controllen = sizeof control};
	ssize_t n;
	*n_fds = 0;
	do
		n = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return -EAGAIN;
	if (n <= 0)
		return hoist__fail(-ECONNRESET, "a rank has ended");
	size_t n_came = hoist__rights_take(&header, fds, HOIST__SHM_MOST_FDS);
	*n_fds = n_came < HOIST__SHM_MOST_FDS ? (unsigned)n_came : HOIST__SHM_MOST_FDS;
	int err = check(ret, (size_t)n, header.msg_flags);
	if (err == 0 && (header.msg_flags & MSG_CTRUNC) != 0)
		err = hoist__fail(-EMFILE, "descriptors from a rank did not come: this process has "
					   "as many as it may (RLIMIT_NOFILE)");
	for (unsigned i = 0; err < 0 && i < *n_fds; i++)
		(void)close(fds[i]);
	*n_fds = err < 0 ? 0 : *n_fds;
	return err;
}
