/* SPDX-License-Identifier: MIT */
/* Digests that are kept beside a checkpoint's files: hoist_checkpoint_keep_digests(). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/load-files.h"
#include "tests/support/load-support.h"

static hoist_checkpoint *opened(const char *path)
{
	hoist_checkpoint *checkpoint = NULL;
	if (hoist_checkpoint_open(path, 0, &checkpoint) != 0) {
		fprintf(stderr, "%s\n", hoist_error());
		CHECK(false);
	}
	return checkpoint;
}

/* Keeps 16 bytes of i + @seed for tensor i. */
static int keep(const char *path, unsigned seed)
{
	unsigned char digests[4][16];
	hoist_checkpoint *checkpoint = opened(path);
	for (unsigned i = 0; i < 4; i++)
		memset(digests[i], (int)(i + seed), 16);
	int err = hoist_checkpoint_keep_digests(checkpoint, hoist_checkpoint_n_tensors(checkpoint),
						digests);
	hoist_checkpoint_close(checkpoint);
	return err;
}

/* Each tensor's digest is that of keep(), or all fail with @err and a text. */
static void expect_kept(const char *path, unsigned seed, int err, const char *text)
{
	unsigned char digest[16];
	hoist_checkpoint *checkpoint = opened(path);
	for (size_t i = 0; i < hoist_checkpoint_n_tensors(checkpoint); i++) {
		int got = hoist_checkpoint_digest(checkpoint, i, digest);
		if (got != err || (err != 0 && strstr(hoist_error(), text) == NULL)) {
			fprintf(stderr, "%d, not %d: %s\n", got, err, hoist_error());
			CHECK(false);
		}
		CHECK(err != 0 || (digest[0] == i + seed && digest[15] == i + seed));
	}
	hoist_checkpoint_close(checkpoint);
}

static void write_bytes(const char *name, const char *bytes, size_t at)
{
	int fd = open(in_folder(name), O_WRONLY);
	CHECK(fd >= 0 && pwrite(fd, bytes, strlen(bytes), (off_t)at) == (ssize_t)strlen(bytes));
	(void)close(fd);
}

/* Gives the file another mtime, by @seconds. */
static void move_mtime(const char *name, int seconds)
{
	struct stat st;
	CHECK(stat(in_folder(name), &st) == 0);
	struct timespec times[2] = {st.st_atim, st.st_mtim};
	times[1].tv_sec += seconds;
	CHECK(utimensat(AT_FDCWD, in_folder(name), times, 0) == 0);
}

static void digests_are_found_until_the_file_changes(void)
{
	write_gguf("x.gguf", "a", 0, 0, 0);
	char path[512];
	snprintf(path, sizeof path, "%s", in_folder("x.gguf"));
	expect_kept(path, 0, -ENODATA, "`hoist digest --keep` keeps them beside");
	CHECK(keep(path, 1) == 0);
	expect_kept(path, 1, 0, NULL);
	expect_kept(support_folder(), 1, 0, NULL);
	CHECK(keep(path, 7) == 0);
	expect_kept(path, 7, 0, NULL);
	/* Another mtime; then the old one, which leaves another ctime. */
	move_mtime("x.gguf", -10);
	expect_kept(path, 7, -ENODATA, "as the file is now");
	move_mtime("x.gguf", 10);
	expect_kept(path, 7, -ENODATA, "as the file is now");
	/* The mtime may lie in the future: the ctime does not. */
	move_mtime("x.gguf", 1000000);
	CHECK(keep(path, 3) == 0);
	expect_kept(path, 3, 0, NULL);
	write_gguf("x.gguf", "a", 0, 0, 0);
	expect_kept(path, 3, -ENODATA, "as the file is now");
	CHECK(keep(path, 5) == 0);
	expect_kept(path, 5, 0, NULL);
	/* Digests that are not younger than the file. */
	move_mtime("x.gguf.xxh3", -10);
	expect_kept(path, 5, -ENODATA, "as the file is now");
	support_cleanup();
}

/* A text that is cut, or has another character anywhere. */
static void broken_texts_are_no_digests(void)
{
	char text[512];
	write_gguf("x.gguf", "a", 0, 0, 0);
	CHECK(keep(in_folder("x.gguf"), 1) == 0);
	int fd = open(in_folder("x.gguf.xxh3"), O_RDONLY);
	ssize_t n = read(fd, text, sizeof text);
	(void)close(fd);
	CHECK(n > 0 && (size_t)n < sizeof text - 1);
	for (ssize_t cut = 0; cut < n; cut++) {
		support_put("x.gguf.xxh3", text, (size_t)cut);
		expect_kept(in_folder("x.gguf"), 1, -ENODATA, "as the file is now");
	}
	for (ssize_t i = 0; i < n; i++) {
		char was = text[i];
		text[i] = was == 'g' ? 'h' : 'g';
		support_put("x.gguf.xxh3", text, (size_t)n);
		expect_kept(in_folder("x.gguf"), 1, -ENODATA, "as the file is now");
		text[i] = was;
	}
	text[n] = '\n';
	support_put("x.gguf.xxh3", text, (size_t)n + 1);
	expect_kept(in_folder("x.gguf"), 1, -ENODATA, "as the file is now");
	CHECK(unlink(in_folder("x.gguf.xxh3")) == 0);
	CHECK(mkdir(in_folder("x.gguf.xxh3"), 0777) == 0);
	expect_kept(in_folder("x.gguf"), 1, -ENODATA, "holds no digests");
	CHECK(keep(in_folder("x.gguf"), 1) == -EISDIR);
	CHECK(rmdir(in_folder("x.gguf.xxh3")) == 0);
	support_cleanup();
}

