/* SPDX-License-Identifier: MIT */
/* lib/doctor-machine.c - io_uring, memory and its limits, huge pages, NUMA. */
#include "config.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/figure.h"
#include "base/checked.h"
#include "device/device.h"
#include "hoist/load.h"
#include "io/engine.h"
#include "lib/doctor.h"
#include "numa/place.h"
#include "numa/topology.h"

/* The first line of a small file, "" if it cannot be read. */
static void read_line(const char *path, char *line, size_t bytes)
{
	line[0] = '\0';
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ssize_t n = read(fd, line, bytes - 1);
	(void)close(fd);
	line[n > 0 ? n : 0] = '\0';
	line[strcspn(line, "\n")] = '\0';
}

static int check_uring(hoist_doctor *doctor)
{
	char note[256] = "";
	if (hoist__uring_probe(note, sizeof note) < 0)
		return hoist__doctor_error(
			doctor, "io_uring",
			"allow io_uring_setup, io_uring_enter and io_uring_register in the "
			"container's seccomp profile, set sysctl kernel.io_uring_disabled=0, or "
			"use Linux 5.6 or newer; until then threads read, at a higher CPU cost");
	return hoist__doctor_yes(doctor, "io_uring", "%s", note[0] != '\0' ? note : "a ring works");
}

static int check_memory(hoist_doctor *doctor)
{
	struct hoist__dev *cpu = NULL;
	uint64_t available = 0;
	uint64_t total = 0;
	static const char remedy[] = "end other programs, or give the container more memory";
	if (hoist__dev_get(HOIST__API_CPU, 0, &cpu) < 0 ||
	    hoist__dev_mem_info(cpu, &available, &total) < 0)
		return hoist__doctor_error(doctor, "memory", remedy);
	char group[32];
	char limit[64] = "";
	char *end = group;
	read_line("/sys/fs/cgroup/memory.max", group, sizeof group);
	unsigned long long most = strtoull(group, &end, 10);
	if (end != group && most < total) /* else "max", or no such file */
		(void)snprintf(limit, sizeof limit, "; this control group may use %s",
			       hoist__figure(most).text);
	if (available < 2 * HOIST_BUDGET_DEFAULT)
		return hoist__doctor_no(doctor, "memory", remedy, "only %s of %s are available%s",
					hoist__figure(available).text, hoist__figure(total).text,
					limit);
	return hoist__doctor_yes(doctor, "memory", "%s of %s are available%s",
				 hoist__figure(available).text, hoist__figure(total).text, limit);
}

/* Locks as much as a load stages by default, page by page on touch, so that the
 * limit is tested at no cost. */
static bool can_lock(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	bool locked = mlock2(memory, bytes, MLOCK_ONFAULT) == 0;
	(void)munmap(memory, bytes);
	return locked;
}

static int check_locked_memory(hoist_doctor *doctor)
{
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	(void)getrlimit(RLIMIT_MEMLOCK, &limit);
	struct hoist__figure allowed = hoist__figure(limit.rlim_cur);
	const char *text = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : allowed.text;
	if (can_lock(HOIST_BUDGET_DEFAULT))
		return hoist__doctor_yes(doctor, "locked memory",
					 "%s can be locked (RLIMIT_MEMLOCK: %s)",
					 hoist__figure(HOIST_BUDGET_DEFAULT).text, text);
	return hoist__doctor_no(
		doctor, "locked memory",
		"`ulimit -l unlimited`, LimitMEMLOCK=infinity for a service, `docker run --ulimit "
		"memlock=-1`",
		"the default staging budget, %s, cannot be locked: RLIMIT_MEMLOCK is %s",
		hoist__figure(HOIST_BUDGET_DEFAULT).text, text);
}

static int check_thp(hoist_doctor *doctor)
{
	static const char name[] = "transparent pages";
	static const char file[] = "/sys/kernel/mm/transparent_hugepage/enabled";
	char line[64];
	read_line(file, line, sizeof line);
	if (strstr(line, "[always]") != NULL || strstr(line, "[madvise]") != NULL)
		return hoist__doctor_yes(doctor, name, "large pages on request: %s", line);
	if (line[0] == '\0')
		return hoist__doctor_no(doctor, name,
					"use a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
					"this kernel has no transparent huge pages");
	return hoist__doctor_no(
		doctor, name, "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
		"switched off: %s is %s; direct reads are slower without", file, line);
}

