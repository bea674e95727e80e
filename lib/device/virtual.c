/* SPDX-License-Identifier: MIT */
/* lib/device/virtual.c - hoist_virtual_set() and hoist_virtual_get().
 * The contract is in hoist/device.h; device/virtual.h keeps the settings. */
#include "config.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "device/virtual.h"
#include "hoist/compat.h"
#include "hoist/device.h"
#include "lib/core/options.h"

_Static_assert(HOIST_VIRTUAL_MAX == HOIST__MAX_VIRTUAL, "the public limit");
_Static_assert(sizeof((hoist_virtual_info *)0)->architecture == HOIST__ARCHITECTURE_BYTES,
	       "the public struct holds one");

static int api_of(const char *name, enum hoist__api *ret)
{
	static const enum hoist__api known[] = {HOIST__API_CUDA, HOIST__API_HIP};
	for (size_t i = 0; name != NULL && i < sizeof known / sizeof known[0]; i++)
		if (strcmp(hoist__api_name(known[i]), name) == 0) {
			*ret = known[i];
			return 0;
		}
	return hoist__fail(-EINVAL, "\"%.64s\" names no API of virtual devices; say cuda or hip",
			   name != NULL ? name : "");
}

/* Accepts "sm_80" and "sm_90a" for CUDA, and for HIP "gfx942", with or without features after it:
 * "gfx90a:sramecc+:xnack-". */
static bool is_architecture(enum hoist__api api, const char *text)
{
	if (strlen(text) >= HOIST__ARCHITECTURE_BYTES)
		return false;
	const char *prefix = api == HOIST__API_CUDA ? "sm_" : "gfx";
	size_t length = strlen(prefix);
	if (strncmp(text, prefix, length) != 0)
		return false;
	text += length;
	if (api == HOIST__API_HIP) {
		length = strspn(text, "0123456789abcdef");
		return length > 0 && (text[length] == '\0' || text[length] == ':');
	}
	length = strspn(text, "0123456789");
	return length > 0 && strlen(text + length) == strspn(text + length, "af") &&
	       strlen(text + length) <= 1;
}

int hoist_virtual_set(const char *api_name, const char *architecture, int count)
{
	enum hoist__api api;
	int err = api_of(api_name, &api);
	if (err < 0)
		return err;
	if (count < 0 || count > HOIST_VIRTUAL_MAX)
		return hoist__fail(-EINVAL, "%d virtual devices; there can be 0 to %d", count,
				   HOIST_VIRTUAL_MAX);
	if (architecture != NULL && !is_architecture(api, architecture))
		return hoist__fail(
			-EINVAL, "\"%.64s\" is no architecture of %s; say for example %s",
			architecture, api_name, api == HOIST__API_CUDA ? "sm_90" : "gfx942");
	err = hoist__virtual_set(api, architecture != NULL ? architecture : "", count);
	return err < 0 ? hoist__fail_in(err, "%d virtual devices", count) : 0;
}

int hoist_virtual_get(const char *api_name, hoist_virtual_info *info)
{
	hoist_virtual_info known = {.size = sizeof known};
	enum hoist__api api;
	int err = api_of(api_name, &api);
	if (err == 0)
		err = hoist__virtual_get(api, known.architecture, &known.count);
	return err < 0 ? err : hoist__options_out("hoist_virtual_info", info, &known, sizeof known);
}
