/* SPDX-License-Identifier: MIT */
/* tests/support/lib-make.h - objects of the library in one line.  A failure ends the test: check.h
 * or unit-check.h, the one of the two that the test includes before this header, says how. */
#ifndef HOIST_TESTS_LIB_MAKE_H
#define HOIST_TESTS_LIB_MAKE_H

#include "hoist/dlpack.h"
#include "hoist/hoist.h"
#include "hoist/memory-driver.h"

#define OPTIONS(...) (&(hoist_memory_options){.size = sizeof(hoist_memory_options), __VA_ARGS__})
#define SOURCE(...) (&(hoist_buffer_source){.size = sizeof(hoist_buffer_source), __VA_ARGS__})
#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})
#define SLICES(...) ((const hoist_slice[]){__VA_ARGS__})

static inline hoist_device *open_device(const char *spec)
{
	hoist_device *device = NULL;
	OK(hoist_device_open(spec, &device));
	return device;
}

static inline hoist_stream *make_stream(hoist_device *device)
{
	hoist_stream *stream = NULL;
	OK(hoist_stream_create(device, &stream));
	return stream;
}

static inline hoist_stream *default_stream(hoist_device *device)
{
	hoist_stream *stream = NULL;
	OK(hoist_device_default_stream(device, &stream));
	return stream;
}

static inline hoist_stream *stream_of(const hoist_buffer *buffer)
{
	hoist_stream *stream = NULL;
	OK(hoist_buffer_stream(buffer, &stream));
	return stream;
}

static inline hoist_stream *wrap_stream(hoist_device *device, void *native)
{
	hoist_stream *stream = NULL;
	OK(hoist_stream_wrap(device, native, &stream));
	return stream;
}

static inline hoist_memory *make_memory(const hoist_memory_options *options)
{
	hoist_memory *memory = NULL;
	OK(hoist_memory_create(options, &memory));
	return memory;
}

/* A resource of its own, by the defaults of its kind. */
static inline hoist_memory *make_kind(int kind, hoist_device *device)
{
	return make_memory(OPTIONS(.kind = kind, .device = device));
}

/* The device's own. */
static inline hoist_memory *memory_of(hoist_device *device, int kind)
{
	hoist_memory *memory = NULL;
	OK(hoist_memory_of_device(device, kind, &memory));
	return memory;
}

static inline uintptr_t alloc(hoist_memory *memory, size_t bytes, size_t align)
{
	uintptr_t address = 0;
	OK(hoist_memory_alloc(memory, bytes, align, &address));
	return address;
}

static inline uintptr_t alloc_on(hoist_memory *memory, size_t bytes, size_t align,
				 hoist_stream *stream)
{
	uintptr_t address = 0;
	OK(hoist_memory_alloc_on(memory, bytes, align, stream, &address));
	return address;
}

static inline void release(hoist_memory *memory, uintptr_t address)
{
	OK(hoist_memory_free(memory, address));
}

static inline hoist_block_info find_block(uintptr_t address)
{
	hoist_block_info info = {.size = sizeof info};
	OK(hoist_memory_find(address, &info));
	return info;
}

static inline uintptr_t device_address(hoist_memory *memory, uintptr_t address)
{
	uintptr_t seen = 0;
	OK(hoist_memory_device_address(memory, address, &seen));
	return seen;
}

static inline hoist_buffer *make_buffer(hoist_device *device, hoist_dtype dtype, int rank,
					const int64_t *shape, unsigned flags)
{
	hoist_buffer *buffer = NULL;
	OK(hoist_buffer_create(device, dtype, rank, shape, flags, &buffer));
	return buffer;
}

static inline hoist_buffer *zeroed(hoist_device *device, hoist_dtype dtype, int rank,
				   const int64_t *shape)
{
	return make_buffer(device, dtype, rank, shape, HOIST_BUFFER_ZERO);
}

static inline hoist_buffer *make_buffer_on(hoist_stream *stream, hoist_dtype dtype, int rank,
					   const int64_t *shape, unsigned flags)
{
	hoist_buffer *buffer = NULL;
	OK(hoist_buffer_create_on(stream, dtype, rank, shape, flags, &buffer));
	return buffer;
}

