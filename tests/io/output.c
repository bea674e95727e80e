/* SPDX-License-Identifier: MIT */
/* A file appears whole or not at all, whatever fails, and whatever was there before. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/error.h"
#include "io/output.h"
#include "tests/support/count.h"
#include "tests/support/wrap.h"

/* --- calls that fail --- */

enum call { NONE, NAMELESS, FALLOCATE, FSYNC, FTRUNCATE, LINKAT, RENAMEAT, LGETXATTR, CLOSE };

static enum call failing;
static int failing_with;
static unsigned n_fsyncs;
static mode_t created; /* all bits that the library made files with */
static gid_t group;    /* that a server or a mount gives to new files; 0: none does */

static bool fails(enum call call)
{
	if (failing != call)
		return false;
	errno = failing_with;
	return true;
}

static void let_fail(enum call call, int err)
{
	failing = call;
	failing_with = err;
}

WRAP(int, openat, (int folder, const char *path, int flags, ...))
{
	va_list arguments;
	va_start(arguments, flags);
	mode_t mode = va_arg(arguments, mode_t);
	va_end(arguments);
	if ((flags & O_TMPFILE) == O_TMPFILE && fails(NAMELESS))
		return -1;
	if ((flags & (O_TMPFILE | O_CREAT)) != 0)
		created |= mode;
	return __real_openat(folder, path, flags, mode);
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

SPOILED(fallocate, FALLOCATE, (int fd, int mode, off_t offset, off_t bytes),
	(fd, mode, offset, bytes))
SPOILED(fsync, FSYNC, (int fd), (fd))
SPOILED(ftruncate, FTRUNCATE, (int fd, off_t bytes), (fd, bytes))
SPOILED(linkat, LINKAT, (int from, const char *old, int to, const char *name, int flags),
	(from, old, to, name, flags))
SPOILED(renameat, RENAMEAT, (int from, const char *old, int to, const char *name),
	(from, old, to, name))

/* A close that fails closes the file all the same. */
WRAP(int, close, (int fd))
{
	int err = __real_close(fd);
	return fails(CLOSE) ? -1 : err;
}

WRAP(ssize_t, lgetxattr, (const char *path, const char *name, void *to, size_t bytes))
{
	return fails(LGETXATTR) ? -1 : __real_lgetxattr(path, name, to, bytes);
}

/* --- a folder --- */

static char folder[512];
static char path[1024];

static void make_folder(void)
{
	const char *base = getenv("TMPDIR");
	(void)snprintf(folder, sizeof folder, "%s/output.XXXXXX", base != NULL ? base : "/tmp");
	cr_assert_not_null(mkdtemp(folder));
	(void)snprintf(path, sizeof path, "%s/model", folder);
	(void)umask(022);
}

static unsigned n_names(void)
{
	return count_entries(folder);
}

static unsigned n_descriptors(void)
{
	return count_entries("/proc/self/fd");
}

static void put_file(const char *name, const char *text, mode_t mode)
{
	int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	cr_assert_eq(fchmod(fd, mode), 0);
	close(fd);
}

static void expect_file(const char *name, const char *text, mode_t mode)
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

static struct hoist__output *begin(const char *text, unsigned flags)
{
	struct hoist__output *output = NULL;
	cr_assert_eq(hoist__output_create(path, strlen(text), flags, &output), 0, "%s",
		     hoist__error_text());
	cr_assert_eq(hoist__output_write(output, 0, text, strlen(text)), 0);
	return output;
}

/* The file gets its name. */
static void publish(struct hoist__output *output)
{
	cr_assert_eq(hoist__output_finish(output), 0);
	cr_assert_eq(hoist__output_publish(output), 0);
	hoist__output_destroy(output);
}

static int write_file(const char *text, unsigned flags)
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

static void expect_refused(unsigned flags, int code, const char *text)
{
	struct hoist__output *output = NULL;
	unsigned before = n_descriptors();
	cr_expect_eq(hoist__output_create(path, 5, flags, &output), code, "%s: %s", text,
		     hoist__error_text());
	cr_expect_null(output);
	cr_expect_not_null(strstr(hoist__error_text(), text), "\"%s\" lacks \"%s\"",
			   hoist__error_text(), text);
	cr_expect_eq(n_descriptors(), before);
}

Test(io_output, a_new_file, .init = make_folder)
{
	unsigned before = n_descriptors();
	struct hoist__output *output = begin("hello", 0);
	cr_expect_eq(n_names(), 0);
	cr_assert_eq(hoist__output_finish(output), 0);
	cr_expect_eq(n_names(), 0);
	cr_assert_eq(hoist__output_publish(output), 0);
	cr_expect_eq(n_names(), 1);
	hoist__output_destroy(output);
	expect_file(path, "hello", 0644);
	cr_expect_eq(n_descriptors(), before);
	cr_expect_eq(unlink(path), 0);
	(void)umask(077);
	cr_expect_eq(write_file("", 0), 0);
	expect_file(path, "", 0600);
}

Test(io_output, direct_blocks_are_cut_to_the_length, .init = make_folder)
{
	struct hoist__output *output;
	cr_assert_eq(hoist__output_create(path, 5, 0, &output), 0);
	const struct hoist__file *file = hoist__output_file(output);
	if (file->direct_fd >= 0) {
		void *block;
		cr_assert_eq(posix_memalign(&block, HOIST__FILE_MAX_ALIGN, HOIST__FILE_MAX_ALIGN),
			     0);
		memset(block, 0, file->offset_align);
		memcpy(block, "hello", 5);
		cr_assert_eq(pwrite(file->direct_fd, block, file->offset_align, 0),
			     (ssize_t)file->offset_align);
		free(block);
	} else {
		cr_assert_eq(hoist__output_write(output, 0, "hello", 5), 0);
	}
	publish(output);
	expect_file(path, "hello", 0644);
}

Test(io_output, an_old_file_is_replaced_and_gives_its_mode, .init = make_folder)
{
	put_file(path, "old", 0640);
	struct hoist__output *output = begin("new one", 0);
	cr_assert_eq(hoist__output_finish(output), 0);
	expect_file(path, "old", 0640);
	cr_assert_eq(hoist__output_publish(output), 0);
	hoist__output_destroy(output);
	expect_file(path, "new one", 0640);
	cr_expect_eq(n_names(), 1);
}

/* The bits of @mode that a file has which replaces one of that mode, as it is and while it is being
 * written: in a named file, others could open it then. */
static void replace(mode_t old, mode_t mask, mode_t mode)
{
	struct stat st;
	put_file(path, "old", old);
	(void)umask(mask);
	struct hoist__output *output = begin("new", 0);
	cr_assert_eq(fstat(hoist__output_file(output)->fd, &st), 0);
	cr_expect_eq((st.st_mode & 07777) & ~(mode | 0600), 0, "%o while written", st.st_mode);
	publish(output);
	expect_file(path, "new", mode);
	cr_assert_eq(unlink(path), 0);
}

Test(io_output, no_file_is_more_open_than_the_umask_or_the_old_one, .init = make_folder)
{
	for (int hidden = 0; hidden < 2; hidden++) {
		let_fail(hidden ? NAMELESS : NONE, EOPNOTSUPP);
		replace(0666, 022, 0644);
		replace(0666, 077, 0600);
		replace(0666, 007, 0660);
		replace(0660, 027, 0640);
		replace(0777, 0, 0666);
		replace(06755, 022, 0644);
		replace(0600, 0, 0600);
		replace(0440, 022, 0440);
		replace(0444, 077, 0400);
		replace(0, 0, 0);
	}
}

/* The new group has no right because the old group had it. */
Test(io_output, another_group_may_do_no_more_than_everybody, .init = make_folder)
{
	put_file(path, "old", 0664);
	if (chown(path, (uid_t)-1, getegid() + 1) < 0)
		cr_skip_test("a file of another group cannot be made: %s", strerror(errno));
	(void)umask(0);
	cr_expect_eq(write_file("new", 0), 0);
	expect_file(path, "new", 0644);
	cr_assert_eq(chown(path, (uid_t)-1, getegid() + 1), 0);
	cr_assert_eq(chmod(path, 0660), 0);
	let_fail(NAMELESS, EOPNOTSUPP);
	cr_expect_eq(write_file("newer", 0), 0);
	expect_file(path, "newer", 0600);
	/* A folder that gives its files its group: they are of one. */
	cr_assert_eq(chown(folder, (uid_t)-1, getegid() + 1), 0);
	cr_assert_eq(chmod(folder, 02700), 0);
	cr_assert_eq(chown(path, (uid_t)-1, getegid() + 1), 0);
	cr_assert_eq(chmod(path, 0660), 0);
	cr_expect_eq(write_file("newest", 0), 0);
	expect_file(path, "newest", 0660);
}

/* The server or the mount decides which group a file gets: the library looks at the group before
 * any of its members may open the file. */
Test(io_output, the_group_is_that_which_the_file_has, .init = make_folder)
{
	(void)umask(0);
	for (int hidden = 0; hidden < 2; hidden++) {
		let_fail(hidden ? NAMELESS : NONE, EOPNOTSUPP);
		put_file(path, "old", 0660);
		group = getegid() + 1;
		created = 0;
		cr_expect_eq(write_file("new", 0), 0);
		cr_expect_eq(created, 0600, "%o", created);
		expect_file(path, "new", 0600);
		group = 0;
	}
	if (chown(path, (uid_t)-1, getegid() + 1) < 0)
		cr_skip_test("a file of another group cannot be made: %s", strerror(errno));
	cr_assert_eq(chmod(path, 0660), 0);
	group = getegid() + 1;
	cr_expect_eq(write_file("newer", 0), 0);
	expect_file(path, "newer", 0660);
	cr_expect_eq(n_names(), 1);
}

/* Gives @name the list u::rw- user:1000:rw- g::--- mask::rw- o::---. */
static void set_list(const char *name, const char *which)
{
	const struct {
		uint32_t version;
		struct {
			uint16_t tag;
			uint16_t may;
			uint32_t id;
		} entries[5];
	} list = {2,
		  {{0x01, 6, UINT32_MAX},
		   {0x02, 6, 1000},
		   {0x04, 0, UINT32_MAX},
		   {0x10, 6, UINT32_MAX},
		   {0x20, 0, UINT32_MAX}}};
	if (setxattr(name, which, &list, sizeof list, 0) < 0)
		cr_skip_test("no access control lists here: %s", strerror(errno));
}

/* The mode's bits of the group are then a mask, for others than the group. */
Test(io_output, an_access_control_list_gives_the_group_nothing, .init = make_folder)
{
	struct stat st;
	for (int hidden = 0; hidden < 2; hidden++) {
		let_fail(hidden ? NAMELESS : NONE, EOPNOTSUPP);
		(void)umask(022);
		put_file(path, "old", 0600);
		set_list(path, "system.posix_acl_access");
		cr_assert_eq(stat(path, &st), 0);
		cr_assert_eq(st.st_mode & 0777, 0660);
		created = 0;
		cr_expect_eq(write_file("new", 0), 0);
		cr_expect_eq(created, 0600, "%o", created);
		expect_file(path, "new", 0600);
	}
	/* A folder's list for new files gives nothing either. */
	put_file(path, "old", 0640);
	set_list(folder, "system.posix_acl_default");
	cr_expect_eq(write_file("newer", 0), 0);
	expect_file(path, "newer", 0600);
}

/* A list that cannot be seen may be there. */
Test(io_output, a_list_that_cannot_be_seen, .init = make_folder)
{
	static const struct {
		int err;
		mode_t mode;
	} cases[] = {{ENODATA, 0660}, {EOPNOTSUPP, 0660}, {ENOENT, 0600}, {EACCES, 0600}};
	(void)umask(0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		put_file(path, "old", 0660);
		let_fail(LGETXATTR, cases[i].err);
		cr_expect_eq(write_file("new", 0), 0);
		expect_file(path, "new", cases[i].mode);
	}
}

Test(io_output, an_unpublished_file_leaves_nothing, .init = make_folder)
{
	put_file(path, "old", 0600);
	hoist__output_destroy(begin("new", 0));
	let_fail(NAMELESS, EOPNOTSUPP);
	struct hoist__output *output = begin("new", 0);
	cr_expect_eq(n_names(), 2, "a hidden file");
	hoist__output_destroy(output);
	cr_expect_eq(n_names(), 1);
	expect_file(path, "old", 0600);
}

Test(io_output, a_link_is_replaced_not_its_target, .init = make_folder)
{
	char target[1024];
	(void)snprintf(target, sizeof target, "%s/blob", folder);
	put_file(target, "blob", 0600);
	cr_assert_eq(symlink("blob", path), 0);
	cr_expect_eq(write_file("new", 0), 0);
	expect_file(path, "new", 0644);
	expect_file(target, "blob", 0600);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(symlink("nowhere", path), 0);
	cr_expect_eq(write_file("newer", 0), 0);
	expect_file(path, "newer", 0644);
}

Test(io_output, a_path_that_is_no_file_is_refused, .init = make_folder)
{
	size_t n = strlen(path);
	cr_assert_eq(mkdir(path, 0700), 0);
	expect_refused(0, -EISDIR, "this is a folder");
	strcpy(path + n, "/");
	expect_refused(0, -EISDIR, "this is a folder");
	path[n] = '\0';
	cr_assert_eq(rmdir(path), 0);
	cr_assert_eq(symlink(".", path), 0);
	expect_refused(0, -EISDIR, "this is a folder");
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(mkfifo(path, 0600), 0);
	expect_refused(0, -EINVAL, "this is no regular file");
	cr_assert_eq(unlink(path), 0);
	strcpy(path + n, "/x");
	expect_refused(0, -ENOENT, "opening the folder");
	memset(path + strlen(folder) + 1, 'x', 256);
	path[strlen(folder) + 257] = '\0';
	expect_refused(0, -ENAMETOOLONG, "more than 255 bytes");
	cr_expect_eq(n_names(), 0);
}

Test(io_output, nothing_is_replaced_if_so_asked, .init = make_folder)
{
	for (int hidden = 0; hidden < 2; hidden++) {
		let_fail(hidden ? NAMELESS : NONE, EOPNOTSUPP);
		cr_expect_eq(write_file("first", HOIST__OUTPUT_NO_REPLACE), 0);
		expect_refused(HOIST__OUTPUT_NO_REPLACE, -EEXIST, "this file exists already");
		cr_assert_eq(unlink(path), 0);
		struct hoist__output *output = begin("second", HOIST__OUTPUT_NO_REPLACE);
		put_file(path, "meanwhile", 0600);
		cr_assert_eq(hoist__output_finish(output), 0);
		cr_expect_eq(hoist__output_publish(output), -EEXIST);
		hoist__output_destroy(output);
		expect_file(path, "meanwhile", 0600);
		cr_expect_eq(n_names(), 1);
		cr_assert_eq(unlink(path), 0);
	}
}

Test(io_output, without_nameless_files, .init = make_folder)
{
	let_fail(NAMELESS, EISDIR);
	put_file(path, "old", 0600);
	cr_expect_eq(write_file("new", 0), 0);
	expect_file(path, "new", 0600);
	cr_expect_eq(n_names(), 1);
	/* A refusal that says nothing of nameless files is one. */
	let_fail(NAMELESS, EROFS);
	expect_refused(0, -EROFS, "making a file in its folder");
}

Test(io_output, of_two_at_once_the_last_wins, .init = make_folder)
{
	struct hoist__output *a = begin("aaaa", 0);
	struct hoist__output *b = begin("bb", 0);
	cr_assert_eq(hoist__output_finish(a), 0);
	cr_assert_eq(hoist__output_finish(b), 0);
	cr_expect_eq(hoist__output_publish(b), 0);
	expect_file(path, "bb", 0644);
	cr_expect_eq(hoist__output_publish(a), 0);
	expect_file(path, "aaaa", 0644);
	hoist__output_destroy(a);
	hoist__output_destroy(b);
	cr_expect_eq(n_names(), 1);
}

Test(io_output, a_full_disk_is_known_before, .init = make_folder)
{
	put_file(path, "old", 0600);
	let_fail(FALLOCATE, ENOSPC);
	expect_refused(0, -ENOSPC, " bytes, and the file system has ");
	let_fail(FALLOCATE, EDQUOT);
	expect_refused(0, -EDQUOT, " free");
	let_fail(FALLOCATE, EOPNOTSUPP);
	cr_expect_eq(write_file("new", 0), 0);
	expect_file(path, "new", 0600);
}

/* The limit is looked at, so that no SIGXFSZ comes; and a padded block does not pass it. */
Test(io_output, the_limit_of_files, .init = make_folder)
{
	const struct rlimit limit = {5, RLIM_INFINITY};
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	struct hoist__output *output = NULL;
	int err = hoist__output_create(path, 6, 0, &output);
	int fits = hoist__output_create(path, 5, 0, &output);
	bool direct = fits == 0 && hoist__output_file(output)->direct_fd >= 0;
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	(void)setrlimit(RLIMIT_FSIZE, &none);
	cr_expect_eq(err, -EFBIG);
	cr_expect_eq(fits, 0);
	cr_expect_not(direct);
	hoist__output_destroy(output);
}

/* Takes all that this process may have.  Returns: how many; they are the highest. */
static unsigned take_descriptors(int taken[static 64])
{
	struct rlimit limit;
	unsigned n = 0;
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 64;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	while (n < 64 && (taken[n] = dup(STDERR_FILENO)) >= 0)
		n++;
	cr_assert_eq(errno, EMFILE);
	return n;
}

/* Whether the file system kept all is asked, or the file is not published: closing says EDQUOT, and
 * no descriptor is free to be closed but the direct one, which then leaves one. */
Test(io_output, closing_is_asked_without_a_free_descriptor, .init = make_folder)
{
	for (int direct = 0; direct < 2; direct++)
		for (int lost = 0; lost < 2; lost++) {
			put_file(path, "old", 0600);
			struct hoist__output *output =
				begin("new", direct ? 0 : HOIST__OUTPUT_NO_DIRECT);
			bool has_direct = hoist__output_file(output)->direct_fd >= 0;
			int taken[64];
			unsigned n = take_descriptors(taken);
			let_fail(lost ? CLOSE : NONE, EDQUOT);
			int err = hoist__output_finish(output);
			let_fail(NONE, 0);
			while (n > 0)
				(void)close(taken[--n]);
			cr_expect_eq(err,
				     !has_direct ? -EMFILE
				     : lost	 ? -EDQUOT
						 : 0,
				     "%d: %s", err, hoist__error_text());
			cr_expect(err == 0 || strstr(hoist__error_text(), path) != NULL);
			if (err == 0)
				cr_expect_eq(hoist__output_publish(output), 0);
			hoist__output_destroy(output);
			expect_file(path, err == 0 ? "new" : "old", 0600);
			cr_expect_eq(n_names(), 1);
		}
}

Test(io_output, every_failure_leaves_the_old_file, .init = make_folder)
{
	static const enum call calls[] = {FTRUNCATE, FSYNC, LINKAT, RENAMEAT};
	put_file(path, "old", 0600);
	unsigned before = n_descriptors();
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		let_fail(calls[i], EIO);
		n_fsyncs = 0;
		cr_expect_eq(write_file("new", 0), -EIO, "call %zu", i);
		cr_expect_leq(n_fsyncs, 1, "an fsync that failed is not tried again");
		cr_expect_not_null(strstr(hoist__error_text(), path));
		let_fail(NONE, 0);
		expect_file(path, "old", 0600);
		cr_expect_eq(n_names(), 1);
	}
	cr_expect_eq(n_descriptors(), before);
	n_fsyncs = 0;
	cr_expect_eq(write_file("new", HOIST__OUTPUT_NO_SYNC), 0);
	cr_expect_eq(n_fsyncs, 0);
}

