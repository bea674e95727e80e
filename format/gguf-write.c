/* SPDX-License-Identifier: MIT */
/* format/gguf-write.c - writes the header of a GGUF file, version 3.
 * The contract is in format/write.h; format/format.h describes the format.
 *
 * The pairs of the file that this one is made from are kept, types and all, except pairs that the
 * caller gives anew and pairs that are true only of the old file.  The caller's pairs are text.
 * Each tensor begins at the next multiple of the alignment, as llama.cpp expects, and the last one
 * is padded, too. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "format/gguf.h"
#include "format/little.h"
#include "format/write.h"

/* From the description of the format. */
#define MAX_KEY_BYTES 65535
#define MAX_NAME_BYTES 64
#define MAX_RANK 4

#define ALIGNMENT_KEY "general.alignment"

/* --- the pairs to write --- */

static const struct hoist__metadata *find(const struct hoist__metadata *pairs, size_t n,
					  const char *key, size_t key_bytes)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(pairs[i].key) == key_bytes && memcmp(pairs[i].key, key, key_bytes) == 0)
			return &pairs[i];
	return NULL;
}

/* True if the pair is true only of the file that holds it. */
static bool is_stale(const char *key, size_t n)
{
	static const char *const keys[] = {"split.no", "split.count", "split.tensors.count",
					   "hoist.xxh3_128"};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(keys); i++)
		if (strlen(keys[i]) == n && memcmp(keys[i], key, n) == 0)
			return true;
	return false;
}

/* True if the caller's pair is to be written.  The caller's digests are those of the new file.  The
 * new file is not in parts. */
static bool is_given(const struct hoist__metadata *pair)
{
	return strncmp(pair->key, "split.", 6) != 0 || !is_stale(pair->key, strlen(pair->key));
}

static int choose_alignment(const struct hoist__out_file *file, uint64_t *ret)
{
	const size_t n = sizeof ALIGNMENT_KEY - 1;
	const struct hoist__metadata *pair =
		find(file->metadata, file->n_metadata, ALIGNMENT_KEY, n);
	if (pair == NULL && file->like != NULL && file->like->raw_metadata != NULL)
		pair = find(file->like->metadata, file->like->n_metadata, ALIGNMENT_KEY, n);
	char where[HOIST__QUOTED_BYTES];
	char value[HOIST__QUOTED_BYTES];
	char *end;
	*ret = HOIST__GGUF_ALIGNMENT;
	if (pair == NULL)
		return 0;
	*ret = strtoull(pair->value, &end, 10);
	if (pair->value[0] >= '0' && pair->value[0] <= '9' && *end == '\0' && *ret <= UINT32_MAX &&
	    hoist__is_power_of_two(*ret))
		return 0;
	return hoist__fail(-EINVAL, "%s: " ALIGNMENT_KEY " is %s, not a power of two below 2^32",
			   hoist__file_quoted(file->name, where),
			   hoist__quoted(pair->value, strlen(pair->value), value));
}

static int check_pairs(const struct hoist__out_file *file)
{
	char where[HOIST__QUOTED_BYTES];
	for (size_t i = 0; i < file->n_metadata; i++) {
		size_t n = strlen(file->metadata[i].key);
		if (n == 0 || n > MAX_KEY_BYTES)
			return hoist__fail(-EINVAL,
					   "%s: a key of the metadata has %zu bytes; GGUF wants 1 "
					   "to %d",
					   hoist__file_quoted(file->name, where), n, MAX_KEY_BYTES);
	}
	return 0;
}

/* --- tensors --- */

static int check(const struct hoist__out_file *file, const struct hoist__out_tensor *tensor)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	char name[HOIST__QUOTED_BYTES];
	char where[HOIST__QUOTED_BYTES];
	size_t n = strlen(tensor->name);
	(void)hoist__file_quoted(file->name, where);
	(void)hoist__quoted(tensor->name, n, name);
	if (n > MAX_NAME_BYTES)
		return hoist__fail(-EINVAL,
				   "%s: the name of tensor %s has %zu bytes, and GGUF allows %d; "
				   "rename the tensor, or save as safetensors",
				   where, name, n, MAX_NAME_BYTES);
	if (info == NULL || info->gguf < 0)
		return hoist__fail(-EINVAL, "%s: tensor %s: GGUF has no dtype %s; %s", where, name,
				   info != NULL ? info->name : "(none)",
				   info != NULL && info->safetensors != NULL
					   ? "save it as safetensors"
					   : "convert it first");
	if (tensor->rank > MAX_RANK)
		return hoist__fail(-EINVAL,
				   "%s: tensor %s has %d axes, and GGUF allows %d; view it with "
				   "fewer, or save as safetensors",
				   where, name, tensor->rank, MAX_RANK);
	/* Readers count the bytes of a row in whole blocks (ggml_row_size in ggml.c). */
	int64_t row = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
	if (row % info->block_elements != 0)
		return hoist__fail(-EINVAL,
				   "%s: tensor %s: rows of %lld elements are not whole blocks of "
				   "%u, as GGUF wants them of %s",
				   where, name, (long long)row, info->block_elements, info->name);
	return 0;
}

