/* SPDX-License-Identifier: MIT */
/* stream MODEL [DEVICE]: takes tensors one by one while later ones still load.  The whole checkpoint
 * passes through 256 MiB of the device's memory.
 *
 *     cc stream.c $(pkg-config --cflags --libs hoist) -o stream
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <hoist/hoist.h>

static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hoist_error());
	exit(1);
}

int main(int argc, char **argv)
{
	hoist_device *device;
	hoist_checkpoint *checkpoint;
	hoist_load *load;
	hoist_load_item item = {.size = sizeof item};
	hoist_load_report report = {.size = sizeof report};
	int got;

	if (argc < 2) {
		fprintf(stderr, "usage: %s MODEL [DEVICE]\n", argv[0]);
		return 2;
	}
	check(hoist_device_open(argc > 2 ? argv[2] : "gpu:0", &device), "device");
	check(hoist_checkpoint_open(argv[1], 0, &checkpoint), "checkpoint");

	const hoist_load_options options = {.size = sizeof options,
					    .device = device,
					    .flags = HOIST_LOAD_STREAM,
					    .window_bytes = (size_t)256 << 20};
	check(hoist_load_start(checkpoint, &options, &load), "load");
	while ((got = hoist_load_next(load, UINT64_MAX, &item)) > 0) {
		hoist_tensor_info info = {.size = sizeof info};

		check(hoist_checkpoint_tensor(checkpoint, item.tensor, &info), "tensor");
		printf("%s: %zu bytes on %s\n", info.name, hoist_buffer_bytes(item.buffer),
		       hoist_device_spec(device));
		hoist_buffer_unref(item.buffer); /* makes room for later tensors */
	}
	check(got, "load");
	check(hoist_load_get_report(load, &report), "report");
	printf("%llu tensors, at most %zu bytes at a time\n",
	       (unsigned long long)report.n_tensors, report.window_peak_bytes);

	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	return 0;
}
