/* SPDX-License-Identifier: MIT */
/* device/dl.c - finds and opens the library of a driver or of its stand-in, and fills its table.
 * The contract is in device/dl.h. */
#include "config.h"

#include "device/dl.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "device/query.h"
#include "device/virtual.h"

/* The build gives the folder where the stand-ins are installed; this one has the default prefix. */
#ifndef HOIST_PKGLIBDIR
#define HOIST_PKGLIBDIR "/usr/local/lib/hoist"
#endif

/* No machine has as many devices; the stand-ins keep tables of this size. */
#define MAX_EMULATED HOIST__MAX_VIRTUAL

#define EMULATOR_PREFIX "libhoist-emulated-"

/* The library opened last for each api.  The callers of hoist__dl_open() serialise its use. */
static struct hoist__dl *opened[HOIST__N_APIS];

/* Parses one "api:count" of HOIST_EMULATE.  Returns the count; -EINVAL. */
static int parse_item(const char *item, size_t length, enum hoist__api *api)
{
	const char *colon = memchr(item, ':', length);
	size_t word = colon == NULL ? length : (size_t)(colon - item);
	if (word == 4 && memcmp(item, "cuda", 4) == 0)
		*api = HOIST__API_CUDA;
	else if (word == 3 && memcmp(item, "hip", 3) == 0)
		*api = HOIST__API_HIP;
	else
		return -EINVAL;
	if (colon == NULL)
		return -EINVAL;
	size_t digits = length - word - 1;
	if (digits == 0 || digits > 2)
		return -EINVAL;
	int count = 0;
	for (const char *c = colon + 1; c < item + length; c++) {
		if (*c < '0' || *c > '9')
			return -EINVAL;
		count = count * 10 + (*c - '0');
	}
	return count >= 1 && count <= MAX_EMULATED ? count : -EINVAL;
}

int hoist__dl_emulate(enum hoist__api api, int *ret)
{
	int counts[HOIST__N_APIS] = {0};
	const char *list = secure_getenv("HOIST_EMULATE");
	for (const char *item = list; item != NULL && *list != '\0';) {
		size_t length = strcspn(item, ",");
		enum hoist__api named = HOIST__API_CPU;
		int count = parse_item(item, length, &named);
		if (count < 0)
			return hoist__fail(-EINVAL,
					   "HOIST_EMULATE=%s: '%.*s' is not understood; write "
					   "cuda:N or hip:N with N from 1 to %d, or both "
					   "with a comma",
					   list, (int)length, item, MAX_EMULATED);
		if (counts[named] != 0)
			return hoist__fail(-EINVAL, "HOIST_EMULATE=%s: '%s' is named twice", list,
					   hoist__api_name(named));
		counts[named] = count;
		item = item[length] == ',' ? item + length + 1 : NULL;
	}
	*ret = counts[api];
	return 0;
}

/* Notes the path by which the loader knows the library, else @name. */
static void note_path(struct hoist__dl *dl, const char *name)
{
	struct link_map *map = NULL;
	if (dlinfo(dl->handle, RTLD_DI_LINKMAP, &map) == 0 && map != NULL && map->l_name[0] != '\0')
		name = map->l_name;
	(void)snprintf(dl->path, sizeof dl->path, "%s", name);
	const char *file = strrchr(dl->path, '/');
	file = file == NULL ? dl->path : file + 1;
	/* A stand-in counts as one, however the caller named it. */
	if (strncmp(file, EMULATOR_PREFIX, strlen(EMULATOR_PREFIX)) == 0)
		dl->emulated = true;
}

/* Opens @name.  On failure the reason goes to @why, unless @why holds one already. */
static bool try_open(struct hoist__dl *dl, const char *name, char *why, size_t bytes)
{
	dl->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (dl->handle != NULL) {
		note_path(dl, name);
		hoist__log(device, "%s driver: %s", dl->title, dl->path);
		return true;
	}
	const char *reason = dlerror();
	hoist__log(device, "%s driver: %s", dl->title, reason);
	if (why[0] == '\0')
		(void)snprintf(why, bytes, "%s", reason);
	return false;
}

