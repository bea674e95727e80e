/* SPDX-License-Identifier: MIT */
/* DLPack and the CUDA Array Interface between streams: who waits for whom. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "hoist/cai.h"
#include "hoist/dlpack.h"
#include "hoist/hoist.h"
#include "tests/support/lib-dlpack.h"
#include "tests/support/lib-support.h"

#define N 4096

static hoist_device *devices[LIB_N_DEVICES];
static const int64_t shape[] = {N};

static void open_all(void)
{
	if (!lib_emulate())
		cr_skip_test("the emulators are not built");
	lib_open_all(devices);
}

static hoist_stream *new_stream(hoist_device *device)
{
	hoist_stream *stream = NULL;
	cr_assert_eq(hoist_stream_create(device, &stream), 0, "%s", hoist_error());
	return stream;
}

static const char *api_of(hoist_device *device)
{
	return strncmp(hoist_device_spec(device), "hip", 3) == 0 ? "hip" : "cuda";
}

/* A buffer on @producer whose work is held back: all its bytes become 7. */
static hoist_buffer *held_buffer(hoist_stream *producer)
{
	hoist_buffer *b = NULL;
	const unsigned char seven = 7;
	cr_assert_eq(hoist_buffer_create_on(producer, HOIST_U8, 1, shape, 0, &b), 0, "%s",
		     hoist_error());
	lib_hold(api_of(hoist_stream_device(producer)), true);
	cr_assert_eq(hoist_buffer_fill_on(b, &seven, 1, producer), 0, "%s", hoist_error());
	return b;
}

/* What a kernel of the consumer would see: a copy on its stream, into host memory. */
static void expect_sevens(hoist_buffer *b, hoist_stream *consumer)
{
	hoist_buffer *seen = NULL;
	hoist_device *device = hoist_stream_device(consumer);
	cr_assert_eq(hoist_buffer_create(device, HOIST_U8, 1, shape, HOIST_BUFFER_PINNED, &seen),
		     0);
	memset(hoist_buffer_data(seen), 0, N);
	cr_assert_eq(hoist_buffer_copy_on(seen, b, consumer), 0, "%s", hoist_error());
	cr_expect_eq(*(unsigned char *)hoist_buffer_data(seen), 0, "nothing has run yet");
	lib_hold(api_of(device), false);
	cr_assert_eq(hoist_stream_synchronize(consumer), 0, "%s", hoist_error());
	for (int i = 0; i < N; i++)
		cr_assert_eq(((unsigned char *)hoist_buffer_data(seen))[i], 7, "byte %d", i);
	hoist_buffer_unref(seen);
}

/* proves: S5.07 S0.30 */
Test(dlpack_streams, the_consumers_stream_waits_not_the_host, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_stream *producer = new_stream(devices[i]);
		hoist_stream *consumer = new_stream(devices[i]);
		hoist_dlpack_options options = {.size = sizeof options, .has_stream = 1};
		struct DLManagedTensorVersioned *tensor = NULL;
		hoist_buffer *there = NULL;
		cr_assert_eq(hoist_stream_to_dlpack(consumer, &options.stream), 0);
		cr_expect_eq(options.stream, (intptr_t)hoist_stream_native(consumer));
		lib_set_latency(api_of(devices[i]), 0, 2000);
		hoist_buffer *b = held_buffer(producer);
		/* If it waited, it would wait for ever. */
		cr_assert_eq(hoist_buffer_to_dlpack(b, &options, &tensor), 0, "%s", hoist_error());
		cr_assert_eq(hoist_buffer_from_dlpack(tensor, consumer, 0, &there), 0);
		expect_sevens(there, consumer);
		hoist_buffer_unref(there);
		hoist_buffer_unref(b);
		hoist_stream_unref(producer);
		hoist_stream_unref(consumer);
		lib_set_latency(api_of(devices[i]), 0, 0);
	}
	cr_assert(lib_nothing_outstanding(devices));
	cr_assert(lib_drivers_content());
}

/* proves: S5.07 */
Test(dlpack_streams, default_streams_have_numbers, .init = open_all)
{
	static const struct {
		int device;
		intptr_t stream;
	} rows[] = {{1, 1}, {1, 2}, {3, 0}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		hoist_device *device = devices[rows[i].device];
		hoist_stream *producer = new_stream(device);
		hoist_stream *consumer = NULL;
		const hoist_dlpack_options options = {
			.size = sizeof options, .has_stream = 1, .stream = rows[i].stream};
		struct DLManagedTensorVersioned *tensor = NULL;
		hoist_buffer *there = NULL;
		intptr_t number = -5;
		cr_assert_eq(hoist_stream_wrap(device, NULL, &consumer), 0);
		cr_assert_eq(hoist_stream_to_dlpack(consumer, &number), 0);
		cr_expect_eq(number, rows[i].device == 3 ? 0 : 1);
		hoist_buffer *b = held_buffer(producer);
		cr_assert_eq(hoist_buffer_to_dlpack(b, &options, &tensor), 0, "%s", hoist_error());
		cr_assert_eq(hoist_buffer_from_dlpack(tensor, consumer, 0, &there), 0);
		expect_sevens(there, consumer);
		hoist_buffer_unref(there);
		hoist_buffer_unref(b);
		hoist_stream_unref(producer);
		hoist_stream_unref(consumer);
	}
	intptr_t number;
	hoist_stream *cpu = new_stream(devices[0]);
	cr_expect_eq(hoist_stream_to_dlpack(cpu, &number), -ENOTSUP);
	cr_expect_eq(hoist_stream_to_dlpack(NULL, &number), -EINVAL);
	hoist_stream_unref(cpu);
}

