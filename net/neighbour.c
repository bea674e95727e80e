/* SPDX-License-Identifier: MIT */
/* net/neighbour.c - finds and opens memory of other processes of this machine.
 * The contract is in net/neighbour.h. */
#include "config.h"

#include "net/neighbour.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* Everything that two processes must have in common. */
struct common {
	char boot_id[64];
	uint64_t spaces[3];
	uint64_t user;
};

static bool read_boot_id(char ret[static 64])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, ret, 64) : -1;
	if (fd >= 0)
		(void)close(fd);
	return n > 0;
}

static bool find_common(struct common *ret)
{
	static const char *const spaces[] = {"/proc/self/ns/pid", "/proc/self/ns/user",
					     "/proc/self/ns/net"};
	*ret = (struct common){.user = geteuid()};
	bool known = read_boot_id(ret->boot_id);
	for (unsigned i = 0; known && i < sizeof spaces / sizeof spaces[0]; i++) {
		struct stat space;
		known = stat(spaces[i], &space) == 0;
		ret->spaces[i] = known ? space.st_ino : 0;
	}
	return known;
}

void hoist__neighbour_describe(const struct hoist__secret *secret, int fd,
			       struct hoist__neighbour *ret)
{
	static const char purpose[] = "hoist: the machine of a member";
	struct common common;
	struct stat memory;
	unsigned char digest[HOIST__SECRET_BYTES];
	*ret = (struct hoist__neighbour){.machine = 0};
	if (!find_common(&common) || fstat(fd, &memory) < 0)
		return;
	const struct hoist__piece pieces[] = {{purpose, sizeof purpose}, {&common, sizeof common}};
	hoist__secret_sign(secret->key, pieces, 2, digest);
	memcpy(&ret->machine, digest, sizeof ret->machine);
	ret->machine |= 1;
	ret->process = (uint32_t)getpid();
	ret->descriptor = (uint32_t)fd;
	ret->inode = memory.st_ino;
}

/* Does the descriptor, which only names a file, name the memfd?  All memfds are on one device. */
static int check(int fd, const struct hoist__neighbour *other, int own_fd)
{
	/* Without asking a server: the process may be another one by now, and the file anywhere. */
	const int flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
	struct statx is, own;
	if (statx(fd, "", flags, STATX_BASIC_STATS, &is) < 0 ||
	    statx(own_fd, "", flags, STATX_BASIC_STATS, &own) < 0)
		return hoist__fail_errno(-errno, "asking for the memory of process %u",
					 other->process);
	if (!S_ISREG(is.stx_mode) || is.stx_dev_major != own.stx_dev_major ||
	    is.stx_dev_minor != own.stx_dev_minor || is.stx_ino != other->inode)
		return hoist__fail(-ESTALE, "descriptor %u of process %u is not its memory",
				   other->descriptor, other->process);
	return 0;
}

static int open_path(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);
	return fd >= 0 ? fd : hoist__fail_errno(-errno, "opening %s", path);
}

int hoist__neighbour_open(const struct hoist__neighbour *other, int own_fd, int *ret)
{
	char path[64];
	(void)snprintf(path, sizeof path, "/proc/%u/fd/%u", other->process, other->descriptor);
	int name = open_path(path, O_PATH);
	if (name < 0)
		return name;
	int err = check(name, other, own_fd);
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", name);
	if (err == 0)
		err = open_path(path, O_RDONLY);
	(void)close(name);
	if (err < 0)
		return err;
	*ret = err;
	return 0;
}