/* The folder "hoist" beside the library or program that contains this code.  Not for programs with
 * raised privileges: the user that starts a set-uid program decides the program's path, by a link
 * in a folder of the user's own. */
static bool own_folder(char *buffer, size_t bytes)
{
	static const char anchor;
	Dl_info info;
	if (getauxval(AT_SECURE) != 0)
		return false;
	if (dladdr(&anchor, &info) == 0 || info.dli_fname == NULL)
		return false;
	const char *slash = strrchr(info.dli_fname, '/');
	if (slash == NULL)
		return false;
	int n = snprintf(buffer, bytes, "%.*s/hoist", (int)(slash - info.dli_fname),
			 info.dli_fname);
	return n > 0 && (size_t)n < bytes;
}

/* The folders where a stand-in may be, in the order of the search. */
#define N_FOLDERS 3

struct places {
	const char *folders[N_FOLDERS]; /* NULL or "": none */
	char beside[PATH_MAX];
	const char *file;
};

static void find_places(const char *file, struct places *ret)
{
	ret->file = file;
	ret->beside[0] = '\0';
	ret->folders[0] = secure_getenv("HOIST_EMULATOR_DIR");
	ret->folders[1] = own_folder(ret->beside, sizeof ret->beside) ? ret->beside : NULL;
	ret->folders[2] = HOIST_PKGLIBDIR;
}

/* False where folder @i has no such file. */
static bool path_of(const struct places *places, size_t i, char *path, size_t bytes)
{
	const char *folder = places->folders[i];
	if (folder == NULL || folder[0] == '\0')
		return false;
	int n = snprintf(path, bytes, "%s/%s", folder, places->file);
	return n > 0 && (size_t)n < bytes && access(path, F_OK) == 0;
}

static int fail_absent(int err, const struct places *places, const char *title, const char *asks)
{
	return hoist__fail(err,
			   "%s: %s the stand-in driver, but %s is in none of "
			   "%.300s, %.300s, %s; say where it is with HOIST_EMULATOR_DIR",
			   title, asks, places->file,
			   places->folders[0] == NULL ? "$HOIST_EMULATOR_DIR (unset)"
						      : places->folders[0],
			   places->folders[1] == NULL ? "(own folder unknown)" : places->folders[1],
			   HOIST_PKGLIBDIR);
}

int hoist__dl_find_emulator(enum hoist__api api)
{
	struct places places;
	char path[PATH_MAX];
	char file[32];
	(void)snprintf(file, sizeof file, EMULATOR_PREFIX "%s.so", hoist__api_name(api));
	find_places(file, &places);
	for (size_t i = 0; i < N_FOLDERS; i++)
		if (path_of(&places, i, path, sizeof path))
			return 0;
	return fail_absent(-ENOENT, &places, hoist__api_name(api), "virtual devices need");
}

static int because(struct hoist__dl *dl, const char *begin, const char *end)
{
	(void)snprintf(dl->reason, sizeof dl->reason, "%s %s", begin, end);
	return 0;
}

static int open_emulator(struct hoist__dl *dl)
{
	struct places places;
	char path[PATH_MAX];
	char why[512] = "";
	const char *asks = hoist__virtual_count(dl->api) > 0 ? "virtual devices need"
							     : "HOIST_EMULATE asks for";
	find_places(dl->emulator, &places);
	for (size_t i = 0; i < N_FOLDERS; i++)
		if (path_of(&places, i, path, sizeof path) && try_open(dl, path, why, sizeof why))
			return because(dl, asks, "it");
	if (why[0] != '\0')
		return hoist__fail(-ENODEV, "%s: %s the stand-in driver: %s", dl->title, asks, why);
	return fail_absent(-ENODEV, &places, dl->title, asks);
}

static bool take_loaded(struct hoist__dl *dl)
{
	void *loaded = hoist__loaded(dl->api, dl->prefix);
	if (loaded == NULL)
		return false;
	dl->handle = loaded;
	note_path(dl, dl->prefix);
	hoist__log(device, "%s driver: %s, which was loaded", dl->title, dl->path);
	return true;
}

