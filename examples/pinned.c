/* SPDX-License-Identifier: MIT */
/* A pinned block that a stream still reads when the host frees it. */
#include <inttypes.h>
#include <stdio.h>
#include <hoist/hoist.h>

int main(void)
{
	hoist_device *device = NULL;
	hoist_stream *stream = NULL;
	hoist_memory *pinned = NULL;
	uintptr_t block = 0, seen = 0;

	if (hoist_device_open("gpu:0", &device) < 0 || hoist_stream_create(device, &stream) < 0)
		goto failed;
	hoist_memory_options options = {
		.size = sizeof options,
		.kind = HOIST_MEMORY_PINNED,
		.device = device,
		.limit_bytes = (size_t)256 << 20,
	};
	if (hoist_memory_create(&options, &pinned) < 0 ||
	    hoist_memory_alloc(pinned, 1 << 20, 0, &block) < 0 ||
	    hoist_memory_device_address(pinned, block, &seen) < 0)
		goto failed;
	printf("%p is %#" PRIxPTR " for kernels\n", (void *)block, seen);
	/* ... copies and kernels on the stream ... */
	if (hoist_memory_free_on(pinned, block, stream) < 0) /* does not wait */
		goto failed;
	hoist_stream_unref(stream);
	hoist_memory_unref(pinned);
	hoist_device_unref(device);
	return 0;
failed:
	fprintf(stderr, "%s\n", hoist_error());
	return 1;
}
