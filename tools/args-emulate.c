/* SPDX-License-Identifier: MIT */
/* tools/args-emulate.c - the options of `hoist emulate`.
 * The contract is in tools/args-emulate.h. */
#include "config.h"

#include "tools/args-emulate.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEVICES 64

static bool is_number(const char *text, const char **end, unsigned long most)
{
	char *after = NULL;
	errno = 0;
	unsigned long value = *text >= '0' && *text <= '9' ? strtoul(text, &after, 10) : 0;
	if (after == NULL || errno != 0 || value > most)
		return false;
	*end = after;
	return true;
}

/* "cuda", "cuda:2", "cuda:2,hip:1" */
static bool is_devices(const char *text)
{
	do {
		const char *rest = strncmp(text, "cuda", 4) == 0  ? text + 4
				   : strncmp(text, "hip", 3) == 0 ? text + 3
								  : NULL;
		/* "cuda:0" names a device elsewhere, and would be none here. */
		if (rest == NULL ||
		    (*rest == ':' && (rest[1] == '0' || !is_number(rest + 1, &rest, MOST_DEVICES))))
			return false;
		if (*rest == '\0')
			return true;
		if (*rest != ',')
			return false;
		text = rest + 1;
	} while (*text != '\0');
	return false;
}

static bool is_bytes(const char *text)
{
	const char *rest = NULL;
	return is_number(text, &rest, (unsigned long)-1) &&
	       (*rest == '\0' || (strchr("KMGTkmgt", *rest) != NULL && rest[1] == '\0'));
}

static bool is_latency(const char *text)
{
	const char *rest = NULL;
	if (!is_number(text, &rest, 1000000000))
		return false;
	if (strncmp(rest, "..", 2) != 0)
		return *rest == '\0';
	return is_number(rest + 2, &rest, 1000000000) && *rest == '\0' &&
	       strtoul(text, NULL, 10) <= strtoul(strstr(text, "..") + 2, NULL, 10);
}

static bool is_text(const char *text)
{
	return *text != '\0';
}

static const struct {
	const char *name;
	const char *variable;
	bool (*is_right)(const char *text);
	const char *expected;
} table[N_EMULATE_OPTIONS] = {
	{"devices", "HOIST_EMULATE", is_devices,
	 "numbers of devices, as cuda:2 or cuda:1,hip:1, from 1 to 64"},
	{"memory", "HOIST_EMULATE_MEMORY", is_bytes, "a number of bytes, as 256M or 16G"},
	{"rate", "HOIST_EMULATE_RATE", is_bytes,
	 "a number of bytes a second, as 20G; 0: unlimited"},
	{"latency", "HOIST_EMULATE_LATENCY", is_latency, "microseconds, as 200 or 10..200"},
	{"fail", "HOIST_EMULATE_FAIL", is_text, "as cuMemAlloc:3 or cuMemAlloc:1+:2"},
	{"report", "HOIST_EMULATE_REPORT", is_text, "the name of a file"},
};

const char *args_emulate_take(struct emulate_args *args, const char *name, const char *value)
{
	for (int i = 0; i < N_EMULATE_OPTIONS; i++) {
		if (strcmp(table[i].name, name) != 0)
			continue;
		if (!table[i].is_right(value))
			return table[i].expected;
		args->values[i] = value;
	}
	return NULL;
}

int args_emulate_export(const struct emulate_args *args)
{
	const char *before = secure_getenv("HOIST_EMULATE");
	if ((before == NULL || *before == '\0') && setenv(table[0].variable, "cuda:1", 1) != 0)
		return -ENOMEM;
	for (int i = 0; i < N_EMULATE_OPTIONS; i++)
		if (args->values[i] != NULL && setenv(table[i].variable, args->values[i], 1) != 0)
			return -ENOMEM;
	return 0;
}
