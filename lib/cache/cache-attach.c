/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-attach.c - maps an image, and opens its tensors as buffers.
 * The contract is in lib/cache/cache.h and hoist/cache.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/layout.h"
#include "lib/buffer/buffer-private.h"
#include "lib/buffer/storage.h"
#include "lib/cache/cache.h"
#include "lib/core/options.h"
#include "lib/device/device.h"

struct hoist_image {
	struct hoist__storage *storage; /* the mapping, which begins with the table */
	struct hoist__image_table table;
};

/* The mapping that a storage unmaps at its end. */
struct mapping {
	char *base;
	size_t bytes;
};

static void unmap(void *context)
{
	struct mapping *mapping = context;
	(void)munmap(mapping->base, mapping->bytes);
	free(mapping);
}

/* Takes over the mapping on success. */
static int wrap(char *base, size_t bytes, bool read_only, struct hoist__storage **ret)
{
	struct hoist__foreign foreign = {
		.kind = HOIST__MEMORY_HOST,
		.address = (uintptr_t)base,
		.bytes = bytes,
		.read_only = read_only,
		.release = unmap,
	};
	struct mapping *mapping = malloc(sizeof *mapping);
	if (mapping == NULL)
		return hoist__fail_nomem("an image's mapping", sizeof *mapping);
	*mapping = (struct mapping){base, bytes};
	foreign.context = mapping;
	int err = hoist__device_cpu(&foreign.device);
	if (err == 0)
		err = hoist__storage_wrap(&foreign, ret);
	if (err < 0)
		free(mapping);
	return err;
}

/* A write before the start of a buffer must not reach the table, from which buffers are made. */
static int protect_table(const struct hoist__image_table *table)
{
	if (mprotect(table->header, (size_t)table->header->data_offset, PROT_READ) == 0)
		return 0;
	return hoist__fail_errno(-errno, "protecting the table of an image");
}

static int open_mapping(hoist_image *image, char *base, size_t bytes, bool read_only)
{
	int err = hoist__image_table_check(base, bytes, &image->table);
	if (err == 0)
		err = protect_table(&image->table);
	if (err == 0)
		err = wrap(base, bytes, read_only, &image->storage);
	return err;
}

int hoist__image_open(int fd, unsigned flags, hoist_image **ret)
{
	bool read_only = (flags & HOIST_IMAGE_READ_ONLY) != 0;
	bool hugetlb = false;
	size_t bytes = 0;
	char *base = NULL;
	int err = hoist__memory_file_judge(fd, &bytes, &hugetlb);
	if (err < 0)
		return err;
	hoist_image *image = calloc(1, sizeof *image);
	if (image == NULL)
		return hoist__fail_nomem("an image", sizeof *image);
	err = hoist__memory_file_map(fd, bytes, hugetlb, read_only, &base);
	if (err == 0) {
		/* On success the mapping belongs to the image's storage. */
		err = open_mapping(image, base, bytes, read_only);
		if (err < 0)
			(void)munmap(base, bytes);
	}
	if (err < 0)
		free(image);
	else
		*ret = image;
	return err;
}

void hoist_image_close(hoist_image *image)
{
	if (image == NULL)
		return;
	hoist__storage_unref(image->storage);
	free(image);
}

/* --- finding an image --- */

/* The answer of the holder is checked and not trusted: the image must be of this path, and the
 * files must be those that were cached. */
int hoist__cache_find(const char *path, enum hoist__cache_op op, unsigned flags, hoist_image **ret)
{
	struct hoist__cache_message message;
	hoist_image *image = NULL;
	int fd = -1;
	int err = hoist__cache_message_init(op, path, &message);
	if (err == 0)
		err = hoist__cache_ask(&message, -1, &fd);
	/* A holder that is ending has no images any more. */
	if (err == -ENOENT || err == -EPIPE)
		return hoist__fail(
			-ENOENT,
			"%s is not in the cache; add the checkpoint with `hoist cache add`", path);
	if (err < 0)
		return err;
	err = hoist__image_open(fd, flags, &image);
	(void)close(fd);
	if (err == 0 && strcmp(image->table.strings + image->table.header->path, path) != 0)
		err = hoist__fail(-EBADMSG, "the cache's holder gave an image of another path");
	if (err == 0)
		err = hoist__image_key_check(&image->table);
	if (err < 0)
		hoist_image_close(image);
	else
		*ret = image;
	return err;
}

int hoist_cache_attach(const char *path, unsigned flags, hoist_image **ret)
{
	char *resolved = NULL;
	if (ret == NULL)
		return hoist__fail(-EINVAL, "attaching an image: the result is NULL");
	if ((flags & ~HOIST_IMAGE_READ_ONLY) != 0)
		return hoist__fail(-EINVAL, "attaching an image: unknown flags 0x%x", flags);
	int err = hoist__cache_path(path, &resolved);
	if (err == 0)
		err = hoist__cache_find(resolved, HOIST__CACHE_GET, flags, ret);
	free(resolved);
	return err;
}

