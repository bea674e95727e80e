/* SPDX-License-Identifier: MIT */
/* A file of any format: whatever its bytes are, parsing ends with a text or with a manifest that
 * keeps what format.h promises, and that can be written in any format and read again.  What begins
 * as a pickle is put into an archive first, as PyTorch's data.pkl: few changes of an archive leave
 * one.
 *
 *     make -C tests fuzz && tests/format-fuzz FOLDER      (clang; in the build tree)
 */
#include "config.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/layout.h"
#include "format/format.h"
#include "format/utf8.h"
#include "format/write.h"

struct file {
	const uint8_t *bytes;
	size_t n;
};

/* Not assert(): NDEBUG is no business of a fuzzer's. */
#define HOLDS(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

static int read_bytes(void *context, uint64_t offset, void *buffer, size_t bytes)
{
	const struct file *file = context;
	HOLDS(offset <= file->n && bytes <= file->n - offset && bytes > 0);
	memcpy(buffer, file->bytes + offset, bytes);
	return 0;
}

static void check_text(const char *text)
{
	HOLDS(hoist__utf8_text(text, strlen(text)) == strlen(text));
}

static void check_tensor(const struct hoist__tensor *tensor, size_t file_bytes)
{
	int64_t strides[HOIST__MAX_RANK];
	int64_t low;
	int64_t high;
	uint64_t elements;
	size_t bytes = 0;
	HOLDS(tensor->name_bytes > 0 && strlen(tensor->name) == tensor->name_bytes);
	check_text(tensor->name);
	HOLDS(hoist__dtype_info(tensor->dtype) != NULL);
	HOLDS(tensor->rank >= 0 && tensor->rank <= HOIST__MAX_RANK);
	HOLDS(tensor->offset <= file_bytes && tensor->bytes <= file_bytes - tensor->offset);
	HOLDS(hoist__layout_c_strides(tensor->rank, tensor->shape, strides) == 0);
	if (tensor->strides == NULL) {
		HOLDS(hoist__layout_elements(tensor->rank, tensor->shape, &elements) == 0);
		HOLDS(hoist_dtype_bytes(tensor->dtype, elements, &bytes) == 0);
		HOLDS(bytes == tensor->bytes);
		return;
	}
	for (int i = 0; i < tensor->rank; i++)
		HOLDS(tensor->strides[i] >= 0);
	HOLDS(hoist__layout_bounds(tensor->dtype, tensor->rank, tensor->shape, tensor->strides,
				   &low, &high) == 0);
	HOLDS(low == 0 && (uint64_t)high == tensor->bytes);
}

static void check_manifest(const struct hoist__manifest *manifest, size_t file_bytes)
{
	for (size_t i = 0; i < manifest->n_tensors; i++) {
		check_tensor(&manifest->tensors[i], file_bytes);
		HOLDS(i == 0 || manifest->tensors[i - 1].offset <= manifest->tensors[i].offset);
		HOLDS(manifest->by_name[i] < manifest->n_tensors);
		HOLDS(i == 0 || strcmp(manifest->tensors[manifest->by_name[i - 1]].name,
				       manifest->tensors[manifest->by_name[i]].name) < 0);
	}
	for (size_t i = 0; i < manifest->n_metadata; i++) {
		check_text(manifest->metadata[i].key);
		check_text(manifest->metadata[i].value);
	}
}

/* Writers are given no key twice; PyTorch's metadata may have some. */
static bool keys_differ(const struct hoist__manifest *manifest)
{
	for (size_t i = 0; i < manifest->n_metadata; i++)
		for (size_t k = 0; k < i; k++)
			if (strcmp(manifest->metadata[i].key, manifest->metadata[k].key) == 0)
				return false;
	return true;
}

/* What was read is written, and read again. */
static void write_again(const struct hoist__manifest *manifest,
			int (*write)(struct hoist__out_file *), enum hoist__format format)
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
	for (size_t i = 0; i < manifest->n_tensors; i++) {
		const struct hoist__tensor *from = &manifest->tensors[i];
		struct hoist__out_tensor *to = &out.tensors[i];
		uint64_t elements = 0;
		size_t bytes = 0;
		(void)hoist__layout_elements(from->rank, from->shape, &elements);
		if (hoist_dtype_bytes(from->dtype, elements, &bytes) != 0) {
			free(out.tensors);
			return;
		}
		*to = (struct hoist__out_tensor){.name = from->name,
						 .dtype = from->dtype,
						 .rank = from->rank,
						 .shape = from->shape,
						 .bytes = bytes};
	}
	if (write(&out) == 0) {
		HOLDS(out.header_bytes <= out.bytes);
		if (out.bytes < 1 << 20) {
			struct hoist__manifest *again = NULL;
			uint8_t *whole = calloc(1, out.bytes);
			HOLDS(whole != NULL);
			memcpy(whole, out.header, out.header_bytes);
			struct file file = {whole, out.bytes};
			const struct hoist__reader reader = {"copy", out.bytes, read_bytes, &file};
			enum hoist__format found;
			HOLDS(hoist__format_detect(&reader, &found) == 0 && found == format);
			HOLDS(hoist__format_parse(&reader, format, &again) == 0);
			check_manifest(again, out.bytes);
			HOLDS(again->n_tensors == manifest->n_tensors);
			hoist__manifest_destroy(again);
			free(whole);
		}
		free(out.header);
	}
	free(out.tensors);
}

