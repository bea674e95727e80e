/* SPDX-License-Identifier: MIT */
/* Counts the things that a process holds, by the kernel, malloc, the stand-in drivers and the
 * budget. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/granule.h"
#include "tests/support/load-support.h"

hoist_budget *sweep_budget;

/* 0: it cannot be listed. */
static long count_names(const char *path)
{
	long n = 0;
	DIR *folder = opendir(path);
	if (folder == NULL)
		return 0;
	while (readdir(folder) != NULL)
		n++;
	(void)closedir(folder);
	return n;
}

/* "": it cannot be read. */
static const char *read_all(const char *path)
{
	static char text[1 << 18];
	size_t used = 0;
	ssize_t got = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return "";
	while (used + 1 < sizeof text && (got = read(fd, text + used, sizeof text - 1 - used)) > 0)
		used += (size_t)got;
	(void)close(fd);
	text[used] = '\0';
	return text;
}

/* Nobody but hoist maps files, and what has no file but a descriptor (memfd, io_uring): these
 * are counted to the byte.  Mappings that have neither are counted, too, except malloc's heap, of
 * which free blocks are a part, and the kernel's own mappings. */
static void count_mapped(const char *maps, struct sweep_counts *ret)
{
	unsigned long files = 0;
	unsigned long others = 0;
	for (const char *line = read_all(maps); *line != '\0';) {
		unsigned long begin = 0;
		unsigned long end = 0;
		int at = 0;
		const char *next = strchr(line, '\n');
		if (next == NULL)
			next = line + strlen(line);
		if (sscanf(line, "%lx-%lx %*s %*s %*s %*s%n", &begin, &end, &at) < 2 || at == 0)
			sweep_die("%s is not understood", maps);
		const char *name = line + at;
		while (name < next && *name == ' ')
			name++;
		if (name == next || strncmp(name, "[anon", 5) == 0)
			others += end - begin;
		else if (*name != '[')
			files += end - begin;
		line = *next == '\0' ? next : next + 1;
	}
	ret->mapped_files_kib = (long)(files >> 10);
	/* A sanitizer's own grow. */
	ret->anonymous_kib = SWEEP_SANITIZED ? 0 : (long)(others >> 10);
}

/* Leaves of the allocator's page map stay mapped: one for each 4 GiB of addresses in which a region
 * ever was.  How many there are depends on where the kernel puts regions. */
static long page_map_kib(void)
{
	long n = 0;
	for (size_t i = 0; i < sizeof hoist__granule_root / sizeof hoist__granule_root[0]; i++)
		n += hoist__granule_root[i] != NULL;
	return n * (long)(HOIST__LEAF_MAPPED_BYTES >> 10);
}

static long count_locked(void)
{
	long kib = 0;
	const char *line = strstr(read_all("/proc/self/status"), "VmLck:");
	if (line != NULL)
		(void)sscanf(line, "VmLck: %ld", &kib);
	return kib;
}

static void count_driver(const char *api, struct sweep_counts *ret)
{
	void (*read)(struct hoist_emulator_counters *);
	struct hoist_emulator_counters c;
	*(void **)&read = support_control(api, "hoist_emulator_counters");
	if (read == NULL)
		return;
	read(&c);
	ret->driver_allocations += (long)c.live_allocations;
	ret->driver_bytes += (long)c.live_bytes;
	ret->driver_registrations += (long)c.live_registrations;
	ret->driver_streams += (long)c.live_streams;
	ret->driver_events += (long)c.live_events;
	ret->driver_pools += (long)c.live_pools;
	ret->driver_imports += (long)c.live_imports;
	ret->driver_misuses += (long)(c.bad_frees + c.use_after_free + c.bad_copies +
				      c.pageable_copies + c.broken_captures + c.bad_calls);
}

/* glibc keeps the stacks of the threads that ended last, 40 MiB at most, whatever its settings are.
 * settle_stacks() fills that with stacks of its own threads, which are there at the same time: each
 * count finds as many. */
#define N_STACKS 4

static void *meet(void *all_there)
{
	(void)pthread_barrier_wait(all_there);
	return NULL;
}

static void settle_stacks(void)
{
	pthread_t threads[N_STACKS];
	pthread_barrier_t all_there;
	if (pthread_barrier_init(&all_there, NULL, N_STACKS) != 0)
		sweep_die("no barrier to count with");
	for (int i = 0; i < N_STACKS; i++)
		if (pthread_create(&threads[i], NULL, meet, &all_there) != 0)
			sweep_die("no thread to count with");
	for (int i = 0; i < N_STACKS; i++)
		(void)pthread_join(threads[i], NULL);
	(void)pthread_barrier_destroy(&all_there);
}

/* 1: a holder that could not start; 127: a program that could not. */
bool sweep_reap(void)
{
	int status = 0;
	pid_t ended;
	while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
		if (!WIFEXITED(status) || (WEXITSTATUS(status) > 1 && WEXITSTATUS(status) != 127))
			sweep_wrong("a process that was started ended with status 0x%x",
				    (unsigned)status);
	return ended == 0;
}

void sweep_count(struct sweep_counts *ret)
{
	memset(ret, 0, sizeof *ret);
	if (!SWEEP_SANITIZED) /* whose memory is not counted: count_mapped() */
		settle_stacks();
	ret->blocks = sweep_memory_live(); /* before anything is opened here */
	/* A caller whose process could not start may have left the wait for its end to others. */
	ret->children = sweep_reap();
	ret->descriptors = count_names("/proc/self/fd");
	ret->threads = count_names("/proc/self/task");
	count_mapped("/proc/self/maps", ret);
	if (!SWEEP_SANITIZED)
		ret->anonymous_kib -= page_map_kib();
	ret->locked_kib = count_locked();
	ret->names = count_names(sweep_path(""));
	if (ret->descriptors == 0 || ret->threads == 0 || ret->mapped_files_kib == 0 ||
	    ret->names == 0)
		sweep_die("what this process holds cannot be counted");
	ret->budget_bytes = sweep_budget != NULL ? (long)hoist_budget_used(sweep_budget) : 0;
	count_driver("cuda", ret);
	count_driver("hip", ret);
	if (SWEEP_SANITIZED) /* pools are watched there, and keep what is free as long as they may
			      */
		ret->driver_registrations = 0;
}

bool sweep_count_other(pid_t pid, struct sweep_counts *ret)
{
	char path[64];
	memset(ret, 0, sizeof *ret);
	(void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	ret->descriptors = count_names(path);
	(void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	ret->threads = count_names(path);
	(void)snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
	count_mapped(path, ret);
	return ret->descriptors > 0 && ret->threads > 0 && ret->mapped_files_kib > 0;
}

bool sweep_counts_more(const struct sweep_counts *now, const struct sweep_counts *idle, char *text,
		       size_t room)
{
	size_t used = 0;
	bool more = false;
#define X(name)                                                                                    \
	if (now->name > idle->name) {                                                              \
		if (used < room)                                                                   \
			used += (size_t)snprintf(text + used, room - used,                         \
						 "%s" #name " %ld, not %ld", more ? ", " : "",     \
						 now->name, idle->name);                           \
		more = true;                                                                       \
	}
	SWEEP_COUNTS(X)
#undef X
	return more;
}
