/* SPDX-License-Identifier: MIT */
/* The wrapped calls of the library: pread, pwrite, opens and the rings, each with the answer that
 * the test chose. */
#include "config.h"

#include "tests/io/faults-calls.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "tests/support/wrap-uring.h"
#include "tests/support/wrap.h"

struct fault fault;
atomic_uint n_preads;
static atomic_uint n_calls; /* of the family, since the fault was set */

void set_fault(enum family family, int answer, bool lasts, unsigned at)
{
	fault.family = family;
	fault.answer = answer;
	fault.lasts = lasts;
	fault.at = at;
	fault.n = UINT_MAX;
	atomic_store(&n_calls, 0);
}

/* True if this call is to be spoiled. */
static bool spoil(enum family family)
{
	if (fault.family != family)
		return false;
	unsigned n = atomic_fetch_add(&n_calls, 1) + 1;
	return n == fault.at || (fault.lasts && n > fault.at && n - fault.at < fault.n);
}

bool unreached(void)
{
	bool none = atomic_load(&n_calls) < fault.at;
	set_fault(NONE, 0, false, 0);
	return none;
}

/* --- reads --- */

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
	atomic_fetch_add(&n_preads, 1);
	if (spoil(READS)) {
		if (fault.answer < 0) {
			errno = -fault.answer;
			return -1;
		}
		/* A direct read of so few bytes would be refused: cut it afterwards. */
		ssize_t n = __real_pread(fd, to, bytes, offset);
		return n > fault.answer ? fault.answer : n;
	}
	return __real_pread(fd, to, bytes, offset);
}

WRAP(ssize_t, pwrite, (int fd, const void *from, size_t bytes, off_t offset))
{
	bool spoiled = spoil(READS);
	if (spoiled && fault.answer < 0) {
		errno = -fault.answer;
		return -1;
	}
	ssize_t n = __real_pwrite(fd, from, bytes, offset);
	return spoiled && n > fault.answer ? fault.answer : n;
}

static unsigned looked_at; /* completions of the present ring */

static void spoil_completions(struct io_uring *ring)
{
	unsigned tail = io_uring_smp_load_acquire(ring->cq.ktail);
	for (; looked_at != tail; looked_at++) {
		struct io_uring_cqe *cqe = &ring->cq.cqes[looked_at & *ring->cq.kring_mask];
		if (cqe->user_data > 1 && (spoil(READS) || spoil(RINGS)) &&
		    (fault.answer < 0 || cqe->res > fault.answer))
			cqe->res = fault.answer;
	}
}

/* --- entering --- */

#define ENTER(name, parameters, arguments)                                                         \
	WRAP(int, name, parameters)                                                                \
	{                                                                                          \
		if (spoil(ENTERS))                                                                 \
			return fault.answer;                                                       \
		int err = __real_##name arguments;                                                 \
		spoil_completions(ring);                                                           \
		return err;                                                                        \
	}

URING_ENTERS(ENTER)

/* --- resources --- */

#define RESOURCE(result, name, parameters, arguments, failure)                                     \
	WRAP(result, name, parameters)                                                             \
	{                                                                                          \
		if (spoil(RESOURCES))                                                              \
			return failure;                                                            \
		return __real_##name arguments;                                                    \
	}
#define FAIL_ERRNO(err) (errno = (err), -1)

RESOURCE(void *, calloc, (size_t n, size_t bytes), (n, bytes), NULL)
RESOURCE(char *, strdup, (const char *text), (text), NULL)
RESOURCE(int, pthread_create,
	 (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *),
	  void *argument),
	 (thread, attributes, run, argument), EAGAIN)
RESOURCE(int, eventfd, (unsigned count, int flags), (count, flags), FAIL_ERRNO(EMFILE))
RESOURCE(int, fstat, (int fd, struct stat *st), (fd, st), FAIL_ERRNO(EIO))
RESOURCE(int, statx, (int fd, const char *path, int flags, unsigned mask, struct statx *stx),
	 (fd, path, flags, mask, stx), FAIL_ERRNO(ENOSYS))
RESOURCE(int, io_uring_register_buffers,
	 (struct io_uring * ring, const struct iovec *pieces, unsigned n), (ring, pieces, n),
	 -ENOMEM)
RESOURCE(int, io_uring_register_files, (struct io_uring * ring, const int *fds, unsigned n),
	 (ring, fds, n), -EMFILE)

WRAP(int, io_uring_queue_init_params,
     (unsigned n, struct io_uring *ring, struct io_uring_params *p))
{
	if (spoil(RESOURCES))
		return -ENOMEM;
	looked_at = 0;
	return __real_io_uring_queue_init_params(n, ring, p);
}

/* The library opens files for reading only: no mode follows. */
WRAP(int, openat, (int dir, const char *path, int flags, ...))
{
	if (spoil(RESOURCES))
		return FAIL_ERRNO(EMFILE);
	return __real_openat(dir, path, flags);
}

WRAP(int, open, (const char *path, int flags, ...))
{
	va_list more;
	va_start(more, flags);
	int mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
	va_end(more);
	if (spoil(RESOURCES))
		return FAIL_ERRNO(ENOENT);
	return __real_open(path, flags, mode);
}
