/* SPDX-License-Identifier: MIT */
/* tools/cmd-emulate.c - hoist emulate: runs a command that finds the stand-in drivers by the
 * vendors' names. The contract is in tools/tool.h.
 *
 * The folder "drivers" beside the stand-ins has libcuda.so.1 and libamdhip64.so.N.  The command
 * gets that folder first in LD_LIBRARY_PATH, and the variables that the stand-ins read.  This
 * process becomes the command, so that signals and the exit status are the command's own. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/format.h"
#include "tools/args.h"

/* As env(1) and the shells have them. */
#define STATUS_CANNOT_RUN 126
#define STATUS_NO_COMMAND 127

#define DRIVERS "drivers"

/* True if FOLDER/drivers is there; fills @ret with FOLDER, made absolute. */
static bool try_folder(const char *folder, char ret[PATH_MAX])
{
	char path[PATH_MAX + sizeof "/" DRIVERS "/libcuda.so.1"];
	if (folder == NULL || folder[0] == '\0' || realpath(folder, ret) == NULL)
		return false;
	(void)snprintf(path, sizeof path, "%s/" DRIVERS "/libcuda.so.1", ret);
	return access(path, R_OK) == 0;
}

/* The folder of the stand-ins: as told, beside the command wherever both were moved to, as
 * installed. */
static bool find_folder(char ret[PATH_MAX])
{
	char self[PATH_MAX];
	char beside[PATH_MAX + sizeof "/../lib/hoist"];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (try_folder(secure_getenv("HOIST_EMULATOR_DIR"), ret))
		return true;
	if (n > 0) {
		self[n] = '\0';
		*strrchr(self, '/') = '\0';
		(void)snprintf(beside, sizeof beside, "%s/../lib/hoist", self);
		if (try_folder(beside, ret))
			return true;
	}
	return try_folder(HOIST_PKGLIBDIR, ret);
}

/* Puts the drivers' folder before all others. */
static int set_library_path(const char *folder)
{
	const char *before = secure_getenv("LD_LIBRARY_PATH");
	bool has = before != NULL && before[0] != '\0';
	size_t bytes = strlen(folder) + sizeof "/" DRIVERS ":" + (has ? strlen(before) : 0);
	char *path = malloc(bytes);
	if (path == NULL)
		return -ENOMEM;
	(void)snprintf(path, bytes, "%s/" DRIVERS "%s%s", folder, has ? ":" : "",
		       has ? before : "");
	int err = setenv("LD_LIBRARY_PATH", path, 1) == 0 ? 0 : -ENOMEM;
	free(path);
	return err;
}

/* hoist in the command uses the same stand-ins, whatever library it was told to open. */
static int set_variables(const struct args *args, const char *folder)
{
	int err = args_emulate_export(&args->emulate);
	if (err == 0)
		err = set_library_path(folder);
	if (err == 0 && setenv("HOIST_EMULATOR_DIR", folder, 1) != 0)
		err = -ENOMEM;
	(void)unsetenv("HOIST_CUDA_LIBRARY");
	(void)unsetenv("HOIST_HIP_LIBRARY");
	return err;
}

static int cannot_run(const char *command)
{
	int err = errno;
	(void)fputs("hoist: running ", stderr);
	print_escaped(stderr, command);
	(void)fprintf(stderr, ": %s%s\n", strerror(err),
		      err == ENOENT ? "; name a program that is in PATH, or its path" : "");
	return err == ENOENT ? STATUS_NO_COMMAND : STATUS_CANNOT_RUN;
}

int cmd_emulate(const struct args *args)
{
	char folder[PATH_MAX];
	if (!find_folder(folder)) {
		(void)fprintf(
			stderr,
			"hoist: no folder " DRIVERS " with libcuda.so.1 is in "
			"$HOIST_EMULATOR_DIR, in lib/hoist beside the command's folder, or in %s; "
			"install hoist whole, or say where it is with HOIST_EMULATOR_DIR\n",
			HOIST_PKGLIBDIR);
		return STATUS_FAILED;
	}
	if (strpbrk(folder, ":;") != NULL) {
		(void)fputs("hoist: the loader takes no folder with a colon or a semicolon in its "
			    "path, as the stand-ins' has: move hoist\n",
			    stderr);
		return STATUS_FAILED;
	}
	if (set_variables(args, folder) < 0)
		return fail_memory();
	(void)signal(SIGPIPE, SIG_DFL); /* main() ignores the signal, and exec would pass that on */
	(void)execvp(args->rest[0], args->rest);
	return cannot_run(args->rest[0]);
}
