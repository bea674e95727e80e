/* SPDX-License-Identifier: MIT */
/* format/max-write.c - writes the header of a .max file.
 * The contract is in format/write.h; format/format.h describes the format.
 *
 * Offsets are absolute, so that tensors can be aligned: the first to a page if they are large, each
 * to a cache line.  The file has no place for metadata. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "format/quote.h"
#include "format/write.h"

#define MINOR 1
#define TENSOR_ALIGN 64
#define PAGE_FROM_BYTES HOIST__MIB

static int check(const struct hoist__out_file *file, const struct hoist__out_tensor *tensor)
{
	char name[HOIST__QUOTED_BYTES];
	char where[HOIST__QUOTED_BYTES];
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	(void)hoist__file_quoted(file->name, where);
	(void)hoist__quoted(tensor->name, strlen(tensor->name), name);
	if (info == NULL || info->max_code < 0)
		return hoist__fail(-EINVAL, "%s: tensor %s: MAX has no dtype %s; save it as %s",
				   where, name, info != NULL ? info->name : "(none)",
				   info != NULL && info->kind == HOIST_KIND_BLOCK ? "gguf"
				   : info != NULL && info->safetensors == NULL	  ? "npy"
										  : "safetensors");
	for (int i = 0; i < tensor->rank; i++)
		if (tensor->shape[i] > (int64_t)UINT32_MAX)
			return hoist__fail(-EINVAL,
					   "%s: tensor %s: axis %d has the extent %lld, and .max "
					   "has 32 bits for it; save it as safetensors",
					   where, name, i, (long long)tensor->shape[i]);
	return 0;
}

/* Counts the bytes of all entries. */
static int measure(const struct hoist__out_file *file, uint64_t *ret)
{
	char where[HOIST__QUOTED_BYTES];
	uint64_t bytes = 0;
	for (size_t i = 0; i < file->n_tensors; i++) {
		const struct hoist__out_tensor *tensor = &file->tensors[i];
		int err = check(file, tensor);
		if (err < 0)
			return err;
		bytes += 4 + strlen(tensor->name) + 2 + 4 * (uint64_t)tensor->rank + 8;
	}
	if (bytes > HOIST__SAFETENSORS_MAX_HEADER)
		return hoist__fail(-EINVAL,
				   "%s: %zu tensors make a header of %llu bytes, and %llu are the "
				   "most; save them in several files",
				   hoist__file_quoted(file->name, where), file->n_tensors,
				   (unsigned long long)bytes,
				   (unsigned long long)HOIST__SAFETENSORS_MAX_HEADER);
	*ret = bytes;
	return 0;
}

/* Sets where each tensor begins; *ret is the end of the last one. */
static int place(struct hoist__out_file *file, uint64_t header_bytes, uint64_t *ret)
{
	char where[HOIST__QUOTED_BYTES];
	uint64_t data = 0;
	uint64_t at = header_bytes;
	for (size_t i = 0; i < file->n_tensors; i++)
		if (hoist__add_overflow(data, file->tensors[i].bytes, &data) ||
		    data > INT64_MAX / 2)
			return hoist__fail(-EOVERFLOW, "%s: its tensors have too many bytes",
					   hoist__file_quoted(file->name, where));
	if (data >= PAGE_FROM_BYTES)
		at = hoist__round_up(at, 4096);
	for (size_t i = 0; i < file->n_tensors; i++) {
		at = hoist__round_up(at, TENSOR_ALIGN);
		file->tensors[i].offset = at;
		at += file->tensors[i].bytes;
	}
	*ret = at;
	return 0;
}

static unsigned char *put(unsigned char *to, uint64_t value, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		*to++ = (unsigned char)(value >> (8 * i));
	return to;
}

static void put_entries(const struct hoist__out_file *file, unsigned char *to)
{
	for (size_t i = 0; i < file->n_tensors; i++) {
		const struct hoist__out_tensor *tensor = &file->tensors[i];
		size_t n = strlen(tensor->name);
		to = put(to, n, 4);
		memcpy(to, tensor->name, n);
		to = put(to + n, (uint64_t)hoist__dtype_info(tensor->dtype)->max_code, 1);
		to = put(to, (uint64_t)tensor->rank, 1);
		for (int k = 0; k < tensor->rank; k++)
			to = put(to, (uint64_t)tensor->shape[k], 4);
		to = put(to, tensor->offset, 8);
	}
}

int hoist__max_write(struct hoist__out_file *file)
{
	static const unsigned char magic[8] = {0x93, 0xf0, 0x9f, 0x94, 0xa5, 0x2b, 0x2b, 0x93};
	uint64_t entries = 0;
	uint64_t bytes = 0;
	int err = hoist__out_check_names(file);
	if (err == 0)
		err = measure(file, &entries);
	if (err == 0)
		err = place(file, HOIST__MAX_FILE_PREFIX + entries, &bytes);
	if (err < 0)
		return err;
	size_t whole = HOIST__MAX_FILE_PREFIX + (size_t)entries;
	unsigned char *header = malloc(whole);
	if (header == NULL)
		return hoist__fail_nomem("a header", whole);
	memcpy(header, magic, sizeof magic);
	(void)put(header + 8, 0, 4);
	(void)put(header + 12, MINOR, 4);
	(void)put(header + 16, entries, 8);
	put_entries(file, header + HOIST__MAX_FILE_PREFIX);
	file->header = header;
	file->header_bytes = whole;
	file->bytes = bytes;
	return 0;
}
