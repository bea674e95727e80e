/* SPDX-License-Identifier: MIT */
/* lib/exchange/dlpack-export.c - exports buffers as DLPack tensors.
 * The contract is in hoist/dlpack.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/native.h"
#include "hoist/copy.h"
#include "lib/core/options.h"
#include "lib/device/device.h"
#include "lib/device/stream.h"
#include "lib/exchange/dlpack.h"

/* The object that a consumer holds.  The deleter is given the tensor, which comes first. */
struct exported {
	union {
		hoist_dl_managed managed;
		hoist_dl_legacy legacy;
	} u;
	struct hoist__storage *storage;
	bool given;	/* a consumer has it */
	bool on_stream; /* the consumer promised to use it on stream `native` only */
	void *native;
	int64_t dims[]; /* the shape, then the strides */
};

/* --- when the consumer lets go --- */

/* Gives a stream behind all that was queued on the consumer's stream.  That stream only waits: a
 * stream of hoist's that has other work would wait for no reason.  Nothing can wait for a stream
 * that captures a graph. */
static int wait_for_consumer(const struct exported *exported, hoist_stream **ret)
{
	hoist_device *device = hoist__storage_device(exported->storage);
	bool capturing = true;
	int err = hoist__native_capturing(hoist__device_dev(device), exported->native, &capturing);
	if (err < 0 || capturing)
		return err < 0 ? err : -EBUSY;
	err = hoist__device_returns(device, ret);
	if (err < 0)
		return err;
	err = hoist__dev_stream_wait_native(hoist__stream_dev_stream(*ret), exported->native);
	if (err < 0)
		hoist_stream_unref(*ret);
	return err;
}

static bool returned_on_stream(const struct exported *exported)
{
	hoist_stream *returns;
	if (!exported->on_stream || wait_for_consumer(exported, &returns) < 0)
		return false;
	int err = hoist__storage_use(exported->storage, returns);
	hoist_stream_unref(returns);
	return err == 0;
}

static void drop(struct exported *exported)
{
	if (exported->given && !returned_on_stream(exported))
		hoist__storage_returned(exported->storage);
	hoist__storage_unref(exported->storage);
	free(exported);
}

static void delete_managed(struct DLManagedTensorVersioned *self)
{
	drop((struct exported *)(void *)self);
}

static void delete_legacy(struct DLManagedTensor *self)
{
	drop((struct exported *)(void *)self);
}

void hoist_dlpack_release(struct DLManagedTensorVersioned *tensor)
{
	hoist_dl_managed *managed = (hoist_dl_managed *)tensor;
	if (managed != NULL && managed->deleter != NULL)
		managed->deleter(tensor);
}

void hoist_dlpack_release_legacy(struct DLManagedTensor *tensor)
{
	hoist_dl_legacy *legacy = (hoist_dl_legacy *)tensor;
	if (legacy != NULL && legacy->deleter != NULL)
		legacy->deleter(tensor);
}

/* --- a buffer in DLPack's words --- */

static int check_elements(const hoist_buffer *buffer)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(buffer->dtype);
	if (info->dlpack_code < 0)
		return hoist__fail(-ENOTSUP,
				   "DLPack has no type for %s; view the buffer's bytes as u8 first",
				   info->name);
	if (buffer->bit != 0)
		return hoist__fail(-ENOTSUP,
				   "the first element of %s begins with bit %u of a byte, which "
				   "DLPack cannot say; copy the buffer first",
				   info->name, buffer->bit);
	return 0;
}

/* DLPack has no const.  Consumers must not write to the shape. */
static int64_t *shape_of(const hoist_buffer *buffer)
{
	return buffer->strides - buffer->rank;
}

int hoist__dlpack_describe(const hoist_buffer *buffer, hoist_dl_tensor *ret)
{
	hoist_dl_device where;
	int err = hoist_buffer_dlpack_device(buffer, &where);
	if (err == 0)
		err = check_elements(buffer);
	if (err < 0)
		return err;
	const struct hoist__dtype_info *info = hoist__dtype_info(buffer->dtype);
	bool on_host = hoist__storage_kind(buffer->storage) != HOIST__MEMORY_DEVICE;
	*ret = (hoist_dl_tensor){
		.data = on_host ? hoist_buffer_data(buffer) : (void *)hoist_buffer_address(buffer),
		.device = where,
		.rank = buffer->rank,
		.dtype = {(uint8_t)info->dlpack_code, (uint8_t)info->bits, 1},
		.shape = buffer->rank > 0 ? shape_of(buffer) : NULL,
		.strides = buffer->rank > 0 ? buffer->strides : NULL,
	};
	return 0;
}

/* --- the request --- */

