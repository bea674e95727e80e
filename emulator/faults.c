/* SPDX-License-Identifier: MIT */
/* emulator/faults.c - injected failures: the Nth use of a function, of any function, of a copy.
 * The contract is in emulator/control.h and emulator/core.h. */
#include "config.h"

#include "emulator/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool same(const char *text, size_t length, const char *name)
{
	return strlen(name) == length && memcmp(text, name, length) == 0;
}

/* Returns an index, EMU_FAULT_ANY or EMU_FAULT_ASYNC; -EINVAL; -ENOENT for a function of the other
 * stand-in. */
static int find_use(const char *text, size_t length)
{
	const struct hoist__emu_face *face = &hoist__emu_face;
	if (same(text, length, "any"))
		return EMU_FAULT_ANY;
	if (same(text, length, "async"))
		return EMU_FAULT_ASYNC;
	for (unsigned i = 0; i < face->n_functions; i++)
		if (same(text, length, face->functions[i].symbol) ||
		    same(text, length, face->functions[i].name))
			return (int)i;
	if (strncmp(text, face->other_prefix, strlen(face->other_prefix)) == 0)
		return -ENOENT;
	return -EINVAL;
}

/* Parses digits at *@text, and moves *@text behind them; false for anything else. */
static bool parse_count(const char **text, unsigned long long most, unsigned long long *ret)
{
	if (**text < '0' || **text > '9')
		return false;
	char *end = NULL;
	errno = 0;
	*ret = strtoull(*text, &end, 10);
	*text = end;
	return errno == 0 && *ret <= most;
}

static int default_code(int function)
{
	if (function == EMU_FAULT_ASYNC)
		return EMU_ILLEGAL_ADDRESS;
	return function < 0 ? EMU_UNKNOWN : hoist__emu_face.default_error((unsigned)function);
}

/* Parses one "what:N[+][:code]" at *@text.
 * Returns: 0 (with *@text behind it), -ENOENT (likewise) or -EINVAL. */
static int parse_fault(const char **text, struct hoist__emu_fault *ret)
{
	size_t length = strcspn(*text, ":,");
	int use = find_use(*text, length);
	const char *at = *text + length;
	unsigned long long left = 0;
	unsigned long long code = 0;
	if (use == -EINVAL || *at++ != ':' || !parse_count(&at, UINT64_MAX, &left) || left == 0)
		return -EINVAL;
	bool repeats = *at == '+';
	at += repeats;
	if (*at == ':') {
		at++;
		if (!parse_count(&at, 9999, &code) || code == 0)
			return -EINVAL;
	}
	if (*at != '\0' && *at != ',')
		return -EINVAL;
	*text = at + (*at == ',');
	if (use == -ENOENT)
		return -ENOENT;
	*ret = (struct hoist__emu_fault){
		.function = use,
		.left = left,
		.repeats = repeats,
		.code = code != 0 ? (int)code : 0,
	};
	return 0;
}

int hoist__emu_faults_set(const char *spec)
{
	struct hoist__emu_fault faults[EMU_MAX_FAULTS];
	unsigned n = 0;
	const char *at = spec == NULL ? "" : spec;
	while (*at != '\0') {
		struct hoist__emu_fault fault;
		int err = parse_fault(&at, &fault);
		if (err == -ENOENT)
			continue;
		if (err < 0)
			return err;
		if (n == EMU_MAX_FAULTS)
			return -E2BIG;
		faults[n++] = fault;
	}
	memcpy(hoist__emu.faults, faults, n * sizeof faults[0]);
	hoist__emu.n_faults = n;
	return 0;
}

int hoist__emu_fault_due(int function)
{
	int due = 0;
	for (unsigned i = 0; i < hoist__emu.n_faults; i++) {
		struct hoist__emu_fault *fault = &hoist__emu.faults[i];
		bool counts = fault->function == function ||
			      (fault->function == EMU_FAULT_ANY && function >= 0);
		if (!counts || fault->left == 0)
			continue;
		if (fault->left > 1) {
			fault->left--;
			continue;
		}
		/* A repeating fault stays at its last use. */
		if (!fault->repeats)
			fault->left = 0;
		due = fault->code != 0 ? fault->code : default_code(function);
	}
	if (due != 0)
		hoist__emu.count.injected_failures++;
	return due;
}
