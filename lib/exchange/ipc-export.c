/* SPDX-License-Identifier: MIT */
/* lib/exchange/ipc-export.c - turns buffers into descriptors; has the name of this process.
 * The contract is in hoist/ipc.h and lib/exchange/ipc.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc/shared.h"
#include "base/error.h"
#include "hoist/ipc.h"
#include "lib/buffer/buffer-private.h"
#include "lib/device/device.h"
#include "lib/exchange/ipc.h"
#include "lib/memory/memory-driver.h"
#include "lib/memory/memory.h"

/* --- this process --- */

struct process {
	struct process *parent; /* the struct of the process that forked this one, or NULL; kept
				 * only so that it is not lost */
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
	/* Only the process that made the memory may seal it. */
	bool seal =
		hoist__storage_is_read_only(buffer->storage) && !hoist__shared_is_foreign(shared);
	if (err == 0)
		err = hoist__shared_export(shared, seal, ret_fd);
	if (err == 0) {
		d->kind = HOIST_IPC_HOST;
		d->address = hoist__shared_address(shared);
		d->offset = lowest - hoist__shared_address(shared);
	}
	hoist__shared_close(shared);
	return err;
}

/* Names the resource.  @memory is NULL if it is another process's resource that is not known
 * here. */
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

/* Memory that was imported is exported with the handle it came with. */
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

/* The descriptor covers the bytes that the elements touch, not the whole storage: `first` says
 * where in these bytes the first element begins. */
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

/* The struct is set to zero first: no byte of it that is not set may carry this process's memory to
 * another. */
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
	/* The importing process cannot wait for a stream of this process. */
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
