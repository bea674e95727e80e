/* SPDX-License-Identifier: MIT */
/* An ordinary program that uses hoist, which faults/secure.sh makes a set-uid one.
 *
 *   secure use CHECKPOINT COPY WHAT     a driver ("cuda", "hip"), "files": a load and a save, "cache",
 *                                       or "all" of it
 *   secure virtual                      virtual devices, before any driver is asked
 *   secure hold CHECKPOINT PROGRAM      becomes its user altogether, and starts that holder
 *   secure as NAME VARIABLE=VALUE... PROGRAM ARGUMENT...
 *                                       runs that program, by that name, with that environment
 *   secure capable FILE                 gives the file a capability
 *   secure installed                    ends with 0 if the command is, where the library looks
 *
 * What hoist says is no matter: it prints "secure 0" or "secure 1" (AT_SECURE), and every file that
 * is mapped when all is done. */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <hoist/compat.h>
#include <hoist/hoist.h>

static void say(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, err < 0 ? hoist_error() : "done");
}

static void use_driver(const char *api)
{
	int n = 0;
	char spec[16];
	hoist_device *device = NULL;
	say(api, hoist_device_count(api, &n));
	(void)snprintf(spec, sizeof spec, "%s:0", api);
	if (n > 0)
		say(spec, hoist_device_open(spec, &device));
	hoist_device_unref(device);
}

static void use_files(const char *path, const char *copy)
{
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	hoist_save *save = NULL;
	int err = hoist_checkpoint_open(path, 0, &checkpoint);
	if (err == 0)
		err = hoist_load_start(checkpoint, NULL, &load);
	if (err == 0)
		err = hoist_load_wait(load);
	say("load", err);
	if (err == 0)
		err = hoist_save_create(copy, NULL, &save);
	if (err == 0)
		err = hoist_save_add_tensor(save, NULL, checkpoint, 0);
	if (err == 0)
		err = hoist_save_start(save);
	if (err == 0)
		err = hoist_save_wait(save);
	say("save", err);
	hoist_save_destroy(save);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

static void use_cache(const char *path, const char *holder)
{
	const hoist_cache_options options = {.size = sizeof options, .holder = holder};
	hoist_cache_list *list = NULL;
	hoist_image *image = NULL;
	say("list", hoist_cache_list_create(&list));
	hoist_cache_list_destroy(list);
	say("attach", hoist_cache_attach(path, 0, &image));
	hoist_image_close(image);
	say("add", hoist_cache_add(path, &options, NULL));
	say("drop", hoist_cache_drop(path, NULL));
}

static void use_virtual(void)
{
	hoist_device *device = NULL;
	int err = hoist_virtual_set("cuda", NULL, 1);
	if (err == 0)
		err = hoist_device_open("cuda:0", &device);
	say("virtual", err);
	hoist_device_unref(device);
}

/* A program that was made set-uid to be another user, not to have two users, does these steps. */
static bool become(void)
{
	uid_t user = geteuid();
	gid_t group = getegid();
	return setresgid(group, group, group) == 0 && setresuid(user, user, user) == 0;
}

static void print_maps(void)
{
	char line[4200];
	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
		const char *path = strchr(line, '/');
		if (path != NULL)
			(void)fputs(path, stdout);
	}
	if (maps != NULL)
		(void)fclose(maps);
}

static int run_as(char *name, char **rest)
{
	for (; *rest != NULL && (*rest)[0] != '/'; rest++)
		if (putenv(*rest) != 0)
			return 1;
	const char *program = *rest;
	if (program == NULL)
		return 1;
	*rest = name;
	(void)execv(program, rest);
	perror(program);
	return 1;
}

static void use(const char *checkpoint, const char *copy, const char *what)
{
	bool all = strcmp(what, "all") == 0;
	if (all || strcmp(what, "cuda") == 0)
		use_driver("cuda");
	if (all || strcmp(what, "hip") == 0)
		use_driver("hip");
	if (all || strcmp(what, "files") == 0)
		use_files(checkpoint, copy);
	if (all || strcmp(what, "cache") == 0)
		use_cache(checkpoint, NULL);
}

static int make_capable(const char *path)
{
	const struct vfs_cap_data data = {
		.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
		.data = {{.permitted = 1u << CAP_NET_BIND_SERVICE}},
	};
	if (setxattr(path, "security.capability", &data, XATTR_CAPS_SZ_2, 0) == 0)
		return 0;
	perror("secure: security.capability");
	return 1;
}

int main(int argc, char **argv)
{
	if (argc >= 4 && strcmp(argv[1], "as") == 0)
		return run_as(argv[2], argv + 3);
	if (argc == 3 && strcmp(argv[1], "capable") == 0)
		return make_capable(argv[2]);
	if (argc == 2 && strcmp(argv[1], "installed") == 0)
		return access(HOIST_BINDIR "/hoist", X_OK) == 0 ? 0 : 1;
	(void)printf("secure %lu\n", getauxval(AT_SECURE));
	if (argc == 5 && strcmp(argv[1], "use") == 0) {
		use(argv[2], argv[3], argv[4]);
	} else if (argc == 2 && strcmp(argv[1], "virtual") == 0) {
		use_virtual();
	} else if (argc == 4 && strcmp(argv[1], "hold") == 0 && become()) {
		use_cache(argv[2], argv[3]);
	} else {
		fprintf(stderr, "secure: no such use\n");
		return 2;
	}
	print_maps();
	return fflush(stdout) == 0 ? 0 : 1;
}
