/* SPDX-License-Identifier: MIT */
/* tensor_parallel MODEL TENSOR RANK [DEVICE]: what one of two tensor-parallel ranks does with a
 * weight.  It takes its half of the rows, brings them to DEVICE, and hands them to another library
 * (here: a few lines that look into the struct) by DLPack, without a further copy.
 *
 *     cc tensor_parallel.c $(pkg-config --cflags --libs hoist) -o tensor_parallel
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

/* One tensor of the model as a buffer over its file's pages: only what is copied is read. */
static hoist_buffer *open_tensor(const char *model, const char *name)
{
	hoist_checkpoint *checkpoint;
	hoist_load *load;
	hoist_buffer *tensor;
	hoist_load_options options = {
		.size = sizeof options, .io = HOIST_IO_MAP, .tensors = &name, .n_tensors = 1};

	check(hoist_checkpoint_open(model, 0, &checkpoint), "checkpoint");
	check(hoist_load_start(checkpoint, &options, &load), "load");
	check(hoist_load_wait(load), "load");
	check(hoist_load_buffer(load, name, &tensor), "tensor");
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	return tensor;
}

/* The consumer: whoever can read a DLManagedTensorVersioned. */
static void consume(struct DLManagedTensorVersioned *managed)
{
	const hoist_dl_tensor *tensor = &((const hoist_dl_managed *)managed)->tensor;

	printf("device %d:%d, %d bits a value, shape", tensor->device.type, tensor->device.id,
	       tensor->dtype.bits);
	for (int i = 0; i < tensor->rank; i++)
		printf(" %" PRId64, tensor->shape[i]);
	printf(", data at %p\n", tensor->data);
	hoist_dlpack_release(managed); /* the last user: now the memory goes back */
}

int main(int argc, char **argv)
{
	const int n_ranks = 2;

	int rank = argc > 3 ? atoi(argv[3]) : -1;

	if (rank < 0 || rank >= n_ranks) {
		fprintf(stderr, "usage: %s MODEL TENSOR RANK [DEVICE]; RANK is 0 or 1\n", argv[0]);
		return 2;
	}
	hoist_buffer *whole = open_tensor(argv[1], argv[2]);

	/* My rows, as in NumPy: whole[rank * rows : (rank + 1) * rows] */
	if (hoist_buffer_rank(whole) == 0) {
		fprintf(stderr, "%s is a single value, and has no rows\n", argv[2]);
		hoist_buffer_unref(whole);
		return 1;
	}
	int64_t rows = hoist_buffer_shape(whole)[0] / n_ranks;
	hoist_slice mine = HOIST_RANGE(rank * rows, (rank + 1) * rows);
	hoist_buffer *half;
	check(hoist_buffer_slice(whole, 1, &mine, &half), "slice");

	/* To the device, on a stream of our own; pageable memory goes through pinned memory. */
	hoist_device *device;
	hoist_stream *stream;
	hoist_buffer *weight;
	check(hoist_device_open(argc > 4 ? argv[4] : "gpu:0", &device), "device");
	check(hoist_stream_create(device, &stream), "stream");
	check(hoist_buffer_copy_to_stream(half, stream, &weight), "copy");

	char text[256];
	check(hoist_buffer_describe(weight, 0, text, sizeof text), "description");
	printf("rank %d of %d: %s\n", rank, n_ranks, text);

	/* Out: waits for the stream, as no other one was named. */
	struct DLManagedTensorVersioned *managed;
	check(hoist_buffer_to_dlpack(weight, NULL, &managed), "export");
	hoist_buffer_unref(weight);
	hoist_buffer_unref(half);
	hoist_buffer_unref(whole);
	consume(managed);

	hoist_stream_unref(stream);
	hoist_device_unref(device);
	return 0;
}
