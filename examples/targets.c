/* SPDX-License-Identifier: MIT */
/* targets MODEL DEVICE...: loads MODEL to several devices in one load, which reads the files once:
 * each device gets an equal part of the columns of the tensors that GLOB names, as bf16, and all
 * other tensors whole.
 *
 *     cc targets.c $(pkg-config --cflags --libs hoist) -o targets
 */
#include <stdio.h>
#include <stdlib.h>
#include <hoist/element.h>
#include <hoist/hoist.h>

#define GLOB "*proj.weight"
#define MOST 16

static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hoist_error());
	exit(1);
}

int main(int argc, char **argv)
{
	hoist_load_slice slices[MOST] = {{0}};
	hoist_load_target targets[MOST] = {{0}};
	const hoist_load_target *all[MOST];
	hoist_checkpoint *checkpoint;
	hoist_load *load;
	int n = argc - 2;

	if (n < 1 || n > MOST) {
		fprintf(stderr, "usage: %s MODEL DEVICE..., at most %d\n", argv[0], MOST);
		return 2;
	}
	check(hoist_checkpoint_open(argv[1], 0, &checkpoint), "checkpoint");
	for (int t = 0; t < n; t++) {
		slices[t] = (hoist_load_slice){.tensor = GLOB, .axis = 1, .rank = t, .n_ranks = n};
		targets[t] = (hoist_load_target){
			.size = sizeof targets[t], .slices = &slices[t], .n_slices = 1};
		targets[t].dtype = HOIST_BF16;
		check(hoist_device_open(argv[2 + t], &targets[t].device), argv[2 + t]);
		all[t] = &targets[t];
	}
	const hoist_load_options options = {
		.size = sizeof options, .targets = all, .n_targets = (size_t)n};
	check(hoist_load_start(checkpoint, &options, &load), "load");
	check(hoist_load_wait(load), "load");

	for (size_t t = 0; t < hoist_load_n_targets(load); t++)
		for (size_t i = 0; i < hoist_load_target_n_tensors(load, t); i++) {
			hoist_buffer *part;
			char text[256];

			check(hoist_load_target_tensor(load, t, i, NULL, &part), "tensor");
			check(hoist_buffer_describe(part, 0, text, sizeof text), "description");
			printf("target %zu: %s\n", t, text);
			hoist_buffer_unref(part);
		}
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	for (int t = 0; t < n; t++)
		hoist_device_unref(targets[t].device);
	return 0;
}
