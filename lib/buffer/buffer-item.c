/* SPDX-License-Identifier: MIT */
/* lib/buffer/buffer-item.c - reads and writes single elements, in whatever memory they are.
 * The contract is in hoist/element.h and lib/buffer/buffer-item.h. */
#include "config.h"

#include "lib/buffer/buffer-item.h"

#include "base/error.h"
#include "hoist/element.h"
#include "hoist/number.h"

/* An element, and one byte more: a sub-byte element may begin with the last bits of a byte. */
#define TOUCHED_BYTES (HOIST__PATTERN_BYTES + 1)

int hoist__buffer_check_elements(const hoist_buffer *buffer, const char *what,
				 const struct hoist__dtype_info **ret)
{
	int err = hoist__buffer_check(buffer, what);
	if (err == 0)
		err = hoist__number_check(buffer->dtype, ret);
	if (err == 0 && !hoist__storage_has_access(buffer->storage))
		return hoist__fail(-ENOTSUP,
				   "%s has memory of a resource that neither the CPU nor a device "
				   "can touch",
				   what);
	return err;
}

/* --- indices --- */

/* Gives the element's distance from the first one, in elements. */
static int locate(const hoist_buffer *buffer, int n, const int64_t *indices, int64_t *ret)
{
	int64_t element = 0;
	if (n != buffer->rank && !(buffer->rank == 0 && n == 1))
		return hoist__fail(-EINVAL,
				   "%d indices for a buffer of rank %d; give one for each axis", n,
				   buffer->rank);
	if (n > 0 && indices == NULL)
		return hoist__fail(-EINVAL, "the %d indices are NULL", n);
	/* A buffer of rank 0 may be indexed as if it had one axis of extent 1: MAX allows it,
	 * NumPy's x[0] does not. */
	if (n > buffer->rank && indices[0] != 0)
		return hoist__fail(-ERANGE,
				   "index %lld of a buffer of rank 0, which has index 0 alone",
				   (long long)indices[0]);
	for (int i = 0; i < buffer->rank; i++) {
		int64_t extent = buffer->dims[i];
		int64_t index = indices[i] < 0 ? indices[i] + extent : indices[i];
		if (index < 0 || index >= extent)
			return hoist__fail(-ERANGE, "index %lld is outside axis %d, which has %lld",
					   (long long)indices[i], i, (long long)extent);
		element += index * buffer->strides[i];
	}
	*ret = element;
	return 0;
}

/* --- bytes --- */

int hoist__buffer_peek(const hoist_buffer *buffer, int64_t offset, void *host, size_t n)
{
	const struct hoist__span from = hoist__buffer_span(buffer, offset);
	const struct hoist__span to = {NULL, HOIST__MEMORY_HOST, (uintptr_t)host};
	int err = hoist__transfer(&to, &from, n);
	return err == 0 ? 0
			: hoist__fail_in(err, "reading elements of %s",
					 hoist_device_spec(buffer->device));
}

static int poke(const hoist_buffer *buffer, int64_t offset, const void *host, size_t n)
{
	const struct hoist__span to = hoist__buffer_span(buffer, offset);
	const struct hoist__span from = {NULL, HOIST__MEMORY_HOST, (uintptr_t)host};
	int err = hoist__transfer(&to, &from, n);
	return err == 0 ? 0
			: hoist__fail_in(err, "writing an element of %s",
					 hoist_device_spec(buffer->device));
}

static int load(const hoist_buffer *buffer, const struct hoist__dtype_info *info, int64_t element,
		hoist_number *ret)
{
	unsigned char bytes[TOUCHED_BYTES];
	int64_t place = hoist__place_of(buffer, info, element);
	unsigned bit = hoist__place_bit(place);
	int err = hoist__buffer_peek(buffer, hoist__place_byte(place), bytes,
				     hoist__number_span(info, bit));
	if (err == 0)
		*ret = hoist__number_load(info, bytes, bit);
	return err;
}

/* The bytes of a sub-byte element hold other elements' bits, too: these are read first and kept. */
static int store(const hoist_buffer *buffer, const struct hoist__dtype_info *info, int64_t element,
		 const unsigned char *pattern)
{
	unsigned char bytes[TOUCHED_BYTES];
	int64_t place = hoist__place_of(buffer, info, element);
	int64_t offset = hoist__place_byte(place);
	unsigned bit = hoist__place_bit(place);
	size_t n = hoist__number_span(info, bit);
	int err = info->bits % 8 != 0 ? hoist__buffer_peek(buffer, offset, bytes, n) : 0;
	if (err < 0)
		return err;
	hoist__number_store(info, pattern, bytes, bit);
	return poke(buffer, offset, bytes, n);
}

/* --- the calls --- */

int hoist_buffer_get(hoist_buffer *buffer, int n, const int64_t *indices, hoist_number *ret)
{
	const struct hoist__dtype_info *info;
	int64_t element = 0;
	int err = hoist__buffer_check_elements(buffer, "the buffer to read from", &info);
	if (err == 0)
		err = locate(buffer, n, indices, &element);
	if (err == 0)
		err = hoist__buffer_settle(buffer);
	if (err == 0)
		err = load(buffer, info, element, ret);
	return err;
}

int hoist_buffer_set(hoist_buffer *buffer, int n, const int64_t *indices, hoist_number value,
		     unsigned flags)
{
	const struct hoist__dtype_info *info;
	unsigned char pattern[HOIST__PATTERN_BYTES];
	int64_t element = 0;
	static const char what[] = "the buffer to store into";
	int err = hoist__buffer_check_elements(buffer, what, &info);
	if (err == 0)
		err = hoist__buffer_check_writable(buffer, what);
	if (err == 0)
		err = locate(buffer, n, indices, &element);
	if (err == 0)
		err = hoist__number_pack(value, flags, info, pattern);
	if (err == 0)
		err = hoist__buffer_settle(buffer);
	if (err == 0)
		err = store(buffer, info, element, pattern);
	return err;
}

/* The buffer may have any rank: the reference documents rank 0 alone, but takes any. */
int hoist_buffer_item(hoist_buffer *buffer, hoist_number *ret)
{
	const struct hoist__dtype_info *info;
	int err = hoist__buffer_check_elements(buffer, "the buffer to take the item of", &info);
	if (err < 0)
		return err;
	if (buffer->elements != 1)
		return hoist__fail(-EINVAL,
				   "the one item of a buffer with %llu items; it needs exactly 1",
				   (unsigned long long)buffer->elements);
	err = hoist__buffer_settle(buffer);
	return err < 0 ? err : load(buffer, info, 0, ret);
}

int hoist_buffer_scalar(hoist_number value, hoist_dtype dtype, hoist_device *device,
			hoist_buffer **ret)
{
	const struct hoist__dtype_info *info;
	unsigned char pattern[HOIST__PATTERN_BYTES];
	hoist_buffer *made;
	int err = hoist__number_check(dtype, &info);
	if (err == 0)
		err = hoist__number_pack(value, 0, info, pattern);
	if (err == 0)
		err = hoist_buffer_create(device, dtype, 0, NULL, 0, &made);
	if (err < 0)
		return err;
	err = poke(made, 0, pattern, hoist__number_span(info, 0));
	if (err < 0) {
		hoist_buffer_unref(made);
		return err;
	}
	*ret = made;
	return 0;
}
