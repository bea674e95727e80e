/* SPDX-License-Identifier: MIT */
/* format/max.c - reads the header of a .max file.
 * The contract is in format/format.h.
 *
 * One walk reads the entries.  Then ranges are compared in order of offset, and names in order of
 * name.  Numbers are little-endian, as on all hosts that write such files. */
#include "config.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/layout.h"
#include "base/utf8.h"
#include "format/format.h"
#include "format/little.h"
#include "format/manifest.h"
#include "format/quote.h"
#include "hoist/mmap.h"

static const unsigned char magic[8] = {0x93, 0xf0, 0x9f, 0x94, 0xa5, 0x2b, 0x2b, 0x93};
/* The first bytes of the earlier format, of one tensor. */
static const unsigned char old_magic[6] = {0x93, 0xf0, 0x9f, 0x94, 0xa5, 0x93};

#define MAX_MAJOR 0

struct reader {
	const char *file; /* quoted */
	const unsigned char *bytes;
	size_t n;  /* of the header */
	size_t at; /* the next byte */
	struct hoist__manifest_box *box;
	size_t room;
};

bool hoist__max_is(const void *prefix, size_t n_prefix)
{
	return n_prefix >= sizeof magic && memcmp(prefix, magic, sizeof magic) == 0;
}

/* The caller allocates as many bytes as this returns, so a hostile length must fail here. */
int hoist__max_header_bytes(const char *file, const void *prefix, size_t n_prefix,
			    uint64_t file_bytes, size_t *ret)
{
	char name[HOIST__QUOTED_BYTES];
	const unsigned char *bytes = prefix;
	(void)hoist__file_quoted(file, name);
	if (n_prefix >= sizeof old_magic && memcmp(bytes, old_magic, sizeof old_magic) == 0)
		return hoist__fail(-EBADMSG,
				   "%s: a .max file of the format before this one, of one tensor "
				   "without a header (byte 5)",
				   name);
	if (!hoist__max_is(prefix, n_prefix))
		return hoist__fail(-EBADMSG,
				   "%s: not a .max file: the file begins with other bytes (byte "
				   "0); a file of bytes alone can be mapped (hoist_buffer_mmap)",
				   name);
	if (n_prefix < HOIST__MAX_FILE_PREFIX || file_bytes < HOIST__MAX_FILE_PREFIX)
		return hoist__fail(-EBADMSG, "%s: the header is cut short: %llu bytes of %d", name,
				   (unsigned long long)hoist__min_u64(n_prefix, file_bytes),
				   HOIST__MAX_FILE_PREFIX);
	uint64_t major = hoist__little(bytes + 8, 4);
	uint64_t metadata = hoist__little(bytes + 16, 8);
	if (major > MAX_MAJOR)
		return hoist__fail(-EBADMSG,
				   "%s: version %llu of the format; versions up to %d are known "
				   "(byte 8)",
				   name, (unsigned long long)major, MAX_MAJOR);
	if (metadata > file_bytes - HOIST__MAX_FILE_PREFIX ||
	    metadata > HOIST__SAFETENSORS_MAX_HEADER)
		return hoist__fail(
			-EBADMSG,
			"%s: the header says that its entries have %llu bytes; behind it "
			"are %llu, and %llu are the most (byte 16)",
			name, (unsigned long long)metadata,
			(unsigned long long)(file_bytes - HOIST__MAX_FILE_PREFIX),
			(unsigned long long)HOIST__SAFETENSORS_MAX_HEADER);
	*ret = HOIST__MAX_FILE_PREFIX + (size_t)metadata;
	return 0;
}

/* --- one entry --- */

/* Returns the next @n bytes; NULL, with the text, if the header ends before. */
static const unsigned char *take(struct reader *r, size_t n, const char *what)
{
	if (n > r->n - r->at) {
		(void)hoist__fail(-EBADMSG,
				  "%s: the header is cut short: %s needs %zu bytes, %zu are left "
				  "(byte %zu)",
				  r->file, what, n, r->n - r->at, r->at);
		return NULL;
	}
	const unsigned char *bytes = r->bytes + r->at;
	r->at += n;
	return bytes;
}

/* MAX's reader ignores keys; a tensor without one is called "buffer". */
static int read_name(struct reader *r, struct hoist__tensor *tensor)
{
	size_t at = r->at;
	const unsigned char *count = take(r, 4, "the length of a key");
	size_t n = count != NULL ? (size_t)hoist__little(count, 4) : 0;
	const char *key = count != NULL ? (const char *)take(r, n, "a key") : NULL;
	if (key == NULL)
		return -EBADMSG;
	size_t good = hoist__utf8_text(key, n);
	if (good < n)
		return hoist__fail(-EBADMSG, "%s: a key is no text in UTF-8 (byte %zu)", r->file,
				   at + 4 + good);
	static const char unnamed[] = "buffer";
	tensor->name_bytes = n > 0 ? n : sizeof unnamed - 1;
	return hoist__arena_text(&r->box->arena, n > 0 ? key : unnamed, tensor->name_bytes,
				 "a name", &tensor->name);
}

