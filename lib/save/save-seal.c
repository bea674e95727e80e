/* SPDX-License-Identifier: MIT */
/* Seals blocks in the order of the files: makes each tensor's digest as its bytes pass.
 * The contract is in lib/save/save.h. */
#include "config.h"

/* Inlined: the library needs no xxhash library at run time. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/assert.h"
#include "base/checked.h"
#include "lib/save/save.h"

int hoist__seal_create(struct hoist_save *save)
{
	if ((save->flags & HOIST_SAVE_DIGEST) == 0)
		return 0;
	XXH3_state_t *state = XXH3_createState();
	if (state == NULL)
		return hoist__fail_nomem("a digest", sizeof *state);
	(void)XXH3_128bits_reset(state);
	save->digest = state;
	return 0;
}

void hoist__seal_destroy(struct hoist_save *save)
{
	(void)XXH3_freeState(save->digest);
	save->digest = NULL;
}

/* Ends a tensor, all of whose bytes have passed. */
static void end_tensor(struct hoist_save *save, struct hoist__save_file *file, size_t tensor)
{
	if (save->digest == NULL)
		return;
	XXH128_canonical_t canonical;
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(save->digest));
	hoist__digest_hex(canonical.digest,
			  file->digests + (tensor - file->first) * HOIST__DIGEST_HEX);
	(void)XXH3_128bits_reset(save->digest);
}

void hoist__seal_block(struct hoist_save *save, const struct hoist__save_block *block)
{
	struct hoist__save_file *file = block->file;
	const unsigned char *data = hoist__block_data(block);
	uint64_t block_end = block->begin + block->bytes;
	size_t end = file->first + file->out.n_tensors;
	HOIST__ASSERT(hoist__block_full(block));
	HOIST__ASSERT(save->seal_tensor >= file->first && save->seal_tensor <= end);
	while (save->seal_tensor < end) {
		const struct hoist__out_tensor *tensor = &save->tensors[save->seal_tensor];
		uint64_t tensor_end = tensor->offset + tensor->bytes;
		uint64_t from = hoist__max_u64(tensor->offset, block->begin);
		uint64_t to = hoist__min_u64(tensor_end, block_end);
		if (from < to && save->digest != NULL)
			(void)XXH3_128bits_update(save->digest, data + (from - block->begin),
						  (size_t)(to - from));
		if (tensor_end > block_end)
			return;
		end_tensor(save, file, save->seal_tensor++);
	}
}
