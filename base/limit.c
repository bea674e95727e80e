/* SPDX-License-Identifier: MIT */
/* base/limit.c - how long a file may become, and writes that raise no signal.
 * The contract is in base/limit.h. */
#include "config.h"

#include "base/limit.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

uint64_t hoist__file_limit(void)
{
	struct rlimit limit;
	bool limited = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
	return limited ? limit.rlim_cur : UINT64_MAX;
}

int hoist__check_file_bytes(uint64_t bytes, const char *what)
{
	uint64_t limit = hoist__file_limit();
	if (bytes <= limit)
		return 0;
	return hoist__fail(-EFBIG,
			   "%s: the file needs %llu bytes, but RLIMIT_FSIZE is %llu; raise the "
			   "limit with `ulimit -f`",
			   what, (unsigned long long)bytes, (unsigned long long)limit);
}

int hoist__fail_memfd(int errnum, const char *what)
{
	if (errnum == ENOSYS || errnum == EPERM)
		return hoist__fail(errnum == ENOSYS ? -ENOTSUP : -EPERM,
				   "%s: memfd_create is refused (%s); allow it in the container's "
				   "seccomp profile",
				   what, strerrorname_np(errnum));
	return hoist__fail_errno(-errnum, "%s (memfd_create)", what);
}

/* The kernel sends the signal to the thread that writes.  This thread blocks the signal, and takes
 * it away again unless it was pending before. */
ssize_t hoist__write(int fd, const void *bytes, size_t n)
{
	const struct timespec now = {0};
	sigset_t ours, before, pending;
	sigemptyset(&ours);
	sigaddset(&ours, SIGXFSZ);
	sigaddset(&ours, SIGPIPE);
	sigemptyset(&pending);
	(void)sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &ours, &before);
	ssize_t done = write(fd, bytes, n);
	int err = errno;
	int sent = done < 0 && err == EFBIG ? SIGXFSZ : done < 0 && err == EPIPE ? SIGPIPE : 0;
	if (sent != 0 && !sigismember(&pending, sent)) {
		sigemptyset(&ours);
		sigaddset(&ours, sent);
		(void)sigtimedwait(&ours, NULL, &now);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = err;
	return done;
}
