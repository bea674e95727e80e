/* SPDX-License-Identifier: MIT */
/* Secrets, addresses, channels and neighbours' memory, with every call that can fail failing:
 * nothing is left, and each error has a text. */
#include "config.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "net/channel.h"
#include "net/neighbour.h"
#include "tests/support/check.h"
#include "tests/support/count.h"
#include "tests/support/failing-calls.h"
#include "tests/support/patience.h"
#include "tests/support/wrap.h"

/* --- calls of the library's --- */

#define FAILS(result, name, parameters, arguments)                                                 \
	WRAP(result, name, parameters)                                                             \
	{                                                                                          \
		return failing_call() ? -1 : __real_##name arguments;                              \
	}

FAILS(int, sodium_init, (void), ())
FAILS(int, mkdir, (const char *path, mode_t mode), (path, mode))
FAILS(int, open, (const char *path, int flags, mode_t mode), (path, flags, mode))
FAILS(int, openat, (int at, const char *path, int flags, mode_t mode), (at, path, flags, mode))
FAILS(int, stat, (const char *path, struct stat *ret), (path, ret))
FAILS(int, fstat, (int fd, struct stat *ret), (fd, ret))
FAILS(int, fchmod, (int fd, mode_t mode), (fd, mode))
FAILS(ssize_t, read, (int fd, void *ret, size_t n), (fd, ret, n))
FAILS(ssize_t, write, (int fd, const void *bytes, size_t n), (fd, bytes, n))
FAILS(int, linkat, (int from, const char *old, int to, const char *new, int flags),
      (from, old, to, new, flags))
#include "tests/support/failing-sockets.inc.h"

static int resolver_error;

WRAP(int, getaddrinfo,
     (const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret))
{
	return failing_call() ? resolver_error : __real_getaddrinfo(host, port, hints, ret);
}

/* --- secrets --- */

static char folder[300];

static int find_own(void)
{
	struct hoist__secret secret;
	unsigned n_fds = count_entries("/proc/self/fd");
	char path[400];
	(void)snprintf(path, sizeof path, "%s/hoist/group-secret", folder);
	int err = hoist__secret_find(NULL, &secret);
	CHECK(count_entries("/proc/self/fd") == n_fds);
	CHECK(err == 0 || hoist__error_text()[0] != '\0');
	(void)unlink(path);
	*strrchr(path, '/') = '\0';
	(void)rmdir(path); /* unless a file was left there */
	CHECK(access(path, F_OK) < 0);
	return err;
}

static int find_file(void)
{
	struct hoist__secret secret;
	unsigned n_fds = count_entries("/proc/self/fd");
	int err = hoist__secret_find(NULL, &secret);
	CHECK(count_entries("/proc/self/fd") == n_fds);
	return err;
}

static void write_secret(const char *path)
{
	int fd = __real_open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && __real_write(fd, "0123456789abcdef", 16) == 16);
	OK(close(fd));
}

/* --- a conversation --- */

struct talk {
	int listening;
	int accepted;
	struct hoist__channel *ends[2];
};

static int meet(struct talk *talk, const struct hoist__secret *secret)
{
	struct hoist__address at;
	int n = hoist__address_find("127.0.0.1:0", true, &at, 1);
	int err = n < 0 ? n : hoist__address_listen(&at, &talk->listening, &at);
	if (err == 0)
		err = hoist__channel_connect(&at, secret, &talk->ends[0]);
	if (err < 0)
		return err;
	err = -EAGAIN;
	for (uint64_t until = 0; err == -EAGAIN && patience(&until);)
		err = hoist__address_accept(talk->listening, &talk->accepted);
	if (err < 0)
		return err;
	int socket = talk->accepted;
	talk->accepted = -1;
	return hoist__channel_accept(socket, secret, &talk->ends[1]);
}

static int prove(struct talk *talk)
{
	int err = 0;
	for (uint64_t until = 0; err == 0 && patience(&until);) {
		err = hoist__channel_work(talk->ends[0]);
		if (err == 0)
			err = hoist__channel_work(talk->ends[1]);
		if (hoist__channel_proved(talk->ends[0]) && hoist__channel_proved(talk->ends[1]))
			break;
	}
	return err;
}

