/* SPDX-License-Identifier: MIT */
/* format/manifest.h - functions with which a parser fills a manifest. */
#ifndef HOIST_FORMAT_MANIFEST_H
#define HOIST_FORMAT_MANIFEST_H

#include <stddef.h>

#include "format/arena.h"
#include "format/format.h"
#include "format/json.h"

/* Metadata while it is read.  Pairs do not move: a pair may be as short as 5 bytes, and an array
 * that grows by copying would take 14 times that. */
struct hoist__metadata_list {
	struct hoist__metadata_chunk *first;
	struct hoist__metadata_chunk *last;
	size_t n;
};

/* The manifest that callers see is the first member: hoist__manifest_destroy() gets from it to the
 * whole. */
struct hoist__manifest_box {
	struct hoist__manifest manifest;
	struct hoist__arena arena; /* names, shapes, metadata texts */
	void *raw;		   /* raw_metadata points into it; from malloc, or NULL */
};

/* Makes an empty manifest; NULL if host memory is exhausted (the text is set). */
struct hoist__manifest_box *hoist__manifest_create(void);

/* Decodes @string into @arena; *n is its length.
 * Returns: 0; -EBADMSG if it contains a NUL (@what names the string); -ENOMEM. */
int hoist__keep_string(struct hoist__json *json, const char *what,
		       const struct hoist__json_string *string, struct hoist__arena *arena,
		       const char **ret, size_t *n);

/* The memory that a pair takes at most, without its texts: in the list, of which half may be
 * unused, and in the array that the list becomes. */
#define HOIST__METADATA_BYTES (6 * sizeof(void *) + sizeof(struct hoist__metadata))

/* Appends one pair, whose key is at @at.
 * Returns: 0; -ENOMEM. */
int hoist__metadata_push(struct hoist__metadata_list *list, const struct hoist__metadata *pair,
			 size_t at);

/* Gives the pairs in their order as an array from malloc (NULL if there are none).  @json is for
 * the message; NULL: keys may come twice.
 * Returns: 0; -EBADMSG if a key comes twice; -ENOMEM. */
int hoist__metadata_finish(const struct hoist__json *json, const struct hoist__metadata_list *list,
			   struct hoist__metadata **ret, size_t *n);
void hoist__metadata_drop(struct hoist__metadata_list *list);

/* Sorts the tensors by their bytes, and checks that they do not overlap, as most formats require;
 * then does the same as hoist__manifest_names().  @file is quoted.
 * Returns: 0; -EBADMSG; -ENOMEM. */
int hoist__manifest_order(const char *file, struct hoist__manifest *manifest);

/* Fills by_name, and refuses two tensors of one name.  @file is quoted.
 * Returns: 0; -EBADMSG; -ENOMEM. */
int hoist__manifest_names(const char *file, struct hoist__manifest *manifest);

/* Gives the bytes of a dense tensor.  For overflow an extent of 0 counts as 1, so that empty
 * tensors have strides, too, and every tensor that is listed can be used.
 * Returns: 0; -EOVERFLOW; -EINVAL (no whole bytes). */
int hoist__tensor_bytes(hoist_dtype dtype, int rank, const int64_t *shape, uint64_t *ret);

/* Grows a vector of @size byte items so that one more than @n fits.
 * Returns: 0; -ENOMEM. */
int hoist__vector_grow(void **items, size_t n, size_t *room, size_t size, const char *what);

#endif