static void each_file_of_an_index_has_its_own(void)
{
	write_gguf("a.bin", "a", 0, 0, 0);
	write_gguf("b.bin", "b", 0, 0, 0);
	write_text("pytorch_model.bin.index.json",
		   "{\"weight_map\":{\"a\":\"a.bin\",\"b\":\"b.bin\"}}");
	CHECK(keep(support_folder(), 3) == 0);
	expect_kept(support_folder(), 3, 0, NULL);
	expect_kept(in_folder("b.bin"), 4, 0, NULL);
	support_cleanup();
	/* A folder's own names say nothing about those in a folder below. */
	write_gguf("a.bin", "a", 0, 0, 0);
	CHECK(mkdir(in_folder("sub"), 0777) == 0);
	write_gguf("sub/b.bin", "b", 0, 0, 0);
	write_text("pytorch_model.bin.index.json", "{\"weight_map\":{\"b\":\"sub/b.bin\"}}");
	CHECK(keep(support_folder(), 3) == 0);
	expect_kept(support_folder(), 3, 0, NULL);
	CHECK(unlink(in_folder("sub/b.bin.xxh3")) == 0 && unlink(in_folder("sub/b.bin")) == 0 &&
	      rmdir(in_folder("sub")) == 0);
	support_cleanup();
}

static void wrong_calls_keep_nothing(void)
{
	static const unsigned char digests[2][16];
	write_gguf("x.gguf", "a", 0, 0, 0);
	hoist_checkpoint *checkpoint = opened(in_folder("x.gguf"));
	CHECK(hoist_checkpoint_keep_digests(checkpoint, 2, digests) == -EINVAL);
	CHECK(strstr(hoist_error(), "2 digests are given to be kept, and the checkpoint has 1") !=
	      NULL);
	CHECK(hoist_checkpoint_keep_digests(checkpoint, 1, NULL) == -EINVAL);
	write_bytes("x.gguf", "G", 0);
	move_mtime("x.gguf", 1);
	CHECK(hoist_checkpoint_keep_digests(checkpoint, 1, digests) == -EBADMSG);
	hoist_checkpoint_close(checkpoint);
	CHECK(access(in_folder("x.gguf.xxh3"), F_OK) < 0);
	support_cleanup();
	support_put_safetensors("m.safetensors",
				"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
				"\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
				"12345678", 8);
	write_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"m.safetensors\"}}");
	CHECK(keep(support_folder(), 1) == -ENOTSUP);
	CHECK(strstr(hoist_error(), "tensors that the index does not name") != NULL);
	CHECK(access(in_folder("m.safetensors.xxh3"), F_OK) < 0);
	support_cleanup();
}

/* A path that no longer leads to the file that was opened. */
static void digests_go_beside_the_opened_file_only(void)
{
	static const unsigned char digests[1][16];
	char path[512];
	hoist_checkpoint *checkpoint;
	write_gguf("x.gguf", "a", 0, 0, 0);
	write_gguf("y.gguf", "a", 0, 0, 0);
	checkpoint = opened(in_folder("x.gguf"));
	snprintf(path, sizeof path, "%s", in_folder("x.gguf"));
	CHECK(rename(in_folder("y.gguf"), path) == 0);
	CHECK(hoist_checkpoint_keep_digests(checkpoint, 1, digests) == -EBADMSG);
	CHECK(strstr(hoist_error(), "is another file now") != NULL);
	CHECK(unlink(path) == 0);
	CHECK(hoist_checkpoint_keep_digests(checkpoint, 1, digests) == -ENOENT);
	hoist_checkpoint_close(checkpoint);
	CHECK(access(in_folder("x.gguf.xxh3"), F_OK) < 0);
	write_gguf("x.gguf", "a", 0, 0, 0);
	CHECK(hoist_checkpoint_open(in_folder("x.gguf"), HOIST_OPEN_RAW, &checkpoint) == 0);
	CHECK(hoist_checkpoint_keep_digests(checkpoint, 1, digests) == -ENOTSUP);
	CHECK(strstr(hoist_error(), "opened as raw bytes") != NULL);
	hoist_checkpoint_close(checkpoint);
	support_cleanup();
}

int main(void)
{
	digests_are_found_until_the_file_changes();
	broken_texts_are_no_digests();
	each_file_of_an_index_has_its_own();
	wrong_calls_keep_nothing();
	digests_go_beside_the_opened_file_only();
	return 0;
}
