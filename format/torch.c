/* SPDX-License-Identifier: MIT */
/* format/torch.c - reads PyTorch's checkpoints.
 * The contract is in format/format.h and format/torch.h. */
#include "config.h"

#include "format/torch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/layout.h"
#include "format/quote.h"
#include "format/torch-skip.h"

#define MAX_PICKLE UINT64_C(100000000)
#define REMEDY "torch.save stores them as they are: save it again, or as safetensors"

/* --- entries --- */

/* Finds the entry FOLDER/@directory@name; *ret is NULL if there is none.  @name has @n_name bytes.
 */
static int find_entry(struct hoist__torch_file *file, const char *directory, const char *name,
		      size_t n_name, const struct hoist__zip_entry **ret)
{
	size_t n_directory = strlen(directory);
	size_t n = file->folder_bytes + n_directory + n_name;
	char small[256];
	char *path = n <= sizeof small ? small : malloc(n);
	if (path == NULL)
		return hoist__fail_nomem("the name of an entry", n);
	memcpy(path, file->folder, file->folder_bytes);
	memcpy(path + file->folder_bytes, directory, n_directory);
	if (n_name > 0)
		memcpy(path + file->folder_bytes + n_directory, name, n_name);
	*ret = hoist__zip_find(&file->zip, path, n);
	if (path != small)
		free(path);
	return 0;
}

/* The folder is that of the one entry FOLDER/data.pkl. */
static int find_pickle(struct hoist__torch_file *file, const struct hoist__zip_entry **ret)
{
	static const char suffix[] = "/data.pkl";
	const size_t n = sizeof suffix - 1;
	*ret = NULL;
	for (size_t i = 0; i < file->zip.n; i++) {
		const struct hoist__zip_entry *entry = &file->zip.entries[i];
		if (entry->name_bytes <= n ||
		    memcmp(entry->name + entry->name_bytes - n, suffix, n) != 0)
			continue;
		if (*ret != NULL)
			return hoist__fail(-EBADMSG, "%s: two entries are called data.pkl",
					   file->zip.file);
		*ret = entry;
		file->folder = entry->name;
		file->folder_bytes = entry->name_bytes - n + 1;
	}
	return *ret != NULL ? 0
			    : hoist__fail(-EBADMSG,
					  "%s: a zip archive, but not PyTorch's: no entry is "
					  "FOLDER/data.pkl",
					  file->zip.file);
}

static int check_byteorder(struct hoist__torch_file *file)
{
	static const char name[] = "byteorder";
	static const char little[] = "little";
	const size_t n = sizeof little - 1;
	const struct hoist__zip_entry *entry;
	const unsigned char *text = NULL;
	char shown[HOIST__QUOTED_BYTES];
	uint64_t at;
	int err = find_entry(file, name, "", 0, &entry);
	if (err < 0 || entry == NULL) /* PyTorch before 2.1, which wrote only little-endian files */
		return err;
	size_t bytes = (size_t)hoist__min_u64(entry->bytes, 16);
	err = hoist__zip_data(&file->zip, entry, REMEDY, &at);
	if (err == 0)
		err = hoist__window_get(&file->zip.window, at, bytes, &text);
	if (err == 0 && (entry->bytes != n || memcmp(text, little, n) != 0))
		err = hoist__fail(-ENOTSUP,
				  "%s: the numbers have the byte order %s, and hoist reads only "
				  "\"little\"; save the file again on a little-endian machine",
				  file->zip.file, hoist__quoted((const char *)text, bytes, shown));
	return err;
}

/* --- the place of a tensor --- */

static int fail_place(const struct hoist__torch_file *file, const char *name,
		      const struct hoist__torch_storage *storage, int err, const char *format, ...)
	HOIST__PRINTF(5, 6);
static int fail_place(const struct hoist__torch_file *file, const char *name,
		      const struct hoist__torch_storage *storage, int err, const char *format, ...)
{
	char shown[2][HOIST__QUOTED_BYTES];
	char text[256];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof text, format, args);
	va_end(args);
	return hoist__fail(err, "%s: tensor %s: storage %s %s", file->zip.file,
			   hoist__quoted(name, strlen(name), shown[0]),
			   hoist__quoted(storage->key, storage->key_bytes, shown[1]), text);
}

/* Gives where the storage's bytes begin. */
static int place_storage(struct hoist__torch_file *file, const char *name,
			 const struct hoist__torch_storage *storage, uint64_t *ret)
{
	const struct hoist__zip_entry *entry;
	/* Many tensors may share a storage with a long name. */
	int err = hoist__pickle_charge(&file->pickle, file->folder_bytes + storage->key_bytes);
	if (err == 0)
		err = find_entry(file, "data/", storage->key, storage->key_bytes, &entry);
	if (err < 0)
		return err;
	if (entry == NULL)
		return fail_place(file, name, storage, -EBADMSG, "has no entry of the archive");
	err = hoist__zip_data(&file->zip, entry, REMEDY, ret);
	if (err == 0 && entry->bytes < storage->bytes)
		err = fail_place(
			file, name, storage, -EBADMSG, "has %llu bytes, and its entry holds %llu",
			(unsigned long long)storage->bytes, (unsigned long long)entry->bytes);
	return err;
}

