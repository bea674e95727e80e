/* SPDX-License-Identifier: MIT */
/* The choices of a region on machines with several nodes: whose CPUs populate it, with how many
 * threads, and its words where pages came to lie elsewhere.
 *
 * The machine is a captured tree: the library's questions about it, and the kernel's answers
 * about memory, come here (--wrap).  Only such a machine can show whether the
 * kernel keeps its word. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <numaif.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/support/alloc-unit.h"
#include "tests/support/numa-tree.h"

#ifndef MPOL_PREFERRED_MANY
#define MPOL_PREFERRED_MANY 5
#endif

static struct tree tree;
static bool refuse_mbind;
static bool no_room;			 /* where pages would be moved to */
static uint64_t group_left = UINT64_MAX; /* what the control group gives */
static unsigned n_spills;		 /* populating puts pages elsewhere so often */
static int node_of_pages;		 /* what move_pages() says, */
static unsigned n_moving;		 /* but of so many of four pages nothing */

/* The calls of mbind(). */
#define MAX_BINDS 8
static struct bind {
	int mode;
	unsigned flags;
} binds[MAX_BINDS];
static atomic_uint n_binds;

static unsigned own_node; /* what getcpu() says */
static atomic_uint n_threads_on[HOIST__MAX_NODES];

int __real_hoist__topology_load(const char *sysfs_root, struct hoist__topology **ret);
int __wrap_hoist__topology_load(const char *sysfs_root, struct hoist__topology **ret);
int __wrap_hoist__run_on_node(const struct hoist__topology *topology, int node);
int __wrap_hoist__group_check(uint64_t bytes, uint64_t spare, const char *what);
int __wrap_getcpu(unsigned *cpu, unsigned *node);
long __wrap_mbind(void *memory, unsigned long bytes, int mode, const unsigned long *mask,
		  unsigned long bits, unsigned flags);
long __wrap_move_pages(int pid, unsigned long n, void **pages, const int *nodes, int *status,
		       int flags);

int __wrap_hoist__topology_load(const char *sysfs_root, struct hoist__topology **ret)
{
	(void)sysfs_root;
	return __real_hoist__topology_load(tree.root, ret);
}

int __wrap_hoist__run_on_node(const struct hoist__topology *topology, int node)
{
	if (hoist__topology_node(topology, node)->n_cpus == 0)
		return hoist__fail(-ENODEV, "node %d has no CPUs", node);
	atomic_fetch_add(&n_threads_on[node], 1);
	return 0;
}

int __wrap_hoist__group_check(uint64_t bytes, uint64_t spare, const char *what)
{
	if (bytes <= group_left && spare <= group_left - bytes)
		return 0;
	return hoist__fail(-ENOMEM, "%s: a full group, %llu bytes", what,
			   (unsigned long long)bytes);
}

int __wrap_getcpu(unsigned *cpu, unsigned *node)
{
	*cpu = 0;
	*node = own_node;
	return 0;
}

long __wrap_mbind(void *memory, unsigned long bytes, int mode, const unsigned long *mask,
		  unsigned long bits, unsigned flags)
{
	(void)memory, (void)bytes, (void)mask, (void)bits;
	unsigned n = atomic_fetch_add(&n_binds, 1);
	if (n < MAX_BINDS)
		binds[n] = (struct bind){mode, flags};
	errno = flags != 0 ? EIO : EPERM;
	bool elsewhere = flags == MPOL_MF_STRICT && n_spills > 0;
	n_spills -= elsewhere;
	return refuse_mbind || elsewhere || (no_room && flags != 0) ? -1 : 0;
}

long __wrap_move_pages(int pid, unsigned long n, void **pages, const int *nodes, int *status,
		       int flags)
{
	(void)pid, (void)pages, (void)nodes, (void)flags;
	for (unsigned long i = 0; i < n; i++)
		status[i] = i % 4 < n_moving ? -EBUSY : node_of_pages;
	return 0;
}

