/* SPDX-License-Identifier: MIT */
/* Files whose calls are interrupted, as those of a network or of another process are: the linker
 * sends the library's through here.  A few times is nobody's business; without an end it is an
 * error, and never a loop, nor the EAGAIN by which a load says that it is not over yet. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "base/error.h"
#include "io/again.h"
#include "io/ahead.h"
#include "io/output.h"
#include "tests/support/io-helpers.h"
#include "tests/support/wrap-syscall.h"
#include "tests/support/wrap.h"

#define BYTES ((size_t)100000)

static int answer; /* errno of each call, */
static long times; /* so often in a row */
static atomic_long n_left;
static atomic_ulong n_calls;

static bool spoil(void)
{
	atomic_fetch_add(&n_calls, 1);
	if (answer == 0 || atomic_fetch_sub(&n_left, 1) <= 0) {
		atomic_store(&n_left, times); /* for the next one */
		return false;
	}
	errno = answer;
	return true;
}

static void set_answer(int err, long in_a_row)
{
	answer = err;
	times = in_a_row;
	atomic_store(&n_left, in_a_row);
	atomic_store(&n_calls, 0);
}

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
	return spoil() ? -1 : __real_pread(fd, to, bytes, offset);
}

WRAP(int, open, (const char *path, int flags, ...))
{
	return strcmp(path, "/dev/null") != 0 && spoil() ? -1 : __real_open(path, flags, 0600);
}

/* A file system that lends no pages: they are read. */
WRAP(ssize_t, sendfile, (int to, int from, off_t *offset, size_t bytes))
{
	(void)to, (void)from, (void)offset, (void)bytes;
	errno = EINVAL;
	return -1;
}

static atomic_int made_anyhow; /* errno of the next file that is made, but not opened */
static atomic_int close_err;   /* of the next one that is closed */

WRAP(int, close, (int fd))
{
	int err = atomic_exchange(&close_err, 0);
	if (__real_close(fd) == 0 && err == 0)
		return 0;
	errno = err != 0 ? err : errno;
	return -1;
}

WRAP(int, openat, (int dir, const char *path, int flags, ...))
{
	if ((flags & O_TMPFILE) == O_TMPFILE && atomic_load(&made_anyhow) != 0) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if ((flags & O_CREAT) != 0 && atomic_load(&made_anyhow) != 0) {
		close(__real_openat(dir, path, flags, 0600));
		errno = atomic_exchange(&made_anyhow, 0);
		return -1;
	}
	return spoil() ? -1 : __real_openat(dir, path, flags, 0600);
}

WRAP(int, fsync, (int fd))
{
	return spoil() ? -1 : __real_fsync(fd);
}

WRAP(int, ftruncate, (int fd, off_t bytes))
{
	return spoil() ? -1 : __real_ftruncate(fd, bytes);
}

WRAP(ssize_t, pwrite, (int fd, const void *from, size_t bytes, off_t offset))
{
	return spoil() ? -1 : __real_pwrite(fd, from, bytes, offset);
}

static bool refuses(long number)
{
	return number == SYS_openat2 && spoil();
}

/* --- reading --- */

static int read_all(const char *path, unsigned flags, unsigned char *to)
{
	struct hoist__file *file = NULL;
	char folder[256];
	(void)snprintf(folder, sizeof folder, "%s", path);
	*strrchr(folder, '/') = '\0';
	int dir = __real_open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(dir >= 0);
	int err = hoist__file_open(dir, strrchr(path, '/') + 1, path, flags, &file);
	if (err == 0)
		err = hoist__file_read(file, 0, to, BYTES);
	struct hoist__ahead *ahead = NULL;
	struct hoist__ahead_part part = {.bytes = BYTES, .path = path};
	if (err == 0) {
		part.fd = file->fd;
		OK(hoist__ahead_start(&part, 1, 1, &ahead));
		err = hoist__ahead_wait(ahead, UINT64_MAX);
		hoist__ahead_stop(ahead);
	}
	hoist__file_close(file);
	close(dir);
	return err;
}

static void some(const char *path, unsigned char *to)
{
	static const unsigned flags[] = {0, HOIST__FILE_BENEATH};
	for (unsigned i = 0; i < 2; i++) {
		memset(to, 0, BYTES);
		set_answer(EINTR, 3);
		OK(read_all(path, flags[i], to));
		CHECK(atomic_load(&n_calls) >= 4 * 3); /* open, direct open, two reads */
		check_bytes(to, 0, BYTES);
	}
	set_answer(0, 0);
}

