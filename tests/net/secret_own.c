/* SPDX-License-Identifier: MIT */
/* The user's own secret, and files of other users. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/secret.h"
#include "tests/support/child.h"
#include "tests/support/count.h"
#include "tests/support/unit-check.h"
#include "tests/support/wrap.h"

/* --- calls of the library's --- */

static uid_t pretended;	    /* whom this process and its files belong to; 0: as it is */
static const char *foreign; /* a file of this name is another user's */
static uid_t foreign_owner;
static ino_t foreign_inode;

static void pretend(struct stat *status)
{
	if (pretended != 0 && status->st_uid == getuid())
		status->st_uid = pretended;
	if (foreign != NULL && status->st_ino == foreign_inode)
		status->st_uid = foreign_owner;
}

static void make_foreign(const char *path, uid_t owner)
{
	struct stat status;
	OK(lstat(path, &status));
	foreign = path;
	foreign_owner = owner;
	foreign_inode = status.st_ino;
}

WRAP(uid_t, geteuid, (void))
{
	return pretended != 0 ? pretended : __real_geteuid();
}

WRAP(int, stat, (const char *path, struct stat *ret))
{
	int err = __real_stat(path, ret);
	pretend(ret);
	return err;
}

WRAP(int, fstat, (int fd, struct stat *ret))
{
	int err = __real_fstat(fd, ret);
	pretend(ret);
	return err;
}

static const char *goes; /* a folder that another process removes when it was made */

WRAP(int, mkdir, (const char *path, mode_t mode))
{
	int err = __real_mkdir(path, mode);
	if (goes != NULL && strcmp(path, goes) == 0) {
		goes = NULL;
		OK(rmdir(path));
	}
	return err;
}

/* Another process makes the secret just before. */
static struct hoist__secret *winner;

WRAP(int, linkat, (int from, const char *old, int to, const char *new, int flags))
{
	struct hoist__secret *secret = winner;
	winner = NULL;
	if (secret != NULL)
		OK(hoist__secret_find(NULL, secret));
	return __real_linkat(from, old, to, new, flags);
}

static bool disk_is_full;

WRAP(ssize_t, write, (int fd, const void *bytes, size_t n_bytes))
{
	return __real_write(fd, bytes, disk_is_full ? 7 : n_bytes);
}

/* --- tests --- */

static char run[256];	 /* $XDG_RUNTIME_DIR */
static char folder[300]; /* hoist's in it */
static char path[400];

static void set_up(void)
{
	const char *given = getenv("TMPDIR");
	(void)snprintf(run, sizeof run, "%s/run-XXXXXX", given != NULL ? given : "/tmp");
	cr_assert_not_null(mkdtemp(run));
	(void)snprintf(folder, sizeof folder, "%s/hoist", run);
	(void)snprintf(path, sizeof path, "%s/group-secret", folder);
	OK(setenv("XDG_RUNTIME_DIR", run, 1));
}

TestSuite(net_secret_own, .init = set_up);

static bool same(const struct hoist__secret *a, const struct hoist__secret *b)
{
	return memcmp(a->key, b->key, sizeof a->key) == 0;
}

static void expect_mode(const char *what, mode_t mode)
{
	struct stat status;
	OK(lstat(what, &status));
	cr_expect_eq(status.st_mode & 07777, mode, "%s: mode %03o", what, status.st_mode & 07777);
}

Test(net_secret_own, it_is_made_once_for_this_user_alone)
{
	struct hoist__secret first, second;
	(void)umask(0277);
	OK(hoist__secret_find(NULL, &first));
	OK(hoist__secret_find(NULL, &second));
	cr_expect(same(&first, &second));
	cr_expect(first.local && second.local);
	expect_mode(path, 0600);
	cr_expect_eq(count_entries(folder), 1);
	OK(unlink(path));
	OK(hoist__secret_find(NULL, &second));
	cr_expect_not(same(&first, &second));
}

Test(net_secret_own, the_folder_is_closed_to_others)
{
	struct hoist__secret secret;
	(void)umask(0);
	OK(hoist__secret_find(NULL, &secret));
	expect_mode(folder, 0700);
	OK(chmod(folder, 0750));
	REFUSED(hoist__secret_find(NULL, &secret), -EACCES, "others may open");
	OK(chmod(folder, 0700));
	OK(chmod(path, 0640));
	REFUSED(hoist__secret_find(NULL, &secret), -EACCES, "others may open");
}

/* Without the hook, processes rarely meet here. */
Test(net_secret_own, of_two_that_make_it_at_once_one_wins)
{
	struct hoist__secret first, second, third;
	winner = &first;
	OK(hoist__secret_find(NULL, &second));
	cr_expect_null(winner);
	OK(hoist__secret_find(NULL, &third));
	cr_expect(same(&first, &second) && same(&second, &third));
	cr_expect_eq(count_entries(folder), 1);
}

enum { N_PROCESSES = 8, N_ROUNDS = 20 };