static void use_machine(const char *name)
{
	cr_assert_eq(tree_unpack(&tree, name), 0, "cannot unpack sysfs/%s.txt", name);
}

static struct hoist__region_options on_nodes(enum hoist__policy policy, int first, int last)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 64 * HOIST__MIB};
	options.placement.policy = policy;
	for (int node = first; node <= last; node++)
		hoist__nodeset_add(&options.placement.nodes, node);
	return options;
}

/* Creates and destroys a region.  Returns: the nodes whose CPUs had a thread, as bits; *n: the
 * number of threads. */
static unsigned nodes_used(const struct hoist__region_options *options, unsigned *n)
{
	unsigned used = 0;
	memset(n_threads_on, 0, sizeof n_threads_on);
	hoist__region_destroy(make_region(options));
	*n = 0;
	for (int node = 0; node < 8; node++) {
		used |= (unsigned)(atomic_load(&n_threads_on[node]) > 0) << node;
		*n += atomic_load(&n_threads_on[node]);
	}
	return used;
}

static void remove_tree(void)
{
	tree_remove(&tree);
}

TestSuite(alloc_choice, .fini = remove_tree);

Test(alloc_choice, populates_from_the_nodes_that_were_asked_for)
{
	unsigned n;
	use_machine("2-nodes");
	node_of_pages = 1;
	struct hoist__region_options options = on_nodes(HOIST__POLICY_BIND, 1, 1);
	cr_assert_eq(nodes_used(&options, &n), 2);
	cr_assert_eq(n, 4, "the node has four CPUs");
	options.n_threads = 3;
	cr_assert_eq(nodes_used(&options, &n), 2);
	cr_assert_eq(n, 3);
	options = on_nodes(HOIST__POLICY_BIND, 0, 1);
	cr_assert_eq(nodes_used(&options, &n), 3);
	cr_assert_eq(n, 4);
	/* A preference means the first node; the kernel falls back on the others. */
	options = on_nodes(HOIST__POLICY_PREFER, 0, 1);
	cr_assert_eq(nodes_used(&options, &n), 1);
}

Test(alloc_choice, starts_no_more_threads_than_the_node_has_cpus)
{
	unsigned n;
	use_machine("4-nodes");
	node_of_pages = 1;
	struct hoist__region_options options = on_nodes(HOIST__POLICY_PREFER, 1, 1);
	cr_assert_eq(nodes_used(&options, &n), 2);
	cr_assert_eq(n, 2);
}

/* Where the helpers run decides where LOCAL pages are: on the caller's node. */
Test(alloc_choice, local_is_the_node_of_the_caller)
{
	unsigned n;
	use_machine("2-nodes");
	own_node = 1;
	struct hoist__region_options options = on_nodes(HOIST__POLICY_LOCAL, 0, -1);
	cr_assert_eq(nodes_used(&options, &n), 2);
	cr_assert_eq(n, 4);
	/* A single thread stays where it is. */
	options.n_threads = 1;
	cr_assert_eq(nodes_used(&options, &n), 0);
	options.n_threads = 0;
	options.bytes = HOIST__MIB;
	cr_assert_eq(nodes_used(&options, &n), 0);
}

/* Refused by the kernel, interleaving is by slices that threads on each node touch. */
Test(alloc_choice, interleaves_over_all_nodes_by_touching)
{
	unsigned n;
	use_machine("8-nodes");
	struct hoist__region_options options = on_nodes(HOIST__POLICY_INTERLEAVE, 0, 7);
	cr_assert_eq(nodes_used(&options, &n), 0xf, "the kernel does it, threads only help");
	cr_assert_eq(n, 4);
	refuse_mbind = true;
	options.bytes = 16 * HOIST__MIB;
	cr_assert_eq(nodes_used(&options, &n), 0xff);
	cr_assert_eq(n, 8);
}

