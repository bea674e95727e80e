/* SPDX-License-Identifier: MIT */
/* Devices copy from the slots of the group, as far as their driver takes it, and get the
 * right bytes also where copies end long after the bytes came (lib/load/source.h). */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "emulator/control.h"
#include "lib/load/load.h"
#include "lib/memory/device-memory.h"
#include "tests/lib/group/ranks.h"
#include "tests/support/check.h"
#include "tests/support/lib-support.h"
#include "tests/support/load-support.h"
#include "tests/support/net-fabric.h"

/* --- the driver that takes some registrations only --- */

int __real_hoist__dev_host_register_read_only(struct hoist__dev *dev, void *address, size_t bytes);
int __wrap_hoist__dev_host_register_read_only(struct hoist__dev *dev, void *address, size_t bytes);

static unsigned n_asked;
static unsigned most; /* registrations of others' slots */

int __wrap_hoist__dev_host_register_read_only(struct hoist__dev *dev, void *address, size_t bytes)
{
	if (n_asked++ >= most)
		return hoist__fail(-ENOMEM, "no more registrations");
	return __real_hoist__dev_host_register_read_only(dev, address, bytes);
}

/* --- the loads --- */

#define N_RANKS 2u

enum how_much { NONE, ANY, SOME, ALL };

static const struct {
	const char *name;
	const char *device;
	enum how_much reached; /* of the rank's bytes */
	uint64_t rate;	       /* of the stand-in, bytes a second */
	unsigned most;	       /* of others' slots that are registered */
	unsigned flags;
	int axis;    /* -1: all of each tensor; else each rank has its slice */
	bool floats; /* converted to bf16 */
} rows[] = {
	{"everything", "cuda:0", ALL, 0, UINT_MAX, 0, -1, false},
	{"a slow bus", "cuda:0", ALL, 400000000, UINT_MAX, 0, -1, false},
	{"digests", "cuda:0", ALL, 0, UINT_MAX, HOIST_LOAD_DIGEST, -1, false},
	{"a block for each tensor", "cuda:0", ALL, 0, UINT_MAX, HOIST_LOAD_SPLIT, -1, false},
	{"slices of rows", "cuda:0", SOME, 0, UINT_MAX, 0, 0, false},
	{"columns", "cuda:0", SOME, 0, UINT_MAX, 0, 1, false},
	{"some registrations", "cuda:0", SOME, 0, 3, 0, -1, false},
	{"a driver without such", "hip:0", SOME, 0, UINT_MAX, 0, -1, false},
	{"a conversion", "cuda:0", NONE, 0, UINT_MAX, 0, -1, true},
	{"the host", "cpu", NONE, 0, UINT_MAX, 0, -1, false},
};
static size_t row;

static void look(hoist_checkpoint *checkpoint, hoist_load *load)
{
	uint64_t reached = load->reached_bytes;
	said->marks[0] |= reached > 0;
	check_at("%s: %llu bytes were reached", rows[row].name, (unsigned long long)reached);
	/* Which of its cells a member reads itself is not fixed; those of others are loans. */
	switch (ranks_are_far() && rows[row].reached != NONE ? ANY : rows[row].reached) {
	case ANY:
		break;
	case NONE:
		CHECK(reached == 0);
		break;
	case SOME:
		CHECK(reached > 0 && reached < load->plan.bytes);
		break;
	default:
		CHECK(reached == load->plan.bytes);
	}
	if (rows[row].axis < 0 && !rows[row].floats)
		support_compare(checkpoint, load);
}

static void rank_main(unsigned rank)
{
	hoist_group group = ranks_group(rank, N_RANKS);
	const char *path = rows[row].floats ? ranks_floats() : ranks_big();
	hoist_load_slice slices[] = {
		{.tensor = "a", .axis = rows[row].axis, .rank = (int)rank, .n_ranks = N_RANKS},
		{.tensor = "b", .axis = rows[row].axis, .rank = (int)rank, .n_ranks = N_RANKS},
	};
	hoist_load_options o = {
		.size = sizeof o,
		.device = support_device(rows[row].device),
		.flags = rows[row].flags,
		.dtype = rows[row].floats ? HOIST_BF16 : HOIST_DTYPE_INVALID,
		.slices = slices,
		.n_slices = rows[row].axis >= 0 ? 2 : 0,
	};
	/* Both drivers are there to be asked. */
	hoist_device *drivers[] = {support_device("cuda:0"), support_device("hip:0")};
	n_asked = 0;
	most = rows[row].most;
	support_set_rate("cuda", rows[row].rate);
	ranks_load(&group, path, &o, look);
	check_at("%s, rank %u: %s", rows[row].name, rank, said->text[rank]);
	CHECK(said->err[rank] == 0);
	/* No slot of the group is registered any more. */
	hoist__device_trim(o.device);
	CHECK(lib_counters("cuda").live_registrations == 0);
	CHECK(lib_counters("hip").live_registrations == 0 && lib_drivers_content());
	support_set_rate("cuda", 0);
	hoist_device_unref(drivers[0]);
	hoist_device_unref(drivers[1]);
	hoist_device_unref(o.device);
}

static void devices_copy_from_the_slots(void)
{
	(void)ranks_big();
	(void)ranks_floats();
	for (row = 0; row < HOIST__ARRAY_SIZE(rows); row++) {
		ranks_next_group();
		said->marks[0] = 0;
		ranks_run(N_RANKS, rank_main, 0);
		CHECK((said->marks[0] != 0) == (rows[row].reached != NONE));
	}
}

int main(void)
{
	support_emulate("cuda:1,hip:1");
	ranks_begin();
	int n_kinds = ucx_of_child() != 0 ? 2 : 1; /* groups of several machines need UCX */
	for (int kind = 0; kind < n_kinds; kind++) {
		ranks_use(kind != 0);
		CASE(devices_copy_from_the_slots);
	}
	support_cleanup();
	return 0;
}
