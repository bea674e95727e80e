/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/kept.c - digests that are kept beside a checkpoint's file.
 * The contract is in lib/checkpoint/checkpoint.h.
 *
 *   NAME.xxh3, beside NAME, has three lines:
 *
 *     hoist-digests 1
 *     BYTES MTIME CTIME TENSORS   NAME's size, its mtime and ctime in nanoseconds, and the XXH3-128
 *                                 of the names, dtypes, shapes, strides and places of its tensors
 *     DIGITS                      as in the metadata HOIST__DIGEST_KEY
 *
 * The digests count while the second line is what it was, and NAME.xxh3 has an mtime later than
 * NAME's ctime: a write to NAME after the digests then has changed NAME's ctime, which no program
 * can set.  So a copy of both files has no digests.  A write through a shared map to a page that is
 * dirty already changes neither time. */
#include "config.h"

#define XXH_INLINE_ALL
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/log.h"
#include "format/digest.h"
#include "io/output.h"
#include "lib/checkpoint/checkpoint.h"

#define FIRST_LINE "hoist-digests 1\n"
/* The kernel's clock for files ticks at least this often (CONFIG_HZ is 100 or more); that of a file
 * system whose times are whole seconds, every two seconds (FAT). */
#define TICK_NS 10000000
#define COARSE_TICK_NS 2000000000

/* --- what the digests are of --- */

static void add_tensor(XXH3_state_t *state, const struct hoist__tensor *t)
{
	const uint64_t numbers[] = {(uint64_t)t->dtype, (uint64_t)t->rank, t->bytes, t->offset,
				    t->strides != NULL};
	(void)XXH3_128bits_update(state, t->name, t->name_bytes + 1);
	(void)XXH3_128bits_update(state, numbers, sizeof numbers);
	(void)XXH3_128bits_update(state, t->shape, (size_t)t->rank * sizeof *t->shape);
	if (t->strides != NULL)
		(void)XXH3_128bits_update(state, t->strides, (size_t)t->rank * sizeof *t->strides);
}

/* Makes the first two lines, from malloc. */
static int lines_of(const struct hoist__checkpoint_file *shard, char **ret)
{
	char hex[HOIST__DIGEST_HEX + 1] = "";
	XXH128_canonical_t canonical;
	XXH3_state_t *state = XXH3_createState();
	if (state == NULL)
		return hoist__fail_nomem("a digest", sizeof(XXH3_state_t));
	(void)XXH3_128bits_reset(state);
	for (size_t t = 0; t < shard->manifest->n_tensors; t++)
		add_tensor(state, &shard->manifest->tensors[t]);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
	XXH3_freeState(state);
	hoist__digest_hex(canonical.digest, hex);
	if (asprintf(ret, FIRST_LINE "%" PRIu64 " %" PRId64 " %" PRId64 " %s\n", shard->file->bytes,
		     shard->file->mtime_ns, shard->file->ctime_ns, hex) < 0)
		return hoist__fail_nomem("a digest", sizeof hex);
	return 0;
}

static char *beside(const char *path)
{
	char *ret;
	if (asprintf(&ret, "%s" HOIST__KEPT_ENDING, path) >= 0)
		return ret;
	(void)hoist__fail_nomem("a path", strlen(path));
	return NULL;
}

/* --- reading --- */

static bool are_digits(const struct hoist__checkpoint_file *shard, const char *text, char end)
{
	const size_t n = shard->manifest->n_tensors * HOIST__DIGEST_HEX;
	return strspn(text, "0123456789abcdef") == n && text[n] == end;
}

int hoist__kept_take(struct hoist__checkpoint_file *shard, char **digits)
{
	if (!are_digits(shard, *digits, '\0'))
		return hoist__fail(-EBADMSG,
				   "a member shows digests of %s that are not one for each of the "
				   "file's %zu tensors",
				   shard->file->path, shard->manifest->n_tensors);
	free(shard->kept);
	shard->kept = *digits;
	shard->digests = *digits;
	*digits = NULL;
	return 0;
}

/* Reads the digits.  Returns: 0; 1 if they are of another content; -ENOMEM; a failure to read. */
static int read_digits(struct hoist__checkpoint_file *shard, const struct hoist__file *file)
{
	const size_t n_digits = shard->manifest->n_tensors * HOIST__DIGEST_HEX;
	char *lines = NULL;
	char *text = NULL;
	int err = lines_of(shard, &lines);
	if (err < 0)
		return err;
	const size_t n_lines = strlen(lines);
	const size_t bytes = n_lines + n_digits + 1;
	if (file->bytes != bytes || file->mtime_ns <= shard->file->ctime_ns)
		err = 1;
	else if ((text = calloc(1, bytes + 1)) == NULL)
		err = hoist__fail_nomem("digests", bytes);
	else
		err = hoist__file_read(file, 0, text, bytes);
	if (err == 0 &&
	    (memcmp(text, lines, n_lines) != 0 || !are_digits(shard, text + n_lines, '\n')))
		err = 1;
	if (err == 0) {
		memmove(text, text + n_lines, n_digits);
		text[n_digits] = '\0';
		shard->kept = text;
		text = NULL;
	}
	free(text);
	free(lines);
	return err;
}

