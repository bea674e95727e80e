/* SPDX-License-Identifier: MIT */
/* Memory that a consumer lets go while the consumer's kernels still run: hoist parks the memory,
 * and waits for the kernels before reuse. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/cai.h"
#include "hoist/dlpack.h"
#include "lib/device/device.h"
#include "tests/support/child.h"
#include "tests/support/lib-dlpack.h"
#include "tests/support/lib-gate.h"
#include "tests/support/lib-unit.h"

#define N 4096

static const int64_t shape[] = {N};

/* The number of the driver's waits for a whole device. */
static uint64_t n_waits(const char *api)
{
	return lib_calls(api, api[0] == 'h' ? "hipDeviceSynchronize" : "cuCtxSynchronize");
}

/* --- a consumer: a stream unknown to hoist's objects, and a kernel that reads --- */

struct consumer {
	struct hoist__dev_stream *stream;
	hoist_buffer *seen; /* the bytes that the kernel read */
	struct gate gate;   /* the kernel is behind */
};

static void consumer_init(struct consumer *consumer, hoist_device *device)
{
	OK(hoist__dev_stream_create(hoist__device_dev(device), &consumer->stream));
	consumer->seen = make_buffer(device, HOIST_U8, 1, shape, HOIST_BUFFER_PINNED);
	memset(hoist_buffer_data(consumer->seen), 0, N);
	gate_init(&consumer->gate);
}

/* Its kernel reads @tensor once the gate opens. */
static void consumer_reads(struct consumer *consumer, struct DLManagedTensorVersioned *tensor)
{
	uintptr_t at = (uintptr_t)lib_seen(tensor)->tensor.data;
	bool host = lib_seen(tensor)->tensor.device.type == HOIST_DL_CUDA_HOST ||
		    lib_seen(tensor)->tensor.device.type == HOIST_DL_ROCM_HOST;
	OK(hoist__dev_stream_call(consumer->stream, gate_pass, &consumer->gate));
	if (host) /* the emulators copy on the device by the device's address, as a kernel does */
		OK(hoist__dev_host_address(hoist__dev_stream_dev(consumer->stream), (void *)at,
					   &at));
	OK(hoist__copy_async(consumer->stream, HOIST__COPY_DEVICE_TO_HOST,
			     (uintptr_t)hoist_buffer_data(consumer->seen), at, N));
}

/* Returns: the byte that the kernel read; -1: the bytes differ. */
static int consumer_saw(struct consumer *consumer)
{
	const unsigned char *seen = hoist_buffer_data(consumer->seen);
	gate_open(&consumer->gate);
	OK(hoist__dev_stream_synchronize(consumer->stream));
	for (int i = 1; i < N; i++)
		if (seen[i] != seen[0])
			return -1;
	return seen[0];
}

static void consumer_fini(struct consumer *consumer)
{
	hoist__dev_stream_destroy(consumer->stream);
	hoist_buffer_unref(consumer->seen);
}

static hoist_buffer *filled(hoist_memory *memory, unsigned char value)
{
	hoist_buffer *b = make_buffer_from(memory, NULL, HOIST_U8, 1, shape, 0);
	OK(hoist_buffer_fill(b, &value, 1));
	return b;
}

/* Drops the buffer, then the tensor that the buffer was exported as. */
static void let_go(hoist_buffer *b)
{
	struct DLManagedTensorVersioned *tensor = exported(b, NULL);
	hoist_buffer_unref(b);
	hoist_dlpack_release(tensor);
}

static uint64_t parked_bytes(hoist_memory *memory)
{
	return statistics_of(memory).parked_bytes;
}

/* --- resources of every kind whose memory a device touches --- */

static int custom_alloc(void *context, size_t bytes, size_t align, hoist_stream *stream,
			uintptr_t *ret)
{
	(void)stream;
	return hoist_memory_alloc(context, bytes, align > 1 ? align : 0, ret);
}

