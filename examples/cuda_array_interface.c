/* SPDX-License-Identifier: MIT */
/* cuda_array_interface [DEVICE]: what a binding does for `__cuda_array_interface__`: fills the
 * fields of the dictionary from a buffer, and makes a buffer from another object's fields.
 *
 *     cc cuda_array_interface.c $(pkg-config --cflags --libs hoist) -o cuda_array_interface
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <hoist/cai.h>
#include <hoist/element.h>
#include <hoist/hoist.h>

static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hoist_error());
	exit(1);
}

/* The interface owns nothing: this keeps the object that the fields came from. */
static void drop_owner(void *owner)
{
	printf("the owner is dropped\n");
	hoist_buffer_unref(owner);
}

int main(int argc, char **argv)
{
	const int64_t shape[] = {2, 3};
	const float values[] = {1, 2, 3, 4, 5, 6};
	hoist_cai fields = {.size = sizeof fields};
	hoist_device *device;
	hoist_stream *stream;
	hoist_buffer *owner, *seen;
	char text[256];

	check(hoist_device_open(argc > 1 ? argv[1] : "gpu:0", &device), "device");
	check(hoist_stream_create(device, &stream), "stream");
	check(hoist_buffer_create_on(stream, HOIST_F32, 2, shape, 0, &owner), "buffer");
	check(hoist_buffer_copy_in(owner, values, sizeof values), "values");

	/* Out: `stream` is the buffer's, for which the consumer waits. */
	check(hoist_buffer_to_cai(owner, &fields), "export");
	printf("version %d, typestr %s, data %#" PRIxPTR ", shape (%" PRId64 ", %" PRId64 ")%s\n",
	       fields.version, fields.typestr, fields.data, fields.shape[0], fields.shape[1],
	       fields.has_strides ? ", strides" : "");

	/* In: work on the new buffer's stream waits for that stream; this thread does not. */
	const hoist_cai_owner keep = {.release = drop_owner, .context = owner};
	check(hoist_buffer_from_cai(&fields, &keep, NULL, 0, &seen), "import");
	check(hoist_buffer_describe(seen, HOIST_DESCRIBE_VALUES, text, sizeof text), "description");
	printf("%s\n", text);

	hoist_buffer_unref(seen);
	hoist_stream_unref(stream);
	hoist_device_unref(device);
	return 0;
}
