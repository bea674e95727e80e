/* SPDX-License-Identifier: MIT */
/* save FILE [DEVICE]: fills two tensors on DEVICE and saves these as safetensors, with a digest of
 * each; then loads FILE again, which compares the digests.
 *
 *     cc save.c $(pkg-config --cflags --libs hoist) -o save
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

static hoist_buffer *ones(hoist_device *device, int64_t rows, int64_t columns)
{
	const int64_t shape[] = {rows, columns};
	const float one = 1;
	hoist_buffer *made;

	check(hoist_buffer_create(device, HOIST_F32, 2, shape, 0, &made), "buffer");
	check(hoist_buffer_fill(made, &one, sizeof one), "fill");
	return made;
}

static void save_file(const char *path, hoist_device *device)
{
	const hoist_save_options options = {.size = sizeof options, .flags = HOIST_SAVE_DIGEST};
	hoist_buffer *embed = ones(device, 1000, 64), *head = ones(device, 64, 1000);
	hoist_save_report report = {.size = sizeof report};
	hoist_save *save;

	check(hoist_save_create(path, &options, &save), "save");
	check(hoist_save_add(save, "embed.weight", embed), "save");
	check(hoist_save_add(save, "lm_head.weight", head), "save");
	check(hoist_save_metadata(save, "format", "pt"), "save");
	check(hoist_save_start(save), "save");
	/* Until the wait has given 0, an old FILE may be there, whole; from then on the new one is. */
	check(hoist_save_wait(save), "save");
	check(hoist_save_get_report(save, &report), "report");
	printf("saved %" PRIu64 " tensors, %" PRIu64 " bytes\n", report.n_tensors, report.bytes);
	hoist_save_destroy(save);
	hoist_buffer_unref(embed);
	hoist_buffer_unref(head);
}

int main(int argc, char **argv)
{
	hoist_device *device;
	hoist_checkpoint *checkpoint;
	hoist_load *load;

	if (argc < 2) {
		fprintf(stderr, "usage: %s FILE [DEVICE]\n", argv[0]);
		return 2;
	}
	check(hoist_device_open(argc > 2 ? argv[2] : "gpu:0", &device), "device");
	save_file(argv[1], device);

	const hoist_load_options verify = {
		.size = sizeof verify, .device = device, .flags = HOIST_LOAD_VERIFY};
	check(hoist_checkpoint_open(argv[1], 0, &checkpoint), "checkpoint");
	check(hoist_load_start(checkpoint, &verify, &load), "load");
	check(hoist_load_wait(load), "load");
	printf("verified\n");
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	return 0;
}