static void custom_free(void *context, uintptr_t address, size_t bytes, hoist_stream *stream)
{
	(void)bytes;
	(void)stream;
	(void)hoist_memory_free(context, address);
}

/* The last of them is CUSTOM, over the device's own. */
static hoist_memory *resource(hoist_device *device, int kind)
{
	static hoist_memory *under;
	const hoist_memory_functions functions = {
		.size = sizeof functions,
		.alloc = custom_alloc,
		.free = custom_free,
		.is_device_accessible = 1,
	};
	hoist_memory_options options = {.size = sizeof options, .kind = kind, .device = device};
	if (kind == HOIST_MEMORY_CUSTOM) {
		under = memory_of(device, HOIST_MEMORY_DEVICE);
		options.functions = &functions;
		options.functions_context = under;
		hoist_memory_unref(under); /* the device keeps a reference */
	}
	return make_memory(&options);
}

static const int kinds[] = {HOIST_MEMORY_DEVICE, HOIST_MEMORY_PINNED, HOIST_MEMORY_MANAGED,
			    HOIST_MEMORY_DRIVER_POOL, HOIST_MEMORY_CUSTOM};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

/* proves: S0.30 */
Test(dlpack_parked, a_slow_kernel_reads_the_old_bytes, .init = open_all)
{
	unsigned n = 0;
	for (int d = 1; d < LIB_N_DEVICES; d++)
		for (size_t k = 0; k < N_KINDS; k++) {
			struct consumer consumer;
			hoist_memory *memory = resource(devices[d], kinds[k]);
			consumer_init(&consumer, devices[d]);
			hoist_buffer *old = filled(memory, 7);
			struct DLManagedTensorVersioned *tensor = exported(old, NULL);
			hoist_buffer_unref(old);
			consumer_reads(&consumer, tensor);
			uint64_t waits = n_waits(api_of(devices[d]));
			hoist_dlpack_release(tensor);
			cr_expect_eq(parked_bytes(memory), N);
			hoist_buffer *new = filled(memory, 9);
			cr_expect_eq(n_waits(api_of(devices[d])), waits, "nobody waited");
			cr_expect_eq(consumer_saw(&consumer), 7, "%s, kind %d",
				     hoist_device_spec(devices[d]), kinds[k]);
			OK(hoist_memory_trim(memory, 0));
			cr_expect_eq(parked_bytes(memory), 0);
			hoist_buffer_unref(new);
			consumer_fini(&consumer);
			hoist_memory_unref(memory);
			n++;
		}
	expect_all_given_back();
	printf("figure: parked.kinds %u pairs of a kind of memory and an emulated device, "
	       "where a slow kernel read what was exported after the deleter ran\n",
	       n);
}

/* Memory of a third party. Its release says that the memory may be used again. */
static void count_release(void *n)
{
	++*(unsigned *)n;
}

Test(dlpack_parked, wrapped_memory_is_released_later, .init = open_all)
{
	for (int d = 1; d < LIB_N_DEVICES; d++) {
		unsigned n_released = 0;
		hoist_memory *memory = resource(devices[d], HOIST_MEMORY_DEVICE);
		uintptr_t block = alloc(memory, N, 0);
		const hoist_buffer_source source = {
			.size = sizeof source,
			.address = block,
			.bytes = N,
			.device = devices[d],
			.release = count_release,
			.context = &n_released,
		};
		hoist_buffer *b = make_wrapped(&source, HOIST_U8, 1, shape, NULL);
		let_go(b);
		cr_expect_eq(n_released, 0);
		OK(hoist_device_synchronize(devices[d]));
		cr_expect_eq(n_released, 1);
		/* A wait that began behind the deleter, but before the buffer's end, is enough. */
		OK(hoist_buffer_wrap(&source, HOIST_U8, 1, shape, NULL, &b));
		hoist_dlpack_release(exported(b, NULL));
		OK(hoist_device_synchronize(devices[d]));
		hoist_buffer_unref(b);
		cr_expect_eq(n_released, 2);
		OK(hoist_memory_free(memory, block));
		hoist_memory_unref(memory);
	}
	cr_assert(lib_nothing_outstanding(devices));
}

