/* SPDX-License-Identifier: MIT */
/* format/torch-plain.c - plain values that Python saves as calls: dicts of a class, bytes, NumPy's
 * scalars; and the state of objects.
 * The contract is in format/torch.h.
 *
 * The arguments are those of __reduce_ex__() in CPython 3.8 to 3.14, and in NumPy 1 and 2. */
#include "config.h"

#include "base/checked.h"
#include "base/number.h"
#include "format/torch.h"

/* --- dicts --- */

static int make_dict(struct hoist__pickle *p, enum hoist__pickle_state state,
		     struct hoist__pickle_value *ret)
{
	int err = hoist__pickle_object(p, HOIST__PICKLE_DICT, ret);
	if (err == 0)
		ret->u.object->state = state;
	return err;
}

static int make_ordered(struct hoist__pickle *p, size_t n, struct hoist__pickle_value *ret)
{
	if (n != 0)
		return hoist__torch_opaque(p, "an OrderedDict made of arguments", ret);
	return make_dict(p, HOIST__PICKLE_ATTRIBUTES, ret);
}

/* (a function that makes values) */
static int make_default(struct hoist__pickle *p, size_t n, struct hoist__pickle_value *ret)
{
	if (n > 1)
		return hoist__pickle_fail(p, -EBADMSG, "a defaultdict is made of %zu arguments", n);
	return make_dict(p, HOIST__PICKLE_NO_STATE, ret);
}

/* (dict) */
static int make_counter(struct hoist__pickle *p, const struct hoist__pickle_value *items, size_t n,
			struct hoist__pickle_value *ret)
{
	if (n != 1 || items[0].kind != HOIST__PICKLE_DICT)
		return hoist__pickle_fail(p, -EBADMSG, "a Counter is not made of a dict");
	*ret = items[0];
	return 0;
}

static int make_namespace(struct hoist__pickle *p, size_t n, struct hoist__pickle_value *ret)
{
	if (n != 0)
		return hoist__pickle_fail(p, -EBADMSG, "a Namespace is made of %zu arguments", n);
	return make_dict(p, HOIST__PICKLE_ITEMS, ret);
}

/* --- bytes --- */

/* (text, "latin1"): each character is a byte. */
static int make_bytes(struct hoist__pickle *p, const struct hoist__pickle_value *items, size_t n,
		      struct hoist__pickle_value *ret)
{
	if (n != 2 || items[0].kind != HOIST__PICKLE_TEXT || items[1].kind != HOIST__PICKLE_TEXT ||
	    !hoist__torch_is(items[1].u.text, items[1].n, "latin1"))
		return hoist__pickle_fail(p, -EBADMSG, "bytes are not made of a text in latin1");
	const unsigned char *text = (const unsigned char *)items[0].u.text;
	unsigned char *bytes = NULL;
	uint32_t n_bytes = 0;
	int err = items[0].n > 0 ? hoist__pickle_alloc(p, items[0].n, &bytes) : 0;
	if (err < 0)
		return err;
	for (uint32_t i = 0; i < items[0].n; n_bytes++) {
		bool two = text[i] >= 0xc2 && text[i] <= 0xc3 && i + 1 < items[0].n &&
			   (text[i + 1] & 0xc0) == 0x80;
		if (text[i] >= 0x80 && !two)
			return hoist__pickle_fail(p, -EBADMSG, "bytes are no text in latin1");
		bytes[n_bytes] =
			two ? (unsigned char)(text[i] << 6 | (text[i + 1] & 0x3f)) : text[i];
		i += two ? 2 : 1;
	}
	*ret = (struct hoist__pickle_value){
		.kind = HOIST__PICKLE_BYTES, .n = n_bytes, .u.text = (const char *)bytes};
	return 0;
}

/* --- NumPy --- */

static const struct {
	const char *name;
	hoist_dtype dtype;
} numpy_dtypes[] = {
	{"b1", HOIST_BOOL}, {"i1", HOIST_I8},  {"i2", HOIST_I16}, {"i4", HOIST_I32},
	{"i8", HOIST_I64},  {"u1", HOIST_U8},  {"u2", HOIST_U16}, {"u4", HOIST_U32},
	{"u8", HOIST_U64},  {"f2", HOIST_F16}, {"f4", HOIST_F32}, {"f8", HOIST_F64},
};