static int check_options(const hoist_dlpack_options *options)
{
	if (options->copy < HOIST_DLPACK_COPY_IF_NEEDED || options->copy > HOIST_DLPACK_COPY_NEVER)
		return hoist__fail(-EINVAL, "copy is %d; it is one of the HOIST_DLPACK_COPY values",
				   options->copy);
	if (options->has_stream != 0 && options->has_stream != 1)
		return hoist__fail(-EINVAL, "has_stream is %d; it is 0 or 1", options->has_stream);
	if (options->only_stream != 0 && options->only_stream != 1)
		return hoist__fail(-EINVAL, "only_stream is %d; it is 0 or 1",
				   options->only_stream);
	if (options->only_stream && (!options->has_stream || options->stream == -1))
		return hoist__fail(-EINVAL,
				   "only_stream promises that nothing but the stream uses the "
				   "tensor; there is none");
	return 0;
}

/* Checks the number in `stream` for the type that the consumer gets. */
static int check_stream(int32_t type, const hoist_dlpack_options *options)
{
	intptr_t stream = options->stream;
	bool rocm = type == HOIST_DL_ROCM || type == HOIST_DL_ROCM_HOST;
	if (stream == -1)
		return 0;
	if (type == HOIST_DL_CPU)
		return hoist__fail(-EINVAL,
				   "stream %lld: memory of the CPU is given without a stream, or "
				   "with -1",
				   (long long)stream);
	if (stream < -1)
		return hoist__fail(-EINVAL, "stream %lld is neither a handle nor -1",
				   (long long)stream);
	if (!rocm && stream == 0)
		return hoist__fail(-EINVAL, "stream 0 is ambiguous; of CUDA, 1 is the legacy "
					    "default stream and 2 the thread's");
	if (rocm && (stream == 1 || stream == 2))
		return hoist__fail(-EINVAL,
				   "stream %lld is CUDA's; of ROCm, 0 is the default stream",
				   (long long)stream);
	if (options->only_stream && stream == 2)
		return hoist__fail(-EINVAL, "only_stream with stream 2, which is another one in "
					    "each thread; give its handle");
	return 0;
}

static bool is_same(hoist_dl_device a, hoist_dl_device b)
{
	return a.type == b.type && (a.id == b.id || hoist__dlpack_has_no_id(a.type));
}

/* The buffer to export, and its DLPack type. */
struct subject {
	hoist_buffer *buffer; /* with a reference */
	int32_t type;	      /* of the exported device, if it is not the buffer's own; otherwise
			       * 0 */
	bool copied;
};

static int make_copy(hoist_buffer *buffer, hoist_dl_device where, struct subject *ret)
{
	hoist_buffer *copy = NULL;
	hoist_device *device;
	int err = hoist_device_from_dlpack(where, &device);
	if (err < 0)
		return err;
	err = hoist__dlpack_create(device, where.type, buffer->dtype, buffer->rank, buffer->dims,
				   &copy);
	hoist_device_unref(device);
	if (err == 0)
		err = hoist_buffer_copy_into(copy, buffer);
	if (err < 0) {
		hoist_buffer_unref(copy);
		return err;
	}
	*ret = (struct subject){copy, 0, true};
	return 0;
}

/* Exports the buffer where it is; or, if the consumer wants it elsewhere and a copy is allowed,
 * makes a copy there. */
static int choose(hoist_buffer *buffer, const hoist_dlpack_options *options, struct subject *ret)
{
	hoist_dl_device here;
	int err = hoist_buffer_dlpack_device(buffer, &here);
	if (err < 0)
		return err;
	hoist_dl_device there = options->device.type != 0 ? options->device : here;
	if (options->has_stream)
		err = check_stream(there.type, options);
	if (err < 0)
		return err;
	bool as_cpu = there.type == HOIST_DL_CPU &&
		      hoist__storage_kind(buffer->storage) != HOIST__MEMORY_DEVICE;
	bool fits = as_cpu || is_same(here, there);
	if (options->copy == HOIST_DLPACK_COPY_ALWAYS ||
	    (!fits && options->copy == HOIST_DLPACK_COPY_IF_NEEDED))
		return make_copy(buffer, there, ret);
	if (!fits)
		return hoist__fail(-ENOTSUP,
				   "the buffer is on DLPack's device (%d, %d), wanted on (%d, %d), "
				   "and must not be copied",
				   (int)here.type, (int)here.id, (int)there.type, (int)there.id);
	*ret = (struct subject){hoist_buffer_ref(buffer), as_cpu ? HOIST_DL_CPU : 0, false};
	return 0;
}

/* --- order --- */

/* Makes the memory safe to touch for the consumer, from the point in its stream that it named on. A
 * copy is complete already. */
static int hand_over(const struct subject *subject, const hoist_dlpack_options *options)
{
	hoist_buffer *buffer = subject->buffer;
	if (!options->has_stream)
		return hoist__buffer_settle(buffer);
	int err = hoist__storage_allocate(buffer->storage);
	hoist_stream *stream = hoist__buffer_known_stream(buffer);
	if (err < 0 || subject->copied || options->stream == -1 || stream == NULL)
		return err;
	return hoist__native_wait_stream(hoist__dlpack_native(options->stream),
					 hoist__stream_dev_stream(stream));
}