static int check_strides(const struct hoist__torch_file *file, const char *name,
			 const struct hoist__torch_tensor *tensor)
{
	for (int i = 0; i < tensor->rank; i++)
		if (tensor->strides[i] < 0)
			return fail_place(file, name, tensor->storage, -EBADMSG,
					  "is gone through with the stride %lld",
					  (long long)tensor->strides[i]);
	return 0;
}

int hoist__torch_place(struct hoist__torch_file *file, const struct hoist__torch_tensor *tensor,
		       const char *name, struct hoist__tensor *ret)
{
	const struct hoist__torch_storage *storage = tensor->storage;
	int64_t dense_strides[HOIST__MAX_RANK];
	int64_t low;
	int64_t high;
	uint64_t at;
	uint64_t begin;
	int err = check_strides(file, name, tensor);
	if (err == 0)
		err = place_storage(file, name, storage, &at);
	if (err < 0)
		return err;
	/* The dense strides must fit, too: a copy that is dense needs them. */
	err = hoist__layout_c_strides(tensor->rank, tensor->shape, dense_strides);
	if (err == 0)
		err = hoist__layout_bounds(tensor->dtype, tensor->rank, tensor->shape,
					   tensor->strides, &low, &high);
	if (err < 0) {
		char shown[HOIST__QUOTED_BYTES];
		(void)hoist__fail_in(err, "%s: tensor %s", file->zip.file,
				     hoist__quoted(name, strlen(name), shown));
		return -EBADMSG;
	}
	bool beyond = hoist__mul_overflow((uint64_t)tensor->offset,
					  hoist_dtype_bits(tensor->dtype) / 8, &begin);
	if (high == 0) /* no elements: any place would do */
		begin = beyond ? storage->bytes : hoist__min_u64(begin, storage->bytes);
	else if (beyond || begin > storage->bytes || (uint64_t)high > storage->bytes - begin)
		return fail_place(file, name, storage, -EBADMSG,
				  "has %llu bytes, and the tensor needs %lld from element %lld on",
				  (unsigned long long)storage->bytes, (long long)high,
				  (long long)tensor->offset);
	bool dense = hoist__layout_contiguous(tensor->rank, tensor->shape, tensor->strides);
	ret->dtype = tensor->dtype;
	ret->rank = tensor->rank;
	ret->strides = dense ? NULL : tensor->strides;
	ret->bytes = (uint64_t)high;
	ret->offset = at + begin;
	return 0;
}

/* --- the file --- */

static int read_pickle(struct hoist__torch_file *file, const struct hoist__zip_entry *entry,
		       unsigned char **ret)
{
	const struct hoist__reader *reader = file->zip.window.reader;
	uint64_t at;
	int err = hoist__zip_data(&file->zip, entry, REMEDY, &at);
	if (err < 0)
		return err;
	if (entry->bytes > MAX_PICKLE)
		return hoist__fail(-EBADMSG, "%s: data.pkl has %llu bytes, and %llu are the most",
				   file->zip.file, (unsigned long long)entry->bytes,
				   (unsigned long long)MAX_PICKLE);
	size_t n = (size_t)entry->bytes;
	unsigned char *bytes = malloc(n > 0 ? n : 1);
	if (bytes == NULL)
		return hoist__fail_nomem("data.pkl", n);
	err = n > 0 ? reader->read(reader->context, at, bytes, n) : 0;
	if (err < 0) {
		free(bytes);
		return err;
	}
	file->pickle = (struct hoist__pickle){
		.file = file->zip.file, .bytes = bytes, .n = n, .lenient = reader->lenient};
	*ret = bytes;
	return 0;
}

static int parse(struct hoist__torch_file *file, struct hoist__manifest **ret)
{
	const struct hoist__zip_entry *entry;
	struct hoist__pickle_value object;
	unsigned char *bytes = NULL;
	int err = find_pickle(file, &entry);
	if (err == 0)
		err = check_byteorder(file);
	if (err == 0)
		err = read_pickle(file, entry, &bytes);
	if (err < 0)
		return err;
	err = hoist__pickle_run(&file->pickle, &object);
	if (err == 0)
		err = hoist__torch_walk(file, &object, ret);
	hoist__pickle_close(&file->pickle);
	free(bytes);
	return err;
}

/* Gives whether the file is a pickle, and no archive. */
static int is_old(const struct hoist__reader *reader, bool *ret)
{
	unsigned char start[2];
	int err = reader->bytes >= sizeof start
			  ? reader->read(reader->context, 0, start, sizeof start)
			  : 0;
	*ret = err == 0 && reader->bytes >= sizeof start &&
	       hoist__torch_is_old(start, sizeof start);
	return err;
}

int hoist__torch_parse(const struct hoist__reader *reader, struct hoist__manifest **ret)
{
	struct hoist__torch_file file;
	bool old = false;
	int err = reader->lenient ? is_old(reader, &old) : 0;
	if (err == 0 && old)
		return hoist__torch_skip_file(HOIST__TORCH_OLD, ret);
	if (err == 0)
		err = hoist__zip_open(reader, &file.zip);
	if (err < 0)
		return err;
	err = parse(&file, ret);
	hoist__zip_close(&file.zip);
	return err;
}
