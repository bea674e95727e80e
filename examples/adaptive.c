/* SPDX-License-Identifier: MIT */
/* adaptive MODEL: loads MODEL to host memory without a copy of the bytes that the page cache holds
 * already: these ranges of the files are mapped, copy-on-write, and all others are read directly.
 * As long as the buffers live, nobody may shorten the files.
 *
 *     cc adaptive.c $(pkg-config --cflags --libs hoist) -o adaptive
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
	hoist_load_report report = {.size = sizeof report};
	unsigned sum = 0;

	if (argc != 2) {
		fprintf(stderr, "usage: %s MODEL\n", argv[0]);
		return 2;
	}
	check(hoist_checkpoint_open(argv[1], 0, &checkpoint), "checkpoint");

	const hoist_load_options options = {.size = sizeof options, .io = HOIST_IO_ADAPTIVE};
	check(hoist_load_start(checkpoint, &options, &load), "load");
	check(hoist_load_wait(load), "load");
	check(hoist_load_get_report(load, &report), "report");

	for (size_t i = 0; i < hoist_load_n_tensors(load); i++) {
		hoist_buffer *buffer;

		check(hoist_load_tensor(load, i, NULL, &buffer), "tensor");
		const unsigned char *bytes = hoist_buffer_data(buffer); /* mapped or read: alike */
		for (size_t k = 0; k < hoist_buffer_bytes(buffer); k++)
			sum += bytes[k];
		hoist_buffer_unref(buffer);
	}
	printf("%llu bytes mapped, %llu read; their sum is %u\n",
	       (unsigned long long)report.mapped_bytes,
	       (unsigned long long)(report.direct_bytes + report.cached_bytes), sum);

	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	return 0;
}
