/* SPDX-License-Identifier: MIT */
/* lib/memory/memory.c - implements the public calls of memory resources.
 * The contract is in hoist/memory.h and lib/memory/memory.h. */
#include "config.h"

#include "alloc/fast.h"
#include "base/checked.h"
#include "base/error.h"
#include "hoist/memory-driver.h"
#include "hoist/user.h"
#include "lib/core/options.h"
#include "lib/device/device.h"
#include "lib/memory/memory.h"
#include "lib/memory/parked.h"

#define MAX_ALIGN (2 * HOIST__MIB)

/* --- checks that the calls begin with --- */

static int check_memory(const hoist_memory *memory)
{
	return memory != NULL ? 0 : hoist__fail(-EINVAL, "the memory resource is NULL");
}

static int fail_unsupported(const hoist_memory *memory, const char *what)
{
	return hoist__fail(-ENOTSUP, "\"%s\": %s memory cannot %s", memory->name,
			   hoist__memory_kind_text(memory->options.kind), what);
}

static int named(const hoist_memory *memory, int err)
{
	return err < 0 ? hoist__fail_in(err, "\"%s\"", memory->name) : err;
}

static bool is_cpu(const struct hoist__dev *dev)
{
	return hoist__dev_api(dev) == HOIST__API_CPU;
}

bool hoist__resource_is_host(const hoist_memory *memory)
{
	int kind = memory->options.kind;
	return kind == HOIST_MEMORY_HOST ||
	       (is_cpu(memory->dev) && (kind == HOIST_MEMORY_HEAP || kind == HOIST_MEMORY_DEVICE));
}

/* A block in stream order goes to its next user when the work of the stream has passed: so the
 * stream must be of a device that can use the memory. */
static bool stream_fits(const hoist_memory *memory, const struct hoist__dev *dev)
{
	int kind = memory->options.kind;
	if (kind == HOIST_MEMORY_CUSTOM)
		return true; /* the caller's functions decide */
	if (hoist__resource_is_host(memory))
		return is_cpu(dev);
	if (kind == HOIST_MEMORY_PINNED || kind == HOIST_MEMORY_HEAP)
		return is_cpu(dev) || hoist__dev_api(dev) == hoist__dev_api(memory->dev);
	return dev == memory->dev || (kind == HOIST_MEMORY_MANAGED && is_cpu(dev));
}

int hoist__memory_check_stream(const hoist_memory *memory, const hoist_stream *stream)
{
	if (stream == NULL)
		return hoist__fail(-EINVAL, "\"%s\": the stream is NULL", memory->name);
	const hoist_device *device = hoist_stream_device(stream);
	if (stream_fits(memory, hoist__device_dev(device)))
		return 0;
	return hoist__fail(-EINVAL, "\"%s\": a stream of %s cannot order %s memory of %s",
			   memory->name, hoist_device_spec(device),
			   hoist__memory_kind_text(memory->options.kind),
			   hoist_device_spec(memory->device));
}

/* --- allocating --- */

/* -EDQUOT comes from budgets and limits, -EPERM from RLIMIT_MEMLOCK. */
static bool is_exhaustion(int err)
{
	return err == -ENOMEM || err == -ENOSPC || err == -EDQUOT || err == -EPERM;
}

/* Tries again, for kinds that do not do so themselves. */
static int alloc_again(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
		       uintptr_t *ret, int first_err)
{
	struct hoist__failure cause;
	hoist__failure_keep(&cause);
	unsigned most = hoist__memory_retries(memory);
	for (unsigned attempt = 1; attempt <= most; attempt++) {
		if (hoist__memory_exhausted(memory, bytes, attempt) == 0)
			break;
		if (memory->ops->alloc(memory, bytes, align, stream, ret) == 0)
			return 0;
	}
	/* The first failure has the figures of the moment in which the memory ran out. */
	return hoist__fail_again(first_err, &cause);
}

static int alloc_slow(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
		      uintptr_t *ret)
{
	if (align != 0 && (!hoist__is_power_of_two(align) || align > MAX_ALIGN))
		return hoist__fail(-EINVAL, "\"%s\": alignment %zu is no power of two up to 2 MiB",
				   memory->name, align);
	if (bytes == 0) {
		*ret = 0;
		return 0;
	}
	int err = memory->ops->alloc(memory, bytes, align, stream, ret);
	if (is_exhaustion(err) && !memory->ops->asks_again)
		err = alloc_again(memory, bytes, align, stream, ret, err);
	return named(memory, err);
}

