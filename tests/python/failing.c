/* SPDX-License-Identifier: MIT */
/* tests/python/failing.c - makes calls of libhoist and of the extension fail, one by one, in a
 * Python program: `LD_PRELOAD=failing.so`, and test_failing.py tells which call.
 *
 * Counted are the calls whose caller is in libhoist.so or in the extension, so that Python's own
 * succeed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { MEMORY = 1, SYSTEM = 2 };

static atomic_int kinds;
static atomic_long at;
static atomic_long n_calls;
static uintptr_t begins[2], ends[2]; /* of the two libraries */
static int n_ranges;

static int note(struct dl_phdr_info *info, size_t size, void *context)
{
	(void)size;
	(void)context;
	if (n_ranges == 2 || (strstr(info->dlpi_name, "libhoist.so") == NULL &&
			      strstr(info->dlpi_name, "/_hoist.") == NULL))
		return 0;
	uintptr_t end = 0;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD &&
		    info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz > end)
			end = info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
	begins[n_ranges] = info->dlpi_addr;
	ends[n_ranges++] = info->dlpi_addr + end;
	return 0;
}

/* Fails the call number @call from now on, of these kinds; 0: none, but counts.  Returns: the
 * number of libraries that were found. */
int failing_arm(int of_kinds, long call);
int failing_arm(int of_kinds, long call)
{
	if (n_ranges < 2) {
		n_ranges = 0;
		dl_iterate_phdr(note, NULL);
	}
	atomic_store(&n_calls, 0);
	atomic_store(&at, call);
	atomic_store(&kinds, of_kinds);
	return n_ranges;
}

/* Returns: the calls since failing_arm(). */
long failing_disarm(void);
long failing_disarm(void)
{
	atomic_store(&kinds, 0);
	return atomic_load(&n_calls);
}

static bool fails(int kind, const void *caller)
{
	uintptr_t from = (uintptr_t)caller;
	if ((atomic_load(&kinds) & kind) == 0)
		return false;
	bool ours = false;
	for (int i = 0; i < n_ranges; i++)
		ours = ours || (from >= begins[i] && from < ends[i]);
	return ours && atomic_fetch_add(&n_calls, 1) + 1 == atomic_load(&at);
}

#define FAILS(kind, error) (fails(kind, __builtin_return_address(0)) && (errno = (error), true))

/* --- memory --- */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
	return FAILS(MEMORY, ENOMEM) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return FAILS(MEMORY, ENOMEM) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return FAILS(MEMORY, ENOMEM) ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
	return FAILS(MEMORY, ENOMEM) ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **ret, size_t align, size_t n)
{
	void *p = fails(MEMORY, __builtin_return_address(0)) ? NULL : __libc_memalign(align, n);
	if (p == NULL)
		return ENOMEM;
	*ret = p;
	return 0;
}

char *strdup(const char *text)
{
	size_t n = strlen(text) + 1;
	char *copy = FAILS(MEMORY, ENOMEM) ? NULL : __libc_malloc(n);
	return copy == NULL ? NULL : memcpy(copy, text, n);
}

/* --- the system --- */

