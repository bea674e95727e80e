/* SPDX-License-Identifier: MIT */
/* lib/exchange/ipc-open.c - the device allocations of other processes that this one has open.
 * The contract is in lib/exchange/ipc.h.
 *
 * Drivers differ in what happens if an allocation is opened twice.  Here each is opened once and
 * counted, so that all buffers over it are at one address, and each buffer can end for itself.  An
 * allocation is recognised by its handle: 64 bytes that the driver made.
 *
 * Drivers do not open an allocation of this very process.  For such a one the handle is made once
 * more and compared, which proves that the allocation was exported and still exists. */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/list.h"
#include "base/log.h"
#include "hoist/ipc.h"
#include "lib/device/device.h"
#include "lib/exchange/ipc.h"
#include "lib/memory/memory-driver.h"
#include "lib/memory/memory.h"

struct hoist__opened {
	struct hoist__list node; /* in `all` */
	unsigned refs;
	unsigned generation;
	bool own; /* this process's own: nothing was opened */
	uint32_t kind;
	struct hoist__dev *dev;
	hoist_memory *memory; /* for a POOL, with a reference */
	struct hoist__ipc_handle handle;
	struct hoist__ipc_name process; /* the exporter; and the address in that process */
	int64_t pid;
	uint64_t address_there;
	uintptr_t address;
	size_t bytes;
};

/* Held while the driver opens or closes, so that nobody gets an allocation that is about to
 * close. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hoist__list all = {&all, &all};

static struct hoist__opened *opened_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__opened, node);
}

/* A child of fork may find the lock taken and the list half changed by its parent.  But it has no
 * driver, and so nothing is open: it begins with an empty list. */
static void begin_anew(void)
{
	pthread_mutex_init(&lock, NULL);
	hoist__list_init(&all);
}

static int watch_error;

static void watch_forks(void)
{
	watch_error = -pthread_atfork(NULL, NULL, begin_anew);
}

/* --- opening --- */

static struct hoist__opened *find(const struct hoist__opened *wanted)
{
	for (struct hoist__list *at = all.next; at != &all; at = at->next) {
		struct hoist__opened *o = opened_of(at);
		if (o->kind == wanted->kind && o->dev == wanted->dev &&
		    o->memory == wanted->memory &&
		    memcmp(&o->handle, &wanted->handle, sizeof o->handle) == 0)
			return o;
	}
	return NULL;
}

static int close_native(const struct hoist__opened *o)
{
	return o->kind == HOIST_IPC_POOL ? hoist__dev_mem_free(o->dev, o->address, o->bytes)
					 : hoist__dev_ipc_close(o->dev, o->address);
}

/* Opens the allocation; sets its address and size. */
static int open_native(struct hoist__opened *o)
{
	struct hoist__dev_pool *pool;
	uintptr_t base;
	int err = 0;
	if (o->kind == HOIST_IPC_POOL) {
		err = hoist__driver_shared_pool(o->memory, &pool);
		if (err == 0)
			err = hoist__dev_pool_import_block(pool, &o->handle, &o->address);
	} else {
		err = hoist__dev_ipc_open(o->dev, &o->handle, &o->address);
	}
	if (err == -EREMOTEIO)
		return hoist__fail_in(err, "memory of process %lld, which must still have it",
				      (long long)o->pid);
	if (err < 0)
		return err;
	err = hoist__dev_allocation(o->dev, o->address, &base, &o->bytes);
	if (err == 0 && o->address - base >= o->bytes)
		err = hoist__fail(-EREMOTEIO, "the driver opened %#zx in the allocation at %#zx",
				  (size_t)o->address, (size_t)base);
	if (err < 0)
		(void)close_native(o);
	else /* drivers open the block that the allocation was carved from, which may begin before
	      * it */
		o->bytes -= o->address - base;
	return err;
}

/* Makes the handle of this process's own allocation again. */
static int export_again(const struct hoist__opened *o, struct hoist__ipc_handle *ret)
{
	struct hoist__dev_pool *pool;
	uintptr_t raw;
	size_t bytes;
	if (o->kind == HOIST_IPC_DEVICE)
		return hoist__dev_ipc_export(o->dev, o->address, ret);
	int err = hoist__driver_block(o->memory, o->address, &raw, &bytes);
	if (err == 0)
		err = hoist__driver_shared_pool(o->memory, &pool);
	return err < 0 ? err : hoist__dev_pool_export_block(pool, raw, ret);
}

