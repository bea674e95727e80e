/* SPDX-License-Identifier: MIT */
/* load MODEL [DEVICE]: loads a checkpoint to DEVICE and says where each tensor is.
 *
 *     cc load.c $(pkg-config --cflags --libs hoist) -o load
 */
#include <inttypes.h>
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
	hoist_load_report report = {.size = sizeof report};
	char line[512];

	if (argc < 2) {
		fprintf(stderr, "usage: %s MODEL [DEVICE]\n", argv[0]);
		return 2;
	}
	check(hoist_device_open(argc > 2 ? argv[2] : "gpu:0", &device), "device");
	check(hoist_checkpoint_open(argv[1], 0, &checkpoint), "checkpoint");

	/* A thread of the load's own reads and copies; this thread could do other work meanwhile. */
	hoist_load_options options = {.size = sizeof options, .device = device};
	check(hoist_load_start(checkpoint, &options, &load), "load");
	check(hoist_load_wait(load), "load");
	check(hoist_load_get_report(load, &report), "report");

	for (size_t i = 0; i < hoist_checkpoint_n_tensors(checkpoint); i++) {
		hoist_tensor_info info = {.size = sizeof info};
		hoist_buffer *weight;

		check(hoist_checkpoint_tensor(checkpoint, i, &info), "tensor");
		check(hoist_load_buffer(load, info.name, &weight), info.name);
		/* A kernel takes this address; it stays as long as the buffer has a reference. */
		printf("%s: %zu bytes at %#" PRIxPTR " on %s\n", info.name,
		       hoist_buffer_bytes(weight), hoist_buffer_address(weight),
		       hoist_device_spec(device));
		hoist_buffer_unref(weight);
	}
	(void)hoist_load_explain(&report, line, sizeof line);
	puts(line);

	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	return 0;
}
