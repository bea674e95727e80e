/* SPDX-License-Identifier: MIT */
/* Makes digests of whole tensors while their bytes pass, and verifies them.
 * The contract is in lib/load/load.h.
 *
 * The expected digests are in the metadata "hoist.xxh3_128" of each file: 32 hexadecimal digits for
 * each tensor, in the order of the tensors' bytes.
 *
 * Each disk's chunks come in the order of the plan, so a tensor's bytes come in order, too.  A
 * chunk may begin before the end of the one before (`passed`).  Tensors may overlap: each has a
 * state of its own from its first byte that passes to its last. */
#include "config.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/checked.h"
#include "format/digest.h"
#include "lib/load/load.h"

struct digest {
	XXH128_canonical_t is;
	XXH3_state_t *state; /* from the tensor's first byte to its last; else NULL */
	const char *should;  /* the digits in the checkpoint's metadata; NULL: not compared */
};

/* The position that one disk's chunks have reached. */
struct passage {
	size_t first; /* the tensors before it are done, or on other disks */
	size_t file;
	uint64_t passed; /* in that file */
};

struct hoist__digests {
	struct digest *tensors; /* as the plan's */
	size_t n;
	struct passage disks[HOIST__MAX_DISKS];
};

/* --- what the checkpoint holds --- */

static int find_held(const struct hoist__checkpoint_file *shard, const char **ret)
{
	const struct hoist__manifest *manifest = shard->manifest;
	const char *text = NULL;
	for (size_t m = 0; m < manifest->n_metadata && text == NULL; m++)
		if (strcmp(manifest->metadata[m].key, HOIST__DIGEST_KEY) == 0)
			text = manifest->metadata[m].value;
	if (text == NULL)
		return hoist__fail(
			-ENODATA,
			"%s holds no digests to verify; `hoist cp --digest` makes a copy "
			"that does",
			shard->file->path);
	size_t n = strlen(text);
	if (n != manifest->n_tensors * HOIST__DIGEST_HEX || strspn(text, "0123456789abcdef") != n)
		return hoist__fail(-ENODATA,
				   "%s: metadata \"" HOIST__DIGEST_KEY
				   "\" is not %d lower-case hexadecimal digits for each of its %zu "
				   "tensors (it has %zu characters)",
				   shard->file->path, HOIST__DIGEST_HEX, manifest->n_tensors, n);
	*ret = text;
	return 0;
}

static int find_all_held(struct hoist_load *load, struct hoist__digests *digests)
{
	const char *text = NULL;
	size_t file = SIZE_MAX;
	for (size_t i = 0; i < digests->n; i++) {
		const struct hoist__checkpoint_tensor *entry = hoist__load_entry(load, i);
		const struct hoist__checkpoint_file *shard = &load->checkpoint->files[entry->file];
		int err = entry->file != file ? find_held(shard, &text) : 0;
		if (err < 0)
			return err;
		file = entry->file;
		digests->tensors[i].should =
			text +
			(size_t)(entry->tensor - shard->manifest->tensors) * HOIST__DIGEST_HEX;
	}
	return 0;
}

/* --- one tensor --- */

static int finish(struct hoist_load *load, size_t index, XXH128_hash_t hash)
{
	struct digest *digest = &load->digests->tensors[index];
	const struct hoist__checkpoint_tensor *entry = hoist__load_entry(load, index);
	char is[HOIST__DIGEST_HEX];
	XXH128_canonicalFromHash(&digest->is, hash);
	XXH3_freeState(digest->state);
	digest->state = NULL;
	hoist__digest_hex(digest->is.digest, is);
	if (digest->should == NULL || memcmp(is, digest->should, HOIST__DIGEST_HEX) == 0)
		return 0;
	return hoist__fail(-EBADMSG,
			   "tensor \"%.200s\" of %s is damaged: its digest is %.32s, and should "
			   "be %.32s",
			   entry->tensor->name, load->checkpoint->files[entry->file].file->path, is,
			   digest->should);
}

