/* SPDX-License-Identifier: MIT */
/* tests/support/lib-dlpack.h - a library that offers tensors, for the tests of DLPack. */
#ifndef HOIST_TESTS_LIB_DLPACK_H
#define HOIST_TESTS_LIB_DLPACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hoist/dlpack.h"

/* The deleters count, and free nothing: the offer is the test's. */
struct lib_offer {
	union {
		hoist_dl_managed managed;
		hoist_dl_legacy legacy;
	} u;
	atomic_uint n_deleted;
	int64_t shape[HOIST_MAX_RANK];
	int64_t strides[HOIST_MAX_RANK];
};

/* Elements of @dtype at @data on the CPU, by @shape and @strides (NULL: NULL); the caller may
 * change what it likes.  Returns: its tensor. */
hoist_dl_tensor *lib_offer(struct lib_offer *offer, void *data, hoist_dtype dtype, int rank,
			   const int64_t *shape, const int64_t *strides);
hoist_dl_tensor *lib_offer_legacy(struct lib_offer *offer, void *data, hoist_dtype dtype, int rank,
				  const int64_t *shape, const int64_t *strides);

struct DLManagedTensorVersioned *lib_managed(struct lib_offer *offer);
struct DLManagedTensor *lib_legacy(struct lib_offer *offer);

/* The fields of a tensor. */
const hoist_dl_managed *lib_seen(const struct DLManagedTensorVersioned *tensor);
const hoist_dl_legacy *lib_seen_legacy(const struct DLManagedTensor *tensor);

#endif
