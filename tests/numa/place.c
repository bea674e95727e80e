/* SPDX-License-Identifier: MIT */
/* Placement: memory bound to nodes, threads that run on the CPUs of a node, the nodes of pages, and
 * the room of nodes. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/error.h"
#include "numa/place.h"
#include "tests/support/numa-refuse.h"

#define N_PAGES 64

static size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static char *memory; /* N_PAGES of it, for each test */

static void map_pages(void)
{
	memory = mmap(NULL, N_PAGES * page_bytes(), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(memory, MAP_FAILED);
	(void)madvise(memory, N_PAGES * page_bytes(), MADV_NOHUGEPAGE);
}

TestSuite(numa_place, .init = map_pages);

static struct hoist__placement placement(enum hoist__policy policy, int node)
{
	struct hoist__placement asked = {.policy = policy};
	hoist__nodeset_add(&asked.nodes, node);
	return asked;
}

static int first_node(void)
{
	struct hoist__topology *topology = NULL;
	cr_assert_eq(hoist__topology_load("/sys", &topology), 0);
	int node = topology->nodes[0].id;
	hoist__topology_destroy(topology);
	return node;
}

/* Skips the test where this process may not place memory at all. */
static enum hoist__placed place_or_skip(const struct hoist__placement *asked)
{
	enum hoist__placed placed = HOIST__PLACED_DEFAULT;
	cr_assert_eq(hoist__place(memory, N_PAGES * page_bytes(), asked, &placed), 0);
	if (placed == HOIST__PLACED_FIRST_TOUCH)
		cr_skip_test("mbind is refused here");
	return placed;
}

static void expect_pages_on(int node)
{
	struct hoist__whereabouts where;
	cr_assert_eq(hoist__whereabouts(memory, N_PAGES * page_bytes(), 1000, &where), 0);
	cr_assert_eq(where.n_sampled, N_PAGES);
	cr_assert_eq(where.per_node[node], N_PAGES);
	cr_assert_eq(where.n_absent + where.n_unknown, 0);
}

Test(numa_place, sets_of_nodes_know_their_lowest)
{
	struct hoist__nodeset set = {0};
	cr_assert_eq(hoist__nodeset_first(&set), -1);
	hoist__nodeset_add(&set, -1);
	hoist__nodeset_add(&set, HOIST__MAX_NODES);
	cr_assert_eq(hoist__nodeset_first(&set), -1);
	hoist__nodeset_add(&set, HOIST__MAX_NODES - 1);
	cr_assert_eq(hoist__nodeset_first(&set), HOIST__MAX_NODES - 1);
	hoist__nodeset_add(&set, 64);
	cr_assert_eq(hoist__nodeset_first(&set), 64);
	cr_assert(hoist__nodeset_has(&set, 64));
	cr_assert_not(hoist__nodeset_has(&set, 63));
	cr_assert_not(hoist__nodeset_has(&set, -1));
}

Test(numa_place, binds_prefers_and_interleaves_over_a_node_that_exists)
{
	int node = first_node();
	static const enum hoist__policy policies[] = {HOIST__POLICY_PREFER, HOIST__POLICY_BIND,
						      HOIST__POLICY_INTERLEAVE};
	for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
		map_pages();
		struct hoist__placement asked = placement(policies[i], node);
		cr_assert_eq(place_or_skip(&asked), HOIST__PLACED_KERNEL);
		memset(memory, 1, N_PAGES * page_bytes());
		expect_pages_on(node);
	}
}

Test(numa_place, leaves_local_memory_to_the_kernel)
{
	struct hoist__placement asked = {.policy = HOIST__POLICY_LOCAL};
	enum hoist__placed placed = HOIST__PLACED_FIRST_TOUCH;
	cr_assert_eq(hoist__place(memory, page_bytes(), &asked, &placed), 0);
	cr_assert_eq(placed, HOIST__PLACED_DEFAULT);
}

Test(numa_place, fails_for_an_empty_set)
{
	enum hoist__placed placed = HOIST__PLACED_DEFAULT;
	for (int policy = HOIST__POLICY_PREFER; policy <= HOIST__POLICY_INTERLEAVE; policy++) {
		struct hoist__placement asked = {.policy = (enum hoist__policy)policy};
		cr_assert_eq(hoist__place(memory, page_bytes(), &asked, &placed), -EINVAL);
		cr_assert_eq(placed, HOIST__PLACED_DEFAULT, "untouched on failure");
	}
}

Test(numa_place, fails_strictly_for_a_node_that_does_not_exist)
{
	struct hoist__placement asked = placement(HOIST__POLICY_BIND, first_node());
	(void)place_or_skip(&asked);
	asked = placement(HOIST__POLICY_BIND, HOIST__MAX_NODES - 1);
	enum hoist__placed placed = HOIST__PLACED_DEFAULT;
	cr_assert_eq(hoist__place(memory, page_bytes(), &asked, &placed), -EINVAL);
	cr_assert(strstr(hoist__error_text(), "1023") != NULL, "%s", hoist__error_text());
	asked = placement(HOIST__POLICY_PREFER, HOIST__MAX_NODES - 1);
	cr_assert_eq(hoist__place(memory, page_bytes(), &asked, &placed), 0);
	cr_assert_eq(placed, HOIST__PLACED_FIRST_TOUCH, "a preference may spill");
}

