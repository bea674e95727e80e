/* SPDX-License-Identifier: MIT */
/* Tensors that another library offers through DLPack, and a count of their ends. */
#include "config.h"

#include "tests/support/lib-dlpack.h"

#include <stdlib.h>
#include <string.h>

#include "hoist/dlpack.h"

static void count_managed(struct DLManagedTensorVersioned *self)
{
	struct lib_offer *offer = (struct lib_offer *)(void *)self;
	atomic_fetch_add(&offer->n_deleted, 1);
}

static void count_legacy(struct DLManagedTensor *self)
{
	struct lib_offer *offer = (struct lib_offer *)(void *)self;
	atomic_fetch_add(&offer->n_deleted, 1);
}

static hoist_dl_tensor *fill_in(struct lib_offer *offer, hoist_dl_tensor *tensor, void *data,
				hoist_dtype dtype, int rank, const int64_t *shape,
				const int64_t *strides)
{
	hoist_dtype_info info = {.size = sizeof info};
	if (hoist_dtype_get_info(dtype, &info) != 0)
		abort();
	size_t n = rank > 0 ? (size_t)rank : 0;
	if (n > 0)
		memcpy(offer->shape, shape, n * sizeof *shape);
	if (n > 0 && strides != NULL)
		memcpy(offer->strides, strides, n * sizeof *strides);
	tensor->data = data;
	tensor->device = (hoist_dl_device){HOIST_DL_CPU, 0};
	tensor->rank = rank;
	tensor->dtype = (hoist_dl_dtype){(uint8_t)info.dlpack_code, (uint8_t)info.bits, 1};
	tensor->shape = n > 0 ? offer->shape : NULL;
	tensor->strides = n > 0 && strides != NULL ? offer->strides : NULL;
	tensor->byte_offset = 0;
	return tensor;
}

hoist_dl_tensor *lib_offer(struct lib_offer *offer, void *data, hoist_dtype dtype, int rank,
			   const int64_t *shape, const int64_t *strides)
{
	memset(offer, 0, sizeof *offer);
	offer->u.managed.major = HOIST_DLPACK_MAJOR;
	offer->u.managed.minor = HOIST_DLPACK_MINOR;
	offer->u.managed.deleter = count_managed;
	return fill_in(offer, &offer->u.managed.tensor, data, dtype, rank, shape, strides);
}

hoist_dl_tensor *lib_offer_legacy(struct lib_offer *offer, void *data, hoist_dtype dtype, int rank,
				  const int64_t *shape, const int64_t *strides)
{
	memset(offer, 0, sizeof *offer);
	offer->u.legacy.deleter = count_legacy;
	return fill_in(offer, &offer->u.legacy.tensor, data, dtype, rank, shape, strides);
}

struct DLManagedTensorVersioned *lib_managed(struct lib_offer *offer)
{
	return (struct DLManagedTensorVersioned *)(void *)offer;
}

struct DLManagedTensor *lib_legacy(struct lib_offer *offer)
{
	return (struct DLManagedTensor *)(void *)offer;
}

const hoist_dl_managed *lib_seen(const struct DLManagedTensorVersioned *tensor)
{
	return (const hoist_dl_managed *)(const void *)tensor;
}

const hoist_dl_legacy *lib_seen_legacy(const struct DLManagedTensor *tensor)
{
	return (const hoist_dl_legacy *)(const void *)tensor;
}
