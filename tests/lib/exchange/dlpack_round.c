/* SPDX-License-Identifier: MIT */
/* There and back through DLPack for every dtype, rank and device, by random views; and tensors
 * whose fields are random. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/dlpack.h"
#include "tests/support/lib-dlpack.h"
#include "tests/support/lib-unit.h"
#include "tests/support/random.h"

/* --- there and back --- */

#define MOST 512 /* elements, of at most 16 bytes */

static hoist_slice random_slice(int64_t extent, uint64_t *seed)
{
	static const int64_t steps[] = {1, 1, 2, -1, -2};
	int64_t step = steps[random_next(seed) % 5];
	int64_t start = (int64_t)(random_next(seed) % 2);
	if (extent < 3)
		start = 0;
	return step > 0 ? HOIST_STEP(start, HOIST_NONE, step)
			: HOIST_STEP(-1 - start, HOIST_NONE, step);
}

static hoist_buffer *random_view(hoist_device *device, hoist_dtype dtype, int rank, unsigned flags,
				 uint64_t *seed)
{
	int64_t shape[6];
	int axes[6];
	hoist_slice slices[6];
	unsigned char bytes[MOST * 16];
	for (int i = 0; i < rank; i++) {
		shape[i] = i == rank - 1 ? 4 : 1 + (int64_t)(random_next(seed) % 3);
		axes[i] = i;
		slices[i] = random_slice(shape[i], seed);
	}
	for (int i = rank - 1; i > 0; i--) {
		int other = (int)(random_next(seed) % (unsigned)(i + 1));
		int kept = axes[i];
		axes[i] = axes[other];
		axes[other] = kept;
	}
	hoist_buffer *whole = make_buffer(device, dtype, rank, shape, flags);
	random_fill(seed, bytes, sizeof bytes);
	cr_assert(hoist_buffer_bytes(whole) <= sizeof bytes);
	OK(hoist_buffer_write(whole, 0, bytes, hoist_buffer_bytes(whole)));
	hoist_buffer *permuted = make_slice(whole, rank, slices);
	hoist_buffer *view = NULL;
	OK(hoist_buffer_permute(permuted, axes, &view));
	DROP(whole, permuted);
	return view;
}

static void expect_same(hoist_buffer *a, hoist_buffer *b, const char *what)
{
	unsigned char of_a[MOST * 16] = {0};
	unsigned char of_b[MOST * 16] = {0};
	size_t bytes = hoist_buffer_bytes(a);
	int rank = hoist_buffer_rank(a);
	cr_assert_eq(hoist_buffer_dtype(b), hoist_buffer_dtype(a), "%s", what);
	cr_assert_eq(hoist_buffer_rank(b), rank, "%s", what);
	cr_assert_eq(hoist_buffer_device(b), hoist_buffer_device(a), "%s", what);
	for (int i = 0; i < rank; i++) {
		cr_assert_eq(hoist_buffer_shape(b)[i], hoist_buffer_shape(a)[i], "%s", what);
		cr_assert_eq(hoist_buffer_strides(b)[i], hoist_buffer_strides(a)[i], "%s", what);
	}
	cr_assert_eq(hoist_buffer_address(b), hoist_buffer_address(a), "%s", what);
	cr_assert_eq(hoist_buffer_copy_out(a, of_a, bytes), 0, "%s: %s", what, hoist_error());
	cr_assert_eq(hoist_buffer_copy_out(b, of_b, bytes), 0, "%s: %s", what, hoist_error());
	cr_assert_arr_eq(of_a, of_b, bytes, "%s", what);
}

