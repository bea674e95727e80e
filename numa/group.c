/* SPDX-License-Identifier: MIT */
/* numa/group.c - reads the limits of the process's control groups.
 * The contract is in numa/group.h. */
#include "config.h"

#include "numa/group.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/figure.h"
#include "base/log.h"
#include "numa/processors.h"
#include "numa/sysfs.h"

/* v1 says "no limit" with a number; anything from here on means none. */
#define NO_LIMIT ((uint64_t)1 << 60)

/* The mount of the hierarchy that has a controller, and the name of this process's group in it. */
struct place {
	bool v2;
	const char *controller; /* v1: ",memory,", ",cpu,"; v2 has one hierarchy for all */
	char mount[PATH_MAX];
	char group[PATH_MAX]; /* beneath the mount; "" is the mount itself */
};

/* --- finding the group --- */

/* Finds the group's path in a line of /proc/self/cgroup, "ID:CONTROLLERS:PATH": the line of v1's
 * controller, or v2's, which is "0::PATH". */
static bool find_group(const char *text, struct place *place)
{
	for (const char *line = text; *line != '\0';) {
		size_t length = strcspn(line, "\n");
		const char *names = memchr(line, ':', length);
		const char *path =
			names != NULL ? memchr(names + 1, ':', length - (size_t)(names + 1 - line))
				      : NULL;
		if (path != NULL) {
			char list[256];
			(void)snprintf(list, sizeof list, ",%.*s,", (int)(path - names - 1),
				       names + 1);
			bool found = place->v2 ? path == names + 1
					       : strstr(list, place->controller) != NULL;
			if (found) {
				int n = (int)(length - (size_t)(path + 1 - line));
				return snprintf(place->group, sizeof place->group, "%.*s", n,
						path + 1) < (int)sizeof place->group;
			}
		}
		line += length + (line[length] == '\n');
	}
	return false;
}

/* Parses one line of /proc/self/mountinfo: "id parent dev ROOT MOUNT options ... - TYPE source
 * OPTIONS". */
static bool parse_mount(char *line, const struct place *place, char **root, char **mount)
{
	char *rest = NULL;
	char *word = strtok_r(line, " ", &rest);
	for (int i = 0; word != NULL && i < 3; i++)
		word = strtok_r(NULL, " ", &rest);
	*root = word;
	*mount = strtok_r(NULL, " ", &rest);
	while (word != NULL && strcmp(word, "-") != 0)
		word = strtok_r(NULL, " ", &rest);
	const char *type = word != NULL ? strtok_r(NULL, " ", &rest) : NULL;
	(void)strtok_r(NULL, " ", &rest);
	const char *options = strtok_r(NULL, " ", &rest);
	if (type == NULL || *mount == NULL || options == NULL)
		return false;
	char list[512];
	(void)snprintf(list, sizeof list, ",%s,", options);
	return place->v2 ? strcmp(type, "cgroup2") == 0
			 : strcmp(type, "cgroup") == 0 && strstr(list, place->controller) != NULL;
}

/* Keeps the part of the group's path that lies beneath the mount.  A container may see only its own
 * group, under a name that the path does not begin with: then the group is the mount itself. */
static void relate(struct place *place, const char *root)
{
	size_t n = strlen(root);
	if (strcmp(root, "/") == 0)
		n = 0;
	bool beneath = strncmp(place->group, root, n) == 0 &&
		       (place->group[n] == '/' || place->group[n] == '\0');
	if (beneath)
		memmove(place->group, place->group + n, strlen(place->group + n) + 1);
	if (!beneath || strstr(place->group, "/..") != NULL || strcmp(place->group, "/") == 0)
		place->group[0] = '\0';
}

/* The mount point is looked up below @root, so that a test can lay out a machine of its own. */
static bool find_mount(const char *root, struct place *place)
{
	char path[PATH_MAX];
	char *line = NULL;
	size_t room = 0;
	bool found = false;
	if (snprintf(path, sizeof path, "%s/proc/self/mountinfo", root) >= (int)sizeof path)
		return false;
	FILE *file = fopen(path, "re");
	while (file != NULL && !found && getline(&line, &room, file) > 0) {
		char *from;
		char *mount;
		line[strcspn(line, "\n")] = '\0';
		found = parse_mount(line, place, &from, &mount) &&
			snprintf(place->mount, sizeof place->mount, "%s%s", root, mount) <
				(int)sizeof place->mount;
		if (found)
			relate(place, from);
	}
	free(line);
	if (file != NULL)
		(void)fclose(file);
	return found;
}

static bool find_place(const char *root, bool v2, const char *controller, struct place *ret)
{
	char text[8192];
	ret->v2 = v2;
	ret->controller = controller;
	return hoist__sysfs_read(text, sizeof text, root, "proc/self/cgroup") == 0 &&
	       find_group(text, ret) && find_mount(root, ret);
}

/* --- reading its limits --- */

static uint64_t number_in(const struct place *place, const char *name)
{
	int64_t value = 0;
	char text[64];
	/* The file may hold "max", which is not a number. */
	if (hoist__sysfs_read(text, sizeof text, place->mount, "%s/%s", place->group, name) != 0 ||
	    sscanf(text, "%" SCNd64, &value) != 1 || value < 0)
		return UINT64_MAX;
	return (uint64_t)value;
}

/* Returns the number behind @key at the beginning of a line; 0 if there is none. */
static uint64_t value_of(const char *text, const char *key)
{
	size_t n = strlen(key);
	for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
		line += *line == '\n';
		uint64_t value;
		if (strncmp(line, key, n) == 0 && line[n] == ' ' &&
		    sscanf(line + n, " %" SCNu64, &value) == 1)
			return value;
		if (*line == '\0')
			break;
	}
	return 0;
}

