/* SPDX-License-Identifier: MIT */
/* VIRTUAL memory resources: the granularity of their blocks, access by devices, growth in place
 * and elsewhere, and failures to grow, which change nothing. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/memory-driver.h"
#include "lib/device/device.h"
#include "tests/support/lib-gate.h"
#include "tests/support/lib-unit.h"
#include "tests/support/patience.h"

#define MIB ((size_t)1 << 20)
#define SMALL ((size_t)64 << 10)

/* Devices have 64 MiB. */
static void open_small(void)
{
	setenv("HOIST_EMULATE_MEMORY", "64M", 1);
	open_all();
}

static int try_create(int i, const hoist_virtual_options *virtual_options, hoist_memory **ret)
{
	return hoist_memory_create(OPTIONS(.kind = HOIST_MEMORY_VIRTUAL, .device = devices[i],
					   .name = "grows", .virtual_options = virtual_options),
				   ret);
}

#define VIRTUAL(...) (&(hoist_virtual_options){.size = sizeof(hoist_virtual_options), __VA_ARGS__})

static hoist_memory *create(int i, const hoist_virtual_options *virtual_options)
{
	hoist_memory *memory = NULL;
	cr_assert_eq(try_create(i, virtual_options, &memory), 0, "%s", hoist_error());
	return memory;
}

static uintptr_t grow(hoist_memory *memory, uintptr_t address, size_t bytes)
{
	uintptr_t moved = 0;
	OK(hoist_memory_grow(memory, address, bytes, &moved));
	return moved;
}

/* Bytes @first, @first + 1, ... of a buffer's, or whether they are there. */
static void write_count(hoist_buffer *b, size_t n, unsigned first)
{
	unsigned char *bytes = malloc(n);
	cr_assert_not_null(bytes);
	for (size_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)(first + i * 7);
	OK(hoist_buffer_copy_in(b, bytes, n));
	free(bytes);
}

static int counts(hoist_buffer *b, size_t n, unsigned first)
{
	size_t all = hoist_buffer_bytes(b);
	unsigned char *bytes = malloc(all);
	cr_assert_not_null(bytes);
	OK(hoist_buffer_copy_out(b, bytes, all));
	size_t i = 0;
	while (i < n && bytes[i] == (unsigned char)(first + i * 7))
		i++;
	free(bytes);
	return i == n;
}

/* proves: S2.28 */
Test(virtual, blocks_are_whole_granules, .init = open_small)
{
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (int smallest = 0; smallest < 2; smallest++) {
			size_t expected = smallest ? SMALL : 2 * MIB;
			size_t granularity = 0;
			hoist_memory *memory = create(i, VIRTUAL(.minimum_granularity = smallest));
			OK(hoist_memory_granularity(memory, &granularity));
			cr_expect_eq(granularity, expected);
			hoist_memory_info info = memory_info_of(memory);
			cr_expect_eq(info.kind, HOIST_MEMORY_VIRTUAL);
			cr_expect(info.is_device_accessible && !info.is_host_accessible);
			cr_expect_eq(info.device_id, i == 2 ? 1 : 0);
			uintptr_t one = alloc(memory, 1, 0);
			uintptr_t two = alloc(memory, expected + 1, 0);
			cr_expect_eq(one % expected, 0);
			cr_expect_eq(statistics_of(memory).allocated_bytes, 3 * expected);
			cr_expect_eq(statistics_of(memory).requested_bytes, expected + 2);
			cr_expect_eq(hoist_memory_free(memory, one + 1), -EINVAL);
			release(memory, one);
			cr_expect_eq(hoist_memory_free(memory, one), -EINVAL);
			release(memory, two);
			uintptr_t none = 77;
			cr_expect_eq(hoist_memory_alloc(memory, 65 * MIB, 0, &none), -ENOSPC);
			cr_expect_eq(hoist_memory_alloc(memory, SIZE_MAX - 5, 0, &none), -ENOSPC);
			cr_expect_eq(none, 77);
			hoist_memory_unref(memory);
		}
	expect_all_given_back();
}

