/* SPDX-License-Identifier: MIT */
/* layers MODEL [DEVICE]: loads MODEL to the host, moves its tensors to DEVICE one by one, and drops
 * each on the host at once: its pages go back, so that two whole copies never need memory together.
 *
 *     cc layers.c $(pkg-config --cflags --libs hoist) -o layers
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

/* KiB of the process that are in memory. */
static long resident(void)
{
	char line[128];
	long kib = -1;
	FILE *file = fopen("/proc/self/status", "r");

	while (file != NULL && kib < 0 && fgets(line, sizeof line, file) != NULL)
		(void)sscanf(line, "RssAnon: %ld", &kib);
	if (file != NULL)
		(void)fclose(file);
	return kib;
}

int main(int argc, char **argv)
{
	hoist_device *device;
	hoist_checkpoint *checkpoint;
	hoist_load *load;

	if (argc < 2) {
		fprintf(stderr, "usage: %s MODEL [DEVICE]\n", argv[0]);
		return 2;
	}
	check(hoist_device_open(argc > 2 ? argv[2] : "gpu:0", &device), "device");
	check(hoist_checkpoint_open(argv[1], 0, &checkpoint), "checkpoint");
	check(hoist_load_start(checkpoint, NULL, &load), "load");
	check(hoist_load_wait(load), "load");
	size_t n = hoist_load_n_tensors(load);
	hoist_buffer **buffers = calloc(n + 1, sizeof *buffers);
	if (buffers == NULL)
		return 1;
	for (size_t i = 0; i < n; i++)
		check(hoist_load_tensor(load, i, NULL, &buffers[i]), "tensor");
	hoist_load_destroy(load); /* the buffers alone keep the memory now */

	for (size_t i = 0; i < n; i++) {
		hoist_buffer *moved;

		check(hoist_buffer_to(buffers[i], device, &moved), "copy");
		hoist_buffer_unref(buffers[i]); /* whole pages of it go back */
		buffers[i] = moved;
		printf("%zu of %zu are on %s; %ld KiB on the host\n", i + 1, n,
		       hoist_device_spec(device), resident());
	}

	for (size_t i = 0; i < n; i++)
		hoist_buffer_unref(buffers[i]);
	free(buffers);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	return 0;
}
