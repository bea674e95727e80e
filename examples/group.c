/* SPDX-License-Identifier: MIT */
/* group MODEL shm:NAME RANK RANKS [DEVICE]: one process of several that load a model together. Each
 * gets all tensors; each byte is read from storage once for all of them.
 *
 *     cc group.c $(pkg-config --cflags --libs hoist) -o group
 *     for r in 0 1 2 3; do ./group model shm:example $r 4 gpu:$r & done; wait
 */
#include <stdio.h>
#include <stdlib.h>
#include <hoist/group.h>
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
	hoist_device *device;
	hoist_checkpoint *checkpoint;
	hoist_load *load;

	if (argc < 5) {
		fprintf(stderr, "usage: %s MODEL shm:NAME RANK RANKS [DEVICE]\n", argv[0]);
		return 2;
	}
	check(hoist_device_open(argc > 5 ? argv[5] : "gpu:0", &device), "device");
	check(hoist_checkpoint_open(argv[1], 0, &checkpoint), "checkpoint");

	const hoist_group group = {.size = sizeof group,
				   .name = argv[2],
				   .rank = (unsigned)atoi(argv[3]),
				   .n_ranks = (unsigned)atoi(argv[4])};
	const hoist_load_options options = {.size = sizeof options, .device = device};
	check(hoist_group_load(&group, checkpoint, &options, &load), "load");
	check(hoist_load_wait(load), "load");

	hoist_load_report report = {.size = sizeof report};
	check(hoist_load_get_report(load, &report), "report");
	printf("rank %u of %u: %zu tensors, %llu bytes, of which this rank read %llu for all\n",
	       group.rank, group.n_ranks, hoist_load_n_tensors(load),
	       (unsigned long long)report.bytes,
	       (unsigned long long)(report.direct_bytes + report.cached_bytes));
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	return 0;
}