/* NO_SYNC can be withdrawn: the file is synchronised once, and its folder from then on. */
Test(io_output, no_sync_is_withdrawn, .init = make_folder)
{
	const char *name = strrchr(path, '/') + 1;
	for (int lost = 0; lost < 2; lost++)
		for (int synced = 0; synced < 2; synced++) {
			struct hoist__output *output =
				begin("new", synced ? 0 : HOIST__OUTPUT_NO_SYNC);
			n_fsyncs = 0;
			cr_expect_eq(hoist__output_finish(output), 0);
			cr_expect_eq(n_fsyncs, (unsigned)synced);
			let_fail(lost ? FSYNC : NONE, EIO);
			int err = hoist__output_sync(output);
			let_fail(NONE, 0);
			cr_expect_eq(err, lost && !synced ? -EIO : 0);
			cr_expect_eq(n_fsyncs, 1);
			cr_expect_not(hoist__output_has(output, name));
			if (err == 0) {
				cr_expect_eq(hoist__output_publish(output), 0);
				cr_expect(hoist__output_has(output, name));
				cr_expect_eq(hoist__output_sync_folder(output), 0);
				cr_expect_eq(n_fsyncs, 2);
				cr_assert_eq(unlink(path), 0);
			}
			hoist__output_destroy(output);
			cr_expect_eq(n_names(), 0);
		}
}
