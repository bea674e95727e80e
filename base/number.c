/* SPDX-License-Identifier: MIT */
/* base/number.c - converts numbers to elements and back.
 * The contract is in hoist/number.h and base/number.h. */
#include "config.h"

#include "base/number.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/minifloat.h"
#include "hoist/number.h"

/* An integer of 65 bits: large enough for any number before it is checked against a dtype's
 * range. */
struct integer {
	bool negative;
	uint64_t magnitude;
};

int hoist__number_check(hoist_dtype dtype, const struct hoist__dtype_info **ret)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(dtype);
	if (info == NULL)
		return hoist__fail(-EINVAL, "%d is no dtype", (int)dtype);
	if (info->kind == HOIST_KIND_BLOCK)
		return hoist__fail(-ENOTSUP,
				   "single elements of %s have no address: %u of them share a "
				   "block of %u bytes",
				   info->name, info->block_elements, info->block_bytes);
	*ret = info;
	return 0;
}

/* Writes the number itself, for messages. */
static const char *text_of(hoist_number number, char text[HOIST__NUMBER_TEXT])
{
	hoist_dtype dtype = number.kind == HOIST_NUMBER_C128 ? HOIST_C128 : HOIST_F64;
	(void)hoist__number_text(number, dtype, text);
	return text;
}

static struct integer integer_of(int64_t value)
{
	struct integer integer = {value < 0, (uint64_t)value};
	if (value < 0)
		integer.magnitude = -integer.magnitude;
	return integer;
}

/* A NaN is true, as in C and in Python. */
static bool is_true(hoist_number number)
{
	switch (number.kind) {
	case HOIST_NUMBER_F64:
		return !(number.as.f64 == 0);
	case HOIST_NUMBER_C128:
		return !(number.as.c128.re == 0 && number.as.c128.im == 0);
	default:
		return number.as.u64 != 0;
	}
}

/* Turns a complex number that is real into a real one. */
static int drop_imaginary(hoist_number *number, const struct hoist__dtype_info *info)
{
	char text[HOIST__NUMBER_TEXT];
	if (number->kind != HOIST_NUMBER_C128)
		return 0;
	if (!(number->as.c128.im == 0))
		return hoist__fail(-EINVAL, "%s is complex and %s is not; store its real part",
				   text_of(*number, text), info->name);
	*number = hoist_number_f64(number->as.c128.re);
	return 0;
}

static uint64_t largest_magnitude(const struct hoist__dtype_info *info, bool negative)
{
	if (info->kind == HOIST_KIND_UNSIGNED)
		return negative ? 0 : UINT64_MAX >> (64 - info->bits);
	/* Two's complement has one value more below 0 than above. */
	return (UINT64_MAX >> (65 - info->bits)) + negative;
}

static int fail_range(hoist_number number, const struct hoist__dtype_info *info)
{
	char text[HOIST__NUMBER_TEXT];
	uint64_t below = largest_magnitude(info, true);
	return hoist__fail(-EDOM,
			   "%s is outside %s, which is %s%llu to %llu; HOIST_SATURATE stores the "
			   "nearest of these",
			   text_of(number, text), info->name, below > 0 ? "-" : "",
			   (unsigned long long)below,
			   (unsigned long long)largest_magnitude(info, false));
}

/* Gives the integer that a double is, or is cut to; *outside if it has more than 64 bits. */
static int whole_of(hoist_number number, unsigned flags, const struct hoist__dtype_info *info,
		    struct integer *ret, bool *outside)
{
	char text[HOIST__NUMBER_TEXT];
	double value = number.as.f64;
	double magnitude = value < 0 ? -value : value;
	if (value != value)
		return hoist__fail(-EINVAL, "nan is no value of %s", info->name);
	ret->negative = value < 0;
	/* From 2^64 on, C leaves the conversion to an integer undefined. */
	*outside = magnitude >= 18446744073709551616.0;
	ret->magnitude = *outside ? 0 : (uint64_t)magnitude;
	bool exact = *outside || (double)ret->magnitude == magnitude;
	if (!exact && !(flags & HOIST_TOWARD_ZERO))
		return hoist__fail(-EINVAL,
				   "%s is no whole number and %s holds no others; round it, or "
				   "HOIST_TOWARD_ZERO drops the fraction",
				   text_of(number, text), info->name);
	return 0;
}

