/* SPDX-License-Identifier: MIT */
/* The staging slots: over the CPU's streams, and over the stand-in drivers, which
 * finish late and can be held or made to fail. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/checked.h"
#include "base/error.h"
#include "tests/support/emulator-driver.h"
#include "tests/support/io-helpers.h"
#include "io/staging.h"

#define SLOT ((size_t)64 << 10)

struct world {
	struct hoist__dev *dev;
	struct hoist__dev_stream *stream;
	struct hoist__pool *pool;
	struct hoist__budget *budget;
	struct control control; /* of the stand-in; not the CPU's */
};

static void world_open(struct world *w, enum hoist__api api, size_t budget)
{
	if (api == HOIST__API_CUDA)
		(void)driver_open("libhoist-emulated-cuda.so", "cuda:1", &w->control);
	else if (api == HOIST__API_HIP)
		(void)driver_open("libhoist-emulated-hip.so", "hip:1", &w->control);
	cr_assert(hoist__dev_get(api, 0, &w->dev) == 0, "%s", hoist__error_text());
	cr_assert(hoist__dev_stream_create(w->dev, &w->stream) == 0, "%s", hoist__error_text());
	struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_PINNED,
		.dev = w->dev,
		.region_bytes = 2 << 20,
	};
	cr_assert(hoist__pool_create(&options, &w->pool) == 0, "%s", hoist__error_text());
	cr_assert(hoist__budget_create(budget, &w->budget) == 0);
}

/* No block of the pool and no byte of the budget may be left. */
static void world_close(struct world *w)
{
	struct hoist__pool_stats stats;
	hoist__pool_stats(w->pool, &stats);
	cr_expect(stats.n_blocks == 0 && hoist__budget_used(w->budget) == 0);
	hoist__pool_unref(w->pool);
	hoist__budget_unref(w->budget);
	hoist__dev_stream_destroy(w->stream);
}

static int staging_create(struct world *w, size_t slot_bytes, unsigned n_slots,
			  struct hoist__staging **ret)
{
	struct hoist__staging_options options = {
		.streams = &w->stream,
		.n_streams = 1,
		.pool = w->pool,
		.budget = w->budget,
		.slot_bytes = slot_bytes,
		.n_slots = n_slots,
	};
	return hoist__staging_create(&options, ret);
}

static struct hoist__staging *new_staging(struct world *w, size_t slot_bytes, unsigned n_slots)
{
	struct hoist__staging *staging = NULL;
	cr_assert(staging_create(w, slot_bytes, n_slots, &staging) == 0, "%s", hoist__error_text());
	return staging;
}

static uintptr_t device_memory(struct world *w, size_t bytes)
{
	uintptr_t address = 0;
	cr_assert(hoist__dev_mem_alloc(w->dev, bytes, &address) == 0, "%s", hoist__error_text());
	return address;
}

/* The device's bytes at @address. */
static void read_back(struct world *w, unsigned char *to, uintptr_t address, size_t bytes)
{
	cr_assert(hoist__copy_async(w->stream, HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)to, address,
				    bytes) == 0);
	cr_assert(hoist__dev_stream_synchronize(w->stream) == 0);
}

/* --- the whole path: file -> slot -> device --- */

struct pump {
	struct hoist__staging *staging;
	struct hoist__engine *engine;
	struct hoist__file *file;
	bool direct;
	uintptr_t to;
	uint64_t next;
	unsigned n_reading;
};

static bool start_one(struct pump *p)
{
	struct hoist__slot *slot = hoist__staging_acquire(p->staging);
	if (slot == NULL)
		return false;
	cr_assert(slot->state == HOIST__SLOT_READING && slot->request.buffer == 0);
	struct hoist__request *request = &slot->request;
	request->file = p->file;
	request->offset = p->next;
	request->need =
		hoist__min_u64(hoist__staging_slot_bytes(p->staging), p->file->bytes - p->next);
	request->bytes = hoist__round_up(request->need, p->direct ? p->file->offset_align : 1);
	request->direct = p->direct;
	request->owner = slot;
	p->next += request->need;
	cr_assert(hoist__engine_submit(p->engine, &request, 1) == 0, "%s", hoist__error_text());
	p->n_reading++;
	return true;
}

/* Two pieces, so that the event is behind both. */
static void copy_one(struct pump *p, struct hoist__request *request)
{
	struct hoist__slot *slot = request->owner;
	cr_assert(request->result == 0);
	hoist__slot_filled(p->staging, slot);
	cr_assert(slot->state == HOIST__SLOT_FULL);
	size_t half = request->need / 2;
	struct hoist__slot_box pieces[] = {
		{.device_address = p->to + request->offset, .bytes = half},
		{.slot_offset = half,
		 .device_address = p->to + request->offset + half,
		 .bytes = request->need - half},
	};
	cr_assert(hoist__slot_copy(p->staging, slot, 0, pieces, 2) == 0, "%s", hoist__error_text());
	cr_assert(slot->state == HOIST__SLOT_COPYING);
}