static void go_round(hoist_buffer *view, bool legacy, const char *what)
{
	struct DLManagedTensorVersioned *tensor = NULL;
	struct DLManagedTensor *old = NULL;
	hoist_buffer *back = NULL;
	int err = legacy ? hoist_buffer_to_dlpack_legacy(view, NULL, &old)
			 : hoist_buffer_to_dlpack(view, NULL, &tensor);
	hoist_buffer_info info = info_of(view);
	if (info.bit_offset != 0) {
		cr_assert_eq(err, -ENOTSUP, "%s", what);
		return;
	}
	cr_assert_eq(err, 0, "%s: %s", what, hoist_error());
	err = legacy ? hoist_buffer_from_dlpack_legacy(old, NULL, 0, &back)
		     : hoist_buffer_from_dlpack(tensor, NULL, 0, &back);
	cr_assert_eq(err, 0, "%s: %s", what, hoist_error());
	expect_same(view, back, what);
	hoist_buffer_unref(back);
}

/* proves: S5.01 S5.03 S5.05 S5.09 S3.05 V040 */
Test(dlpack_round, every_dtype_rank_and_device, .init = open_all, .timeout = 120)
{
	uint64_t seed = 4;
	unsigned n = 0;
	lib_set_latency("cuda", 0, 0);
	lib_set_latency("hip", 0, 0);
	for (int dtype = HOIST_BOOL; dtype <= HOIST_F4_E2M1FN; dtype++) {
		if (hoist_dtype_bits((hoist_dtype)dtype) == 0)
			continue;
		for (int rank = 0; rank <= 6; rank++) {
			/* Elements of 6 bits fill bytes four at a time. */
			if (hoist_dtype_bits((hoist_dtype)dtype) < 8 && rank == 0)
				continue;
			for (int i = 0; i < LIB_N_DEVICES; i++) {
				unsigned flags = random_next(&seed) % 3 == 0 && i != 2
							 ? HOIST_BUFFER_PINNED
							 : 0;
				hoist_buffer *view = random_view(devices[i], (hoist_dtype)dtype,
								 rank, flags, &seed);
				go_round(view, random_next(&seed) % 2,
					 hoist_dtype_name((hoist_dtype)dtype));
				hoist_buffer_unref(view);
				n++;
			}
		}
	}
	cr_expect(n > 600, "%u", n);
	expect_all_given_back();
}

/* --- random fields --- */

#define BYTES 4096

static int64_t hostile(uint64_t *seed)
{
	static const int64_t values[] = {0,
					 1,
					 2,
					 3,
					 5,
					 -1,
					 -2,
					 7,
					 INT64_MAX,
					 INT64_MIN,
					 INT64_MAX - 1,
					 INT64_MIN + 1,
					 (int64_t)1 << 32,
					 (int64_t)1 << 61,
					 -((int64_t)1 << 60),
					 (int64_t)1 << 40};
	uint64_t one = random_next(seed);
	return one % 4 == 0 ? (int64_t)random_next(seed) : values[one % 16];
}

static void spoil(hoist_dl_tensor *tensor, struct lib_offer *offer, uint64_t *seed)
{
	static const uint8_t bits[] = {8, 16, 32, 64, 128, 4, 6, 1};
	tensor->rank = (int32_t)(random_next(seed) % 8);
	if (random_next(seed) % 16 == 0)
		tensor->rank = (int32_t)random_next(seed);
	for (int i = 0; i < HOIST_MAX_RANK; i++) {
		bool tame = random_next(seed) % 4 != 0;
		offer->shape[i] = tame ? (int64_t)(random_next(seed) % 4) : hostile(seed);
		tame = random_next(seed) % 4 != 0;
		offer->strides[i] = tame ? (int64_t)(random_next(seed) % 9) - 4 : hostile(seed);
	}
	tensor->shape = random_next(seed) % 16 == 0 ? NULL : offer->shape;
	tensor->strides = random_next(seed) % 3 == 0 ? NULL : offer->strides;
	tensor->dtype.code = (uint8_t)(random_next(seed) % 20);
	tensor->dtype.bits = bits[random_next(seed) % 8];
	tensor->dtype.lanes = random_next(seed) % 16 == 0 ? (uint16_t)random_next(seed) : 1;
	if (random_next(seed) % 8 == 0)
		tensor->device = (hoist_dl_device){(int32_t)(random_next(seed) % 20),
						   (int32_t)(random_next(seed) % 4) - 1};
	if (random_next(seed) % 8 == 0)
		tensor->byte_offset = (uint64_t)hostile(seed);
	if (random_next(seed) % 16 == 0)
		tensor->data = NULL;
}