/* Out of line, so that the fast path need not save registers. */
static __attribute__((noinline)) int alloc_past(hoist_memory *memory, size_t bytes, size_t align,
						uintptr_t *ret)
{
	int err = check_memory(memory);
	if (err < 0)
		return err;
	struct hoist__pool *pool = atomic_load_explicit(&memory->xpool, memory_order_acquire);
	if (pool == NULL || bytes == 0)
		return alloc_slow(memory, bytes, align, NULL, ret);
	return named(memory, hoist__pool_alloc_past(pool, bytes, align, ret));
}

int hoist_memory_alloc(hoist_memory *memory, size_t bytes, size_t align, uintptr_t *ret)
{
	if (!HOIST__LIKELY(memory != NULL))
		return alloc_past(memory, bytes, align, ret);
	struct hoist__pool *pool = atomic_load_explicit(&memory->xpool, memory_order_acquire);
	if (HOIST__LIKELY(pool != NULL) &&
	    HOIST__LIKELY(hoist__pool_alloc_fast(pool, bytes, align, ret)))
		return 0;
	return alloc_past(memory, bytes, align, ret);
}

int hoist_memory_alloc_on(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
			  uintptr_t *ret)
{
	int err = check_memory(memory);
	if (err == 0)
		err = hoist__memory_check_stream(memory, stream);
	return err < 0 ? err : alloc_slow(memory, bytes, align, stream, ret);
}

/* --- freeing --- */

static __attribute__((noinline)) int free_past(hoist_memory *memory, uintptr_t address)
{
	int err = check_memory(memory);
	if (err < 0 || address == 0)
		return err;
	struct hoist__pool *pool = atomic_load_explicit(&memory->xpool, memory_order_acquire);
	return named(memory, pool != NULL ? hoist__pool_free_past(pool, address)
					  : memory->ops->free(memory, address, NULL));
}

int hoist_memory_free(hoist_memory *memory, uintptr_t address)
{
	if (!HOIST__LIKELY(memory != NULL))
		return free_past(memory, address);
	struct hoist__pool *pool = atomic_load_explicit(&memory->xpool, memory_order_acquire);
	if (HOIST__LIKELY(pool != NULL) && HOIST__LIKELY(hoist__pool_free_fast(pool, address)))
		return 0;
	return free_past(memory, address);
}

int hoist_memory_free_on(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	int err = check_memory(memory);
	if (err == 0)
		err = hoist__memory_check_stream(memory, stream);
	if (err < 0 || address == 0)
		return err;
	return named(memory, memory->ops->free(memory, address, stream));
}

int hoist_memory_use(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	int err = check_memory(memory);
	if (err == 0 && memory->ops->use == NULL)
		return fail_unsupported(memory, "wait for several streams");
	if (err == 0)
		err = hoist__memory_check_stream(memory, stream);
	return err < 0 ? err : named(memory, memory->ops->use(memory, address, stream));
}

int hoist_memory_granularity(hoist_memory *memory, size_t *ret)
{
	int err = check_memory(memory);
	if (err == 0 && memory->ops->granularity == NULL)
		return fail_unsupported(memory, "tell a granularity: it has none");
	return err < 0 ? err : named(memory, memory->ops->granularity(memory, ret));
}

int hoist_memory_grow(hoist_memory *memory, uintptr_t address, size_t bytes, uintptr_t *ret)
{
	int err = check_memory(memory);
	if (err == 0 && memory->ops->grow == NULL)
		return fail_unsupported(memory, "grow blocks");
	return err < 0 ? err : named(memory, memory->ops->grow(memory, address, bytes, ret));
}

int hoist_memory_release_captured(hoist_memory *memory)
{
	int err = check_memory(memory);
	if (err < 0 || memory->ops->release_captured == NULL)
		return err;
	return named(memory, memory->ops->release_captured(memory));
}

int hoist_memory_synchronize(hoist_memory *memory)
{
	int err = check_memory(memory);
	if (err < 0)
		return err;
	return named(memory, memory->ops->synchronize != NULL
				     ? memory->ops->synchronize(memory)
				     : hoist_device_synchronize(memory->device));
}

/* --- addresses --- */