/* The CUDA Array Interface has no deleter: the buffer's end is all there is. */
Test(dlpack_parked, an_array_interface_too, .init = open_all)
{
	static hoist_cai cai = {.size = sizeof cai};
	hoist_memory *memory = resource(devices[1], HOIST_MEMORY_DEVICE);
	hoist_buffer *b = filled(memory, 1);
	OK(hoist_buffer_to_cai(b, &cai));
	OK(hoist_device_synchronize(devices[1]));
	hoist_buffer_unref(b);
	cr_expect_eq(parked_bytes(memory), N);
	/* A resource without another reference ends with its parked memory. */
	uint64_t waits = n_waits("cuda");
	hoist_memory_unref(memory);
	cr_expect_eq(n_waits("cuda"), waits + 1);
	cr_expect_eq(lib_counters("cuda").live_allocations, 0);
	cr_assert(lib_nothing_outstanding(devices));
}

Test(dlpack_parked, one_wait_serves_many, .init = open_all)
{
	enum { MANY = 50 };
	for (int d = 1; d < LIB_N_DEVICES; d++)
		for (int k = 0; k < 2; k++) {
			struct DLManagedTensorVersioned *tensors[MANY];
			const char *api = api_of(devices[d]);
			hoist_memory *memory = resource(devices[d], kinds[k]);
			for (int i = 0; i < MANY; i++) {
				hoist_buffer *b = filled(memory, 1);
				tensors[i] = exported(b, NULL);
				hoist_buffer_unref(b);
			}
			for (int i = 0; i < MANY; i++)
				hoist_dlpack_release(tensors[i]);
			cr_expect_eq(parked_bytes(memory), MANY * N);
			uint64_t waits = n_waits(api);
			OK(hoist_memory_trim(memory, 0));
			cr_expect_eq(parked_bytes(memory), 0);
			/* Pinned memory is for all devices of its driver: CUDA may have two. */
			uint64_t made = n_waits(api) - waits;
			cr_expect(made == 1 || (k == 1 && api[0] == 'c' && made == 2), "%d",
				  (int)made);
			OK(hoist_memory_trim(memory, 0));
			cr_expect_eq(n_waits(api) - waits, made, "nothing is parked");
			hoist_memory_unref(memory);
		}
	cr_assert(lib_nothing_outstanding(devices));
}

/* A resource whose whole limit is in a buffer that was let go. */
static hoist_memory *used_up(hoist_device *device, int64_t bytes)
{
	hoist_memory *memory = make_memory(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = device,
						   .limit_bytes = (size_t)bytes));
	let_go(make_buffer_from(memory, NULL, HOIST_U8, 1, &bytes, 0));
	return memory;
}

