/* SPDX-License-Identifier: MIT */
/* refit MODEL NEW [DEVICE]: loads MODEL, and then reads the tensors of NEW, a checkpoint of the same
 * names and shapes, into the same memory: a trainer's new weights, or a model that wakes up.
 *
 *     cc refit.c $(pkg-config --cflags --libs hoist) -o refit
 */
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

static hoist_load *start(hoist_checkpoint *checkpoint, const hoist_load_options *options)
{
	hoist_load *load;

	check(hoist_load_start(checkpoint, options, &load), "load");
	check(hoist_load_wait(load), "load");
	return load;
}

int main(int argc, char **argv)
{
	hoist_checkpoint *model, *fresh;
	hoist_load_options first = {.size = sizeof first};
	hoist_load_report report = {.size = sizeof report};

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: %s MODEL NEW [DEVICE]\n", argv[0]);
		return 2;
	}
	check(hoist_checkpoint_open(argv[1], 0, &model), argv[1]);
	check(hoist_checkpoint_open(argv[2], 0, &fresh), argv[2]);
	check(hoist_device_open(argc > 3 ? argv[3] : "cpu", &first.device), "device");
	hoist_load *load = start(model, &first);

	size_t n = hoist_load_n_tensors(load);
	hoist_load_into *into = calloc(n + 1, sizeof *into);
	if (into == NULL)
		return 1;
	for (size_t i = 0; i < n; i++) {
		hoist_tensor_info tensor = {.size = sizeof tensor};
		size_t which;

		check(hoist_load_tensor(load, i, &which, &into[i].buffer), "buffer");
		check(hoist_checkpoint_tensor(model, which, &tensor), "tensor");
		into[i].tensor = tensor.name; /* the model's: open until the end */
	}
	hoist_load_destroy(load); /* the buffers live on, and serve the model */

	const hoist_load_options again = {.size = sizeof again, .into = into, .n_into = n};
	load = start(fresh, &again);
	check(hoist_load_get_report(load, &report), "report");
	printf("%llu bytes into %zu buffers on %s in %.3f s\n", (unsigned long long)report.bytes, n,
	       report.device, (double)report.ns / 1e9);
	hoist_load_destroy(load);

	for (size_t i = 0; i < n; i++)
		hoist_buffer_unref(into[i].buffer);
	free(into);
	hoist_device_unref(first.device);
	hoist_checkpoint_close(fresh);
	hoist_checkpoint_close(model);
	return 0;
}