static int read_opened(const char *path, int err, unsigned char *to, bool ahead)
{
	struct hoist__file *file = NULL;
	struct hoist__ahead *reading = NULL;
	set_answer(0, 0);
	OK(hoist__file_open(AT_FDCWD, path, NULL, HOIST__FILE_NO_DIRECT, &file));
	struct hoist__ahead_part part = {.fd = file->fd, .bytes = BYTES, .path = path};
	set_answer(err, 1000000);
	if (ahead)
		OK(hoist__ahead_start(&part, 1, 1, &reading));
	int result = ahead ? hoist__ahead_wait(reading, UINT64_MAX)
			   : hoist__file_read(file, 0, to, BYTES);
	hoist__ahead_stop(reading);
	check_said(strerrorname_np(err));
	check_said(path);
	CHECK(atomic_load(&n_calls) == HOIST__MAX_AGAIN);
	set_answer(0, 0);
	hoist__file_close(file);
	return result;
}

static void without_an_end(const char *path, unsigned char *to)
{
	static const int errors[] = {EINTR, EAGAIN};
	for (unsigned e = 0; e < 2; e++)
		for (unsigned ahead = 0; ahead < 2; ahead++)
			CHECK(read_opened(path, errors[e], to, ahead != 0) == -EIO);
	struct hoist__file *file = NULL;
	set_answer(EINTR, 1000000);
	CHECK(hoist__file_open(AT_FDCWD, path, NULL, 0, &file) == -EINTR && file == NULL);
	set_answer(0, 0);
}

/* --- writing --- */

static int write_all(const char *path, const unsigned char *from)
{
	struct hoist__output *output = NULL;
	int err = hoist__output_create(path, BYTES, 0, &output);
	if (err == 0)
		err = hoist__output_write(output, 0, from, BYTES);
	if (err == 0)
		err = hoist__output_finish(output);
	if (err == 0)
		err = hoist__output_publish(output);
	if (err == 0)
		err = hoist__output_sync_folder(output);
	hoist__output_destroy(output);
	return err;
}

static void writing(const char *path, const unsigned char *from, unsigned char *to)
{
	set_answer(EINTR, 3);
	OK(write_all(path, from));
	CHECK(atomic_load(&n_calls) >= 5 * 3);
	set_answer(0, 0);
	CHECK(read_all(path, 0, to) == 0 && memcmp(from, to, BYTES) == 0);
	set_answer(EINTR, 1000000);
	CHECK(write_all(path, from) == -EINTR);
	set_answer(0, 0);
	OK(unlink(path));
}

/* Closing the file says which bytes are lost, before the file has its name. */
static void closing(const char *path, const unsigned char *from, unsigned flags)
{
	struct hoist__output *output = NULL;
	OK(hoist__output_create(path, BYTES, flags, &output));
	OK(hoist__output_write(output, 0, from, BYTES));
	atomic_store(&close_err, EINTR);
	OK(hoist__output_finish(output));
	atomic_store(&close_err, EDQUOT);
	CHECK(hoist__output_finish(output) == -EDQUOT);
	check_said(path);
	hoist__output_destroy(output);
	CHECK(access(path, F_OK) < 0);
}

static unsigned n_hidden(const char *path)
{
	char folder[256];
	unsigned n = 0;
	(void)snprintf(folder, sizeof folder, "%s", path);
	*strrchr(folder, '/') = '\0';
	DIR *dir = opendir(folder);
	CHECK(dir != NULL);
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
		n += strstr(entry->d_name, ".hoist-") != NULL;
	closedir(dir);
	return n;
}

/* A hidden file that was made, though the call says that it failed, does not stay. */
static void made_though_it_failed(const char *path, const unsigned char *from)
{
	atomic_store(&made_anyhow, EIO);
	CHECK(write_all(path, from) == -EIO);
	CHECK(n_hidden(path) == 0);
	atomic_store(&made_anyhow, EINTR);
	OK(write_all(path, from));
	CHECK(n_hidden(path) == 0);
	OK(unlink(path));
}

int main(void)
{
	char path[256], other[256];
	unsigned char *bytes = malloc(BYTES);
	unsigned char *from = malloc(BYTES);
	CHECK(bytes != NULL && from != NULL);
	for (size_t at = 0; at < BYTES; at++)
		from[at] = byte_at(at);
	make_file(scratch(path, sizeof path, "again"), BYTES);
	some(path, bytes);
	without_an_end(path, bytes);
	writing(scratch(other, sizeof other, "written"), from, bytes);
	closing(other, from, 0);
	closing(other, from, HOIST__OUTPUT_NO_SYNC);
	made_though_it_failed(other, from);
	unlink(path);
	free(bytes);
	free(from);
	return 0;
}
