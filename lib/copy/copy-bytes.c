/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-bytes.c - raw bytes of buffers, and all elements from and to the caller's memory.
 */
#include "config.h"

#include "base/error.h"
#include "hoist/copy.h"
#include "lib/copy/copy.h"

/* --- raw bytes --- */

/* The checks of read and write; @verb for the text. */
static int check_range(const hoist_buffer *buffer, const char *verb, size_t offset,
		       const void *host, size_t bytes)
{
	if (!buffer->contiguous || buffer->bit != 0)
		return hoist__fail(-EINVAL,
				   "%s bytes of a buffer that is not contiguous; "
				   "hoist_buffer_copy_in() and _out() take its elements",
				   verb);
	if (offset > buffer->bytes || bytes > buffer->bytes - offset)
		return hoist__fail(-EINVAL,
				   "%s %zu bytes from byte %zu on leaves the buffer of %zu", verb,
				   bytes, offset, buffer->bytes);
	if (host == NULL && bytes > 0)
		return hoist__fail(-EINVAL, "%s %zu bytes: the host memory is NULL", verb, bytes);
	if (!hoist__storage_has_access(buffer->storage))
		return hoist__fail(-ENOTSUP, "%s %zu bytes: nothing may touch the buffer's memory",
				   verb, bytes);
	return 0;
}

int hoist_buffer_read(hoist_buffer *buffer, size_t offset, void *host, size_t bytes)
{
	int err = hoist__buffer_check(buffer, "the buffer");
	if (err == 0)
		err = check_range(buffer, "reading", offset, host, bytes);
	if (err < 0 || bytes == 0)
		return err;
	err = hoist__buffer_settle(buffer);
	if (err == 0) {
		const struct hoist__span from = hoist__buffer_span(buffer, (int64_t)offset);
		const struct hoist__span to = {NULL, HOIST__MEMORY_HOST, (uintptr_t)host};
		err = hoist__transfer(&to, &from, bytes);
	}
	if (err < 0)
		return hoist__fail_in(err, "reading %zu bytes from %s", bytes,
				      hoist_device_spec(buffer->device));
	return 0;
}

/* Bits that are the buffer's in its last byte; 0: all of them. */
static unsigned bits_in_last(const hoist_buffer *buffer)
{
	unsigned bits = hoist__dtype_info(buffer->dtype)->bits;
	return (unsigned)(buffer->elements % 8 * bits % 8);
}

/* Into a byte whose upper bits may be those of elements that this buffer has not. */
static int write_last(const struct hoist__span *to, unsigned bits, unsigned char value)
{
	unsigned char byte;
	unsigned mask = (1U << bits) - 1;
	const struct hoist__span here = {NULL, HOIST__MEMORY_HOST, (uintptr_t)&byte};
	int err = hoist__transfer(&here, to, 1);
	if (err < 0)
		return err;
	byte = (unsigned char)((byte & ~mask) | (value & mask));
	return hoist__transfer(to, &here, 1);
}

/* Pre: settled, in range. */
static int write_bytes(const hoist_buffer *buffer, size_t offset, const void *host, size_t bytes)
{
	unsigned bits = offset + bytes == buffer->bytes ? bits_in_last(buffer) : 0;
	size_t whole = bits > 0 ? bytes - 1 : bytes;
	struct hoist__span to = hoist__buffer_span(buffer, (int64_t)offset);
	const struct hoist__span from = {NULL, HOIST__MEMORY_HOST, (uintptr_t)host};
	int err = hoist__transfer(&to, &from, whole);
	if (err < 0 || bits == 0)
		return err;
	to.address += whole;
	return write_last(&to, bits, ((const unsigned char *)host)[whole]);
}

int hoist_buffer_write(hoist_buffer *buffer, size_t offset, const void *host, size_t bytes)
{
	int err = hoist__buffer_check_writable(buffer, "the buffer");
	if (err == 0)
		err = check_range(buffer, "writing", offset, host, bytes);
	if (err < 0 || bytes == 0)
		return err;
	err = hoist__buffer_settle(buffer);
	if (err == 0)
		err = write_bytes(buffer, offset, host, bytes);
	if (err < 0)
		return hoist__fail_in(err, "writing %zu bytes to %s", bytes,
				      hoist_device_spec(buffer->device));
	return 0;
}

