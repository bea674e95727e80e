/* SPDX-License-Identifier: MIT */
/* emulator/settings.c - reads the environment of a stand-in driver, once, at its first call.
 * The contract is in emulator/control.h and emulator/core.h. */
#include "config.h"

#include "emulator/core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MEMORY ((uint64_t)16 << 30)
#define DEFAULT_LATENCY_MIN_US 10
#define DEFAULT_LATENCY_MAX_US 200

/* Parses digits at *@text, and moves *@text behind them. */
static bool parse_number(const char **text, uint64_t *ret)
{
	if (**text < '0' || **text > '9')
		return false;
	char *end = NULL;
	errno = 0;
	unsigned long long value = strtoull(*text, &end, 10);
	if (errno != 0)
		return false;
	*text = end;
	*ret = value;
	return true;
}

/* Parses "16G": the suffixes are powers of 1024. */
static bool parse_bytes(const char *text, uint64_t *ret)
{
	static const char suffixes[] = "KMGT";
	uint64_t value = 0;
	if (!parse_number(&text, &value))
		return false;
	const char *suffix = *text == '\0' ? NULL : strchr(suffixes, *text & ~0x20);
	unsigned shift = 0;
	if (suffix != NULL) {
		shift = 10 * (unsigned)(suffix - suffixes + 1);
		text++;
	}
	if (*text != '\0' || value > UINT64_MAX >> shift)
		return false;
	*ret = value << shift;
	return true;
}

/* Parses "MIN..MAX" or "MAX", in microseconds. */
static bool parse_latency(const char *text, uint64_t ret_ns[2])
{
	uint64_t low = 0;
	uint64_t high = 0;
	if (!parse_number(&text, &high))
		return false;
	if (strncmp(text, "..", 2) == 0) {
		text += 2;
		low = high;
		if (!parse_number(&text, &high))
			return false;
	}
	if (*text != '\0' || low > high || high > 1000000000)
		return false;
	ret_ns[0] = low * 1000;
	ret_ns[1] = high * 1000;
	return true;
}

/* Parses the number behind this stand-in's name in "cuda:2,hip:1"; a name alone means 1. */
static bool parse_devices(const char *text, int *ret)
{
	size_t name = strlen(hoist__emu_face.api);
	int found = 0;
	while (*text != '\0') {
		size_t length = strcspn(text, ",");
		if (length >= name && memcmp(text, hoist__emu_face.api, name) == 0 &&
		    (length == name || text[name] == ':')) {
			uint64_t n = 1;
			const char *number = text + name + 1;
			if (length > name &&
			    (!parse_number(&number, &n) || number != text + length))
				return false;
			if (n > EMU_MAX_DEVICES)
				return false;
			found = (int)n;
		}
		text += length + (text[length] == ',');
	}
	*ret = found;
	return true;
}

static bool parse_seed(const char *text, uint64_t *ret)
{
	return parse_number(&text, ret) && *text == '\0';
}

static const char *variable(const char *name)
{
	const char *value = secure_getenv(name);
	return value != NULL && *value != '\0' ? value : NULL;
}

bool hoist__emu_settings_read(struct hoist__emu_settings *ret, char *problem, size_t bytes)
{
	*ret = (struct hoist__emu_settings){
		.memory = DEFAULT_MEMORY,
		.latency_ns = {DEFAULT_LATENCY_MIN_US * 1000, DEFAULT_LATENCY_MAX_US * 1000},
		.seed = 1,
	};
	/* `name` and `value` are those of the variable read last, for the message. */
	const char *name = "HOIST_EMULATE";
	const char *value = variable(name);
	bool good = value == NULL || parse_devices(value, &ret->n_devices);
	if (good && (value = variable(name = "HOIST_EMULATE_MEMORY")) != NULL)
		good = parse_bytes(value, &ret->memory) && ret->memory <= EMU_MAX_MEMORY;
	if (good && (value = variable(name = "HOIST_EMULATE_RATE")) != NULL)
		good = parse_bytes(value, &ret->rate);
	if (good && (value = variable(name = "HOIST_EMULATE_LATENCY")) != NULL)
		good = parse_latency(value, ret->latency_ns);
	if (good && (value = variable(name = "HOIST_EMULATE_RESIDENT")) != NULL)
		good = parse_bytes(value, &ret->resident) && ret->resident <= ret->memory;
	if (good && (value = variable(name = "HOIST_EMULATE_REGISTER_MOST")) != NULL)
		good = parse_bytes(value, &ret->register_most);
	if (good && (value = variable(name = "HOIST_EMULATE_SEED")) != NULL)
		good = parse_seed(value, &ret->seed);
	if (!good)
		(void)snprintf(problem, bytes, "%s=%.80s is not understood", name, value);
	return good;
}
