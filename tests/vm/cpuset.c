/* SPDX-License-Identifier: MIT */
/* A cpuset that forbids nodes: strict memory there is refused, in words; whatever else is asked or
 * chosen goes to a node that is allowed.
 *
 *   vm_cpuset   in a cpuset that allows the memory of node 0 alone */
#include "config.h"

#include <errno.h>
#include <string.h>

#include <hoist/hoist.h>

#include "base/checked.h"
#include "device/device.h"
#include "tests/vm/nodes.h"

#define FORBIDDEN 1

static void strict_is_refused(void)
{
	static const int nodes[] = {FORBIDDEN};
	const hoist_memory_options options = {
		.size = sizeof options,
		.placement = HOIST_PLACE_BIND,
		.nodes = nodes,
		.n_nodes = 1,
	};
	hoist_memory *memory = NULL;
	uintptr_t address = 0;
	OK(hoist_memory_create(&options, &memory));
	CHECK(hoist_memory_alloc(memory, HOIST__MIB, 0, &address) == -EINVAL);
	CHECK_TEXT("node 1");
	CHECK_TEXT("cpuset");
	printf("figure: cpuset.strict refused: %s\n", hoist__error_text());
	hoist_memory_unref(memory);
}

/* The part of it that is allowed. */
static void sets_shrink_to_the_allowed_nodes(enum hoist__policy policy, bool hugetlb)
{
	const struct hoist__region_options options = {
		.bytes = 4 * HOIST__MIB,
		.placement = placement_all(policy),
		.hugetlb = hugetlb,
	};
	struct hoist__region *region = NULL;
	OK(hoist__region_create(&options, &region));
	CHECK(region->node == 0);
	check_on(region->base, region->bytes, 0, "memory of a set of which a cpuset allows one");
	hoist__region_destroy(region);
}

static void preferred_goes_where_it_may(struct hoist__dev *dev)
{
	const struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_PINNED,
		.dev = dev,
		.placement = placement_on(HOIST__POLICY_PREFER, FORBIDDEN),
		.region_bytes = 4 * HOIST__MIB,
	};
	struct hoist__pool *pool = NULL;
	uintptr_t address = 0;
	OK(hoist__pool_create(&options, &pool));
	OK(hoist__pool_alloc(pool, HOIST__MIB, 0, 0, &address));
	struct spread spread = spread_of_regions(pool);
	check_spread(&spread, 0, "memory that prefers a forbidden node");
	char place[96];
	(void)snprintf(place, sizeof place, "%s", region_note(pool, HOIST__STEP_PLACE));
	const char *verify = region_note(pool, HOIST__STEP_VERIFY);
	CHECK(strstr(place, "cpuset has none of these nodes") != NULL &&
	      strstr(verify, "on other nodes (0)") != NULL);
	printf("figure: cpuset.prefer %zu pages went to node 0: \"%s\", \"%s\"\n", spread.n, place,
	       verify);
	OK(hoist__pool_free(pool, address));
	hoist__pool_unref(pool);
}

/* Nobody asked for a node: what hoist chooses by itself is allowed. */
static void choices_are_allowed(void)
{
	hoist_device *cuda = NULL;
	hoist_memory *memory = NULL;
	hoist_device_info info = {.size = sizeof info};
	uintptr_t address = 0;
	OK(hoist_device_open("cuda:0", &cuda));
	CHECK(hoist_device_get_info(cuda, &info) == 0 && info.numa_node == FORBIDDEN);
	OK(hoist_memory_of_device(cuda, HOIST_MEMORY_PINNED, &memory));
	OK(hoist_memory_alloc(memory, 4 * HOIST__MIB, 0, &address));
	check_on(address, 4 * HOIST__MIB, 0, "pinned memory near a device whose node is forbidden");
	OK(hoist_memory_free(memory, address));
	hoist_memory_unref(memory);
	OK(hoist_memory_create(NULL, &memory));
	OK(hoist_memory_alloc(memory, 4 * HOIST__MIB, 0, &address));
	check_on(address, 4 * HOIST__MIB, 0, "host memory");
	OK(hoist_memory_free(memory, address));
	hoist_memory_unref(memory);
	hoist_device_unref(cuda);
	printf("figure: cpuset.chosen a device's own memory and plain memory are on the allowed "
	       "node\n");
}

int main(void)
{
	struct hoist__dev *cuda = NULL;
	(void)nodes_need(2);
	OK(setenv("HOIST_EMULATE", "cuda:1", 1));
	OK(hoist__dev_get(HOIST__API_CUDA, 0, &cuda));
	strict_is_refused();
	sets_shrink_to_the_allowed_nodes(HOIST__POLICY_BIND, false);
	sets_shrink_to_the_allowed_nodes(HOIST__POLICY_INTERLEAVE, false);
	sets_shrink_to_the_allowed_nodes(HOIST__POLICY_BIND, true);
	preferred_goes_where_it_may(NULL);
	preferred_goes_where_it_may(cuda);
	choices_are_allowed();
	return 0;
}
