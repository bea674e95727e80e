/* SPDX-License-Identifier: MIT */
/* The identity of a checkpoint: the facts that tell files apart on any machine.
 * The contract is in lib/checkpoint/checkpoint.h. */
#include "config.h"

#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "format/digest.h"
#include "lib/checkpoint/checkpoint.h"

#define SAMPLES 64u /* of all files together, at least one of each, */
#define SAMPLE_BYTES ((size_t)4096)

static void add_tensor(XXH3_state_t *state, const hoist_tensor_info *info)
{
	const uint64_t facts[] = {info->dtype, info->file,	     info->offset,
				  info->bytes, (uint64_t)info->rank, strlen(info->name)};
	XXH3_128bits_update(state, facts, sizeof facts);
	XXH3_128bits_update(state, info->name, strlen(info->name));
	if (info->rank > 0)
		XXH3_128bits_update(state, info->shape, (size_t)info->rank * sizeof *info->shape);
}

/* The texts of the headers; among them are digests of the tensors, where the files hold any. */
static void add_metadata(XXH3_state_t *state, const struct hoist_checkpoint *checkpoint)
{
	const char *key = NULL;
	const char *value = NULL;
	for (size_t m = 0; hoist_checkpoint_metadata(checkpoint, m, &key, &value) == 0; m++) {
		XXH3_128bits_update(state, key, strlen(key) + 1);
		XXH3_128bits_update(state, value, strlen(value) + 1);
	}
}

/* Blocks from all over the file, so that two checkpoints of one model, whose headers are alike, are
 * told apart. */
static int add_samples(XXH3_state_t *state, const struct hoist__file *file, uint64_t n)
{
	unsigned char bytes[SAMPLE_BYTES];
	for (uint64_t i = 0; i < n && file->bytes > 0; i++) {
		uint64_t room = file->bytes > SAMPLE_BYTES ? file->bytes - SAMPLE_BYTES : 0;
		/* The first and the last byte are in a block. */
		uint64_t at = n == 1 ? room / 2 : room / (n - 1) * i + room % (n - 1) * i / (n - 1);
		size_t want = file->bytes < SAMPLE_BYTES ? (size_t)file->bytes : SAMPLE_BYTES;
		int err = hoist__file_read(file, at, bytes, want);
		if (err < 0)
			return err;
		XXH3_128bits_update(state, bytes, want);
	}
	return 0;
}

/* Blocks of each file, so that SAMPLES are of all files together. */
static uint64_t samples_each(const struct hoist_checkpoint *checkpoint)
{
	uint64_t each = checkpoint->n_files > 0 ? SAMPLES / checkpoint->n_files : 0;
	return each > 0 ? each : 1;
}

int hoist__checkpoint_sample(const struct hoist_checkpoint *checkpoint,
			     const struct hoist__file *file, uint64_t ret[static 2])
{
	XXH3_state_t state;
	XXH3_128bits_reset(&state);
	int err = add_samples(&state, file, samples_each(checkpoint));
	XXH128_hash_t hash = XXH3_128bits_digest(&state);
	ret[0] = hash.low64;
	ret[1] = hash.high64;
	return err;
}

/* 0 and 0, unless there is a digest of each tensor. */
static void digest_digests(const struct hoist_checkpoint *checkpoint, uint64_t ret[static 2])
{
	XXH3_state_t state;
	unsigned char digest[HOIST__DIGEST_BYTES];
	size_t t = 0;
	XXH3_128bits_reset(&state);
	while (t < checkpoint->n_tensors && hoist_checkpoint_digest(checkpoint, t, digest) == 0) {
		XXH3_128bits_update(&state, digest, sizeof digest);
		t++;
	}
	XXH128_hash_t hash = XXH3_128bits_digest(&state);
	bool all = t == checkpoint->n_tensors && t > 0;
	ret[0] = all ? hash.low64 : 0;
	ret[1] = all ? hash.high64 : 0;
}

int hoist__checkpoint_identify(const struct hoist_checkpoint *checkpoint,
			       uint64_t ret[static HOIST__CHECKPOINT_IDENTITY])
{
	XXH3_state_t state;
	int err = 0;
	if (checkpoint->shown) {
		memcpy(ret, checkpoint->identity, sizeof checkpoint->identity);
		return 0;
	}
	XXH3_128bits_reset(&state);
	for (size_t t = 0; err == 0 && t < checkpoint->n_tensors; t++) {
		hoist_tensor_info info = {.size = sizeof info};
		err = hoist_checkpoint_tensor(checkpoint, t, &info);
		if (err == 0)
			add_tensor(&state, &info);
	}
	add_metadata(&state, checkpoint);
	for (size_t f = 0; err == 0 && f < checkpoint->n_files; f++) {
		const struct hoist__file *file = checkpoint->files[f].file;
		XXH3_128bits_update(&state, &file->bytes, sizeof file->bytes);
		err = add_samples(&state, file, samples_each(checkpoint));
	}
	XXH128_hash_t hash = XXH3_128bits_digest(&state);
	ret[0] = hash.low64;
	ret[1] = hash.high64;
	digest_digests(checkpoint, ret + 2);
	return err;
}
