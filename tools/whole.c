/* SPDX-License-Identifier: MIT */
/* Writes a text file that appears whole or not at all.
 * The contract is in tools/whole.h. */
#include "config.h"

#include "tools/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/fail.h"
#include "cli/format.h"
#include "tools/fd.h"

/* Makes ".hoist-XXXXXX" beside @path, with the rights of the file at @path, or of a new one.
 * *ret: its path, from malloc; *ret_fd: open for writing. */
static int create(const char *path, const char *option, char **ret, int *ret_fd)
{
	struct stat old = {0};
	const char *name = base_name(path);
	bool there = stat(path, &old) == 0;
	if (name[0] == '\0' || (there && !S_ISREG(old.st_mode)))
		return fail("%s %s: there is something that is no file; give the name of a file",
			    option, path);
	if (!there && errno == ENAMETOOLONG)
		return fail("%s %s: the name is too long; give a shorter one", option, path);
	if (asprintf(ret, "%.*s.hoist-XXXXXX", (int)(name - path), path) < 0)
		return fail_memory();
	*ret_fd = mkostemp(*ret, O_CLOEXEC);
	if (*ret_fd < 0) {
		int status = fail("%s %s: creating a file there: %s; give a file in a folder that "
				  "can be written",
				  option, path, strerror(errno));
		free(*ret);
		return status;
	}
	(void)fchmod(*ret_fd, there ? old.st_mode & 0777 : fd_new_mode());
	return STATUS_OK;
}

int whole_check(const char *path, const char *option)
{
	char *hidden;
	int fd;
	int status = create(path, option, &hidden, &fd);
	if (status != STATUS_OK)
		return status;
	(void)unlink(hidden);
	(void)close(fd);
	free(hidden);
	return STATUS_OK;
}

int whole_write(const char *path, const char *option, const char *text, size_t bytes)
{
	char *hidden;
	int fd;
	int status = create(path, option, &hidden, &fd);
	if (status != STATUS_OK)
		return status;
	(void)signal(SIGXFSZ, SIG_IGN); /* the write fails instead */
	int err = fd_write(fd, text, bytes) < 0 || fsync(fd) < 0 ? errno : 0;
	if (close(fd) < 0 && err == 0)
		err = errno;
	if (err == 0 && rename(hidden, path) < 0)
		err = errno;
	if (err != 0) {
		(void)unlink(hidden);
		status = fail("%s %s: writing it: %s", option, path, strerror(err));
	}
	free(hidden);
	return status;
}
