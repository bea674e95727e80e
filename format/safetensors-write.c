/* SPDX-License-Identifier: MIT */
/* format/safetensors-write.c - writes the header of a safetensors file.
 * The contract is in format/write.h; format/format.h describes the format.
 *
 * Tensors follow each other without a gap, as the format demands, in the order given.  Spaces
 * behind the JSON make the bytes begin at a multiple of a page.  So tensors at a multiple of a page
 * can be read directly to their place, and mapped as they are.  In small files the bytes begin at a
 * multiple of 8. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/blocks.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "format/json-write.h"
#include "format/quote.h"
#include "format/write.h"

#define PREFIX 8
#define METADATA "__metadata__"
#define PAGE_FROM_BYTES ((uint64_t)1 << 20)

static int check(const struct hoist__out_file *file, const struct hoist__out_tensor *tensor)
{
	char name[HOIST__QUOTED_BYTES];
	char where[HOIST__QUOTED_BYTES];
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	hoist__file_quoted(file->name, where);
	hoist__quoted(tensor->name, strlen(tensor->name), name);
	if (strcmp(tensor->name, METADATA) == 0)
		return hoist__fail(
			-EINVAL,
			"%s: no tensor of a safetensors file can be called %s; rename the tensor",
			where, METADATA);
	if (info == NULL || info->safetensors == NULL)
		return hoist__fail(-EINVAL, "%s: tensor %s: safetensors has no dtype %s; %s", where,
				   name, info != NULL ? info->name : "(none)",
				   info == NULL || info->gguf < 0 ? "convert it first"
				   : hoist__blocks_are_known(info->dtype)
					   ? "dequantise it (--dtype, hoist_save_tensor.dtype), or "
					     "save it as gguf"
					   : "save it as gguf");
	uint64_t elements = 1;
	for (int i = 0; i < tensor->rank; i++)
		if (hoist__mul_overflow(elements, (uint64_t)tensor->shape[i], &elements))
			return hoist__fail(-EOVERFLOW, "%s: tensor %s has too many elements", where,
					   name);
	/* The remainder of the bits, computed so that no product overflows. */
	if (elements % 8 * info->bits % 8 != 0)
		return hoist__fail(-EINVAL,
				   "%s: tensor %s: %" PRIu64 " elements of %s are no whole bytes, "
				   "which safetensors wants",
				   where, name, elements, info->name);
	return 0;
}

static void put_metadata(struct hoist__json_text *json, const struct hoist__out_file *file)
{
	hoist__json_put_string(json, METADATA);
	hoist__json_printf(json, ":{");
	for (size_t i = 0; i < file->n_metadata; i++) {
		if (i > 0)
			hoist__json_printf(json, ",");
		hoist__json_put_string(json, file->metadata[i].key);
		hoist__json_printf(json, ":");
		hoist__json_put_string(json, file->metadata[i].value);
	}
	hoist__json_printf(json, "}");
}

static void put_tensor(struct hoist__json_text *json, const struct hoist__out_tensor *tensor)
{
	hoist__json_put_string(json, tensor->name);
	hoist__json_printf(json, ":{\"dtype\":\"%s\",\"shape\":[",
			   hoist__dtype_info(tensor->dtype)->safetensors);
	for (int i = 0; i < tensor->rank; i++)
		hoist__json_printf(json, "%s%" PRId64, i > 0 ? "," : "", tensor->shape[i]);
	hoist__json_printf(json, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", tensor->offset,
			   tensor->offset + tensor->bytes);
}

/* Sets the offsets, counted from the beginning of the tensors' bytes. */
static int place(struct hoist__out_file *file, uint64_t *ret_bytes)
{
	uint64_t at = 0;
	for (size_t i = 0; i < file->n_tensors; i++) {
		int err = check(file, &file->tensors[i]);
		if (err < 0)
			return err;
		file->tensors[i].offset = at;
		if (hoist__add_overflow(at, file->tensors[i].bytes, &at) || at > INT64_MAX / 2)
			return hoist__fail(-EOVERFLOW, "%s: its tensors have too many bytes",
					   file->name);
	}
	*ret_bytes = at;
	return 0;
}

static int finish(struct hoist__out_file *file, struct hoist__json_text *json, uint64_t data)
{
	uint64_t align = data >= PAGE_FROM_BYTES ? 4096 : 8;
	while (json->bytes % align != 0 && json->err == 0)
		hoist__json_put(json, " ", 1);
	if (json->err < 0)
		return json->err;
	uint64_t n = json->bytes - PREFIX;
	if (n > HOIST__SAFETENSORS_MAX_HEADER)
		return hoist__fail(-EOVERFLOW,
				   "%s: a header of %" PRIu64 " bytes, but safetensors allows "
				   "%" PRIu64 "; save fewer tensors in a file (shards)",
				   file->name, n, HOIST__SAFETENSORS_MAX_HEADER);
	for (unsigned i = 0; i < PREFIX; i++)
		json->text[i] = (char)(unsigned char)(n >> (8 * i));
	for (size_t i = 0; i < file->n_tensors; i++)
		file->tensors[i].offset += json->bytes;
	file->header = (unsigned char *)json->text;
	file->header_bytes = json->bytes;
	file->bytes = json->bytes + data;
	return 0;
}

int hoist__safetensors_write(struct hoist__out_file *file)
{
	uint64_t data = 0;
	int err = hoist__out_check_names(file);
	if (err == 0)
		err = place(file, &data);
	if (err < 0)
		return err;
	struct hoist__json_text json = {0};
	/* finish() writes the length of the header over these bytes. */
	hoist__json_put(&json, "\0\0\0\0\0\0\0", PREFIX);
	hoist__json_printf(&json, "{");
	if (file->n_metadata > 0)
		put_metadata(&json, file);
	for (size_t i = 0; i < file->n_tensors; i++) {
		if (i > 0 || file->n_metadata > 0)
			hoist__json_printf(&json, ",");
		put_tensor(&json, &file->tensors[i]);
	}
	hoist__json_printf(&json, "}");
	err = finish(file, &json, data);
	if (err < 0)
		free(json.text);
	return err;
}