Test(alloc_choice, takes_memory_of_a_node_without_cpus)
{
	use_machine("4-nodes");
	node_of_pages = 3;
	struct hoist__region_options options = on_nodes(HOIST__POLICY_BIND, 3, 3);
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(region->node, 3);
	cr_assert_eq(region->placed, HOIST__PLACED_KERNEL);
	const char *note = region->step_note[HOIST__STEP_POPULATE];
	cr_assert(strstr(note, "could not run on the node's CPUs") != NULL, "%s", note);
	hoist__region_destroy(region);
}

Test(alloc_choice, spills_only_where_it_was_allowed_to)
{
	use_machine("2-nodes");
	node_of_pages = 0;
	struct hoist__region_options options = on_nodes(HOIST__POLICY_PREFER, 1, 1);
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(region->node, 0);
	const char *note = region->step_note[HOIST__STEP_VERIFY];
	cr_assert(strstr(note, "64 of 64 sampled pages are on other nodes (0)") != NULL, "%s",
		  note);
	hoist__region_destroy(region);
	options.placement.policy = HOIST__POLICY_BIND;
	cr_assert_eq(hoist__region_create(&options, &region), -ENOMEM);
	SAYS("binding 64 MiB to node 1");
	/* More than the node has is known before. */
	options.bytes = 600 * HOIST__MIB;
	cr_assert_eq(hoist__region_create(&options, &region), -ENOMEM);
	SAYS("no room: of 469.9 MiB, 399.7 MiB are free");
}

Test(alloc_choice, knows_its_node_while_the_kernel_moves_pages)
{
	use_machine("2-nodes");
	node_of_pages = 1;
	n_moving = 3;
	struct hoist__region_options options = on_nodes(HOIST__POLICY_BIND, 1, 1);
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(region->node, 1);
	hoist__region_destroy(region);
	n_moving = 4;
	region = make_region(&options);
	cr_assert_eq(region->node, -1, "nothing is known of any");
	hoist__region_destroy(region);
}

/* The kernel kills a process that touches memory bound to a full node; a call that moves memory
 * there gets an error. */
Test(alloc_choice, binds_strictly_to_present_nodes_only)
{
	use_machine("2-nodes");
	node_of_pages = 1;
	struct hoist__region_options options = on_nodes(HOIST__POLICY_BIND, 1, 1);
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(atomic_load(&n_binds), 3);
	cr_assert(binds[0].mode == MPOL_BIND && binds[0].flags == 0, "does the kernel take it?");
	cr_assert(binds[1].mode == MPOL_PREFERRED_MANY && binds[1].flags == 0);
	cr_assert(binds[2].mode == MPOL_BIND && binds[2].flags == MPOL_MF_STRICT);
	hoist__region_destroy(region);
	/* Moved memory may have lost its pages: it is populated, and checked, again. */
	atomic_store(&n_binds, 0);
	n_spills = 1;
	region = make_region(&options);
	cr_assert_eq(atomic_load(&n_binds), 6);
	cr_assert(binds[2].mode == MPOL_BIND && binds[2].flags == MPOL_MF_STRICT);
	cr_assert(binds[3].mode == MPOL_BIND && binds[3].flags == (MPOL_MF_MOVE | MPOL_MF_STRICT));
	cr_assert(binds[4].mode == MPOL_PREFERRED_MANY && binds[4].flags == 0);
	cr_assert(binds[5].mode == MPOL_BIND && binds[5].flags == MPOL_MF_STRICT);
	hoist__region_destroy(region);
	n_spills = 1000; /* and not for ever */
	cr_assert_eq(hoist__region_create(&options, &region), -ENOMEM);
	n_spills = 0;
	no_room = true;
	cr_assert_eq(hoist__region_create(&options, &region), -ENOMEM);
	SAYS("binding 64 MiB to node 1: there is no room");
	/* Memory that its user populates stays as it is bound. */
	atomic_store(&n_binds, 0);
	options.unpopulated = true;
	region = make_region(&options);
	cr_assert_eq(atomic_load(&n_binds), 1);
	cr_assert_eq(binds[0].mode, MPOL_BIND);
	hoist__region_destroy(region);
}

