/* SPDX-License-Identifier: MIT */
/* format/safetensors_tensor.c - reads one tensor of a safetensors header, with all checks of it
 * alone.
 * The contract is in format/safetensors.h.
 *
 * Unknown keys are passed over, as in the format's own reader. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "format/quote.h"
#include "format/safetensors.h"

/* Most tensors have the same dtype as the one before them, with the same spelling. */
static int read_dtype(struct hoist__json *json, struct hoist__safetensors_fields *fields)
{
	struct hoist__json_string name;
	if (hoist__json_peek(json) != '"')
		return hoist__json_fail(json, json->at, "dtype is not a string");
	int err = hoist__json_string(json, "a string", &name);
	if (err < 0)
		return err;
	if (name.bytes > 0 && name.bytes == fields->last_bytes &&
	    memcmp(name.raw, fields->last, name.bytes) == 0) {
		fields->dtype = fields->last_dtype;
		return 0;
	}
	char decoded[64];
	hoist_dtype dtype = HOIST_DTYPE_INVALID;
	if (name.bytes < sizeof decoded)
		dtype = hoist__dtype_from_safetensors(decoded, hoist__json_decode(&name, decoded));
	if (dtype == HOIST_DTYPE_INVALID) {
		char shown[HOIST__QUOTED_BYTES];
		return hoist__json_fail(json, name.at, "dtype %s is not known",
					hoist__quoted(name.raw, name.bytes, shown));
	}
	fields->dtype = fields->last_dtype = dtype;
	fields->last = name.raw;
	fields->last_bytes = name.bytes;
	return 0;
}

/* Reads an integer that is not negative; @what: "an extent of shape". */
static int read_natural(struct hoist__json *json, const char *what, int64_t *ret)
{
	enum hoist__json_number kind;
	(void)hoist__json_peek(json);
	size_t at = json->at;
	int err = hoist__json_number(json, what, &kind, ret);
	if (err < 0 || kind == HOIST__JSON_NATURAL)
		return err;
	return hoist__json_fail(json, at, "%s %s", what,
				kind == HOIST__JSON_NEGATIVE  ? "is negative"
				: kind == HOIST__JSON_TOO_BIG ? "does not fit in 63 bits"
							      : "is not an integer");
}

static int read_shape(struct hoist__json *json, struct hoist__safetensors_fields *fields)
{
	int err = hoist__json_open(json, '[', "shape");
	if (err < 0)
		return err;
	int more;
	int rank = 0;
	for (size_t n = 0; (more = hoist__json_next(json, ']', n)) > 0; n++) {
		if (rank == HOIST__MAX_RANK)
			return hoist__json_fail(json, fields->shape_at,
						"shape has more than %d axes", HOIST__MAX_RANK);
		err = read_natural(json, "an extent of shape", &fields->shape[rank++]);
		if (err < 0)
			return err;
	}
	fields->rank = rank;
	return more;
}

static int read_range(struct hoist__json *json, struct hoist__safetensors_fields *fields)
{
	int64_t *ends[] = {&fields->begin, &fields->end};
	int err = hoist__json_open(json, '[', "data_offsets");
	if (err < 0)
		return err;
	int more;
	size_t n = 0;
	for (; (more = hoist__json_next(json, ']', n)) > 0; n++) {
		if (n == HOIST__ARRAY_SIZE(ends))
			break;
		err = read_natural(json, "an offset of data_offsets", ends[n]);
		if (err < 0)
			return err;
	}
	if (more < 0)
		return more;
	if (more > 0 || n != HOIST__ARRAY_SIZE(ends))
		return hoist__json_fail(json, fields->range_at,
					"data_offsets is not a pair [begin, end)");
	return 0;
}

/* A position of 0 means that the key has not been seen: byte 0 is the header's own bracket.  A key
 * that comes twice is refused, since readers differ in which value they take. */
static int read_fields(struct hoist__json *json, struct hoist__safetensors_fields *fields)
{
	int err = hoist__json_open(json, '{', "its description");
	if (err < 0)
		return err;
	int more;
	for (size_t n = 0; (more = hoist__json_next(json, '}', n)) > 0; n++) {
		struct hoist__json_string key;
		err = hoist__json_key(json, &key);
		if (err < 0)
			return err;
		(void)hoist__json_peek(json);
		size_t at = json->at;
		size_t *seen = hoist__json_is(&key, "dtype")	      ? &fields->dtype_at
			       : hoist__json_is(&key, "shape")	      ? &fields->shape_at
			       : hoist__json_is(&key, "data_offsets") ? &fields->range_at
								      : NULL;
		if (seen != NULL && *seen != 0)
			return hoist__json_fail(json, key.at, "the key \"%.*s\" comes twice",
						(int)key.bytes, key.raw);
		if (seen == NULL) {
			err = hoist__json_skip(json);
		} else {
			*seen = at;
			err = seen == &fields->dtype_at	  ? read_dtype(json, fields)
			      : seen == &fields->shape_at ? read_shape(json, fields)
							  : read_range(json, fields);
		}
		if (err < 0)
			return err;
	}
	return more;
}

