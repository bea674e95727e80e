/* SPDX-License-Identifier: MIT */
/* format/torch-build.c - the names in a pickle of tensors, and the values that their calls would
 * make.
 * The contract is in format/torch.h.
 *
 * Nothing is called.  The functions' arguments are those of torch/_utils.py and torch/_tensor.py
 * since 1.6. */
#include "config.h"

#include <string.h>

#include "base/checked.h"
#include "base/layout.h"
#include "format/quote.h"
#include "format/torch.h"

/* --- names --- */

static const struct {
	const char *module;
	const char *name;
	enum hoist__torch_global global;
	hoist_dtype dtype;
} known[] = {
	{"collections", "OrderedDict", HOIST__TORCH_ORDERED_DICT, HOIST_DTYPE_INVALID},
	{"torch", "Size", HOIST__TORCH_SIZE, HOIST_DTYPE_INVALID},
	{"torch", "device", HOIST__TORCH_DEVICE, HOIST_DTYPE_INVALID},
	{"torch", "Tensor", HOIST__TORCH_TENSOR_CLASS, HOIST_DTYPE_INVALID},
	{"torch.nn.parameter", "Parameter", HOIST__TORCH_TENSOR_CLASS, HOIST_DTYPE_INVALID},
	{"torch._utils", "_rebuild_tensor_v2", HOIST__TORCH_REBUILD_V2, HOIST_DTYPE_INVALID},
	{"torch._utils", "_rebuild_tensor_v3", HOIST__TORCH_REBUILD_V3, HOIST_DTYPE_INVALID},
	{"torch._utils", "_rebuild_parameter", HOIST__TORCH_REBUILD_PARAMETER, HOIST_DTYPE_INVALID},
	{"torch._utils", "_rebuild_parameter_with_state", HOIST__TORCH_REBUILD_PARAMETER_STATE,
	 HOIST_DTYPE_INVALID},
	{"torch._tensor", "_rebuild_from_type_v2", HOIST__TORCH_REBUILD_TYPE, HOIST_DTYPE_INVALID},
	{"torch.storage", "UntypedStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_U8},
	{"torch", "UntypedStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_U8},
	{"torch", "FloatStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_F32},
	{"torch", "HalfStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_F16},
	{"torch", "BFloat16Storage", HOIST__TORCH_STORAGE_CLASS, HOIST_BF16},
	{"torch", "DoubleStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_F64},
	{"torch", "LongStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_I64},
	{"torch", "IntStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_I32},
	{"torch", "ShortStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_I16},
	{"torch", "CharStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_I8},
	{"torch", "ByteStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_U8},
	{"torch", "BoolStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_BOOL},
	{"torch", "ComplexFloatStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_C64},
	{"torch", "ComplexDoubleStorage", HOIST__TORCH_STORAGE_CLASS, HOIST_C128},
};

static bool is(const char *text, size_t n, const char *expected)
{
	return strlen(expected) == n && memcmp(text, expected, n) == 0;
}

/* Returns the dtype of torch.float32 and its like: the names are NumPy's, which hoist knows. */
static hoist_dtype dtype_named(const char *name, size_t n)
{
	char copy[32];
	hoist_dtype dtype;
	if (n >= sizeof copy)
		return HOIST_DTYPE_INVALID;
	memcpy(copy, name, n);
	copy[n] = '\0';
	if (hoist_dtype_from_numpy(copy, &dtype) < 0 || hoist_dtype_bits(dtype) < 8)
		return HOIST_DTYPE_INVALID;
	return dtype;
}

static int fail_name(const struct hoist__pickle *p, const char *module, size_t module_bytes,
		     const char *name, size_t name_bytes)
{
	char shown[2][HOIST__QUOTED_BYTES];
	return hoist__pickle_fail(
		p, -ENOTSUP,
		"the pickle names %s of the Python module %s, which is no tensor or plain value, "
		"and hoist executes no code; save model.state_dict() with torch.save, or a "
		"safetensors file",
		hoist__quoted(name, name_bytes, shown[0]),
		hoist__quoted(module, module_bytes, shown[1]));
}

int hoist__torch_global(struct hoist__pickle *p, const char *module, size_t module_bytes,
			const char *name, size_t name_bytes, struct hoist__pickle_value *ret)
{
	struct hoist__pickle_value value = {.kind = HOIST__PICKLE_GLOBAL};
	hoist_dtype dtype = HOIST_DTYPE_INVALID;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(known); i++)
		if (is(module, module_bytes, known[i].module) &&
		    is(name, name_bytes, known[i].name)) {
			value.n = known[i].global;
			value.dtype = (uint8_t)known[i].dtype;
			*ret = value;
			return 0;
		}
	if (is(module, module_bytes, "torch"))
		dtype = dtype_named(name, name_bytes);
	if (dtype == HOIST_DTYPE_INVALID)
		return fail_name(p, module, module_bytes, name, name_bytes);
	value.n = HOIST__TORCH_DTYPE;
	value.dtype = (uint8_t)dtype;
	*ret = value;
	return 0;
}

static bool is_global(const struct hoist__pickle_value *value, enum hoist__torch_global global)
{
	return value->kind == HOIST__PICKLE_GLOBAL && value->n == (uint32_t)global;
}

/* --- storages --- */

static int fail_storage(const struct hoist__pickle *p)
{
	return hoist__pickle_fail(
		p, -EBADMSG, "a persistent id is not ('storage', class, key, location, count)");
}

/* torch.save's id of a storage is ("storage", class, key, device, number of elements). */
int hoist__torch_persistent(struct hoist__pickle *p, const struct hoist__pickle_value *id,
			    struct hoist__pickle_value *ret)
{
	size_t n = 0;
	const struct hoist__pickle_value *items =
		id->kind == HOIST__PICKLE_TUPLE ? hoist__pickle_items(id, &n) : NULL;
	if (n != 5 || items[0].kind != HOIST__PICKLE_TEXT ||
	    !is(items[0].u.text, items[0].n, "storage") ||
	    !is_global(&items[1], HOIST__TORCH_STORAGE_CLASS) ||
	    items[2].kind != HOIST__PICKLE_TEXT || items[3].kind != HOIST__PICKLE_TEXT ||
	    items[4].kind != HOIST__PICKLE_INT || items[4].u.integer < 0)
		return fail_storage(p);
	struct hoist__torch_storage *storage = NULL;
	hoist_dtype dtype = (hoist_dtype)items[1].dtype;
	size_t bytes;
	if (hoist_dtype_bytes(dtype, (uint64_t)items[4].u.integer, &bytes) < 0)
		return hoist__pickle_fail(p, -EBADMSG, "a storage has %lld elements",
					  (long long)items[4].u.integer);
	int err = hoist__pickle_alloc(p, sizeof *storage, &storage);
	if (err < 0)
		return err;
	*storage = (struct hoist__torch_storage){
		.key = items[2].u.text,
		.key_bytes = items[2].n,
		.bytes = bytes,
		.dtype = dtype,
	};
	*ret = (struct hoist__pickle_value){.kind = HOIST__PICKLE_STORAGE, .u.storage = storage};
	return 0;
}

/* --- tensors --- */

/* Takes a tuple of integers. */
static int take_integers(struct hoist__pickle *p, const struct hoist__pickle_value *tuple,
			 const char *what, const int64_t **ret, size_t *n)
{
	const struct hoist__pickle_value *items = NULL;
	bool good = tuple->kind == HOIST__PICKLE_TUPLE;
	*n = 0;
	if (good)
		items = hoist__pickle_items(tuple, n);
	for (size_t i = 0; good && i < *n; i++)
		good = items[i].kind == HOIST__PICKLE_INT;
	if (!good)
		return hoist__pickle_fail(p, -EBADMSG, "a tensor's %s is no tuple of integers",
					  what);
	if (*n > HOIST__MAX_RANK)
		return hoist__pickle_fail(p, -EBADMSG, "a tensor's %s has %zu axes, above %d", what,
					  *n, HOIST__MAX_RANK);
	int64_t *integers = NULL;
	int err = *n > 0 ? hoist__pickle_alloc(p, *n * sizeof *integers, &integers) : 0;
	if (err < 0)
		return err;
	for (size_t i = 0; i < *n; i++)
		integers[i] = items[i].u.integer;
	*ret = integers;
	return 0;
}

/* With {"conj": True} or {"neg": True} the bytes are not the values. */
static int check_metadata(struct hoist__pickle *p, const struct hoist__pickle_value *metadata)
{
	if (metadata->kind == HOIST__PICKLE_NONE)
		return 0;
	if (metadata->kind != HOIST__PICKLE_DICT)
		return hoist__pickle_fail(p, -EBADMSG, "a tensor's metadata is no dict");
	for (const struct hoist__pickle_chunk *chunk = metadata->u.object->first; chunk != NULL;
	     chunk = chunk->next) {
		/* Any number of tensors may share the dict. */
		int err = hoist__pickle_charge(p, chunk->n * HOIST__PICKLE_VISIT_BYTES);
		if (err < 0)
			return err;
		for (size_t i = 1; i < chunk->n; i += 2)
			if (chunk->values[i].kind != HOIST__PICKLE_BOOL ||
			    chunk->values[i].u.integer != 0)
				return hoist__pickle_fail(
					p, -ENOTSUP,
					"a tensor is the conjugate or the negative of its bytes; "
					"save .resolve_conj().resolve_neg()");
	}
	return 0;
}

/* (storage, offset, size, stride, requires_grad, hooks[, dtype: version 3][, metadata]) */
static int rebuild(struct hoist__pickle *p, enum hoist__torch_global function,
		   const struct hoist__pickle_value *arguments, struct hoist__pickle_value *ret)
{
	size_t n;
	size_t rank;
	size_t n_strides;
	const struct hoist__pickle_value *items = hoist__pickle_items(arguments, &n);
	const size_t least = function == HOIST__TORCH_REBUILD_V3 ? 7 : 6;
	struct hoist__torch_tensor *tensor = NULL;
	if (n < least || n > least + 1 || items[0].kind != HOIST__PICKLE_STORAGE ||
	    items[1].kind != HOIST__PICKLE_INT || items[1].u.integer < 0 ||
	    (least == 7 && !is_global(&items[6], HOIST__TORCH_DTYPE)))
		return hoist__pickle_fail(
			p, -EBADMSG,
			"a tensor is not made of a storage, an offset, a size and "
			"a stride");
	int err = n > least ? check_metadata(p, &items[least]) : 0;
	if (err == 0)
		err = hoist__pickle_alloc(p, sizeof *tensor, &tensor);
	if (err < 0)
		return err;
	*tensor = (struct hoist__torch_tensor){
		.storage = items[0].u.storage,
		.dtype = least == 7 ? (hoist_dtype)items[6].dtype : items[0].u.storage->dtype,
		.offset = items[1].u.integer,
	};
	err = take_integers(p, &items[2], "size", &tensor->shape, &rank);
	if (err == 0)
		err = take_integers(p, &items[3], "stride", &tensor->strides, &n_strides);
	if (err == 0 && rank != n_strides)
		err = hoist__pickle_fail(p, -EBADMSG, "a tensor has %zu extents and %zu strides",
					 rank, n_strides);
	if (err < 0)
		return err;
	tensor->rank = (int)rank;
	*ret = (struct hoist__pickle_value){.kind = HOIST__PICKLE_TENSOR, .u.tensor = tensor};
	return 0;
}

/* (tensor, requires_grad, hooks[, state]) */
static int rebuild_parameter(const struct hoist__pickle *p, size_t expected,
			     const struct hoist__pickle_value *arguments,
			     struct hoist__pickle_value *ret)
{
	size_t n;
	const struct hoist__pickle_value *items = hoist__pickle_items(arguments, &n);
	if (n != expected || items[0].kind != HOIST__PICKLE_TENSOR)
		return hoist__pickle_fail(p, -EBADMSG, "a parameter is not made of a tensor");
	*ret = items[0];
	return 0;
}

/* (function, type, arguments, state): a tensor with attributes, which are passed over. */
static int rebuild_type(struct hoist__pickle *p, const struct hoist__pickle_value *arguments,
			struct hoist__pickle_value *ret)
{
	size_t n;
	const struct hoist__pickle_value *items = hoist__pickle_items(arguments, &n);
	if (n != 4 || items[0].kind != HOIST__PICKLE_GLOBAL ||
	    items[0].n < HOIST__TORCH_REBUILD_V2 ||
	    items[0].n > HOIST__TORCH_REBUILD_PARAMETER_STATE ||
	    !is_global(&items[1], HOIST__TORCH_TENSOR_CLASS))
		return hoist__pickle_fail(p, -EBADMSG,
					  "a tensor with attributes is not made of a tensor");
	return hoist__torch_reduce(p, &items[0], &items[2], ret);
}

/* --- calls --- */

static int make_size(const struct hoist__pickle *p, const struct hoist__pickle_value *arguments,
		     struct hoist__pickle_value *ret)
{
	size_t n;
	const struct hoist__pickle_value *items = hoist__pickle_items(arguments, &n);
	if (n != 1 || items[0].kind != HOIST__PICKLE_TUPLE)
		return hoist__pickle_fail(p, -EBADMSG, "a torch.Size is not made of a tuple");
	*ret = items[0];
	return 0;
}

static int make_ordered(struct hoist__pickle *p, const struct hoist__pickle_value *arguments,
			struct hoist__pickle_value *ret)
{
	size_t n;
	(void)hoist__pickle_items(arguments, &n);
	if (n != 0)
		return hoist__pickle_fail(p, -ENOTSUP, "an OrderedDict is made of %zu arguments",
					  n);
	int err = hoist__pickle_object(p, HOIST__PICKLE_DICT, ret);
	if (err == 0)
		ret->u.object->ordered = true;
	return err;
}

int hoist__torch_reduce(struct hoist__pickle *p, const struct hoist__pickle_value *callable,
			const struct hoist__pickle_value *arguments,
			struct hoist__pickle_value *ret)
{
	if (callable->kind != HOIST__PICKLE_GLOBAL || arguments->kind != HOIST__PICKLE_TUPLE)
		return hoist__pickle_fail(
			p, -EBADMSG,
			"REDUCE calls a value that is no function, or passes no tuple");
	switch ((enum hoist__torch_global)callable->n) {
	case HOIST__TORCH_ORDERED_DICT:
		return make_ordered(p, arguments, ret);
	case HOIST__TORCH_SIZE:
		return make_size(p, arguments, ret);
	case HOIST__TORCH_DEVICE:
		*ret = (struct hoist__pickle_value){.kind = HOIST__PICKLE_OTHER};
		return 0;
	case HOIST__TORCH_REBUILD_V2:
	case HOIST__TORCH_REBUILD_V3:
		return rebuild(p, (enum hoist__torch_global)callable->n, arguments, ret);
	case HOIST__TORCH_REBUILD_PARAMETER:
		return rebuild_parameter(p, 3, arguments, ret);
	case HOIST__TORCH_REBUILD_PARAMETER_STATE:
		return rebuild_parameter(p, 4, arguments, ret);
	case HOIST__TORCH_REBUILD_TYPE:
		return rebuild_type(p, arguments, ret);
	case HOIST__TORCH_TENSOR_CLASS:
	case HOIST__TORCH_STORAGE_CLASS:
	case HOIST__TORCH_DTYPE:
		break;
	}
	return hoist__pickle_fail(p, -ENOTSUP,
				  "REDUCE calls a class of tensors, storages or dtypes: hoist "
				  "executes no code");
}
