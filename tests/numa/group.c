/* SPDX-License-Identifier: MIT */
/* The memory that a control group still gives, on trees made here: both hierarchies, groups in
 * groups, containers that see their own group as the root, and files that are missing or odd. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>

#include "base/error.h"
#include "numa/group.h"
#include "numa/processors.h"
#include "tests/support/numa-tree.h"

#define MIB ((uint64_t)1 << 20)

static const char v2_mount[] =
	"24 1 0:21 / /proc rw - proc proc rw\n"
	"30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
static const char v1_mount[] = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
			       "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
			       "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
			       "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

static void put(const struct tree *tree, const char *entry, const char *text)
{
	cr_assert_eq(tree_add(tree, entry, text), 0, "%s", entry);
}

static void begin(struct tree *tree, const char *cgroup, const char *mounts)
{
	cr_assert_eq(tree_create(tree), 0);
	put(tree, "proc/self/cgroup", cgroup);
	put(tree, "proc/self/mountinfo", mounts);
	put(tree, "proc/meminfo", "MemTotal: 1000 kB\nSwapTotal: 0 kB\nSwapFree:        0 kB\n");
}

static void expect(const struct tree *tree, uint64_t limit, uint64_t left, const char *name)
{
	struct hoist__group group = {0};
	cr_assert_eq(hoist__group_look(tree->root, &group), 0);
	cr_expect_eq(group.limit_bytes, limit, "%llu", (unsigned long long)group.limit_bytes);
	cr_expect_eq(group.left_bytes, left, "%llu", (unsigned long long)group.left_bytes);
	cr_expect_str_eq(group.name, name);
}

static void expect_none(const struct tree *tree)
{
	struct hoist__group group;
	cr_expect_eq(hoist__group_look(tree->root, &group), -ENOENT);
}

/* The limit of a group above counts as well as its own. */
Test(numa_group, the_one_that_has_least_left_counts)
{
	struct tree tree;
	begin(&tree, "0::/a/b\n", v2_mount);
	put(&tree, "sys/fs/cgroup/a/b/memory.max", "209715200\n");
	put(&tree, "sys/fs/cgroup/a/b/memory.current", "104857600\n");
	expect(&tree, 200 * MIB, 100 * MIB, "/a/b");
	put(&tree, "sys/fs/cgroup/a/memory.max", "314572800\n");
	put(&tree, "sys/fs/cgroup/a/memory.current", "262144000\n");
	expect(&tree, 300 * MIB, 50 * MIB, "/a");
	put(&tree, "sys/fs/cgroup/a/memory.max", "max\n");
	expect(&tree, 200 * MIB, 100 * MIB, "/a/b");
	tree_remove(&tree);
}

/* Pages of files are taken back before anybody is killed; those of shared memory are not. */
Test(numa_group, pages_of_files_and_swap_are_there_to_be_had)
{
	struct tree tree;
	begin(&tree, "0::/a\n", v2_mount);
	put(&tree, "sys/fs/cgroup/a/memory.max", "104857600\n");
	put(&tree, "sys/fs/cgroup/a/memory.current", "104857600\n");
	put(&tree, "sys/fs/cgroup/a/memory.stat",
	    "anon 10\nfile 104857000\nshmem 94371840\ninactive_anon 3\ninactive_file 4194304\n"
	    "active_file 4194304\nslab_reclaimable 2097152\n");
	expect(&tree, 100 * MIB, 10 * MIB, "/a");
	put(&tree, "proc/meminfo", "SwapTotal: 99999 kB\nSwapFree:        40960 kB\n");
	expect(&tree, 100 * MIB, 50 * MIB, "/a");
	put(&tree, "sys/fs/cgroup/a/memory.swap.max", "8388608\n");
	put(&tree, "sys/fs/cgroup/a/memory.swap.current", "7340032\n");
	expect(&tree, 100 * MIB, 11 * MIB, "/a");
	tree_remove(&tree);
}