static inline hoist_buffer *make_buffer_from(hoist_memory *memory, hoist_stream *stream,
					     hoist_dtype dtype, int rank, const int64_t *shape,
					     unsigned flags)
{
	hoist_buffer *buffer = NULL;
	OK(hoist_buffer_create_from(memory, stream, dtype, rank, shape, flags, &buffer));
	return buffer;
}

static inline hoist_buffer *make_wrapped(const hoist_buffer_source *source, hoist_dtype dtype,
					 int rank, const int64_t *shape, const int64_t *strides)
{
	hoist_buffer *buffer = NULL;
	OK(hoist_buffer_wrap(source, dtype, rank, shape, strides, &buffer));
	return buffer;
}

static inline hoist_buffer *make_slice(hoist_buffer *base, int n, const hoist_slice *slices)
{
	hoist_buffer *buffer = NULL;
	OK(hoist_buffer_slice(base, n, slices, &buffer));
	return buffer;
}

static inline hoist_buffer *make_view(hoist_buffer *base, size_t offset, hoist_dtype dtype,
				      int rank, const int64_t *shape)
{
	hoist_buffer *buffer = NULL;
	OK(hoist_buffer_view(base, offset, dtype, rank, shape, &buffer));
	return buffer;
}

static inline hoist_buffer *make_view_as(hoist_buffer *base, hoist_dtype dtype)
{
	hoist_buffer *buffer = NULL;
	OK(hoist_buffer_view_as(base, dtype, &buffer));
	return buffer;
}

static inline hoist_buffer *make_copy(hoist_buffer *from, hoist_device *device)
{
	hoist_buffer *buffer = NULL;
	OK(hoist_buffer_copy(from, device, &buffer));
	return buffer;
}

static inline struct DLManagedTensorVersioned *exported(hoist_buffer *buffer,
							const hoist_dlpack_options *options)
{
	struct DLManagedTensorVersioned *tensor = NULL;
	OK(hoist_buffer_to_dlpack(buffer, options, &tensor));
	return tensor;
}

static inline hoist_buffer *imported(struct DLManagedTensorVersioned *tensor, hoist_stream *stream,
				     unsigned flags)
{
	hoist_buffer *buffer = NULL;
	OK(hoist_buffer_from_dlpack(tensor, stream, flags, &buffer));
	return buffer;
}

/* Drops the caller's references to these buffers, in this order. */
#define DROP(...)                                                                                  \
	drop_buffers((hoist_buffer *[]){__VA_ARGS__},                                              \
		     sizeof((hoist_buffer *[]){__VA_ARGS__}) / sizeof(hoist_buffer *))

static inline void drop_buffers(hoist_buffer **buffers, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hoist_buffer_unref(buffers[i]);
}

#define DROP_STREAMS(...)                                                                          \
	drop_streams((hoist_stream *[]){__VA_ARGS__},                                              \
		     sizeof((hoist_stream *[]){__VA_ARGS__}) / sizeof(hoist_stream *))

static inline void drop_streams(hoist_stream **streams, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hoist_stream_unref(streams[i]);
}

static inline hoist_buffer_info info_of(const hoist_buffer *buffer)
{
	hoist_buffer_info info = {.size = sizeof info};
	OK(hoist_buffer_get_info(buffer, &info));
	return info;
}

static inline hoist_memory_info memory_info_of(hoist_memory *memory)
{
	hoist_memory_info info = {.size = sizeof info};
	OK(hoist_memory_get_info(memory, &info));
	return info;
}

static inline hoist_memory_statistics statistics_of(hoist_memory *memory)
{
	hoist_memory_statistics statistics = {.size = sizeof statistics};
	OK(hoist_memory_get_statistics(memory, &statistics));
	return statistics;
}

/* A driver's pool's own: HOIST_POOL_USED_CURRENT and its like. */
static inline uint64_t figure(hoist_memory *memory, int attribute)
{
	uint64_t value = 0;
	OK(hoist_memory_get_attribute(memory, attribute, &value));
	return value;
}

static inline hoist_device_info device_info_of(hoist_device *device)
{
	hoist_device_info info = {.size = sizeof info};
	OK(hoist_device_get_info(device, &info));
	return info;
}

#endif
