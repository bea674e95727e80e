/* SPDX-License-Identifier: MIT */
/* A file appears whole or not at all, whatever fails, and whatever was there before. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/io/output-fixture.h"

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
	expect_file(output_path, "hello", 0644);
	cr_expect_eq(n_descriptors(), before);
	cr_expect_eq(unlink(output_path), 0);
	(void)umask(077);
	cr_expect_eq(write_file("", 0), 0);
	expect_file(output_path, "", 0600);
}

Test(io_output, direct_blocks_are_cut_to_the_length, .init = make_folder)
{
	struct hoist__output *output;
	cr_assert_eq(hoist__output_create(output_path, 5, 0, &output), 0);
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
	expect_file(output_path, "hello", 0644);
}

Test(io_output, an_old_file_is_replaced_and_gives_its_mode, .init = make_folder)
{
	put_file(output_path, "old", 0640);
	struct hoist__output *output = begin("new one", 0);
	cr_assert_eq(hoist__output_finish(output), 0);
	expect_file(output_path, "old", 0640);
	cr_assert_eq(hoist__output_publish(output), 0);
	hoist__output_destroy(output);
	expect_file(output_path, "new one", 0640);
	cr_expect_eq(n_names(), 1);
}

Test(io_output, an_unpublished_file_leaves_nothing, .init = make_folder)
{
	put_file(output_path, "old", 0600);
	hoist__output_destroy(begin("new", 0));
	let_fail(NAMELESS, EOPNOTSUPP);
	struct hoist__output *output = begin("new", 0);
	cr_expect_eq(n_names(), 2, "a hidden file");
	hoist__output_destroy(output);
	cr_expect_eq(n_names(), 1);
	expect_file(output_path, "old", 0600);
}

Test(io_output, a_link_is_replaced_not_its_target, .init = make_folder)
{
	char target[1024];
	(void)snprintf(target, sizeof target, "%s/blob", output_folder);
	put_file(target, "blob", 0600);
	cr_assert_eq(symlink("blob", output_path), 0);
	cr_expect_eq(write_file("new", 0), 0);
	expect_file(output_path, "new", 0644);
	expect_file(target, "blob", 0600);
	cr_assert_eq(unlink(output_path), 0);
	cr_assert_eq(symlink("nowhere", output_path), 0);
	cr_expect_eq(write_file("newer", 0), 0);
	expect_file(output_path, "newer", 0644);
}

Test(io_output, a_path_that_is_no_file_is_refused, .init = make_folder)
{
	size_t n = strlen(output_path);
	cr_assert_eq(mkdir(output_path, 0700), 0);
	expect_refused(0, -EISDIR, "this is a folder");
	strcpy(output_path + n, "/");
	expect_refused(0, -EISDIR, "this is a folder");
	output_path[n] = '\0';
	cr_assert_eq(rmdir(output_path), 0);
	cr_assert_eq(symlink(".", output_path), 0);
	expect_refused(0, -EISDIR, "this is a folder");
	cr_assert_eq(unlink(output_path), 0);
	cr_assert_eq(mkfifo(output_path, 0600), 0);
	expect_refused(0, -EINVAL, "this is no regular file");
	cr_assert_eq(unlink(output_path), 0);
	strcpy(output_path + n, "/x");
	expect_refused(0, -ENOENT, "opening the folder");
	memset(output_path + strlen(output_folder) + 1, 'x', 256);
	output_path[strlen(output_folder) + 257] = '\0';
	expect_refused(0, -ENAMETOOLONG, "more than 255 bytes");
	cr_expect_eq(n_names(), 0);
}

Test(io_output, nothing_is_replaced_if_so_asked, .init = make_folder)
{
	for (int hidden = 0; hidden < 2; hidden++) {
		let_fail(hidden ? NAMELESS : NONE, EOPNOTSUPP);
		cr_expect_eq(write_file("first", HOIST__OUTPUT_NO_REPLACE), 0);
		expect_refused(HOIST__OUTPUT_NO_REPLACE, -EEXIST, "this file exists already");
		cr_assert_eq(unlink(output_path), 0);
		struct hoist__output *output = begin("second", HOIST__OUTPUT_NO_REPLACE);
		put_file(output_path, "meanwhile", 0600);
		cr_assert_eq(hoist__output_finish(output), 0);
		cr_expect_eq(hoist__output_publish(output), -EEXIST);
		hoist__output_destroy(output);
		expect_file(output_path, "meanwhile", 0600);
		cr_expect_eq(n_names(), 1);
		cr_assert_eq(unlink(output_path), 0);
	}
}

Test(io_output, without_nameless_files, .init = make_folder)
{
	let_fail(NAMELESS, EISDIR);
	put_file(output_path, "old", 0600);
	cr_expect_eq(write_file("new", 0), 0);
	expect_file(output_path, "new", 0600);
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
	expect_file(output_path, "bb", 0644);
	cr_expect_eq(hoist__output_publish(a), 0);
	expect_file(output_path, "aaaa", 0644);
	hoist__output_destroy(a);
	hoist__output_destroy(b);
	cr_expect_eq(n_names(), 1);
}

Test(io_output, a_full_disk_is_known_before, .init = make_folder)
{
	put_file(output_path, "old", 0600);
	let_fail(FALLOCATE, ENOSPC);
	expect_refused(0, -ENOSPC, " bytes, and the file system has ");
	let_fail(FALLOCATE, EDQUOT);
	expect_refused(0, -EDQUOT, " free");
	let_fail(FALLOCATE, EOPNOTSUPP);
	cr_expect_eq(write_file("new", 0), 0);
	expect_file(output_path, "new", 0600);
}

/* The limit is looked at, so that no SIGXFSZ comes; and a padded block does not pass it. */
Test(io_output, the_limit_of_files, .init = make_folder)
{
	const struct rlimit limit = {5, RLIM_INFINITY};
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	struct hoist__output *output = NULL;
	int err = hoist__output_create(output_path, 6, 0, &output);
	int fits = hoist__output_create(output_path, 5, 0, &output);
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
			put_file(output_path, "old", 0600);
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
			cr_expect(err == 0 || strstr(hoist__error_text(), output_path) != NULL);
			if (err == 0)
				cr_expect_eq(hoist__output_publish(output), 0);
			hoist__output_destroy(output);
			expect_file(output_path, err == 0 ? "new" : "old", 0600);
			cr_expect_eq(n_names(), 1);
		}
}

Test(io_output, every_failure_leaves_the_old_file, .init = make_folder)
{
	static const enum call calls[] = {FTRUNCATE, FSYNC, LINKAT, RENAMEAT};
	put_file(output_path, "old", 0600);
	unsigned before = n_descriptors();
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		let_fail(calls[i], EIO);
		n_fsyncs = 0;
		cr_expect_eq(write_file("new", 0), -EIO, "call %zu", i);
		cr_expect_leq(n_fsyncs, 1, "an fsync that failed is not tried again");
		cr_expect_not_null(strstr(hoist__error_text(), output_path));
		let_fail(NONE, 0);
		expect_file(output_path, "old", 0600);
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
	const char *name = strrchr(output_path, '/') + 1;
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
				cr_assert_eq(unlink(output_path), 0);
			}
			hoist__output_destroy(output);
			cr_expect_eq(n_names(), 0);
		}
}
