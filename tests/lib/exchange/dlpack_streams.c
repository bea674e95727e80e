/* SPDX-License-Identifier: MIT */
/* DLPack and the CUDA Array Interface between streams: which stream waits for which. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "hoist/cai.h"
#include "hoist/dlpack.h"
#include "tests/support/lib-dlpack.h"
#include "tests/support/lib-unit.h"

#define N 4096

static const int64_t shape[] = {N};

/* A buffer on @producer whose work is held back: all its bytes become 7. */
static hoist_buffer *held_buffer(hoist_stream *producer)
{
	const unsigned char seven = 7;
	hoist_buffer *b = make_buffer_on(producer, HOIST_U8, 1, shape, 0);
	lib_hold(api_of(hoist_stream_device(producer)), true);
	OK(hoist_buffer_fill_on(b, &seven, 1, producer));
	return b;
}

/* The bytes that a kernel of the consumer would see: a copy on its stream, into host memory. */
static void expect_sevens(hoist_buffer *b, hoist_stream *consumer)
{
	hoist_device *device = hoist_stream_device(consumer);
	hoist_buffer *seen = make_buffer(device, HOIST_U8, 1, shape, HOIST_BUFFER_PINNED);
	memset(hoist_buffer_data(seen), 0, N);
	OK(hoist_buffer_copy_on(seen, b, consumer));
	cr_expect_eq(*(unsigned char *)hoist_buffer_data(seen), 0, "nothing has run yet");
	lib_hold(api_of(device), false);
	OK(hoist_stream_synchronize(consumer));
	for (int i = 0; i < N; i++)
		cr_assert_eq(((unsigned char *)hoist_buffer_data(seen))[i], 7, "byte %d", i);
	hoist_buffer_unref(seen);
}

/* proves: S5.07 S0.30 */
Test(dlpack_streams, the_consumers_stream_waits_not_the_host, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_stream *producer = make_stream(devices[i]);
		hoist_stream *consumer = make_stream(devices[i]);
		hoist_dlpack_options options = {.size = sizeof options, .has_stream = 1};
		OK(hoist_stream_to_dlpack(consumer, &options.stream));
		cr_expect_eq(options.stream, (intptr_t)hoist_stream_native(consumer));
		lib_set_latency(api_of(devices[i]), 0, 2000);
		hoist_buffer *b = held_buffer(producer);
		/* A call that waited would never return. */
		hoist_buffer *there = imported(exported(b, &options), consumer, 0);
		expect_sevens(there, consumer);
		DROP(there, b);
		DROP_STREAMS(producer, consumer);
		lib_set_latency(api_of(devices[i]), 0, 0);
	}
	expect_all_given_back();
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
		hoist_stream *producer = make_stream(device);
		const hoist_dlpack_options options = {
			.size = sizeof options, .has_stream = 1, .stream = rows[i].stream};
		intptr_t number = -5;
		hoist_stream *consumer = wrap_stream(device, NULL);
		OK(hoist_stream_to_dlpack(consumer, &number));
		cr_expect_eq(number, rows[i].device == 3 ? 0 : 1);
		hoist_buffer *b = held_buffer(producer);
		hoist_buffer *there = imported(exported(b, &options), consumer, 0);
		expect_sevens(there, consumer);
		DROP(there, b);
		DROP_STREAMS(producer, consumer);
	}
	intptr_t number;
	hoist_stream *cpu = make_stream(devices[0]);
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
			hoist_stream *producer = make_stream(devices[i]);
			struct DLManagedTensorVersioned *tensor = NULL;
			struct DLManagedTensor *old = NULL;
			unsigned char got[N] = {0};
			struct gate gate = {.api = api_of(devices[i])};
			pthread_t thread;
			hoist_buffer *b = held_buffer(producer);
			cr_assert_eq(pthread_create(&thread, NULL, open_later, &gate), 0);
			if (legacy)
				OK(hoist_buffer_to_dlpack_legacy(b, NULL, &old));
			else
				OK(hoist_buffer_to_dlpack(b, NULL, &tensor));
			cr_expect(atomic_load(&gate.opened), "V101 %s", lib_specs[i]);
			cr_assert_eq(pthread_join(thread, NULL), 0);
			OK(hoist_buffer_read(b, 0, got, N));
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
		hoist_stream *producer = make_stream(devices[i]);
		const hoist_dlpack_options options = {
			.size = sizeof options, .has_stream = 1, .stream = -1};
		hoist_buffer *b = held_buffer(producer);
		uint64_t events = lib_calls("cuda", "cuEventRecord");
		struct DLManagedTensorVersioned *tensor = exported(b, &options);
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
		hoist_stream *producer = make_stream(devices[i]);
		struct DLManagedTensorVersioned *tensor = NULL;
		hoist_dl_tensor seen;
		void *native = NULL;
		void *object = NULL;
		hoist_buffer *b = held_buffer(producer);
		cr_expect_eq(table->to_managed(b, &tensor), 0);
		cr_expect_eq(table->to_tensor(b, &seen), 0);
		cr_expect_eq((uintptr_t)seen.data, hoist_buffer_address(b));
		cr_expect_eq(table->from_managed(tensor, &object), 0);
		cr_expect_eq(table->current_stream(seen.device.type, seen.device.id, &native), 0);
		lib_hold(api_of(devices[i]), false);
		hoist_stream *stream = default_stream(devices[i]);
		cr_expect_eq(native, hoist_stream_native(stream));
		hoist_stream_unref(stream);
		DROP(object, b);
		hoist_stream_unref(producer);
	}
}

