/* SPDX-License-Identifier: MIT */
/* dlpack [DEVICE]: hands a buffer to another library and takes one from it, by DLPack, without a
 * copy. The other library is played by consume(), which knows DLPack's struct and nothing of hoist.
 *
 *     cc dlpack.c $(pkg-config --cflags --libs hoist) -o dlpack
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <hoist/dlpack.h>
#include <hoist/element.h>
#include <hoist/hoist.h>

static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hoist_error());
	exit(1);
}

/* Looks at the tensor, and gives the same one back; it could as well be of its own. */
static struct DLManagedTensorVersioned *consume(struct DLManagedTensorVersioned *managed)
{
	const hoist_dl_tensor *tensor = &((const hoist_dl_managed *)managed)->tensor;

	printf("device %d:%d, %d bits a value, shape", tensor->device.type, tensor->device.id,
	       tensor->dtype.bits);
	for (int i = 0; i < tensor->rank; i++)
		printf(" %" PRId64, tensor->shape[i]);
	printf("\n");
	return managed;
}

int main(int argc, char **argv)
{
	const int64_t shape[] = {2, 3};
	const float values[] = {1, 2, 3, 4, 5, 6};
	struct DLManagedTensorVersioned *managed;
	hoist_device *device;
	hoist_buffer *out, *in;
	char text[256];

	check(hoist_device_open(argc > 1 ? argv[1] : "gpu:0", &device), "device");
	check(hoist_buffer_create(device, HOIST_F32, 2, shape, 0, &out), "buffer");
	check(hoist_buffer_copy_in(out, values, sizeof values), "values");

	/* Out.  No stream is named, so the call waits until the values are there.  The memory lives
	 * until the tensor's deleter is called, whatever becomes of the buffer. */
	check(hoist_buffer_to_dlpack(out, NULL, &managed), "export");
	hoist_buffer_unref(out);

	/* In.  The tensor is hoist's now, which calls the deleter when the buffer ends.  A tensor
	 * that is refused stays the caller's, to be released. */
	managed = consume(managed);
	int err = hoist_buffer_from_dlpack(managed, NULL, 0, &in);
	if (err < 0)
		hoist_dlpack_release(managed);
	check(err, "import");

	check(hoist_buffer_describe(in, HOIST_DESCRIBE_VALUES, text, sizeof text), "description");
	printf("%s\n", text);
	hoist_buffer_unref(in);
	hoist_device_unref(device);
	return 0;
}
