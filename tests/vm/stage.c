/* SPDX-License-Identifier: MIT */
/* Nearness: a device's staging slots are on its node, whatever thread loads and wherever the file
 * is; a file's disk is known to be on its node.
 *
 *   vm_stage load [short]       cuda:0 is on node 1, hip:0 on node 0; checkpoints in $TMPDIR
 *   vm_stage disk PATH NODE     the disk of PATH is on NODE (-1: nobody knows) */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hoist/hoist.h>

#include "numa/topology.h"
#include "tests/support/load-support.h"
#include "lib/memory/device-memory.h"
#include "tests/vm/nodes.h"

#define N_TENSORS 24
#define SLOT ((size_t)256 << 10)

/* --- disks --- */

static void check_disk(const char *path, int node)
{
	struct hoist__topology *topology = NULL;
	struct stat status;
	OK(stat(path, &status));
	OK(hoist__topology_load("/sys", &topology));
	uint64_t dev = S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev;
	int found = hoist__topology_block_node(topology, "/sys", dev);
	hoist__topology_destroy(topology);
	if (found == node) {
		printf("the disk of %s is on node %d\n", path, found);
		return;
	}
	fprintf(stderr, "the disk of %s is on node %d, not %d\n", path, found, node);
	exit(1);
}

/* --- staging slots --- */

static void write_checkpoint(void)
{
	size_t sizes[N_TENSORS];
	for (size_t i = 0; i < N_TENSORS; i++)
		sizes[i] = 100 + i * 60000;
	support_write("m.safetensors", 0, N_TENSORS, sizes, -1);
}

/* Steps through a load, and looks at each where the slots are. */
static size_t watch(hoist_load *load, hoist_device *device, int node)
{
	struct hoist__pool *pool = NULL;
	size_t n_looks = 0;
	int err;
	OK(hoist__device_staging_pool(device, &pool));
	while ((err = hoist_load_step(load, 1000000)) == 0) {
		struct spread spread = spread_of_regions(pool);
		if (spread.n == 0)
			continue;
		check_spread(&spread, node, "staging slots");
		n_looks++;
	}
	CHECK(err == 1 && hoist_load_wait(load) == 0);
	struct spread spread = spread_of_regions(pool);
	check_spread(&spread, node, "staging slots, kept for the next load");
	return n_looks;
}

static void slots_are_near(const char *spec, int node, enum hoist_engine engine, enum hoist_io io)
{
	char path[4096];
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	hoist_device *device = NULL;
	hoist_device_info info = {.size = sizeof info};
	hoist_load_report report = {.size = sizeof report};
	(void)snprintf(path, sizeof path, "%s/m.safetensors", support_folder());
	OK(hoist_device_open(spec, &device));
	OK(hoist_device_get_info(device, &info));
	if (info.numa_node != node) {
		fprintf(stderr, "%s is on node %d, not %d\n", spec, info.numa_node, node);
		exit(1);
	}
	OK(hoist_checkpoint_open(path, 0, &checkpoint));
	const hoist_load_options options = {
		.size = sizeof options,
		.device = device,
		.engine = engine,
		.io = io,
		.chunk_bytes = SLOT,
		.flags = HOIST_LOAD_CALLER_DRIVEN,
	};
	OK(hoist_load_start(checkpoint, &options, &load));
	size_t n_looks = watch(load, device, node);
	support_compare(checkpoint, load);
	OK(hoist_load_get_report(load, &report));
	CHECK(n_looks > 0 && report.n_copies > 0);
	printf("figure: stage.%s.%s.%s %zu looks at %zu KiB of slots while %zu copies passed, all "
	       "on node %d; loaded by node %d\n",
	       info.api, report.engine, io == HOIST_IO_DIRECT ? "direct" : "cached", n_looks,
	       report.staging_peak_bytes >> 10, (size_t)report.n_copies, node, nodes_after(node));
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
}

static void near_each_device(bool brief)
{
	static const struct {
		const char *spec;
		int node;
	} devices[] = {{"cuda:0", 1}, {"hip:0", 0}};
	for (size_t d = 0; d < 2; d++) {
		/* The loader, its threads and its page cache are on the other node. */
		run_on(nodes_after(devices[d].node));
		for (int i = 0; i < 4; i++) {
			enum hoist_engine engine =
				i % 2 ? HOIST_ENGINE_THREADS : HOIST_ENGINE_URING;
			enum hoist_io io = (i + 1) / 2 % 2 ? HOIST_IO_CACHED : HOIST_IO_DIRECT;
			if (!brief || i < 2)
				slots_are_near(devices[d].spec, devices[d].node, engine, io);
		}
	}
}

int main(int argc, char **argv)
{
	(void)nodes_need(2);
	if (argc == 4 && strcmp(argv[1], "disk") == 0) {
		check_disk(argv[2], atoi(argv[3]));
		return 0;
	}
	support_emulate("cuda:1,hip:1");
	write_checkpoint();
	near_each_device(argc > 2 && strcmp(argv[2], "short") == 0);
	support_cleanup();
	return 0;
}
