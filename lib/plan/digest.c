/* SPDX-License-Identifier: MIT */
/* Makes digests of whole tensors while their bytes pass, and verifies them.
 * The contract is in lib/plan/digest.h. */
#include "config.h"

#include "lib/plan/digest.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "format/digest.h"
#include "io/disks.h"

struct digest {
	XXH128_canonical_t is;
	XXH3_state_t *state; /* from the tensor's first byte to its last; else NULL */
	const char *should;  /* the digits in the checkpoint's metadata; NULL: not compared */
	uint32_t tier;
};

/* The position that one disk's chunks have reached. */
struct passage {
	size_t n_extents; /* up to that of the last chunk */
	size_t first;	  /* the tensors before it are done, or not of this extent */
	size_t file;
	uint32_t tier;
	uint64_t passed; /* in that file and tier */
};

/* Bytes of a mapped chunk are read in pieces of this size, which fit in a core's cache. */
#define SCRATCH_BYTES ((size_t)256 << 10)

struct hoist__digests {
	const hoist_checkpoint *checkpoint;
	const struct hoist__plan *plan;
	struct digest *tensors;
	size_t *which; /* the tensors that any target has: indices in the checkpoint, ascending */
	size_t n;
	struct passage disks[HOIST__MAX_DISKS];
	const struct hoist__checkpoint_tensor *damaged;
	unsigned char *scratch; /* SCRATCH_BYTES; NULL: no chunk was mapped yet */
};

static const struct hoist__checkpoint_tensor *entry_of(const struct hoist__digests *digests,
						       size_t index)
{
	return &digests->checkpoint->tensors[digests->which[index]];
}

/* --- what the checkpoint holds --- */

static int find_all_held(struct hoist__digests *digests)
{
	int err = 0;
	for (size_t i = 0; err == 0 && i < digests->n; i++) {
		const struct hoist__checkpoint_tensor *entry = entry_of(digests, i);
		err = hoist__checkpoint_file_digest(&digests->checkpoint->files[entry->file],
						    entry->tensor, &digests->tensors[i].should);
	}
	return err;
}

/* --- one tensor --- */

static int finish(struct hoist__digests *digests, size_t index, XXH128_hash_t hash)
{
	struct digest *digest = &digests->tensors[index];
	const struct hoist__checkpoint_tensor *entry = entry_of(digests, index);
	char is[HOIST__DIGEST_HEX];
	XXH128_canonicalFromHash(&digest->is, hash);
	XXH3_freeState(digest->state);
	digest->state = NULL;
	hoist__digest_hex(digest->is.digest, is);
	if (digest->should == NULL || memcmp(is, digest->should, HOIST__DIGEST_HEX) == 0)
		return 0;
	digests->damaged = entry;
	return hoist__fail(-EBADMSG,
			   "tensor \"%.200s\" of %s is damaged: its digest is %.32s, and should "
			   "be %.32s",
			   entry->tensor->name, digests->checkpoint->files[entry->file].file->path,
			   is, digest->should);
}

/* Adds @n bytes from @at on within the tensor.  A tensor that passes whole needs no state. */
static int update(struct hoist__digests *digests, size_t index, uint64_t at,
		  const unsigned char *bytes, size_t n)
{
	struct digest *digest = &digests->tensors[index];
	uint64_t all = entry_of(digests, index)->tensor->bytes;
	HOIST__ASSERT(n != 0 && at + n <= all && (at == 0) == (digest->state == NULL));
	if (n == all)
		return finish(digests, index, XXH3_128bits(bytes, n));
	if (at == 0) {
		digest->state = XXH3_createState();
		if (digest->state == NULL)
			return hoist__fail_nomem("a digest", sizeof(XXH3_state_t));
		(void)XXH3_128bits_reset(digest->state);
	}
	(void)XXH3_128bits_update(digest->state, bytes, n);
	return at + n == all ? finish(digests, index, XXH3_128bits_digest(digest->state)) : 0;
}

/* --- all of them --- */

/* Lists the tensors that any target has, each once. */
static int list_tensors(struct hoist__digests *digests)
{
	const struct hoist__plan *plan = digests->plan;
	size_t most = digests->checkpoint->n_tensors;
	const struct hoist__plan_tensor **wanted = calloc(most > 0 ? most : 1, sizeof *wanted);
	digests->which = calloc(most > 0 ? most : 1, sizeof *digests->which);
	digests->tensors = calloc(most > 0 ? most : 1, sizeof *digests->tensors);
	int err = wanted != NULL && digests->which != NULL && digests->tensors != NULL
			  ? 0
			  : hoist__fail_nomem("digests", most * sizeof *digests->tensors);
	for (size_t i = 0; err == 0 && i < plan->n_tensors; i++)
		wanted[plan->tensors[i].index] = &plan->tensors[i];
	for (size_t t = 0; err == 0 && t < most; t++)
		if (wanted[t] != NULL) {
			digests->tensors[digests->n].tier = wanted[t]->tier;
			digests->which[digests->n++] = t;
		}
	free(wanted);
	return err;
}

