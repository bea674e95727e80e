/* SPDX-License-Identifier: MIT */
/* device/loaded.c - finds a driver that other code has loaded into this process.
 * The contract is in device/query.h.
 *
 * Frameworks bring drivers' libraries under names of their own.  So hoist looks through the names
 * of the loaded libraries instead of trying a list of names. */
#include "config.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "device/query.h"

/* For one api, the library that was found, or the number of libraries that had been loaded when
 * none was found. */
struct seen {
	_Atomic(void *) library;
	atomic_ullong adds;
};

static struct seen seen[HOIST__N_APIS];

struct search {
	const char *prefix;
	unsigned long long adds_before;
	unsigned long long adds;
	char path[PATH_MAX];
};

static int look(struct dl_phdr_info *info, size_t bytes, void *argument)
{
	struct search *search = argument;
	(void)bytes;
	search->adds = info->dlpi_adds;
	if (search->adds == search->adds_before)
		return 1;
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *name = slash == NULL ? info->dlpi_name : slash + 1;
	if (strncmp(name, search->prefix, strlen(search->prefix)) != 0)
		return 0;
	(void)snprintf(search->path, sizeof search->path, "%s", info->dlpi_name);
	return 1;
}

void *hoist__loaded(enum hoist__api api, const char *prefix)
{
	void *library = atomic_load(&seen[api].library);
	if (library != NULL)
		return library;
	struct search search = {.prefix = prefix, .adds_before = atomic_load(&seen[api].adds)};
	(void)dl_iterate_phdr(look, &search);
	if (search.path[0] == '\0') {
		atomic_store(&seen[api].adds, search.adds);
		return NULL;
	}
	/* The library may have gone meanwhile.  Else it stays, since a driver is never closed. */
	library = dlopen(search.path, RTLD_NOW | RTLD_NOLOAD);
	atomic_store(&seen[api].library, library);
	return library;
}