Test(numa_place, falls_back_on_first_touch_where_the_kernel_refuses)
{
	if (refuse(__NR_mbind, EPERM) != 0)
		cr_skip_test("no seccomp filters here");
	for (int policy = HOIST__POLICY_PREFER; policy <= HOIST__POLICY_INTERLEAVE; policy++) {
		struct hoist__placement asked = placement((enum hoist__policy)policy, 0);
		enum hoist__placed placed = HOIST__PLACED_DEFAULT;
		cr_assert_eq(hoist__place(memory, page_bytes(), &asked, &placed), 0);
		cr_assert_eq(placed, HOIST__PLACED_FIRST_TOUCH);
	}
}

Test(numa_place, runs_on_the_cpus_of_a_node)
{
	struct hoist__topology *topology = NULL;
	cr_assert_eq(hoist__topology_load("/sys", &topology), 0);
	const struct hoist__node *node = &topology->nodes[0];
	cr_assert_eq(hoist__run_on_node(topology, node->id), 0);
	int cpu = sched_getcpu();
	bool found = false;
	for (size_t i = 0; i < node->n_cpus; i++)
		found = found || node->cpus[i] == cpu;
	cr_assert(found);
	cr_assert_eq(hoist__run_on_node(topology, HOIST__MAX_NODES - 1), -ENODEV);
	hoist__topology_destroy(topology);
}

Test(numa_place, cannot_run_on_a_node_without_cpus)
{
	struct hoist__node node = {.id = 3};
	struct hoist__topology topology = {.n_nodes = 1, .nodes = &node};
	cr_assert_eq(hoist__run_on_node(&topology, 3), -ENODEV);
	cr_assert(strstr(hoist__error_text(), "node 3 has no CPUs") != NULL);
}

Test(numa_place, tells_absent_pages_from_present_ones)
{
	memset(memory, 1, N_PAGES / 2 * page_bytes());
	struct hoist__whereabouts where;
	int err = hoist__whereabouts(memory, N_PAGES * page_bytes(), N_PAGES, &where);
	if (err == -EPERM || err == -ENOSYS)
		cr_skip_test("the kernel does not say where pages are");
	cr_assert_eq(err, 0);
	cr_assert_eq(where.n_sampled, N_PAGES);
	cr_assert_eq(where.n_absent, N_PAGES / 2);
}

/* It is there, and on no node of ours. */
Test(numa_place, does_not_know_the_shared_page_of_zeros)
{
	struct hoist__whereabouts where;
	cr_assert_eq(*(volatile char *)memory, 0);
	int err = hoist__whereabouts(memory, 2 * page_bytes(), 2, &where);
	if (err == -EPERM || err == -ENOSYS)
		cr_skip_test("the kernel does not say where pages are");
	cr_assert_eq(where.n_unknown, 1);
	cr_assert_eq(where.n_absent, 1, "the next page was not touched");
}

Test(numa_place, samples_from_the_first_page_to_the_last)
{
	memory[0] = 1;
	memory[(N_PAGES - 1) * page_bytes()] = 1;
	struct hoist__whereabouts where;
	if (hoist__whereabouts(memory, N_PAGES * page_bytes(), 2, &where) != 0)
		cr_skip_test("the kernel does not say where pages are");
	cr_assert_eq(where.n_sampled, 2);
	cr_assert_eq(where.n_absent, 0, "the first and the last page are there");
	cr_assert_eq(hoist__whereabouts(memory, 0, 8, &where), 0);
	cr_assert_eq(where.n_sampled, 0);
}

Test(numa_place, asks_page_by_page_where_move_pages_is_refused)
{
	memset(memory, 1, N_PAGES / 2 * page_bytes());
	struct hoist__whereabouts where;
	if (refuse(__NR_move_pages, EPERM) != 0)
		cr_skip_test("no seccomp filters here");
	if (hoist__whereabouts(memory, N_PAGES * page_bytes(), N_PAGES, &where) != 0)
		cr_skip_test("get_mempolicy is refused too");
	cr_assert_eq(where.n_absent, N_PAGES / 2, "asking must not populate");
	size_t n = 0; /* wherever this thread runs */
	for (int node = 0; node < HOIST__MAX_NODES; node++)
		n += where.per_node[node];
	cr_assert_eq(n, N_PAGES / 2);
}

