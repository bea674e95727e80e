/* SPDX-License-Identifier: MIT */
/* Shows a visitor the files of this member's checkpoint.
 * The contract is in lib/far/far-tour.h. */
#include "config.h"

#include "lib/far/far-tour.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json-out.h"
#include "io/again.h"

#define INDEX_NAME "index.json"

static const char *name_of(const struct hoist_checkpoint *checkpoint, size_t file)
{
	const char *path = checkpoint->files[file].file->path;
	const char *slash = strrchr(path, '/');
	return slash != NULL ? slash + 1 : path;
}

static const struct hoist__tensor *tensor_at(const struct hoist_checkpoint *checkpoint, size_t t)
{
	return checkpoint->tensors[t].tensor;
}

static int check_size(const struct hoist_checkpoint *checkpoint)
{
	struct hoist__gaps gaps = {.file = 0};
	uint64_t bytes = 0;
	uint64_t end;
	for (; gaps.file < checkpoint->n_files; gaps.file++, gaps.at = 0)
		while (hoist__gaps_next(&gaps, checkpoint, &end)) {
			bytes += end - gaps.at;
			gaps.at = end;
		}
	if (bytes > HOIST__TOUR_MOST_BYTES)
		return hoist__fail(-ENOTSUP,
				   "%llu bytes of the checkpoint's files are no tensor's: too many "
				   "to be sent to a machine without the files",
				   (unsigned long long)bytes);
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const struct hoist_checkpoint *checkpoint)
{
	size_t n = checkpoint->n_files;
	const char **names = calloc(n + 1, sizeof(*names));
	int err = 0;
	if (names == NULL)
		return hoist__fail_nomem("the names of files", n);
	for (size_t f = 0; f < n && err == 0; f++) {
		names[f] = name_of(checkpoint, f);
		if (strlen(names[f]) >= HOIST__FAR_REASON)
			err = hoist__fail(
				-ENOTSUP,
				"the name %.80s... has more than %u bytes: the checkpoint "
				"cannot be shown to a machine without the files",
				names[f], HOIST__FAR_REASON - 1);
	}
	if (err == 0)
		qsort(names, n, sizeof(*names), compare_names);
	for (size_t f = 1; err == 0 && f < n; f++)
		if (strcmp(names[f - 1], names[f]) == 0)
			err = hoist__fail(-ENOTSUP,
					  "the checkpoint has several files of the name %s: it "
					  "cannot be shown to a machine without the files",
					  names[f]);
	free(names);
	return err;
}

/* Writes an index that names the tensors that the checkpoint offers. */
static int write_index(const struct hoist_checkpoint *checkpoint, int fd)
{
	struct hoist__json_out *out = malloc(sizeof *out);
	if (out == NULL)
		return hoist__fail_nomem("an index", sizeof *out);
	hoist__out_start(out, fd);
	hoist__out_open(out, "{");
	hoist__out_key(out, "weight_map");
	hoist__out_open(out, "{");
	for (size_t t = 0; t < checkpoint->n_tensors; t++) {
		hoist__out_name(out, tensor_at(checkpoint, t)->name);
		hoist__out_string(out, name_of(checkpoint, checkpoint->tensors[t].file));
	}
	hoist__out_close(out, "}");
	hoist__out_close(out, "}");
	int err = hoist__out_end(out);
	free(out);
	return err < 0 ? hoist__fail_errno(err, "an index in memory") : 0;
}

int hoist__far_tour_begin(struct hoist__far_tour *tour, const struct hoist_checkpoint *checkpoint)
{
	*tour = (struct hoist__far_tour){.active = true, .index_fd = -1};
	int err = check_size(checkpoint);
	if (err == 0)
		err = check_names(checkpoint);
	if (err < 0 || checkpoint->index == NULL)
		return err;
	tour->index_fd = memfd_create("hoist-index", MFD_CLOEXEC);
	if (tour->index_fd < 0)
		return hoist__fail_errno(-errno, "an index in memory");
	err = write_index(checkpoint, tour->index_fd);
	off_t bytes = lseek(tour->index_fd, 0, SEEK_END);
	tour->index_bytes = bytes > 0 ? (uint64_t)bytes : 0;
	return err;
}

