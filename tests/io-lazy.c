/* SPDX-License-Identifier: MIT */
#include "io-lazy.h"
#include "wrap-syscall.h"
#include "tests/patience.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

struct lazy_world lazy_world;

static bool fails(void)
{
	return atomic_load(&lazy_world.fail_at) > 0 &&
	       atomic_fetch_sub(&lazy_world.fail_at, 1) == 1;
}

ssize_t __real_pread(int fd, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset)
{
	uint64_t from = (uint64_t)offset;
	void (*on_page)(void) = bytes == PAGE ? atomic_load(&lazy_world.on_page) : NULL;
	if (on_page != NULL)
		on_page();
	if (from < lazy_world.bad_end && from + bytes > lazy_world.bad_begin) {
		errno = EIO;
		return -1;
	}
	return __real_pread(fd, to, bytes, offset);
}

#define UFFDIO_API_NR 0x3f
#define UFFDIO_MOVE_NR 0x05
#define UFFDIO_COPY_NR 0x03

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	va_start(list, request);
	void *argument = va_arg(list, void *);
	va_end(list);
	unsigned number = _IOC_NR(request);
	uint64_t *api = argument;
	errno = EINVAL;
	if (number == UFFDIO_API_NR && lazy_world.no_move && api[1] != 0)
		return -1;
	if (number == UFFDIO_MOVE_NR && lazy_world.move_fails)
		return -1;
	if (number == UFFDIO_COPY_NR && lazy_world.no_pages) {
		errno = ENOMEM;
		return -1;
	}
	if ((number == UFFDIO_API_NR || number == 0) && fails())
		return -1;
	return __real_ioctl(fd, request, argument);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	if (strcmp(path, "/dev/userfaultfd") == 0 && lazy_world.no_device) {
		errno = ENOENT;
		return -1;
	}
	return __real_open(path, flags, 0600);
}

static bool refuses(long number)
{
	bool refused = number == SYS_userfaultfd && lazy_world.no_call;
	if (refused)
		errno = EPERM;
	return refused;
}

void *__real_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset)
{
	errno = ENOMEM;
	return lazy_world.no_maps && (flags & MAP_FIXED) != 0
		       ? MAP_FAILED
		       : __real_mmap(at, bytes, access, flags, fd, offset);
}

long __real_mbind(void *from, unsigned long bytes, int mode, const unsigned long *nodes,
		  unsigned long n_nodes, unsigned flags);
long __wrap_mbind(void *from, unsigned long bytes, int mode, const unsigned long *nodes,
		  unsigned long n_nodes, unsigned flags);
long __wrap_mbind(void *from, unsigned long bytes, int mode, const unsigned long *nodes,
		  unsigned long n_nodes, unsigned flags)
{
	errno = EPERM;
	return lazy_world.no_mbind ? -1 : __real_mbind(from, bytes, mode, nodes, n_nodes, flags);
}

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

int __real_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags)
{
	errno = EMFILE;
	return fails() ? -1 : __real_eventfd(value, flags);
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
	errno = EMFILE;
	return fails() ? -1 : __real_memfd_create(name, flags);
}

int __real_pthread_create(pthread_t *id, const pthread_attr_t *how, void *(*run)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *how, void *(*run)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *how, void *(*run)(void *), void *arg)
{
	if (lazy_world.no_threads)
		return EPERM;
	return fails() ? EAGAIN : __real_pthread_create(id, how, run, arg);
}

/* --- support --- */

/* A thread that was joined may still be listed for a moment. */
void threads_are(size_t n)
{
	for (uint64_t until = 0; count_entries("/proc/self/task") != n && patience(&until);)
		continue;
	NEEDED(count_entries("/proc/self/task") == n);
}

bool is_mapped(const void *address)
{
	unsigned char there;
	return mincore((void *)((uintptr_t)address / PAGE * PAGE), PAGE, &there) == 0;
}

static sigjmp_buf back;

static void jump(int number)
{
	siglongjmp(back, number);
}

/* What a touch comes to: the byte, or minus the signal.  TSan takes the mmap(2) that made it a
 * signal, while this thread waited in the kernel, for a write at the same time. */
__attribute__((no_sanitize("thread"))) int touch(const unsigned char *byte)
{
	struct sigaction action = {.sa_handler = jump}, bus, segv;
	NEEDED(sigaction(SIGBUS, &action, &bus) == 0 && sigaction(SIGSEGV, &action, &segv) == 0);
	int number = sigsetjmp(back, 1);
	int result = number == 0 ? *(const volatile unsigned char *)byte : -number;
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	return result;
}

struct hoist__lazy *open_one(struct hoist__file *file, uint64_t begin, uint64_t end,
			     unsigned char **ret)
{
	struct hoist__lazy_range range = {file, begin, end, 0};
	struct hoist__lazy *lazy = NULL;
	NEEDED(hoist__lazy_open(&range, 1, &anywhere, &lazy) == 0);
	*ret = hoist__lazy_data(lazy) + range.at;
	return lazy;
}

void same(const unsigned char *data, uint64_t offset, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (data[i] != byte_at(offset + i)) {
			fprintf(stderr, "byte %zu of %zu\n", i, bytes);
			abort();
		}
}

int try_open(struct hoist__file *file)
{
	struct hoist__lazy_range range = {file, 0, file->bytes, 0};
	struct hoist__lazy *lazy = NULL;
	int err = hoist__lazy_open(&range, 1, &anywhere, &lazy);
	if (err == 0) {
		same(hoist__lazy_data(lazy), 0, file->bytes);
		hoist__lazy_close(lazy);
	} else
		NEEDED(lazy == NULL);
	return err;
}

void skip_without_lazy_memory(void)
{
	struct hoist__file *file = new_file(PAGE);
	int err = try_open(file);
	hoist__file_close(file);
	if (err == 0)
		return;
	printf("skipped: %s\n", hoist__error_text());
	exit(77);
}
