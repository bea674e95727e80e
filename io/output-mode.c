/* SPDX-License-Identifier: MIT */
/* Works out the mode that a replacing file may have.
 * The contract is in io/output-mode.h. */
#include "config.h"

#include "io/output-mode.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/log.h"
#include "io/again.h"

#define ACL "system.posix_acl_access"

/* The bits for a file of another group: the group may do no more than everybody. */
static mode_t narrowed(mode_t mode)
{
	return mode & (0606 | (mode & 06) << 3);
}

/* @answer: the result of asking for the list.  ENODATA means no list, EOPNOTSUPP a file system
 * without lists.  Any other error (no /proc, a filter that refuses the call) may hide a list. */
static bool may_have_list(ssize_t answer)
{
	return answer >= 0 || (errno != ENODATA && errno != EOPNOTSUPP);
}

void hoist__output_mode_of(int folder_fd, const char *name, const struct stat *st,
			   struct hoist__output_mode *ret)
{
	char path[NAME_MAX + 64];
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d/%s", folder_fd, name);
	*ret = (struct hoist__output_mode){
		.replaces = true,
		.bits = st->st_mode & 0666,
		.group = st->st_gid,
		.listed = may_have_list(HOIST__UNINTERRUPTED(lgetxattr(path, ACL, NULL, 0))),
	};
}

mode_t hoist__output_mode_first(const struct hoist__output_mode *mode)
{
	if (!mode->replaces)
		return 0666;
	return (mode->same_group ? mode->bits : narrowed(mode->bits)) | 0600;
}

bool hoist__output_mode_widens(struct hoist__output_mode *mode, int fd)
{
	struct stat st;
	if (!mode->replaces)
		return false;
	mode->same_group = !mode->listed && HOIST__UNINTERRUPTED(fstat(fd, &st)) == 0 &&
			   st.st_gid == mode->group &&
			   !may_have_list(HOIST__UNINTERRUPTED(fgetxattr(fd, ACL, NULL, 0)));
	return mode->same_group && narrowed(mode->bits) != mode->bits;
}

void hoist__output_mode_set(const struct hoist__output_mode *mode, int fd, const char *path)
{
	struct stat st;
	if (!mode->replaces || fstat(fd, &st) < 0)
		return;
	mode_t bits = st.st_mode & mode->bits;
	if (!mode->same_group || st.st_gid != mode->group)
		bits = narrowed(bits);
	if (fchmod(fd, bits) < 0)
		hoist__log(io, "%s: not mode %o: %s", path, (unsigned)bits, strerrorname_np(errno));
}
