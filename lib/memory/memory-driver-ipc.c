/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-driver-ipc.c - shares driver's pools with other processes.
 * The contract is in lib/memory/memory-driver.h. */
#include "config.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "device/ipc.h"
#include "lib/memory/memory-driver.h"

static int check_shareable(const hoist_memory *memory)
{
	if (memory == NULL)
		return hoist__fail(-EINVAL, "the memory resource is NULL");
	if (memory->info.is_shareable)
		return 0;
	return hoist__fail(-ENOTSUP,
			   "\"%s\": memory resource is not IPC-enabled: make it of kind "
			   "HOIST_MEMORY_DRIVER_POOL with HOIST_MEMORY_SHAREABLE",
			   memory->name);
}

int hoist__driver_name(const hoist_memory *memory, const struct hoist__ipc_name **ret)
{
	int err = check_shareable(memory);
	if (err == 0)
		*ret = &((const struct hoist__driver_memory *)(const void *)memory)->name;
	return err;
}

atomic_bool *hoist__driver_registered(hoist_memory *memory)
{
	return &hoist__driver_of(memory)->xregistered;
}

int hoist__driver_shared_pool(hoist_memory *memory, struct hoist__dev_pool **ret)
{
	int err = check_shareable(memory);
	if (err == 0)
		err = hoist__dev_check(memory->dev);
	return err < 0 ? err : hoist__driver_use_pool(hoist__driver_of(memory), ret);
}

int hoist__driver_export(hoist_memory *memory, int *ret)
{
	struct hoist__dev_pool *pool;
	int err = hoist__driver_shared_pool(memory, &pool);
	if (err < 0)
		return err;
	if (!memory->info.is_mapped)
		return hoist__dev_pool_export(pool, ret);
	int fd = fcntl(hoist__driver_of(memory)->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return hoist__fail_errno(-errno, "another descriptor of a memory pool");
	*ret = fd;
	return 0;
}

int hoist__driver_block(hoist_memory *memory, uintptr_t address, uintptr_t *raw, size_t *bytes)
{
	return hoist__books_given(&hoist__driver_of(memory)->books, address, raw, bytes);
}

int hoist__driver_map(hoist_memory *memory, int fd, const struct hoist__ipc_name *name)
{
	struct hoist__driver_memory *driver = hoist__driver_of(memory);
	struct hoist__dev_pool *pool;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return hoist__fail_errno(-errno, "descriptor %d of a memory pool", fd);
	int err = hoist__dev_pool_import(memory->dev, own, &pool);
	if (err < 0) {
		(void)close(own);
		return err;
	}
	driver->fd = own;
	driver->name = *name;
	memory->info.is_mapped = 1;
	atomic_store(&driver->xpool, pool);
	return 0;
}
