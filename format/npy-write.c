/* SPDX-License-Identifier: MIT */
/* format/npy-write.c - writes the header of a .npy.
 * The contract is in format/write.h; format/npy.h describes the format.
 *
 * With at most HOIST__MAX_RANK axes the header always fits in the 65535 bytes of version 1.0, which
 * every reader knows.  Spaces behind the literal make the array begin at a multiple of 64 bytes, as
 * NumPy does, or of a page if it is large, so that it can be read directly and mapped.  The file
 * has no place for a name or for metadata. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "format/quote.h"
#include "format/write.h"

#define PREFIX_BYTES 10
#define PAGE_FROM_BYTES HOIST__MIB
#define LITERAL_BYTES 2048 /* 64 axes of 19 digits, and less than 100 bytes more */

static int fail(const struct hoist__out_file *file, const char *why)
{
	char where[HOIST__QUOTED_BYTES];
	return hoist__fail(-EINVAL, "%s: a .npy file %s", hoist__file_quoted(file->name, where),
			   why);
}

static int describe(const struct hoist__out_file *file, const struct hoist__dtype_info *info,
		    char descr[16])
{
	static const char kinds[] = {
		[HOIST_KIND_BOOL] = 'b',  [HOIST_KIND_SIGNED] = 'i',  [HOIST_KIND_UNSIGNED] = 'u',
		[HOIST_KIND_FLOAT] = 'f', [HOIST_KIND_COMPLEX] = 'c',
	};
	char why[96];
	if (info == NULL || !info->numpy_native) {
		(void)snprintf(why, sizeof why, "cannot hold %s, which NumPy lacks; save it as %s",
			       info != NULL ? info->name : "no dtype",
			       info != NULL && info->safetensors == NULL ? "gguf" : "safetensors");
		return fail(file, why);
	}
	(void)snprintf(descr, 16, "%c%c%u", info->bits == 8 ? '|' : '<', kinds[info->kind],
		       info->bits / 8);
	return 0;
}

static size_t put_shape(const struct hoist__out_tensor *tensor, char *out, size_t room)
{
	size_t n = (size_t)snprintf(out, room, "(");
	for (int i = 0; i < tensor->rank; i++)
		n += (size_t)snprintf(out + n, room - n, "%s%" PRId64, i > 0 ? ", " : "",
				      tensor->shape[i]);
	return n + (size_t)snprintf(out + n, room - n, "%s", tensor->rank == 1 ? ",)" : ")");
}

int hoist__npy_write(struct hoist__out_file *file)
{
	char literal[LITERAL_BYTES];
	char descr[16];
	char why[96];
	if (file->n_tensors != 1) {
		(void)snprintf(why, sizeof why,
			       "holds one tensor, and there are %zu; save them as safetensors",
			       file->n_tensors);
		return fail(file, why);
	}
	struct hoist__out_tensor *tensor = file->tensors;
	int err = describe(file, hoist__dtype_info(tensor->dtype), descr);
	if (err < 0)
		return err;
	size_t n = (size_t)snprintf(literal, sizeof literal,
				    "{'descr': '%s', 'fortran_order': False, 'shape': ", descr);
	n += put_shape(tensor, literal + n, sizeof literal - n);
	n += (size_t)snprintf(literal + n, sizeof literal - n, ", }");
	size_t whole =
		hoist__round_up(PREFIX_BYTES + n + 1, tensor->bytes >= PAGE_FROM_BYTES ? 4096 : 64);
	uint64_t bytes;
	if (hoist__add_overflow(whole, tensor->bytes, &bytes) || bytes > INT64_MAX)
		return hoist__fail(-EOVERFLOW, "%s: its tensor has too many bytes", file->name);
	unsigned char *header = malloc(whole);
	if (header == NULL)
		return hoist__fail_nomem("a header", whole);
	memset(header, ' ', whole);
	memcpy(header, "\x93NUMPY\1\0", 8);
	header[8] = (unsigned char)(whole - PREFIX_BYTES);
	header[9] = (unsigned char)((whole - PREFIX_BYTES) >> 8);
	memcpy(header + PREFIX_BYTES, literal, n);
	header[whole - 1] = '\n';
	tensor->offset = whole;
	file->header = header;
	file->header_bytes = whole;
	file->bytes = bytes;
	return 0;
}
