/* SPDX-License-Identifier: MIT */
/* tensor_parallel MODEL RANK RANKS [DEVICE]: loads the part of a model that one tensor-parallel
 * rank needs: of each tensor that GLOB names, the RANK-th of RANKS equal parts of its rows; all
 * other tensors whole.  Rows of other ranks are not read.
 *
 *     cc tensor_parallel.c $(pkg-config --cflags --libs hoist) -o tensor_parallel
 */
#include <stdio.h>
#include <stdlib.h>
#include <hoist/element.h>
#include <hoist/hoist.h>

#define GLOB "*proj.weight"

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
	int rank = argc > 3 ? atoi(argv[2]) : -1;
	int n_ranks = argc > 3 ? atoi(argv[3]) : 0;

	if (rank < 0 || rank >= n_ranks) {
		fprintf(stderr, "usage: %s MODEL RANK RANKS [DEVICE]; RANK is below RANKS\n",
			argv[0]);
		return 2;
	}
	check(hoist_device_open(argc > 4 ? argv[4] : "gpu:0", &device), "device");
	check(hoist_checkpoint_open(argv[1], 0, &checkpoint), "checkpoint");

	/* Column-parallel layers are cut by axis 0; row-parallel ones would be by axis 1. */
	const hoist_load_slice mine = {.tensor = GLOB, .axis = 0, .rank = rank, .n_ranks = n_ranks};
	const hoist_load_options options = {
		.size = sizeof options, .device = device, .slices = &mine, .n_slices = 1};
	check(hoist_load_start(checkpoint, &options, &load), "load");
	check(hoist_load_wait(load), "load");

	for (size_t i = 0; i < hoist_checkpoint_n_tensors(checkpoint); i++) {
		hoist_tensor_info info = {.size = sizeof info};
		hoist_buffer *part;
		char text[256];

		check(hoist_checkpoint_tensor(checkpoint, i, &info), "tensor");
		check(hoist_load_buffer(load, info.name, &part), info.name);
		check(hoist_buffer_describe(part, 0, text, sizeof text), "description");
		printf("rank %d of %d: %s is %s\n", rank, n_ranks, info.name, text);
		hoist_buffer_unref(part);
	}
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	return 0;
}
