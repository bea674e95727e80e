/* SPDX-License-Identifier: MIT */
/* convert SOURCE FILE: saves a checkpoint of any format hoist reads (safetensors and shards, GGUF,
 * PyTorch, npy, npz, max) as FILE, its floats converted to bf16 on the way.  The memory does not
 * depend on the size of the checkpoint.
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
	hoist_save *save;

	if (argc < 3) {
		fprintf(stderr, "usage: %s SOURCE FILE\n", argv[0]);
		return 2;
	}
	check(hoist_checkpoint_open(argv[1], 0, &checkpoint), "checkpoint");

	check(hoist_save_create(argv[2], NULL, &save), "save");
	check(hoist_save_metadata_of(save, checkpoint), "metadata");
	/* Integers, for one, stay as they are. */
	const hoist_save_tensor to_bf16 = {.size = sizeof to_bf16, .dtype = HOIST_BF16};
	for (size_t i = 0; i < hoist_checkpoint_n_tensors(checkpoint); i++) {
		hoist_tensor_info info = {.size = sizeof info};

		check(hoist_checkpoint_tensor(checkpoint, i, &info), "tensor");
		check(hoist_save_add_tensor_as(save, checkpoint, i, &to_bf16), info.name);
		printf("%s: %s\n", info.name, hoist_dtype_name(info.dtype));
	}
	check(hoist_save_start(save), "save");
	check(hoist_save_wait(save), "save");

	hoist_save_destroy(save);
	hoist_checkpoint_close(checkpoint);
	return 0;
}