/* proves: S2.28 V153 */
Test(virtual, impossible_options_are_refused, .init = open_small)
{
	hoist_memory *memory = NULL;
	hoist_device *const own[] = {devices[1]};
	hoist_device *const none[] = {NULL};
	hoist_device *const foreign[] = {devices[3]};
	const struct {
		int device, err;
		hoist_virtual_options options;
		const char *text;
	} rows[] = {
		{2, -ENOTSUP, {.rdma = 1}, "no virtual memory for RDMA"},
		{3, -ENOTSUP, {.rdma = 1}, "no virtual memory for RDMA"},
		{0, -ENOTSUP, {.rdma = 0}, "no virtual memory of one"},
		{1, -EINVAL, {.self_access = 3}, "access is 3"},
		{1, -EINVAL, {.peer_access = -1}, "-1 for peers"},
		{1, -EINVAL, {.address_align = 3}, "address_align 3"},
		{1, -EINVAL, {.n_peers = 1}, "which are NULL"},
		{1, -EINVAL, {.peers = none, .n_peers = 1}, "a peer is NULL"},
		{1, -EINVAL, {.peers = own, .n_peers = 1}, "own device"},
		{1, -ENOTSUP, {.peers = foreign, .n_peers = 1}, "hip:0 cannot access"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		hoist_virtual_options options = rows[i].options;
		options.size = sizeof options;
		cr_expect_eq(try_create(rows[i].device, &options, &memory), rows[i].err, "%zu", i);
		expect_text(rows[i].text);
	}
	cr_expect_null(memory);
	hoist_memory_unref(create(1, VIRTUAL(.rdma = 1)));
	refuse_memory(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[1],
			      .virtual_options = VIRTUAL(.rdma = 0)),
		      -EINVAL, "device memory has no virtual_options");
	cr_expect_eq(hoist_memory_grow(NULL, 0, 1, NULL), -EINVAL);
	expect_all_given_back();
}

/* proves: S2.28 */
Test(virtual, grows_in_place_and_keeps_its_bytes, .init = open_small)
{
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (int ahead = 0; ahead < 2; ahead++) {
			hoist_memory *memory =
				create(i, VIRTUAL(.minimum_granularity = 1,
						  .reserve_bytes = ahead ? 4 * MIB : 0));
			hoist_buffer *larger = NULL;
			hoist_buffer *b =
				make_buffer_from(memory, NULL, HOIST_U8, 1, SHAPE(100000), 0);
			uintptr_t address = hoist_buffer_address(b);
			write_count(b, 100000, (unsigned)i);
			for (int64_t n = 200000; n <= 1600000; n *= 2) {
				OK(hoist_buffer_grow(b, 1, &n, &larger));
				cr_expect(hoist_buffer_is_closed(b));
				hoist_buffer_unref(b);
				b = larger;
				cr_expect_eq(hoist_buffer_bytes(b), (size_t)n);
				cr_expect_eq(hoist_buffer_address(b), address, "it stays");
				cr_expect(counts(b, 100000, (unsigned)i));
			}
			write_count(b, 1600000, 9);
			cr_expect(counts(b, 1600000, 9), "one buffer over all its pieces");
			const int64_t fewer = 10;
			OK(hoist_buffer_grow(b, 1, &fewer, &larger));
			cr_expect_eq(info_of(larger).storage_bytes, 1600000, "it does not shrink");
			cr_expect_eq(hoist_buffer_address(larger), address);
			DROP(b, larger);
			cr_expect_eq(statistics_of(memory).n_blocks, 0);
			cr_expect_eq(statistics_of(memory).allocated_bytes, 0);
			hoist_memory_unref(memory);
		}
	expect_all_given_back();
}

/* proves: S2.28 */
Test(virtual, moves_without_a_copy_where_it_cannot_stay, .init = open_small)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory = create(i, VIRTUAL(.minimum_granularity = 1));
		hoist_buffer *larger = NULL;
		const int64_t n = 300000;
		hoist_stream *stream = make_stream(devices[i]);
		hoist_buffer *b = make_buffer_from(memory, stream, HOIST_U8, 1, SHAPE(100000), 0);
		/* Another block has the addresses behind the buffer. */
		uintptr_t old = hoist_buffer_address(b);
		hoist_memory *wall = create(
			i, VIRTUAL(.minimum_granularity = 1, .address_hint = old + 2 * SMALL));
		uintptr_t behind = alloc(wall, 1, 0);
		cr_assert_eq(behind, old + 2 * SMALL);
		write_count(b, 100000, 3);
		lib_set_latency(api_of(devices[i]), 2000, 2000);
		OK(hoist_buffer_fill_on(b, (unsigned char[]){42}, 1, stream));
		uint64_t copies = lib_counters(api_of(devices[i])).copies;
		OK(hoist_buffer_grow(b, 1, &n, &larger));
		cr_expect_eq(lib_counters(api_of(devices[i])).copies, copies);
		cr_expect_neq(hoist_buffer_address(larger), old);
		unsigned char first = 0;
		unsigned char *out = malloc((size_t)n);
		OK(hoist_buffer_copy_out(larger, out, (size_t)n));
		for (size_t k = 0; k < 100000 && out[k] == 42; k++)
			first = (unsigned char)(k == 99999);
		cr_expect(first, "what was queued before is there");
		free(out);
		cr_expect_eq(hoist_memory_free(memory, old), -EINVAL, "the old address is gone");
		DROP(b, larger);
		release(wall, behind);
		hoist_stream_unref(stream);
		hoist_memory_unref(wall);
		hoist_memory_unref(memory);
		lib_set_latency(api_of(devices[i]), 10, 20);
	}
	expect_all_given_back();
}