Test(net_secret_own, processes_that_make_it_at_once_have_the_same)
{
	for (int round = 0; round < N_ROUNDS; round++) {
		struct hoist__secret expected, secret;
		pid_t children[N_PROCESSES];
		int start[2], result[2];
		char byte;
		OK(pipe(start));
		OK(pipe(result));
		for (int i = 0; i < N_PROCESSES; i++) {
			children[i] = fork();
			if (children[i] != 0)
				continue;
			OK(close(start[1]));
			(void)!read(start[0], &byte, 1); /* its end */
			int err = hoist__secret_find(NULL, &secret);
			(void)!write(result[1], &secret, sizeof secret);
			_exit(err < 0);
		}
		OK(close(start[0]));
		OK(close(start[1]));
		for (int i = 0; i < N_PROCESSES; i++)
			cr_expect_eq(child_status(children[i]), 0);
		OK(hoist__secret_find(NULL, &expected));
		OK(close(result[1]));
		for (int i = 0; i < N_PROCESSES; i++) {
			cr_assert_eq(read(result[0], &secret, sizeof secret),
				     (ssize_t)sizeof secret);
			cr_expect(same(&secret, &expected), "round %d", round);
		}
		OK(close(result[0]));
		cr_expect_eq(count_entries(folder), 1);
		OK(unlink(path));
	}
}

/* The cache shares the folder, and removes it when the cache ends. */
Test(net_secret_own, a_folder_that_goes_is_made_again)
{
	struct hoist__secret secret;
	goes = folder;
	OK(hoist__secret_find(NULL, &secret));
	cr_expect_null(goes);
	expect_mode(path, 0600);
}

Test(net_secret_own, a_full_disk_leaves_nothing)
{
	struct hoist__secret secret;
	disk_is_full = true;
	REFUSED(hoist__secret_find(NULL, &secret), -ENOSPC, "no room");
	cr_expect_eq(count_entries(folder), 0);
	disk_is_full = false;
	OK(hoist__secret_find(NULL, &secret));
}

Test(net_secret_own, a_spoilt_file_is_refused)
{
	struct hoist__secret secret;
	OK(hoist__secret_find(NULL, &secret));
	OK(truncate(path, 15));
	REFUSED(hoist__secret_find(NULL, &secret), -EINVAL, path);
	OK(unlink(path));
	OK(symlink("/dev/zero", path));
	REFUSED(hoist__secret_find(NULL, &secret), -ELOOP, path);
	OK(unlink(path));
	OK(mkdir(path, 0700));
	REFUSED(hoist__secret_find(NULL, &secret), -EINVAL, "is no file");
}

Test(net_secret_own, another_users_are_refused)
{
	struct hoist__secret secret;
	OK(hoist__secret_find(NULL, &secret));
	make_foreign(path, 12345);
	REFUSED(hoist__secret_find(NULL, &secret), -EACCES, "belongs to user 12345");
	make_foreign(folder, 12345);
	REFUSED(hoist__secret_find(NULL, &secret), -EACCES, "belongs to user 12345");
	expect_text("HOIST_GROUP_SECRET_FILE");
}

Test(net_secret_own, a_link_is_not_followed)
{
	struct hoist__secret secret;
	OK(symlink(run, folder));
	REFUSED(hoist__secret_find(NULL, &secret), -ENOTDIR, folder);
	cr_expect_eq(count_entries(run), 1);
}

/* Root may write files for its users, but the user's own is the user's. */
Test(net_secret_own, root_may_own_a_named_file_alone)
{
	struct hoist__secret own, named;
	pretended = 54321;
	OK(hoist__secret_find(NULL, &own));
	make_foreign(path, 0);
	REFUSED(hoist__secret_find(NULL, &named), -EACCES, "belongs to user 0");
	OK(setenv("HOIST_GROUP_SECRET_FILE", path, 1));
	OK(hoist__secret_find(NULL, &named));
	cr_expect(own.local && !named.local);
	make_foreign(path, 12345);
	REFUSED(hoist__secret_find(NULL, &named), -EACCES, "belongs to user 12345, not to 54321");
}

/* No user of this machine has this number, so that no user's secret is touched. */
Test(net_secret_own, without_a_runtime_folder_it_lies_in_shared_memory)
{
	struct hoist__secret first, second;
	char shared[64];
	const char *const folders[] = {NULL, "", "relative", "/nonexistent", "/dev/null"};
	pretended = 3000000000u + (uid_t)getpid();
	(void)snprintf(shared, sizeof shared, "/dev/shm/hoist-%u/group-secret",
		       (unsigned)pretended);
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
		OK(folders[i] != NULL ? setenv("XDG_RUNTIME_DIR", folders[i], 1)
				      : unsetenv("XDG_RUNTIME_DIR"));
		OK(hoist__secret_find(NULL, i == 0 ? &first : &second));
		cr_expect(i == 0 || same(&first, &second));
	}
	expect_mode(shared, 0600);
	/* sudo keeps the variable: that folder is another user's. */
	make_foreign(run, 12345);
	OK(setenv("XDG_RUNTIME_DIR", run, 1));
	OK(hoist__secret_find(NULL, &second));
	cr_expect(same(&first, &second));
	cr_expect_eq(count_entries(run), 0);
	OK(unlink(shared));
	*strrchr(shared, '/') = '\0';
	OK(rmdir(shared));
}

Test(net_secret_own, a_path_that_is_too_long_is_refused)
{
	static char longest[1200];
	struct hoist__secret secret;
	(void)snprintf(longest, sizeof longest, "%s", run);
	while (strlen(longest) < 600)
		strcat(longest, "/.");
	OK(setenv("XDG_RUNTIME_DIR", longest, 1));
	REFUSED(hoist__secret_find(NULL, &secret), -ENAMETOOLONG, "XDG_RUNTIME_DIR");
}