/* Gives the address by which the device sees the block at @start. */
static int device_address(hoist_memory *memory, uintptr_t start, uintptr_t *ret)
{
	*ret = start;
	if (is_cpu(memory->dev))
		return 0;
	int kind = memory->options.kind;
	/* A driver may map pinned memory at another address than the host's. */
	if (kind == HOIST_MEMORY_PINNED || kind == HOIST_MEMORY_HEAP)
		return hoist__pool_device_address(memory->dev, start, ret);
	if (memory->info.is_device_accessible)
		return 0;
	return hoist__fail(-ENOTSUP, "%s memory cannot be seen by a device",
			   hoist__memory_kind_text(kind));
}

int hoist_memory_device_address(hoist_memory *memory, uintptr_t address, uintptr_t *ret)
{
	uintptr_t start;
	uintptr_t seen;
	int err = check_memory(memory);
	if (err < 0)
		return err;
	err = memory->ops->block_of(memory, address, &start);
	if (err == 0)
		err = device_address(memory, start, &seen);
	if (err < 0)
		return named(memory, err);
	*ret = seen + (address - start);
	return 0;
}

int hoist_memory_find(uintptr_t address, hoist_block_info *info)
{
	struct hoist__pool *pool;
	struct hoist__block block;
	int err = hoist__pools_find(address, &pool, &block);
	if (err < 0)
		return err;
	/* The pool of a resource has the resource as the context of its exhausted function.  The
	 * pool of a heap is refused: the heap's blocks lie within the blocks of its pool. */
	const struct hoist__pool_options *options = hoist__pool_options_of(pool);
	hoist_memory *memory = options->exhausted_context;
	if (options->exhausted != hoist__memory_exhausted || memory->ops != &hoist__memory_pool_ops)
		return hoist__fail(-ENOENT, "%#zx lies in no block of a memory resource",
				   (size_t)address);
	const hoist_block_info known = {
		.size = sizeof known,
		.memory = memory,
		.address = block.address,
		.bytes = block.bytes,
		.allocated_bytes = block.allocated,
		.node = block.node,
		.region = block.region->base,
		.region_bytes = block.region->bytes,
	};
	return hoist__options_out("hoist_block_info", info, &known, sizeof known);
}

/* --- regions, trimming, statistics --- */

int hoist_memory_add_region(hoist_memory *memory, uintptr_t address, size_t bytes)
{
	int err = check_memory(memory);
	if (err < 0)
		return err;
	if (memory->ops->add_region == NULL)
		return fail_unsupported(memory, "use memory of the caller's");
	return named(memory, memory->ops->add_region(memory, address, bytes));
}

int hoist_memory_trim(hoist_memory *memory, size_t keep_bytes)
{
	int err = check_memory(memory);
	if (err < 0)
		return err;
	(void)hoist__parked_sweep(memory->device, true);
	return memory->ops->trim == NULL ? 0 : named(memory, memory->ops->trim(memory, keep_bytes));
}

int hoist_memory_get_statistics(hoist_memory *memory, hoist_memory_statistics *statistics)
{
	hoist_memory_statistics known = {.size = sizeof known};
	int err = check_memory(memory);
	if (err < 0)
		return err;
	err = memory->ops->statistics(memory, &known);
	if (err < 0)
		return named(memory, err);
	known.n_exhausted = atomic_load(&memory->xn_exhausted);
	known.parked_bytes = atomic_load(&memory->xparked_bytes);
	return hoist__options_out("hoist_memory_statistics", statistics, &known, sizeof known);
}

int hoist_memory_reset_peaks(hoist_memory *memory)
{
	int err = check_memory(memory);
	return err < 0 ? err : named(memory, memory->ops->reset_peaks(memory));
}

int hoist_memory_trace(hoist_memory *memory, const char *path)
{
	int err = check_memory(memory);
	if (err < 0)
		return err;
	if (memory->ops->trace == NULL)
		return fail_unsupported(memory, "be traced");
	return named(memory, memory->ops->trace(memory, path));
}

int hoist_memory_set_user(hoist_memory *memory, void *expected, void *data,
			  void (*release)(void *data))
{
	return hoist__user_set(memory != NULL ? &memory->user : NULL, "memory resource", expected,
			       data, release);
}

void *hoist_memory_get_user(const hoist_memory *memory)
{
	return hoist__user_get(&memory->user);
}
