/* SPDX-License-Identifier: MIT */
/* The tensors of a file of any format are written in each format that can hold them, and read
 * again: they are the same. */
#include "config.h"

#include <string.h>

#include "base/dtype.h"
#include "base/layout.h"
#include "format/write.h"
#include "tests/fuzz/fuzz-support.h"

#define MOST_BYTES ((uint64_t)1 << 20) /* of a file that is made to be read again */

/* Writers are given no key twice; PyTorch's metadata may have some. */
static bool keys_differ(const struct hoist__manifest *manifest)
{
	for (size_t i = 0; i < manifest->n_metadata; i++)
		for (size_t k = 0; k < i; k++)
			if (strcmp(manifest->metadata[i].key, manifest->metadata[k].key) == 0)
				return false;
	return true;
}

/* False: a tensor with strides is of blocks that do not divide its elements. */
static bool fill(const struct hoist__manifest *manifest, struct hoist__out_file *out)
{
	for (size_t i = 0; i < manifest->n_tensors; i++) {
		const struct hoist__tensor *from = &manifest->tensors[i];
		uint64_t elements = 0;
		size_t bytes = 0;
		HOLDS(hoist__layout_elements(from->rank, from->shape, &elements) == 0);
		if (hoist_dtype_bytes(from->dtype, elements, &bytes) != 0)
			return false;
		out->tensors[i] = (struct hoist__out_tensor){.name = from->name,
							     .dtype = from->dtype,
							     .rank = from->rank,
							     .shape = from->shape,
							     .bytes = bytes};
	}
	return true;
}

static const struct hoist__tensor *find(const struct hoist__manifest *manifest, const char *name)
{
	for (size_t i = 0; i < manifest->n_tensors; i++)
		if (strcmp(manifest->tensors[i].name, name) == 0)
			return &manifest->tensors[i];
	return NULL;
}

static void check_same(const struct hoist__out_file *out, const struct hoist__manifest *again,
		       enum hoist__format format)
{
	HOLDS(again->n_tensors == out->n_tensors);
	for (size_t i = 0; i < out->n_tensors; i++) {
		const struct hoist__out_tensor *from = &out->tensors[i];
		const struct hoist__tensor *to =
			find(again, format == HOIST__NPY ? "arr_0" : from->name);
		HOLDS(to != NULL && to->dtype == from->dtype && to->strides == NULL);
		HOLDS(to->bytes == from->bytes && to->offset == from->offset);
		/* GGUF has no scalars, and no extents of 1 at the outside. */
		HOLDS(format == HOIST__GGUF || to->rank == from->rank);
		for (int a = 1; a <= to->rank || a <= from->rank; a++)
			HOLDS((a <= to->rank ? to->shape[to->rank - a] : 1) ==
			      (a <= from->rank ? from->shape[from->rank - a] : 1));
	}
	for (size_t i = 0; format == HOIST__SAFETENSORS && i < out->n_metadata; i++) {
		size_t k = 0;
		while (k < again->n_metadata &&
		       strcmp(again->metadata[k].key, out->metadata[i].key) != 0)
			k++;
		HOLDS(k < again->n_metadata);
		HOLDS(strcmp(again->metadata[k].value, out->metadata[i].value) == 0);
	}
}

static void read_again(const struct hoist__out_file *out, enum hoist__format format)
{
	struct fuzz_parsed parsed;
	uint8_t *whole = calloc(1, out->bytes);
	HOLDS(whole != NULL);
	memcpy(whole, out->header, out->header_bytes);
	HOLDS(fuzz_parse(whole, out->bytes, &parsed) == 0 && parsed.format == format);
	check_same(out, parsed.manifest, format);
	fuzz_parsed_free(&parsed);
	free(whole);
}

static void write_as(const struct hoist__manifest *manifest, int (*write)(struct hoist__out_file *),
		     enum hoist__format format)
{
	struct hoist__out_file out = {.name = "copy",
				      .n_tensors = manifest->n_tensors,
				      .n_metadata = manifest->n_metadata,
				      .metadata = manifest->metadata,
				      .like = manifest};
	if (manifest->raw_metadata != NULL || !keys_differ(manifest))
		out.n_metadata = 0;
	out.tensors = calloc(manifest->n_tensors + 1, sizeof *out.tensors);
	HOLDS(out.tensors != NULL);
	if (fill(manifest, &out)) {
		int err = write(&out);
		if (err == 0) {
			HOLDS(out.header_bytes <= out.bytes);
			if (out.bytes <= MOST_BYTES)
				read_again(&out, format);
			free(out.header);
		} else {
			HOLDS(err == -EINVAL || err == -EOVERFLOW);
			fuzz_check_text(hoist_error());
		}
	}
	free(out.tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct fuzz_parsed parsed;
	(void)fuzz_parse(bytes, n, &parsed);
	if (parsed.manifest != NULL) {
		write_as(parsed.manifest, hoist__safetensors_write, HOIST__SAFETENSORS);
		write_as(parsed.manifest, hoist__gguf_write, HOIST__GGUF);
		write_as(parsed.manifest, hoist__max_write, HOIST__MAX);
		write_as(parsed.manifest, hoist__npy_write, HOIST__NPY);
	}
	fuzz_parsed_free(&parsed);
	return 0;
}
