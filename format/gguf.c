/* SPDX-License-Identifier: MIT */
/* format/gguf.c - reads GGUF: the cursor over a growing header, its prefix, and the tensors.
 * The contract is in format/format.h and format/gguf.h.
 *
 * gguf-value.c reads the pairs. */
#include "config.h"

#include "format/gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/layout.h"
#include "base/utf8.h"
#include "format/little.h"

/* Enough for most headers without a tokenizer. */
#define FIRST_PIECE_BYTES (256 * (size_t)HOIST__KIB)

/* The least bytes of a tensor's description, and of a pair. */
#define MIN_TENSOR_BYTES 25
#define MIN_PAIR_BYTES 14

/* --- the cursor --- */

int hoist__gguf_fail(const struct hoist__gguf *gguf, int err, size_t at, const char *format, ...)
{
	char what[512];
	char subject[HOIST__QUOTED_BYTES] = "";
	va_list args;
	va_start(args, format);
	(void)vsnprintf(what, sizeof what, format, args);
	va_end(args);
	if (gguf->kind == NULL)
		return hoist__fail(err, "%s: %s (byte %zu)", gguf->file, what, at);
	return hoist__fail(err, "%s: %s %s: %s (byte %zu)", gguf->file, gguf->kind,
			   hoist__quoted(gguf->subject, gguf->subject_bytes, subject), what, at);
}

/* Reads on until the bytes up to @end, which is within the file, are there. */
static int fetch(struct hoist__gguf *gguf, size_t end)
{
	uint64_t most = hoist__min_u64(gguf->reader->bytes, HOIST__GGUF_MAX_HEADER);
	uint64_t wanted = hoist__max_u64(hoist__max_u64(end, 2 * gguf->n), FIRST_PIECE_BYTES);
	size_t n = hoist__min_u64(wanted, most);
	unsigned char *bytes = realloc(gguf->bytes, n);
	if (bytes == NULL)
		return hoist__fail_nomem("a header", n);
	gguf->bytes = bytes;
	int err = gguf->reader->read(gguf->reader->context, gguf->n, bytes + gguf->n, n - gguf->n);
	if (err == 0)
		gguf->n = n;
	return err;
}

int hoist__gguf_need(struct hoist__gguf *gguf, uint64_t bytes, const char *what)
{
	if (bytes <= gguf->n - gguf->at)
		return 0;
	uint64_t left = gguf->reader->bytes - gguf->at;
	if (bytes > left)
		return hoist__gguf_fail(gguf, -EBADMSG, gguf->at,
					"the file is cut short: %s needs %llu bytes, %llu are left",
					what, (unsigned long long)bytes, (unsigned long long)left);
	if (bytes > HOIST__GGUF_MAX_HEADER - gguf->at)
		return hoist__gguf_fail(gguf, -EBADMSG, gguf->at,
					"%s needs %llu bytes, and the header is then longer than "
					"%llu",
					what, (unsigned long long)bytes,
					(unsigned long long)HOIST__GGUF_MAX_HEADER);
	return fetch(gguf, gguf->at + (size_t)bytes);
}

int hoist__gguf_take(struct hoist__gguf *gguf, unsigned n, const char *what, uint64_t *ret)
{
	int err = hoist__gguf_need(gguf, n, what);
	if (err < 0)
		return err;
	*ret = hoist__little(gguf->bytes + gguf->at, n);
	gguf->at += n;
	return 0;
}

int hoist__gguf_take_name(struct hoist__gguf *gguf, const char *what, const char **ret,
			  size_t *ret_bytes)
{
	uint64_t n;
	size_t at = gguf->at;
	int err = hoist__gguf_take(gguf, 8, what, &n);
	if (err == 0)
		err = hoist__gguf_need(gguf, n, what);
	if (err < 0)
		return err;
	if (n == 0)
		return hoist__gguf_fail(gguf, -EBADMSG, at, "%s is empty", what);
	const char *text = (const char *)gguf->bytes + gguf->at;
	size_t good = hoist__utf8_text(text, n);
	if (good < n)
		return hoist__gguf_fail(gguf, -EBADMSG, gguf->at + good,
					"%s is no text in UTF-8: byte 0x%02x", what,
					(unsigned char)text[good]);
	/* A copy, since read_all() gives back the memory behind the pairs. */
	gguf->at += n;
	*ret_bytes = n;
	return hoist__arena_text(&gguf->box->arena, text, n, what, ret);
}

/* --- tensors --- */

