/* SPDX-License-Identifier: MIT */
/* lib/exchange/cai.c - the CUDA Array Interface, both ways.
 * The contract is in hoist/cai.h. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/layout.h"
#include "device/native.h"
#include "hoist/cai.h"
#include "hoist/dlpack.h"
#include "lib/core/options.h"
#include "lib/device/stream.h"
#include "lib/exchange/dlpack.h"

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NATIVE '<'
#else
#define NATIVE '>'
#endif

/* --- typestr: order, kind, bytes --- */

/* Returns NumPy's letter for the kind; 0 if NumPy has none. */
static char letter_of(const struct hoist__dtype_info *info)
{
	if (!info->numpy_native)
		return 0;
	switch (info->kind) {
	case HOIST_KIND_BOOL:
		return 'b';
	case HOIST_KIND_SIGNED:
		return 'i';
	case HOIST_KIND_UNSIGNED:
		return 'u';
	case HOIST_KIND_FLOAT:
		return 'f';
	case HOIST_KIND_COMPLEX:
		return 'c';
	case HOIST_KIND_BLOCK:
		break;
	}
	return 0;
}

static int write_typestr(hoist_dtype dtype, char typestr[8])
{
	const struct hoist__dtype_info *info = hoist__dtype_info(dtype);
	char letter = letter_of(info);
	if (letter == 0)
		return hoist__fail(
			-ENOTSUP,
			"%s has no typestr in the CUDA Array Interface; view its bytes as "
			"integers, or use DLPack",
			info->name);
	(void)snprintf(typestr, 8, "%c%c%u", info->bits == 8 ? '|' : NATIVE, letter,
		       info->bits / 8 % 100);
	return 0;
}

/* Finds the one dtype with this typestr.  The byte order of a type of one byte does not matter. */
static int read_typestr(const char typestr[8], hoist_dtype *ret)
{
	for (int i = HOIST_BOOL; i <= HOIST_C128; i++) {
		char known[8] = "";
		if (hoist__dtype_info((hoist_dtype)i) == NULL ||
		    write_typestr((hoist_dtype)i, known) < 0)
			continue;
		bool order = typestr[0] == known[0] || typestr[0] == '=' ||
			     (known[0] == '|' && (typestr[0] == '<' || typestr[0] == '>'));
		if (order && strncmp(typestr + 1, known + 1, 7) == 0) {
			*ret = (hoist_dtype)i;
			return 0;
		}
	}
	return hoist__fail(-ENOTSUP,
			   "hoist has no dtype for the typestr \"%.8s\"; they are bool, integers, "
			   "floats and complex numbers in this machine's byte order",
			   typestr);
}

/* --- out --- */

/* Tells the consumer which stream to wait for. */
static int tell_stream(hoist_buffer *buffer, hoist_cai *cai)
{
	hoist_stream *stream = hoist__buffer_known_stream(buffer);
	if (stream == NULL) /* no work was ever queued */
		return 0;
	intptr_t number;
	int err = hoist_stream_to_dlpack(stream, &number);
	if (err < 0)
		return err;
	if (number == 0)
		return hoist__buffer_settle(buffer);
	cai->has_stream = 1;
	cai->stream = number;
	return 0;
}

static int fill_in(hoist_buffer *buffer, hoist_cai *cai)
{
	hoist_buffer_info info = {.size = sizeof info};
	int err = hoist_buffer_get_info(buffer, &info);
	if (err < 0)
		return err;
	if (!info.is_device_accessible)
		return hoist__fail(-ENOTSUP,
				   "no device can touch the buffer's memory, as the CUDA Array "
				   "Interface wants; copy it to one");
	cai->version = 3;
	err = write_typestr(buffer->dtype, cai->typestr);
	if (err == 0)
		err = hoist__storage_allocate(buffer->storage);
	if (err < 0)
		return err;
	/* The consumer may use the bytes on streams that hoist does not know. */
	hoist__storage_lend(buffer->storage);
	cai->data = hoist_buffer_address(buffer);
	cai->is_read_only = info.is_read_only;
	cai->rank = buffer->rank;
	cai->has_strides = !buffer->contiguous;
	int64_t bytes = hoist_dtype_bits(buffer->dtype) / 8;
	for (int i = 0; i < buffer->rank; i++) {
		cai->shape[i] = buffer->dims[i];
		/* A stride in bytes lies within the storage.  Only the strides of axes of extent 1
		 * may overflow. */
		if (cai->has_strides &&
		    __builtin_mul_overflow(buffer->strides[i], bytes, &cai->strides[i]))
			cai->strides[i] = bytes;
	}
	return tell_stream(buffer, cai);
}

int hoist_buffer_to_cai(hoist_buffer *buffer, hoist_cai *cai)
{
	hoist_cai known = {.size = sizeof known};
	int err = hoist__buffer_check(buffer, "the buffer to export");
	if (err == 0)
		err = fill_in(buffer, &known);
	if (err == 0)
		err = hoist__options_out("hoist_cai", cai, &known, sizeof known);
	return err < 0 ? hoist__fail_in(err, "a buffer by the CUDA Array Interface") : 0;
}

/* --- in --- */

static int check(const hoist_cai *cai, unsigned flags)
{
	if (flags & ~HOIST_CAI_NO_SYNC)
		return hoist__fail(-EINVAL, "0x%x are no flags of an import",
				   flags & ~HOIST_CAI_NO_SYNC);
	if (cai->version < 3)
		return hoist__fail(-ENOTSUP,
				   "version %d; 3 is the oldest that hoist takes, as it "
				   "says which stream to wait for",
				   cai->version);
	if (cai->has_mask)
		return hoist__fail(-ENOTSUP, "the array has a mask, and buffers have none");
	if (cai->has_stream && cai->stream <= 0)
		return hoist__fail(-EINVAL,
				   "its stream is %lld; 1 is the legacy default stream, 2 the "
				   "thread's, others are handles",
				   (long long)cai->stream);
	return 0;
}

