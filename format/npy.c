/* SPDX-License-Identifier: MIT */
/* format/npy.c - reads an array in NumPy's .npy format.
 * The contract is in format/format.h and format/npy.h. */
#include "config.h"

#include "format/little.h"
#include "format/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "format/manifest.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6
#define MAX_HEADER HOIST__MIB

/* Gives where the literal begins and how long it is. */
static int read_prefix(struct hoist__window *window, const char *what, uint64_t at, uint64_t end,
		       uint64_t *text_at, size_t *text_bytes)
{
	const unsigned char *prefix;
	size_t n = (size_t)hoist__min_u64(end - at, MAGIC_BYTES + 6);
	int err = hoist__window_get(window, at, n, &prefix);
	if (err < 0)
		return err;
	if (n < MAGIC_BYTES || memcmp(prefix, MAGIC, MAGIC_BYTES) != 0)
		return hoist__fail(-EBADMSG,
				   "%s: not an array of NumPy: no magic string of NumPy's is at "
				   "the beginning (byte %llu)",
				   what, (unsigned long long)at);
	unsigned major = n > MAGIC_BYTES ? prefix[MAGIC_BYTES] : 0;
	unsigned minor = n > MAGIC_BYTES + 1 ? prefix[MAGIC_BYTES + 1] : 0;
	if (n >= MAGIC_BYTES + 2 && (major < 1 || major > 3 || minor > 0))
		return hoist__fail(-ENOTSUP,
				   "%s: version %u.%u of the format; 1.0, 2.0 and 3.0 are known "
				   "(byte %llu)",
				   what, major, minor, (unsigned long long)(at + MAGIC_BYTES));
	size_t whole = MAGIC_BYTES + 2 + (major == 1 ? 2 : 4);
	uint64_t header =
		n >= whole ? hoist__little(prefix + MAGIC_BYTES + 2, major == 1 ? 2 : 4) : 0;
	if (n < whole || header > end - at - whole)
		return hoist__fail(-EBADMSG,
				   "%s: the header is cut short: %llu bytes are there, and it has "
				   "%llu (byte %llu)",
				   what, (unsigned long long)(end - at),
				   (unsigned long long)(whole + header), (unsigned long long)at);
	if (header > MAX_HEADER)
		return hoist__fail(
			-EBADMSG, "%s: the header has %llu bytes, and %zu are the most (byte %llu)",
			what, (unsigned long long)header, MAX_HEADER,
			(unsigned long long)(at + MAGIC_BYTES + 2));
	*text_at = at + whole;
	*text_bytes = (size_t)header;
	return 0;
}

static int read_literal(struct hoist__window *window, const char *what, uint64_t at, size_t n,
			struct hoist__npy_header *ret)
{
	const unsigned char *text;
	/* Most headers fit into the window, whose bytes need no copy. */
	if (n <= HOIST__WINDOW_BYTES) {
		int err = hoist__window_get(window, at, n, &text);
		return err < 0 ? err : hoist__npy_literal(what, (const char *)text, n, at, ret);
	}
	char *copy = malloc(n);
	if (copy == NULL)
		return hoist__fail_nomem("a header", n);
	int err = window->reader->read(window->reader->context, at, copy, n);
	if (err == 0)
		err = hoist__npy_literal(what, copy, n, at, ret);
	free(copy);
	return err;
}

/* Computes the same strides as NumPy: empty axes count as 1. */
static void fortran_strides(int rank, const int64_t *shape, int64_t *strides)
{
	int64_t stride = 1;
	for (int i = 0; i < rank; i++) {
		strides[i] = stride;
		stride *= shape[i] > 1 ? shape[i] : 1;
	}
}

