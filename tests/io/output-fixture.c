/* SPDX-License-Identifier: MIT */
/* The folder of the tests of output files, checks of its files, and wrapped calls that fail. */
#include "config.h"

#include "tests/io/output-fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/support/count.h"
#include "tests/support/output-calls.h"

/* --- calls that fail --- */

static enum call failing;
static int failing_with;
unsigned n_fsyncs;
mode_t created;
gid_t group;

static bool fails(enum call call)
{
	if (failing != call)
		return false;
	errno = failing_with;
	return true;
}

void let_fail(enum call call, int err)
{
	failing = call;
	failing_with = err;
}

WRAP(int, openat, (int in, const char *name, int flags, ...))
{
	va_list arguments;
	va_start(arguments, flags);
	mode_t mode = va_arg(arguments, mode_t);
	va_end(arguments);
	if ((flags & O_TMPFILE) == O_TMPFILE && fails(NAMELESS))
		return -1;
	if ((flags & (O_TMPFILE | O_CREAT)) != 0)
		created |= mode;
	return __real_openat(in, name, flags, mode);
}

WRAP(int, fstat, (int fd, struct stat *ret))
{
	int err = __real_fstat(fd, ret);
	if (group != 0 && err == 0 && S_ISREG(ret->st_mode))
		ret->st_gid = group;
	return err;
}

#define SPOILED(name, call, parameters, arguments)                                                 \
	WRAP(int, name, parameters)                                                                \
	{                                                                                          \
		n_fsyncs += (call) == FSYNC;                                                       \
		return fails(call) ? -1 : __real_##name arguments;                                 \
	}

OUTPUT_CALLS(SPOILED)

/* A close that fails closes the file all the same. */
WRAP(int, close, (int fd))
{
	int err = __real_close(fd);
	return fails(CLOSE) ? -1 : err;
}

WRAP(ssize_t, lgetxattr, (const char *file, const char *name, void *to, size_t bytes))
{
	return fails(LGETXATTR) ? -1 : __real_lgetxattr(file, name, to, bytes);
}

/* --- a folder --- */

char output_folder[512];
char output_path[1024];

void make_folder(void)
{
	const char *base = getenv("TMPDIR");
	(void)snprintf(output_folder, sizeof output_folder, "%s/output.XXXXXX",
		       base != NULL ? base : "/tmp");
	cr_assert_not_null(mkdtemp(output_folder));
	(void)snprintf(output_path, sizeof output_path, "%s/model", output_folder);
	(void)umask(022);
}

unsigned n_names(void)
{
	return count_entries(output_folder);
}

unsigned n_descriptors(void)
{
	return count_entries("/proc/self/fd");
}

void put_file(const char *name, const char *text, mode_t mode)
{
	int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	cr_assert_eq(fchmod(fd, mode), 0);
	close(fd);
}

void expect_file(const char *name, const char *text, mode_t mode)
{
	char bytes[64] = {0};
	struct stat st;
	int fd = open(name, O_RDONLY);
	cr_assert_geq(fd, 0, "%s", name);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(read(fd, bytes, sizeof bytes - 1), (ssize_t)strlen(text));
	close(fd);
	cr_expect_str_eq(bytes, text);
	cr_expect_eq(st.st_mode & 07777, mode, "%o", st.st_mode);
	cr_expect(S_ISREG(st.st_mode));
}

/* --- writing --- */

struct hoist__output *begin(const char *text, unsigned flags)
{
	struct hoist__output *output = NULL;
	cr_assert_eq(hoist__output_create(output_path, strlen(text), flags, &output), 0, "%s",
		     hoist__error_text());
	cr_assert_eq(hoist__output_write(output, 0, text, strlen(text)), 0);
	return output;
}

void publish(struct hoist__output *output)
{
	cr_assert_eq(hoist__output_finish(output), 0);
	cr_assert_eq(hoist__output_publish(output), 0);
	hoist__output_destroy(output);
}

int write_file(const char *text, unsigned flags)
{
	struct hoist__output *output = begin(text, flags);
	int err = hoist__output_finish(output);
	if (err == 0)
		err = hoist__output_publish(output);
	if (err == 0)
		err = hoist__output_sync_folder(output);
	hoist__output_destroy(output);
	return err;
}

void expect_refused(unsigned flags, int code, const char *text)
{
	struct hoist__output *output = NULL;
	unsigned before = n_descriptors();
	cr_expect_eq(hoist__output_create(output_path, 5, flags, &output), code, "%s: %s", text,
		     hoist__error_text());
	cr_expect_null(output);
	cr_expect_not_null(strstr(hoist__error_text(), text), "\"%s\" lacks \"%s\"",
			   hoist__error_text(), text);
	cr_expect_eq(n_descriptors(), before);
}
