/* SPDX-License-Identifier: MIT */
/* A program as a user writes it: pedantic C11 and the public headers alone. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <hoist/hoist.h>

static int use_buffers(hoist_device *device)
{
	const int64_t shape[] = {2, 3};
	const float values[] = {1, 2, 3, 4, 5, 6};
	float back[6] = {0};
	hoist_buffer *buffer;
	hoist_buffer *copy;
	if (hoist_buffer_create(device, HOIST_F32, 2, shape, HOIST_BUFFER_ZERO, &buffer) < 0)
		return -1;
	int err = hoist_buffer_write(buffer, 0, values, sizeof values);
	if (err == 0)
		err = hoist_buffer_copy(buffer, device, &copy);
	hoist_buffer_unref(buffer);
	if (err < 0)
		return -1;
	err = hoist_buffer_read(copy, 0, back, sizeof back);
	hoist_buffer_unref(copy);
	return err == 0 && memcmp(values, back, sizeof back) == 0 ? 0 : -1;
}

/* Every function of a resource, through one of the caller's own. */
static int take(void *context, size_t bytes, size_t align, hoist_stream *stream, uintptr_t *ret)
{
	static uint64_t room[64];
	(void)context;
	(void)stream;
	if (bytes > sizeof room || align > sizeof room[0])
		return -1;
	*ret = (uintptr_t)room;
	return 0;
}

static void give(void *context, uintptr_t address, size_t bytes, hoist_stream *stream)
{
	(void)stream;
	*(size_t *)context += address != 0 ? bytes : 0;
}

static int use_memory(hoist_device *device)
{
	size_t freed = 0;
	const hoist_memory_functions functions = {
		.size = sizeof functions, .alloc = take, .free = give, .is_host_accessible = 1};
	const hoist_memory_options options = {
		.size = sizeof options,
		.kind = HOIST_MEMORY_CUSTOM,
		.device = device,
		.name = "mine",
		.functions = &functions,
		.functions_context = &freed,
	};
	hoist_memory *memory;
	uintptr_t block;
	if (hoist_memory_create(&options, &memory) < 0)
		return -1;
	int err = hoist_memory_alloc(memory, 100, 0, &block);
	if (err == 0)
		err = hoist_memory_free(memory, block);
	hoist_memory_unref(memory);
	return err == 0 && freed == 100 ? 0 : -1;
}

int main(void)
{
	hoist_device *device;
	hoist_checkpoint *checkpoint;
	if (hoist_version()[0] == '\0' || hoist_device_open("cpu", &device) < 0 ||
	    use_buffers(device) < 0 || use_memory(device) < 0) {
		(void)fprintf(stderr, "%s\n", hoist_error());
		return 1;
	}
	hoist_device_unref(device);
	if (hoist_checkpoint_open("/nowhere/model.safetensors", 0, &checkpoint) == 0 ||
	    strstr(hoist_error(), "/nowhere/model.safetensors") == NULL) {
		(void)fprintf(stderr, "no file, no words: %s\n", hoist_error());
		return 1;
	}
	return 0;
}