Test(dlpack_parked, an_allocation_waits_but_not_in_a_capture, .init = open_all)
{
	const int64_t bytes = 4 << 20;
	for (int d = 1; d < LIB_N_DEVICES; d++) {
		const char *api = api_of(devices[d]);
		hoist_buffer *b = NULL;
		hoist_memory *memory = used_up(devices[d], bytes);
		hoist_stream *stream = make_stream(devices[d]);
		uint64_t waits = n_waits(api);
		OK(set_capture(stream, 1));
		cr_expect_eq(hoist_buffer_create_from(memory, NULL, HOIST_U8, 1, &bytes, 0, &b),
			     -EDQUOT);
		OK(hoist_memory_trim(memory, 0));
		OK(hoist_device_synchronize(devices[d]));
		cr_expect_eq(n_waits(api), waits);
		cr_expect_eq(lib_counters(api).broken_captures, 0);
		cr_expect_eq(parked_bytes(memory), (uint64_t)bytes);
		OK(set_capture(stream, 0));
		OK(hoist_buffer_create_from(memory, NULL, HOIST_U8, 1, &bytes, 0, &b));
		cr_expect_eq(n_waits(api), waits + 1);
		hoist_buffer_unref(b);
		hoist_stream_unref(stream);
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}

/* A graph that the buffer's own stream captures uses the memory whenever it runs. */
Test(dlpack_parked, memory_of_a_graph_stays_until_its_captures_are_released, .init = open_all)
{
	const int64_t bytes = 4 << 20;
	for (int d = 1; d < LIB_N_DEVICES; d++) {
		hoist_buffer *other = NULL;
		hoist_memory *memory = make_memory(
			OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[d],
				.region_bytes = (size_t)bytes, .limit_bytes = (size_t)bytes));
		hoist_stream *stream = make_stream(devices[d]);
		hoist_buffer *b = make_buffer_from(memory, stream, HOIST_U8, 1, &bytes, 0);
		hoist_dlpack_release(exported(b, NULL));
		OK(set_capture(stream, 1));
		hoist_buffer_unref(b);
		OK(set_capture(stream, 0));
		OK(hoist_device_synchronize(devices[d]));
		cr_expect_eq(hoist_buffer_create_from(memory, NULL, HOIST_U8, 1, &bytes, 0, &other),
			     -EDQUOT, "the graph may run again");
		OK(hoist_memory_release_captured(memory));
		OK(hoist_buffer_create_from(memory, NULL, HOIST_U8, 1, &bytes, 0, &other));
		hoist_buffer_unref(other);
		hoist_stream_unref(stream);
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}

/* Growing may give the old addresses back. */
Test(dlpack_parked, growing_waits_for_consumers_or_is_refused, .init = open_all)
{
	const int64_t few = 1000, many = 10 << 20;
	hoist_memory *memory = resource(devices[1], HOIST_MEMORY_VIRTUAL);
	hoist_buffer *larger = NULL;
	hoist_cai cai = {.size = sizeof cai};
	hoist_buffer *b = make_buffer_from(memory, NULL, HOIST_U8, 1, &few, 0);
	hoist_dlpack_release(exported(b, NULL));
	uint64_t waits = n_waits("cuda");
	OK(hoist_buffer_grow(b, 1, &many, &larger));
	cr_expect_eq(n_waits("cuda"), waits + 1);
	hoist_buffer_unref(b);
	b = larger;
	OK(hoist_buffer_to_cai(b, &cai));
	REFUSED(hoist_buffer_grow(b, 1, SHAPE(2 * many), &larger), -EBUSY, "exported");
	hoist_buffer_unref(b);
	hoist_memory_unref(memory);
	cr_assert(lib_nothing_outstanding(devices));
}

/* Resources grow while less than the bound is parked; an allocation beyond the bound waits. */
Test(dlpack_parked, growing_goes_before_waiting_up_to_a_bound, .init = open_all)
{
	const int64_t piece = 64 << 20;
	hoist_memory *memory = resource(devices[1], HOIST_MEMORY_DEVICE);
	hoist_device_info info = device_info_of(devices[1]);
	const uint64_t bound = info.total_memory / 32;
	uint64_t waits = n_waits("cuda");
	uint64_t most = 0;
	cr_assert_geq(bound, (uint64_t)piece);
	for (uint64_t all = 0; all <= 2 * bound; all += (uint64_t)piece) {
		let_go(make_buffer_from(memory, NULL, HOIST_U8, 1, &piece, 0));
		uint64_t now = parked_bytes(memory);
		if (now > most && now <= bound)
			cr_expect_eq(n_waits("cuda"), waits);
		most = now > most ? now : most;
	}
	cr_expect_gt(most, bound);
	cr_expect_leq(most, bound + (uint64_t)piece);
	cr_expect_eq(n_waits("cuda"), waits + 1);
	hoist_memory_unref(memory);
	cr_assert(lib_nothing_outstanding(devices));
}

/* The option: the consumer's one stream orders it, and no device is waited for. */
Test(dlpack_parked, the_only_stream_is_waited_for_alone, .init = open_all)
{
	for (int d = 1; d < LIB_N_DEVICES; d++)
		for (int capturing = 0; capturing < 2; capturing++) {
			const char *api = api_of(devices[d]);
			struct consumer consumer;
			hoist_memory *memory = resource(devices[d], HOIST_MEMORY_DEVICE);
			consumer_init(&consumer, devices[d]);
			void *native = hoist__dev_stream_native(consumer.stream);
			const hoist_dlpack_options options = {
				.size = sizeof options,
				.has_stream = 1,
				.stream = (intptr_t)native,
				.only_stream = 1,
			};
			hoist_buffer *old = filled(memory, 7);
			struct DLManagedTensorVersioned *tensor = exported(old, &options);
			hoist_buffer_unref(old);
			consumer_reads(&consumer, tensor);
			uint64_t waits = n_waits(api);
			if (capturing)
				OK(lib_capture(api, native, 1));
			hoist_dlpack_release(tensor);
			cr_expect_eq(parked_bytes(memory), capturing ? N : 0);
			if (capturing)
				OK(lib_capture(api, native, 0));
			hoist_buffer *new = filled(memory, 9);
			cr_expect_eq(consumer_saw(&consumer), 7);
			hoist_buffer_unref(new);
			consumer_fini(&consumer);
			for (int tries = 0; tries < 1000000; tries++) {
				OK(hoist_memory_trim(memory, 0));
				if (statistics_of(memory).pending_bytes == 0)
					break;
			}
			cr_expect_eq(statistics_of(memory).reserved_bytes, 0, "all came back");
			cr_expect_eq(n_waits(api) - waits, (uint64_t)capturing);
			hoist_memory_unref(memory);
		}
	expect_all_given_back();
}

Test(dlpack_parked, a_promise_needs_a_stream, .init = open_all)
{
	static const struct {
		int has_stream;
		intptr_t stream;
		int only_stream;
	} rows[] = {{0, 0, 1}, {1, -1, 1}, {1, 2, 1}, {1, 1, 2}};
	hoist_memory *memory = resource(devices[1], HOIST_MEMORY_DEVICE);
	hoist_buffer *b = filled(memory, 1);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const hoist_dlpack_options options = {
			.size = sizeof options,
			.has_stream = rows[i].has_stream,
			.stream = rows[i].stream,
			.only_stream = rows[i].only_stream,
		};
		struct DLManagedTensorVersioned *tensor = NULL;
		REFUSED(hoist_buffer_to_dlpack(b, &options, &tensor), -EINVAL, "only_stream");
	}
	hoist_buffer_unref(b);
	hoist_memory_unref(memory);
	cr_assert(lib_nothing_outstanding(devices));
}

