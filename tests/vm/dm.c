/* SPDX-License-Identifier: MIT */
/* Makes a device-mapper device over others, one behind the other, as LVM does, or of parts:
 *
 *   vm_dm NAME DEVICE...    /dev/mapper/NAME
 *   vm_dm NAME - <TABLE     the same, of lines "FIRST-SECTOR SECTORS TARGET ARGUMENTS"
 *   vm_dm NAME              takes it away again */
#include "config.h"

#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define TABLE_BYTES 16384
#define LINE_BYTES 256

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

/* Appends one line of the table.  Returns: 0, -1 if there is no room. */
static int add_line(union call *call, uint64_t start, uint64_t n, const char *type,
		    const char *arguments)
{
	struct dm_target_spec spec = {.sector_start = start, .length = n, .next = LINE_BYTES};
	size_t used = (size_t)call->io.target_count * LINE_BYTES;
	if (used + LINE_BYTES > TABLE_BYTES || strlen(arguments) + 1 > LINE_BYTES - sizeof spec) {
		(void)fprintf(stderr, "vm_dm: the table is too long\n");
		return -1;
	}
	char *at = call->bytes + sizeof call->io + used;
	(void)snprintf(spec.target_type, sizeof spec.target_type, "%s", type);
	memcpy(at, &spec, sizeof spec);
	memcpy(at + sizeof spec, arguments, strlen(arguments) + 1);
	call->io.target_count++;
	return 0;
}

/* All of the device, from @start on.  Returns: its sectors, 0 on failure. */
static uint64_t add_device(union call *call, uint64_t start, const char *device)
{
	char arguments[160];
	uint64_t bytes = 0;
	int fd = open(device, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, BLKGETSIZE64, &bytes) != 0) {
		perror(device);
		return 0;
	}
	(void)close(fd);
	(void)snprintf(arguments, sizeof arguments, "%s 0", device);
	return add_line(call, start, bytes / 512, "linear", arguments) == 0 ? bytes / 512 : 0;
}

static int add_devices(union call *call, char **devices)
{
	uint64_t start = 0;
	for (; *devices != NULL; devices++) {
		uint64_t n = add_device(call, start, *devices);
		if (n == 0)
			return -1;
		start += n;
	}
	return 0;
}

static int add_lines(union call *call, FILE *table)
{
	char line[256];
	while (fgets(line, sizeof line, table) != NULL) {
		unsigned long long start, n;
		char type[DM_MAX_TYPE_NAME], arguments[160];
		if (sscanf(line, "%llu %llu %15s %159[^\n]", &start, &n, type, arguments) != 4) {
			(void)fprintf(stderr, "vm_dm: this is no line of a table: %s", line);
			return -1;
		}
		if (add_line(call, start, n, type, arguments) != 0)
			return -1;
	}
	return 0;
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
	begin(&call, name);
	if (control(fd, DM_DEV_CREATE, &call, "DM_DEV_CREATE") != 0)
		return 1;
	uint64_t dev = call.io.dev;
	begin(&call, name);
	bool given = strcmp(*devices, "-") == 0;
	if ((given ? add_lines(&call, stdin) : add_devices(&call, devices)) != 0)
		return 1;
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
