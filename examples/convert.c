/* SPDX-License-Identifier: MIT */
/* convert SOURCE FILE: loads a checkpoint of any format hoist reads (safetensors and shards, GGUF,
 * PyTorch, npy, npz, max), converts its floats to bf16 on the way, and saves FILE.
 *
 *     cc convert.c $(pkg-config --cflags --libs hoist) -o convert
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

int main(int argc, char **argv)
{
	hoist_checkpoint *checkpoint;
	hoist_load *load;
	hoist_save *save;

	if (argc < 3) {
		fprintf(stderr, "usage: %s SOURCE FILE\n", argv[0]);
		return 2;
	}
	check(hoist_checkpoint_open(argv[1], 0, &checkpoint), "checkpoint");

	/* To the CPU's memory, as no device is named.  Integers, for one, stay as they are. */
	const hoist_load_options to_bf16 = {.size = sizeof to_bf16, .dtype = HOIST_BF16};
	check(hoist_load_start(checkpoint, &to_bf16, &load), "load");
	check(hoist_load_wait(load), "load");

	check(hoist_save_create(argv[2], NULL, &save), "save");
	check(hoist_save_metadata_of(save, checkpoint), "metadata");
	for (size_t i = 0; i < hoist_checkpoint_n_tensors(checkpoint); i++) {
		hoist_tensor_info info = {.size = sizeof info};
		hoist_buffer *tensor;

		check(hoist_checkpoint_tensor(checkpoint, i, &info), "tensor");
		check(hoist_load_buffer(load, info.name, &tensor), info.name);
		check(hoist_save_add(save, info.name, tensor), info.name);
		printf("%s: %s to %s\n", info.name, hoist_dtype_name(info.dtype),
		       hoist_dtype_name(hoist_buffer_dtype(tensor)));
		hoist_buffer_unref(tensor); /* the save has a reference */
	}
	check(hoist_save_start(save), "save");
	check(hoist_save_wait(save), "save");

	hoist_save_destroy(save);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	return 0;
}
