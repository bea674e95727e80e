/* SPDX-License-Identifier: MIT */
/* Turns sources into tensors of the format: layouts, devices, streams.
 * The contract is in lib/save/save.h. */
#include "config.h"

#include <stdlib.h>

#include "base/checked.h"
#include "lib/device/device.h"
#include "lib/save/save.h"

static unsigned stream_of(const struct hoist_save *save, const hoist_device *device)
{
	unsigned s = 0;
	while (s < save->n_streams && hoist_stream_device(save->streams[s]) != device)
		s++;
	return s;
}

static bool same_api(const hoist_device *a, const hoist_device *b)
{
	return hoist__dev_api(hoist__device_dev(a)) == hoist__dev_api(hoist__device_dev(b));
}

/* A device's memory is fetched if the slots are pinned for the device; else it is moved. */
static int plan_device(struct hoist_save *save, struct hoist__save_source *source)
{
	hoist_device *device = source->buffer->device;
	unsigned s = stream_of(save, device);
	if (s == save->n_streams) {
		bool other = s > 0 && !same_api(device, hoist_stream_device(save->streams[0]));
		if (other || s == HOIST__STAGING_MAX_STREAMS)
			return 0;
		int err = hoist_stream_create(device, &save->streams[s]);
		if (err < 0)
			return err;
		save->n_streams++;
	}
	source->stream = s;
	source->way = HOIST__FROM_DEVICE;
	return 0;
}

static int plan_buffer(struct hoist_save *save, struct hoist__save_source *source)
{
	hoist_buffer *buffer = source->buffer;
	int err = hoist__buffer_check(buffer, "the buffer");
	if (err == 0)
		err = hoist__buffer_settle(buffer);
	if (err < 0)
		return hoist__fail_in(err, "saving tensor \"%.200s\"", source->name);
	source->way = HOIST__FROM_MOVED;
	if (buffer->bytes == 0 || !buffer->contiguous || buffer->bit != 0)
		return 0;
	struct hoist__span span = hoist__buffer_span(buffer, 0);
	if (!hoist__span_on_host(&span))
		return plan_device(save, source);
	err = hoist__span_check(&span);
	source->way = HOIST__FROM_HOST;
	return err;
}

static void plan_tensor(struct hoist_save *save, struct hoist__save_source *source)
{
	const struct hoist__checkpoint_tensor *entry = &source->checkpoint->tensors[source->index];
	const struct hoist__file *file = source->checkpoint->files[entry->file].file;
	uint64_t align = hoist__max_u64(file->memory_align, file->offset_align);
	bool as_it_is = source->dims == NULL && source->dtype == entry->tensor->dtype;
	source->way =
		as_it_is && entry->tensor->strides == NULL ? HOIST__FROM_FILE : HOIST__FROM_LOAD;
	if (source->way == HOIST__FROM_FILE)
		save->source_align =
			hoist__max_u64(save->source_align, hoist__max_u64(align, 4096));
}

/* The size follows from dtype and shape: the file holds the tensor row-major, whatever its strides
 * are in the source. */
static int describe(struct hoist_save *save, const struct hoist__save_source *source,
		    struct hoist__out_tensor *ret)
{
	ret->name = source->name;
	if (source->buffer != NULL) {
		ret->dtype = source->buffer->dtype;
		ret->rank = source->buffer->rank;
		ret->shape = source->buffer->dims;
		ret->bytes = source->buffer->bytes;
	} else {
		const struct hoist__tensor *tensor =
			source->checkpoint->tensors[source->index].tensor;
		uint64_t elements;
		size_t bytes;
		ret->dtype = source->dtype;
		ret->rank = tensor->rank;
		ret->shape = source->dims != NULL ? source->dims : tensor->shape;
		int err =
			hoist__buffer_measure(ret->dtype, ret->rank, ret->shape, &elements, &bytes);
		if (err < 0)
			return hoist__fail_in(err, "saving tensor \"%.200s\"", source->name);
		ret->bytes = bytes;
	}
	if (hoist__add_overflow(save->tensor_bytes, ret->bytes, &save->tensor_bytes))
		return hoist__fail(-EOVERFLOW, "saving %s: its tensors have too many bytes",
				   save->path);
	return 0;
}

int hoist__save_plan_sources(struct hoist_save *save)
{
	save->tensors = calloc(save->n_sources + 1, sizeof *save->tensors);
	if (save->tensors == NULL)
		return hoist__fail_nomem("a list of tensors",
					 save->n_sources * sizeof *save->tensors);
	int err = 0;
	for (size_t i = 0; err == 0 && i < save->n_sources; i++) {
		struct hoist__save_source *source = &save->sources[i];
		if (source->buffer != NULL)
			err = plan_buffer(save, source);
		else
			plan_tensor(save, source);
		if (err == 0)
			err = describe(save, source, &save->tensors[i]);
	}
	return err;
}