static void pump_all(struct pump *p)
{
	while (p->next < p->file->bytes || p->n_reading > 0) {
		while (p->next < p->file->bytes && start_one(p))
			continue;
		struct hoist__request *ready[4];
		int n = hoist__engine_reap(p->engine, ready, 4, 100000);
		cr_assert(n >= 0);
		for (int i = 0; i < n; i++)
			copy_one(p, ready[i]);
		p->n_reading -= (unsigned)n;
		cr_assert(hoist__staging_reclaim(p->staging) >= 0, "%s", hoist__error_text());
		if (p->n_reading == 0)
			cr_assert(hoist__staging_wait(p->staging) >= 0);
	}
	while (hoist__staging_n_copying(p->staging) > 0)
		cr_assert(hoist__staging_wait(p->staging) > 0);
	cr_expect(hoist__staging_wait(p->staging) == 0, "nothing is copying");
}

static void whole_path(enum hoist__api api, enum hoist__engine_kind kind, size_t bytes)
{
	struct world w = {0};
	world_open(&w, api, 1 << 20);
	struct hoist__file *file = new_file(bytes);
	unsigned char *back = new_memory(bytes);
	for (int direct = 0; direct < 2; direct++) {
		if (direct && file->direct_fd < 0)
			continue;
		struct pump p = {.file = file, .direct = direct != 0};
		p.staging = new_staging(&w, SLOT, 4);
		p.to = device_memory(&w, bytes);
		struct hoist__engine_buffer memory;
		hoist__staging_memory(p.staging, &memory);
		cr_assert(memory.bytes == 4 * SLOT);
		struct hoist__engine_options options = {
			.kind = kind, .depth = 4, .buffers = &memory, .n_buffers = 1};
		cr_assert(hoist__engine_create(&options, &p.engine) == 0);
		pump_all(&p);
		cr_expect(hoist__staging_peak_bytes(p.staging) <= 4 * SLOT);
		cr_expect(hoist__staging_peak_bytes(p.staging) >= hoist__min_u64(bytes, 2 * SLOT));
		read_back(&w, back, p.to, bytes);
		cr_expect(first_wrong(file->fd, back, 0, bytes) == bytes);
		hoist__engine_destroy(p.engine);
		hoist__staging_destroy(p.staging);
		cr_assert(hoist__dev_mem_free(w.dev, p.to, bytes) == 0);
	}
	cr_expect(hoist__budget_peak(w.budget) == 4 * SLOT);
	free(back);
	hoist__file_close(file);
	world_close(&w);
}

static void whole_path_both(enum hoist__api api)
{
	whole_path(api, HOIST__ENGINE_THREADS, 3000001);
	whole_path(api, HOIST__ENGINE_AUTO, 3000001);
}

Test(io_staging, moves_a_file_to_the_cpu)
{
	whole_path_both(HOIST__API_CPU);
}

Test(io_staging, moves_a_file_to_emulated_cuda)
{
	whole_path_both(HOIST__API_CUDA);
}

Test(io_staging, moves_a_file_to_emulated_hip)
{
	whole_path_both(HOIST__API_HIP);
}

/* --- states --- */

static void fill_and_copy(struct hoist__staging *staging, struct hoist__slot *slot, uintptr_t to,
			  unsigned char value)
{
	memset(slot->request.address, value, SLOT);
	hoist__slot_filled(staging, slot);
	struct hoist__slot_box piece = {.device_address = to, .bytes = SLOT};
	cr_assert(hoist__slot_copy(staging, slot, 0, &piece, 1) == 0);
}