static int pack_integer(hoist_number number, unsigned flags, const struct hoist__dtype_info *info,
			uint64_t *ret)
{
	struct integer value = {false, 0};
	bool outside = false;
	int err = drop_imaginary(&number, info);
	if (err == 0 && number.kind == HOIST_NUMBER_F64)
		err = whole_of(number, flags, info, &value, &outside);
	else if (err == 0 && number.kind == HOIST_NUMBER_U64)
		value.magnitude = number.as.u64;
	else if (err == 0)
		value = integer_of(number.as.i64);
	if (err < 0)
		return err;
	uint64_t most = largest_magnitude(info, value.negative);
	if (outside || value.magnitude > most) {
		if (!(flags & HOIST_SATURATE))
			return fail_range(number, info);
		value.magnitude = most;
	}
	*ret = value.negative ? -value.magnitude : value.magnitude;
	return 0;
}

static struct hoist__real real_of(hoist_number number)
{
	if (number.kind == HOIST_NUMBER_F64)
		return hoist__real_of(number.as.f64);
	struct integer integer = {false, number.as.u64};
	if (number.kind != HOIST_NUMBER_U64)
		integer = integer_of(number.as.i64);
	const struct hoist__real real = {HOIST__REAL_FINITE, integer.negative, 0,
					 integer.magnitude};
	return real;
}

static int pack_float(hoist_number number, unsigned flags, const struct hoist__dtype_info *info,
		      uint64_t *ret)
{
	const struct hoist__minifloat *format = hoist__minifloat_of(info->dtype);
	int err = drop_imaginary(&number, info);
	if (err < 0)
		return err;
	struct hoist__real real = real_of(number);
	if (real.kind == HOIST__REAL_NAN && format->specials == HOIST__FINITE)
		return hoist__fail(-EINVAL, "%s has no nan; its values are finite", info->name);
	*ret = hoist__minifloat_encode(format, real, flags);
	return 0;
}

static void put(unsigned char *bytes, size_t n, uint64_t value)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t take(const unsigned char *bytes, size_t n)
{
	uint64_t value = 0;
	for (size_t i = 0; i < n; i++)
		value |= (uint64_t)bytes[i] << 8 * i;
	return value;
}

static void pack_complex(hoist_number number, unsigned flags, const struct hoist__dtype_info *info,
			 unsigned char *pattern)
{
	const struct hoist__minifloat *format = hoist__minifloat_of(info->dtype);
	struct hoist__real im = hoist__real_of(0);
	if (number.kind == HOIST_NUMBER_C128) {
		im = hoist__real_of(number.as.c128.im);
		number = hoist_number_f64(number.as.c128.re);
	}
	size_t n = info->bits / 16;
	put(pattern, n, hoist__minifloat_encode(format, real_of(number), flags));
	put(pattern + n, n, hoist__minifloat_encode(format, im, flags));
}

int hoist__number_pack(hoist_number number, unsigned flags, const struct hoist__dtype_info *info,
		       unsigned char pattern[HOIST__PATTERN_BYTES])
{
	unsigned unknown = flags & ~(HOIST_TOWARD_ZERO | HOIST_SATURATE);
	uint64_t bits = 0;
	int err = 0;
	if (unknown != 0)
		return hoist__fail(-EINVAL, "0x%x are no flags of storing a number", unknown);
	if ((unsigned)number.kind > HOIST_NUMBER_C128)
		return hoist__fail(-EINVAL, "%d is no kind of number", (int)number.kind);
	memset(pattern, 0, HOIST__PATTERN_BYTES);
	switch (info->kind) {
	case HOIST_KIND_BOOL:
		bits = is_true(number);
		break;
	case HOIST_KIND_FLOAT:
		err = pack_float(number, flags, info, &bits);
		break;
	case HOIST_KIND_COMPLEX:
		pack_complex(number, flags, info, pattern);
		return 0;
	default:
		err = pack_integer(number, flags, info, &bits);
	}
	put(pattern, hoist__number_span(info, 0), bits);
	return err;
}