int hoist__digests_create(const hoist_checkpoint *checkpoint, const struct hoist__plan *plan,
			  bool verify, struct hoist__digests **ret)
{
	struct hoist__digests *digests = calloc(1, sizeof *digests);
	if (digests == NULL)
		return hoist__fail_nomem("digests", sizeof *digests);
	digests->checkpoint = checkpoint;
	digests->plan = plan;
	int err = list_tensors(digests);
	if (err == 0 && verify)
		err = find_all_held(digests);
	for (size_t i = 0; err == 0 && i < digests->n; i++)
		if (entry_of(digests, i)->tensor->bytes == 0)
			err = finish(digests, i, XXH3_128bits("", 0));
	if (err < 0) {
		hoist__digests_destroy(digests);
		return err;
	}
	*ret = digests;
	return 0;
}

void hoist__digests_destroy(struct hoist__digests *digests)
{
	if (digests == NULL)
		return;
	for (size_t i = 0; digests->tensors != NULL && i < digests->n; i++)
		XXH3_freeState(digests->tensors[i].state);
	free(digests->tensors);
	free(digests->which);
	free(digests->scratch);
	free(digests);
}

/* The first digest of a tensor that begins at or behind that byte. */
static size_t find_first(const struct hoist__digests *digests, size_t file, uint64_t offset)
{
	size_t low = 0;
	size_t high = digests->n;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct hoist__checkpoint_tensor *entry = entry_of(digests, middle);
		if (entry->file < file || (entry->file == file && entry->tensor->offset < offset))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Extents come in the order of the files within a tier, and each begins with its first tensor. */
static void enter(const struct hoist__digests *digests, const struct hoist__plan_extent *extent,
		  struct passage *d)
{
	if (d->file != extent->file || d->tier != extent->tier)
		d->passed = 0;
	d->file = extent->file;
	d->tier = extent->tier;
	d->first = find_first(digests, extent->file, extent->begin);
}

/* Looks only at tensors from `first` on.  `first` moves past tensors that are over, up to the first
 * one that is not: tensors that overlap need not end in the order in which they begin. */
static int pass(struct hoist__digests *digests, unsigned disk, const struct hoist__chunk *chunk,
		const unsigned char *bytes)
{
	struct passage *d = &digests->disks[disk];
	const struct hoist__plan_extent *extent = &digests->plan->extents[chunk->extent];
	size_t file = extent->file;
	if (d->n_extents != chunk->extent + 1 && !extent->goes_on)
		enter(digests, extent, d);
	d->n_extents = chunk->extent + 1;
	HOIST__ASSERT(file == d->file && extent->tier == d->tier);
	uint64_t from = hoist__max_u64(chunk->offset + chunk->skip, d->passed);
	uint64_t to = chunk->offset + chunk->need;
	int err = 0;
	for (size_t i = d->first; err == 0 && i < digests->n; i++) {
		const struct hoist__checkpoint_tensor *entry = entry_of(digests, i);
		uint64_t begin = hoist__max_u64(entry->tensor->offset, from);
		uint64_t end = hoist__min_u64(entry->tensor->offset + entry->tensor->bytes, to);
		if (entry->file > file || (entry->file == file && entry->tensor->offset >= to))
			break;
		if (entry->file == file && begin < end && digests->tensors[i].tier == extent->tier)
			err = update(digests, i, begin - entry->tensor->offset,
				     bytes + (begin - chunk->offset), (size_t)(end - begin));
		bool over =
			entry->file < file || entry->tensor->offset + entry->tensor->bytes <= to;
		d->first += over && i == d->first;
	}
	HOIST__ASSERT(d->first <= digests->n);
	d->passed = hoist__max_u64(d->passed, to);
	return err;
}

/* Reads the chunk's bytes again, as a file that shrinks makes reads fail, and touches fault. */
static int pass_mapped(struct hoist__digests *digests, unsigned disk,
		       const struct hoist__chunk *chunk)
{
	size_t file = digests->plan->extents[chunk->extent].file;
	int err = 0;
	if (digests->scratch == NULL)
		digests->scratch = malloc(SCRATCH_BYTES);
	if (digests->scratch == NULL)
		return hoist__fail_nomem("digests", SCRATCH_BYTES);
	for (size_t at = 0; err == 0 && at < chunk->need; at += SCRATCH_BYTES) {
		struct hoist__chunk part = *chunk;
		part.offset += at;
		part.need = (size_t)hoist__min_u64(chunk->need - at, SCRATCH_BYTES);
		part.skip = at == 0 ? chunk->skip : 0;
		err = hoist__file_read(digests->checkpoint->files[file].file, part.offset,
				       digests->scratch, part.need);
		if (err == 0)
			err = pass(digests, disk, &part, digests->scratch);
	}
	return err;
}

int hoist__digests_pass(struct hoist__digests *digests, unsigned disk,
			const struct hoist__chunk *chunk, const unsigned char *bytes)
{
	return bytes == NULL ? pass_mapped(digests, disk, chunk)
			     : pass(digests, disk, chunk, bytes);
}

const struct hoist__checkpoint_tensor *hoist__digests_damaged(const struct hoist__digests *digests)
{
	return digests->damaged;
}

static int compare_index(const void *a, const void *b)
{
	size_t first = *(const size_t *)a;
	size_t second = *(const size_t *)b;
	return (first > second) - (first < second);
}

void hoist__digests_get(const struct hoist__digests *digests, size_t index, unsigned char ret[16])
{
	const size_t *found =
		bsearch(&index, digests->which, digests->n, sizeof *digests->which, compare_index);
	HOIST__ASSERT(found != NULL);
	memcpy(ret, digests->tensors[found - digests->which].is.digest, sizeof(XXH128_canonical_t));
}
