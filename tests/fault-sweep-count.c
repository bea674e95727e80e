/* SPDX-License-Identifier: MIT */
/* What a process holds, as the kernel, malloc, the stand-in drivers and the budget have it. */
#include "config.h"

#include "tests/fault-sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/load-support.h"

hoist_budget *sweep_budget;

static long count_names(const char *path)
{
	long n = 0;
	DIR *folder = opendir(path);
	if (folder == NULL)
		sweep_die("%s cannot be listed", path);
	while (readdir(folder) != NULL)
		n++;
	(void)closedir(folder);
	return n;
}

static const char *read_all(const char *path)
{
	static char text[1 << 18];
	size_t used = 0;
	ssize_t got = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		sweep_die("%s cannot be read", path);
	while (used + 1 < sizeof text && (got = read(fd, text + used, sizeof text - 1 - used)) > 0)
		used += (size_t)got;
	(void)close(fd);
	text[used] = '\0';
	return text;
}

/* Without malloc's heap, of which free blocks are a part, and the kernel's own. */
static long count_mapped(void)
{
	unsigned long bytes = 0;
	for (const char *line = read_all("/proc/self/maps"); *line != '\0';) {
		unsigned long begin = 0;
		unsigned long end = 0;
		const char *next = strchr(line, '\n');
		const char *bracket = strchr(line, '[');
		if (next == NULL)
			next = line + strlen(line);
		bool own = bracket != NULL && bracket < next && strncmp(bracket, "[anon", 5) != 0;
		if (!own && sscanf(line, "%lx-%lx", &begin, &end) == 2)
			bytes += end - begin;
		line = *next == '\0' ? next : next + 1;
	}
	return (long)(bytes >> 10);
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

void sweep_count(struct sweep_counts *ret)
{
	memset(ret, 0, sizeof *ret);
	ret->blocks = sweep_memory_live(); /* before anything is opened here */
	/* Who started a process in vain may have left its end to others. */
	while (waitpid(-1, NULL, WNOHANG) > 0)
		continue;
	ret->children = waitpid(-1, NULL, WNOHANG) == 0;
	ret->descriptors = count_names("/proc/self/fd");
	ret->threads = count_names("/proc/self/task");
	ret->mapped_kib = count_mapped();
	ret->locked_kib = count_locked();
	ret->names = count_names(sweep_path(""));
	ret->budget_bytes = sweep_budget != NULL ? (long)hoist_budget_used(sweep_budget) : 0;
	count_driver("cuda", ret);
	count_driver("hip", ret);
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
