/* SPDX-License-Identifier: MIT */
/* Folders of others: checkpoints that lie in them, and files that are written to them. */
#include "config.h"

#include <errno.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "io/file.h"
#include "tests/support/count.h"
#include "tests/faults/secure.h"
#include "tests/support/wrap-syscall.h"

/* A kernel without openat2. */
static bool without_openat2;
static unsigned n_openat2; /* calls of it that were let through */

static bool refuses(long number)
{
	bool refused = number == SYS_openat2 && without_openat2;
	if (refused)
		errno = ENOSYS;
	n_openat2 += number == SYS_openat2 && !refused;
	return refused;
}

/* By this kernel, or a filter around this: then the library goes the other way. */
static bool openat2_refused(void)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
	long fd = syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how);
	if (fd >= 0)
		(void)close((int)fd);
	CHECK(fd >= 0 || errno == ENOSYS || errno == EPERM);
	return fd < 0;
}

/* --- what may lie in a checkpoint's folder --- */

static void open_folder(int err, unsigned flags)
{
	hoist_checkpoint *checkpoint = NULL;
	(void)alarm(60); /* a FIFO, /dev/zero: neither ends */
	CHECK(hoist_checkpoint_open("his", flags, &checkpoint) == err);
	(void)alarm(0);
	hoist_checkpoint_close(checkpoint);
}

static void make_his(void)
{
	OK(mkdir("his", 0777));
}

static void make_fifo(void)
{
	OK(mkfifo("his/a.safetensors", 0666));
}

static void link_to_secret(void)
{
	OK(symlink("../secret.safetensors", "his/a.safetensors"));
}

static void link_to_zero(void)
{
	OK(symlink("/dev/zero", "his/a.safetensors"));
}

static void write_inside(void)
{
	cache_write("his/inside", 1, 10, 2);
	OK(symlink("inside", "his/a.safetensors"));
}

static void unlink_it(void)
{
	OK(unlink("his/a.safetensors"));
}

/* Root can read every file, and opens the folder in which the other user made the file. */
static void run_folder(void)
{
	struct stat zero;
	as(HIS, make_fifo);
	open_folder(-EINVAL, 0);
	as(HIS, unlink_it);
	as(HIS, link_to_secret);
	open_folder(-EXDEV, 0);
	open_folder(0, HOIST_OPEN_FOLLOW_LINKS);
	as(HIS, unlink_it);
	as(HIS, link_to_zero);
	open_folder(-EXDEV, 0);
	open_folder(-EINVAL, HOIST_OPEN_FOLLOW_LINKS);
	as(HIS, unlink_it);
	OK(stat("/dev/zero", &zero));
	if (mknod("his/a.safetensors", S_IFCHR | 0666, zero.st_rdev) == 0) {
		open_folder(-EINVAL, 0);
		as(HIS, unlink_it);
	} else {
		printf("no device can be made here: %s\n", strerror(errno));
	}
	as(HIS, write_inside);
	open_folder(0, 0);
}

/* --- a link that is changed while it is followed --- */

static void swap(void)
{
	for (;;) {
		(void)unlink("his/next");
		OK(symlink("inside", "his/next"));
		OK(rename("his/next", "his/a.safetensors"));
		OK(symlink("../secret.safetensors", "his/next"));
		OK(rename("his/next", "his/a.safetensors"));
	}
}

