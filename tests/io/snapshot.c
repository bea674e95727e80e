/* SPDX-License-Identifier: MIT */
/* Links of a snapshot in Hugging Face's cache: which are followed, and which are not. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "io/file.h"
#include "tests/support/io-helpers.h"

/* A cache with two models, from which the table's links start. */
#define TREE                                                                                       \
	"mkdir -p hub/models--o--n/blobs/folder hub/models--o--n/snapshots/r/part "                \
	"hub/models--o--n/other hub/models--p--q/blobs hub/models--linked/snapshots/r "            \
	"hub/datasets--o--n/blobs hub/datasets--o--n/snapshots/r "                                 \
	"hub/models--o--n/blobs/models--x/snapshots/r && "                                         \
	"ln -s ../models--o--n/blobs hub/models--linked/blobs && "                                 \
	"printf 0123456789 >hub/models--o--n/blobs/b && "                                          \
	"cp hub/models--o--n/blobs/b hub/models--p--q/blobs/b && "                                 \
	"cp hub/models--o--n/blobs/b hub/datasets--o--n/blobs/b && "                               \
	"cp hub/models--o--n/blobs/b hub/models--o--n/other/b && "                                 \
	"cp hub/models--o--n/blobs/b hub/models--o--n/blobs/folder/b && "                          \
	"cp hub/models--o--n/blobs/b b && cp b hub/models--o--n/snapshots/b && "                   \
	"ln -s b hub/models--o--n/blobs/link && ln -s ../../../b hub/models--o--n/blobs/out && "   \
	"mkfifo hub/models--o--n/blobs/fifo"

static const struct {
	const char *folder; /* in hub/ */
	const char *text;   /* of the link there */
	int err;
} table[] = {
	/* As Hugging Face's cache has them. */
	{"models--o--n/snapshots/r", "../../blobs/b", 0},
	{"models--o--n/snapshots/r/part", "../../../blobs/b", 0},
	{"models--o--n/snapshots/r", "../../blobs/none", -ENOENT},
	/* Blobs that are no regular files, or not directly there. */
	{"models--o--n/snapshots/r", "../../blobs/link", -EXDEV},
	{"models--o--n/snapshots/r", "../../blobs/out", -EXDEV},
	{"models--o--n/snapshots/r", "../../blobs/folder", -EXDEV},
	{"models--o--n/snapshots/r", "../../blobs/fifo", -EXDEV},
	{"models--o--n/snapshots/r", "../../blobs/folder/b", -EXDEV},
	{"models--o--n/snapshots/r", "../../blobs/.", -EXDEV},
	{"models--o--n/snapshots/r", "../../blobs/..", -EXDEV},
	{"models--o--n/snapshots/r", "../../blobs/", -EXDEV},
	{"models--o--n/snapshots/r", "../../blobs", -EXDEV},
	{"models--linked/snapshots/r", "../../blobs/b", -EXDEV},
	/* Other ways out. */
	{"models--o--n/snapshots/r", "../../other/b", -EXDEV},
	{"models--o--n/snapshots/r", "../b", -EXDEV},
	{"models--o--n/snapshots/r", "../../../models--p--q/blobs/b", -EXDEV},
	{"models--o--n/snapshots/r", "../../../models--o--n/blobs/b", -EXDEV},
	{"models--o--n/snapshots/r", "../../blobs/../blobs/b", -EXDEV},
	{"models--o--n/snapshots/r", "./../../blobs/b", -EXDEV},
	{"models--o--n/snapshots/r", "../../../../b", -EXDEV},
	{"models--o--n/snapshots/r", "/etc/passwd", -EXDEV},
	/* The text is right, the place of the link is not. */
	{"models--o--n/snapshots/r/part", "../../blobs/b", -EXDEV},
	{"models--o--n/snapshots", "../../blobs/b", -EXDEV},
	{"models--o--n/other", "../blobs/b", -EXDEV},
	{"datasets--o--n/snapshots/r", "../../blobs/b", -EXDEV},
	{"models--o--n/blobs/models--x/snapshots/r", "../../../b", -EXDEV},
};

static int enter(char top[static 256])
{
	char command[2048];
	cr_assert(mkdir(scratch(top, 256, "cache"), 0700) == 0);
	(void)snprintf(command, sizeof command, "cd '%s' && " TREE, top);
	cr_assert(system(command) == 0);
	int dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert(dir >= 0);
	return dir;
}

static void leave(int dir, const char *top)
{
	char command[300];
	close(dir);
	(void)snprintf(command, sizeof command, "rm -rf '%s'", top);
	cr_assert(system(command) == 0);
}

static int try_link(int top, const char *in, const char *text)
{
	char folder[128];
	struct hoist__file *file = NULL;
	(void)snprintf(folder, sizeof folder, "hub/%s", in);
	int dir = openat(top, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert(dir >= 0 && symlinkat(text, dir, "f") == 0, "%s", in);
	int err = hoist__file_open(dir, "f", NULL, HOIST__FILE_BENEATH, &file);
	cr_expect(err != 0 || file->bytes == 10);
	hoist__file_close(file);
	cr_assert(unlinkat(dir, "f", 0) == 0);
	close(dir);
	return err;
}

Test(io_snapshot, only_links_to_blobs_of_the_same_model_are_followed)
{
	char top[256];
	int dir = enter(top);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		int err = try_link(dir, table[i].folder, table[i].text);
		cr_expect_eq(err, table[i].err, "%s/f -> %s: %d, %s", table[i].folder,
			     table[i].text, err, err < 0 ? hoist__error_text() : "opened");
	}
	leave(dir, top);
}

/* Only root can make files of others. */
Test(io_snapshot, a_blob_of_another_user_is_not_followed)
{
	char top[256];
	if (geteuid() != 0)
		cr_skip_test("only root can give a file away");
	int dir = enter(top);
	cr_assert(fchownat(dir, "hub/models--o--n/blobs/b", 12345, 0, 0) == 0);
	cr_expect(try_link(dir, "models--o--n/snapshots/r", "../../blobs/b") == -EXDEV);
	cr_expect(strstr(hoist__error_text(), "--follow-links") != NULL);
	cr_assert(fchownat(dir, "hub/models--o--n/blobs/b", 0, 0, 0) == 0);
	cr_expect(try_link(dir, "models--o--n/snapshots/r", "../../blobs/b") == 0);
	leave(dir, top);
}

/* inotify sees each open of a FIFO. */
Test(io_snapshot, a_blob_that_is_refused_is_not_opened)
{
	char top[256];
	char fifo[300];
	char event[512];
	int dir = enter(top);
	(void)snprintf(fifo, sizeof fifo, "%s/hub/models--o--n/blobs/fifo", top);
	int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	cr_assert(watch >= 0 && inotify_add_watch(watch, fifo, IN_OPEN) >= 0);
	cr_expect(try_link(dir, "models--o--n/snapshots/r", "../../blobs/fifo") == -EXDEV);
	cr_expect(read(watch, event, sizeof event) < 0 && errno == EAGAIN, "it was opened");
	close(watch);
	leave(dir, top);
}