/* --- all elements --- */

static int check_whole(const hoist_buffer *buffer, const char *verb, const void *host, size_t bytes)
{
	if (bytes != buffer->bytes)
		return hoist__fail(-EINVAL, "%s %zu bytes; the buffer has %zu, and both must agree",
				   verb, bytes, buffer->bytes);
	if (host == NULL && bytes > 0)
		return hoist__fail(-EINVAL, "%s %zu bytes: the host memory is NULL", verb, bytes);
	return 0;
}

/* A buffer over the caller's memory, packed, as @like is. */
static int over_host(void *host, const hoist_buffer *like, hoist_buffer **ret)
{
	hoist_device *cpu;
	int err = hoist__device_cpu(&cpu);
	if (err < 0)
		return err;
	const struct hoist__foreign foreign = {
		.device = cpu,
		.kind = HOIST__MEMORY_HOST,
		.address = (uintptr_t)host,
		.bytes = like->bytes,
	};
	const struct hoist__view view = {
		.dtype = like->dtype,
		.rank = like->rank,
		.shape = like->dims,
	};
	struct hoist__storage *storage;
	err = hoist__storage_wrap(&foreign, &storage);
	return err < 0 ? err : hoist__buffer_make_last(storage, &view, ret);
}

/* @pair's NULL is the caller's memory.  It has no stream of its own that could be waited for. */
static int copy_whole(struct hoist__pair *pair, void *host)
{
	hoist_buffer *buffer = pair->dst != NULL ? pair->dst : pair->src;
	hoist_buffer *memory;
	int err = over_host(host, buffer, &memory);
	if (err < 0)
		return err;
	if (pair->dst == NULL)
		pair->dst = memory;
	else
		pair->src = memory;
	err = hoist__pair_check(pair, NULL);
	if (err == 0) {
		err = hoist__buffer_settle(buffer);
		if (err == 0)
			err = hoist__pair_copy(pair, NULL);
	}
	hoist_buffer_unref(memory);
	return err > 0 ? 0 : err;
}

/* Whole bytes, one behind the other, need no buffer over the caller's memory. */
static bool is_bytes(const hoist_buffer *buffer)
{
	return hoist__buffer_is_run(buffer) && hoist__storage_has_access(buffer->storage);
}

/* Pre: is_bytes(). */
static int copy_bytes(hoist_buffer *buffer, void *host, bool in)
{
	int err = hoist__buffer_settle(buffer);
	if (err < 0)
		return err;
	const struct hoist__span inside = hoist__buffer_span(buffer, 0);
	const struct hoist__span outside = {NULL, HOIST__MEMORY_HOST, (uintptr_t)host};
	err = in ? hoist__transfer(&inside, &outside, buffer->bytes)
		 : hoist__transfer(&outside, &inside, buffer->bytes);
	if (err == 0)
		return 0;
	const char *spec = hoist_device_spec(buffer->device);
	return hoist__fail_in(err, "copying %zu bytes from %s to %s", buffer->bytes,
			      in ? "cpu" : spec, in ? spec : "cpu");
}

int hoist_buffer_copy_in(hoist_buffer *dst, const void *host, size_t bytes)
{
	struct hoist__pair pair = {dst, NULL, 0, NULL};
	int err = hoist__buffer_check_writable(dst, "the buffer");
	if (err == 0)
		err = check_whole(dst, "copying in", host, bytes);
	if (err < 0 || bytes == 0)
		return err;
	return is_bytes(dst) ? copy_bytes(dst, (void *)(uintptr_t)host, true)
			     : copy_whole(&pair, (void *)(uintptr_t)host);
}

int hoist_buffer_copy_out(hoist_buffer *src, void *host, size_t bytes)
{
	struct hoist__pair pair = {NULL, src, 0, NULL};
	int err = hoist__buffer_check(src, "the buffer");
	if (err == 0)
		err = check_whole(src, "copying out", host, bytes);
	if (err < 0 || bytes == 0)
		return err;
	if (is_bytes(src))
		return copy_bytes(src, host, false);
	err = copy_whole(&pair, host);
	unsigned bits = bits_in_last(src);
	if (err == 0 && bits > 0)
		((unsigned char *)host)[bytes - 1] &= (unsigned char)((1U << bits) - 1);
	return err;
}