/* proves: S2.28 */
Test(virtual, a_failure_to_grow_changes_nothing, .init = open_small)
{
	hoist_memory *memory = create(1, NULL);
	hoist_buffer *none = NULL;
	const int64_t much = (int64_t)(65 * MIB);
	const int64_t more = (int64_t)(5 * MIB);
	hoist_buffer *b = make_buffer_from(memory, NULL, HOIST_U8, 1, SHAPE(2000000), 0);
	uintptr_t address = hoist_buffer_address(b);
	write_count(b, 2000000, 5);
	static const struct {
		const char *fault;
		int err;
	} rows[] = {
		{"", -ENOSPC}, /* 64 MiB are too few for so much */
		{"cuMemCreate:1", -ENOSPC},
		{"cuMemMap:1", -EREMOTEIO},
		{"cuMemSetAccess:1", -EREMOTEIO},
		/* Not in place; then, elsewhere: */
		{"cuMemAddressReserve:1+", -ENOSPC},
		{"cuMemAddressReserve:1,cuMemMap:1", -EREMOTEIO},
		{"cuMemAddressReserve:1,cuMemSetAccess:1", -EREMOTEIO},
		{"cuMemAddressReserve:1,cuMemCreate:1", -ENOSPC},
		{"cuMemAddressReserve:1,cuMemMap:2", -EREMOTEIO},
		{"cuMemAddressReserve:1,cuMemSetAccess:2", -EREMOTEIO},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		OK(lib_fail("cuda", rows[i].fault));
		cr_expect_eq(hoist_buffer_grow(b, 1, i == 0 ? &much : &more, &none), rows[i].err,
			     "%zu: %s", i, hoist_error());
		OK(lib_fail("cuda", ""));
		cr_expect_null(none);
		cr_expect(!hoist_buffer_is_closed(b));
		cr_expect_eq(hoist_buffer_address(b), address);
		cr_expect_eq(statistics_of(memory).allocated_bytes, 2 * MIB, "%zu", i);
		cr_expect(counts(b, 2000000, 5), "%zu", i);
	}
	/* A view has the address of the memory, which must not move. */
	hoist_buffer *view = make_slice(b, 1, SLICES(HOIST_RANGE(1, 5)));
	cr_expect_eq(hoist_buffer_grow(b, 1, &more, &none), -EBUSY);
	hoist_buffer_unref(b);
	REFUSED(hoist_buffer_grow(view, 1, &more, &none), -EINVAL,
		"begins 1 bytes into its storage");
	OK(hoist_buffer_close(view, NULL));
	cr_expect_eq(hoist_buffer_grow(view, 1, &more, &none), -EBADF);
	hoist_buffer_unref(view);
	hoist_memory_unref(memory);
	hoist_buffer *plain = zeroed(devices[1], HOIST_U8, 1, SHAPE(10));
	cr_expect_eq(hoist_buffer_grow(plain, 1, &more, &none), -ENOTSUP);
	hoist_buffer_unref(plain);
	cr_expect_null(none);
	expect_all_given_back();
}

