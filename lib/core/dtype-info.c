/* SPDX-License-Identifier: MIT */
/* lib/core/dtype-info.c - what is known of a dtype, for callers. */
#include "config.h"

#include "hoist/dtype.h"

#include "base/dtype.h"
#include "base/error.h"
#include "base/minifloat.h"
#include "lib/memory/objects.h"

static void add_integer(hoist_dtype_info *info)
{
	switch (info->kind) {
	case HOIST_KIND_BOOL:
		info->max = 1;
		break;
	case HOIST_KIND_SIGNED:
		info->max = UINT64_MAX >> (65 - info->bits);
		info->min = -(int64_t)info->max - 1;
		break;
	case HOIST_KIND_UNSIGNED:
		info->max = UINT64_MAX >> (64 - info->bits);
		break;
	default:
		break;
	}
}

static void add_float(hoist_dtype_info *info, const struct hoist__minifloat *format)
{
	/* Codes, which are in the order of values: the first one above 0, and the first whose
	 * mantissa has its leading 1. */
	uint64_t smallest = format->has_sign ? 1 : 0;
	uint64_t normal = format->has_sign ? UINT64_C(1) << format->mantissa_bits : 0;
	info->exponent_bits = format->exponent_bits;
	info->mantissa_bits = format->mantissa_bits;
	info->largest = hoist__minifloat_decode(format, hoist__minifloat_largest(format));
	info->epsilon = 1.0 / (double)(UINT64_C(1) << format->mantissa_bits);
	info->smallest_normal = hoist__minifloat_decode(format, normal);
	info->smallest = hoist__minifloat_decode(format, smallest);
	info->has_sign = format->has_sign;
	info->has_negative_zero = format->has_sign && format->specials != HOIST__FNUZ;
	info->has_infinity = format->specials == HOIST__IEEE;
	info->has_nan = format->specials != HOIST__FINITE;
}

int hoist_dtype_get_info(hoist_dtype dtype, hoist_dtype_info *info)
{
	const struct hoist__dtype_info *row = hoist__dtype_info(dtype);
	if (row == NULL)
		return hoist__fail(-EINVAL, "%d is no dtype", (int)dtype);
	hoist_dtype_info known = {
		.name = row->name,
		.kind = row->kind,
		.bits = row->bits,
		.block_elements = row->block_elements,
		.block_bytes = row->block_bytes,
		.align = row->align,
		.dlpack_code = row->dlpack_code,
		.max_code = row->max_code,
		.gguf = row->gguf,
		.safetensors = row->safetensors,
		.numpy = row->numpy,
		.numpy_native = row->numpy_native,
	};
	add_integer(&known);
	const struct hoist__minifloat *format = hoist__minifloat_of(dtype);
	if (format != NULL)
		add_float(&known, format);
	return hoist__options_out("hoist_dtype_info", info, &known, sizeof known);
}