int hoist__kept_find(int dir_fd, const char *path, unsigned flags,
		     struct hoist__checkpoint_file *shard)
{
	struct hoist__file *file;
	if (hoist__checkpoint_holds_digests(shard))
		return 0;
	char *name = beside(path);
	char *display = name != NULL ? beside(shard->file->path) : NULL;
	int err = display == NULL ? -ENOMEM
				  : hoist__file_open(dir_fd, name, display,
						     flags | HOIST__FILE_NO_DIRECT, &file);
	if (err == 0) {
		err = read_digits(shard, file);
		hoist__file_close(file);
		shard->kept_is_old = err == 1;
	}
	free(name);
	free(display);
	if (err == -ENOMEM || err == -EMFILE || err == -ENFILE)
		return err;
	if (err < 0 && err != -ENOENT)
		hoist__log(format, "digests are kept that cannot be read: %s", hoist__error_text());
	return 0;
}

/* --- writing --- */

/* Waits until a write to the file would change its ctime. */
static int wait_for_tick(const struct hoist__file *file)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	const int64_t tick = file->ctime_ns % 1000000000 == 0 ? COARSE_TICK_NS : TICK_NS;
	const int64_t left = file->ctime_ns + 2 * tick - hoist__file_time_ns(&now);
	if (left > 2 * tick)
		return hoist__fail(
			-ENOTSUP,
			"%s was changed in the future: digests beside the file would not "
			"count; set the clocks of this machine and of its file server",
			file->path);
	if (left > 0)
		(void)nanosleep(&(const struct timespec){.tv_sec = left / 1000000000,
							 .tv_nsec = left % 1000000000},
				NULL);
	return 0;
}

/* Only those who may read the file may read its digests. */
static void limit_mode(const struct hoist__output *output, uint32_t mode)
{
	struct stat st;
	int fd = hoist__output_file(output)->fd;
	/* A file system without modes has given the mode that it has for all. */
	if (fstat(fd, &st) == 0 && (st.st_mode & 0777 & ~mode) != 0)
		(void)fchmod(fd, st.st_mode & 0777 & mode);
}

static int write_text(const char *path, uint32_t mode, const char *text, size_t n)
{
	struct hoist__output *output = NULL;
	int err = hoist__output_create(path, n, HOIST__OUTPUT_NO_DIRECT, &output);
	if (err < 0)
		return err;
	err = hoist__output_write(output, 0, text, n);
	if (err == 0)
		err = hoist__output_finish(output);
	if (err == 0)
		limit_mode(output, mode);
	if (err == 0)
		err = hoist__output_publish(output);
	if (err == 0)
		err = hoist__output_sync_folder(output);
	hoist__output_destroy(output);
	return err;
}

/* The path must still lead to the file: digests beside another one would be that one's. */
static int check_path(const struct hoist__file *file)
{
	struct stat st;
	int err = hoist__path_stat(file->path, &st);
	if (err < 0)
		return hoist__fail_errno(err, "keeping digests beside %s", file->path);
	if (st.st_ino != file->ino || st.st_dev != file->dev)
		return hoist__fail(-EBADMSG, "%s is another file now than the one that was opened",
				   file->path);
	return 0;
}

/* @digests: of the file's tensors. */
static int keep_file(const struct hoist__checkpoint_file *shard, const unsigned char (*digests)[16])
{
	const size_t n = shard->manifest->n_tensors;
	char *lines = NULL;
	char *path = beside(shard->file->path);
	int err = path != NULL ? lines_of(shard, &lines) : -ENOMEM;
	const size_t n_lines = err == 0 ? strlen(lines) : 0;
	const size_t bytes = n_lines + n * HOIST__DIGEST_HEX + 1;
	char *text = err == 0 ? realloc(lines, bytes) : NULL;
	if (err == 0 && text == NULL)
		err = hoist__fail_nomem("digests", bytes);
	if (err == 0) {
		lines = NULL;
		for (size_t t = 0; t < n; t++)
			hoist__digest_hex(digests[t], text + n_lines + t * HOIST__DIGEST_HEX);
		text[bytes - 1] = '\n';
		err = wait_for_tick(shard->file);
	}
	if (err == 0)
		err = hoist__file_changed(shard->file);
	if (err == 0)
		err = check_path(shard->file);
	if (err == 0)
		err = write_text(path, shard->file->mode, text, bytes);
	free(text);
	free(lines);
	free(path);
	return err;
}

int hoist_checkpoint_keep_digests(const hoist_checkpoint *checkpoint, size_t n_digests,
				  const unsigned char (*digests)[16])
{
	int err = 0;
	size_t first = 0;
	if (n_digests != checkpoint->n_tensors || (digests == NULL && n_digests > 0))
		return hoist__fail(-EINVAL,
				   "%zu digests are given to be kept, and the checkpoint has %zu "
				   "tensors",
				   digests != NULL ? n_digests : 0, checkpoint->n_tensors);
	for (size_t f = 0; f < checkpoint->n_files; f++) {
		const struct hoist__checkpoint_file *shard = &checkpoint->files[f];
		if (shard->format == HOIST__RAW)
			return hoist__fail(-ENOTSUP,
					   "%s is opened as raw bytes: digests are kept of tensors",
					   shard->file->path);
		for (size_t t = 0; shard->named != NULL && t < shard->manifest->n_tensors; t++)
			if (!shard->named[t])
				return hoist__fail(-ENOTSUP,
						   "%s has tensors that the index does not name: "
						   "digests are kept of all tensors of a file",
						   shard->file->path);
	}
	for (size_t f = 0; err == 0 && f < checkpoint->n_files; f++) {
		const struct hoist__checkpoint_file *shard = &checkpoint->files[f];
		if (!hoist__checkpoint_holds_digests(shard) && shard->manifest->n_tensors > 0)
			err = keep_file(shard, digests + first);
		first += shard->manifest->n_tensors;
	}
	return err;
}