Test(io_staging, reuses_no_slot_before_its_copy_is_done)
{
	struct world w = {0};
	world_open(&w, HOIST__API_CUDA, 1 << 20);
	struct hoist__staging *staging = new_staging(&w, SLOT, 3);
	uintptr_t to = device_memory(&w, 6 * SLOT);
	unsigned char *back = new_memory(6 * SLOT);

	w.control.hold(1);
	struct hoist__slot *slots[3];
	for (unsigned i = 0; i < 3; i++) {
		slots[i] = hoist__staging_acquire(staging);
		cr_assert(slots[i] != NULL);
		fill_and_copy(staging, slots[i], to + i * SLOT, (unsigned char)(i + 1));
	}
	cr_expect(hoist__staging_n_copying(staging) == 3);
	for (int i = 0; i < 100; i++)
		cr_assert(hoist__staging_reclaim(staging) == 0 &&
			  hoist__staging_acquire(staging) == NULL);
	w.control.hold(0);
	for (unsigned i = 3; i < 6; i++) {
		struct hoist__slot *slot = hoist__staging_acquire(staging);
		while (slot == NULL) {
			cr_assert(hoist__staging_wait(staging) > 0);
			slot = hoist__staging_acquire(staging);
		}
		fill_and_copy(staging, slot, to + i * SLOT, (unsigned char)(i + 1));
	}
	hoist__staging_destroy(staging); /* waits */
	read_back(&w, back, to, 6 * SLOT);
	for (size_t i = 0; i < 6 * SLOT; i++)
		cr_assert(back[i] == i / SLOT + 1, "byte %zu", i);
	cr_expect(counters_of(&w.control).use_after_free == 0);
	free(back);
	cr_assert(hoist__dev_mem_free(w.dev, to, 6 * SLOT) == 0);
	world_close(&w);
}

Test(io_staging, gives_the_warmest_slot_first)
{
	struct world w = {0};
	world_open(&w, HOIST__API_CPU, 1 << 20);
	struct hoist__staging *staging = new_staging(&w, SLOT, 3);
	cr_expect(hoist__staging_peak_bytes(staging) == 0);
	struct hoist__slot *a = hoist__staging_acquire(staging),
			   *b = hoist__staging_acquire(staging);
	cr_expect(a != b && a->request.address != b->request.address);
	cr_expect(hoist__staging_peak_bytes(staging) == 2 * SLOT);
	hoist__slot_release(staging, a);
	hoist__slot_filled(staging, b);
	hoist__slot_release(staging, b);
	cr_expect(hoist__staging_acquire(staging) == b);
	cr_expect(hoist__staging_acquire(staging) == a);
	struct hoist__slot *c = hoist__staging_acquire(staging);
	cr_expect(c != NULL && c != a && c != b && hoist__staging_acquire(staging) == NULL);
	cr_expect(hoist__staging_peak_bytes(staging) == 3 * SLOT);
	hoist__slot_release(staging, a);
	hoist__slot_release(staging, b);
	hoist__slot_release(staging, c);
	cr_expect(hoist__staging_peak_bytes(staging) == 3 * SLOT);
	hoist__staging_destroy(staging);
	hoist__staging_destroy(NULL);
	world_close(&w);
}

/* --- the budget --- */

Test(io_staging, takes_as_much_as_the_budget_has)
{
	static const struct {
		size_t free;
		unsigned n_slots;
		size_t slot_bytes;
	} cases[] = {
		{2 << 20, 4, 256 << 10},   {1 << 20, 4, 256 << 10},   {1000 << 10, 3, 256 << 10},
		{512 << 10, 2, 256 << 10}, {511 << 10, 3, 128 << 10}, {200 << 10, 3, 64 << 10},
		{128 << 10, 2, 64 << 10},
	};
	struct world w = {0};
	world_open(&w, HOIST__API_CPU, 2 << 20);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(cases); i++) {
		size_t taken = (2 << 20) - cases[i].free;
		cr_assert(taken == 0 || hoist__budget_acquire(w.budget, taken) == 0);
		struct hoist__staging *staging = new_staging(&w, 256 << 10, 4);
		cr_expect(hoist__staging_n_slots(staging) == cases[i].n_slots, "case %zu", i);
		cr_expect(hoist__staging_slot_bytes(staging) == cases[i].slot_bytes, "case %zu", i);
		cr_expect(hoist__budget_used(w.budget) ==
			  taken + cases[i].n_slots * cases[i].slot_bytes);
		hoist__staging_destroy(staging);
		if (taken != 0)
			hoist__budget_release(w.budget, taken);
	}
	cr_assert(hoist__budget_acquire(w.budget, (2 << 20) - (127 << 10)) == 0);
	struct hoist__staging *staging = NULL;
	cr_expect(staging_create(&w, 256 << 10, 4, &staging) == -EAGAIN && staging == NULL);
	hoist__budget_release(w.budget, (2 << 20) - (127 << 10));
	world_close(&w);
}