Test(numa_place, says_so_where_the_kernel_answers_nothing)
{
	struct hoist__whereabouts where = {.n_sampled = 77};
	memory[0] = 1;
	if (refuse(__NR_move_pages, EPERM) != 0 || refuse(__NR_get_mempolicy, EPERM) != 0)
		cr_skip_test("no seccomp filters here");
	cr_assert_eq(hoist__whereabouts(memory, page_bytes(), 1, &where), -EPERM);
	cr_assert_eq(where.n_sampled, 77, "untouched on failure");
}

Test(numa_place, knows_the_nodes_that_the_cpuset_allows)
{
	struct hoist__nodeset set = {{0}};
	hoist__nodeset_add(&set, HOIST__MAX_NODES - 1);
	cr_assert_not(hoist__nodes_allowed(&set), "there is no such node");
	hoist__nodeset_add(&set, first_node());
	cr_assert(hoist__nodes_allowed(&set));
	if (refuse(__NR_get_mempolicy, EPERM) != 0)
		cr_skip_test("no seccomp filters here");
	memset(&set, 0, sizeof set);
	cr_assert(hoist__nodes_allowed(&set), "nobody says that it does not");
}

/* --- strictly, and without the kernel's killer --- */

Test(numa_place, binds_populated_memory_softly)
{
	int node = first_node();
	struct hoist__placement asked = placement(HOIST__POLICY_BIND, node);
	(void)place_or_skip(&asked);
	hoist__place_softly(memory, N_PAGES * page_bytes(), &asked);
	memset(memory, 1, N_PAGES * page_bytes());
	cr_assert_eq(hoist__place_strictly(memory, N_PAGES * page_bytes(), &asked, 0), 0, "%s",
		     hoist__error_text());
	expect_pages_on(node);
}

Test(numa_place, names_the_nodes_free_memory_when_no_more_can_be_moved_there)
{
	struct hoist__placement asked = placement(HOIST__POLICY_BIND, first_node());
	if (refuse(__NR_mbind, EIO) != 0)
		cr_skip_test("no seccomp filters here");
	hoist__place_softly(memory, page_bytes(), &asked); /* cannot fail */
	cr_assert_eq(hoist__place_strictly(memory, N_PAGES * page_bytes(), &asked, 0), -ENOMEM);
	cr_assert(strstr(hoist__error_text(), "binding 256 KiB to node") != NULL, "%s",
		  hoist__error_text());
	cr_assert(strstr(hoist__error_text(), "are free") != NULL);
}

Test(numa_place, passes_on_errors_that_are_not_about_room)
{
	struct hoist__placement asked = placement(HOIST__POLICY_BIND, first_node());
	if (refuse(__NR_mbind, EFAULT) != 0)
		cr_skip_test("no seccomp filters here");
	cr_assert_eq(hoist__place_strictly(memory, page_bytes(), &asked, 0), -EFAULT);
}

Test(numa_place, knows_the_bytes_that_nodes_cannot_have)
{
	const uint64_t gib = (uint64_t)1 << 30;
	struct hoist__node nodes[] = {
		{.id = 0,
		 .total_bytes = 64 * gib,
		 .free_bytes = gib,
		 .reclaimable_bytes = gib,
		 .kept_bytes = 61 * gib}, /* 1 GiB is nobody's: a cache, perhaps */
		{.id = 2, .total_bytes = 8 * gib, .free_bytes = 3 * gib, .kept_bytes = 5 * gib},
		{.id = 5, .total_bytes = 0},
	};
	struct hoist__topology topology = {.n_nodes = 3, .nodes = nodes};
	struct hoist__placement one = placement(HOIST__POLICY_BIND, 0);
	struct sysinfo info; /* what could be swapped out counts */
	cr_assert_eq(sysinfo(&info), 0);
	size_t most = 3 * gib + (size_t)info.freeswap * info.mem_unit;
	cr_assert_eq(hoist__place_has_room(&topology, &one, most), 0);
	cr_assert_eq(hoist__place_has_room(&topology, &one, most + 1), -ENOMEM);
	cr_assert(strstr(hoist__error_text(), "to node 0: there is no room: of 64 GiB, 1 GiB are "
					      "free, and 1 GiB page cache") != NULL,
		  "%s", hoist__error_text());
	struct hoist__placement both = one;
	hoist__nodeset_add(&both.nodes, 2);
	cr_assert_eq(hoist__place_has_room(&topology, &both, most + 3 * gib), 0);
	cr_assert_eq(hoist__place_has_room(&topology, &both, most + 3 * gib + 1), -ENOMEM);
	cr_assert(strstr(hoist__error_text(), "to nodes 0, 2: there") != NULL, "%s",
		  hoist__error_text());
	/* An unknown node, or memory that may be elsewhere: the answer is yes. */
	struct hoist__placement unknown = placement(HOIST__POLICY_BIND, 5);
	cr_assert_eq(hoist__place_has_room(&topology, &unknown, SIZE_MAX), 0);
	one.policy = HOIST__POLICY_PREFER;
	cr_assert_eq(hoist__place_has_room(&topology, &one, SIZE_MAX), 0);
}