static int keep_layout(const char *what, const struct hoist__npy_header *header,
		       struct hoist__arena *arena, struct hoist__tensor *tensor)
{
	size_t rank = (size_t)header->rank;
	if (rank == 0)
		return 0;
	int64_t *numbers = hoist__arena_alloc(arena, 2 * rank * sizeof *numbers, sizeof *numbers);
	if (numbers == NULL)
		return hoist__fail_nomem(what, 2 * rank * sizeof *numbers);
	memcpy(numbers, header->shape, rank * sizeof *numbers);
	tensor->shape = numbers;
	if (!header->fortran_order)
		return 0;
	fortran_strides(header->rank, header->shape, numbers + rank);
	/* Where both orders are the same, as with one axis, the tensor has no strides. */
	if (!hoist__layout_contiguous(header->rank, header->shape, numbers + rank))
		tensor->strides = numbers + rank;
	return 0;
}

/* The array must fill the rest of the file: fewer bytes are a file cut short, and more would be
 * other arrays, passed over in silence. */
int hoist__npy_read(struct hoist__window *window, const char *what, uint64_t at, uint64_t end,
		    struct hoist__arena *arena, struct hoist__tensor *tensor)
{
	struct hoist__npy_header header = {.rank = 0};
	uint64_t text_at = 0;
	size_t text_bytes = 0;
	uint64_t bytes;
	int err = read_prefix(window, what, at, end, &text_at, &text_bytes);
	if (err == 0)
		err = read_literal(window, what, text_at, text_bytes, &header);
	if (err < 0)
		return err;
	err = hoist__tensor_bytes(header.dtype, header.rank, header.shape, &bytes);
	if (err < 0) {
		(void)hoist__fail_in(err, "%s (byte %llu)", what, (unsigned long long)at);
		return -EBADMSG;
	}
	uint64_t data = text_at + text_bytes;
	if (bytes > end - data)
		return hoist__fail(-EBADMSG,
				   "%s: its array has %llu bytes, and %llu follow the header (byte "
				   "%llu)",
				   what, (unsigned long long)bytes,
				   (unsigned long long)(end - data), (unsigned long long)data);
	if (bytes < end - data)
		return hoist__fail(-EBADMSG,
				   "%s: %llu bytes follow its array of %llu; numpy.savez keeps "
				   "several arrays in one file (byte %llu)",
				   what, (unsigned long long)(end - data - bytes),
				   (unsigned long long)bytes, (unsigned long long)(data + bytes));
	struct hoist__tensor result = {.name = tensor->name, .name_bytes = tensor->name_bytes};
	err = keep_layout(what, &header, arena, &result);
	if (err < 0)
		return err;
	result.dtype = header.dtype;
	result.rank = header.rank;
	result.bytes = bytes;
	result.offset = data;
	*tensor = result;
	return 0;
}

static int parse(const struct hoist__reader *reader, struct hoist__manifest_box *box)
{
	char what[HOIST__QUOTED_BYTES];
	struct hoist__window window = {.reader = reader};
	struct hoist__tensor *tensor = calloc(1, sizeof *tensor);
	if (tensor == NULL)
		return hoist__fail_nomem("a tensor", sizeof *tensor);
	box->manifest.tensors = tensor;
	tensor->name = HOIST__NPY_NAME;
	tensor->name_bytes = strlen(HOIST__NPY_NAME);
	int err = hoist__npy_read(&window, hoist__file_quoted(reader->name, what), 0, reader->bytes,
				  &box->arena, tensor);
	if (err < 0)
		return err;
	box->manifest.n_tensors = 1;
	box->manifest.data_offset = tensor->offset;
	return hoist__manifest_names(what, &box->manifest);
}

int hoist__npy_parse(const struct hoist__reader *reader, struct hoist__manifest **ret)
{
	struct hoist__manifest_box *box = hoist__manifest_create();
	if (box == NULL)
		return -ENOMEM;
	int err = parse(reader, box);
	if (err < 0)
		hoist__manifest_destroy(&box->manifest);
	else
		*ret = &box->manifest;
	return err;
}