/* --- tensors and figures of an image --- */

const struct hoist__image_table *hoist__image_table_of(const hoist_image *image)
{
	return &image->table;
}

static uint64_t age_of(uint64_t added_ns)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	uint64_t ns = (uint64_t)now.tv_sec * HOIST__NS_PER_S + (uint64_t)now.tv_nsec;
	return ns > added_ns ? ns - added_ns : 0;
}

int hoist_image_get_info(const hoist_image *image, hoist_image_info *info)
{
	const struct hoist__image_header *header = image->table.header;
	const hoist_image_info full = {
		.size = sizeof full,
		.path = image->table.strings + header->path,
		.format = image->table.strings + header->format,
		.bytes = header->file_bytes,
		.tensor_bytes = header->tensor_bytes,
		.n_tensors = header->n_tensors,
		.age_ns = age_of(header->added_ns),
		.node = header->node,
		.pages = (int)header->pages,
		.note = header->note,
	};
	return hoist__options_out("hoist_image_info", info, &full, sizeof full);
}

size_t hoist_image_n_tensors(const hoist_image *image)
{
	return (size_t)image->table.header->n_tensors;
}

static int check_index(const char *what, size_t index, uint64_t n)
{
	if (index < n)
		return 0;
	return hoist__fail(-EINVAL, "%s %zu does not exist: the image has %llu", what, index,
			   (unsigned long long)n);
}

int hoist_image_tensor(const hoist_image *image, size_t index, hoist_tensor_info *info)
{
	const struct hoist__image_table *table = &image->table;
	int err = check_index("tensor", index, table->header->n_tensors);
	if (err < 0)
		return err;
	const struct hoist__image_tensor *tensor = &table->tensors[index];
	const int64_t *shape = table->dims + tensor->dims;
	const int64_t *strides = shape + tensor->rank;
	bool dense = hoist__layout_contiguous((int)tensor->rank, shape, strides);
	const hoist_tensor_info full = {
		.size = sizeof full,
		.name = table->strings + tensor->name,
		.dtype = (hoist_dtype)tensor->dtype,
		.rank = (int)tensor->rank,
		.shape = shape,
		.strides = dense ? NULL : strides,
		.bytes = tensor->bytes,
		.file = (size_t)tensor->shard,
		.offset = tensor->shard_offset,
	};
	return hoist__options_out("hoist_tensor_info", info, &full, sizeof full);
}

struct wanted {
	const char *name;
	const struct hoist__image_table *table;
};

static int compare_name(const void *key, const void *index)
{
	const struct wanted *wanted = key;
	const uint64_t *t = index;
	return strcmp(wanted->name, wanted->table->strings + wanted->table->tensors[*t].name);
}

int hoist_image_find(const hoist_image *image, const char *name, size_t *ret)
{
	const struct hoist__image_table *table = &image->table;
	const struct wanted wanted = {name, table};
	const uint64_t *found =
		bsearch(&wanted, table->by_name, name != NULL ? table->header->n_tensors : 0,
			sizeof *table->by_name, compare_name);
	if (found == NULL)
		return hoist__fail(-ENOENT, "the image has no tensor \"%.200s\"",
				   name != NULL ? name : "(null)");
	*ret = (size_t)*found;
	return 0;
}

size_t hoist_image_n_metadata(const hoist_image *image)
{
	return (size_t)image->table.header->n_metadata;
}

int hoist_image_metadata(const hoist_image *image, size_t index, const char **key,
			 const char **value)
{
	const struct hoist__image_table *table = &image->table;
	int err = check_index("metadata entry", index, table->header->n_metadata);
	if (err < 0)
		return err;
	*key = table->strings + table->metadata[index].key;
	*value = table->strings + table->metadata[index].value;
	return 0;
}

int hoist_image_buffer(hoist_image *image, size_t index, hoist_buffer **ret)
{
	const struct hoist__image_table *table = &image->table;
	int err = check_index("tensor", index, table->header->n_tensors);
	if (err < 0)
		return err;
	const struct hoist__image_tensor *tensor = &table->tensors[index];
	const struct hoist__view view = {
		.dtype = (hoist_dtype)tensor->dtype,
		.rank = (int)tensor->rank,
		.offset = (size_t)tensor->offset,
		.shape = table->dims + tensor->dims,
		.strides = table->dims + tensor->dims + tensor->rank,
	};
	return hoist__buffer_make(image->storage, &view, ret);
}