/* Returns the bytes in pages of files: the kernel takes these back before it kills a process. */
static uint64_t reclaimable(const struct place *place)
{
	char text[8192];
	if (hoist__sysfs_read(text, sizeof text, place->mount, "%s/memory.stat", place->group) != 0)
		return 0;
	if (place->v2)
		return value_of(text, "active_file") + value_of(text, "inactive_file") +
		       value_of(text, "slab_reclaimable");
	return value_of(text, "total_active_file") + value_of(text, "total_inactive_file");
}

/* Returns the swap that the group uses; v1 counts swap together with memory. */
static uint64_t swap_used(const struct place *place)
{
	uint64_t used =
		number_in(place, place->v2 ? "memory.swap.current" : "memory.memsw.usage_in_bytes");
	uint64_t memory = place->v2 ? 0 : number_in(place, "memory.usage_in_bytes");
	return used != UINT64_MAX && used > memory ? used - memory : 0;
}

/* Returns the swap that the system has left and the group may use. */
static uint64_t swap_left(const char *root, const struct place *place, uint64_t limit)
{
	char text[8192];
	if (hoist__sysfs_read(text, sizeof text, root, "proc/meminfo") != 0)
		return 0;
	const char *at = strstr(text, "SwapFree:");
	uint64_t kib = 0;
	if (at == NULL || sscanf(at, "SwapFree: %" SCNu64, &kib) != 1 || kib == 0)
		return 0;
	uint64_t most =
		number_in(place, place->v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes");
	if (!place->v2 && most != UINT64_MAX) /* v1 limits memory and swap together */
		most = most > limit ? most - limit : 0;
	uint64_t used = swap_used(place);
	uint64_t allowed = most > used ? most - used : 0;
	return hoist__min_u64(kib * HOIST__KIB, allowed);
}

static void look_at(const char *root, const struct place *place, struct hoist__group *least)
{
	uint64_t limit = number_in(place, place->v2 ? "memory.max" : "memory.limit_in_bytes");
	uint64_t used = number_in(place, place->v2 ? "memory.current" : "memory.usage_in_bytes");
	if (limit >= NO_LIMIT || used == UINT64_MAX)
		return;
	uint64_t back = hoist__min_u64(reclaimable(place), used);
	used -= back;
	uint64_t left = (limit > used ? limit - used : 0) + swap_left(root, place, limit);
	if (left >= least->left_bytes)
		return;
	least->limit_bytes = limit;
	least->left_bytes = left;
	(void)snprintf(least->name, sizeof least->name, "%.159s",
		       place->group[0] != '\0' ? place->group : "/");
}

/* Turns to the group that has this one.  False: this one is the topmost. */
static bool go_up(struct place *place)
{
	char *end = strrchr(place->group, '/');
	if (end != NULL)
		*end = '\0';
	return end != NULL;
}

/* Looks at each group from the process's own up to the mount.  Groups above the mount cannot be
 * seen. */
static void look_along(const char *root, struct place *place, struct hoist__group *least)
{
	do
		look_at(root, place, least);
	while (go_up(place));
}

int hoist__group_look(const char *root, struct hoist__group *ret)
{
	struct hoist__group least = {.left_bytes = UINT64_MAX};
	struct place *place = malloc(sizeof *place);
	if (place == NULL)
		return -ENOENT; /* then nothing is known, and nothing is limited */
	for (int v2 = 0; v2 <= 1; v2++)
		if (find_place(root, v2 != 0, ",memory,", place))
			look_along(root, place, &least);
	free(place);
	if (least.left_bytes == UINT64_MAX)
		return -ENOENT;
	*ret = least;
	return 0;
}

/* --- processors --- */

/* The processors that the quota of one group keeps busy. */
static unsigned quota_of(const struct place *place)
{
	uint64_t quota = number_in(place, place->v2 ? "cpu.max" : "cpu.cfs_quota_us");
	uint64_t period = place->v2 ? UINT64_MAX : number_in(place, "cpu.cfs_period_us");
	char text[64];
	/* v2 has both numbers in one file, the quota first. */
	if (place->v2 && quota != UINT64_MAX &&
	    (hoist__sysfs_read(text, sizeof text, place->mount, "%s/cpu.max", place->group) != 0 ||
	     sscanf(text, "%*u %" SCNu64, &period) != 1))
		return UINT_MAX;
	if (quota == 0 || quota == UINT64_MAX || period == 0 || period == UINT64_MAX)
		return UINT_MAX;
	return (unsigned)hoist__min_u64((quota - 1) / period + 1, UINT_MAX);
}

unsigned hoist__group_processors(const char *root)
{
	unsigned least = UINT_MAX;
	struct place *place = malloc(sizeof *place);
	for (int v2 = 0; place != NULL && v2 <= 1; v2++) {
		bool more = find_place(root, v2 != 0, ",cpu,", place);
		for (; more; more = go_up(place))
			least = (unsigned)hoist__min_u64(least, quota_of(place));
	}
	free(place);
	return least;
}

int hoist__group_check(uint64_t bytes, uint64_t spare, const char *what)
{
	struct hoist__group group;
	if (bytes < HOIST__GROUP_LEAST_BYTES || hoist__group_look("", &group) != 0 ||
	    (bytes <= group.left_bytes && spare <= group.left_bytes - bytes))
		return 0;
	return hoist__fail(
		-ENOMEM,
		"%s: %s are needed%s, but the control group %s has %s left of the %s that it "
		"may use, and the kernel would end the process; raise the group's or the "
		"container's memory limit",
		what, hoist__figure(bytes).text, spare > 0 ? ", and some to spare" : "", group.name,
		hoist__figure(group.left_bytes).text, hoist__figure(group.limit_bytes).text);
}