/* proves: S2.28 */
Test(virtual, a_graph_that_is_captured_keeps_its_addresses, .init = open_small)
{
	hoist_memory *memory = create(1, VIRTUAL(.minimum_granularity = 1));
	uintptr_t moved = 77;
	hoist_stream *stream = make_stream(devices[1]);
	uintptr_t block = alloc(memory, 1, 0);
	OK(hoist_memory_use(memory, block, stream));
	OK(set_capture(stream, 1));
	cr_expect_eq(hoist_memory_free(memory, block), -EAGAIN);
	cr_expect_eq(hoist_memory_free_on(memory, block, stream), -EAGAIN);
	OK(lib_fail("cuda", "cuMemAddressReserve:1"));
	REFUSED(hoist_memory_grow(memory, block, 3 * SMALL, &moved), -EAGAIN, "captures a graph");
	cr_expect_eq(moved, 77);
	OK(lib_fail("cuda", ""));
	cr_expect_eq(grow(memory, block, 3 * SMALL), block, "in place it may");
	cr_assert_eq(set_capture(stream, 0), 0, "it is whole");
	release(memory, block);
	cr_expect_eq(hoist_memory_grow(memory, block, SMALL, &moved), -EINVAL);
	hoist_stream_unref(stream);
	hoist_memory_unref(memory);
	expect_all_given_back();
}

/* --- a block whose user does not end soon --- */

struct freeing {
	hoist_memory *memory;
	uintptr_t block;
	atomic_int ended;
	int err;
};

static void *free_block(void *of)
{
	struct freeing *freeing = of;
	freeing->err = hoist_memory_free(freeing->memory, freeing->block);
	atomic_store(&freeing->ended, 1);
	return NULL;
}

/* Other blocks are used and freed, and their streams end. */
static void *use_others(void *of)
{
	struct freeing *others = of;
	for (int i = 0; i < 200; i++) {
		hoist_stream *stream = NULL;
		uintptr_t block = 0;
		hoist_device *device = devices[1];
		if (hoist_stream_create(device, &stream) < 0 ||
		    hoist_memory_alloc(others->memory, 1, 0, &block) < 0 ||
		    hoist_memory_use(others->memory, block, stream) < 0 ||
		    hoist_memory_free(others->memory, block) < 0)
			return NULL;
		hoist_stream_unref(stream);
		(void)usleep(1000);
	}
	atomic_store(&others->ended, 1);
	return NULL;
}

/* proves: S2.28 */
Test(virtual, waiting_for_a_stream_holds_up_nobody_else, .init = open_small)
{
	pthread_t waiting, other;
	struct gate gate;
	struct freeing freeing = {.memory = create(1, VIRTUAL(.minimum_granularity = 1))};
	struct freeing others = {.memory = freeing.memory};
	gate_init(&gate);
	hoist_stream *stream = make_stream(devices[1]);
	freeing.block = alloc(freeing.memory, 1, 0);
	OK(hoist_memory_use(freeing.memory, freeing.block, stream));
	OK(hoist_stream_call(stream, gate_pass, &gate));
	cr_assert_eq(pthread_create(&waiting, NULL, free_block, &freeing), 0);
	cr_assert_eq(pthread_create(&other, NULL, use_others, &others), 0);
	for (uint64_t until = 0; atomic_load(&others.ended) == 0;)
		cr_assert(patience(&until), "others wait for a stream that is not theirs");
	cr_expect_eq(atomic_load(&freeing.ended), 0, "its user has not ended");
	gate_open(&gate);
	cr_assert_eq(pthread_join(waiting, NULL), 0);
	cr_assert_eq(pthread_join(other, NULL), 0);
	cr_expect_eq(hoist_memory_free(freeing.memory, freeing.block), -EINVAL, "it was freed");
	hoist_stream_unref(stream);
	hoist_memory_unref(freeing.memory);
	expect_all_given_back();
}

/* ROCm's events must not be asked while their stream captures: nobody knows then whether the work
 * has ended, and the block stays. */