static int check_hugetlb(hoist_doctor *doctor, const struct hoist__topology *topology)
{
	uint64_t n = 0;
	uint64_t n_free = 0;
	for (size_t i = 0; i < topology->n_nodes; i++) {
		n += topology->nodes[i].hugepages_2m;
		n_free += topology->nodes[i].free_hugepages_2m;
	}
	if (n_free > 0)
		return hoist__doctor_yes(doctor, "huge page pool",
					 "%" PRIu64 " of %" PRIu64 " pages of 2 MiB are free",
					 n_free, n);
	return hoist__doctor_no(doctor, "huge page pool",
				"none is needed where transparent pages work; to have them: "
				"sysctl vm.nr_hugepages=128",
				"%s", n == 0 ? "empty" : "all its pages are in use");
}

/* Asks the kernel to place one page; how it took that, or an error with its text. */
static int try_placing(int node, enum hoist__placed *ret)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return hoist__fail_nomem("a page to place", bytes);
	struct hoist__placement placement = {.policy = HOIST__POLICY_PREFER};
	hoist__nodeset_add(&placement.nodes, node);
	int err = hoist__place(page, bytes, &placement, ret);
	(void)munmap(page, bytes);
	return err;
}

/* "node 0: 64 CPUs, 252 GiB (190 GiB free)", for as many nodes as fit. */
static void list_nodes(const struct hoist__topology *topology, char *text, size_t bytes)
{
	size_t used = 0;
	text[0] = '\0';
	for (size_t i = 0; i < topology->n_nodes; i++) {
		const struct hoist__node *node = &topology->nodes[i];
		int n = snprintf(text + used, bytes - used, "%snode %d: %zu CPU%s, %s (%s free)",
				 i > 0 ? "; " : "", node->id, node->n_cpus,
				 node->n_cpus == 1 ? "" : "s",
				 hoist__figure(node->total_bytes).text,
				 hoist__figure(node->free_bytes).text);
		if (n < 0 || (size_t)n >= bytes - used) {
			text[used] = '\0';
			return;
		}
		used += (size_t)n;
	}
}

static int check_numa(hoist_doctor *doctor, const struct hoist__topology *topology)
{
	static const char remedy[] =
		"in a container: --cap-add SYS_NICE, or a seccomp profile that allows mbind; until "
		"then hoist places memory by touching it first from the right CPUs";
	char nodes[512];
	enum hoist__placed placed = HOIST__PLACED_DEFAULT;
	list_nodes(topology, nodes, sizeof nodes);
	if (topology->synthetic)
		return hoist__doctor_yes(doctor, "numa", "one node (the kernel lists none)");
	if (topology->n_nodes == 1)
		return hoist__doctor_yes(doctor, "numa", "%s; nothing to place", nodes);
	if (try_placing(topology->nodes[0].id, &placed) < 0)
		return hoist__doctor_error(doctor, "numa", remedy);
	if (placed != HOIST__PLACED_KERNEL)
		return hoist__doctor_no(doctor, "numa", remedy,
					"%s; but the kernel refuses to place memory", nodes);
	return hoist__doctor_yes(doctor, "numa", "%s", nodes);
}

static int check_topology(hoist_doctor *doctor)
{
	struct hoist__topology *topology = NULL;
	int err = hoist__topology_load("/sys", &topology);
	if (err < 0)
		return err;
	err = check_hugetlb(doctor, topology);
	if (err == 0)
		err = check_numa(doctor, topology);
	hoist__topology_destroy(topology);
	return err;
}

int hoist__doctor_machine(hoist_doctor *doctor)
{
	static int (*const checks[])(hoist_doctor *) = {
		check_uring, check_memory, check_locked_memory, check_thp, check_topology,
	};
	int err = 0;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(checks) && err == 0; i++)
		err = checks[i](doctor);
	return err;
}