static int find_own(struct hoist__opened *o)
{
	struct hoist__ipc_handle handle;
	uintptr_t base = 0;
	o->address = (uintptr_t)o->address_there;
	int err = hoist__dev_allocation(o->dev, o->address, &base, &o->bytes);
	if (err == 0 && base == o->address)
		err = export_again(o, &handle);
	if (err < 0 && err != -EINVAL && err != -ENOTSUP)
		return err;
	if (err < 0 || base != o->address || memcmp(&handle, &o->handle, sizeof handle) != 0)
		return hoist__fail(-EINVAL,
				   "the allocation at %#zx, which this process exported, "
				   "is no more",
				   (size_t)o->address);
	return 0;
}

static bool is_own(const struct hoist__opened *o)
{
	struct hoist__ipc_name process;
	return hoist__ipc_process(&process) == 0 &&
	       memcmp(&process, &o->process, sizeof process) == 0;
}

/* Pre: the lock is held. */
static int get(struct hoist__opened *wanted, struct hoist__opened **ret)
{
	struct hoist__opened *found = find(wanted);
	if (found != NULL) {
		found->refs++;
		*ret = found;
		return 0;
	}
	wanted->own = is_own(wanted);
	int err = wanted->own ? find_own(wanted) : open_native(wanted);
	if (err < 0)
		return err;
	if (wanted->memory != NULL)
		(void)hoist_memory_ref(wanted->memory);
	hoist__list_push_back(&all, &wanted->node);
	*ret = wanted;
	return 0;
}

static int check_extent(const struct hoist__opened *o, const hoist_ipc_descriptor *d)
{
	if (d->offset <= o->bytes && d->bytes <= o->bytes - d->offset)
		return 0;
	return hoist__fail(
		-EINVAL,
		"a buffer of %llu bytes from %llu on exceeds the mapped allocation extent "
		"of %zu bytes",
		(unsigned long long)d->bytes, (unsigned long long)d->offset, o->bytes);
}

/* The entry is made before the lock is taken, and dropped if the allocation is open already. */
int hoist__opened_get(const hoist_ipc_descriptor *d, hoist_device *device, hoist_memory *memory,
		      struct hoist__opened **ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct hoist__opened *found = NULL;
	pthread_once(&once, watch_forks);
	if (watch_error < 0)
		return hoist__fail_errno(watch_error, "asking to be told of fork()");
	struct hoist__opened *wanted = calloc(1, sizeof *wanted);
	if (wanted == NULL)
		return hoist__fail_nomem("another process's allocation", sizeof *wanted);
	hoist__list_init(&wanted->node);
	wanted->refs = 1;
	wanted->generation = hoist__fork_now();
	wanted->kind = d->kind;
	wanted->dev = hoist__device_dev(device);
	wanted->memory = memory;
	memcpy(&wanted->handle, d->payload, sizeof wanted->handle);
	memcpy(&wanted->process, d->process, sizeof wanted->process);
	wanted->pid = d->pid;
	wanted->address_there = d->address;
	pthread_mutex_lock(&lock);
	int err = get(wanted, &found);
	pthread_mutex_unlock(&lock);
	if (found != wanted)
		free(wanted);
	if (err == 0)
		err = check_extent(found, d);
	if (err < 0)
		hoist__opened_close(found);
	else
		*ret = found;
	return err;
}

/* --- having --- */

void hoist__opened_close(void *closed)
{
	struct hoist__opened *o = closed;
	if (o == NULL)
		return;
	int err = 0;
	pthread_mutex_lock(&lock);
	bool last = --o->refs == 0;
	if (last && o->generation == hoist__fork_now()) {
		hoist__list_remove(&o->node);
		err = o->own ? 0 : close_native(o);
	}
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	if (err < 0)
		hoist__log(device, "%s", hoist__error_text());
	hoist_memory_unref(o->memory);
	free(o);
}

uintptr_t hoist__opened_address(const struct hoist__opened *opened)
{
	return opened->address;
}

bool hoist__opened_is_own(const struct hoist__opened *opened)
{
	return opened->own;
}

bool hoist__opened_describe(uintptr_t address, hoist_ipc_descriptor *d, hoist_memory **ret)
{
	bool found = false;
	pthread_mutex_lock(&lock);
	for (struct hoist__list *at = all.next; at != &all && !found; at = at->next) {
		const struct hoist__opened *o = opened_of(at);
		found = address - o->address < o->bytes;
		if (!found)
			continue;
		d->kind = o->kind;
		memcpy(d->process, &o->process, sizeof d->process);
		d->pid = o->pid;
		memcpy(d->payload, &o->handle, sizeof d->payload);
		d->address = o->address_there;
		d->offset = address - o->address;
		*ret = o->memory;
	}
	pthread_mutex_unlock(&lock);
	return found;
}