#define NEXT(name)                                                                                 \
	static __typeof__(&name) next;                                                             \
	if (next == NULL)                                                                          \
	*(void **)&next = dlsym(RTLD_NEXT, #name)

void *mmap(void *where, size_t n, int access, int flags, int fd, off_t offset)
{
	NEXT(mmap);
	return FAILS(MEMORY, ENOMEM) ? MAP_FAILED : next(where, n, access, flags, fd, offset);
}

int open(const char *path, int flags, ...)
{
	NEXT(open);
	va_list list;
	va_start(list, flags);
	mode_t mode = va_arg(list, mode_t); /* any value without O_CREAT */
	va_end(list);
	return FAILS(SYSTEM, EMFILE) ? -1 : next(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
	NEXT(openat);
	va_list list;
	va_start(list, flags);
	mode_t mode = va_arg(list, mode_t);
	va_end(list);
	return FAILS(SYSTEM, EMFILE) ? -1 : next(folder, path, flags, mode);
}

ssize_t pread(int fd, void *to, size_t n, off_t offset)
{
	NEXT(pread);
	return FAILS(SYSTEM, EIO) ? -1 : next(fd, to, n, offset);
}

ssize_t read(int fd, void *to, size_t n)
{
	NEXT(read);
	return FAILS(SYSTEM, EIO) ? -1 : next(fd, to, n);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t offset)
{
	NEXT(pwrite);
	return FAILS(SYSTEM, EIO) ? -1 : next(fd, from, n, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t n)
{
	NEXT(fallocate);
	return FAILS(SYSTEM, ENOSPC) ? -1 : next(fd, mode, offset, n);
}

int ftruncate(int fd, off_t n)
{
	NEXT(ftruncate);
	return FAILS(SYSTEM, EIO) ? -1 : next(fd, n);
}

int fstat(int fd, struct stat *ret)
{
	NEXT(fstat);
	return FAILS(SYSTEM, EIO) ? -1 : next(fd, ret);
}

int madvise(void *where, size_t n, int advice)
{
	NEXT(madvise);
	return FAILS(SYSTEM, ENOMEM) ? -1 : next(where, n, advice);
}

int mkdir(const char *path, mode_t mode)
{
	NEXT(mkdir);
	return FAILS(SYSTEM, ENOSPC) ? -1 : next(path, mode);
}

int unlinkat(int folder, const char *path, int flags)
{
	NEXT(unlinkat);
	return FAILS(SYSTEM, EIO) ? -1 : next(folder, path, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	NEXT(sendmsg);
	return FAILS(SYSTEM, ENOBUFS) ? -1 : next(fd, message, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	NEXT(recvmsg);
	return FAILS(SYSTEM, ENOMEM) ? -1 : next(fd, message, flags);
}

int memfd_create(const char *name, unsigned flags)
{
	NEXT(memfd_create);
	return FAILS(SYSTEM, EMFILE) ? -1 : next(name, flags);
}

/* liburing's calls return the number.  The library is libhoist's own: no global scope has it. */
#define NEXT_OF_URING(name)                                                                        \
	static __typeof__(&name) next;                                                             \
	if (next == NULL)                                                                          \
	*(void **)&next = dlsym(dlopen("liburing.so.2", RTLD_LAZY | RTLD_NOLOAD), #name)

struct io_uring;
struct io_uring_params;
int io_uring_queue_init_params(unsigned entries, struct io_uring *ring, struct io_uring_params *p);
int io_uring_queue_init_params(unsigned entries, struct io_uring *ring, struct io_uring_params *p)
{
	NEXT_OF_URING(io_uring_queue_init_params);
	return fails(SYSTEM, __builtin_return_address(0)) ? -ENOMEM : next(entries, ring, p);
}

int io_uring_submit(struct io_uring *ring);
int io_uring_submit(struct io_uring *ring)
{
	NEXT_OF_URING(io_uring_submit);
	return fails(SYSTEM, __builtin_return_address(0)) ? -EAGAIN : next(ring);
}

int fsync(int fd)
{
	NEXT(fsync);
	return FAILS(SYSTEM, EIO) ? -1 : next(fd);
}

int linkat(int folder, const char *path, int to_folder, const char *to, int flags)
{
	NEXT(linkat);
	return FAILS(SYSTEM, ENOSPC) ? -1 : next(folder, path, to_folder, to, flags);
}

int renameat(int folder, const char *path, int to_folder, const char *to)
{
	NEXT(renameat);
	return FAILS(SYSTEM, EIO) ? -1 : next(folder, path, to_folder, to);
}

int renameat2(int folder, const char *path, int to_folder, const char *to, unsigned flags)
{
	NEXT(renameat2);
	return FAILS(SYSTEM, EIO) ? -1 : next(folder, path, to_folder, to, flags);
}

int eventfd(unsigned n, int flags);
int eventfd(unsigned n, int flags)
{
	NEXT(eventfd);
	return FAILS(SYSTEM, EMFILE) ? -1 : next(n, flags);
}

int socket(int domain, int type, int protocol)
{
	NEXT(socket);
	return FAILS(SYSTEM, EMFILE) ? -1 : next(domain, type, protocol);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
		   void *argument)
{
	NEXT(pthread_create);
	return fails(SYSTEM, __builtin_return_address(0))
		       ? EAGAIN
		       : next(thread, attributes, start, argument);
}