Test(numa_group, the_first_hierarchy_counts_with_its_own_files)
{
	struct tree tree;
	begin(&tree, "9:name=systemd:/x\n4:memory:/docker/123\n1:cpu:/\n0::/\n", v1_mount);
	put(&tree, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put(&tree, "sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n");
	expect_none(&tree); /* the group itself cannot be seen, and the mount has no limit */
	put(&tree, "sys/fs/cgroup/memory/docker/123/memory.limit_in_bytes", "67108864\n");
	put(&tree, "sys/fs/cgroup/memory/docker/123/memory.usage_in_bytes", "33554432\n");
	put(&tree, "sys/fs/cgroup/memory/docker/123/memory.stat",
	    "cache 9\ninactive_file 1\ntotal_inactive_file 1048576\ntotal_active_file 1048576\n");
	expect(&tree, 64 * MIB, 34 * MIB, "/docker/123");
	put(&tree, "proc/meminfo", "SwapFree:        40960 kB\n");
	put(&tree, "sys/fs/cgroup/memory/docker/123/memory.memsw.limit_in_bytes", "70254592\n");
	expect(&tree, 64 * MIB, 37 * MIB, "/docker/123");
	/* 2 MiB of the swap are used. */
	put(&tree, "sys/fs/cgroup/memory/docker/123/memory.memsw.usage_in_bytes", "35651584\n");
	expect(&tree, 64 * MIB, 35 * MIB, "/docker/123");
	tree_remove(&tree);
}

/* A container's mount shows its group alone: the path beneath it is what counts. */
Test(numa_group, a_container_sees_its_own_group)
{
	struct tree tree;
	begin(&tree, "4:cpu,memory:/docker/123/inner\n",
	      "35 31 0:32 /docker/123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,cpu,memory\n");
	put(&tree, "sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "67108864\n");
	put(&tree, "sys/fs/cgroup/memory/inner/memory.usage_in_bytes", "0\n");
	expect(&tree, 64 * MIB, 64 * MIB, "/inner");
	put(&tree, "sys/fs/cgroup/memory/memory.limit_in_bytes", "33554432\n");
	put(&tree, "sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
	expect(&tree, 32 * MIB, 32 * MIB, "/");
	/* Its name as the host has it, and a mount of which no more is known. */
	put(&tree, "proc/self/cgroup", "4:memory:/somewhere/else\n");
	put(&tree, "proc/self/mountinfo",
	    "35 31 0:32 /docker/12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
	expect(&tree, 32 * MIB, 32 * MIB, "/");
	tree_remove(&tree);
}

Test(numa_group, an_unreadable_group_limits_nothing)
{
	static const char *const odd[] = {"", "x\n", "::\n", "0::\n", "0:", "0::/a", "4:memory\n"};
	struct tree tree;
	begin(&tree, "", "");
	expect_none(&tree);
	for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
		put(&tree, "proc/self/cgroup", odd[i]);
		put(&tree, "proc/self/mountinfo",
		    i % 2 == 0 ? v2_mount : "1 2 3\n- \n\n4 5 6 / /x\n");
		expect_none(&tree);
	}
	put(&tree, "proc/self/cgroup", "0::/a\n");
	put(&tree, "proc/self/mountinfo", v2_mount);
	put(&tree, "sys/fs/cgroup/a/memory.max", "many\n");
	put(&tree, "sys/fs/cgroup/a/memory.current", "-5\n");
	expect_none(&tree);
	put(&tree, "sys/fs/cgroup/a/memory.max", "4096\n");
	expect_none(&tree);
	put(&tree, "sys/fs/cgroup/a/memory.current", "8192\n"); /* more than it may */
	expect(&tree, 4096, 0, "/a");
	tree_remove(&tree);
	(void)snprintf(tree.root, sizeof tree.root, "/nowhere");
	expect_none(&tree);
}

/* Little is not looked at, and no group allows what no machine has. */
Test(numa_group, a_check_lets_little_pass)
{
	cr_expect_eq(hoist__group_check(HOIST__GROUP_LEAST_BYTES - 1, UINT64_MAX, "x"), 0);
	int err = hoist__group_check(HOIST__GROUP_LEAST_BYTES, UINT64_MAX, "x");
	cr_expect(err == 0 || (err == -ENOMEM && strstr(hoist__error_text(), "to spare") != NULL));
	err = hoist__group_check((uint64_t)1 << 62, 0, "an image");
	cr_expect(err == 0 ||
		  (err == -ENOMEM && strstr(hoist__error_text(), "an image: ") != NULL));
}

/* --- processors --- */

/* A quota keeps so many processors busy, rounded up; a group above may have the smaller one. */
Test(numa_group, quotas_of_processors)
{
	static const struct {
		const char *file;
		const char *text;
		unsigned expected;
	} rows[] = {
		{"sys/fs/cgroup/a/b/cpu.max", "max 100000\n", UINT_MAX},
		{"sys/fs/cgroup/a/b/cpu.max", "400000 100000\n", 4},
		{"sys/fs/cgroup/a/b/cpu.max", "410000 100000\n", 5},
		{"sys/fs/cgroup/a/cpu.max", "150000 100000\n", 2},
		{"sys/fs/cgroup/a/cpu.max", "1000 100000\n", 1},
		{"sys/fs/cgroup/a/cpu.max", "100000\n", 5}, /* half a line says nothing */
		{"sys/fs/cgroup/a/cpu.max", "7 0\n", 5},
		{"sys/fs/cgroup/a/cpu.max", "nonsense\n", 5},
	};
	struct tree tree;
	begin(&tree, "0::/a/b\n", v2_mount);
	cr_expect_eq(hoist__group_processors(tree.root), UINT_MAX);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		put(&tree, rows[i].file, rows[i].text);
		cr_expect_eq(hoist__group_processors(tree.root), rows[i].expected, "%zu: %u", i,
			     hoist__group_processors(tree.root));
	}
	tree_remove(&tree);
}

Test(numa_group, quotas_of_processors_in_the_first_hierarchy)
{
	struct tree tree;
	begin(&tree, "4:memory:/m\n3:cpu,cpuacct:/c\n", v1_mount);
	put(&tree, "sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "50000\n");
	put(&tree, "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
	cr_expect_eq(hoist__group_processors(tree.root), UINT_MAX);
	put(&tree, "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "150000\n");
	cr_expect_eq(hoist__group_processors(tree.root), 3);
	put(&tree, "sys/fs/cgroup/memory/m/cpu.cfs_quota_us", "1\n");
	cr_expect_eq(hoist__group_processors(tree.root), 3);
	tree_remove(&tree);
}

/* Only the processors that the thread may run on count, and the memory's node has them. */
Test(numa_group, processors_of_this_thread)
{
	struct hoist__processors all;
	struct hoist__processors one;
	cpu_set_t set;
	cpu_set_t now;
	long page;
	cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
	hoist__processors_for(&page, &all);
	cr_expect(all.n >= 1 && all.n <= (unsigned)CPU_COUNT(&set));
	for (int cpu = CPU_SETSIZE - 1; CPU_COUNT(&set) > 1; cpu--)
		CPU_CLR((size_t)cpu, &set);
	cr_assert_eq(sched_setaffinity(0, sizeof set, &set), 0);
	hoist__processors_for(&page, &one);
	cr_expect_eq(one.n, 1);
	hoist__processors_stay(&all);
	cr_assert_eq(sched_getaffinity(0, sizeof now, &now), 0);
	cr_expect(CPU_EQUAL(&now, all.near ? &all.set : &set));
}
