/* SPDX-License-Identifier: MIT */
/* lib/exchange/ipc-import.c - turns descriptors into buffers.
 * The contract is in hoist/ipc.h. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "alloc/shared.h"
#include "base/error.h"
#include "format/quote.h"
#include "hoist/ipc.h"
#include "lib/buffer/buffer-private.h"
#include "lib/exchange/ipc.h"
#include "lib/memory/memory.h"

/* Finds the device by its address on the PCI bus, as each process may number its devices in its own
 * way.  If several devices have this address (parts of one), the exporter's number decides. */
static int find_device(const hoist_ipc_descriptor *d, hoist_device **ret)
{
	hoist_device *found = NULL;
	char pci[HOIST__QUOTED_BYTES];
	int n = 0;
	if (strcmp(d->api, "cpu") == 0)
		return hoist_device_open("cpu", ret);
	int err = hoist_device_count(d->api, &n);
	for (int i = 0; err == 0 && i < n; i++) {
		hoist_device_info info = {.size = sizeof info};
		hoist_device *device = NULL;
		char spec[32];
		(void)snprintf(spec, sizeof spec, "%s:%d", d->api, i);
		err = hoist_device_open(spec, &device);
		if (err == 0)
			err = hoist_device_get_info(device, &info);
		if (err == 0 && strcmp(info.pci, d->pci) == 0 && (found == NULL || i == d->ordinal))
			found = device; /* devices are never destroyed */
		hoist_device_unref(device);
	}
	if (err < 0)
		return err;
	if (found == NULL)
		return hoist__fail(-ENODEV,
				   "the buffer is on the exporter's %s:%d (%s), which this process "
				   "does not see among its %d; make it visible here too",
				   d->api, (int)d->ordinal,
				   hoist__quoted(d->pci, strlen(d->pci), pci), n);
	*ret = hoist_device_ref(found);
	return 0;
}

static int import_host(const hoist_ipc_descriptor *d, hoist_device *cpu, int fd,
		       struct hoist__storage **ret)
{
	struct hoist__shared *shared;
	bool read_only = (d->flags & HOIST_IPC_READ_ONLY) != 0;
	if (fd < 0)
		return hoist__fail(
			-EBADMSG,
			"this is host memory, whose file descriptor did not come with the buffer");
	int err = hoist__shared_open(fd, read_only, &shared);
	if (err < 0)
		return err;
	size_t there = hoist__shared_bytes(shared);
	if (d->offset > there || d->bytes > there - d->offset) {
		hoist__shared_close(shared);
		return hoist__fail(
			-EINVAL, "%llu bytes from %llu on exceed the shared memory of %zu bytes",
			(unsigned long long)d->bytes, (unsigned long long)d->offset, there);
	}
	const struct hoist__foreign foreign = {
		.device = cpu,
		.kind = HOIST__MEMORY_HOST,
		.address = hoist__shared_address(shared) + (uintptr_t)d->offset,
		.bytes = (size_t)d->bytes,
		/* otherwise only the buffer is read-only */
		.read_only = hoist__shared_is_read_only(shared),
		.mapped = hoist__shared_is_foreign(shared),
		.release = hoist__shared_close,
		.context = shared,
	};
	err = hoist__storage_wrap(&foreign, ret);
	if (err < 0)
		hoist__shared_close(shared);
	return err;
}

/* Gives the resource that @d names, with a reference. */
static int find_memory(const hoist_ipc_descriptor *d, hoist_device *device, int fd,
		       hoist_memory *given, hoist_memory **ret)
{
	unsigned char uuid[sizeof d->memory];
	if (given == NULL)
		return fd >= 0 ? hoist_ipc_import_memory(device, fd, d->memory, ret)
			       : hoist_ipc_find_memory(d->memory, ret);
	int err = hoist_ipc_memory_uuid(given, uuid);
	if (err < 0)
		return err;
	if (memcmp(uuid, d->memory, sizeof uuid) != 0)
		return hoist__fail(-EINVAL,
				   "\"%s\" is not the memory resource that the buffer comes from",
				   given->name);
	*ret = hoist_memory_ref(given);
	return 0;
}

/* If there is a resource, *device becomes its device. */
static int open_allocation(const hoist_ipc_descriptor *d, hoist_device **device, int fd,
			   hoist_memory *given, struct hoist__opened **ret)
{
	hoist_memory *memory = NULL;
	int err = 0;
	if (d->kind == HOIST_IPC_POOL)
		err = find_memory(d, *device, fd, given, &memory);
	if (memory != NULL)
		*device = memory->device;
	if (err == 0)
		err = hoist__opened_get(d, *device, memory, ret);
	hoist_memory_unref(memory);
	return err;
}

static int import_device(const hoist_ipc_descriptor *d, hoist_device *device, int fd,
			 hoist_memory *given, struct hoist__storage **ret)
{
	struct hoist__opened *opened;
	int err = open_allocation(d, &device, fd, given, &opened);
	if (err < 0)
		return err;
	uintptr_t address = hoist__opened_address(opened) + (uintptr_t)d->offset;
	const struct hoist__foreign foreign = {
		.device = device,
		.kind = HOIST__MEMORY_DEVICE,
		.address = address,
		.bytes = (size_t)d->bytes,
		.read_only = (d->flags & HOIST_IPC_READ_ONLY) != 0,
		.mapped = !hoist__opened_is_own(opened),
		.release = hoist__opened_close,
		.context = opened,
	};
	err = hoist__storage_wrap(&foreign, ret);
	if (err < 0)
		hoist__opened_close(opened);
	return err;
}

static int import_storage(const hoist_ipc_descriptor *d, hoist_device *device, int fd,
			  hoist_memory *given, struct hoist__storage **ret)
{
	switch (d->kind) {
	case HOIST_IPC_EMPTY:
		return hoist__storage_none(device, ret);
	case HOIST_IPC_HOST:
		return import_host(d, device, fd, ret);
	default:
		return import_device(d, device, fd, given, ret);
	}
}

static int import(const hoist_ipc_descriptor *d, int fd, hoist_memory *given, hoist_buffer **ret)
{
	struct hoist__storage *storage = NULL;
	hoist_device *device = NULL;
	int err = find_device(d, &device);
	if (err == 0)
		err = import_storage(d, device, fd, given, &storage);
	hoist_device_unref(device);
	if (err < 0)
		return err;
	const struct hoist__view view = {
		.dtype = (hoist_dtype)d->dtype,
		.rank = d->rank,
		.bit = d->bit,
		.read_only = (d->flags & HOIST_IPC_READ_ONLY) != 0,
		.offset = (size_t)d->first,
		.shape = d->shape,
		.strides = d->strides,
	};
	return hoist__buffer_make_last(storage, &view, ret);
}

int hoist_ipc_import(const void *descriptor, size_t bytes, int fd, hoist_memory *memory,
		     hoist_buffer **ret)
{
	hoist_ipc_descriptor d;
	int err = hoist__ipc_check(descriptor, bytes, &d);
	if (err == 0)
		err = import(&d, fd, memory, ret);
	return err < 0 ? hoist__fail_in(err, "importing a buffer") : 0;
}
