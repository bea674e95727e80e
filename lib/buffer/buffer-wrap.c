/* SPDX-License-Identifier: MIT */
/* lib/buffer/buffer-wrap.c - makes buffers over the caller's memory, or over a block of a resource.
 * The contract is in hoist/buffer.h. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "base/layout.h"
#include "lib/buffer/buffer-private.h"
#include "lib/core/options.h"
#include "lib/device/device.h"
#include "lib/memory/memory.h"

static int check_source(const hoist_buffer_source *source)
{
	if (source->memory != NULL && source->release != NULL)
		return hoist__fail(-EINVAL,
				   "memory goes back to its resource or to a release function, not "
				   "to both");
	if (source->stream != NULL && source->memory == NULL)
		return hoist__fail(-EINVAL, "only a resource frees on a stream; give memory, too");
	if (source->memory != NULL && source->bytes_before != 0)
		return hoist__fail(-EINVAL, "a block of a resource begins with its first byte; "
					    "bytes_before must be 0");
	if (source->address == 0 && source->bytes + source->bytes_before != 0)
		return hoist__fail(-EINVAL, "%zu bytes at address 0", source->bytes);
	/* Nothing begins at address 0, which stands for no memory. */
	if ((source->bytes_before > 0 && source->bytes_before >= source->address) ||
	    source->bytes > UINTPTR_MAX - source->address)
		return hoist__fail(-EINVAL,
				   "%zu bytes before and %zu behind %#" PRIxPTR
				   " leave the address space",
				   source->bytes_before, source->bytes, source->address);
	return 0;
}

/* Compares the bytes that the elements cover with the bytes that the caller has. */
static int check_elements(const hoist_buffer_source *source, hoist_dtype dtype, int rank,
			  const int64_t *shape, const int64_t *strides)
{
	int64_t low;
	int64_t high;
	uint64_t elements;
	size_t bytes = 0;
	int err = hoist__buffer_measure(dtype, rank, shape, &elements, &bytes);
	if (err < 0)
		return err;
	if (hoist__layout_contiguous(rank, shape, strides)) {
		low = 0;
		high = (int64_t)bytes;
	} else {
		err = hoist__layout_bounds(dtype, rank, shape, strides, &low, &high);
	}
	if (err < 0)
		return err;
	if ((uint64_t)high > source->bytes)
		return hoist__fail(-EINVAL, "the elements need %lld bytes, there are %zu",
				   (long long)high, source->bytes);
	if ((uint64_t)-low > source->bytes_before)
		return hoist__fail(-EINVAL,
				   "strides lead to %lld bytes before the first element, where the "
				   "source has %zu",
				   -(long long)low, source->bytes_before);
	return 0;
}

static enum hoist__memory_kind kind_of(const struct hoist__pointer *pointer)
{
	return pointer->managed			  ? HOIST__MEMORY_MANAGED
	       : pointer->host && pointer->device ? HOIST__MEMORY_PINNED
	       : pointer->device		  ? HOIST__MEMORY_DEVICE
						  : HOIST__MEMORY_HOST;
}

/* Finds whose memory it is, as the drivers see it.  Host memory that a driver knows belongs to all
 * devices of that API, and to the CPU.  It becomes the first device's, unless the caller names
 * another. */
static int find_owner(const hoist_buffer_source *source, struct hoist__foreign *foreign)
{
	struct hoist__pointer pointer;
	int err = hoist__pointer_find(source->address, &pointer);
	if (err < 0)
		return err;
	char spec[32] = "cpu";
	if (pointer.api != HOIST__API_CPU)
		(void)snprintf(spec, sizeof spec, "%s:%d", hoist__api_name(pointer.api),
			       pointer.ordinal >= 0 ? pointer.ordinal : 0);
	hoist_device *found;
	err = hoist_device_open(spec, &found);
	if (err < 0)
		return err;
	hoist_device_unref(found); /* devices live as long as the process */
	hoist_device *given = source->device != NULL ? source->device : found;
	enum hoist__api api = hoist__dev_api(hoist__device_dev(given));
	foreign->device = given;
	foreign->kind = kind_of(&pointer);
	/* The caller may have given the address by which kernels see memory of the host. */
	if (pointer.host)
		foreign->address = pointer.host_address - source->bytes_before;
	foreign->device_address =
		(pointer.device ? pointer.device_address : source->address) - source->bytes_before;
	if (given == found || (foreign->kind == HOIST__MEMORY_PINNED && api == pointer.api))
		return 0;
	if (!pointer.host || api != HOIST__API_CPU)
		return hoist__fail(-EINVAL, "the memory at %#" PRIxPTR " is of %s, not of %s",
				   source->address, spec, hoist_device_spec(given));
	foreign->kind = HOIST__MEMORY_HOST; /* a driver knows the memory, too, but the CPU may use
					     * it as its own */
	foreign->device_address = foreign->address;
	return 0;
}

