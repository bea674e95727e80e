/* SPDX-License-Identifier: MIT */
/* cache MODEL: what a worker does that starts again and again: it attaches the image of MODEL that
 * processes share, and is the one that makes the image if there is none.
 *
 *     cc cache.c $(pkg-config --cflags --libs hoist) -o cache
 */
#include <errno.h>
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

static hoist_image *attach_or_add(const char *model)
{
	hoist_image *image;
	int err = hoist_cache_attach(model, 0, &image);

	/* -ENOENT: nobody has added it; -ESTALE: its files have changed since.  If several
	 * workers come here at once, one loads the model and the others wait for the image. */
	if (err == -ENOENT || err == -ESTALE) {
		printf("no image: adding it\n");
		err = hoist_cache_add(model, NULL, &image);
	}
	check(err, "cache");
	return image;
}

int main(int argc, char **argv)
{
	hoist_image_info info = {.size = sizeof info};
	hoist_image *image;

	if (argc < 2) {
		fprintf(stderr, "usage: %s MODEL\n", argv[0]);
		return 2;
	}
	image = attach_or_add(argv[1]);
	check(hoist_image_get_info(image, &info), "image");
	printf("%" PRIu64 " tensors, %" PRIu64 " bytes, shared\n", info.n_tensors,
	       info.tensor_bytes);
	for (size_t i = 0; i < hoist_image_n_tensors(image); i++) {
		hoist_tensor_info tensor = {.size = sizeof tensor};
		hoist_buffer *weight;

		check(hoist_image_tensor(image, i, &tensor), "tensor");
		check(hoist_image_buffer(image, i, &weight), "tensor");
		printf("%s: %zu bytes at %p\n", tensor.name, hoist_buffer_bytes(weight),
		       hoist_buffer_data(weight));
		hoist_buffer_unref(weight);
	}
	hoist_image_close(image);
	return 0;
}
