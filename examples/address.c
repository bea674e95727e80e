/* SPDX-License-Identifier: MIT */
/* address MODEL TENSOR [DEVICE]: loads MODEL to DEVICE and prints the address of TENSOR. */
#include <inttypes.h>
#include <stdio.h>
#include <hoist/hoist.h>

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, hoist_error());
	return 1;
}

int main(int argc, char **argv)
{
	hoist_device *device = NULL;
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	hoist_buffer *weight = NULL;

	if (argc < 3) {
		fprintf(stderr, "usage: %s MODEL TENSOR [DEVICE]\n", argv[0]);
		return 2;
	}
	if (hoist_device_open(argc > 3 ? argv[3] : "gpu:0", &device) < 0)
		return fail("device");
	if (hoist_checkpoint_open(argv[1], 0, &checkpoint) < 0)
		return fail("checkpoint");

	hoist_load_options options = {.size = sizeof options, .device = device};
	if (hoist_load_start(checkpoint, &options, &load) < 0 || hoist_load_wait(load) < 0)
		return fail("load");
	if (hoist_load_buffer(load, argv[2], &weight) < 0)
		return fail("tensor");
	hoist_load_destroy(load); /* the buffers live on */
	hoist_checkpoint_close(checkpoint);

	printf("%s: %s, %zu bytes at %#" PRIxPTR " on %s\n", argv[2],
	       hoist_dtype_name(hoist_buffer_dtype(weight)), hoist_buffer_bytes(weight),
	       hoist_buffer_address(weight), hoist_device_spec(device));

	hoist_buffer_unref(weight);
	hoist_device_unref(device);
	return 0;
}
