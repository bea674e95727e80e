/* SPDX-License-Identifier: MIT */
/* numa/sysfs.c - reads small sysfs files: numbers and lists of ids.
 * The contract is in numa/sysfs.h. */
#include "config.h"

#include "numa/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static int read_whole(const char *path, char *buffer, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	size_t used = 0;
	int err = 0;
	while (used < bytes - 1) {
		ssize_t n = read(fd, buffer + used, bytes - 1 - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			err = -errno;
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	close(fd);
	buffer[used] = '\0';
	return err;
}

HOIST__PRINTF(3, 0)
static int make_path(char *path, const char *root, const char *format, va_list args)
{
	int head = snprintf(path, PATH_MAX, "%s/", root);
	if (head < 0 || head >= PATH_MAX)
		return -ENAMETOOLONG;
	int tail = vsnprintf(path + head, (size_t)(PATH_MAX - head), format, args);
	return tail < 0 || tail >= PATH_MAX - head ? -ENAMETOOLONG : 0;
}

int hoist__sysfs_read(char *buffer, size_t bytes, const char *root, const char *format, ...)
{
	char path[PATH_MAX];
	va_list args;
	va_start(args, format);
	int err = make_path(path, root, format, args);
	va_end(args);
	return err != 0 ? err : read_whole(path, buffer, bytes);
}

int hoist__sysfs_number(int64_t *ret, const char *root, const char *format, ...)
{
	char path[PATH_MAX];
	va_list args;
	va_start(args, format);
	int err = make_path(path, root, format, args);
	va_end(args);
	char text[64];
	if (err == 0)
		err = read_whole(path, text, sizeof text);
	if (err != 0)
		return err;
	char *end;
	errno = 0;
	long long value = strtoll(text, &end, 10);
	if (end == text || errno != 0 || (*end != '\n' && *end != '\0')) {
		hoist__log(numa, "%s: not a number", path);
		return -EBADMSG;
	}
	*ret = value;
	return 0;
}

static int append(struct hoist__ids *ids, int id)
{
	if (ids->n_ids == ids->capacity) {
		size_t capacity = ids->capacity == 0 ? 64 : 2 * ids->capacity;
		int *grown = realloc(ids->ids, capacity * sizeof *grown);
		if (grown == NULL)
			return hoist__fail_nomem("list of CPUs", capacity * sizeof *grown);
		ids->ids = grown;
		ids->capacity = capacity;
	}
	ids->ids[ids->n_ids++] = id;
	return 0;
}

/* Returns the id at *@text, and moves *@text behind it; -1 if there is none. */
static long parse_id(const char **text)
{
	if (**text < '0' || **text > '9')
		return -1;
	char *end;
	errno = 0;
	long id = strtol(*text, &end, 10);
	*text = end;
	return errno != 0 || id >= HOIST__MAX_CPUS ? -1 : id;
}

int hoist__ids_parse(struct hoist__ids *ids, const char *text, const char *what)
{
	const char *at = text;
	while (*at != '\0' && *at != '\n') {
		long first = parse_id(&at);
		long last = first;
		if (first >= 0 && *at == '-') {
			at++;
			last = parse_id(&at);
		}
		bool ascends = ids->n_ids == 0 || first > ids->ids[ids->n_ids - 1];
		if (first < 0 || last < first || !ascends) {
			hoist__log(numa, "%s: malformed list '%.*s'", what,
				   (int)strcspn(text, "\n"), text);
			return 0;
		}
		for (long id = first; id <= last; id++) {
			int err = append(ids, (int)id);
			if (err != 0)
				return err;
		}
		if (*at == ',')
			at++;
		else if (*at != '\0' && *at != '\n')
			hoist__log(numa, "%s: '%c' in a list", what, *at);
		else
			break;
	}
	return 0;
}
