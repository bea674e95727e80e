/* SPDX-License-Identifier: MIT */
/* Shows a visitor the files of this member's checkpoint.
 * The contract is in lib/wire/tour.h. */
#include "config.h"

#include "lib/wire/tour.h"

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

/* The digits behind the first @at of the digests that are kept beside a file. */
static size_t digits_left(const struct hoist_checkpoint *checkpoint, size_t file, size_t at)
{
	const char *kept = checkpoint->files[file].kept;
	return kept != NULL ? strlen(kept + at) : 0;
}

static int check_files(const struct hoist_checkpoint *checkpoint)
{
	struct hoist__gaps gaps = {.file = 0};
	uint64_t bytes = 0;
	uint64_t at;
	uint64_t n;
	for (; gaps.file < checkpoint->n_files; gaps.file++, gaps.at = 0) {
		const char *name = hoist__checkpoint_file_name(checkpoint, gaps.file);
		if (strlen(name) >= HOIST__WIRE_REASON)
			return hoist__fail(
				-ENOTSUP,
				"the name %.80s... has more than %u bytes: the checkpoint "
				"cannot be shown to a machine that lacks files",
				name, HOIST__WIRE_REASON - 1);
		bytes += digits_left(checkpoint, gaps.file, 0);
		while (hoist__gaps_next(&gaps, checkpoint, UINT64_MAX, &at, &n))
			bytes += n;
	}
	if (bytes > HOIST__TOUR_MOST_BYTES)
		return hoist__fail(
			-ENOTSUP,
			"%llu bytes of the checkpoint's files are no tensor's, or are kept "
			"digests: too many to be sent to a machine that lacks files; copy "
			"the files there",
			(unsigned long long)bytes);
	return 0;
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
		hoist__out_name(out, checkpoint->tensors[t].tensor->name);
		hoist__out_string(
			out, hoist__checkpoint_file_name(checkpoint, checkpoint->tensors[t].file));
	}
	hoist__out_close(out, "}");
	hoist__out_close(out, "}");
	int err = hoist__out_end(out);
	free(out);
	return err < 0 ? hoist__fail_errno(err, "an index in memory") : 0;
}

int hoist__tour_begin(struct hoist__tour *tour, const struct hoist_checkpoint *checkpoint)
{
	*tour = (struct hoist__tour){.active = true, .index_fd = -1};
	int err = check_files(checkpoint);
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

void hoist__tour_end(struct hoist__tour *tour)
{
	if (tour->active && tour->index_fd >= 0)
		(void)close(tour->index_fd);
	*tour = (struct hoist__tour){.active = false};
}

/* The index comes behind the files. */
static int next_of_index(struct hoist__tour *tour, size_t n_files, unsigned char *buffer,
			 struct hoist__wire_message *ret)
{
	uint64_t left = tour->index_bytes - tour->index_at;
	size_t n = left < HOIST__TOUR_PIECE ? (size_t)left : HOIST__TOUR_PIECE;
	ssize_t got = HOIST__UNINTERRUPTED(pread(tour->index_fd, buffer, n, (off_t)tour->index_at));
	if (got <= 0)
		return hoist__fail_errno(got < 0 ? -errno : -EIO, "an index in memory");
	*ret = (struct hoist__wire_message){.kind = HOIST__WIRE_BYTES,
					    .n = (uint32_t)n_files,
					    .at = tour->index_at,
					    .bytes = buffer,
					    .n_bytes = (size_t)got};
	tour->index_at += (uint64_t)got;
	return 1;
}

static bool tell_digits(struct hoist__tour *tour, const struct hoist_checkpoint *checkpoint,
			struct hoist__wire_message *ret)
{
	const size_t f = tour->gaps.file;
	const size_t left = digits_left(checkpoint, f, tour->digits_at);
	if (left == 0)
		return false;
	*ret = (struct hoist__wire_message){
		.kind = HOIST__WIRE_DIGITS,
		.n = (uint32_t)f,
		.at = tour->digits_at,
		.bytes = (const unsigned char *)checkpoint->files[f].kept + tour->digits_at,
		.n_bytes = left < HOIST__TOUR_PIECE ? left : HOIST__TOUR_PIECE};
	tour->digits_at += ret->n_bytes;
	return true;
}

static int tell_file(struct hoist__tour *tour, const struct hoist_checkpoint *checkpoint,
		     struct hoist__wire_message *ret)
{
	size_t f = tour->files_told++;
	uint64_t sample[2] = {0, 0};
	int err = 0;
	*ret = (struct hoist__wire_message){
		.kind = HOIST__WIRE_FILE, .n = (uint32_t)f, .done = tour->index_bytes};
	if (f < checkpoint->n_files) {
		const struct hoist__file *file = checkpoint->files[f].file;
		ret->done = file->bytes;
		err = hoist__checkpoint_sample(checkpoint, file, sample);
	}
	ret->digest = (struct hoist__wire_digest){.low = sample[0], .high = sample[1]};
	(void)snprintf(ret->text, sizeof ret->text, "%s",
		       f < checkpoint->n_files ? hoist__checkpoint_file_name(checkpoint, f)
					       : INDEX_NAME);
	return err < 0 ? err : 1;
}

static void tell_end(const struct hoist__tour *tour, const struct hoist_checkpoint *checkpoint,
		     const uint64_t identity[static HOIST__CHECKPOINT_IDENTITY],
		     struct hoist__wire_message *ret)
{
	bool folder = tour->index_fd < 0 && checkpoint->n_files != 1 &&
		      checkpoint->files[0].format != HOIST__GGUF;
	*ret = (struct hoist__wire_message){.kind = HOIST__WIRE_TOUR_END};
	memcpy(ret->identity, identity, sizeof ret->identity);
	(void)snprintf(ret->text, sizeof ret->text, "%s",
		       tour->index_fd >= 0 ? INDEX_NAME
		       : folder		   ? ""
					   : hoist__checkpoint_file_name(checkpoint, 0));
}

int hoist__tour_next(struct hoist__tour *tour, const struct hoist_checkpoint *checkpoint,
		     const uint64_t identity[static HOIST__CHECKPOINT_IDENTITY],
		     unsigned char *buffer, struct hoist__wire_message *ret)
{
	struct hoist__gaps *gaps = &tour->gaps;
	uint64_t at;
	uint64_t n;
	if (tour->files_told < checkpoint->n_files + (tour->index_fd >= 0))
		return tell_file(tour, checkpoint, ret);
	for (; gaps->file < checkpoint->n_files; gaps->file++, gaps->at = 0, tour->digits_at = 0) {
		if (tell_digits(tour, checkpoint, ret))
			return 1;
		if (!hoist__gaps_next(gaps, checkpoint, HOIST__TOUR_PIECE, &at, &n))
			continue;
		*ret = (struct hoist__wire_message){.kind = HOIST__WIRE_BYTES,
						    .n = (uint32_t)gaps->file,
						    .at = at,
						    .bytes = buffer,
						    .n_bytes = (size_t)n};
		int err =
			hoist__file_read(checkpoint->files[gaps->file].file, at, buffer, (size_t)n);
		return err < 0 ? err : 1;
	}
	if (tour->index_fd >= 0 && tour->index_at < tour->index_bytes)
		return next_of_index(tour, checkpoint->n_files, buffer, ret);
	if (tour->ended)
		return 0;
	tour->ended = true;
	tell_end(tour, checkpoint, identity, ret);
	return 1;
}