/* --- an archive around a pickle --- */

static uint8_t *put(uint8_t *to, const void *bytes, size_t n)
{
	memcpy(to, bytes, n);
	return to + n;
}

static uint8_t *put_number(uint8_t *to, uint64_t value, unsigned n)
{
	while (n-- > 0) {
		*to++ = (uint8_t)value;
		value >>= 8;
	}
	return to;
}

/* The fields that a local header and an entry of the directory have in common. */
static uint8_t *put_entry(uint8_t *to, const char *name, size_t n)
{
	to = put_number(to, 20, 2); /* version, flags, method, time, checksum */
	to = put_number(to, 0, 8);
	to = put_number(to, 0, 4);
	to = put_number(to, n, 4);
	to = put_number(to, n, 4);
	return put_number(to, strlen(name), 4); /* and no extra field */
}

static uint8_t *put_member(uint8_t *to, const char *name, const void *bytes, size_t n)
{
	to = put_entry(put(to, "PK\3\4", 4), name, n);
	return put(put(to, name, strlen(name)), bytes, n);
}

static uint8_t *put_listed(uint8_t *to, const char *name, size_t n, size_t at)
{
	to = put_entry(put_number(put(to, "PK\1\2", 4), 20, 2), name, n);
	to = put_number(put_number(to, 0, 10), at, 4);
	return put(to, name, strlen(name));
}

#define ARCHIVE_BYTES 512 /* what it takes beside the pickle */

static size_t put_archive(uint8_t *archive, const uint8_t *pickle, size_t n)
{
	static const char name[] = "m/data.pkl";
	static const char storage[] = "m/data/0";
	static const uint8_t zeros[96];
	uint8_t *to = put_member(archive, name, pickle, n);
	const size_t at = (size_t)(to - archive);
	to = put_member(to, storage, zeros, sizeof zeros);
	const size_t directory = (size_t)(to - archive);
	to = put_listed(put_listed(to, name, n, 0), storage, sizeof zeros, at);
	const size_t bytes = (size_t)(to - archive) - directory;
	to = put_number(put(to, "PK\5\6", 4), 0, 4);
	to = put_number(put_number(to, 2, 2), 2, 2);
	to = put_number(put_number(put_number(to, bytes, 4), directory, 4), 0, 2);
	return (size_t)(to - archive);
}

/* --- one input --- */

static void check_index(const struct hoist__index *index)
{
	for (size_t f = 0; f < index->n_files; f++) {
		const char *name = index->files[f];
		HOLDS(name[0] != '\0' && name[0] != '/' && strstr(name, "//") == NULL);
		HOLDS(strcmp(name, "..") != 0 && strncmp(name, "../", 3) != 0 &&
		      strstr(name, "/../") == NULL);
		HOLDS(index->first[f] < index->first[f + 1]);
	}
	for (size_t i = 0; i < index->n_entries; i++) {
		HOLDS(index->entries[i].file < index->n_files);
		HOLDS(i == 0 || strcmp(index->entries[i - 1].tensor, index->entries[i].tensor) < 0);
	}
}

static void check_file(const uint8_t *bytes, size_t n)
{
	struct file file = {bytes, n};
	const struct hoist__reader reader = {"fuzz", n, read_bytes, &file};
	struct hoist__manifest *manifest = NULL;
	struct hoist__index *index = NULL;
	enum hoist__format format = HOIST__RAW;
	int err = hoist__format_detect(&reader, &format);
	if (err == 0 && format == HOIST__INDEX)
		err = hoist__index_parse("fuzz", bytes, n, &index);
	else if (err == 0)
		err = hoist__format_parse(&reader, format, &manifest);
	HOLDS(err == 0 || err == -EBADMSG || err == -ENOTSUP);
	HOLDS((err == 0) == (manifest != NULL || index != NULL));
	if (err < 0)
		check_text(hoist_error());
	if (index != NULL)
		check_index(index);
	if (manifest != NULL) {
		check_manifest(manifest, n);
		write_again(manifest, hoist__safetensors_write, HOIST__SAFETENSORS);
		write_again(manifest, hoist__gguf_write, HOIST__GGUF);
		write_again(manifest, hoist__max_write, HOIST__MAX);
		write_again(manifest, hoist__npy_write, HOIST__NPY);
	}
	hoist__manifest_destroy(manifest);
	hoist__index_destroy(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	check_file(bytes, n);
	if (n > 0 && bytes[0] == 0x80) {
		uint8_t *archive = malloc(n + ARCHIVE_BYTES);
		HOLDS(archive != NULL);
		check_file(archive, put_archive(archive, bytes, n));
		free(archive);
	}
	return 0;
}