Test(io_staging, says_how_much_it_needs_at_least)
{
	struct world w = {0};
	world_open(&w, HOIST__API_CPU, 100 << 10);
	struct hoist__staging *staging = NULL;
	cr_expect(staging_create(&w, 0, 0, &staging) == -EDQUOT && staging == NULL);
	cr_expect(strstr(hoist__error_text(), "131072") != NULL, "%s", hoist__error_text());
	cr_expect(staging_create(&w, 4095, 4, &staging) == -EINVAL);
	cr_expect(staging_create(&w, 4096, 1, &staging) == -EINVAL);
	cr_expect(staging_create(&w, 4096, 4, &staging) == 0,
		  "less than the least may be asked for");
	hoist__staging_destroy(staging);
	world_close(&w);
}

/* --- failures --- */

Test(io_staging, leaves_nothing_when_it_cannot_be_made)
{
	struct world w = {0};
	world_open(&w, HOIST__API_CUDA, 1 << 20);
	struct hoist__staging *staging = new_staging(&w, SLOT, 4);
	hoist__staging_destroy(staging); /* the context and a region exist now */
	uint64_t events = counters_of(&w.control).live_events;
	static const char *const calls[] = {"cuEventCreate:1", "cuEventCreate:3", "cuEventCreate:4",
					    "any:1", "any:2"};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(calls); i++) {
		cr_assert(w.control.fail(calls[i]) == 0);
		staging = NULL;
		cr_expect(staging_create(&w, SLOT, 4, &staging) < 0 && staging == NULL, "%s",
			  calls[i]);
		cr_assert(w.control.fail("") == 0);
		cr_expect(hoist__budget_used(w.budget) == 0);
		cr_expect(counters_of(&w.control).live_events == events);
	}
	world_close(&w);
}

Test(io_staging, keeps_a_slot_whose_copy_was_refused)
{
	struct world w = {0};
	world_open(&w, HOIST__API_CUDA, 1 << 20);
	struct hoist__staging *staging = new_staging(&w, SLOT, 2);
	uintptr_t to = device_memory(&w, SLOT);
	struct hoist__slot_box pieces[] = {
		{.device_address = to, .bytes = 100},
		{.slot_offset = 100, .device_address = to + 100, .bytes = 100}};
	static const struct {
		const char *fault;
		enum hoist__slot_state after;
	} cases[] = {
		{"cuMemcpyHtoDAsync:1", HOIST__SLOT_FULL},
		{"cuMemcpyHtoDAsync:2", HOIST__SLOT_COPYING}, /* one piece is on its way */
		{"cuEventRecord:1", HOIST__SLOT_COPYING},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(cases); i++) {
		struct hoist__slot *slot = hoist__staging_acquire(staging);
		hoist__slot_filled(staging, slot);
		cr_assert(w.control.fail(cases[i].fault) == 0);
		cr_expect(hoist__slot_copy(staging, slot, 0, pieces, 2) < 0);
		cr_expect(slot->state == cases[i].after, "%s", cases[i].fault);
		cr_assert(w.control.fail("") == 0);
		if (slot->state == HOIST__SLOT_FULL)
			hoist__slot_release(staging, slot);
		else
			cr_expect(hoist__staging_wait(staging) == 1);
		cr_expect(hoist__staging_n_copying(staging) == 0);
	}
	hoist__staging_destroy(staging);
	cr_assert(hoist__dev_mem_free(w.dev, to, SLOT) == 0);
	world_close(&w);
}

Test(io_staging, only_drains_after_the_device_failed)
{
	struct world w = {0};
	world_open(&w, HOIST__API_CUDA, 1 << 20);
	struct hoist__staging *staging = new_staging(&w, SLOT, 3);
	uintptr_t to = device_memory(&w, SLOT);
	cr_assert(w.control.fail("async:1") == 0);
	struct hoist__slot *full = hoist__staging_acquire(staging);
	struct hoist__slot *slot = hoist__staging_acquire(staging);
	w.control.hold(1); /* the copy fails once its event is recorded, not before */
	fill_and_copy(staging, slot, to, 1);
	w.control.hold(0);
	int err = 0;
	while (err == 0)
		err = hoist__staging_reclaim(staging);
	cr_expect(err == -EREMOTEIO, "%d: %s", err, hoist__error_text());
	cr_expect(hoist__staging_reclaim(staging) == -EREMOTEIO, "and stays so");
	cr_expect(hoist__staging_acquire(staging) == NULL);
	hoist__slot_filled(staging, full);
	struct hoist__slot_box piece = {.device_address = to, .bytes = SLOT};
	cr_expect(hoist__slot_copy(staging, full, 0, &piece, 1) == -EREMOTEIO);
	hoist__slot_release(staging, full);
	cr_expect(hoist__staging_wait(staging) == -EREMOTEIO);
	hoist__staging_destroy(staging);
	(void)hoist__dev_mem_free(w.dev, to, SLOT);
	world_close(&w);
}
