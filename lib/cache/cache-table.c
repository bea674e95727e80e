/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-table.c - writes and checks an image's table, so that attaching parses nothing.
 * The contract is in lib/cache/cache.h.
 *
 * The table comes back through another process, so every part that is used is checked first, once.
 * The file is sealed by then, so checked parts stay as they are. */
#include "config.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/layout.h"
#include "lib/cache/cache.h"
#include "lib/checkpoint/checkpoint.h"

#define BAD(...) hoist__fail(-EBADMSG, "the table of an image: " __VA_ARGS__)

static const char magic[8] = {'h', 'o', 'i', 's', 't', 'i', 'm', 'g'};

/* --- the parts of a table --- */

/* Lays the parts out one behind the other.  The size of each but the last is a multiple of 8.
 * Returns: 0 and the bytes of all parts; -EOVERFLOW, without a text. */
static int lay_out(const struct hoist__image_header *header, uint64_t at[7], uint64_t *ret)
{
	const struct {
		uint64_t n, bytes;
	} parts[] = {
		{1, sizeof *header},
		{header->n_tensors, sizeof(struct hoist__image_tensor)},
		{header->n_files, sizeof(struct hoist__image_file)},
		{header->n_metadata, sizeof(struct hoist__image_metadata)},
		{header->n_tensors, sizeof(uint64_t)},
		{header->n_dims, sizeof(int64_t)},
		{header->string_bytes, 1},
	};
	uint64_t end = 0;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(parts); i++) {
		uint64_t bytes;
		at[i] = end;
		if (hoist__mul_overflow(parts[i].n, parts[i].bytes, &bytes) ||
		    hoist__add_overflow(end, bytes, &end) || end > INT64_MAX)
			return -EOVERFLOW;
	}
	*ret = end;
	return 0;
}

static void find_parts(void *base, const uint64_t at[7], struct hoist__image_table *ret)
{
	char *bytes = base;
	ret->header = base;
	ret->tensors = (void *)(bytes + at[1]);
	ret->files = (void *)(bytes + at[2]);
	ret->metadata = (void *)(bytes + at[3]);
	ret->by_name = (void *)(bytes + at[4]);
	ret->dims = (void *)(bytes + at[5]);
	ret->strings = bytes + at[6];
}

/* --- making --- */

static void count(hoist_checkpoint *checkpoint, const struct hoist__image_key *key,
		  const char *path, struct hoist__image_header *header)
{
	header->n_tensors = checkpoint->n_tensors;
	header->n_files = key->n_files;
	header->n_metadata = checkpoint->n_metadata;
	header->string_bytes = strlen(path) + 1 + strlen(hoist_checkpoint_format(checkpoint)) + 1;
	for (size_t t = 0; t < checkpoint->n_tensors; t++) {
		const struct hoist__tensor *tensor = checkpoint->tensors[t].tensor;
		header->string_bytes += strlen(tensor->name) + 1;
		header->n_dims += 2 * (uint64_t)tensor->rank;
	}
	for (size_t f = 0; f < key->n_files; f++)
		header->string_bytes += strlen(key->paths[f]) + 1;
	for (size_t m = 0; m < checkpoint->n_metadata; m++)
		header->string_bytes += strlen(checkpoint->metadata[m].key) + 1 +
					strlen(checkpoint->metadata[m].value) + 1;
}

int hoist__image_table_measure(hoist_checkpoint *checkpoint, const struct hoist__image_key *key,
			       const char *path, uint64_t *ret)
{
	struct hoist__image_header header = {.version = 0};
	uint64_t at[7];
	count(checkpoint, key, path, &header);
	if (lay_out(&header, at, ret) < 0)
		return hoist__fail(-EOVERFLOW, "the table of an image of %s exceeds 64 bits", path);
	return 0;
}

static uint64_t add_string(struct hoist__image_table *table, uint64_t *used, const char *text)
{
	uint64_t at = *used;
	size_t bytes = strlen(text) + 1;
	memcpy(table->strings + at, text, bytes);
	*used += bytes;
	return at;
}