/* Writes "[2, 3] of f32", cut after 6 axes. */
static const char *show(const struct hoist__safetensors_fields *fields, char *out, size_t bytes)
{
	const int shown = fields->rank < 6 ? fields->rank : 6;
	size_t used = (size_t)snprintf(out, bytes, "[");
	for (int i = 0; i < shown; i++)
		used += (size_t)snprintf(out + used, bytes - used, "%s%lld", i > 0 ? ", " : "",
					 (long long)fields->shape[i]);
	(void)snprintf(out + used, bytes - used, "%s] of %s", fields->rank > shown ? ", ..." : "",
		       hoist_dtype_name(fields->dtype));
	return out;
}

/* Counts the bytes by shape and dtype.  Axes of extent 0 count as 1 for the limit, so that a tensor
 * without elements still has strides. */
static int count_bytes(struct hoist__json *json, const struct hoist__safetensors_fields *fields,
		       uint64_t *ret)
{
	char text[192];
	bool empty = false;
	bool overflow = false;
	uint64_t n = 1;
	for (int i = 0; i < fields->rank; i++) {
		uint64_t extent = (uint64_t)fields->shape[i];
		empty |= extent == 0;
		overflow |= hoist__mul_overflow(n, hoist__max_u64(extent, 1), &n) || n > INT64_MAX;
	}
	size_t bytes = 0;
	int err = overflow ? -EOVERFLOW : hoist_dtype_bytes(fields->dtype, empty ? 0 : n, &bytes);
	if (err == -EOVERFLOW)
		return hoist__json_fail(json, fields->shape_at,
					"shape %s overflows: its elements or its bytes do not fit "
					"in 63 bits",
					show(fields, text, sizeof text));
	if (err < 0)
		return hoist__json_fail(json, fields->shape_at,
					"shape %s is %llu bits, not a whole number of bytes",
					show(fields, text, sizeof text),
					(unsigned long long)(n * hoist_dtype_bits(fields->dtype)));
	*ret = bytes;
	return 0;
}

/* The keys may come in any order, so the fields are compared when all have been read. */
static int check_fields(struct hoist__json *json, size_t key_at, uint64_t data_bytes,
			struct hoist__safetensors_fields *fields)
{
	const char *missing = fields->dtype_at == 0   ? "dtype"
			      : fields->shape_at == 0 ? "shape"
			      : fields->range_at == 0 ? "data_offsets"
						      : NULL;
	if (missing != NULL)
		return hoist__json_fail(json, key_at, "the key \"%s\" is missing", missing);
	long long begin = fields->begin;
	long long end = fields->end;
	if (begin > end)
		return hoist__json_fail(json, fields->range_at,
					"data_offsets [%lld, %lld) end before they begin", begin,
					end);
	int err = count_bytes(json, fields, &fields->bytes);
	if (err < 0)
		return err;
	char text[192];
	if ((uint64_t)(end - begin) != fields->bytes)
		return hoist__json_fail(
			json, fields->range_at,
			"data_offsets [%lld, %lld) are %lld bytes, but shape %s is %llu", begin,
			end, end - begin, show(fields, text, sizeof text),
			(unsigned long long)fields->bytes);
	if ((uint64_t)end > data_bytes)
		return hoist__json_fail(
			json, fields->range_at,
			"data_offsets [%lld, %lld) end beyond the file, which holds "
			"%llu bytes of data; is it incomplete?",
			begin, end, (unsigned long long)data_bytes);
	return 0;
}

int hoist__safetensors_fields(struct hoist__json *json, size_t key_at, uint64_t data_bytes,
			      struct hoist__safetensors_fields *ret)
{
	ret->rank = 0;
	ret->dtype_at = ret->shape_at = ret->range_at = 0;
	int err = read_fields(json, ret);
	return err < 0 ? err : check_fields(json, key_at, data_bytes, ret);
}
