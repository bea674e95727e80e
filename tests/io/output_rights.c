/* SPDX-License-Identifier: MIT */
/* A file that replaces another stays closed to every user that could not open the old one. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/io/output-fixture.h"

/* The bits of @mode that a file has which replaces one of that mode, as it is and while it is being
 * written: in a named file, others could open it then. */
static void replace(mode_t old, mode_t mask, mode_t mode)
{
	struct stat st;
	put_file(output_path, "old", old);
	(void)umask(mask);
	struct hoist__output *output = begin("new", 0);
	cr_assert_eq(fstat(hoist__output_file(output)->fd, &st), 0);
	cr_expect_eq((st.st_mode & 07777) & ~(mode | 0600), 0, "%o while written", st.st_mode);
	publish(output);
	expect_file(output_path, "new", mode);
	cr_assert_eq(unlink(output_path), 0);
}

Test(io_output_rights, no_file_is_more_open_than_the_umask_or_the_old_one, .init = make_folder)
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
Test(io_output_rights, another_group_may_do_no_more_than_everybody, .init = make_folder)
{
	put_file(output_path, "old", 0664);
	if (chown(output_path, (uid_t)-1, getegid() + 1) < 0)
		cr_skip_test("a file of another group cannot be made: %s", strerror(errno));
	(void)umask(0);
	cr_expect_eq(write_file("new", 0), 0);
	expect_file(output_path, "new", 0644);
	cr_assert_eq(chown(output_path, (uid_t)-1, getegid() + 1), 0);
	cr_assert_eq(chmod(output_path, 0660), 0);
	let_fail(NAMELESS, EOPNOTSUPP);
	cr_expect_eq(write_file("newer", 0), 0);
	expect_file(output_path, "newer", 0600);
	/* A folder that gives its files its group: they are of one. */
	cr_assert_eq(chown(output_folder, (uid_t)-1, getegid() + 1), 0);
	cr_assert_eq(chmod(output_folder, 02700), 0);
	cr_assert_eq(chown(output_path, (uid_t)-1, getegid() + 1), 0);
	cr_assert_eq(chmod(output_path, 0660), 0);
	cr_expect_eq(write_file("newest", 0), 0);
	expect_file(output_path, "newest", 0660);
}

/* The server or the mount decides which group a file gets: the library looks at the group before
 * any of its members may open the file. */
Test(io_output_rights, the_group_is_that_which_the_file_has, .init = make_folder)
{
	(void)umask(0);
	for (int hidden = 0; hidden < 2; hidden++) {
		let_fail(hidden ? NAMELESS : NONE, EOPNOTSUPP);
		put_file(output_path, "old", 0660);
		group = getegid() + 1;
		created = 0;
		cr_expect_eq(write_file("new", 0), 0);
		cr_expect_eq(created, 0600, "%o", created);
		expect_file(output_path, "new", 0600);
		group = 0;
	}
	if (chown(output_path, (uid_t)-1, getegid() + 1) < 0)
		cr_skip_test("a file of another group cannot be made: %s", strerror(errno));
	cr_assert_eq(chmod(output_path, 0660), 0);
	group = getegid() + 1;
	cr_expect_eq(write_file("newer", 0), 0);
	expect_file(output_path, "newer", 0660);
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
Test(io_output_rights, an_access_control_list_gives_the_group_nothing, .init = make_folder)
{
	struct stat st;
	for (int hidden = 0; hidden < 2; hidden++) {
		let_fail(hidden ? NAMELESS : NONE, EOPNOTSUPP);
		(void)umask(022);
		put_file(output_path, "old", 0600);
		set_list(output_path, "system.posix_acl_access");
		cr_assert_eq(stat(output_path, &st), 0);
		cr_assert_eq(st.st_mode & 0777, 0660);
		created = 0;
		cr_expect_eq(write_file("new", 0), 0);
		cr_expect_eq(created, 0600, "%o", created);
		expect_file(output_path, "new", 0600);
	}
	/* A folder's list for new files gives nothing either. */
	put_file(output_path, "old", 0640);
	set_list(output_folder, "system.posix_acl_default");
	cr_expect_eq(write_file("newer", 0), 0);
	expect_file(output_path, "newer", 0600);
}

/* A list that cannot be seen may be there. */
Test(io_output_rights, a_list_that_cannot_be_seen, .init = make_folder)
{
	static const struct {
		int err;
		mode_t mode;
	} cases[] = {{ENODATA, 0660}, {EOPNOTSUPP, 0660}, {ENOENT, 0600}, {EACCES, 0600}};
	(void)umask(0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		put_file(output_path, "old", 0660);
		let_fail(LGETXATTR, cases[i].err);
		cr_expect_eq(write_file("new", 0), 0);
		expect_file(output_path, "new", cases[i].mode);
	}
}
