/* SPDX-License-Identifier: MIT */
/* Sets of nodes, on a machine with more than two: strict memory stays in its set, and is an error
 * where all of the set is full; interleaved memory is even over its set, and over no other node.
 *
 *   vm_sets             at least 4 nodes
 *   vm_sets bare NODE   NODE has no processor: memory is there all the same */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "tests/vm/nodes.h"

#define CHUNK (4 * HOIST__MIB)
#define MAX_CHUNKS 512

static struct hoist__placement placement_of(enum hoist__policy policy, int node, int other)
{
	struct hoist__placement placement = placement_on(policy, node);
	hoist__nodeset_add(&placement.nodes, other);
	return placement;
}

static int make(const struct hoist__placement *placement, size_t bytes, bool no_thp,
		struct hoist__region **ret)
{
	const struct hoist__region_options options = {
		.bytes = bytes, .placement = *placement, .no_thp = no_thp};
	return hoist__region_create(&options, ret);
}

static void check_only(const struct spread *spread, int node, int other)
{
	CHECK(spread->n != 0);
	if (spread->on[node] + spread->on[other] == spread->n)
		return;
	fprintf(stderr, "not all on nodes %d and %d: ", node, other);
	(void)fflush(stdout);
	spread_print(spread, "strict memory");
	exit(1);
}

/* --- strict --- */

static void sets_are_filled_and_then_fail(int node, int other)
{
	const struct hoist__placement placement = placement_of(HOIST__POLICY_BIND, node, other);
	static struct hoist__region *chunks[MAX_CHUNKS];
	size_t n_killed = vmstat("oom_kill");
	struct spread sum = {0};
	size_t n = 0;
	int err = 0;
	char names[32];
	run_on(nodes_after(other)); /* of neither, mostly: the nearest of the set is another */
	while (n < MAX_CHUNKS && (err = make(&placement, CHUNK, false, &chunks[n])) == 0) {
		struct spread one = spread_of(chunks[n]->base, chunks[n]->bytes);
		check_only(&one, node, other);
		sum.n += one.n;
		sum.on[node] += one.on[node];
		sum.on[other] += one.on[other];
		n++;
	}
	CHECK(err == -ENOMEM);
	(void)snprintf(names, sizeof names, "nodes %d, %d", node, other);
	CHECK_TEXT(names);
	CHECK_TEXT("free");
	CHECK(sum.on[node] > sum.n / 4 && sum.on[other] > sum.n / 4);
	CHECK(vmstat("oom_kill") == n_killed);
	spread_print(&sum, "strict memory of two nodes");
	printf("figure: sets.strict %zu MiB filled two of four nodes; the next failed, nobody was "
	       "killed: %s\n",
	       n * CHUNK >> 20, hoist__error_text());
	while (n > 0)
		hoist__region_destroy(chunks[--n]);
}

/* --- interleaved --- */

static void interleaves_over(int node, int other, size_t bytes, bool no_thp)
{
	const struct hoist__placement placement =
		placement_of(HOIST__POLICY_INTERLEAVE, node, other);
	struct hoist__region *region = NULL;
	OK(make(&placement, bytes, no_thp, &region));
	struct spread spread = spread_of(region->base, region->bytes);
	size_t unit = no_thp ? 1 : HOIST__HUGE_PAGE_BYTES / 4096;
	size_t least = spread.on[node] < spread.on[other] ? spread.on[node] : spread.on[other];
	check_only(&spread, node, other);
	CHECK(huge_bytes(region->base, region->bytes) == (no_thp ? 0 : region->bytes));
	printf("figure: sets.interleave%s %zu and %zu pages on nodes %d and %d of four%s\n",
	       no_thp ? "" : "-huge", spread.on[node], spread.on[other], node, other,
	       no_thp ? "" : ", all of them in huge pages");
	CHECK(spread.n - 2 * least <= unit);
	hoist__region_destroy(region);
}

/* --- a node without processors --- */

static void memory_without_processors(int node)
{
	static const enum hoist__policy policies[] = {HOIST__POLICY_BIND, HOIST__POLICY_PREFER};
	for (size_t p = 0; p < HOIST__ARRAY_SIZE(policies); p++) {
		const struct hoist__placement placement = placement_on(policies[p], node);
		struct hoist__region *region = NULL;
		OK(make(&placement, 20 * HOIST__MIB, false, &region));
		check_on(region->base, region->bytes, node, "memory of a node without processors");
		CHECK(region->node == node);
		const char *note = region->step_note[HOIST__STEP_POPULATE];
		CHECK(strstr(note, "could not run on the node's CPUs") != NULL);
		hoist__region_destroy(region);
	}
	printf("figure: sets.bare node %d has no processor, and the memory asked for\n", node);
}

int main(int argc, char **argv)
{
	(void)nodes_need(4);
	if (argc > 2 && strcmp(argv[1], "bare") == 0) {
		memory_without_processors(atoi(argv[2]));
		return 0;
	}
	interleaves_over(1, 3, 9 * HOIST__MIB + 4096, true);
	if (huge_can_be_had())
		interleaves_over(0, 2, 20 * HOIST__MIB, false);
	sets_are_filled_and_then_fail(1, 3);
	return 0;
}