static int read_shape(struct reader *r, struct hoist__tensor *tensor)
{
	if (tensor->rank == 0)
		return 0;
	size_t n = (size_t)tensor->rank;
	const unsigned char *extents = take(r, 4 * n, "a shape");
	if (extents == NULL)
		return -EBADMSG;
	int64_t *shape = hoist__arena_alloc(&r->box->arena, n * sizeof *shape, sizeof *shape);
	if (shape == NULL)
		return hoist__fail_nomem("a shape", n * sizeof *shape);
	for (size_t i = 0; i < n; i++)
		shape[i] = (int64_t)hoist__little(extents + 4 * i, 4);
	tensor->shape = shape;
	return 0;
}

static int measure(const struct reader *r, size_t at, uint64_t file_bytes,
		   struct hoist__tensor *tensor)
{
	char name[HOIST__QUOTED_BYTES];
	uint64_t bytes = 0;
	(void)hoist__quoted(tensor->name, tensor->name_bytes, name);
	int err = hoist__tensor_bytes(tensor->dtype, tensor->rank, tensor->shape, &bytes);
	if (err < 0) {
		(void)hoist__fail_in(err, "%s: tensor %s (byte %zu)", r->file, name, at);
		return -EBADMSG;
	}
	tensor->bytes = bytes;
	if (tensor->offset < r->n || tensor->offset > file_bytes ||
	    bytes > file_bytes - tensor->offset)
		return hoist__fail(-EBADMSG,
				   "%s: tensor %s has its %llu bytes at %llu; the file has bytes "
				   "from %zu to %llu for tensors (byte %zu)",
				   r->file, name, (unsigned long long)bytes,
				   (unsigned long long)tensor->offset, r->n,
				   (unsigned long long)file_bytes, at);
	return 0;
}

static int read_entry(struct reader *r, uint64_t file_bytes)
{
	struct hoist__tensor tensor = {.name = NULL};
	size_t at = r->at;
	int err = read_name(r, &tensor);
	if (err < 0)
		return err;
	size_t dtype_at = r->at;
	const unsigned char *types = take(r, 2, "dtype and rank");
	if (types == NULL)
		return -EBADMSG;
	tensor.dtype = hoist__dtype_from_max(types[0]);
	tensor.rank = types[1];
	if (tensor.dtype == HOIST_DTYPE_INVALID)
		return hoist__fail(-EBADMSG,
				   "%s: %u is no dtype of MAX (files of its first releases number "
				   "floats otherwise) (byte %zu)",
				   r->file, types[0], dtype_at);
	if (tensor.rank > HOIST__MAX_RANK)
		return hoist__fail(-EBADMSG, "%s: rank %d is above %d (byte %zu)", r->file,
				   tensor.rank, HOIST__MAX_RANK, dtype_at + 1);
	err = read_shape(r, &tensor);
	const unsigned char *offset = err == 0 ? take(r, 8, "an offset") : NULL;
	if (offset == NULL)
		return err < 0 ? err : -EBADMSG;
	tensor.offset = hoist__little(offset, 8);
	err = measure(r, at, file_bytes, &tensor);
	if (err < 0)
		return err;
	struct hoist__manifest *manifest = &r->box->manifest;
	void *tensors = manifest->tensors;
	err = hoist__vector_grow(&tensors, manifest->n_tensors, &r->room, sizeof tensor, "tensors");
	manifest->tensors = tensors;
	if (err == 0)
		manifest->tensors[manifest->n_tensors++] = tensor;
	return err;
}

/* --- all entries --- */

static int parse(struct reader *r, uint64_t file_bytes)
{
	int err = 0;
	while (err == 0 && r->at < r->n)
		err = read_entry(r, file_bytes);
	return err == 0 ? hoist__manifest_order(r->file, &r->box->manifest) : err;
}

int hoist__max_parse(const char *file, const void *header, size_t header_bytes, uint64_t file_bytes,
		     struct hoist__manifest **ret)
{
	char name[HOIST__QUOTED_BYTES];
	struct reader r = {
		.file = hoist__file_quoted(file, name),
		.bytes = header,
		.n = header_bytes,
		.at = HOIST__MAX_FILE_PREFIX,
		.box = hoist__manifest_create(),
	};
	if (r.box == NULL)
		return -ENOMEM;
	int err = parse(&r, file_bytes);
	if (err < 0) {
		hoist__manifest_destroy(&r.box->manifest);
		return err;
	}
	r.box->manifest.data_offset = header_bytes;
	*ret = &r.box->manifest;
	return 0;
}