/* Converts strides from bytes to elements.  An axis of extent 1 is never stepped along, so that its
 * stride does not matter. */
static int convert_strides(const hoist_cai *cai, int64_t bytes, int64_t *strides)
{
	for (int i = 0; i < cai->rank; i++) {
		if (cai->strides[i] % bytes != 0 && cai->shape[i] > 1)
			return hoist__fail(-EINVAL,
					   "axis %d has a stride of %lld bytes, not a multiple of "
					   "the item's %lld",
					   i, (long long)cai->strides[i], (long long)bytes);
		strides[i] = cai->strides[i] / bytes;
	}
	return 0;
}

/* Asks the driver about the address, and writes the spec of its device.  The spec is "" if any
 * device of the API will do, as for host memory.  Host memory may have two addresses.  Unless the
 * address is known to be the host's, it is taken as the device's, and the CPU must not use it. */
static int ask_driver(struct hoist__import *import, char spec[32])
{
	struct hoist__pointer pointer;
	int err = hoist__pointer_find(import->address, &pointer);
	if (err < 0)
		return err;
	if (!pointer.device)
		return hoist__fail(-EINVAL, "no driver knows the address %#" PRIxPTR,
				   import->address);
	bool by_host = pointer.host && pointer.device_address != import->address;
	import->device_address = pointer.device_address;
	import->kind = pointer.managed ? HOIST__MEMORY_MANAGED
		       : by_host       ? HOIST__MEMORY_PINNED
				       : HOIST__MEMORY_DEVICE;
	const char *api = hoist__api_name(pointer.api);
	bool any = pointer.ordinal < 0 && import->stream != NULL;
	(void)snprintf(spec, 32, "%s:%d", api, pointer.ordinal < 0 ? 0 : pointer.ordinal);
	if (any &&
	    strncmp(hoist_device_spec(hoist_stream_device(import->stream)), api, strlen(api)) == 0)
		spec[0] = '\0';
	return 0;
}

static int find_place(uint64_t elements, struct hoist__import *import)
{
	char spec[32] = "gpu";
	int err = 0;
	import->kind = HOIST__MEMORY_DEVICE;
	import->device_address = import->address;
	if (elements > 0)
		err = ask_driver(import, spec);
	if (err < 0)
		return err;
	if (import->stream != NULL && (elements == 0 || spec[0] == '\0')) {
		import->device = hoist_stream_device(import->stream);
		return 0;
	}
	err = hoist_device_open(spec, &import->device);
	if (err == 0)
		hoist_device_unref(import->device); /* devices live as long as the process */
	return err;
}

/* Makes work on the buffer's stream wait for the producer's work. */
static int wait_for_producer(const hoist_cai *cai, const struct hoist__import *import)
{
	hoist_stream *stream = import->stream;
	if (stream != NULL && hoist_stream_device(stream) != import->device)
		return 0; /* hoist__import() refuses it, with a message */
	int err = stream == NULL ? hoist_device_default_stream(import->device, &stream) : 0;
	if (err < 0)
		return err;
	err = hoist__dev_stream_wait_native(hoist__stream_dev_stream(stream),
					    hoist__dlpack_native(cai->stream));
	if (import->stream == NULL)
		hoist_stream_unref(stream); /* the device keeps its own reference */
	return err;
}

static int understand(const hoist_cai *cai, struct hoist__import *import, int64_t *strides)
{
	uint64_t elements;
	int err = hoist__layout_elements(cai->rank, cai->shape, &elements);
	if (err == 0)
		err = read_typestr(cai->typestr, &import->dtype);
	if (err == 0 && cai->has_strides)
		err = convert_strides(cai, hoist_dtype_bits(import->dtype) / 8, strides);
	if (err < 0)
		return err;
	import->address = cai->data;
	import->rank = cai->rank;
	import->read_only = cai->is_read_only != 0;
	import->shape = cai->shape;
	import->strides = cai->has_strides ? strides : NULL;
	return find_place(elements, import);
}

static int take(const hoist_cai *given, struct hoist__import *import, unsigned flags,
		hoist_buffer **ret)
{
	hoist_cai cai;
	int64_t strides[HOIST_MAX_RANK];
	if (given == NULL)
		return hoist__fail(-EINVAL, "the fields are NULL");
	int err = hoist__options_in("hoist_cai", given, &cai, sizeof cai);
	if (err == 0)
		err = check(&cai, flags);
	if (err == 0)
		err = understand(&cai, import, strides);
	if (err == 0 && cai.has_stream && !(flags & HOIST_CAI_NO_SYNC))
		err = wait_for_producer(&cai, import);
	return err < 0 ? err : hoist__import(import, ret);
}

int hoist_buffer_from_cai(const hoist_cai *cai, const hoist_cai_owner *owner, hoist_stream *stream,
			  unsigned flags, hoist_buffer **ret)
{
	struct hoist__import import = {
		.stream = stream,
		.release = owner != NULL ? owner->release : NULL,
		.context = owner != NULL ? owner->context : NULL,
	};
	int err = take(cai, &import, flags, ret);
	return err < 0 ? hoist__fail_in(err, "importing by the CUDA Array Interface") : 0;
}
