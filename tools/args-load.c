/* SPDX-License-Identifier: MIT */
/* tools/args-load.c - the options of loads whose values have a grammar of their own.
 * The contract is in tools/args-load.h. */
#include "config.h"

#include "tools/args-load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/args.h"

/* Reads all of @text as a number. */
static bool whole_number(const char *text, int64_t least, int64_t most, int64_t *ret)
{
	char *end = NULL;
	errno = 0;
	long long value = strtoll(text, &end, 10);
	bool digit = (text[0] >= '0' && text[0] <= '9') || text[0] == '-';
	if (!digit || *end != '\0' || errno == ERANGE || value < least || value > most)
		return false;
	*ret = value;
	return true;
}

/* Reads "3/8". */
static bool part_of(char *part, hoist_load_slice *ret)
{
	int64_t rank;
	int64_t n_ranks;
	char *slash = strchr(part, '/');
	if (slash == NULL)
		return false;
	*slash = '\0';
	if (!whole_number(slash + 1, 1, INT32_MAX, &n_ranks) ||
	    !whole_number(part, 0, n_ranks - 1, &rank))
		return false;
	ret->rank = (int)rank;
	ret->n_ranks = (int)n_ranks;
	return true;
}

/* Reads "10..20", "..20", "-5..". */
static bool range(char *part, hoist_load_slice *ret)
{
	char *dots = strstr(part, "..");
	if (dots == NULL)
		return false;
	*dots = '\0';
	ret->end = HOIST_SLICE_END;
	if (dots != part && !whole_number(part, INT64_MIN, INT64_MAX, &ret->begin))
		return false;
	return dots[2] == '\0' || whole_number(dots + 2, INT64_MIN, INT64_MAX, &ret->end);
}

/* Reads "GLOB:AXIS:R/N", the Rth of N equal parts (from 0), or "GLOB:AXIS:BEGIN..END", where BEGIN
 * or END may be left out.  A glob may contain colons: the parts are split off from the right. */
static bool parse_slice(char *text, hoist_load_slice *ret)
{
	*ret = (hoist_load_slice){0};
	char *part = strrchr(text, ':');
	if (part == NULL)
		return false;
	*part++ = '\0';
	char *axis = strrchr(text, ':');
	if (axis == NULL || axis == text)
		return false;
	*axis++ = '\0';
	int64_t number;
	if (!whole_number(axis, INT32_MIN, INT32_MAX, &number))
		return false;
	ret->axis = (int)number;
	ret->tensor = text;
	return strchr(part, '/') != NULL ? part_of(part, ret) : range(part, ret);
}

bool args_load_make(struct load_args *load, size_t words)
{
	*load = (struct load_args){0};
	load->slices = calloc(words, sizeof *load->slices);
	load->replicas = calloc(words, sizeof *load->replicas);
	load->targets = calloc(words, sizeof *load->targets);
	if (load->slices != NULL && load->replicas != NULL && load->targets != NULL)
		return true;
	args_load_free(load);
	return false;
}

void args_load_free(struct load_args *load)
{
	free(load->slices);
	free(load->replicas);
	free(load->targets);
	free(load->target_slices);
	free(load->order);
	*load = (struct load_args){0};
}

static const char *take_slice(struct load_args *load, char *value)
{
	if (!parse_slice(value, &load->slices[load->n_slices]))
		return "GLOB:AXIS:R/N (the Rth of N parts, from 0) or GLOB:AXIS:BEGIN..END";
	load->n_slices++;
	return NULL;
}

/* Splits the first part of a list with commas off.  Returns: the rest; NULL: there is none. */
static char *split(char *list)
{
	char *comma = strchr(list, ',');
	if (comma != NULL)
		*comma++ = '\0';
	return comma;
}

static const char *take_order(struct load_args *load, char *value)
{
	static const char good[] = "NAME,... (names or globs, none of them empty)";
	for (char *name = value; name != NULL;) {
		char *rest = split(name);
		const char **more = reallocarray(load->order, load->n_order + 1, sizeof *more);
		if (more == NULL)
			return "shorter: there is no memory for so many names";
		load->order = more;
		if (name[0] == '\0')
			return good;
		load->order[load->n_order++] = name;
		name = rest;
	}
	return NULL;
}

/* Finds the colon behind "cpu", "cuda" or "cuda:1".  Returns: the colon or the end of the text. */
static char *end_of_device(char *text)
{
	char *colon = text + strcspn(text, ":");
	size_t digits = colon[0] == ':' ? strspn(colon + 1, "0123456789") : 0;
	bool number = digits > 0 && (colon[1 + digits] == ':' || colon[1 + digits] == '\0');
	return number ? colon + 1 + digits : colon;
}