/* Memory of no bytes belongs to the device, like a buffer without elements that is made there. */
static int find_none(const hoist_buffer_source *source, struct hoist__foreign *foreign)
{
	foreign->device = source->device;
	if (source->device != NULL) {
		if (!hoist__device_is_cpu(source->device))
			foreign->kind = HOIST__MEMORY_DEVICE;
		return 0;
	}
	return hoist__device_cpu(&foreign->device);
}

static int wrap_foreign(const hoist_buffer_source *source, struct hoist__storage **ret)
{
	struct hoist__foreign foreign = {
		.address = source->address - source->bytes_before,
		.bytes = source->bytes_before + source->bytes,
		.read_only = source->is_read_only != 0,
		.release = source->release,
		.context = source->context,
	};
	int err = foreign.bytes > 0 ? find_owner(source, &foreign) : find_none(source, &foreign);
	return err < 0 ? err : hoist__storage_wrap(&foreign, ret);
}

static int adopt_block(const hoist_buffer_source *source, struct hoist__storage **ret)
{
	hoist_memory *memory = source->memory;
	uintptr_t start = source->address;
	int err = 0;
	/* Memory that need not be one of the resource's live blocks yet is checked when it becomes
	 * one. */
	if (source->address != 0 && memory->ops->adopt == NULL)
		err = memory->ops->block_of(memory, source->address, &start);
	if (err == 0 && start != source->address)
		err = hoist__fail(-EINVAL,
				  "%#" PRIxPTR " is inside a block, which starts at %#" PRIxPTR,
				  source->address, start);
	if (err == 0 && source->stream != NULL)
		err = hoist__memory_check_stream(memory, source->stream);
	if (err < 0)
		return hoist__fail_in(err, "\"%s\"", memory->name);
	err = hoist__storage_adopt(memory, source->stream, source->address, source->bytes, ret);
	if (err < 0 || source->device == NULL || source->device == hoist__storage_device(*ret))
		return err;
	err = hoist__fail(-EINVAL, "\"%s\" is memory of %s, not of %s", memory->name,
			  hoist_device_spec(hoist__storage_device(*ret)),
			  hoist_device_spec(source->device));
	hoist__storage_forget(*ret);
	hoist__storage_unref(*ret);
	return err;
}

/* Makes a block that the resource's functions made for others one of its live blocks.  Nothing can
 * fail afterwards. */
static int make_live(const hoist_buffer_source *source)
{
	hoist_memory *memory = source->memory;
	if (memory == NULL || memory->ops->adopt == NULL || source->address == 0)
		return 0;
	int err = memory->ops->adopt(memory, source->address, source->bytes);
	return err < 0 ? hoist__fail_in(err, "\"%s\"", memory->name) : 0;
}

/* The block becomes live last, when nothing else can fail: until then the memory stays the
 * caller's. */
static int wrap(const hoist_buffer_source *source, hoist_dtype dtype, int rank,
		const int64_t *shape, const int64_t *strides, hoist_buffer **ret)
{
	int err = check_source(source);
	if (err == 0)
		err = check_elements(source, dtype, rank, shape, strides);
	struct hoist__storage *storage;
	if (err == 0)
		err = source->memory != NULL ? adopt_block(source, &storage)
					     : wrap_foreign(source, &storage);
	if (err < 0)
		return err;
	const struct hoist__view view = {
		.dtype = dtype,
		.rank = rank,
		.read_only = source->is_read_only != 0,
		.offset = source->bytes_before,
		.stream = source->stream,
		.shape = shape,
		.strides = strides,
	};
	hoist_buffer *made = NULL;
	err = hoist__buffer_make(storage, &view, &made);
	if (err == 0)
		err = make_live(source);
	if (err < 0) {
		hoist__storage_forget(storage);
		hoist_buffer_unref(made);
	} else {
		*ret = made;
	}
	hoist__storage_unref(storage);
	return err;
}

int hoist_buffer_wrap(const hoist_buffer_source *given, hoist_dtype dtype, int rank,
		      const int64_t *shape, const int64_t *strides, hoist_buffer **ret)
{
	hoist_buffer_source source;
	int err = hoist__options_in("hoist_buffer_source", given, &source, sizeof source);
	if (err == 0)
		err = wrap(&source, dtype, rank, shape, strides, ret);
	return err < 0 ? hoist__fail_in(err, "a buffer over the caller's memory") : 0;
}
