/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-hold.c - becomes the cache's holder: one process per user, in the background.
 * The contract is in hoist/cache.h.
 *
 * The process that has the lock binds the socket and forks.  The child is the holder, and keeps the
 * lock. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "lib/cache/cache.h"

static bool is_one_of(int fd, const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (fds[i] == fd)
			return true;
	return false;
}

/* Closes the descriptors that the starter had open, which the holder must not keep. */
static void close_others(const int *kept, size_t n_kept)
{
	DIR *folder = opendir("/proc/self/fd");
	if (folder == NULL)
		return;
	for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
		int fd = atoi(entry->d_name);
		if (fd > 2 && fd != dirfd(folder) && !is_one_of(fd, kept, n_kept))
			(void)close(fd);
	}
	(void)closedir(folder);
}

static void detach(const struct hoist__cache_lock *lock, int listener, int ready)
{
	const int kept[] = {lock->folder, lock->fd, listener, ready};
	const size_t n_kept = sizeof kept / sizeof kept[0];
	(void)setsid();
	(void)!chdir("/"); /* a folder that stays in use is no failure */
	(void)prctl(PR_SET_NAME, "hoist-cache");
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGPIPE, SIG_IGN); /* the process that waits for the holder may have ended */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null >= 0 && fd <= 2; fd++)
		if (!is_one_of(fd, kept, n_kept)) /* also replaces standard descriptors that were
						   * closed at the start */
			(void)dup2(null, fd);
	close_others(kept, n_kept);
}

static int bind_in(int folder, int *ret)
{
	struct sockaddr_un address;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return hoist__fail_errno(-errno, "the cache's socket");
	hoist__cache_address(folder, &address);
	(void)unlinkat(folder, HOIST__CACHE_SOCKET, 0); /* the socket of a holder that was killed */
	if (bind(fd, (const struct sockaddr *)&address, sizeof address) < 0) {
		int err = -errno;
		(void)close(fd);
		if (err == -ENOENT && access("/proc/self/fd", X_OK) < 0)
			return hoist__fail(-ENOENT, "the cache's socket cannot be made: /proc is "
						    "not mounted; mount /proc");
		return hoist__fail_errno(err, "the cache's socket (%s)", address.sun_path);
	}
	*ret = fd;
	return 0;
}

int hoist__cache_answers(void)
{
	struct hoist__cache_message m;
	int err = hoist__cache_message_init(HOIST__CACHE_LIST, "", &m);
	m.id = UINT64_MAX;
	if (err == 0)
		err = hoist__cache_ask(&m, -1, NULL);
	return err == -ENOENT && m.status == -ENOENT ? 0 : err;
}

/* Waits a while, as another holder may be ending: then its lock comes free. */
static int take_lock(struct hoist__cache_lock *ret)
{
	for (int tries = 0; tries < 500; tries++) {
		int err = hoist__cache_lock(HOIST__CACHE_HOLDER_LOCK, ret);
		if (err != -EAGAIN)
			return err;
		if (hoist__cache_answers() == 0)
			return -EEXIST;
		(void)usleep(10000);
	}
	return hoist__fail(-EAGAIN, "a holder of the cache has its lock, but does not answer");
}

/* The holder itself calls listen(2), as peers see the credentials of the process that did. */
static void become_holder(struct hoist__cache_lock *lock, int listener, int ready)
{
	detach(lock, listener, ready);
	if (listen(listener, HOIST__CACHE_MOST_PEERS) < 0 || write(ready, "", 1) != 1)
		_exit(1);
	(void)close(ready);
	hoist__cache_serve(lock, listener);
}

static int wait_until_ready(int from)
{
	char byte;
	ssize_t n;
	do
		n = read(from, &byte, 1);
	while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : hoist__fail(-ECHILD, "the cache's holder ended at once");
}

/* The parent binds the socket, so that this call can say why no socket can be made.  The parent
 * closes the pipe's end for writing before it waits: a holder that dies then ends the read. */
static int fork_holder(struct hoist__cache_lock *lock)
{
	int listener = -1;
	int ready[2];
	if (pipe2(ready, O_CLOEXEC) < 0)
		return hoist__fail_errno(-errno, "starting the cache's holder");
	int err = bind_in(lock->folder, &listener);
	pid_t child = err == 0 ? fork() : -1;
	if (child == 0)
		become_holder(lock, listener, ready[1]);
	if (err == 0 && child < 0)
		err = hoist__fail_errno(-errno, "starting the cache's holder");
	(void)close(ready[1]);
	if (err == 0)
		err = wait_until_ready(ready[0]);
	if (err < 0 && listener >= 0)
		(void)unlinkat(lock->folder, HOIST__CACHE_SOCKET, 0);
	(void)close(ready[0]);
	if (listener >= 0)
		(void)close(listener);
	return err;
}

int hoist_cache_hold(void)
{
	struct hoist__cache_lock lock;
	int err = take_lock(&lock);
	if (err < 0)
		return err == -EEXIST ? 0 : err;
	err = fork_holder(&lock);
	if (err < 0)
		hoist__cache_unlock(&lock);
	else
		hoist__cache_lock_close(&lock);
	return err;
}
