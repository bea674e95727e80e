/* SPDX-License-Identifier: MIT */
/* tests/support/format-expect.h - questions about errors and manifests, for tests of format/ on
 * Criterion. */
#ifndef HOIST_TESTS_FORMAT_EXPECT_H
#define HOIST_TESTS_FORMAT_EXPECT_H

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "format/write.h"
#include "tests/support/format-bytes.h"

/* The last error's text has @text in it. */
static inline void expect_text(const char *text)
{
	cr_expect_not_null(strstr(hoist__error_text(), text), "\"%s\" lacks \"%s\"",
			   hoist__error_text(), text);
}

/* A call that gave @err and the result @result failed as it must: with @code, a text with @text in
 * it, and no result. */
static inline void expect_failed(int err, const void *result, int code, const char *text)
{
	cr_expect_eq(err, code, "%s", text);
	cr_expect_null(result, "%s: the result was touched", text);
	expect_text(text);
}

static inline const struct hoist__tensor *find_tensor(const struct hoist__manifest *manifest,
						      const char *name)
{
	for (size_t i = 0; i < manifest->n_tensors; i++)
		if (strcmp(manifest->tensors[i].name, name) == 0)
			return &manifest->tensors[i];
	cr_assert_fail("there is no tensor \"%s\"", name);
	return NULL;
}

static inline const char *value_of(const struct hoist__manifest *manifest, const char *key)
{
	for (size_t i = 0; i < manifest->n_metadata; i++)
		if (strcmp(manifest->metadata[i].key, key) == 0)
			return manifest->metadata[i].value;
	return "(none)";
}

typedef const char *const pair_of_texts[2];

/* The metadata are these pairs, in this order. */
static inline void expect_metadata(const struct hoist__manifest *manifest, pair_of_texts *pairs,
				   size_t n)
{
	cr_assert_eq(manifest->n_metadata, n);
	for (size_t i = 0; i < n; i++) {
		cr_expect_str_eq(manifest->metadata[i].key, pairs[i][0]);
		cr_expect_str_eq(manifest->metadata[i].value, pairs[i][1], "%s: %s", pairs[i][0],
				 manifest->metadata[i].value);
	}
}

/* The tensor that was read is the one that was written. */
static inline void expect_same(const struct hoist__tensor *read,
			       const struct hoist__out_tensor *written)
{
	cr_expect_str_eq(read->name, written->name);
	cr_expect_eq(read->dtype, written->dtype, "%s", hoist_dtype_name(written->dtype));
	cr_assert_eq(read->rank, written->rank);
	for (int i = 0; i < written->rank; i++)
		cr_expect_eq(read->shape[i], written->shape[i]);
	cr_expect_eq(read->bytes, written->bytes);
	cr_expect_eq(read->offset, written->offset);
	cr_expect_null(read->strides);
}

/* All tensors lie within a file of @bytes. */
static inline void expect_within(const struct hoist__manifest *manifest, uint64_t bytes)
{
	for (size_t i = 0; i < manifest->n_tensors; i++) {
		cr_assert_leq(manifest->tensors[i].offset, bytes);
		cr_assert_leq(manifest->tensors[i].bytes, bytes - manifest->tensors[i].offset);
	}
}

/* Parses a file that some change may have spoiled.  Returns: the parser's result, which is 0 with
 * tensors within the file, or one of the two codes for content, without a result. */
static inline int parse_spoiled_as(const struct bytes *bytes, size_t n, enum hoist__format format,
				   bool lenient)
{
	struct hoist__manifest *manifest = NULL;
	int err = bytes_parse_as(bytes, n, format, lenient, &manifest);
	cr_assert(err == 0 || err == -EBADMSG || err == -ENOTSUP, "%d", err);
	cr_assert((err == 0) == (manifest != NULL));
	if (err == 0)
		expect_within(manifest, n);
	hoist__manifest_destroy(manifest);
	return err;
}

static inline int parse_spoiled(const struct bytes *bytes, size_t n, enum hoist__format format)
{
	if (format == HOIST__TORCH)
		(void)parse_spoiled_as(bytes, n, format, true);
	return parse_spoiled_as(bytes, n, format, false);
}

/* Every byte of [@begin, @end), changed to each @step-th value: the file is read, or refused. */
static inline void spoil_each_byte(struct bytes *bytes, size_t begin, size_t end, unsigned step,
				   enum hoist__format format)
{
	for (size_t at = begin; at < end; at++) {
		unsigned char was = bytes->p[at];
		for (unsigned value = 0; value < 256; value += step) {
			bytes->p[at] = (unsigned char)value;
			(void)parse_spoiled(bytes, bytes->n, format);
		}
		bytes->p[at] = was;
	}
}

/* The file is refused if it ends early, wherever. */
static inline void cut_everywhere(const struct bytes *bytes, enum hoist__format format)
{
	for (size_t n = 0; n < bytes->n; n++)
		cr_assert_eq(parse_spoiled(bytes, n, format), -EBADMSG, "%zu", n);
}

#endif