/* An accepted tensor names its own bytes. */
static bool stays_inside(const hoist_buffer *b, const unsigned char *memory)
{
	hoist_buffer_info info = {.size = sizeof info};
	if (hoist_buffer_get_info(b, &info) != 0)
		return false;
	uintptr_t start = hoist_buffer_address(b) - info.offset;
	return hoist_buffer_is_host(b) && start >= (uintptr_t)memory &&
	       start + info.storage_bytes <= (uintptr_t)memory + BYTES;
}

/* Slices and copies of the buffer must work, too. */
static void use(hoist_buffer *b, const unsigned char *memory, uint64_t *seed)
{
	hoist_slice slices[8];
	hoist_buffer *view = NULL;
	int rank = hoist_buffer_rank(b);
	struct DLManagedTensorVersioned *again = NULL;
	for (int i = 0; i < rank && i < 8; i++)
		slices[i] = random_slice(hoist_buffer_shape(b)[i], seed);
	if (hoist_buffer_slice(b, rank < 8 ? rank : 8, slices, &view) == 0)
		hoist_buffer_unref(view);
	if (hoist_buffer_to_dlpack(b, NULL, &again) == 0)
		hoist_dlpack_release(again);
	size_t bytes = hoist_buffer_bytes(b);
	if (bytes == 0 || bytes > BYTES || !stays_inside(b, memory))
		return;
	unsigned char got[BYTES];
	int err = hoist_buffer_copy_out(b, got, bytes);
	cr_assert(err == 0 || hoist_error()[0] != '\0');
}

static bool is_clear(int err)
{
	return err == -EINVAL || err == -ENOTSUP || err == -ENODEV || err == -EOVERFLOW;
}

/* proves: S5.01 S5.04 S5.05 */
Test(dlpack_round, random_fields, .init = open_all, .timeout = 120)
{
	static _Alignas(64) unsigned char memory[BYTES];
	uint64_t seed = 20;
	unsigned n_taken = 0;
	unsigned n_refused = 0;
	for (int i = 0; i < 60000; i++) {
		struct lib_offer offer;
		hoist_buffer *b = NULL;
		bool legacy = random_next(&seed) % 4 == 0;
		hoist_dl_tensor *tensor =
			legacy ? lib_offer_legacy(&offer, memory + BYTES / 2, HOIST_U8, 0, NULL,
						  NULL)
			       : lib_offer(&offer, memory + BYTES / 2, HOIST_U8, 0, NULL, NULL);
		spoil(tensor, &offer, &seed);
		if (!legacy && random_next(&seed) % 8 == 0)
			offer.u.managed.flags = random_next(&seed) % 16;
		int err = legacy ? hoist_buffer_from_dlpack_legacy(lib_legacy(&offer), NULL, 0, &b)
				 : hoist_buffer_from_dlpack(lib_managed(&offer), NULL, 0, &b);
		if (err == 0) {
			use(b, memory, &seed);
			cr_assert_eq(offer.n_deleted, 0u);
			hoist_buffer_unref(b);
			/* A consumer may still use the exported memory. */
			for (int d = 1; d < LIB_N_DEVICES && offer.n_deleted == 0; d++)
				OK(hoist_device_synchronize(devices[d]));
			cr_assert_eq(offer.n_deleted, 1u);
			n_taken++;
		} else {
			cr_assert(is_clear(err), "round %d: %d", i, err);
			cr_assert_null(b);
			cr_assert_eq(offer.n_deleted, 0u, "round %d", i);
			cr_assert_neq(hoist_error()[0], '\0');
			n_refused++;
		}
	}
	cr_expect(n_taken > 3000 && n_refused > 3000, "%u taken, %u refused", n_taken, n_refused);
	cr_assert(lib_drivers_content());
}