/* Adds @n bytes from @at on within the tensor.  A tensor that passes whole needs no state. */
static int update(struct hoist_load *load, size_t index, uint64_t at, const unsigned char *bytes,
		  size_t n)
{
	struct digest *digest = &load->digests->tensors[index];
	uint64_t all = hoist__load_entry(load, index)->tensor->bytes;
	HOIST__ASSERT(n != 0 && at + n <= all && (at == 0) == (digest->state == NULL));
	if (n == all)
		return finish(load, index, XXH3_128bits(bytes, n));
	if (at == 0) {
		digest->state = XXH3_createState();
		if (digest->state == NULL)
			return hoist__fail_nomem("a digest", sizeof(XXH3_state_t));
		(void)XXH3_128bits_reset(digest->state);
	}
	(void)XXH3_128bits_update(digest->state, bytes, n);
	return at + n == all ? finish(load, index, XXH3_128bits_digest(digest->state)) : 0;
}

/* --- all of them --- */

int hoist__digests_create(struct hoist_load *load)
{
	struct hoist__digests *digests = calloc(1, sizeof *digests);
	if (digests == NULL)
		return hoist__fail_nomem("digests", sizeof *digests);
	load->digests = digests;
	digests->n = load->plan.n_tensors;
	digests->tensors = calloc(digests->n > 0 ? digests->n : 1, sizeof *digests->tensors);
	if (digests->tensors == NULL)
		return hoist__fail_nomem("digests", digests->n * sizeof *digests->tensors);
	int err = 0;
	if ((load->options.flags & HOIST_LOAD_VERIFY) != 0)
		err = find_all_held(load, digests);
	for (size_t i = 0; err == 0 && i < digests->n; i++)
		if (hoist__load_entry(load, i)->tensor->bytes == 0)
			err = finish(load, i, XXH3_128bits("", 0));
	return err;
}

void hoist__digests_destroy(struct hoist__digests *digests)
{
	if (digests == NULL)
		return;
	for (size_t i = 0; digests->tensors != NULL && i < digests->n; i++)
		XXH3_freeState(digests->tensors[i].state);
	free(digests->tensors);
	free(digests);
}

/* Looks only at tensors from `first` on.  `first` moves past tensors that are over, up to the first
 * one that is not: tensors that overlap need not end in the order in which they begin. */
int hoist__digests_pass(struct hoist_load *load, const struct hoist__flight *flight)
{
	const struct hoist__chunk *chunk = &flight->chunk;
	const unsigned char *bytes = flight->address;
	struct passage *d = &load->digests->disks[flight->disk];
	size_t file = load->plan.extents[chunk->extent].file;
	HOIST__ASSERT(flight->n_open == 0 && file >= d->file);
	if (d->file != file)
		d->passed = 0;
	d->file = file;
	uint64_t from = hoist__max_u64(chunk->offset + chunk->skip, d->passed);
	uint64_t to = chunk->offset + chunk->need;
	int err = 0;
	for (size_t i = d->first; err == 0 && i < load->digests->n; i++) {
		const struct hoist__checkpoint_tensor *entry = hoist__load_entry(load, i);
		uint64_t begin = hoist__max_u64(entry->tensor->offset, from);
		uint64_t end = hoist__min_u64(entry->tensor->offset + entry->tensor->bytes, to);
		if (entry->file > file || (entry->file == file && entry->tensor->offset >= to))
			break;
		if (entry->file == file && begin < end)
			err = update(load, i, begin - entry->tensor->offset,
				     bytes + (begin - chunk->offset), (size_t)(end - begin));
		bool over =
			entry->file < file || entry->tensor->offset + entry->tensor->bytes <= to;
		d->first += over && i == d->first;
	}
	HOIST__ASSERT(d->first <= load->digests->n);
	d->passed = hoist__max_u64(d->passed, to);
	return err;
}

int hoist_load_digest(hoist_load *load, size_t index, unsigned char ret[16])
{
	if (!hoist__job_is_done(&load->job))
		return hoist__fail(-EAGAIN, "the load has not ended yet; wait for the load first");
	int err = hoist__job_outcome(&load->job);
	if (err < 0)
		return err;
	if (load->digests == NULL)
		return hoist__fail(-EINVAL, "no digests were made: load with HOIST_LOAD_DIGEST");
	if (index >= load->digests->n)
		return hoist__fail(-EINVAL, "tensor %zu was not loaded: the load has %zu", index,
				   load->digests->n);
	memcpy(ret, load->digests->tensors[index].is.digest,
	       sizeof load->digests->tensors[index].is);
	return 0;
}