/* A frame in each direction, of more bytes than the queue has room for at first. */
static int exchange(struct talk *talk)
{
	static unsigned char bytes[60000];
	int err = 0;
	for (unsigned i = 0; i < 2 && err == 0; i++) {
		struct hoist__frame frame;
		bool came = false;
		size_t queued = hoist__channel_queued(talk->ends[i]);
		err = hoist__channel_send(talk->ends[i], 1, bytes, sizeof bytes);
		if (err == -ENOMEM && hoist__channel_work(talk->ends[i]) == 0) {
			/* Only an allocation has failed: nothing was queued, and it goes on. */
			CHECK(hoist__channel_queued(talk->ends[i]) == queued);
			OK(hoist__channel_send(talk->ends[i], 1, bytes, sizeof bytes));
			err = 0;
		}
		for (uint64_t until = 0; err == 0 && !came && patience(&until);) {
			err = hoist__channel_work(talk->ends[i]);
			if (err == 0)
				err = hoist__channel_work(talk->ends[1 - i]);
			came = hoist__channel_next(talk->ends[1 - i], &frame);
		}
		CHECK(err < 0 || (came && frame.n_bytes == sizeof bytes));
	}
	return err;
}

static int talk(void)
{
	struct hoist__secret secret;
	unsigned n_fds = count_entries("/proc/self/fd");
	struct talk talk = {.listening = -1, .accepted = -1};
	int err = hoist__secret_find("the secret that is given", &secret);
	if (err == 0)
		err = meet(&talk, &secret);
	if (err == 0)
		err = prove(&talk);
	if (err == 0)
		err = exchange(&talk);
	hoist__channel_close(talk.ends[0]);
	hoist__channel_close(talk.ends[1]);
	if (talk.listening >= 0)
		OK(close(talk.listening));
	CHECK(talk.accepted < 0);
	CHECK(count_entries("/proc/self/fd") == n_fds);
	return err;
}

/* --- memory --- */

static int open_memory(void)
{
	static const struct hoist__secret secret = {.key = "the secret of the group"};
	struct hoist__neighbour own;
	unsigned n_fds = count_entries("/proc/self/fd");
	int memory = memfd_create("test", MFD_CLOEXEC);
	int fd = -1;
	CHECK(memory >= 0);
	hoist__neighbour_describe(&secret, memory, &own);
	int err = own.machine != 0 ? hoist__neighbour_open(&own, memory, &fd) : -EIO;
	CHECK(err == 0 || own.machine == 0 || hoist__error_text()[0] != '\0');
	if (err == 0)
		OK(close(fd));
	OK(close(memory));
	CHECK(count_entries("/proc/self/fd") == n_fds);
	return err;
}

/* --- main --- */

static void sweep_secrets(void)
{
	const char *given = getenv("TMPDIR");
	char path[400];
	(void)snprintf(folder, sizeof folder, "%s/run-XXXXXX", given != NULL ? given : "/tmp");
	CHECK(mkdtemp(folder) != NULL);
	OK(setenv("XDG_RUNTIME_DIR", folder, 1));
	failing_sweep("the user's own secret", find_own, EIO);
	(void)snprintf(path, sizeof path, "%s/secret", folder);
	write_secret(path);
	OK(setenv("HOIST_GROUP_SECRET_FILE", path, 1));
	failing_sweep("a file's secret", find_file, EIO);
	failing_sweep("a file's secret", find_file, EACCES);
}

int main(void)
{
	sweep_secrets();
	failing_sweep("a neighbour's memory", open_memory, EACCES);
	resolver_error = EAI_MEMORY;
	failing_sweep("a conversation", talk, ENOMEM);
	resolver_error = EAI_SYSTEM;
	failing_sweep("a conversation", talk, EMFILE);
	resolver_error = EAI_AGAIN;
	failing_sweep("a conversation", talk, ECONNRESET);
	failing.kinds = FAIL_ALLOCATIONS;
	failing_sweep("a conversation's memory", talk, ENOMEM);
	return 0;
}
