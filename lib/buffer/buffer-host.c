/* SPDX-License-Identifier: MIT */
/* lib/buffer/buffer-host.c - gives the CPU the bytes and elements of buffers in place.
 * The contract is in hoist/buffer.h. */
#include "config.h"

#include <inttypes.h>

#include "base/error.h"
#include "lib/buffer/buffer-private.h"
#include "lib/buffer/storage-private.h"

/* Eight elements of any dtype are whole bytes. */
void *hoist__buffer_plain(const hoist_buffer *buffer)
{
	if (buffer == NULL || buffer->storage == NULL || !buffer->contiguous || buffer->bit != 0 ||
	    buffer->elements % 8 != 0)
		return NULL;
	const struct hoist__storage *storage = buffer->storage;
	const struct hoist__storage_place *place =
		atomic_load_explicit(&storage->xplace, memory_order_acquire);
	if (storage->kind != HOIST__MEMORY_HOST || !storage->has_access || place == NULL)
		return NULL;
	return (void *)(place->address + buffer->offset);
}

void *hoist__buffer_plain_writable(const hoist_buffer *buffer)
{
	void *bytes = hoist__buffer_plain(buffer);
	if (bytes == NULL || buffer->read_only || buffer->storage->read_only ||
	    atomic_load_explicit(&buffer->storage->xfrozen, memory_order_relaxed))
		return NULL;
	return bytes;
}

int hoist_buffer_host_bytes(hoist_buffer *buffer, int for_writing, void **ret, size_t *ret_bytes)
{
	static const char what[] = "the buffer whose bytes are asked for";
	int err = for_writing ? hoist__buffer_check_writable(buffer, what)
			      : hoist__buffer_check(buffer, what);
	if (err < 0)
		return err;
	if (!hoist__storage_is_on_host(buffer->storage))
		return hoist__fail(-ENOTSUP,
				   "the CPU cannot touch this memory of %s; copy the buffer to the "
				   "cpu",
				   hoist_device_spec(buffer->device));
	if (!buffer->contiguous || buffer->bit != 0)
		return hoist__fail(-EINVAL, "the buffer is not contiguous, its bytes are not one "
					    "run; copy it first");
	err = hoist__buffer_settle(buffer);
	if (err < 0)
		return err;
	*ret = hoist_buffer_data(buffer);
	*ret_bytes = buffer->bytes;
	return 0;
}

static int check_dtype(const hoist_buffer *buffer, hoist_dtype dtype)
{
	int err = hoist__buffer_check(buffer, "the buffer whose elements are asked for");
	if (err < 0)
		return err;
	if (hoist__dtype_info(dtype) == NULL)
		return hoist__fail(-EINVAL, "%d is no dtype", (int)dtype);
	if (buffer->dtype != dtype)
		return hoist__fail(-EPROTOTYPE,
				   "an array of %s is asked for, the buffer's elements are %s; ask "
				   "for those, or view the buffer as the other dtype "
				   "(hoist_buffer_view_as)",
				   hoist_dtype_name(dtype), hoist_dtype_name(buffer->dtype));
	unsigned bits = hoist_dtype_bits(dtype);
	if (bits == 0 || bits % 8 != 0)
		return hoist__fail(-ENOTSUP,
				   "C has no arrays of %s, whose elements are no whole bytes; ask "
				   "for the bytes (hoist_buffer_host_bytes)",
				   hoist_dtype_name(dtype));
	return 0;
}

int hoist_buffer_host_array(hoist_buffer *buffer, hoist_dtype dtype, int for_writing, void **ret,
			    uint64_t *ret_elements)
{
	void *array;
	size_t bytes;
	int err = check_dtype(buffer, dtype);
	if (err == 0)
		err = hoist_buffer_host_bytes(buffer, for_writing, &array, &bytes);
	if (err < 0)
		return err;
	if ((uintptr_t)array % hoist__dtype_info(dtype)->align != 0)
		return hoist__fail(-EINVAL,
				   "the first element, at %#" PRIxPTR ", is not aligned for %s; "
				   "copy the buffer first",
				   (uintptr_t)array, hoist_dtype_name(dtype));
	*ret = array;
	*ret_elements = buffer->elements;
	return 0;
}
