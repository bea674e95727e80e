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
	if (load->slices != NULL && load->replicas != NULL)
		return true;
	args_load_free(load);
	return false;
}

void args_load_free(struct load_args *load)
{
	free(load->slices);
	free(load->replicas);
	*load = (struct load_args){0};
}

static const char *take_slice(struct load_args *load, char *value)
{
	if (!parse_slice(value, &load->slices[load->n_slices]))
		return "GLOB:AXIS:R/N (the Rth of N parts, from 0) or GLOB:AXIS:BEGIN..END";
	load->n_slices++;
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

static const struct {
	const char *name;
	unsigned flag;
} switches[] = {
	{"populate", HOIST_LOAD_POPULATE},
	{"drop-cache", HOIST_LOAD_DROP_CACHE},
	{"check-digests", HOIST_LOAD_VERIFY},
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
	/* Only --replica is left. */
	load->replicas[load->n_replicas++] = value;
	return NULL;
}