struct gate {
	const char *api;
	atomic_bool opened;
};

static void *open_later(void *argument)
{
	struct gate *gate = argument;
	(void)usleep(30000);
	atomic_store(&gate->opened, true);
	lib_hold(gate->api, false);
	return NULL;
}

/* proves: S0.30 V101 */
Test(dlpack_streams, without_one_the_host_waits, .init = open_all)
{
	for (unsigned legacy = 0; legacy < 2; legacy++)
		for (int i = 1; i < LIB_N_DEVICES; i++) {
			hoist_stream *producer = new_stream(devices[i]);
			struct DLManagedTensorVersioned *tensor = NULL;
			struct DLManagedTensor *old = NULL;
			unsigned char got[N] = {0};
			struct gate gate = {.api = api_of(devices[i])};
			pthread_t thread;
			hoist_buffer *b = held_buffer(producer);
			cr_assert_eq(pthread_create(&thread, NULL, open_later, &gate), 0);
			if (legacy)
				cr_assert_eq(hoist_buffer_to_dlpack_legacy(b, NULL, &old), 0);
			else
				cr_assert_eq(hoist_buffer_to_dlpack(b, NULL, &tensor), 0);
			cr_expect(atomic_load(&gate.opened), "V101 %s", lib_specs[i]);
			cr_assert_eq(pthread_join(thread, NULL), 0);
			cr_assert_eq(hoist_buffer_read(b, 0, got, N), 0);
			cr_expect_eq(got[N - 1], 7, "V101");
			hoist_dlpack_release(tensor);
			hoist_dlpack_release_legacy(old);
			hoist_buffer_unref(b);
			hoist_stream_unref(producer);
		}
}

/* proves: S5.07 S0.30 */
Test(dlpack_streams, minus_one_waits_for_nobody, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_stream *producer = new_stream(devices[i]);
		const hoist_dlpack_options options = {
			.size = sizeof options, .has_stream = 1, .stream = -1};
		struct DLManagedTensorVersioned *tensor = NULL;
		hoist_buffer *b = held_buffer(producer);
		uint64_t events = lib_calls("cuda", "cuEventRecord");
		cr_assert_eq(hoist_buffer_to_dlpack(b, &options, &tensor), 0);
		cr_expect_eq(lib_calls("cuda", "cuEventRecord"), events);
		lib_hold(api_of(devices[i]), false);
		hoist_dlpack_release(tensor);
		hoist_buffer_unref(b);
		hoist_stream_unref(producer);
	}
}

/* proves: S5.08 S3.13 */
Test(dlpack_exchange, does_not_wait, .init = open_all)
{
	const hoist_dl_exchange *table =
		(const hoist_dl_exchange *)(const void *)hoist_dlpack_exchange_api();
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_stream *producer = new_stream(devices[i]);
		struct DLManagedTensorVersioned *tensor = NULL;
		hoist_dl_tensor seen;
		void *native = NULL;
		void *object = NULL;
		hoist_stream *stream = NULL;
		hoist_buffer *b = held_buffer(producer);
		cr_expect_eq(table->to_managed(b, &tensor), 0);
		cr_expect_eq(table->to_tensor(b, &seen), 0);
		cr_expect_eq((uintptr_t)seen.data, hoist_buffer_address(b));
		cr_expect_eq(table->from_managed(tensor, &object), 0);
		cr_expect_eq(table->current_stream(seen.device.type, seen.device.id, &native), 0);
		lib_hold(api_of(devices[i]), false);
		cr_assert_eq(hoist_device_default_stream(devices[i], &stream), 0);
		cr_expect_eq(native, hoist_stream_native(stream));
		hoist_stream_unref(stream);
		hoist_buffer_unref(object);
		hoist_buffer_unref(b);
		hoist_stream_unref(producer);
	}
}

/* --- the CUDA Array Interface --- */