/* Whatever is seen, it is never the secret that was opened. */
static void run_race(const char *name, unsigned ms)
{
	struct stat secret;
	unsigned opened = 0;
	unsigned refused = 0;
	unsigned before = n_openat2;
	int folder = open("his", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	OK(stat("secret.safetensors", &secret));
	CHECK(folder >= 0);
	pid_t child = secure_start(HIS, swap);
	uint64_t end = hoist__now_ns() + (uint64_t)ms * 1000000;
	/* Until both were met, where the other one hardly gets to run. */
	while (hoist__now_ns() < end || opened == 0 || refused == 0) {
		struct hoist__file *file = NULL;
		int err = hoist__file_open(folder, "a.safetensors", NULL,
					   HOIST__FILE_BENEATH | HOIST__FILE_NO_DIRECT, &file);
		CHECK(err == 0 || err == -EXDEV);
		CHECK(err < 0 || file->ino != secret.st_ino);
		opened += err == 0;
		refused += err < 0;
		hoist__file_close(file);
	}
	(void)kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
	close(folder);
	CHECK(without_openat2 ? n_openat2 == before : n_openat2 - before >= opened + refused);
	printf("figure: secure.race.%s %u opens of a link while it was changed, %u of them "
	       "refused, 0 "
	       "outside\n",
	       name, opened + refused, refused);
}

/* --- saving where others may make files --- */

static int save_to(const char *path)
{
	const int64_t shape[] = {100};
	hoist_device *cpu = NULL;
	hoist_buffer *buffer = NULL;
	hoist_save *save = NULL;
	OK(hoist_device_open("cpu", &cpu));
	OK(hoist_buffer_create(cpu, HOIST_U8, 1, shape, 0, &buffer));
	memset(hoist_buffer_data(buffer), 7, 100);
	OK(hoist_save_create(path, NULL, &save));
	OK(hoist_save_add(save, "t", buffer));
	int err = hoist_save_start(save);
	if (err == 0)
		err = hoist_save_wait(save);
	hoist_save_destroy(save);
	hoist_buffer_unref(buffer);
	hoist_device_unref(cpu);
	return err;
}

static void make_traps(void)
{
	FILE *file;
	(void)umask(0);
	OK(symlink("../precious", "sticky/link.safetensors"));
	OK(mkfifo("sticky/fifo.safetensors", 0666));
	CHECK((file = fopen("sticky/file.safetensors", "w")) != NULL);
	CHECK(fputs("his", file) >= 0);
	OK(fclose(file));
}

static void make_precious(void)
{
	FILE *file = fopen("precious", "w");
	CHECK(file != NULL && fputs("mine", file) >= 0);
	OK(fclose(file));
}

static void expect_text(const char *path, const char *text)
{
	char seen[16] = "";
	FILE *file = fopen(path, "r");
	CHECK(file != NULL && fgets(seen, sizeof seen, file) != NULL);
	OK(fclose(file));
	CHECK(strcmp(seen, text) == 0);
}

/* His are not replaced, nor written through: sticky folders leave each his own. */
static void save_among_traps(void)
{
	struct stat status;
	CHECK(save_to("sticky/link.safetensors") < 0);
	CHECK(save_to("sticky/file.safetensors") < 0);
	CHECK(save_to("sticky/fifo.safetensors") == -EINVAL);
	expect_text("precious", "mine");
	expect_text("sticky/file.safetensors", "his");
	CHECK(count_entries("sticky") == 3);
	(void)umask(077);
	OK(save_to("sticky/new.safetensors"));
	OK(stat("sticky/new.safetensors", &status));
	CHECK((status.st_mode & 07777) == 0600 && status.st_uid == MINE);
}

static void read_new(void)
{
	CHECK(open("sticky/new.safetensors", O_RDONLY) < 0 && errno == EACCES);
}

/* Where he owns the folder, what is replaced is his link, and not what it leads to. */
static void run_root_saves(void)
{
	struct stat status;
	(void)umask(022);
	OK(symlink("../precious", "his/saved.safetensors"));
	OK(save_to("his/saved.safetensors"));
	expect_text("precious", "mine");
	OK(lstat("his/saved.safetensors", &status));
	CHECK(S_ISREG(status.st_mode) && status.st_uid == 0);
}

int main(void)
{
	const char *form = getenv("HOIST_TEST_FORM");
	unsigned ms = form != NULL && strcmp(form, "short") == 0 ? 400 : 10000;
	secure_begin();
	cache_write("secret.safetensors", 1, 10, 1);
	OK(chmod("secret.safetensors", 0600));
	as(HIS, make_his);
	bool refused = openat2_refused();
	for (int i = refused ? 1 : 0; i < 2; i++) {
		without_openat2 = i == 1;
		run_folder();
		run_race(without_openat2 ? "compared" : "openat2", ms);
		OK(unlink("his/inside"));
		OK(unlink("his/a.safetensors"));
	}
	without_openat2 = false;
	OK(mkdir("sticky", 0700));
	OK(chmod("sticky", 01777));
	as(MINE, make_precious);
	as(HIS, make_traps);
	as(MINE, save_among_traps);
	as(HIS, read_new);
	run_root_saves();
	if (refused)
		printf("skipped: openat2 is refused here; all but that was tested, and is right\n");
	return refused ? 77 : 0;
}
