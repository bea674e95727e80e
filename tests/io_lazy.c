/* SPDX-License-Identifier: MIT */
/* Memory that is filled when it is touched; plain C, so that TSan sees the threads.  The linker
 * (--wrap) sends some of the library's calls through this program: a disk with bad places, a kernel
 * that lacks this or that. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/error.h"
#include "io-helpers.h"
#include "io/lazy.h"
#include "under-tsan.h"

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define SECOND UINT64_C(1000000000)

static const struct hoist__placement anywhere = {.policy = HOIST__POLICY_LOCAL};

/* --- the world --- */

static _Atomic uint64_t bad_begin, bad_end; /* reads of these bytes fail */
static atomic_int fail_at;		    /* the n-th call from now on fails; 0: none */
static atomic_bool no_move;		    /* the kernel knows no UFFDIO_MOVE */
static atomic_bool move_fails;		    /* it does, but not here */
static atomic_bool no_device;
static atomic_bool no_call;
static atomic_bool no_mbind;
static atomic_bool no_maps;  /* a process has only so many */
static atomic_bool no_pages; /* to copy to */

static bool fails(void)
{
	return atomic_load(&fail_at) > 0 && atomic_fetch_sub(&fail_at, 1) == 1;
}

ssize_t __real_pread(int fd, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset)
{
	uint64_t from = (uint64_t)offset;
	if (from < bad_end && from + bytes > bad_begin) {
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
	if (number == UFFDIO_API_NR && no_move && api[1] != 0)
		return -1;
	if (number == UFFDIO_MOVE_NR && move_fails)
		return -1;
	if (number == UFFDIO_COPY_NR && no_pages) {
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
	if (strcmp(path, "/dev/userfaultfd") == 0 && no_device) {
		errno = ENOENT;
		return -1;
	}
	return __real_open(path, flags, 0600);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	va_list list;
	long a[6];
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_userfaultfd && no_call) {
		errno = EPERM;
		return -1;
	}
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

void *__real_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset)
{
	errno = ENOMEM;
	return no_maps && (flags & MAP_FIXED) != 0
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
	return no_mbind ? -1 : __real_mbind(from, bytes, mode, nodes, n_nodes, flags);
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
	return fails() ? EAGAIN : __real_pthread_create(id, how, run, arg);
}

/* --- support --- */

static size_t entries(const char *path)
{
	DIR *folder = opendir(path);
	NEEDED(folder != NULL);
	size_t n = 0;
	while (readdir(folder) != NULL)
		n++;
	closedir(folder);
	return n;
}

static size_t n_descriptors(void)
{
	return entries("/proc/self/fd");
}

/* A thread that was joined may still be listed for a moment. */
static void threads_are(size_t n)
{
	for (int i = 0; i < 1000 && entries("/proc/self/task") != n; i++)
		usleep(1000);
	NEEDED(entries("/proc/self/task") == n);
}

static bool is_mapped(const void *address)
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
__attribute__((no_sanitize("thread"))) static int touch(const unsigned char *byte)
{
	struct sigaction action = {.sa_handler = jump}, bus, segv;
	NEEDED(sigaction(SIGBUS, &action, &bus) == 0 && sigaction(SIGSEGV, &action, &segv) == 0);
	int number = sigsetjmp(back, 1);
	int result = number == 0 ? *(const volatile unsigned char *)byte : -number;
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	return result;
}

static struct hoist__lazy *open_one(struct hoist__file *file, uint64_t begin, uint64_t end,
				    unsigned char **ret)
{
	struct hoist__lazy_range range = {file, begin, end, 0};
	struct hoist__lazy *lazy = NULL;
	NEEDED(hoist__lazy_open(&range, 1, &anywhere, &lazy) == 0);
	*ret = hoist__lazy_data(lazy) + range.at;
	return lazy;
}

static void same(const unsigned char *data, uint64_t offset, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (data[i] != byte_at(offset + i)) {
			fprintf(stderr, "byte %zu of %zu\n", i, bytes);
			abort();
		}
}

/* --- what it is for --- */

static void two_files_in_one_memory(void)
{
	struct hoist__file *files[] = {new_file(9 * MIB + 77), new_file(100)};
	struct hoist__lazy_range ranges[] = {
		{files[0], 5000, 9 * MIB + 77, 0}, {files[1], 10, 100, 0}, {files[0], 123, 456, 0}};
	struct hoist__lazy *lazy = NULL;
	NEEDED(hoist__lazy_open(ranges, 3, &anywhere, &lazy) == 0);
	NEEDED(hoist__lazy_bytes(lazy) == 14 * MIB);
	unsigned char *data = hoist__lazy_data(lazy);
	same(data + ranges[1].at, 10, 90);
	for (size_t i = 9 * MIB + 77 - 5000; i-- > 0;) /* from behind */
		NEEDED(data[ranges[0].at + i] == byte_at(5000 + i));
	NEEDED(data[ranges[0].at + 9 * MIB + 77 - 5000] == 0 && "behind the file is nothing");
	same(data + ranges[2].at, 123, 333);
	NEEDED(hoist__lazy_error(lazy) == 0);
	hoist__lazy_close(lazy);
	NEEDED(!is_mapped(data));
	hoist__file_close(files[0]);
	hoist__file_close(files[1]);
}

static void reading_along_and_writing(void)
{
	size_t bytes = 20 * MIB;
	struct hoist__file *file = new_file(bytes);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, bytes, &data);
	data[3 * MIB + 5] = 0xAB; /* the first touch is a write */
	data[3 * MIB + 5] ^= 0xFF;
	NEEDED(data[3 * MIB + 5] == (0xAB ^ 0xFF));
	data[3 * MIB + 5] = byte_at(3 * MIB + 5);
	same(data, 0, bytes);
	NEEDED(hoist__file_changed(file) == 0 && first_wrong(file->fd, data, 0, bytes) == bytes);
	NEEDED(hoist__lazy_wait(lazy, 0) == 0);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

/* The kernel's own accesses: it waits, too. */
static void the_kernel_touches(void)
{
	struct hoist__file *file = new_file(8 * MIB);
	unsigned char *data, block[8192];
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	int ends[2];
	NEEDED(pipe(ends) == 0);
	NEEDED(write(ends[1], data + 100, sizeof block) == (ssize_t)sizeof block);
	NEEDED(read(ends[0], block, sizeof block) == (ssize_t)sizeof block);
	same(block, 100, sizeof block);
	NEEDED(write(ends[1], "xyz", 3) == 3 && read(ends[0], data + 5 * MIB, 3) == 3);
	NEEDED(memcmp(data + 5 * MIB, "xyz", 3) == 0);
	same(data + 5 * MIB + 3, 5 * MIB + 3, MIB);
	close(ends[0]);
	close(ends[1]);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

static size_t huge_bytes(const void *address)
{
	FILE *maps = fopen("/proc/self/smaps", "re");
	NEEDED(maps != NULL);
	char line[512];
	bool here = false;
	size_t kib = 0;
	while (fgets(line, sizeof line, maps) != NULL) {
		unsigned long begin, end;
		size_t n;
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			here = (uintptr_t)address >= begin && (uintptr_t)address < end;
		else if (here && sscanf(line, "AnonHugePages: %zu kB", &n) == 1)
			kib += n;
	}
	fclose(maps);
	return kib << 10;
}

static bool huge_pages_are_had(void)
{
	char text[64] = "";
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	if (file == NULL)
		return false;
	bool any = fgets(text, sizeof text, file) != NULL && strstr(text, "[never]") == NULL;
	fclose(file);
	return any;
}

/* What is touched becomes whole huge pages, and nothing else does. */
static void windows_are_huge_pages(void)
{
	struct hoist__file *file = new_file(12 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 12 * MIB, &data);
	NEEDED(data[5 * MIB] == byte_at(5 * MIB));
	unsigned char there[512];
	NEEDED(mincore(data + 4 * MIB, 2 * MIB, there) == 0);
	for (size_t i = 0; i < sizeof there; i++)
		NEEDED(there[i] & 1);
	NEEDED(mincore(data + 8 * MIB, 2 * MIB, there) == 0 && (there[0] & 1) == 0);
	size_t huge = huge_bytes(data);
	printf("  %zu KiB of huge pages after one touch; %s\n", huge >> 10, hoist__lazy_note(lazy));
	if (huge_pages_are_had() && strstr(hoist__lazy_note(lazy), "moved in") != NULL)
		NEEDED(huge == 2 * MIB);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

/* --- threads --- */

struct toucher {
	unsigned char *data;
	size_t bytes;
	uint64_t seed;
	pthread_t id;
};

static void *touch_about(void *argument)
{
	struct toucher *toucher = argument;
	for (int i = 0; i < 1000; i++) {
		toucher->seed = toucher->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		size_t at = (size_t)((toucher->seed >> 20) % toucher->bytes);
		NEEDED(toucher->data[at] == byte_at(at));
	}
	return NULL;
}

static void four_threads_touch_about(void)
{
	size_t bytes = 24 * MIB + 12345;
	struct hoist__file *file = new_file(bytes);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, bytes, &data);
	struct toucher touchers[4];
	for (unsigned i = 0; i < 4; i++) {
		touchers[i] = (struct toucher){data, bytes, i * 12345 + 1, 0};
		NEEDED(pthread_create(&touchers[i].id, NULL, touch_about, &touchers[i]) == 0);
		if (i == 1)
			hoist__lazy_want(lazy, 0, bytes / 2);
	}
	for (unsigned i = 0; i < 4; i++)
		NEEDED(pthread_join(touchers[i].id, NULL) == 0);
	NEEDED(hoist__lazy_error(lazy) == 0);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

/* --- all of it, and the end of it --- */

static void once_filled_it_is_plain_memory(void)
{
	size_t bytes = 21 * MIB;
	struct hoist__file *file = new_file(bytes);
	size_t fds = n_descriptors(), threads = entries("/proc/self/task");
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 100, bytes, &data);
	uint64_t done, total;
	hoist__lazy_want(lazy, 100, bytes - 100);
	NEEDED(hoist__lazy_wait(lazy, 60 * SECOND) == 0);
	hoist__lazy_progress(lazy, &done, &total);
	NEEDED(done == total && total == 22 * MIB);
	threads_are(threads);
	NEEDED(n_descriptors() == fds);
	hoist__file_close(file);
	same(data, 100, bytes - 100);
	if (!UNDER_TSAN) {
		pid_t child = fork();
		NEEDED(child >= 0);
		if (child == 0) {
			NEEDED(data[7 * MIB] == byte_at(7 * MIB + 100));
			data[7 * MIB]++;
			NEEDED(hoist__lazy_error(lazy) == 0);
			hoist__lazy_close(lazy);
			_exit(is_mapped(data));
		}
		int status;
		NEEDED(waitpid(child, &status, 0) == child && status == 0);
	}
	same(data, 100, bytes - 100);
	hoist__lazy_want(lazy, 0, bytes); /* it is there */
	NEEDED(hoist__lazy_wait(lazy, 0) == 0);
	hoist__lazy_close(lazy);
	NEEDED(!is_mapped(data));
}

static void wanting_can_be_cancelled(void)
{
	size_t bytes = 32 * MIB;
	struct hoist__file *file = new_file(bytes);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, bytes, &data);
	NEEDED(hoist__lazy_wait(lazy, 0) == 0 && "nothing is wanted");
	hoist__lazy_want(lazy, 10 * MIB, 22 * MIB);
	int err = hoist__lazy_wait(lazy, 0);
	NEEDED(err == 0 || err == -EAGAIN);
	hoist__lazy_unwant(lazy);
	err = hoist__lazy_wait(lazy, UINT64_MAX);
	NEEDED(err == 0 || err == -ECANCELED);
	same(data, 0, bytes);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

/* In the middle: threads, descriptors, memory, all is given back. */
static void closing_early_leaves_nothing(void)
{
	struct hoist__file *file = new_file(32 * MIB);
	size_t fds = n_descriptors(), threads = entries("/proc/self/task");
	for (size_t i = 0; i < 20; i++) {
		unsigned char *data;
		struct hoist__lazy *lazy = open_one(file, 0, 32 * MIB, &data);
		if (i % 3 == 1)
			hoist__lazy_want(lazy, 0, 32 * MIB);
		if (i % 2 == 0)
			same(data + i * MIB, i * MIB, PAGE);
		hoist__lazy_close(lazy);
		NEEDED(!is_mapped(data));
		NEEDED(n_descriptors() == fds);
	}
	threads_are(threads);
	hoist__lazy_close(NULL);
	hoist__file_close(file);
}

/* --- fork, and pages given back --- */

static void a_child_does_not_have_it(void)
{
	if (UNDER_TSAN)
		return;
	struct hoist__file *file = new_file(8 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	NEEDED(data[0] == byte_at(0));
	pid_t child = fork();
	NEEDED(child >= 0);
	if (child == 0) {
		NEEDED(touch(data) == -SIGSEGV && touch(data + 5 * MIB) == -SIGSEGV);
		NEEDED(hoist__lazy_error(lazy) == -ESTALE);
		hoist__lazy_close(lazy);
		_exit(0);
	}
	int status;
	NEEDED(waitpid(child, &status, 0) == child && status == 0);
	same(data, 0, 8 * MIB);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

/* Its threads may have any lock at that moment: a child takes none. */
static void a_child_asks_for_errors(void)
{
	if (UNDER_TSAN)
		return;
	struct hoist__file *file = new_file(32 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 32 * MIB, &data);
	hoist__lazy_want(lazy, 0, 32 * MIB);
	for (int i = 0; i < 8; i++) {
		pid_t child = fork();
		NEEDED(child >= 0);
		if (child == 0) {
			alarm(20);
			int err = hoist__lazy_error(lazy);
			_exit(err != 0 && err != -ESTALE);
		}
		int status;
		NEEDED(waitpid(child, &status, 0) == child && status == 0);
	}
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

static void what_is_given_back_is_read_again(void)
{
	struct hoist__file *file = new_file(8 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	memset(data + MIB, 0x55, MIB);
	NEEDED(madvise(data + MIB, MIB, MADV_DONTNEED) == 0);
	same(data, 0, 4 * MIB);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

/* --- failures --- */

static void a_bad_place_on_the_disk(void)
{
	size_t bad = 3 * MIB + 5 * PAGE;
	struct hoist__file *file = new_file(8 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	bad_begin = bad + 100;
	bad_end = bad + 200;
	same(data + 3 * MIB, 3 * MIB, 5 * PAGE);
	for (int i = 0; i < 2; i++) {
		NEEDED(touch(data + bad) == -SIGBUS && touch(data + bad + PAGE - 1) == -SIGBUS);
		NEEDED(hoist__lazy_error(lazy) == -EIO);
		NEEDED(strstr(hoist__error_text(), "3145728") != NULL || /* the window, directly */
		       strstr(hoist__error_text(), "from byte 2097152") != NULL);
		same(data + bad + PAGE, bad + PAGE, 3 * MIB);
		bad_end = 0; /* it is for good */
	}
	same(data, 0, bad);
	hoist__lazy_want(lazy, 0, 8 * MIB);
	NEEDED(hoist__lazy_wait(lazy, UINT64_MAX) == -EIO);
	same(data + 6 * MIB, 6 * MIB, 2 * MIB);
	hoist__lazy_close(lazy);
	NEEDED(!is_mapped(data) && !is_mapped(data + bad));
	hoist__file_close(file);
}

/* Whatever happens, nobody waits for ever, or is shown zeros. */
static void nothing_is_to_be_had(void)
{
	struct hoist__file *file = new_file(8 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	move_fails = no_pages = true;
	NEEDED(touch(data + MIB) == -SIGBUS && hoist__lazy_error(lazy) == -ENOMEM);
	move_fails = no_pages = false;
	same(data + 4 * MIB, 4 * MIB, 4 * MIB);
	same(data, 0, MIB);
	NEEDED(touch(data + MIB) == -SIGBUS);
	hoist__lazy_close(lazy);
	lazy = open_one(file, 0, 8 * MIB, &data);
	bad_begin = 6 * MIB;
	bad_end = 6 * MIB + 1;
	same(data, 0, MIB);
	no_maps = true;
	NEEDED(touch(data + 6 * MIB) == -SIGSEGV && touch(data) == -SIGSEGV);
	NEEDED(hoist__lazy_error(lazy) == -EIO);
	no_maps = false;
	bad_end = 0;
	hoist__lazy_close(lazy);
	NEEDED(!is_mapped(data));
	hoist__file_close(file);
}

static void a_file_that_shrinks(void)
{
	char path[256];
	size_t end = 5 * MIB + 3 * PAGE + 7;
	make_file(scratch(path, sizeof path, "shrinks"), 16 * MIB);
	struct hoist__file *file = open_file(path);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 16 * MIB, &data);
	data[12 * MIB]++;
	same(data + 13 * MIB, 13 * MIB, MIB);
	NEEDED(truncate(path, (off_t)end) == 0);
	same(data + 4 * MIB, 4 * MIB, end / PAGE * PAGE - 4 * MIB);
	NEEDED(touch(data + end - 1) == -SIGBUS && touch(data + end) == -SIGBUS);
	NEEDED(touch(data + 11 * MIB) == -SIGBUS && touch(data + 16 * MIB - 1) == -SIGBUS);
	NEEDED(hoist__lazy_error(lazy) == -ENODATA);
	NEEDED(strstr(hoist__error_text(), "shrinks") != NULL);
	NEEDED(strstr(hoist__error_text(), "it ends at 5255175") != NULL);
	/* What was read stays. */
	NEEDED(data[12 * MIB] == (unsigned char)(byte_at(12 * MIB) + 1));
	same(data + 13 * MIB, 13 * MIB, MIB);
	same(data, 0, 4 * MIB);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
	unlink(path);
}

/* Nobody is told by a signal, but whoever asks is. */
static void a_file_that_is_written_to(void)
{
	char path[256];
	make_file(scratch(path, sizeof path, "written"), 8 * MIB);
	struct hoist__file *file = open_file(path);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	NEEDED(data[0] == byte_at(0) && hoist__lazy_error(lazy) == 0);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	usleep(20000); /* a tick of the file system's clock */
	NEEDED(fd >= 0 && pwrite(fd, "new", 3, 5 * MIB) == 3);
	close(fd);
	NEEDED(memcmp(data + 5 * MIB, "new", 3) == 0);
	NEEDED(hoist__lazy_wait(lazy, 0) == -EBADMSG);
	NEEDED(strstr(hoist__error_text(), "changed while it was open") != NULL);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
	unlink(path);
}

/* --- kernels that cannot --- */

static int try_open(struct hoist__file *file)
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

static void refusals(void)
{
	struct hoist__file *file = new_file(3 * MIB);
	no_device = no_call = true;
	NEEDED(try_open(file) == -EPERM);
	NEEDED(strcmp(hoist__error_text(),
		      "userfaultfd refused: /dev/userfaultfd: ENOENT, userfaultfd(2): EPERM; let "
		      "the user open /dev/userfaultfd, or set the sysctl "
		      "vm.unprivileged_userfaultfd to 1") == 0);
	no_call = false;
	int err = try_open(file); /* by the call, if this user may */
	NEEDED(err == 0 || err == -EPERM || err == -ENOSYS);
	no_device = false;
	hoist__file_close(file);
}

static void without_moving(void)
{
	atomic_bool *const ways[] = {&no_move, &move_fails};
	for (int i = 0; i < 2; i++) {
		*ways[i] = true;
		windows_are_huge_pages();
		two_files_in_one_memory();
		four_threads_touch_about();
		what_is_given_back_is_read_again();
		*ways[i] = false;
	}
}

/* A program that locks all its memory: pages that are there at once would be zeros. */
static void memory_that_is_locked(void)
{
	struct hoist__file *file = new_file(4 * MIB);
	if (mlockall(MCL_FUTURE) == 0) {
		NEEDED(try_open(file) == 0);
		munlockall();
	}
	hoist__file_close(file);
}

/* On a node; and where the kernel will not be told so, from threads on it. */
static void placed_on_a_node(void)
{
	struct hoist__placement placement = {.policy = HOIST__POLICY_PREFER};
	struct hoist__file *file = new_file(4 * MIB);
	hoist__nodeset_add(&placement.nodes, 0);
	for (int i = 0; i < 2; i++) {
		struct hoist__lazy_range range = {file, 0, file->bytes, 0};
		struct hoist__whereabouts where;
		struct hoist__lazy *lazy = NULL;
		no_mbind = i == 1;
		NEEDED(hoist__lazy_open(&range, 1, &placement, &lazy) == 0);
		no_mbind = false;
		same(hoist__lazy_data(lazy), 0, file->bytes);
		if (hoist__whereabouts(hoist__lazy_data(lazy), file->bytes, 64, &where) == 0)
			NEEDED(where.n_absent == 0 &&
			       where.per_node[0] + where.n_unknown == where.n_sampled);
		hoist__lazy_close(lazy);
	}
	hoist__file_close(file);
}

static void calls_that_fail(void)
{
	struct hoist__file *file = new_file(3 * MIB);
	size_t fds = n_descriptors(), threads = entries("/proc/self/task");
	int n_failed = 0;
	for (int n = 1; n < 100; n++) {
		fail_at = n;
		int err = try_open(file);
		bool failed = atomic_load(&fail_at) <= 0;
		fail_at = 0;
		n_failed += err < 0;
		NEEDED(err == 0 || strlen(hoist__error_text()) > 0);
		NEEDED(n_descriptors() == fds);
		if (!failed)
			break;
	}
	NEEDED(n_failed >= 6);
	threads_are(threads);
	hoist__file_close(file);
}

int main(void)
{
	refusals();
	struct hoist__file *file = new_file(PAGE);
	int err = try_open(file);
	hoist__file_close(file);
	if (err < 0) {
		printf("skipped: %s\n", hoist__error_text());
		return 77;
	}
#define CASE(name)                                                                                 \
	do {                                                                                       \
		printf(#name "\n");                                                                \
		fflush(stdout);                                                                    \
		name();                                                                            \
	} while (0)
	CASE(two_files_in_one_memory);
	CASE(reading_along_and_writing);
	CASE(the_kernel_touches);
	CASE(windows_are_huge_pages);
	CASE(four_threads_touch_about);
	CASE(once_filled_it_is_plain_memory);
	CASE(wanting_can_be_cancelled);
	CASE(closing_early_leaves_nothing);
	CASE(a_child_does_not_have_it);
	CASE(a_child_asks_for_errors);
	CASE(what_is_given_back_is_read_again);
	CASE(a_bad_place_on_the_disk);
	CASE(nothing_is_to_be_had);
	CASE(a_file_that_shrinks);
	CASE(a_file_that_is_written_to);
	CASE(without_moving);
	CASE(memory_that_is_locked);
	CASE(placed_on_a_node);
	CASE(calls_that_fail);
	return 0;
}
