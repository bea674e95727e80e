/* SPDX-License-Identifier: MIT */
/* format/torch-names.c - the names in a pickle of tensors: known ones, and opaque ones.
 * The contract is in format/torch.h. */
#include "config.h"

#include <string.h>

#include "base/checked.h"
#include "format/quote.h"
#include "format/torch.h"

/* Protocol 2 writes the names that Python 2 had: __builtin__ for builtins, long for int. */
#define BUILTIN(name)                                                                              \
	{"builtins", name, HOIST__TORCH_BUILTIN, HOIST_DTYPE_INVALID},                             \
	{                                                                                          \
		"__builtin__", name, HOIST__TORCH_BUILTIN, HOIST_DTYPE_INVALID                     \
	}

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
	{"collections", "defaultdict", HOIST__TORCH_DEFAULT_DICT, HOIST_DTYPE_INVALID},
	{"collections", "Counter", HOIST__TORCH_COUNTER, HOIST_DTYPE_INVALID},
	{"argparse", "Namespace", HOIST__TORCH_NAMESPACE, HOIST_DTYPE_INVALID},
	{"types", "SimpleNamespace", HOIST__TORCH_NAMESPACE, HOIST_DTYPE_INVALID},
	{"_codecs", "encode", HOIST__TORCH_ENCODE, HOIST_DTYPE_INVALID},
	{"numpy", "dtype", HOIST__TORCH_NUMPY_DTYPE, HOIST_DTYPE_INVALID},
	{"numpy.core.multiarray", "scalar", HOIST__TORCH_NUMPY_SCALAR, HOIST_DTYPE_INVALID},
	{"numpy._core.multiarray", "scalar", HOIST__TORCH_NUMPY_SCALAR, HOIST_DTYPE_INVALID},
	BUILTIN("bool"),
	BUILTIN("bytearray"),
	BUILTIN("bytes"),
	BUILTIN("complex"),
	BUILTIN("dict"),
	BUILTIN("float"),
	BUILTIN("int"),
	BUILTIN("list"),
	BUILTIN("long"),
	BUILTIN("range"),
	BUILTIN("slice"),
	BUILTIN("str"),
	BUILTIN("tuple"),
	BUILTIN("unicode"),
	BUILTIN("xrange"),
};

#define ARRAY "a NumPy array: save torch.from_numpy() of it"
#define QUANTISED "a quantised tensor: save .int_repr() and the scales, or .dequantize()"

const char hoist__torch_set[] = "a set, whose items have no names: save a list";

/* Names that users meet, and what to do about them. */
static const struct {
	const char *module;
	const char *name;
	const char *what;
} opaque_names[] = {
	{"torch._utils", "_rebuild_sparse_tensor", "a sparse tensor: save .to_dense()"},
	{"torch._utils", "_rebuild_sparse_csr_tensor", "a sparse tensor: save .to_dense()"},
	{"torch._utils", "_rebuild_nested_tensor", "a nested tensor: save .unbind() of it"},
	{"torch._utils", "_rebuild_meta_tensor_no_storage", "a meta tensor, which has no bytes"},
	{"torch._utils", "_rebuild_qtensor", QUANTISED},
	{"torch", "QInt8Storage", QUANTISED},
	{"torch", "QUInt8Storage", QUANTISED},
	{"torch", "QInt32Storage", QUANTISED},
	{"torch", "QUInt4x2Storage", QUANTISED},
	{"torch", "QUInt2x4Storage", QUANTISED},
	{"numpy.core.multiarray", "_reconstruct", ARRAY},
	{"numpy._core.multiarray", "_reconstruct", ARRAY},
	{"builtins", "set", hoist__torch_set},
	{"__builtin__", "set", hoist__torch_set},
	{"builtins", "frozenset", hoist__torch_set},
	{"__builtin__", "frozenset", hoist__torch_set},
};

bool hoist__torch_is(const char *text, size_t n, const char *expected)
{
	return strlen(expected) == n && memcmp(text, expected, n) == 0;
}

bool hoist__torch_is_global(const struct hoist__pickle_value *value,
			    enum hoist__torch_global global)
{
	return value->kind == HOIST__PICKLE_GLOBAL && value->n == (uint32_t)global;
}

/* --- opaque values --- */

#define SKIP "; --skip-unsupported (HOIST_OPEN_SKIP_UNSUPPORTED) leaves such values out"

static int fail_opaque(const struct hoist__pickle *p, const struct hoist__torch_opaque *opaque)
{
	char shown[2][HOIST__QUOTED_BYTES];
	if (opaque->what != NULL)
		return hoist__pickle_fail(p, -ENOTSUP, "the pickle has %s" SKIP, opaque->what);
	return hoist__pickle_fail(
		p, -ENOTSUP,
		"the pickle names %s of the Python module %s, which is no tensor or plain value, "
		"and hoist executes no code; save model.state_dict() with torch.save, or a "
		"safetensors file" SKIP,
		hoist__quoted(opaque->name, opaque->name_bytes, shown[0]),
		hoist__quoted(opaque->module, opaque->module_bytes, shown[1]));
}

int hoist__torch_opaque_like(struct hoist__pickle *p, const struct hoist__torch_opaque *opaque,
			     struct hoist__pickle_value *ret)
{
	struct hoist__torch_opaque *made = NULL;
	if (!p->lenient)
		return fail_opaque(p, opaque);
	int err = hoist__pickle_alloc(p, sizeof *made, &made);
	if (err < 0)
		return err;
	*made = *opaque;
	made->state = (struct hoist__pickle_object){.first = NULL};
	*ret = (struct hoist__pickle_value){.kind = HOIST__PICKLE_OPAQUE, .u.opaque = made};
	return 0;
}

int hoist__torch_opaque(struct hoist__pickle *p, const char *what, struct hoist__pickle_value *ret)
{
	const struct hoist__torch_opaque opaque = {.what = what};
	return hoist__torch_opaque_like(p, &opaque, ret);
}

static int make_opaque_name(struct hoist__pickle *p, const char *module, size_t module_bytes,
			    const char *name, size_t name_bytes, struct hoist__pickle_value *ret)
{
	struct hoist__torch_opaque opaque = {.module = module,
					     .module_bytes = module_bytes,
					     .name = name,
					     .name_bytes = name_bytes};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(opaque_names); i++)
		if (hoist__torch_is(module, module_bytes, opaque_names[i].module) &&
		    hoist__torch_is(name, name_bytes, opaque_names[i].name))
			opaque.what = opaque_names[i].what;
	return hoist__torch_opaque_like(p, &opaque, ret);
}

/* --- names --- */

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

int hoist__torch_global(struct hoist__pickle *p, const char *module, size_t module_bytes,
			const char *name, size_t name_bytes, struct hoist__pickle_value *ret)
{
	struct hoist__pickle_value value = {.kind = HOIST__PICKLE_GLOBAL};
	hoist_dtype dtype = HOIST_DTYPE_INVALID;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(known); i++)
		if (hoist__torch_is(module, module_bytes, known[i].module) &&
		    hoist__torch_is(name, name_bytes, known[i].name)) {
			value.n = known[i].global;
			value.dtype = (uint8_t)known[i].dtype;
			*ret = value;
			return 0;
		}
	if (hoist__torch_is(module, module_bytes, "torch"))
		dtype = dtype_named(name, name_bytes);
	if (dtype == HOIST_DTYPE_INVALID)
		return make_opaque_name(p, module, module_bytes, name, name_bytes, ret);
	value.n = HOIST__TORCH_DTYPE;
	value.dtype = (uint8_t)dtype;
	*ret = value;
	return 0;
}
