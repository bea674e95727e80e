/* SPDX-License-Identifier: MIT */
/* A library that nobody should load: it says so by a file in $SECURE_MARKS that is called as the
 * library is. */
#include "config.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void say_so(void)
{
	static const char here;
	char path[PATH_MAX];
	Dl_info info;
	const char *marks = getenv("SECURE_MARKS");
	if (marks == NULL || dladdr(&here, &info) == 0)
		return;
	const char *slash = strrchr(info.dli_fname, '/');
	const char *name = slash == NULL ? info.dli_fname : slash + 1;
	(void)snprintf(path, sizeof path, "%s/%s", marks, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd >= 0)
		(void)close(fd);
}