/* A library that the user names is the only one that is tried: another one would hide the mistake.
 * A library that the process has loaded comes before the system's, so that hoist shares the driver
 * with the other code of the process. */
static int open_vendor(struct hoist__dl *dl)
{
	char why[512] = "";
	const char *given = secure_getenv(dl->variable);
	if (given != NULL && given[0] != '\0') {
		if (try_open(dl, given, why, sizeof why))
			return because(dl, dl->variable, "names it");
		return hoist__fail(-ENODEV,
				   "%s: no driver library: %s; correct %s, which names the "
				   "library, or unset the variable",
				   dl->title, why, dl->variable);
	}
	if (take_loaded(dl))
		return because(dl, "this process", "had loaded it");
	for (const char *const *name = dl->names; *name != NULL; name++)
		if (try_open(dl, *name, why, sizeof why))
			return because(dl, "the system has it as", *name);
	return hoist__fail(-ENODEV,
			   "%s: no driver library: %s; %s, name the library in %s, or use "
			   "the stand-in with HOIST_EMULATE=%s:1",
			   dl->title, why, dl->remedy, dl->variable, hoist__api_name(dl->api));
}

static void load_table(struct hoist__dl *dl)
{
	for (size_t i = 0; i < dl->n_rows; i++) {
		const struct hoist__dl_row *row = &dl->rows[i];
		void *symbol = dlsym(dl->handle, row->symbol);
		_Static_assert(sizeof symbol == sizeof(void (*)(void)), "POSIX says so");
		memcpy((char *)dl->table + row->offset, &symbol, sizeof symbol);
		if (symbol != NULL)
			continue;
		hoist__log(device, "%s driver lacks %s", dl->title, row->symbol);
		if (row->need == HOIST__DL_REQUIRED && dl->missing == NULL)
			dl->missing = row;
	}
}

const char *hoist__dl_reason(enum hoist__api api)
{
	return opened[api] != NULL ? opened[api]->reason : "";
}

bool hoist__dl_is_emulated(enum hoist__api api)
{
	return opened[api] != NULL && opened[api]->emulated;
}

int hoist__dl_set_devices(enum hoist__api api, int count)
{
	static const char name[] = "hoist_emulator_set_devices";
	void *symbol = dlsym(opened[api]->handle, name);
	void (*set_devices)(int count); /* emulator/control.h */
	if (symbol == NULL)
		return hoist__fail(-ENODEV,
				   "%s: the stand-in %s lacks %s: the stand-in is older than "
				   "hoist; install both of one version",
				   opened[api]->title, opened[api]->path, name);
	memcpy(&set_devices, &symbol, sizeof symbol);
	set_devices(count);
	return 0;
}

int hoist__dl_open(struct hoist__dl *dl)
{
	int devices = 0;
	int virtual_devices = hoist__virtual_count(dl->api);
	int err = hoist__dl_emulate(dl->api, &devices);
	if (err < 0)
		return err;
	dl->emulated = devices > 0 || virtual_devices > 0;
	dl->missing = NULL;
	dl->reason[0] = '\0';
	opened[dl->api] = dl;
	err = dl->emulated ? open_emulator(dl) : open_vendor(dl);
	if (err == 0 && virtual_devices > 0)
		err = hoist__dl_set_devices(dl->api, virtual_devices);
	if (err < 0)
		return err;
	load_table(dl);
	return 0;
}

int hoist__dl_check(const struct hoist__dl *dl, int version, int since, const char *said,
		    const char *needed)
{
	if (version != 0 && version < since)
		return hoist__fail(-ENODEV,
				   "%s: the driver %s is too old: it is version %s, hoist needs %s "
				   "or newer; update the driver",
				   dl->title, dl->path, said, needed);
	if (dl->missing != NULL)
		return hoist__fail(-ENODEV,
				   "%s: the library %s lacks the symbol %s, which every driver "
				   "since version %s has; the library is damaged or no %s driver: "
				   "install the driver again, or name another one in %s",
				   dl->title, dl->path, dl->missing->symbol, needed, dl->title,
				   dl->variable);
	return 0;
}
