/* SPDX-License-Identifier: MIT */
/* pinned_loop [DEVICE [BATCHES]]: a program that feeds a device, batch by batch, from a pool of
 * pinned memory.  Each batch takes a block, fills it, queues a copy and lets go: the pool gives the
 * block out again when the copy has passed, so that a few blocks serve all batches.
 *
 *     cc pinned_loop.c $(pkg-config --cflags --libs hoist) -o pinned_loop
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <hoist/hoist.h>

#define BATCH_BYTES ((size_t)1 << 20)

static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hoist_error());
	exit(1);
}

int main(int argc, char **argv)
{
	const int64_t shape[] = {(int64_t)BATCH_BYTES};
	int n_batches = argc > 2 ? atoi(argv[2]) : 100;
	hoist_device *device;
	hoist_stream *stream;
	hoist_memory *pinned;
	hoist_buffer *input;

	check(hoist_device_open(argc > 1 ? argv[1] : "gpu:0", &device), "device");
	check(hoist_stream_create(device, &stream), "stream");
	check(hoist_buffer_create_on(stream, HOIST_U8, 1, shape, 0, &input), "input");

	/* At most 8 MiB are ever pinned.  When all blocks are on their way, the pool waits for the
	 * stream (soft_limit_bytes) instead of failing. */
	const hoist_memory_options options = {.size = sizeof options,
					      .kind = HOIST_MEMORY_PINNED,
					      .device = device,
					      .name = "batches",
					      .region_bytes = 4 << 20,
					      .soft_limit_bytes = 4 << 20,
					      .limit_bytes = 8 << 20};
	check(hoist_memory_create(&options, &pinned), "pool");

	for (int i = 0; i < n_batches; i++) {
		hoist_buffer *batch;

		/* Without a stream: the pool gives out no block that a copy still reads. */
		check(hoist_buffer_create_from(pinned, NULL, HOIST_U8, 1, shape, 0, &batch),
		      "batch");
		memset(hoist_buffer_data(batch), i, BATCH_BYTES);
		check(hoist_buffer_copy_on(input, batch, stream), "copy");
		hoist_buffer_unref(batch); /* its block comes back behind the copy */
	}
	check(hoist_stream_synchronize(stream), "stream");

	hoist_memory_statistics now = {.size = sizeof now};
	check(hoist_memory_get_statistics(pinned, &now), "statistics");
	printf("%d batches of %zu bytes, at most %" PRIu64 " bytes pinned\n", n_batches,
	       BATCH_BYTES, now.reserved_peak);
	hoist_buffer_unref(input);
	hoist_memory_unref(pinned);
	hoist_stream_unref(stream);
	hoist_device_unref(device);
	return 0;
}
