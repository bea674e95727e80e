/* SPDX-License-Identifier: MIT */
/* lib/exchange/ipc-memory.c - resources that processes share: their names, and how to find them.
 * The contract is in hoist/ipc.h. */
#include "config.h"

#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "hoist/ipc.h"
#include "lib/device/device.h"
#include "lib/exchange/ipc.h"
#include "lib/memory/memory-driver.h"
#include "lib/memory/memory.h"

/* --- names --- */

static bool same_name(const struct hoist__ipc_name *a, const struct hoist__ipc_name *b)
{
	return memcmp(a, b, sizeof *a) == 0;
}

/* Writes the name in the form of a UUID. */
static void write_name(const struct hoist__ipc_name *name, char text[static 37])
{
	static const char digits[] = "0123456789abcdef";
	char *at = text;
	for (size_t i = 0; i < sizeof name->bytes; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = digits[name->bytes[i] >> 4];
		*at++ = digits[name->bytes[i] & 15];
	}
	*at = '\0';
}

/* --- finding --- */

/* Guards registering: no two resources of one name are ever registered. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_registered(hoist_memory *memory, const void *arg)
{
	const struct hoist__ipc_name *name;
	return memory->info.is_shareable && memory->generation == hoist__fork_now() &&
	       atomic_load(hoist__driver_registered(memory)) &&
	       hoist__driver_name(memory, &name) == 0 && same_name(name, arg);
}

/* Takes over the reference to @memory, and returns one to the registered resource. */
static hoist_memory *enter(hoist_memory *memory, const struct hoist__ipc_name *name)
{
	pthread_mutex_lock(&lock);
	hoist_memory *first = hoist__memories_find(is_registered, name);
	if (first == NULL)
		atomic_store(hoist__driver_registered(memory), true);
	pthread_mutex_unlock(&lock);
	if (first == NULL)
		return memory;
	hoist_memory_unref(memory);
	return first;
}

int hoist_ipc_find_memory(const unsigned char uuid[16], hoist_memory **ret)
{
	struct hoist__ipc_name name;
	char text[37];
	if (uuid == NULL)
		return hoist__fail(-EINVAL, "the name of a memory resource is NULL");
	memcpy(name.bytes, uuid, sizeof name.bytes);
	hoist_memory *found = hoist__memories_find(is_registered, &name);
	if (found == NULL) {
		write_name(&name, text);
		return hoist__fail(-ENOENT,
				   "memory resource %s was not found: it has to be imported from "
				   "its descriptor, or registered, and kept",
				   text);
	}
	*ret = found;
	return 0;
}

int hoist_ipc_register_memory(hoist_memory *memory, hoist_memory **ret)
{
	const struct hoist__ipc_name *name;
	int err = hoist__driver_name(memory, &name);
	if (err == 0) /* in a child of fork the lock may be taken for ever */
		err = hoist__dev_check(memory->dev);
	if (err == 0)
		*ret = enter(hoist_memory_ref(memory), name);
	return err;
}

int hoist_ipc_memory_uuid(const hoist_memory *memory, unsigned char uuid[16])
{
	const struct hoist__ipc_name *name;
	int err = hoist__driver_name(memory, &name);
	if (err == 0)
		memcpy(uuid, name->bytes, sizeof name->bytes);
	return err;
}

/* --- passing --- */

int hoist_ipc_export_memory(hoist_memory *memory, int *ret_fd)
{
	hoist_memory *registered;
	int fd = -1;
	int err = hoist__driver_export(memory, &fd);
	if (err < 0)
		return err;
	/* Registered, so that this process finds the resource again if its name comes back. */
	err = hoist_ipc_register_memory(memory, &registered);
	if (err == 0)
		hoist_memory_unref(registered);
	*ret_fd = fd;
	return 0;
}

static int import(hoist_device *device, int fd, const struct hoist__ipc_name *name,
		  hoist_memory **ret)
{
	const hoist_memory_options options = {
		.size = sizeof options,
		.kind = HOIST_MEMORY_DRIVER_POOL,
		.flags = HOIST_MEMORY_SHAREABLE,
		.device = device,
	};
	hoist_memory *made;
	int err = hoist_memory_create(&options, &made);
	if (err < 0)
		return err;
	err = hoist__driver_map(made, fd, name);
	if (err < 0) {
		hoist_memory_unref(made);
		return err;
	}
	*ret = enter(made, name);
	return 0;
}

int hoist_ipc_import_memory(hoist_device *device, int fd, const unsigned char uuid[16],
			    hoist_memory **ret)
{
	struct hoist__ipc_name name;
	if (fd < 0)
		return hoist__fail(-EINVAL, "%d is no descriptor of a memory pool", fd);
	if (device == NULL || hoist__device_is_cpu(device))
		return hoist__fail(-EINVAL,
				   "a memory pool is imported on an accelerator; the "
				   "device is %s",
				   device == NULL ? "NULL" : "the CPU");
	if (uuid == NULL)
		return hoist__fail(-EINVAL, "the name of a memory resource is NULL");
	memcpy(name.bytes, uuid, sizeof name.bytes);
	hoist_memory *found = hoist__memories_find(is_registered, &name);
	if (found != NULL) {
		*ret = found;
		return 0;
	}
	int err = import(device, fd, &name, ret);
	return err < 0 ? hoist__fail_in(err, "importing a memory resource") : 0;
}