void hoist__far_tour_end(struct hoist__far_tour *tour)
{
	if (tour->active && tour->index_fd >= 0)
		(void)close(tour->index_fd);
	*tour = (struct hoist__far_tour){.active = false};
}

/* The index comes behind the files. */
static int next_of_index(struct hoist__far_tour *tour, size_t n_files, unsigned char *buffer,
			 struct hoist__far_message *ret)
{
	struct hoist__gaps *gaps = &tour->gaps;
	uint64_t left = tour->index_bytes - gaps->at;
	size_t n = left < HOIST__TOUR_PIECE ? (size_t)left : HOIST__TOUR_PIECE;
	ssize_t got = HOIST__UNINTERRUPTED(pread(tour->index_fd, buffer, n, (off_t)gaps->at));
	if (got <= 0)
		return hoist__fail_errno(got < 0 ? -errno : -EIO, "an index in memory");
	*ret = (struct hoist__far_message){.kind = HOIST__FAR_BYTES,
					   .n = (uint32_t)n_files,
					   .at = gaps->at,
					   .bytes = buffer,
					   .n_bytes = (size_t)got};
	gaps->at += (uint64_t)got;
	return 1;
}

static void tell_file(struct hoist__far_tour *tour, const struct hoist_checkpoint *checkpoint,
		      struct hoist__far_message *ret)
{
	bool index = tour->files_told == checkpoint->n_files;
	*ret = (struct hoist__far_message){
		.kind = HOIST__FAR_FILE,
		.n = (uint32_t)tour->files_told,
		.done = index ? tour->index_bytes : checkpoint->files[tour->files_told].file->bytes,
	};
	(void)snprintf(ret->text, sizeof ret->text, "%s",
		       index ? INDEX_NAME : name_of(checkpoint, tour->files_told));
	tour->files_told++;
}

static void tell_end(const struct hoist__far_tour *tour, const struct hoist_checkpoint *checkpoint,
		     const uint64_t identity[static HOIST__CHECKPOINT_IDENTITY],
		     struct hoist__far_message *ret)
{
	bool folder = tour->index_fd < 0 && checkpoint->n_files != 1 &&
		      checkpoint->files[0].format != HOIST__GGUF;
	*ret = (struct hoist__far_message){.kind = HOIST__FAR_TOUR_END};
	memcpy(ret->identity, identity, sizeof ret->identity);
	(void)snprintf(ret->text, sizeof ret->text, "%s",
		       tour->index_fd >= 0 ? INDEX_NAME
		       : folder		   ? ""
					   : name_of(checkpoint, 0));
}

int hoist__far_tour_next(struct hoist__far_tour *tour, const struct hoist_checkpoint *checkpoint,
			 const uint64_t identity[static HOIST__CHECKPOINT_IDENTITY],
			 unsigned char *buffer, struct hoist__far_message *ret)
{
	struct hoist__gaps *gaps = &tour->gaps;
	uint64_t end;
	if (tour->files_told < checkpoint->n_files + (tour->index_fd >= 0)) {
		tell_file(tour, checkpoint, ret);
		return 1;
	}
	for (; gaps->file < checkpoint->n_files; gaps->file++, gaps->at = 0) {
		if (!hoist__gaps_next(gaps, checkpoint, &end))
			continue;
		size_t n = end - gaps->at < HOIST__TOUR_PIECE ? (size_t)(end - gaps->at)
							      : HOIST__TOUR_PIECE;
		int err = hoist__file_read(checkpoint->files[gaps->file].file, gaps->at, buffer, n);
		*ret = (struct hoist__far_message){.kind = HOIST__FAR_BYTES,
						   .n = (uint32_t)gaps->file,
						   .at = gaps->at,
						   .bytes = buffer,
						   .n_bytes = n};
		gaps->at += n;
		return err < 0 ? err : 1;
	}
	if (tour->index_fd >= 0 && gaps->at < tour->index_bytes)
		return next_of_index(tour, checkpoint->n_files, buffer, ret);
	if (gaps->file > checkpoint->n_files)
		return 0;
	gaps->file++;
	tell_end(tour, checkpoint, identity, ret);
	return 1;
}