Test(alloc_choice, looks_for_huge_pages_on_the_nodes_asked_for)
{
	use_machine("8-nodes");
	node_of_pages = 5;
	struct hoist__region_options options = on_nodes(HOIST__POLICY_PREFER, 5, 5);
	options.hugetlb = true;
	struct hoist__region *region = make_region(&options);
	const char *note = region->step_note[HOIST__STEP_HUGE];
	cr_assert(strstr(note, "32 pages needed, 5 free on the nodes") != NULL, "%s", note);
	hoist__region_destroy(region);
}

/* Small pages in place of hugetlb pages count for the control group, and the kernel kills a
 * process that populates too many of them. */
Test(alloc_choice, asks_the_group_also_where_there_are_no_hugetlb_pages)
{
	use_machine("8-nodes");
	node_of_pages = 5;
	group_left = 0;
	struct hoist__region_options options = on_nodes(HOIST__POLICY_PREFER, 5, 5);
	struct hoist__region *region = NULL;
	options.hugetlb = true;
	cr_assert_eq(hoist__region_create(&options, &region), -ENOMEM);
	SAYS("host memory: a full group, 67108864 bytes");
	cr_assert_null(region);
	options.unpopulated = true;
	region = make_region(&options);
	hoist__region_destroy(region);
}

/* A pool's regions, of which nobody has asked for more than a part yet, leave others as much again;
 * where that is not there, the part is all that it takes. */
Test(alloc_choice, a_shared_region_leaves_the_group_as_much)
{
	struct hoist__pool_options options = {.region_bytes = 32 * HOIST__MIB};
	struct hoist__pool_stats stats;
	uintptr_t block = 0;
	for (int more = 0; more <= 1; more++) {
		group_left = 64 * HOIST__MIB - 1 + (uint64_t)more;
		struct hoist__pool *pool = make_pool(&options);
		cr_assert_eq(hoist__pool_alloc(pool, HOIST__MIB, 0, 0, &block), 0);
		hoist__pool_stats(pool, &stats);
		cr_expect_eq(stats.reserved_bytes, more ? 32 * HOIST__MIB : HOIST__MIB, "%zu",
			     stats.reserved_bytes);
		cr_assert_eq(hoist__pool_free(pool, block), 0);
		hoist__pool_unref(pool);
	}
	/* The request may be for the last bytes. */
	group_left = 20 * HOIST__MIB;
	struct hoist__pool *pool = make_pool(&options);
	cr_assert_eq(hoist__pool_alloc(pool, 20 * HOIST__MIB, 0, 0, &block), 0);
	cr_assert_eq(hoist__pool_free(pool, block), 0);
	hoist__pool_unref(pool);
}

/* The error names why the part cannot be had, not that the node had no room for more. */
Test(alloc_choice, a_shared_region_fails_as_its_part_fails)
{
	use_machine("8-nodes");
	const struct hoist__region_options bind = on_nodes(HOIST__POLICY_BIND, 3, 3);
	struct hoist__pool_options options = {.region_bytes = 32 * HOIST__MIB,
					      .placement = bind.placement};
	char text[HOIST__ERROR_BYTES] = "";
	int err = 0;
	node_of_pages = 3;
	n_spills = 1000;
	no_room = true;
	for (int tight = 0; tight <= 1; tight++) {
		uintptr_t block = 0;
		group_left = tight ? 40 * HOIST__MIB : UINT64_MAX;
		struct hoist__pool *pool = make_pool(&options);
		int now = hoist__pool_alloc(pool, HOIST__MIB, 0, 0, &block);
		cr_assert(now < 0 && strstr(hoist__error_text(), "group") == NULL, "%d: %s", now,
			  hoist__error_text());
		cr_assert(!tight || now == err, "%d, not %d: %s, not %s", now, err,
			  hoist__error_text(), text);
		err = now;
		hoist__error_copy(text, sizeof text);
		hoist__pool_unref(pool);
	}
}