/* (name, align, copy) */
static int make_numpy_dtype(struct hoist__pickle *p, const struct hoist__pickle_value *items,
			    size_t n, struct hoist__pickle_value *ret)
{
	struct hoist__torch_numpy_dtype *made = NULL;
	if (n < 1 || items[0].kind != HOIST__PICKLE_TEXT)
		return hoist__pickle_fail(p, -EBADMSG, "a NumPy dtype is not made of a name");
	int err = hoist__pickle_alloc(p, sizeof *made, &made);
	if (err < 0)
		return err;
	*made = (struct hoist__torch_numpy_dtype){.dtype = HOIST_DTYPE_INVALID};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(numpy_dtypes); i++)
		if (hoist__torch_is(items[0].u.text, items[0].n, numpy_dtypes[i].name))
			made->dtype = numpy_dtypes[i].dtype;
	*ret = (struct hoist__pickle_value){.kind = HOIST__PICKLE_NUMPY_DTYPE,
					    .u.numpy_dtype = made};
	return 0;
}

/* (version, "<", ">", "=" or "|", ...) */
static int build_numpy_dtype(const struct hoist__pickle *p, struct hoist__torch_numpy_dtype *to,
			     const struct hoist__pickle_value *state)
{
	size_t n = 0;
	const struct hoist__pickle_value *items =
		state->kind == HOIST__PICKLE_TUPLE ? hoist__pickle_items(state, &n) : NULL;
	if (n < 2 || items[1].kind != HOIST__PICKLE_TEXT)
		return hoist__pickle_fail(p, -EBADMSG,
					  "the state of a NumPy dtype has no byte order");
	to->big_endian = hoist__torch_is(items[1].u.text, items[1].n, ">");
	return 0;
}

static struct hoist__pickle_value plain_number(hoist_number number, hoist_dtype dtype)
{
	struct hoist__pickle_value value = {.kind = HOIST__PICKLE_OTHER};
	switch (number.kind) {
	case HOIST_NUMBER_BOOL:
		value.kind = HOIST__PICKLE_BOOL;
		value.u.integer = number.as.i64;
		break;
	case HOIST_NUMBER_I64:
		value.kind = HOIST__PICKLE_INT;
		value.u.integer = number.as.i64;
		break;
	case HOIST_NUMBER_F64:
		value.kind = HOIST__PICKLE_FLOAT;
		value.dtype = (uint8_t)dtype;
		value.u.real = number.as.f64;
		break;
	case HOIST_NUMBER_U64: /* above 63 bits it stays OTHER */
		if (number.as.u64 <= INT64_MAX) {
			value.kind = HOIST__PICKLE_INT;
			value.u.integer = (int64_t)number.as.u64;
		}
		break;
	case HOIST_NUMBER_C128:
		break;
	}
	return value;
}

/* (dtype, bytes) */
static int make_scalar(struct hoist__pickle *p, const struct hoist__pickle_value *items, size_t n,
		       struct hoist__pickle_value *ret)
{
	unsigned char pattern[HOIST__PATTERN_BYTES] = {0};
	if (n != 2 || items[0].kind != HOIST__PICKLE_NUMPY_DTYPE)
		return hoist__pickle_fail(p, -EBADMSG, "a NumPy scalar is not made of a dtype");
	const hoist_dtype dtype = items[0].u.numpy_dtype->dtype;
	*ret = (struct hoist__pickle_value){.kind = HOIST__PICKLE_OTHER};
	if (dtype == HOIST_DTYPE_INVALID)
		return 0;
	const struct hoist__dtype_info *info = hoist__dtype_info(dtype);
	const size_t bytes = info->bits / 8;
	if (items[1].kind != HOIST__PICKLE_BYTES || items[1].n != bytes)
		return hoist__pickle_fail(p, -EBADMSG,
					  "a NumPy scalar of %zu bytes is not made of %zu bytes",
					  bytes, bytes);
	for (size_t i = 0; i < bytes; i++)
		pattern[items[0].u.numpy_dtype->big_endian ? bytes - 1 - i : i] =
			(unsigned char)items[1].u.text[i];
	*ret = plain_number(hoist__number_load(info, pattern, 0), dtype);
	return 0;
}

