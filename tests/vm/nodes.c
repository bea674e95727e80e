/* SPDX-License-Identifier: MIT */
/* The kernel's answers on nodes: the spread of pages, the memory and the huge pages of a node, and
 * threads on its processors. */
#include "config.h"

#include "tests/vm/nodes.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/smaps.h"

#define PAGES_AT_ONCE 512
#define MAX_TRIES 50

/* --- nodes --- */

static bool has_node(int node)
{
	char path[64];
	(void)snprintf(path, sizeof path, "/sys/devices/system/node/node%d", node);
	return access(path, F_OK) == 0;
}

static int count_nodes(void)
{
	int n = 0;
	while (n < MAX_NODES && has_node(n))
		n++;
	return n;
}

int nodes_need(int least)
{
	int n = count_nodes();
	if (n < least) {
		printf("this machine has fewer than %d NUMA nodes; vm/nodes.sh makes one that "
		       "has\n",
		       least);
		exit(77);
	}
	return n;
}

int nodes_after(int node)
{
	return (node + 1) % count_nodes();
}

/* --- pages --- */

static void add_status(struct spread *spread, int status)
{
	spread->n++;
	if (status >= 0 && status < MAX_NODES)
		spread->on[status]++;
	else if (status == -ENOENT)
		spread->n_absent++;
	else
		spread->n_unknown++;
}

/* A page that the kernel moves just now (it compacts, it balances) is nowhere for a moment. */
static void ask(size_t n, void **pages, int *status)
{
	for (int tries = 0; tries < MAX_TRIES; tries++) {
		bool all = true;
		OK(syscall(SYS_move_pages, 0, n, pages, NULL, status, 0));
		for (size_t i = 0; i < n; i++)
			all = all && status[i] >= 0;
		if (all)
			return;
		(void)usleep(1000);
	}
}

static void add_range(struct spread *spread, uintptr_t address, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *pages[PAGES_AT_ONCE];
	int status[PAGES_AT_ONCE];
	uintptr_t at = address / page * page;
	while (at < address + bytes) {
		size_t n = 0;
		for (; n < PAGES_AT_ONCE && at < address + bytes; at += page)
			pages[n++] = (void *)at;
		ask(n, pages, status);
		for (size_t i = 0; i < n; i++)
			add_status(spread, status[i]);
	}
}

struct spread spread_of(uintptr_t address, size_t bytes)
{
	struct spread spread = {0};
	add_range(&spread, address, bytes);
	return spread;
}

static void add_region(void *arg, const struct hoist__region *region)
{
	add_range(arg, region->base, region->bytes);
}

static void skip_block(void *arg, uintptr_t address, size_t bytes, size_t requested,
		       enum hoist__block_state state)
{
	(void)arg, (void)address, (void)bytes, (void)requested, (void)state;
}

struct spread spread_of_regions(struct hoist__pool *pool)
{
	struct spread spread = {0};
	const struct hoist__pool_visitor visitor = {add_region, skip_block};
	hoist__pool_walk(pool, &visitor, &spread);
	return spread;
}

void spread_print(const struct spread *spread, const char *what)
{
	printf("%s: %zu pages:", what, spread->n);
	for (int node = 0; node < MAX_NODES; node++)
		if (spread->on[node] != 0)
			printf(" %zu on node %d", spread->on[node], node);
	if (spread->n_absent + spread->n_unknown != 0)
		printf(" %zu absent, %zu unknown", spread->n_absent, spread->n_unknown);
	printf("\n");
}

void check_spread(const struct spread *spread, int node, const char *what)
{
	if (spread->n != 0 && spread->on[node] == spread->n)
		return;
	fprintf(stderr, "not all on node %d: ", node);
	(void)fflush(stdout);
	spread_print(spread, what);
	exit(1);
}

void check_on(uintptr_t address, size_t bytes, int node, const char *what)
{
	struct spread spread = spread_of(address, bytes);
	check_spread(&spread, node, what);
}

/* --- what the kernel counts --- */