/* The file has the innermost extent first. */
static int read_shape(struct hoist__gguf *gguf, struct hoist__tensor *tensor)
{
	uint64_t rank;
	size_t at = gguf->at;
	int err = hoist__gguf_take(gguf, 4, "the rank of a tensor", &rank);
	if (err < 0)
		return err;
	if (rank > HOIST__MAX_RANK)
		return hoist__gguf_fail(gguf, -EBADMSG, at, "rank %llu is above %d",
					(unsigned long long)rank, HOIST__MAX_RANK);
	tensor->rank = (int)rank;
	if (rank == 0)
		return 0;
	int64_t *shape = hoist__arena_alloc(&gguf->box->arena, rank * sizeof *shape, sizeof *shape);
	if (shape == NULL)
		return hoist__fail_nomem("a tensor's shape", rank * sizeof *shape);
	tensor->shape = shape;
	while (err == 0 && rank-- > 0) {
		uint64_t extent = 0;
		at = gguf->at;
		err = hoist__gguf_take(gguf, 8, "an extent of a tensor", &extent);
		if (err == 0 && extent > INT64_MAX)
			err = hoist__gguf_fail(gguf, -EBADMSG, at,
					       "the extent %llu does not fit in 63 bits",
					       (unsigned long long)extent);
		shape[rank] = (int64_t)extent;
	}
	return err;
}

/* Counts the tensor's bytes by shape and dtype. */
static int measure(struct hoist__gguf *gguf, size_t at, struct hoist__tensor *tensor)
{
	const struct hoist__dtype_info *dtype = hoist__dtype_info(tensor->dtype);
	int64_t row = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
	if (row % dtype->block_elements != 0)
		return hoist__gguf_fail(gguf, -EBADMSG, at,
					"its rows of %lld elements are not whole blocks of %u, as "
					"%s has them",
					(long long)row, dtype->block_elements, dtype->name);
	int err = hoist__tensor_bytes(tensor->dtype, tensor->rank, tensor->shape, &tensor->bytes);
	if (err == -EOVERFLOW)
		err = hoist__gguf_fail(gguf, -EBADMSG, at,
				       "its shape overflows: its elements or its bytes do not fit "
				       "in 63 bits");
	return err;
}

/* The offset is relative to the data until the end of the header is known. */
static int read_place(struct hoist__gguf *gguf, struct hoist__tensor *tensor)
{
	uint64_t type;
	size_t type_at = gguf->at;
	int err = hoist__gguf_take(gguf, 4, "the type of a tensor", &type);
	if (err < 0)
		return err;
	tensor->dtype = type <= INT32_MAX ? hoist__dtype_from_gguf((int)type) : HOIST_DTYPE_INVALID;
	if (tensor->dtype == HOIST_DTYPE_INVALID)
		return hoist__gguf_fail(gguf, -ENOTSUP, type_at,
					"its type %llu is none that is known",
					(unsigned long long)type);
	err = measure(gguf, type_at, tensor);
	size_t at = gguf->at;
	if (err == 0)
		err = hoist__gguf_take(gguf, 8, "the offset of a tensor", &tensor->offset);
	if (err == 0 && tensor->offset % gguf->alignment != 0)
		return hoist__gguf_fail(gguf, -EBADMSG, at,
					"its offset %llu is not a multiple of the alignment, %llu",
					(unsigned long long)tensor->offset,
					(unsigned long long)gguf->alignment);
	return err;
}

/* While the fields of a tensor are read, `kind` and `subject` make every message name the
 * tensor. */
static int read_tensor(struct hoist__gguf *gguf, size_t *room)
{
	struct hoist__manifest *manifest = &gguf->box->manifest;
	struct hoist__tensor tensor = {.name = NULL};
	int err = hoist__gguf_take_name(gguf, "a tensor's name", &tensor.name, &tensor.name_bytes);
	if (err < 0)
		return err;
	gguf->kind = "tensor";
	gguf->subject = tensor.name;
	gguf->subject_bytes = tensor.name_bytes;
	err = read_shape(gguf, &tensor);
	if (err == 0)
		err = read_place(gguf, &tensor);
	gguf->kind = NULL;
	if (err < 0)
		return err;
	void *tensors = manifest->tensors;
	err = hoist__vector_grow(&tensors, manifest->n_tensors, room, sizeof tensor,
				 "the list of tensors");
	manifest->tensors = tensors;
	if (err == 0)
		manifest->tensors[manifest->n_tensors++] = tensor;
	return err;
}