/* Reads "cuda:0", "cuda:0:GLOB:AXIS:R/N,GLOB:AXIS:BEGIN..END". */
static const char *take_target(struct load_args *load, char *value)
{
	static const char good[] = "DEV or DEV:SLICE,... with slices as --slice has them";
	struct target_args *target = &load->targets[load->n_targets];
	char *end = end_of_device(value);
	char *slice = *end == ':' ? end + 1 : NULL;
	*end = '\0';
	*target = (struct target_args){.device = value, .first_slice = load->n_target_slices};
	while (slice != NULL) {
		char *rest = split(slice);
		hoist_load_slice *more =
			reallocarray(load->target_slices, load->n_target_slices + 1, sizeof *more);
		if (more == NULL)
			return "shorter: there is no memory for so many slices";
		load->target_slices = more;
		if (!parse_slice(slice, &more[load->n_target_slices]))
			return good;
		load->n_target_slices++;
		target->n_slices++;
		slice = rest;
	}
	load->n_targets++;
	return value[0] != '\0' ? NULL : good;
}

static const char *take_window(struct load_args *load, const char *value)
{
	size_t bytes = 0;
	if (args_bytes(value, &bytes) != 0 || bytes == 0)
		return "a number of bytes above 0, as 512M or 2G";
	load->window_bytes = bytes;
	return NULL;
}

static const char *take_dtype(struct load_args *load, const char *value)
{
	hoist_dtype dtype = HOIST_DTYPE_INVALID;
	(void)hoist_dtype_from_name(value, &dtype);
	if (dtype != HOIST_F32 && dtype != HOIST_F16 && dtype != HOIST_BF16)
		return "f32, f16 or bf16";
	load->dtype = dtype;
	return NULL;
}

static const char *take_map(struct load_args *load, const char *value)
{
	static const char *const words[] = {
		[HOIST_MAP_COPY_ON_WRITE] = "private",
		[HOIST_MAP_READ_ONLY] = "readonly",
		[HOIST_MAP_READ_WRITE] = "readwrite",
	};
	for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strcmp(value, words[i]) == 0) {
			load->map = (enum hoist_map)i;
			return NULL;
		}
	return "private, readonly or readwrite";
}

static const char *take_chunk(struct load_args *load, const char *value)
{
	size_t bytes = 0;
	if (args_bytes(value, &bytes) != 0 || bytes == 0 || bytes % 4096 != 0 || bytes > 1 << 30)
		return "a multiple of 4K up to 1G";
	load->chunk_bytes = bytes;
	return NULL;
}

static const char *take_depth(struct load_args *load, const char *value)
{
	int64_t depth;
	if (!whole_number(value, 1, 4096, &depth))
		return "a number from 1 to 4096";
	load->depth = (unsigned)depth;
	return NULL;
}

static const char *take_rank(struct load_args *load, char *value)
{
	hoist_load_slice part = {0};
	if (!part_of(value, &part) || part.n_ranks > 128)
		return "R/N: rank R (from 0) of N, which is 128 at most";
	load->rank = (unsigned)part.rank;
	load->n_ranks = (unsigned)part.n_ranks;
	return NULL;
}

static const char *take_group_timeout(struct load_args *load, const char *value)
{
	int64_t seconds;
	if (!whole_number(value, 1, 86400, &seconds))
		return "a number of seconds, from 1 to 86400";
	load->timeout_s = (unsigned)seconds;
	return NULL;
}

static const struct {
	const char *name;
	unsigned flag;
} switches[] = {
	{"populate", HOIST_LOAD_POPULATE},
	{"drop-cache", HOIST_LOAD_DROP_CACHE},
	{"check-digests", HOIST_LOAD_VERIFY},
	{"stream", HOIST_LOAD_STREAM},
};

const char *args_load_take(struct load_args *load, const char *name, char *value)
{
	if (load->given == NULL)
		load->given = name;
	if (strcmp(name, "map") == 0 || strcmp(name, "populate") == 0)
		load->of_map = name;
	for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++)
		if (strcmp(name, switches[i].name) == 0) {
			load->flags |= switches[i].flag;
			return NULL;
		}
	if (strcmp(name, "into") == 0) {
		load->into = true;
		return NULL;
	}
	if (strcmp(name, "slice") == 0)
		return take_slice(load, value);
	if (strcmp(name, "dtype") == 0)
		return take_dtype(load, value);
	if (strcmp(name, "map") == 0)
		return take_map(load, value);
	if (strcmp(name, "chunk") == 0)
		return take_chunk(load, value);
	if (strcmp(name, "depth") == 0)
		return take_depth(load, value);
	if (strcmp(name, "group") == 0) {
		load->group = value;
		return NULL;
	}
	if (strcmp(name, "timeline") == 0) {
		load->timeline = value;
		load->flags |= HOIST_LOAD_TIMELINE;
		return value[0] != '\0' ? NULL : "the name of a file";
	}
	if (strcmp(name, "rank") == 0)
		return take_rank(load, value);
	if (strcmp(name, "group-timeout") == 0)
		return take_group_timeout(load, value);
	if (strcmp(name, "window") == 0)
		return take_window(load, value);
	if (strcmp(name, "order") == 0)
		return take_order(load, value);
	if (strcmp(name, "target") == 0)
		return take_target(load, value);
	/* Only --replica is left. */
	load->replicas[load->n_replicas++] = value;
	return NULL;
}