/* The number behind @key in a file of such lines; SIZE_MAX if it is not there. */
static size_t number_behind(const char *path, const char *key)
{
	char line[256];
	size_t found = SIZE_MAX;
	FILE *file = fopen(path, "re");
	CHECK(file != NULL);
	while (found == SIZE_MAX && fgets(line, sizeof line, file) != NULL) {
		const char *at = strstr(line, key);
		size_t length = strlen(key);
		if (at != NULL && (at == line || at[-1] == ' ') && strchr(": ", at[length]))
			found = strtoul(at + length + strspn(at + length, ": "), NULL, 10);
	}
	(void)fclose(file);
	return found;
}

size_t node_bytes(int node, const char *key)
{
	char path[64];
	(void)snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", node);
	size_t kib = number_behind(path, key);
	CHECK(kib != SIZE_MAX);
	return kib * 1024;
}

size_t number_in(const char *path)
{
	char text[32] = "";
	FILE *file = fopen(path, "re");
	CHECK(file != NULL && fgets(text, sizeof text, file) != NULL);
	(void)fclose(file);
	return strtoul(text, NULL, 10);
}

size_t vmstat(const char *key)
{
	size_t n = number_behind("/proc/vmstat", key);
	CHECK(n != SIZE_MAX);
	return n;
}

/* --- huge pages --- */

size_t huge_bytes(uintptr_t address, size_t bytes)
{
	struct smaps smaps = {0};
	size_t kib = 0;
	while (smaps_next(&smaps))
		if (smaps.from >= address && smaps.to <= address + bytes)
			kib += smaps_kib(&smaps, "AnonHugePages:");
	return kib * 1024;
}

bool huge_can_be_had(void)
{
	char text[64] = "there are none";
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	bool any = file != NULL && fgets(text, sizeof text, file) != NULL &&
		   strstr(text, "[never]") == NULL;
	if (file != NULL)
		(void)fclose(file);
	if (!any)
		printf("skipped: huge pages interleaved: transparent_hugepage/enabled: %.*s\n",
		       (int)strcspn(text, "\n"), text);
	return any;
}

/* --- where to run, where to put --- */

void run_on(int node)
{
	char path[64];
	char text[256] = "";
	cpu_set_t set;
	CPU_ZERO(&set);
	(void)snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
	FILE *file = fopen(path, "re");
	CHECK(file != NULL && fgets(text, sizeof text, file) != NULL);
	(void)fclose(file);
	for (char *at = text; *at >= '0' && *at <= '9';) {
		long first = strtol(at, &at, 10);
		long last = *at == '-' ? strtol(at + 1, &at, 10) : first;
		for (long cpu = first; cpu <= last; cpu++)
			CPU_SET((size_t)cpu, &set);
		at += *at == ',';
	}
	OK(sched_setaffinity(0, sizeof set, &set));
	unsigned cpu = 0;
	unsigned here = 0;
	CHECK(syscall(SYS_getcpu, &cpu, &here, NULL) == 0 && here == (unsigned)node);
}

struct hoist__placement placement_on(enum hoist__policy policy, int node)
{
	struct hoist__placement placement = {.policy = policy};
	hoist__nodeset_add(&placement.nodes, node);
	return placement;
}

struct hoist__placement placement_all(enum hoist__policy policy)
{
	struct hoist__placement placement = {.policy = policy};
	for (int node = 0; node < count_nodes(); node++)
		hoist__nodeset_add(&placement.nodes, node);
	return placement;
}

struct noted {
	enum hoist__region_step step;
	char text[96];
};

static void take_note(void *arg, const struct hoist__region *region)
{
	struct noted *noted = arg;
	if (noted->text[0] == '\0')
		memcpy(noted->text, region->step_note[noted->step], sizeof noted->text);
}

const char *region_note(struct hoist__pool *pool, enum hoist__region_step step)
{
	static struct noted noted;
	const struct hoist__pool_visitor visitor = {take_note, skip_block};
	noted = (struct noted){.step = step};
	hoist__pool_walk(pool, &visitor, &noted);
	return noted.text;
}
