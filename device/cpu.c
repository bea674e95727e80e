/* SPDX-License-Identifier: MIT */
/* device/cpu.c - the CPU as a device: its properties and memory.
 * The contract is in device/device-ops.h. */
#include "config.h"

#include "device/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/figure.h"

/* Finds the first line of @path that begins with @key.  Gives the text behind the
 * ':', without the blanks before it. */
static bool read_field(const char *path, const char *key, char *buffer, size_t bytes)
{
	char line[512];
	size_t length = strlen(key);
	bool found = false;
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return false;
	while (!found && fgets(line, sizeof line, file) != NULL) {
		const char *colon = strchr(line, ':');
		if (colon == NULL || strncmp(line, key, length) != 0)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		(void)snprintf(buffer, bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
		found = true;
	}
	fclose(file);
	return found;
}

/* Reads a field in KiB, as in /proc/meminfo and /proc/self/status. */
static bool read_kib(const char *path, const char *key, uint64_t *ret)
{
	char text[64];
	unsigned long long kib = 0;
	if (!read_field(path, key, text, sizeof text) || sscanf(text, "%llu kB", &kib) != 1)
		return false;
	*ret = (uint64_t)kib * HOIST__KIB;
	return true;
}

static int cpu_open(int *count, const char **library)
{
	*library = "";
	*count = 1;
	return 0;
}

static int cpu_mem_info(struct hoist__dev *dev, uint64_t *free_bytes, uint64_t *total_bytes)
{
	uint64_t available = 0;
	uint64_t total = 0;
	(void)dev;
	if (!read_kib("/proc/meminfo", "MemAvailable", &available) ||
	    !read_kib("/proc/meminfo", "MemTotal", &total))
		return hoist__fail(-ENOTSUP, "cpu: /proc/meminfo does not say how much memory is "
					     "free; is /proc mounted?");
	*free_bytes = available;
	*total_bytes = total;
	return 0;
}

static int cpu_probe(struct hoist__dev *dev)
{
	struct hoist__dev_props *props = &dev->props;
	struct utsname system;
	if (uname(&system) < 0)
		return hoist__fail_errno(-errno, "cpu: asking for the machine's type");
	(void)snprintf(props->architecture, sizeof props->architecture, "%.31s", system.machine);
	/* Arm kernels name no model. */
	if (!read_field("/proc/cpuinfo", "model name", props->name, sizeof props->name))
		(void)snprintf(props->name, sizeof props->name, "%s CPU", props->architecture);
	(void)read_kib("/proc/meminfo", "MemTotal", &props->total_bytes);
	props->numa_node = -1;
	dev->max_pitch = SIZE_MAX;
	dev->max_plane = SIZE_MAX;
	return 0;
}

/* --- memory --- */

static int cpu_mem_alloc(struct hoist__dev *dev, size_t bytes, uintptr_t *ret)
{
	(void)dev;
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return errno == ENOMEM ? hoist__fail_nomem("memory of the cpu device", bytes)
				       : hoist__fail_errno(-errno, "cpu: mapping %zu bytes", bytes);
	*ret = (uintptr_t)memory;
	return 0;
}

static int cpu_mem_free(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	(void)dev;
	if (munmap((void *)address, bytes) < 0)
		return hoist__fail_errno(-errno, "cpu: unmapping %zu bytes at %#zx", bytes,
					 (size_t)address);
	return 0;
}

/* True if the limit on locked memory forbids @bytes more.  False where the process
 * may lock without limit (CAP_IPC_LOCK, bit 14). */
static bool over_memlock(size_t bytes, uint64_t *limit_bytes)
{
	struct rlimit limit;
	char text[64];
	uint64_t locked = 0;
	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return false;
	if (read_field("/proc/self/status", "CapEff", text, sizeof text) &&
	    (strtoull(text, NULL, 16) >> 14 & 1) != 0)
		return false;
	(void)read_kib("/proc/self/status", "VmLck", &locked);
	*limit_bytes = limit.rlim_cur;
	return bytes > limit.rlim_cur || locked > limit.rlim_cur - bytes;
}

static int cpu_host_register(struct hoist__dev *dev, void *address, size_t bytes, bool read_only)
{
	uint64_t limit = 0;
	(void)dev;
	(void)read_only;
	if (mlock(address, bytes) == 0)
		return 0;
	int err = -errno;
	/* The kernel may have locked a part before it failed. */
	(void)munlock(address, bytes);
	if ((err == -ENOMEM || err == -EPERM || err == -EAGAIN) && over_memlock(bytes, &limit))
		return hoist__fail(-EPERM,
				   "page-locking %s: RLIMIT_MEMLOCK is %s%s; raise the limit with "
				   "`ulimit -l`, or set LimitMEMLOCK= for a service",
				   hoist__figure(bytes).text, hoist__figure(limit).text,
				   bytes <= limit ? " and the rest of it is in use" : "");
	/* -EAGAIN means that not all could be locked; to hoist's callers it would mean "busy". */
	return hoist__fail_errno(err == -EAGAIN ? -ENOMEM : err, "page-locking %zu bytes at %p",
				 bytes, address);
}

static int cpu_host_unregister(struct hoist__dev *dev, void *address, size_t bytes)
{
	(void)dev;
	if (munlock(address, bytes) < 0)
		return hoist__fail_errno(-errno, "unlocking %zu bytes at %p", bytes, address);
	return 0;
}

static int cpu_host_address(struct hoist__dev *dev, void *address, uintptr_t *ret)
{
	(void)dev;
	*ret = (uintptr_t)address;
	return 0;
}

const struct hoist__dev_ops hoist__cpu_ops = {
	.open = cpu_open,
	.probe = cpu_probe,
	.mem_info = cpu_mem_info,
	.mem_alloc = cpu_mem_alloc,
	.mem_free = cpu_mem_free,
	.host_register = cpu_host_register,
	.host_unregister = cpu_host_unregister,
	.host_address = cpu_host_address,
	.stream_create = hoist__cpu_stream_create,
	.stream_destroy = hoist__cpu_stream_destroy,
	.stream_synchronize = hoist__cpu_stream_synchronize,
	.stream_query = hoist__cpu_stream_query,
	.stream_wait_event = hoist__cpu_stream_wait_event,
	.event_create = hoist__cpu_event_create,
	.event_destroy = hoist__cpu_event_destroy,
	.event_record = hoist__cpu_event_record,
	.event_query = hoist__cpu_event_query,
	.event_synchronize = hoist__cpu_event_synchronize,
	.event_elapsed_ns = hoist__cpu_event_elapsed_ns,
	.copy_async = hoist__cpu_copy_async,
	.copy_peer_async = hoist__cpu_copy_peer_async,
	.copy_box = hoist__cpu_copy_box,
	.stream_call = hoist__cpu_stream_call,
	.fill_async = hoist__cpu_fill_async,
};
