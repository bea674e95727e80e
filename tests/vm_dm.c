/* SPDX-License-Identifier: MIT */
/* Makes a device-mapper device over others, one behind the other, as LVM does:
 *
 *   vm_dm NAME DEVICE...    /dev/mapper/NAME
 *   vm_dm NAME              takes it away again */
#include "config.h"

#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define TABLE_BYTES 4096

union call {
	struct dm_ioctl io;
	char bytes[sizeof(struct dm_ioctl) + TABLE_BYTES];
};

static void begin(union call *call, const char *name)
{
	memset(call, 0, sizeof *call);
	call->io.version[0] = DM_VERSION_MAJOR;
	call->io.data_size = sizeof *call;
	call->io.data_start = sizeof call->io;
	(void)snprintf(call->io.name, sizeof call->io.name, "%s", name);
}

/* Appends one line of the table: as many sectors as the device has, in its place behind @start.
 * Returns: the sectors, 0 on failure. */
static uint64_t add_target(union call *call, size_t *used, uint64_t start, const char *device)
{
	uint64_t bytes = 0;
	int fd = open(device, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, BLKGETSIZE64, &bytes) != 0 || *used + 256 > TABLE_BYTES) {
		perror(device);
		return 0;
	}
	(void)close(fd);
	struct dm_target_spec spec = {.sector_start = start, .length = bytes / 512, .next = 256};
	char *at = call->bytes + sizeof call->io + *used;
	(void)snprintf(spec.target_type, sizeof spec.target_type, "linear");
	memcpy(at, &spec, sizeof spec);
	(void)snprintf(at + sizeof spec, 256 - sizeof spec, "%s 0", device);
	*used += 256;
	call->io.target_count++;
	return spec.length;
}

static int control(int fd, unsigned long request, union call *call, const char *what)
{
	if (ioctl(fd, request, call) == 0)
		return 0;
	perror(what);
	return -1;
}

static int make(int fd, const char *name, char **devices, const char *path)
{
	union call call;
	size_t used = 0;
	uint64_t start = 0;
	begin(&call, name);
	if (control(fd, DM_DEV_CREATE, &call, "DM_DEV_CREATE") != 0)
		return 1;
	uint64_t dev = call.io.dev;
	begin(&call, name);
	for (; *devices != NULL; devices++) {
		uint64_t n = add_target(&call, &used, start, *devices);
		if (n == 0)
			return 1;
		start += n;
	}
	if (control(fd, DM_TABLE_LOAD, &call, "DM_TABLE_LOAD") != 0)
		return 1;
	begin(&call, name);
	if (control(fd, DM_DEV_SUSPEND, &call, "resuming") != 0)
		return 1;
	if (mknod(path, S_IFBLK | 0600, (dev_t)dev) == 0)
		return 0;
	perror(path);
	return 1;
}

static int take_away(int fd, const char *name, const char *path)
{
	union call call;
	begin(&call, name);
	return control(fd, DM_DEV_REMOVE, &call, "DM_DEV_REMOVE") != 0 || unlink(path) != 0;
}

int main(int argc, char **argv)
{
	char path[160];
	if (argc < 2)
		return 2;
	int fd = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		perror("/dev/mapper/control");
		return 1;
	}
	(void)snprintf(path, sizeof path, "/dev/mapper/%s", argv[1]);
	return argc > 2 ? make(fd, argv[1], argv + 2, path) : take_away(fd, argv[1], path);
}
