/* SPDX-License-Identifier: MIT */
/* The stages of a load's time: which waits a load has, by what holds it up, and the line that tells
 * them.  The linker sends pread() and hoist__convert() through here (--wrap): while one is held,
 * the load can do nothing but wait for it. */
#include "config.h"

#include <hoist/group.h>

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/convert.h"
#include "lib/job/job.h"
#include "tests/support/load-support.h"
#include "tests/support/patience.h"
#include "tests/support/wrap.h"

#define N_FLOATS ((size_t)1 << 16)
#define HOLD_US 20000

enum held { NOTHING, READS, CONVERSIONS, COPIES, STEPS, BUDGET, PEER };

static _Atomic enum held held;
static atomic_uint n_inside;

static void pass(enum held what)
{
	atomic_fetch_add(&n_inside, 1);
	while (atomic_load(&held) == what)
		usleep(100);
	atomic_fetch_sub(&n_inside, 1);
}

WRAP(ssize_t, pread, (int fd, void *to, size_t n, off_t offset))
{
	pass(READS);
	return __real_pread(fd, to, n, offset);
}

WRAP(void, hoist__convert,
     (void *to, hoist_dtype to_type, const void *from, hoist_dtype from_type, size_t n))
{
	pass(CONVERSIONS);
	__real_hoist__convert(to, to_type, from, from_type, n);
}

/* --- what waits --- */

/* The waits of a load that nothing holds up: reads, and pages of fresh memory, as it comes. */
static const struct row {
	const char *name;
	const char *device;
	enum held held;
	hoist_dtype dtype;
	unsigned flags;
	size_t stage; /* the field of the report that is above 0 */
} rows[] = {
	{"reads", "cpu", READS, HOIST_DTYPE_INVALID, 0, offsetof(hoist_load_report, read_ns)},
	{"conversions", "cpu", CONVERSIONS, HOIST_BF16, 0, offsetof(hoist_load_report, convert_ns)},
	{"copies", "cuda:0", COPIES, HOIST_DTYPE_INVALID, 0, offsetof(hoist_load_report, copy_ns)},
	{"steps", "cpu", STEPS, HOIST_DTYPE_INVALID, HOIST_LOAD_CALLER_DRIVEN,
	 offsetof(hoist_load_report, caller_ns)},
	{"budget", "cuda:0", BUDGET, HOIST_DTYPE_INVALID, 0,
	 offsetof(hoist_load_report, budget_ns)},
	{"peer", "cpu", PEER, HOIST_DTYPE_INVALID, 0, offsetof(hoist_load_report, group_ns)},
};

static uint64_t at(const hoist_load_report *report, size_t field)
{
	return *(const uint64_t *)(const void *)((const char *)report + field);
}

static hoist_load *start(hoist_checkpoint *checkpoint, const hoist_load_options *o, unsigned rank,
			 bool grouped)
{
	char name[64];
	hoist_load *load;
	(void)snprintf(name, sizeof name, "shm:stages-%d", (int)getpid());
	const hoist_group group = {.size = sizeof group, .name = name, .rank = rank, .n_ranks = 2};
	OK(grouped ? hoist_group_load(&group, checkpoint, o, &load)
		   : hoist_load_start(checkpoint, o, &load));
	return load;
}