void hoist__image_table_write(hoist_checkpoint *checkpoint, const struct hoist__image_key *key,
			      const char *path, void *base, struct hoist__image_table *ret)
{
	struct hoist__image_header *header = base;
	uint64_t at[7];
	uint64_t bytes = 0;
	uint64_t strings = 0;
	uint64_t dims = 0;
	count(checkpoint, key, path, header);
	(void)lay_out(header, at, &bytes); /* cannot overflow, as the table was measured */
	find_parts(base, at, ret);
	memcpy(header->magic, magic, sizeof magic);
	header->version = HOIST__IMAGE_VERSION;
	header->tensor_bytes = checkpoint->bytes;
	header->path = add_string(ret, &strings, path);
	header->format = add_string(ret, &strings, hoist_checkpoint_format(checkpoint));
	for (size_t t = 0; t < checkpoint->n_tensors; t++) {
		const struct hoist__checkpoint_tensor *entry = &checkpoint->tensors[t];
		ret->tensors[t] = (struct hoist__image_tensor){
			.name = add_string(ret, &strings, entry->tensor->name),
			.dims = dims,
			.bytes = entry->tensor->bytes,
			.shard = entry->file,
			.shard_offset = entry->tensor->offset,
			.dtype = (uint32_t)entry->tensor->dtype,
			.rank = (uint32_t)entry->tensor->rank,
		};
		ret->by_name[t] = checkpoint->by_name[t];
		dims += 2 * (uint64_t)entry->tensor->rank;
	}
	for (size_t f = 0; f < key->n_files; f++) {
		ret->files[f] = key->files[f];
		ret->files[f].path = add_string(ret, &strings, key->paths[f]);
	}
	for (size_t m = 0; m < checkpoint->n_metadata; m++) {
		ret->metadata[m].key = add_string(ret, &strings, checkpoint->metadata[m].key);
		ret->metadata[m].value = add_string(ret, &strings, checkpoint->metadata[m].value);
	}
}

/* --- checking --- */

/* Checks all that find_parts() relies on; the parts themselves come after. */
static int check_header(const struct hoist__image_header *header, size_t bytes, uint64_t at[7])
{
	uint64_t end;
	if (bytes < sizeof *header || memcmp(header->magic, magic, sizeof magic) != 0)
		return BAD("the table does not begin as one of hoist");
	if (header->version != HOIST__IMAGE_VERSION)
		return BAD("version %u; this library knows %u", header->version,
			   HOIST__IMAGE_VERSION);
	if (header->file_bytes != bytes)
		return BAD("the table is for %llu bytes, and the file has %zu",
			   (unsigned long long)header->file_bytes, bytes);
	if (lay_out(header, at, &end) < 0 || end > header->data_offset ||
	    header->data_offset > bytes || header->data_offset % 4096 != 0 ||
	    header->string_bytes == 0)
		return BAD("%llu tensors, %llu files, %llu bytes of strings do not fit before byte "
			   "%llu of %zu",
			   (unsigned long long)header->n_tensors,
			   (unsigned long long)header->n_files,
			   (unsigned long long)header->string_bytes,
			   (unsigned long long)header->data_offset, bytes);
	if (memchr(header->note, '\0', sizeof header->note) == NULL ||
	    header->pages > HOIST_PAGES_HUGETLB || header->node < -1 ||
	    (header->open_flags & ~HOIST__OPEN_FLAGS) != 0)
		return BAD("its pages, node, flags or note are none");
	return 0;
}

/* The last string has an end, so every string ends within the strings. */
static int check_string(const struct hoist__image_table *table, uint64_t at, const char *what)
{
	if (at < table->header->string_bytes)
		return 0;
	return BAD("%s is string %llu of %llu bytes", what, (unsigned long long)at,
		   (unsigned long long)table->header->string_bytes);
}