/* proves: S2.28 */
Test(virtual, a_capture_that_begins_during_the_wait_keeps_the_block, .init = open_small)
{
	static const char *const apis[] = {"cuda", "hip"};
	static const char *const records[] = {"cuEventRecord", "hipEventRecord"};
	for (int i = 0; i < 2; i++) {
		int at = i == 0 ? 1 : 3;
		pthread_t waiting;
		struct gate gates[2];
		hoist_stream *streams[2] = {NULL, NULL};
		struct freeing freeing = {.memory = create(at, VIRTUAL(.minimum_granularity = 1))};
		freeing.block = alloc(freeing.memory, 1, 0);
		for (int s = 0; s < 2; s++) {
			gate_init(&gates[s]);
			OK(hoist_stream_create(devices[at], &streams[s]));
			OK(hoist_memory_use(freeing.memory, freeing.block, streams[s]));
			OK(hoist_stream_call(streams[s], gate_pass, &gates[s]));
		}
		void *native = hoist_stream_native(streams[1]);
		uint64_t marked = lib_calls(apis[i], records[i]) + 2;
		cr_assert_eq(pthread_create(&waiting, NULL, free_block, &freeing), 0);
		for (uint64_t until = 0; lib_calls(apis[i], records[i]) < marked;)
			cr_assert(patience(&until), "%s: the streams are not marked", apis[i]);
		OK(lib_capture(apis[i], native, 1));
		gate_open(&gates[0]);
		if (i == 0)
			gate_open(&gates[1]);
		cr_assert_eq(pthread_join(waiting, NULL), 0);
		cr_expect_eq(freeing.err, i == 0 ? 0 : -EAGAIN, "%s", apis[i]);
		cr_expect_eq(lib_counters(apis[i]).live_reservations, (uint64_t)i, "%s", apis[i]);
		cr_expect_eq(lib_capture(apis[i], native, 0), 0, "%s: it is whole", apis[i]);
		gate_open(&gates[1]);
		if (i == 1)
			OK(hoist_memory_free(freeing.memory, freeing.block));
		DROP_STREAMS(streams[0], streams[1]);
		hoist_memory_unref(freeing.memory);
	}
	expect_all_given_back();
}

/* A buffer that ends while its stream captures is freed after the capture. */
/* proves: S2.28 */
Test(virtual, a_buffer_breaks_no_capture, .init = open_small)
{
	hoist_memory *memory = create(1, VIRTUAL(.minimum_granularity = 1));
	hoist_stream *stream = make_stream(devices[1]);
	hoist_buffer *b = make_buffer_from(memory, stream, HOIST_U8, 1, SHAPE(10), 0);
	OK(set_capture(stream, 1));
	hoist_buffer_unref(b);
	cr_expect_eq(lib_counters("cuda").live_reservations, 1, "the graph may name it");
	cr_assert_eq(set_capture(stream, 0), 0, "it is whole");
	hoist_stream_unref(stream);
	hoist_memory_unref(memory);
	expect_all_given_back();
}

/* proves: S2.28 */
Test(virtual, access_is_as_the_options_ask, .init = open_small)
{
	static const struct {
		int self, peer;
		int reads[2], writes[2]; /* by the device, by its peer */
	} rows[] = {
		{HOIST_ACCESS_READ_WRITE, HOIST_ACCESS_READ_WRITE, {1, 1}, {1, 1}},
		{HOIST_ACCESS_READ_WRITE, HOIST_ACCESS_READ, {1, 1}, {1, 0}},
		{HOIST_ACCESS_READ, HOIST_ACCESS_NONE, {1, 0}, {0, 0}},
		{HOIST_ACCESS_NONE, HOIST_ACCESS_READ_WRITE, {0, 1}, {0, 1}},
	};
	hoist_device *const peers[] = {devices[2]};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		hoist_memory *memory =
			create(1, VIRTUAL(.self_access = rows[i].self, .peer_access = rows[i].peer,
					  .peers = peers, .n_peers = 1));
		uintptr_t block = grow(memory, alloc(memory, 1, 0), 3 * MIB);
		for (int k = 0; k < 2; k++) {
			struct hoist__dev_stream *stream = NULL;
			unsigned char *host = NULL;
			struct hoist__dev *dev = hoist__device_dev(devices[1 + k]);
			cr_assert_eq(posix_memalign((void **)&host, 4096, 4096), 0);
			OK(hoist__dev_stream_create(dev, &stream));
			OK(hoist__dev_host_register(dev, host, 4096));
			int err = hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_HOST,
						    (uintptr_t)host, block + 2 * MIB, 4096);
			cr_expect_eq(err == 0, rows[i].reads[k], "%zu %d", i, k);
			err = hoist__fill_async(stream, block + 2 * MIB, 1, 1, 4096);
			cr_expect_eq(err == 0, rows[i].writes[k], "%zu %d", i, k);
			OK(hoist__dev_stream_synchronize(stream));
			OK(hoist__dev_host_unregister(dev, host, 4096));
			hoist__dev_stream_destroy(stream);
			free(host);
		}
		release(memory, block);
		hoist_memory_unref(memory);
	}
	cr_expect(lib_nothing_outstanding(devices));
}