/* Returns a mask of as many low bits as the element has. */
static uint64_t mask_of(const struct hoist__dtype_info *info)
{
	return UINT64_MAX >> (64 - info->bits);
}

static hoist_number load_complex(const struct hoist__dtype_info *info, const unsigned char *bytes)
{
	const struct hoist__minifloat *format = hoist__minifloat_of(info->dtype);
	size_t n = info->bits / 16;
	return hoist_number_c128(hoist__minifloat_decode(format, take(bytes, n)),
				 hoist__minifloat_decode(format, take(bytes + n, n)));
}

hoist_number hoist__number_load(const struct hoist__dtype_info *info, const void *bytes,
				unsigned bit)
{
	if (info->kind == HOIST_KIND_COMPLEX)
		return load_complex(info, bytes);
	uint64_t bits = take(bytes, hoist__number_span(info, bit)) >> bit & mask_of(info);
	switch (info->kind) {
	case HOIST_KIND_BOOL:
		return hoist_number_bool(bits != 0);
	case HOIST_KIND_FLOAT:
		return hoist_number_f64(
			hoist__minifloat_decode(hoist__minifloat_of(info->dtype), bits));
	case HOIST_KIND_SIGNED:
		if (bits >> (info->bits - 1) != 0)
			bits |= ~mask_of(info);
		return hoist_number_i64((int64_t)bits);
	default:
		return hoist_number_u64(bits);
	}
}

void hoist__number_store(const struct hoist__dtype_info *info,
			 const unsigned char pattern[HOIST__PATTERN_BYTES], void *bytes,
			 unsigned bit)
{
	if (info->bits % 8 == 0) {
		memcpy(bytes, pattern, info->bits / 8);
		return;
	}
	size_t n = hoist__number_span(info, bit);
	uint64_t others = take(bytes, n) & ~(mask_of(info) << bit);
	put(bytes, n, others | (uint64_t)pattern[0] << bit);
}

static int check(const void *data, hoist_dtype dtype, const struct hoist__dtype_info **ret)
{
	int err = hoist__number_check(dtype, ret);
	if (err == 0 && data == NULL)
		return hoist__fail(-EINVAL, "an element of %s: its memory is NULL", (*ret)->name);
	return err;
}

/* Every eighth element begins with a whole byte.  Returns the bit at which @index begins, counted
 * from the last such byte. */
static unsigned bit_in_eight(const struct hoist__dtype_info *info, uint64_t index)
{
	return (unsigned)(index % 8) * info->bits;
}

/* Returns the byte in which element @index begins.  The memory exists, so nothing overflows. */
static size_t byte_of(const struct hoist__dtype_info *info, uint64_t index)
{
	return (size_t)(index / 8) * info->bits + bit_in_eight(info, index) / 8;
}

int hoist_number_decode(const void *data, hoist_dtype dtype, uint64_t index, hoist_number *ret)
{
	const struct hoist__dtype_info *info;
	int err = check(data, dtype, &info);
	if (err < 0)
		return err;
	const unsigned char *bytes = data;
	*ret = hoist__number_load(info, bytes + byte_of(info, index),
				  bit_in_eight(info, index) % 8);
	return 0;
}

int hoist_number_encode(hoist_number number, unsigned flags, void *data, hoist_dtype dtype,
			uint64_t index)
{
	const struct hoist__dtype_info *info;
	unsigned char pattern[HOIST__PATTERN_BYTES];
	int err = check(data, dtype, &info);
	if (err == 0)
		err = hoist__number_pack(number, flags, info, pattern);
	if (err < 0)
		return err;
	unsigned char *bytes = data;
	hoist__number_store(info, pattern, bytes + byte_of(info, index),
			    bit_in_eight(info, index) % 8);
	return 0;
}