/* proves: S3.04 */
Test(cai_streams, the_consumers_stream_waits_not_the_host, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (int given = 0; given < 2; given++) {
			hoist_stream *producer = new_stream(devices[i]);
			hoist_stream *consumer = NULL;
			hoist_buffer *there = NULL;
			hoist_cai cai = {.size = sizeof cai};
			if (given)
				consumer = new_stream(devices[i]);
			else
				cr_assert_eq(hoist_device_default_stream(devices[i], &consumer), 0);
			lib_set_latency(api_of(devices[i]), 0, 2000);
			hoist_buffer *b = held_buffer(producer);
			cr_assert_eq(hoist_buffer_to_cai(b, &cai), 0, "%s", hoist_error());
			cr_expect_eq(cai.has_stream, 1);
			cr_expect_eq(cai.stream, (intptr_t)hoist_stream_native(producer));
			cr_assert_eq(hoist_buffer_from_cai(&cai, NULL, given ? consumer : NULL, 0,
							   &there),
				     0, "%s", hoist_error());
			expect_sevens(there, consumer);
			hoist_buffer_unref(there);
			hoist_buffer_unref(b);
			hoist_stream_unref(producer);
			hoist_stream_unref(consumer);
			lib_set_latency(api_of(devices[i]), 0, 0);
		}
	cr_assert(lib_drivers_content());
}

/* proves: S3.04 */
Test(cai_streams, opting_out, .init = open_all)
{
	hoist_stream *producer = new_stream(devices[1]);
	hoist_buffer *there = NULL;
	hoist_cai cai = {.size = sizeof cai};
	hoist_buffer *b = held_buffer(producer);
	cr_assert_eq(hoist_buffer_to_cai(b, &cai), 0);
	uint64_t events = lib_calls("cuda", "cuEventRecord");
	cr_assert_eq(hoist_buffer_from_cai(&cai, NULL, NULL, HOIST_CAI_NO_SYNC, &there), 0);
	cr_expect_eq(lib_calls("cuda", "cuEventRecord"), events);
	hoist_buffer_unref(there);
	/* A stream does not wait for itself. */
	cr_assert_eq(hoist_buffer_from_cai(&cai, NULL, producer, 0, &there), 0);
	cr_expect_eq(lib_calls("cuda", "cuEventRecord"), events);
	lib_hold("cuda", false);
	hoist_buffer_unref(there);
	hoist_buffer_unref(b);
	hoist_stream_unref(producer);
}

/* proves: S3.05 */
Test(cai_streams, default_streams, .init = open_all)
{
	hoist_cai cai = {.size = sizeof cai};
	hoist_stream *null = NULL;
	hoist_buffer *on_null = NULL;
	/* No work was ever queued: nothing to wait for. */
	hoist_buffer *b = NULL;
	cr_assert_eq(hoist_buffer_create(devices[2], HOIST_U8, 1, shape, 0, &b), 0);
	cr_assert_eq(hoist_buffer_to_cai(b, &cai), 0, "%s", hoist_error());
	cr_expect_eq(cai.has_stream, 0);
	hoist_buffer_unref(b);
	/* CUDA's has a number, HIP's has none. */
	cr_assert_eq(hoist_stream_wrap(devices[1], NULL, &null), 0);
	cr_assert_eq(hoist_buffer_create_on(null, HOIST_U8, 1, shape, 0, &on_null), 0);
	cr_assert_eq(hoist_buffer_to_cai(on_null, &cai), 0, "%s", hoist_error());
	cr_expect_eq(cai.has_stream, 1);
	cr_expect_eq(cai.stream, 1);
	hoist_buffer_unref(on_null);
	hoist_stream_unref(null);
	cr_assert_eq(hoist_stream_wrap(devices[3], NULL, &null), 0);
	cr_assert_eq(hoist_buffer_create_on(null, HOIST_U8, 1, shape, 0, &on_null), 0);
	cr_assert_eq(hoist_buffer_to_cai(on_null, &cai), 0, "%s", hoist_error());
	cr_expect_eq(cai.has_stream, 0);
	hoist_buffer_unref(on_null);
	hoist_stream_unref(null);
}

/* Both APIs' default streams have numbers in this interface. */
/* proves: S3.04 */
Test(cai_streams, numbers_of_default_streams, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (intptr_t number = 1; number <= 2; number++) {
			hoist_stream *consumer = new_stream(devices[i]);
			hoist_stream *null = NULL;
			hoist_buffer *there = NULL;
			hoist_cai cai = {.size = sizeof cai};
			cr_assert_eq(hoist_stream_wrap(devices[i], NULL, &null), 0);
			hoist_buffer *b = held_buffer(null);
			cai.version = 3;
			memcpy(cai.typestr, "|u1", 4);
			cai.data = hoist_buffer_address(b);
			cai.rank = 1;
			cai.shape[0] = N;
			cai.has_stream = 1;
			cai.stream = number;
			cr_assert_eq(hoist_buffer_from_cai(&cai, NULL, consumer, 0, &there), 0,
				     "%d, %d: %s", i, (int)number, hoist_error());
			expect_sevens(there, consumer);
			hoist_buffer_unref(there);
			hoist_buffer_unref(b);
			hoist_stream_unref(null);
			hoist_stream_unref(consumer);
		}
	cr_assert(lib_drivers_content());
}
