/* SPDX-License-Identifier: MIT */
/* lib/ipc.c - buffers into descriptors, and descriptors into buffers. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "lib/buffer-private.h"
#include "lib/ipc.h"
#include "lib/memory.h"
#include "lib/shared.h"

/* --- this process --- */

struct process {
	struct process
		*parent; /* of the one that forked this, or NULL; only so that none is lost */
	unsigned generation;
	struct hoist__ipc_name name;
};

static struct process *_Atomic xprocess;

int hoist__ipc_process(struct hoist__ipc_name *ret)
{
	struct process *known = atomic_load(&xprocess);
	if (known == NULL || known->generation != hoist__fork_now()) {
		struct process *made = calloc(1, sizeof *made);
		if (made == NULL)
			return hoist__fail_nomem("the name of this process", sizeof *made);
		made->parent = known;
		made->generation = hoist__fork_now();
		int err = hoist__ipc_name_make(&made->name);
		if (err == 0 && atomic_compare_exchange_strong(&xprocess, &known, made))
			known = made;
		else
			free(made);
		if (err < 0)
			return err;
	}
	*ret = known->name;
	return 0;
}

/* --- devices --- */

static int describe_device(hoist_device *device, hoist_ipc_descriptor *d)
{
	hoist_device_info info = {.size = sizeof info};
	int err = hoist_device_get_info(device, &info);
	if (err < 0)
		return err;
	(void)snprintf(d->api, sizeof d->api, "%s", info.api);
	(void)snprintf(d->pci, sizeof d->pci, "%s", info.pci);
	d->ordinal = info.id;
	return 0;
}

/* Where it is on the bus, as each process may count its devices in its own way; of several that are
 * there (parts of one), the one of that number. */
static int find_device(const hoist_ipc_descriptor *d, hoist_device **ret)
{
	hoist_device *found = NULL;
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
				   d->api, (int)d->ordinal, d->pci, n);
	*ret = hoist_device_ref(found);
	return 0;
}

/* --- exporting --- */

static int export_host(const hoist_buffer *buffer, uintptr_t lowest, hoist_ipc_descriptor *d,
		       int *ret_fd)
{
	struct hoist__shared *shared = hoist__shared_find(lowest);
	if (shared == NULL)
		return hoist__fail(-ENOTSUP,
				   "this memory is the process's own: make the buffer with "
				   "HOIST_BUFFER_SHAREABLE, or copy it into one");
	int err = ret_fd == NULL ? hoist__fail(-EINVAL, "host memory is passed by its file "
							"descriptor; there is no place for it")
				 : 0;
	if (err == 0)
		err = hoist__shared_export(shared, hoist__storage_is_read_only(buffer->storage),
					   ret_fd);
	if (err == 0) {
		d->kind = HOIST_IPC_HOST;
		d->address = hoist__shared_address(shared);
		d->offset = lowest - hoist__shared_address(shared);
	}
	hoist__shared_close(shared);
	return err;
}

/* @memory: the resource, or NULL if it is another process's and not known here. */
static int export_name(hoist_memory *memory, hoist_ipc_descriptor *d, int *ret_fd)
{
	hoist_memory *registered = NULL;
	int err = hoist_ipc_memory_uuid(memory, d->memory);
	if (err == 0 && ret_fd != NULL)
		return hoist_ipc_export_memory(memory, ret_fd);
	if (err == 0)
		err = hoist_ipc_register_memory(memory, &registered);
	hoist_memory_unref(registered);
	return err;
}

static int export_pool(hoist_memory *memory, uintptr_t lowest, hoist_ipc_descriptor *d, int *ret_fd)
{
	struct hoist__ipc_handle handle;
	struct hoist__dev_pool *pool;
	uintptr_t raw;
	size_t bytes;
	int err = hoist__driver_shared_pool(memory, &pool);
	if (err == 0)
		err = hoist__driver_block(memory, lowest, &raw, &bytes);
	if (err == 0)
		err = hoist__dev_pool_export_block(pool, raw, &handle);
	if (err == 0)
		err = export_name(memory, d, ret_fd);
	if (err < 0)
		return err;
	d->kind = HOIST_IPC_POOL;
	d->address = raw;
	d->offset = lowest - raw;
	memcpy(d->payload, handle.bytes, sizeof d->payload);
	return 0;
}

static int export_plain(hoist_device *device, uintptr_t lowest, hoist_ipc_descriptor *d)
{
	struct hoist__dev *dev = hoist__device_dev(device);
	struct hoist__ipc_handle handle;
	uintptr_t base;
	size_t bytes;
	int err = hoist__dev_allocation(dev, lowest, &base, &bytes);
	if (err == 0)
		err = hoist__dev_ipc_export(dev, base, &handle);
	if (err < 0)
		return err;
	d->kind = HOIST_IPC_DEVICE;
	d->address = base;
	d->offset = lowest - base;
	memcpy(d->payload, handle.bytes, sizeof d->payload);
	return 0;
}

/* What was imported goes on as it came. */
static int export_device(const hoist_buffer *buffer, uintptr_t lowest, hoist_ipc_descriptor *d,
			 int *ret_fd)
{
	hoist_memory *memory = hoist__storage_memory(buffer->storage);
	while (memory != NULL && memory->upstream != NULL)
		memory = memory->upstream;
	if (memory != NULL && memory->options.kind == HOIST_MEMORY_DRIVER_POOL)
		return export_pool(memory, lowest, d, ret_fd);
	if (memory != NULL || !hoist__opened_describe(lowest, d, &memory))
		return export_plain(buffer->device, lowest, d);
	return memory != NULL ? export_name(memory, d, ret_fd) : 0;
}