/* --- calls, objects and their state --- */

int hoist__torch_plain(struct hoist__pickle *p, enum hoist__torch_global global,
		       const struct hoist__pickle_value *arguments, struct hoist__pickle_value *ret)
{
	size_t n;
	const struct hoist__pickle_value *items = hoist__pickle_items(arguments, &n);
	switch (global) {
	case HOIST__TORCH_ORDERED_DICT:
		return make_ordered(p, n, ret);
	case HOIST__TORCH_DEFAULT_DICT:
		return make_default(p, n, ret);
	case HOIST__TORCH_COUNTER:
		return make_counter(p, items, n, ret);
	case HOIST__TORCH_NAMESPACE:
		return make_namespace(p, n, ret);
	case HOIST__TORCH_ENCODE:
		return make_bytes(p, items, n, ret);
	case HOIST__TORCH_NUMPY_DTYPE:
		return make_numpy_dtype(p, items, n, ret);
	case HOIST__TORCH_NUMPY_SCALAR:
		return make_scalar(p, items, n, ret);
	case HOIST__TORCH_DEVICE:
	case HOIST__TORCH_BUILTIN:
		*ret = (struct hoist__pickle_value){.kind = HOIST__PICKLE_OTHER};
		return 0;
	default:
		break;
	}
	return hoist__torch_opaque(p, "a call of a class of tensors, storages or dtypes", ret);
}

int hoist__torch_new(struct hoist__pickle *p, const struct hoist__pickle_value *class_value,
		     const struct hoist__pickle_value *arguments, struct hoist__pickle_value *ret)
{
	size_t n;
	if (class_value->kind == HOIST__PICKLE_OPAQUE)
		return hoist__torch_opaque_like(p, class_value->u.opaque, ret);
	if (class_value->kind != HOIST__PICKLE_GLOBAL || arguments->kind != HOIST__PICKLE_TUPLE)
		return hoist__pickle_fail(p, -EBADMSG,
					  "NEWOBJ makes an object of no class, or passes no tuple");
	(void)hoist__pickle_items(arguments, &n);
	if (class_value->n == HOIST__TORCH_NAMESPACE)
		return make_namespace(p, n, ret);
	return hoist__torch_opaque(p, "an object of a class of tensors or plain values", ret);
}

/* The state of an object with slots is (dict or None, dict of the slots). */
static int build_opaque(struct hoist__pickle *p, struct hoist__torch_opaque *to,
			const struct hoist__pickle_value *state)
{
	size_t n = 1;
	const struct hoist__pickle_value *items = state;
	int err = 0;
	if (state->kind == HOIST__PICKLE_TUPLE)
		items = hoist__pickle_items(state, &n);
	if (n > 2)
		n = 0;
	for (size_t i = 0; err == 0 && i < n; i++)
		if (items[i].kind == HOIST__PICKLE_DICT)
			err = hoist__pickle_append_all(p, &to->state, items[i].u.object);
	return err;
}

int hoist__torch_build(struct hoist__pickle *p, const struct hoist__pickle_value *to,
		       const struct hoist__pickle_value *state)
{
	struct hoist__pickle_value ignored;
	if (to->kind == HOIST__PICKLE_OPAQUE)
		return build_opaque(p, to->u.opaque, state);
	if (to->kind == HOIST__PICKLE_NUMPY_DTYPE)
		return build_numpy_dtype(p, to->u.numpy_dtype, state);
	if (to->kind == HOIST__PICKLE_DICT && state->kind == HOIST__PICKLE_DICT) {
		if (to->u.object->state == HOIST__PICKLE_ITEMS)
			return hoist__pickle_append_all(p, to->u.object, state->u.object);
		if (to->u.object->state == HOIST__PICKLE_ATTRIBUTES)
			return 0;
	}
	return hoist__torch_opaque(p,
				   "a state (BUILD) for a value that takes none, or a state that "
				   "is no dict",
				   &ignored);
}