/* Sets where the tensors are, once the header's end is known. */
static int place_tensors(struct hoist__gguf *gguf)
{
	struct hoist__manifest *manifest = &gguf->box->manifest;
	/* A file without any data may end where its header does. */
	uint64_t file_bytes = gguf->reader->bytes;
	uint64_t data = hoist__min_u64(hoist__round_up(gguf->at, gguf->alignment), file_bytes);
	char name[HOIST__QUOTED_BYTES];
	manifest->data_offset = data;
	for (size_t i = 0; i < manifest->n_tensors; i++) {
		struct hoist__tensor *tensor = &manifest->tensors[i];
		uint64_t has = file_bytes - data;
		if (tensor->offset > has || tensor->bytes > has - tensor->offset)
			return hoist__fail(
				-EBADMSG,
				"%s: tensor %s: its %llu bytes at offset %llu end beyond the file, "
				"which holds %llu bytes of data; is it incomplete?",
				gguf->file, hoist__quoted(tensor->name, tensor->name_bytes, name),
				(unsigned long long)tensor->bytes,
				(unsigned long long)tensor->offset, (unsigned long long)has);
		tensor->offset += data;
	}
	return hoist__manifest_order(gguf->file, manifest);
}

/* --- the whole header --- */

static int check_version(const struct hoist__gguf *gguf)
{
	uint64_t version = hoist__little(gguf->bytes + 4, 4);
	if (memcmp(gguf->bytes, "FUGG", 4) == 0 || (version != 0 && version % 65536 == 0))
		return hoist__gguf_fail(gguf, -ENOTSUP, 4,
					"a big-endian GGUF file, which is not read; llama.cpp's "
					"gguf_convert_endian.py makes it little-endian");
	if (version == 1)
		return hoist__gguf_fail(gguf, -ENOTSUP, 4,
					"version 1 of GGUF, whose counts have 32 bits; versions 2 "
					"and 3 are read: convert the model again");
	if (version == 0 || version > HOIST__GGUF_VERSION)
		return hoist__gguf_fail(gguf, version == 0 ? -EBADMSG : -ENOTSUP, 4,
					"version %llu of GGUF; versions 2 and 3 are read",
					(unsigned long long)version);
	return 0;
}

/* Checks that @n items of at least @least bytes fit into the rest of the file. */
static int check_count(const struct hoist__gguf *gguf, size_t at, uint64_t n, uint64_t least,
		       const char *what)
{
	uint64_t left = gguf->reader->bytes - gguf->at;
	if (n <= left / least)
		return 0;
	return hoist__gguf_fail(gguf, -EBADMSG, at,
				"the header says that there are %llu %s, but %llu bytes are left "
				"for them",
				(unsigned long long)n, what, (unsigned long long)left);
}

static int read_all(struct hoist__gguf *gguf)
{
	int err = hoist__gguf_need(gguf, HOIST__GGUF_PREFIX_BYTES, "the beginning");
	if (err == 0)
		err = check_version(gguf);
	if (err < 0)
		return err;
	uint64_t n_tensors = hoist__little(gguf->bytes + 8, 8);
	uint64_t n_pairs = hoist__little(gguf->bytes + 16, 8);
	gguf->at = HOIST__GGUF_PREFIX_BYTES;
	/* A count that the rest of the file cannot hold is refused before the loops, so that a
	 * wrong header costs no time and no memory. */
	err = check_count(gguf, 8, n_tensors, MIN_TENSOR_BYTES, "tensors");
	if (err == 0)
		err = check_count(gguf, 16, n_pairs, MIN_PAIR_BYTES, "pairs of metadata");
	if (err == 0)
		err = hoist__gguf_pairs(gguf, n_pairs);
	size_t pairs_end = gguf->at;
	size_t room = 0;
	for (uint64_t i = 0; err == 0 && i < n_tensors; i++)
		err = read_tensor(gguf, &room);
	if (err == 0)
		err = place_tensors(gguf);
	if (err < 0 || n_pairs == 0)
		return err;
	/* The pairs are kept for writers; the memory behind them is given back. */
	struct hoist__manifest *manifest = &gguf->box->manifest;
	unsigned char *kept = realloc(gguf->bytes, pairs_end);
	gguf->box->raw = kept != NULL ? kept : gguf->bytes;
	gguf->bytes = NULL;
	manifest->raw_metadata = (unsigned char *)gguf->box->raw + HOIST__GGUF_PREFIX_BYTES;
	manifest->raw_metadata_bytes = pairs_end - HOIST__GGUF_PREFIX_BYTES;
	manifest->n_raw_metadata = n_pairs;
	return 0;
}

int hoist__gguf_parse(const struct hoist__reader *reader, struct hoist__manifest **ret)
{
	struct hoist__gguf gguf = {
		.reader = reader,
		.alignment = HOIST__GGUF_ALIGNMENT,
		.box = hoist__manifest_create(),
	};
	if (gguf.box == NULL)
		return -ENOMEM;
	(void)hoist__file_quoted(reader->name, gguf.file);
	int err = read_all(&gguf);
	free(gguf.bytes);
	if (err < 0)
		hoist__manifest_destroy(&gguf.box->manifest);
	else
		*ret = &gguf.box->manifest;
	return err;
}
