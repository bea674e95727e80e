/* SPDX-License-Identifier: MIT */
/* format/torch-build.c - the tensors that a pickle's calls would make.
 * The contract is in format/torch.h.
 *
 * Nothing is called.  The functions' arguments are those of torch/_utils.py and torch/_tensor.py
 * since 1.6. */
#include "config.h"

#include <string.h>

#include "base/layout.h"
#include "format/torch.h"

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
	if (n == 5 && items[1].kind == HOIST__PICKLE_OPAQUE) {
		*ret = items[1];
		return 0;
	}
	if (n != 5 || items[0].kind != HOIST__PICKLE_TEXT ||
	    !hoist__torch_is(items[0].u.text, items[0].n, "storage") ||
	    !hoist__torch_is_global(&items[1], HOIST__TORCH_STORAGE_CLASS) ||
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

/* Gives whether the bytes are the values: not with {"conj": True} or {"neg": True}. */
static int check_metadata(struct hoist__pickle *p, const struct hoist__pickle_value *metadata,
			  bool *plain)
{
	*plain = true;
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
				*plain = false;
	}
	return 0;
}

/* Returns the first of the arguments 0 and @other that is an opaque value, as the tensor made of
 * them then is; NULL: neither is. */
static const struct hoist__torch_opaque *opaque_of(const struct hoist__pickle_value *items,
						   size_t n, size_t other)
{
	if (n > 0 && items[0].kind == HOIST__PICKLE_OPAQUE)
		return items[0].u.opaque;
	return other < n && items[other].kind == HOIST__PICKLE_OPAQUE ? items[other].u.opaque
								      : NULL;
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
	bool plain = true;
	const struct hoist__torch_opaque *opaque = opaque_of(items, n, 6);
	if (opaque != NULL)
		return hoist__torch_opaque_like(p, opaque, ret);
	if (n < least || n > least + 1 || items[0].kind != HOIST__PICKLE_STORAGE ||
	    items[1].kind != HOIST__PICKLE_INT || items[1].u.integer < 0 ||
	    (least == 7 && !hoist__torch_is_global(&items[6], HOIST__TORCH_DTYPE)))
		return hoist__pickle_fail(
			p, -EBADMSG,
			"a tensor is not made of a storage, an offset, a size and "
			"a stride");
	int err = n > least ? check_metadata(p, &items[least], &plain) : 0;
	if (err == 0 && !plain)
		return hoist__torch_opaque(p,
					   "a tensor that is the conjugate or the negative of "
					   "its bytes: save .resolve_conj().resolve_neg()",
					   ret);
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
static int rebuild_parameter(struct hoist__pickle *p, size_t expected,
			     const struct hoist__pickle_value *arguments,
			     struct hoist__pickle_value *ret)
{
	size_t n;
	const struct hoist__pickle_value *items = hoist__pickle_items(arguments, &n);
	const struct hoist__torch_opaque *opaque = opaque_of(items, n, 0);
	if (opaque != NULL)
		return hoist__torch_opaque_like(p, opaque, ret);
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
	const struct hoist__torch_opaque *opaque = opaque_of(items, n, 1);
	if (opaque != NULL)
		return hoist__torch_opaque_like(p, opaque, ret);
	if (n != 4 || items[0].kind != HOIST__PICKLE_GLOBAL ||
	    items[0].n < HOIST__TORCH_REBUILD_V2 ||
	    items[0].n > HOIST__TORCH_REBUILD_PARAMETER_STATE ||
	    !hoist__torch_is_global(&items[1], HOIST__TORCH_TENSOR_CLASS))
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

int hoist__torch_reduce(struct hoist__pickle *p, const struct hoist__pickle_value *callable,
			const struct hoist__pickle_value *arguments,
			struct hoist__pickle_value *ret)
{
	if (callable->kind == HOIST__PICKLE_OPAQUE)
		return hoist__torch_opaque_like(p, callable->u.opaque, ret);
	if (callable->kind != HOIST__PICKLE_GLOBAL || arguments->kind != HOIST__PICKLE_TUPLE)
		return hoist__pickle_fail(
			p, -EBADMSG,
			"REDUCE calls a value that is no function, or passes no tuple");
	switch ((enum hoist__torch_global)callable->n) {
	case HOIST__TORCH_SIZE:
		return make_size(p, arguments, ret);
	case HOIST__TORCH_REBUILD_V2:
	case HOIST__TORCH_REBUILD_V3:
		return rebuild(p, (enum hoist__torch_global)callable->n, arguments, ret);
	case HOIST__TORCH_REBUILD_PARAMETER:
		return rebuild_parameter(p, 3, arguments, ret);
	case HOIST__TORCH_REBUILD_PARAMETER_STATE:
		return rebuild_parameter(p, 4, arguments, ret);
	case HOIST__TORCH_REBUILD_TYPE:
		return rebuild_type(p, arguments, ret);
	default:
		return hoist__torch_plain(p, (enum hoist__torch_global)callable->n, arguments, ret);
	}
}