static int check_place(const struct hoist__image_table *table,
		       const struct hoist__image_tensor *tensor)
{
	const struct hoist__image_header *header = table->header;
	const int64_t *shape = table->dims + tensor->dims;
	uint64_t elements;
	size_t packed = 0;
	int64_t low = 0, high = 0;
	int err = hoist__layout_elements((int)tensor->rank, shape, &elements);
	if (err == 0 && elements > 0)
		err = hoist__layout_bounds((hoist_dtype)tensor->dtype, (int)tensor->rank, shape,
					   shape + tensor->rank, &low, &high);
	/* With strides of 0, a few bytes can be more elements than any memory holds. */
	if (err == 0)
		err = hoist_dtype_bytes((hoist_dtype)tensor->dtype, elements, &packed);
	if (err < 0 || hoist_dtype_name((hoist_dtype)tensor->dtype) == NULL)
		return BAD("a tensor's dtype %u, shape and strides are none", tensor->dtype);
	if (tensor->bytes != (uint64_t)high - (uint64_t)low)
		return BAD("a tensor of %llu bytes, which its shape and strides do not have",
			   (unsigned long long)tensor->bytes);
	if (tensor->offset < header->data_offset || tensor->offset > header->file_bytes)
		return BAD("a tensor at byte %llu", (unsigned long long)tensor->offset);
	uint64_t before = tensor->offset - header->data_offset;
	uint64_t behind = header->file_bytes - tensor->offset;
	if (elements > 0 && ((uint64_t)-low > before || (uint64_t)high > behind))
		return BAD("a tensor at byte %llu leaves the data",
			   (unsigned long long)tensor->offset);
	return 0;
}

static int check_tensor(const struct hoist__image_table *table,
			const struct hoist__image_tensor *tensor)
{
	const struct hoist__image_header *header = table->header;
	if (tensor->rank > HOIST__MAX_RANK || tensor->dims > header->n_dims ||
	    2 * (uint64_t)tensor->rank > header->n_dims - tensor->dims)
		return BAD("a tensor of rank %u has extents where there are none", tensor->rank);
	if (tensor->shard >= header->n_files)
		return BAD("a tensor is in file %llu of %llu", (unsigned long long)tensor->shard,
			   (unsigned long long)header->n_files);
	int err = check_string(table, tensor->name, "a tensor's name");
	return err < 0 ? err : check_place(table, tensor);
}

static const char *name_of(const struct hoist__image_table *table, uint64_t index)
{
	return table->strings + table->tensors[index].name;
}

/* The names are strictly in order, so each tensor is there exactly once. */
static int check_names(const struct hoist__image_table *table)
{
	uint64_t n = table->header->n_tensors;
	for (uint64_t i = 0; i < n; i++) {
		if (table->by_name[i] >= n)
			return BAD("tensor %llu of %llu by name",
				   (unsigned long long)table->by_name[i], (unsigned long long)n);
		if (i > 0 && strcmp(name_of(table, table->by_name[i - 1]),
				    name_of(table, table->by_name[i])) >= 0)
			return BAD("its names are not in order");
	}
	return 0;
}

static int check_rest(const struct hoist__image_table *table)
{
	const struct hoist__image_header *header = table->header;
	int err = check_string(table, header->path, "its path");
	if (err == 0)
		err = check_string(table, header->format, "its format");
	for (uint64_t f = 0; err == 0 && f < header->n_files; f++)
		err = table->files[f].kind <= HOIST__IMAGE_FOLDER
			      ? check_string(table, table->files[f].path, "a file's path")
			      : BAD("a file of kind %llu",
				    (unsigned long long)table->files[f].kind);
	for (uint64_t m = 0; err == 0 && m < header->n_metadata; m++) {
		err = check_string(table, table->metadata[m].key, "a key");
		if (err == 0)
			err = check_string(table, table->metadata[m].value, "a value");
	}
	return err;
}

int hoist__image_table_check(void *base, size_t bytes, struct hoist__image_table *ret)
{
	struct hoist__image_table table = {.header = base};
	uint64_t at[7];
	int err = check_header(base, bytes, at);
	if (err < 0)
		return err;
	find_parts(base, at, &table);
	if (table.strings[table.header->string_bytes - 1] != '\0')
		return BAD("its strings do not end");
	err = check_rest(&table);
	for (uint64_t t = 0; err == 0 && t < table.header->n_tensors; t++)
		err = check_tensor(&table, &table.tensors[t]);
	if (err == 0)
		err = check_names(&table);
	if (err == 0)
		*ret = table;
	return err;
}
