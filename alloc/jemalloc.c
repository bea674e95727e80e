/* SPDX-License-Identifier: MIT */
/* alloc/jemalloc.c - finds jemalloc in the program, and calls its mallctl().
 * The contract is in alloc/jemalloc.h. */
#include "config.h"

#include "alloc/jemalloc.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* arena.<i>.destroy works since 5.0; the hooks are called as heap.c expects since 5.2. */
#define MAJOR 5
#define MINOR 2

/* dlsym() gives a pointer to data.  POSIX says that it may be a function's address. */
static bool look_up(const char *prefix, const char *name, void *function)
{
	char symbol[32];
	(void)snprintf(symbol, sizeof symbol, "%s%s", prefix, name);
	void *found = dlsym(RTLD_DEFAULT, symbol);
	memcpy(function, &found, sizeof found);
	return found != NULL;
}

static bool look_up_all(const char *prefix, struct hoist__je *ret)
{
	return look_up(prefix, "mallocx", &ret->mallocx) &&
	       look_up(prefix, "dallocx", &ret->dallocx) &&
	       look_up(prefix, "sallocx", &ret->sallocx) &&
	       look_up(prefix, "mallctl", &ret->mallctl);
}

int hoist__je_find(struct hoist__je *ret)
{
	struct hoist__je je = {.version = NULL};
	if (!look_up_all("", &je) && !look_up_all("je_", &je))
		return hoist__fail(-ENOTSUP,
				   "heap memory: the program has no jemalloc; link it with "
				   "-ljemalloc, or run it with LD_PRELOAD=libjemalloc.so.2 (one "
				   "that is linked statically is seen with -rdynamic)");
	int err = hoist__je_ctl(&je, "version", &je.version, NULL, sizeof je.version);
	if (err != 0)
		return hoist__fail_errno(-ENOTSUP,
					 "heap memory: jemalloc does not say its version");
	char *end;
	long major = strtol(je.version, &end, 10);
	long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
	if (major < MAJOR || (major == MAJOR && minor < MINOR))
		return hoist__fail(
			-ENOTSUP,
			"heap memory: the program's jemalloc is %s; it takes %d.%d or newer",
			je.version, MAJOR, MINOR);
	*ret = je;
	return 0;
}

int hoist__je_ctl(const struct hoist__je *je, const char *name, void *old, const void *new,
		  size_t bytes)
{
	size_t old_bytes = bytes;
	/* mallctl() takes a pointer that is not const to data that it only reads. */
	void *value = (void *)(uintptr_t) new;
	return -je->mallctl(name, old, old == NULL ? NULL : &old_bytes, value,
			    new == NULL ? 0 : bytes);
}

int hoist__je_arena_set(const struct hoist__je *je, unsigned arena, const char *name,
			const void *new, size_t bytes)
{
	char text[64];
	(void)snprintf(text, sizeof text, "arena.%u.%s", arena, name);
	return hoist__je_ctl(je, text, NULL, new, bytes);
}

size_t hoist__je_arena_stat(const struct hoist__je *je, unsigned arena, const char *name)
{
	char text[64];
	size_t figure = 0;
	(void)snprintf(text, sizeof text, "stats.arenas.%u.%s", arena, name);
	return hoist__je_ctl(je, text, &figure, NULL, sizeof figure) == 0 ? figure : 0;
}