/* The driver is the parent's: the child does not call the driver, and takes nothing from the
 * parent. */
Test(dlpack_parked, a_child_of_fork_parks_nothing, .init = open_all)
{
	for (int d = 1; d < LIB_N_DEVICES; d++) {
		hoist_memory *memory = resource(devices[d], HOIST_MEMORY_DEVICE);
		struct DLManagedTensorVersioned *tensors[2];
		for (int i = 0; i < 2; i++) {
			hoist_buffer *b = filled(memory, 1);
			tensors[i] = exported(b, NULL);
			hoist_buffer_unref(b);
		}
		hoist_dlpack_release(tensors[0]); /* parked by the parent */
		pid_t child = fork();
		if (child == 0) {
			hoist_memory_statistics now = {.size = sizeof now};
			hoist_dlpack_release(tensors[1]);
			(void)hoist_memory_trim(memory, 0);
			int err = hoist_memory_get_statistics(memory, &now);
			_exit(err == 0 && now.parked_bytes == N ? 0 : 1);
		}
		cr_expect_eq(child_status(child), 0);
		hoist_dlpack_release(tensors[1]);
		cr_expect_eq(parked_bytes(memory), 2 * N);
		OK(hoist_memory_trim(memory, 0));
		cr_expect_eq(parked_bytes(memory), 0);
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}