/* --- making one --- */

static int make(const struct subject *subject, struct exported **ret)
{
	hoist_buffer *buffer = subject->buffer;
	size_t n = (size_t)buffer->rank;
	size_t bytes = sizeof(struct exported) + 2 * n * sizeof(int64_t);
	struct exported *made = calloc(1, bytes);
	if (made == NULL)
		return hoist__fail_nomem("a DLPack tensor", bytes);
	if (n > 0) {
		memcpy(made->dims, buffer->dims, n * sizeof(int64_t));
		memcpy(made->dims + n, buffer->strides, n * sizeof(int64_t));
	}
	made->storage = hoist__storage_ref(buffer->storage);
	*ret = made;
	return 0;
}

static int fill_in(const struct subject *subject, struct exported *made, hoist_dl_tensor *tensor)
{
	int err = hoist__dlpack_describe(subject->buffer, tensor);
	if (err < 0)
		return err;
	if (tensor->rank > 0) {
		tensor->shape = made->dims;
		tensor->strides = made->dims + tensor->rank;
	}
	if (subject->type != 0)
		tensor->device = (hoist_dl_device){subject->type, 0};
	return 0;
}

/* The order between the streams is queued last: nothing can fail afterwards. */
static int complete(const struct subject *subject, const hoist_dlpack_options *options,
		    struct exported *made, hoist_dl_tensor *tensor)
{
	int err = hoist__storage_allocate(made->storage);
	if (err == 0)
		err = fill_in(subject, made, tensor);
	return err < 0 ? err : hand_over(subject, options);
}

static bool is_read_only(const hoist_buffer *buffer)
{
	return buffer->read_only || hoist__storage_is_read_only(buffer->storage);
}

/* The tensor is `given` only once nothing can fail: before that, dropping it must not wait for a
 * consumer. */
static int finish(const struct subject *subject, const hoist_dlpack_options *options, bool legacy,
		  struct exported **ret)
{
	bool read_only = is_read_only(subject->buffer);
	if (legacy && read_only)
		return hoist__fail(-ENOTSUP,
				   "the buffer is read-only, which DLPack's legacy struct cannot "
				   "say; use the versioned one, or ask for a copy");
	struct exported *made = NULL;
	int err = make(subject, &made);
	if (err < 0)
		return err;
	err = complete(subject, options, made,
		       legacy ? &made->u.legacy.tensor : &made->u.managed.tensor);
	if (err < 0) {
		drop(made);
		return err;
	}
	made->given = true;
	made->on_stream = options->only_stream != 0;
	made->native = hoist__dlpack_native(options->stream);
	if (legacy) {
		made->u.legacy.deleter = delete_legacy;
	} else {
		made->u.managed.major = HOIST_DLPACK_MAJOR;
		made->u.managed.minor = HOIST_DLPACK_MINOR;
		made->u.managed.deleter = delete_managed;
		made->u.managed.flags = (read_only ? HOIST_DL_READ_ONLY : 0) |
					(subject->copied ? HOIST_DL_IS_COPIED : 0);
	}
	*ret = made;
	return 0;
}

static int export(hoist_buffer *buffer, const hoist_dlpack_options *given, bool legacy,
		  struct exported **ret)
{
	hoist_dlpack_options options;
	struct subject subject = {0};
	int err = hoist__options_in("hoist_dlpack_options", given, &options, sizeof options);
	if (err == 0)
		err = check_options(&options);
	if (err == 0)
		err = hoist__buffer_check(buffer, "the buffer to export");
	if (err == 0)
		err = choose(buffer, &options, &subject);
	if (err < 0)
		return hoist__fail_in(err, "exporting a buffer by DLPack");
	err = finish(&subject, &options, legacy, ret);
	hoist_buffer_unref(subject.buffer);
	return err < 0 ? hoist__fail_in(err, "exporting a buffer by DLPack") : 0;
}

int hoist_buffer_to_dlpack(hoist_buffer *buffer, const hoist_dlpack_options *options,
			   struct DLManagedTensorVersioned **ret)
{
	struct exported *made = NULL;
	int err = export(buffer, options, false, &made);
	if (err == 0)
		*ret = (struct DLManagedTensorVersioned *)(void *)&made->u.managed;
	return err;
}

int hoist_buffer_to_dlpack_legacy(hoist_buffer *buffer, const hoist_dlpack_options *options,
				  struct DLManagedTensor **ret)
{
	struct exported *made = NULL;
	int err = export(buffer, options, true, &made);
	if (err == 0)
		*ret = (struct DLManagedTensor *)(void *)&made->u.legacy;
	return err;
}
