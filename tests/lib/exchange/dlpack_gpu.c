/* SPDX-License-Identifier: MIT */
/* DLPack and the CUDA Array Interface through the public functions alone, on the device that
 * HOIST_TEST_DEVICE names ("cuda", "hip:1"), and without it on an emulated one. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/cai.h"
#include "hoist/dlpack.h"
#include "tests/support/check.h"
#include "tests/support/lib-make.h"

#define N ((size_t)8 << 20)

static const int64_t shape[] = {(int64_t)N};
static unsigned char got[N];

/* Work on @stream that takes a while, and ends with all bytes @value. */
static void fill(hoist_buffer *b, unsigned char value, hoist_stream *stream)
{
	for (int i = 0; i < 20; i++) {
		unsigned char other = (unsigned char)(value + 1 + i % 2);
		OK(hoist_buffer_fill_on(b, &other, 1, stream));
	}
	OK(hoist_buffer_fill_on(b, &value, 1, stream));
}

/* Compares the bytes that @consumer sees, without a wait for any other stream. */
static void check(hoist_buffer *there, unsigned char value, hoist_stream *consumer)
{
	hoist_buffer *seen =
		make_buffer(hoist_stream_device(consumer), HOIST_U8, 1, shape, HOIST_BUFFER_PINNED);
	OK(hoist_buffer_copy_on(seen, there, consumer));
	OK(hoist_stream_synchronize(consumer));
	memcpy(got, hoist_buffer_data(seen), N);
	for (size_t i = 0; i < N; i++)
		CHECK(got[i] == value);
	hoist_buffer_unref(seen);
}

/* proves: S5.07 S3.02 V202 */
static void by_dlpack(hoist_buffer *b, hoist_stream *producer, hoist_stream *named, intptr_t number,
		      unsigned char value)
{
	hoist_stream *consumer = NULL;
	struct DLManagedTensorVersioned *tensor;
	hoist_dlpack_options options = {.size = sizeof options, .has_stream = 1, .stream = number};
	if (named != NULL)
		consumer = hoist_stream_ref(named);
	else
		OK(hoist_stream_wrap(hoist_stream_device(producer), NULL, &consumer));
	fill(b, value, producer);
	OK(hoist_buffer_to_dlpack(b, &options, &tensor));
	hoist_buffer *there = imported(tensor, consumer, 0);
	CHECK(hoist_buffer_address(there) == hoist_buffer_address(b));
	check(there, value, consumer);
	hoist_buffer_unref(there);
	hoist_stream_unref(consumer);
}

/* proves: S3.04 V202 */
static void by_cai(hoist_buffer *b, hoist_stream *producer, hoist_stream *consumer)
{
	hoist_cai cai = {.size = sizeof cai};
	hoist_buffer *there = NULL;
	fill(b, 77, producer);
	OK(hoist_buffer_to_cai(b, &cai));
	OK(hoist_buffer_from_cai(&cai, NULL, consumer, 0, &there));
	CHECK(hoist_buffer_device(there) == hoist_stream_device(producer));
	check(there, 77, consumer);
	hoist_buffer_unref(there);
}

/* proves: S0.31 V088 V089 */
static void check_kinds(hoist_device *device, int cuda)
{
	hoist_dl_device where;
	hoist_buffer *b = make_buffer(device, HOIST_U8, 1, shape, 0);
	OK(hoist_buffer_dlpack_device(b, &where));
	CHECK(where.type == (cuda ? HOIST_DL_CUDA : HOIST_DL_ROCM));
	hoist_buffer_unref(b);
	OK(hoist_buffer_create(device, HOIST_U8, 1, shape, HOIST_BUFFER_PINNED, &b));
	OK(hoist_buffer_dlpack_device(b, &where));
	CHECK(where.type == (cuda ? HOIST_DL_CUDA_HOST : HOIST_DL_ROCM_HOST) && where.id == 0);
	struct DLManagedTensorVersioned *tensor;
	OK(hoist_buffer_to_dlpack(b, NULL, &tensor));
	hoist_buffer *back = imported(tensor, NULL, 0);
	CHECK(hoist_buffer_data(back) == hoist_buffer_data(b));
	CHECK(hoist_buffer_address(back) == hoist_buffer_address(b));
	CHECK(hoist_buffer_is_pinned(back));
	hoist_buffer_unref(back);
	hoist_buffer_unref(b);
}

int main(void)
{
	const char *spec = getenv("HOIST_TEST_DEVICE");
	hoist_device *device = NULL;
	intptr_t number;
	if (spec == NULL) {
		spec = "cuda:0";
		CHECK(setenv("HOIST_EMULATE", "cuda:1", 1) == 0);
		(void)printf("emulated\n");
	}
	if (hoist_device_open(spec, &device) != 0) {
		(void)printf("skipped: %s\n", hoist_error());
		return 77;
	}
	int cuda = strncmp(hoist_device_spec(device), "cuda", 4) == 0;
	hoist_stream *producer = make_stream(device);
	hoist_stream *consumer = make_stream(device);
	hoist_buffer *b = make_buffer_on(producer, HOIST_U8, 1, shape, 0);
	OK(hoist_stream_to_dlpack(consumer, &number));
	by_dlpack(b, producer, consumer, number, 11);
	by_dlpack(b, producer, NULL, cuda ? 1 : 0, 33);
	by_cai(b, producer, consumer);
	check_kinds(device, cuda);
	hoist_buffer_unref(b);
	hoist_stream_unref(producer);
	hoist_stream_unref(consumer);
	hoist_device_unref(device);
	return 0;
}
