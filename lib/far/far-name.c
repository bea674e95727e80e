/* SPDX-License-Identifier: MIT */
/* A group's name and secret, and the identity of its checkpoint.
 * The contract is in lib/far/far.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/wait.h"
#include "format/digest.h"
#include "lib/far/far.h"
#include "net/secret.h"

#define MOST_TIMEOUT_NS ((uint64_t)INT64_MAX) /* a point in time behind it is a number, too */
#define SAMPLES 64u			      /* of all files together, at least one of each, */
#define SAMPLE_BYTES ((size_t)4096)

/* --- the name --- */

static int fail_name(const char *name)
{
	return hoist__fail(-EINVAL,
			   "\"%.80s\" names no group: a group is tcp://HOST:PORT/NAME, as in "
			   "tcp://10.0.0.1:7000/llama, where NAME has 1 to %u bytes",
			   name, HOIST__FAR_NAME_BYTES - 1);
}

static int split_name(struct hoist__far *far, const char *name)
{
	const char *door = name + strlen(HOIST__FAR_SCHEME);
	const char *slash = strchr(door, '/');
	size_t n = slash != NULL ? strlen(slash + 1) : 0;
	if (slash == NULL || slash == door || n == 0 || n >= HOIST__FAR_NAME_BYTES)
		return fail_name(name);
	far->door_text = strndup(door, (size_t)(slash - door));
	far->name = strdup(slash + 1);
	if (far->door_text == NULL || far->name == NULL)
		return hoist__fail_nomem("a group's name", n);
	int found = hoist__address_find(far->door_text, false, far->door,
					sizeof far->door / sizeof far->door[0]);
	if (found < 0)
		return found;
	far->n_doors = (unsigned)found;
	return 0;
}

/* The user's own secret is good for this machine alone. */
static int check_secret(const struct hoist__far *far)
{
	for (unsigned i = 0; far->secret.local && i < far->n_doors; i++)
		if (!hoist__address_loopback(&far->door[i]))
			return hoist__fail(-EACCES,
					   "the group at %s needs a secret: give all members the "
					   "same in HOIST_GROUP_SECRET_FILE or HOIST_GROUP_SECRET; "
					   "without one, only members on one machine meet, at "
					   "localhost",
					   far->door_text);
	return 0;
}

int hoist__far_make(const hoist_group *group, struct hoist__load_source **ret)
{
	struct hoist__far *far = calloc(1, sizeof *far);
	if (far == NULL)
		return hoist__fail_nomem("a member of a group", sizeof *far);
	far->source.ops = &hoist__far_ops;
	far->n_ranks = group->n_ranks;
	far->reads = true;
	far->listen_fd = far->folder_fd = far->bell = far->shared_fd = -1;
	for (unsigned i = 0; i < HOIST__FAR_DOORS; i++)
		far->door_fd[i] = -1;
	far->timeout_ns = group->timeout_ns < MOST_TIMEOUT_NS ? group->timeout_ns : MOST_TIMEOUT_NS;
	far->report.note = far->note;
	far->report.damage = far->account.damage;
	far->report.way = far->account.way;
	pthread_mutex_init(&far->lock, NULL);
	int err = hoist__condition_init(&far->changed);
	if (err < 0) {
		pthread_mutex_destroy(&far->lock);
		free(far);
		return hoist__fail_errno(-ENOMEM, "a group's condition");
	}
	bool folder = strncmp(group->name, HOIST__FAR_FOLDER_SCHEME,
			      strlen(HOIST__FAR_FOLDER_SCHEME)) == 0;
	err = folder ? hoist__far_split_folder(far, group->name) : split_name(far, group->name);
	if (err == 0)
		err = hoist__secret_find(group->secret, &far->secret);
	if (err == 0)
		err = folder ? hoist__far_own_doors(far) : check_secret(far);
	while (err == 0 && far->id == 0)
		hoist__secret_random(&far->id, sizeof far->id);
	if (err < 0)
		far->source.ops->destroy(&far->source);
	else
		*ret = &far->source;
	return err;
}

/* --- the checkpoint --- */

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

int hoist__far_identify(const struct hoist_checkpoint *checkpoint,
			uint64_t ret[static HOIST__CHECKPOINT_IDENTITY])
{
	XXH3_state_t state;
	int err = 0;
	if (checkpoint->absent) {
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
	uint64_t each = checkpoint->n_files > 0 ? SAMPLES / checkpoint->n_files : 0;
	for (size_t f = 0; err == 0 && f < checkpoint->n_files; f++) {
		const struct hoist__file *file = checkpoint->files[f].file;
		XXH3_128bits_update(&state, &file->bytes, sizeof file->bytes);
		err = add_samples(&state, file, each > 0 ? each : 1);
	}
	XXH128_hash_t hash = XXH3_128bits_digest(&state);
	ret[0] = hash.low64;
	ret[1] = hash.high64;
	digest_digests(checkpoint, ret + 2);
	return err;
}

int hoist__far_compare_files(const struct hoist__far *far, const struct hoist__far_peer *peer,
			     const struct hoist__far_message *hello)
{
	const uint64_t *ours = far->identity;
	const uint64_t *theirs = hello->identity;
	struct hoist__address at = peer->at;
	hoist__address_set_port(&at, hello->port);
	if (hello->n_cells != far->cells.n || ours[0] != theirs[0] || ours[1] != theirs[1])
		return hoist__fail(-EINVAL,
				   "the member at %s has other files: all members of a group must "
				   "see the same checkpoint, byte for byte",
				   at.text);
	if ((ours[2] | ours[3]) == 0 || (theirs[2] | theirs[3]) == 0 ||
	    (ours[2] == theirs[2] && ours[3] == theirs[3]))
		return 0;
	return hoist__fail(
		-EINVAL,
		"the member at %s has other bytes in its tensors, as digests show: give "
		"all machines the same files (`hoist digest` tells which tensors differ)",
		at.text);
}