/* Sets the offsets, counted from the beginning of the tensors' bytes. */
static int place(struct hoist__out_file *file, uint64_t alignment, uint64_t *ret_bytes)
{
	uint64_t at = 0;
	for (size_t i = 0; i < file->n_tensors; i++) {
		struct hoist__out_tensor *tensor = &file->tensors[i];
		char where[HOIST__QUOTED_BYTES];
		int err = check(file, tensor);
		if (err < 0)
			return err;
		tensor->offset = at;
		if (hoist__add_overflow(at, tensor->bytes, &at) || at > INT64_MAX / 2)
			return hoist__fail(-EOVERFLOW, "%s: its tensors have too many bytes",
					   hoist__file_quoted(file->name, where));
		at = hoist__round_up(at, alignment);
	}
	*ret_bytes = at;
	return 0;
}

/* --- writing bytes; without @bytes they are only counted --- */

struct sink {
	unsigned char *bytes;
	size_t n;
};

static void put(struct sink *sink, const void *bytes, size_t n)
{
	if (sink->bytes != NULL && n > 0)
		memcpy(sink->bytes + sink->n, bytes, n);
	sink->n += n;
}

static void put_number(struct sink *sink, unsigned n, uint64_t value)
{
	unsigned char bytes[8];
	for (unsigned i = 0; i < n; i++)
		bytes[i] = (unsigned char)(value >> 8 * i);
	put(sink, bytes, n);
}

static void put_string(struct sink *sink, const char *text)
{
	size_t n = strlen(text);
	put_number(sink, 8, n);
	put(sink, text, n);
}

/* Returns how many pairs were kept. */
static uint64_t put_kept(struct sink *sink, const struct hoist__out_file *file)
{
	const struct hoist__manifest *like = file->like;
	uint64_t kept = 0;
	size_t at = 0;
	while (like != NULL && at < like->raw_metadata_bytes) {
		const unsigned char *pair = (const unsigned char *)like->raw_metadata + at;
		const char *key = (const char *)pair + 8;
		size_t key_bytes = hoist__little(pair, 8);
		size_t bytes = hoist__gguf_pair_bytes(pair);
		at += bytes;
		if (is_stale(key, key_bytes) ||
		    find(file->metadata, file->n_metadata, key, key_bytes) != NULL)
			continue;
		put(sink, pair, bytes);
		kept++;
	}
	return kept;
}

static uint64_t put_given(struct sink *sink, const struct hoist__out_file *file, uint64_t alignment)
{
	uint64_t given = 0;
	for (size_t i = 0; i < file->n_metadata; i++) {
		const struct hoist__metadata *pair = &file->metadata[i];
		if (!is_given(pair))
			continue;
		put_string(sink, pair->key);
		if (strcmp(pair->key, ALIGNMENT_KEY) == 0) {
			put_number(sink, 4, HOIST__GGUF_U32);
			put_number(sink, 4, alignment);
		} else {
			put_number(sink, 4, HOIST__GGUF_STRING);
			put_string(sink, pair->value);
		}
		given++;
	}
	return given;
}

static void put_tensors(struct sink *sink, const struct hoist__out_file *file)
{
	for (size_t i = 0; i < file->n_tensors; i++) {
		const struct hoist__out_tensor *tensor = &file->tensors[i];
		put_string(sink, tensor->name);
		put_number(sink, 4, (uint64_t)tensor->rank);
		for (int axis = tensor->rank; axis-- > 0;)
			put_number(sink, 8, (uint64_t)tensor->shape[axis]);
		put_number(sink, 4, (uint64_t)hoist__dtype_info(tensor->dtype)->gguf);
		put_number(sink, 8, tensor->offset);
	}
}

/* The number of pairs is known only after they are written, and is put in front of them then. */
static void put_header(struct sink *sink, const struct hoist__out_file *file, uint64_t alignment)
{
	put(sink, "GGUF", 4);
	put_number(sink, 4, HOIST__GGUF_VERSION);
	put_number(sink, 8, file->n_tensors);
	struct sink count = *sink;
	put_number(sink, 8, 0);
	uint64_t n = put_kept(sink, file);
	n += put_given(sink, file, alignment);
	put_number(&count, 8, n);
	put_tensors(sink, file);
}

/* The header is made twice: first to count its bytes, then to write them. */
int hoist__gguf_write(struct hoist__out_file *file)
{
	uint64_t alignment = HOIST__GGUF_ALIGNMENT;
	uint64_t data = 0;
	int err = hoist__out_check_names(file);
	if (err == 0)
		err = check_pairs(file);
	if (err == 0)
		err = choose_alignment(file, &alignment);
	if (err == 0)
		err = place(file, alignment, &data);
	if (err < 0)
		return err;
	struct sink sink = {0};
	put_header(&sink, file, alignment);
	char where[HOIST__QUOTED_BYTES];
	if (sink.n > HOIST__GGUF_MAX_HEADER)
		return hoist__fail(-EOVERFLOW, "%s: a header of %zu bytes; at most %llu are read",
				   hoist__file_quoted(file->name, where), sink.n,
				   (unsigned long long)HOIST__GGUF_MAX_HEADER);
	uint64_t begin = hoist__round_up(sink.n, alignment);
	file->header = malloc(sink.n);
	if (file->header == NULL)
		return hoist__fail_nomem("a header", sink.n);
	file->header_bytes = sink.n;
	file->bytes = begin + data;
	sink = (struct sink){.bytes = file->header};
	put_header(&sink, file, alignment);
	for (size_t i = 0; i < file->n_tensors; i++)
		file->tensors[i].offset += begin;
	return 0;
}