static void has_the_wait(const struct row *row)
{
	hoist_checkpoint *checkpoint = support_open("floats.safetensors");
	hoist_load_options o = {.size = sizeof o,
				.device = support_device(row->device),
				.engine = HOIST_ENGINE_THREADS,
				.io = HOIST_IO_CACHED,
				.dtype = row->dtype,
				.flags = row->flags};
	hoist_load *other = NULL;
	uint64_t until = 0;
	if (row->held == BUDGET)
		OK(hoist_budget_create(2 * HOIST__STAGING_MIN_SLOT_BYTES, &o.budget));
	support_hold("cuda", row->held == COPIES || row->held == BUDGET);
	if (row->held == BUDGET) {
		other = start(checkpoint, &o, 0, false);
		while (hoist_budget_used(o.budget) == 0)
			CHECK(patience(&until));
	}
	held = row->held;
	hoist_load *load = start(checkpoint, &o, 0, row->held == PEER);
	while ((row->held == READS || row->held == CONVERSIONS) && n_inside == 0)
		CHECK(patience(&until));
	usleep(HOLD_US);
	held = NOTHING;
	support_hold("cuda", false);
	if (row->held == PEER)
		other = start(checkpoint, &o, 1, true);
	OK(hoist_load_wait(load));
	const hoist_load_report report = support_report(load);
	CHECK(at(&report, row->stage) > 0);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		CHECK(rows[i].held == row->held || rows[i].held == READS ||
		      (rows[i].held == COPIES && row->held == BUDGET) ||
		      (rows[i].held == BUDGET && row->held == PEER) || /* a turn that is free */
		      at(&report, rows[i].stage) == 0);
	if (other != NULL)
		OK(hoist_load_wait(other));
	hoist_load_destroy(other);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_budget_unref(o.budget);
	hoist_device_unref(o.device);
}

/* A map that is not populated waits for nothing. */
static void maps_do_not_wait(void)
{
	const hoist_load_options o = {.size = sizeof o, .io = HOIST_IO_MAP};
	hoist_load *load = support_load("floats.safetensors", &o);
	const hoist_load_report report = support_report(load);
	for (size_t i = 1; i < sizeof rows / sizeof rows[0]; i++)
		CHECK(at(&report, rows[i].stage) == 0);
	CHECK(report.plan_ns > 0 && report.allocate_ns > 0 && report.open_ns > 0);
	hoist_load_destroy(load);
}

/* --- the line --- */

static void the_line(void)
{
	char text[256];
	hoist_load_report r = {.size = sizeof r,
			       .bytes = 3500000000,
			       .ns = 2000000000,
			       .open_ns = 3000000,
			       .read_ns = 1500000000,
			       .plan_ns = 9000000,
			       .work_ns = 11000000,
			       .copy_ns = 480000000,
			       .direct_bytes = 3000000000,
			       .cached_bytes = 500000000,
			       .device = "cuda:0"};
	static const char whole[] = "3.500 GB to cuda:0 in 2.000 s (1.75 GB/s): 75 % waiting for "
				    "reads, 24 % waiting for "
				    "copies to the device, 1 % at work; 3.000 GB read direct, "
				    "0.500 GB cached; opened in "
				    "0.003 s";
	CHECK(hoist_load_explain(&r, text, sizeof text) == sizeof whole - 1);
	CHECK(strcmp(text, whole) == 0);
	CHECK(hoist_load_explain(&r, NULL, 0) == sizeof whole - 1);
	for (size_t n = 1; n < sizeof whole; n += 13) {
		memset(text, 'x', sizeof text);
		CHECK(hoist_load_explain(&r, text, n) == sizeof whole - 1);
		CHECK(strlen(text) == n - 1 && memcmp(text, whole, n - 1) == 0 && text[n] == 'x');
	}
	r = (hoist_load_report){
		.size = sizeof r, .mapped_bytes = 1000, .emulated = 1, .device = "hip:1"};
	OK((int)hoist_load_explain(&r, text, sizeof text) > 0 ? 0 : -1);
	CHECK(strcmp(text, "0.000 GB to hip:1 (emulated) in 0.000 s; 0.000 GB mapped; opened in "
			   "0.000 s") == 0);
}

int main(void)
{
	support_emulate("cuda:1");
	hoist_device *cuda = support_device("cuda:0");
	char header[128];
	float *floats = calloc(N_FLOATS, sizeof *floats);
	CHECK(floats != NULL);
	(void)snprintf(header, sizeof header,
		       "{\"a\":{\"dtype\":\"F32\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
		       N_FLOATS, N_FLOATS * sizeof *floats);
	support_put_safetensors("floats.safetensors", header, floats, N_FLOATS * sizeof *floats);
	free(floats);
	the_line();
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		check_at("%s", rows[i].name);
		has_the_wait(&rows[i]);
	}
	check_at("a map");
	maps_do_not_wait();
	hoist_device_unref(cuda);
	support_cleanup();
	return 0;
}