/* --- the CUDA Array Interface --- */

/* proves: S3.04 */
Test(cai_streams, the_consumers_stream_waits_not_the_host, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (int given = 0; given < 2; given++) {
			hoist_stream *producer = make_stream(devices[i]);
			hoist_stream *consumer =
				given ? make_stream(devices[i]) : default_stream(devices[i]);
			hoist_buffer *there = NULL;
			hoist_cai cai = {.size = sizeof cai};
			lib_set_latency(api_of(devices[i]), 0, 2000);
			hoist_buffer *b = held_buffer(producer);
			OK(hoist_buffer_to_cai(b, &cai));
			cr_expect_eq(cai.has_stream, 1);
			cr_expect_eq(cai.stream, (intptr_t)hoist_stream_native(producer));
			OK(hoist_buffer_from_cai(&cai, NULL, given ? consumer : NULL, 0, &there));
			expect_sevens(there, consumer);
			DROP(there, b);
			DROP_STREAMS(producer, consumer);
			lib_set_latency(api_of(devices[i]), 0, 0);
		}
	cr_assert(lib_drivers_content());
}

/* proves: S3.04 */
Test(cai_streams, opting_out, .init = open_all)
{
	hoist_stream *producer = make_stream(devices[1]);
	hoist_buffer *there = NULL;
	hoist_cai cai = {.size = sizeof cai};
	hoist_buffer *b = held_buffer(producer);
	OK(hoist_buffer_to_cai(b, &cai));
	uint64_t events = lib_calls("cuda", "cuEventRecord");
	OK(hoist_buffer_from_cai(&cai, NULL, NULL, HOIST_CAI_NO_SYNC, &there));
	cr_expect_eq(lib_calls("cuda", "cuEventRecord"), events);
	hoist_buffer_unref(there);
	/* A stream does not wait for itself. */
	OK(hoist_buffer_from_cai(&cai, NULL, producer, 0, &there));
	cr_expect_eq(lib_calls("cuda", "cuEventRecord"), events);
	lib_hold("cuda", false);
	DROP(there, b);
	hoist_stream_unref(producer);
}

/* proves: S3.05 */
Test(cai_streams, default_streams, .init = open_all)
{
	hoist_cai cai = {.size = sizeof cai};
	/* No work was ever queued: nothing to wait for. */
	hoist_buffer *b = make_buffer(devices[2], HOIST_U8, 1, shape, 0);
	OK(hoist_buffer_to_cai(b, &cai));
	cr_expect_eq(cai.has_stream, 0);
	hoist_buffer_unref(b);
	/* CUDA's has a number, HIP's has none. */
	hoist_stream *null = wrap_stream(devices[1], NULL);
	hoist_buffer *on_null = make_buffer_on(null, HOIST_U8, 1, shape, 0);
	OK(hoist_buffer_to_cai(on_null, &cai));
	cr_expect_eq(cai.has_stream, 1);
	cr_expect_eq(cai.stream, 1);
	hoist_buffer_unref(on_null);
	hoist_stream_unref(null);
	null = wrap_stream(devices[3], NULL);
	on_null = make_buffer_on(null, HOIST_U8, 1, shape, 0);
	OK(hoist_buffer_to_cai(on_null, &cai));
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
			hoist_stream *consumer = make_stream(devices[i]);
			hoist_buffer *there = NULL;
			hoist_cai cai = {.size = sizeof cai};
			hoist_stream *null = wrap_stream(devices[i], NULL);
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
			DROP(there, b);
			DROP_STREAMS(null, consumer);
		}
	cr_assert(lib_drivers_content());
}