static int export_memory(const hoist_buffer *buffer, hoist_ipc_descriptor *d, int *ret_fd)
{
	int64_t low, high;
	int err = hoist__ipc_extent(d, &low, &high);
	if (err < 0)
		return err;
	uintptr_t first = hoist__storage_address(buffer->storage) + buffer->offset;
	uintptr_t lowest = first + (uintptr_t)low;
	d->bytes = (uint64_t)(high - low);
	d->first = (uint64_t)-low;
	switch (hoist__storage_kind(buffer->storage)) {
	case HOIST__MEMORY_HOST:
		return export_host(buffer, lowest, d, ret_fd);
	case HOIST__MEMORY_DEVICE:
		return export_device(buffer, lowest, d, ret_fd);
	case HOIST__MEMORY_PINNED:
		return hoist__fail(-ENOTSUP, "pinned memory is this process's own: copy it into a "
					     "buffer made with HOIST_BUFFER_SHAREABLE");
	case HOIST__MEMORY_MANAGED:
		break;
	}
	return hoist__fail(-ENOTSUP,
			   "the driver shares no managed memory: copy it into a buffer of "
			   "the device");
}

static int describe(const hoist_buffer *buffer, hoist_ipc_descriptor *d)
{
	struct hoist__ipc_name process;
	size_t n = (size_t)buffer->rank;
	memset(d, 0, sizeof *d);
	int err = hoist__ipc_process(&process);
	if (err == 0)
		err = describe_device(buffer->device, d);
	if (err < 0)
		return err;
	memcpy(d->magic, "hoistipc", sizeof d->magic);
	memcpy(d->process, &process, sizeof d->process);
	d->version = HOIST_IPC_VERSION;
	d->size = sizeof *d;
	d->pid = getpid();
	if (buffer->read_only || hoist__storage_is_read_only(buffer->storage))
		d->flags = HOIST_IPC_READ_ONLY;
	d->rank = buffer->rank;
	d->bit = buffer->bit;
	d->dtype = (uint32_t)buffer->dtype;
	if (n > 0) {
		memcpy(d->shape, buffer->dims, n * sizeof d->shape[0]);
		memcpy(d->strides, buffer->strides, n * sizeof d->strides[0]);
	}
	return 0;
}

int hoist_ipc_export(hoist_buffer *buffer, hoist_ipc_descriptor *ret, int *ret_fd)
{
	hoist_ipc_descriptor d;
	int fd = -1;
	int err = hoist__buffer_check(buffer, "the buffer to export");
	if (err == 0)
		err = hoist__buffer_settle(buffer);
	if (err == 0)
		err = describe(buffer, &d);
	if (err < 0)
		return err;
	if (buffer->elements == 0)
		d.kind = HOIST_IPC_EMPTY;
	else
		err = export_memory(buffer, &d, ret_fd != NULL ? &fd : NULL);
	if (err < 0)
		return hoist__fail_in(err, "exporting a buffer of %s",
				      hoist_device_spec(buffer->device));
	*ret = d;
	if (ret_fd != NULL)
		*ret_fd = fd;
	return 0;
}

/* --- importing --- */

static int import_host(const hoist_ipc_descriptor *d, hoist_device *cpu, int fd,
		       struct hoist__storage **ret)
{
	struct hoist__shared *shared;
	bool read_only = (d->flags & HOIST_IPC_READ_ONLY) != 0;
	if (fd < 0)
		return hoist__fail(-EBADMSG,
				   "it is host memory, whose file descriptor did not come "
				   "with it");
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
		.device_address = hoist__shared_address(shared) + (uintptr_t)d->offset,
		.bytes = (size_t)d->bytes,
		.read_only = read_only || hoist__shared_is_read_only(shared),
		.mapped = hoist__shared_is_foreign(shared),
		.release = hoist__shared_close,
		.context = shared,
	};
	err = hoist__storage_wrap(&foreign, ret);
	if (err < 0)
		hoist__shared_close(shared);
	return err;
}

/* The resource that @d says, with a reference. */
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

static int open_allocation(const hoist_ipc_descriptor *d, hoist_device *device, int fd,
			   hoist_memory *given, struct hoist__opened **ret)
{
	hoist_memory *memory = NULL;
	int err = 0;
	if (d->kind == HOIST_IPC_POOL)
		err = find_memory(d, device, fd, given, &memory);
	if (err == 0)
		err = hoist__opened_get(d, memory != NULL ? memory->device : device, memory, ret);
	hoist_memory_unref(memory);
	return err;
}

static int import_device(const hoist_ipc_descriptor *d, hoist_device *device, int fd,
			 hoist_memory *given, struct hoist__storage **ret)
{
	struct hoist__opened *opened;
	int err = open_allocation(d, device, fd, given, &opened);
	if (err < 0)
		return err;
	uintptr_t address = hoist__opened_address(opened) + (uintptr_t)d->offset;
	const struct hoist__foreign foreign = {
		.device = device,
		.kind = HOIST__MEMORY_DEVICE,
		.address = address,
		.device_address = address,
		.bytes = (size_t)d->bytes,
		.read_only = (d->flags & HOIST_IPC_READ_ONLY) != 0,
		.mapped = true,
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
	err = hoist__buffer_make(storage, &view, ret);
	hoist__storage_unref(storage);
	return err;
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
