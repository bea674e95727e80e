/* SPDX-License-Identifier: MIT */
/* Scenarios of the failure sweep (tests/faults/sweep.h): checkpoints are opened.  A failure is
 * -ENOMEM, and gives none. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/faults/sweep.h"
#include "tests/support/load-files.h"
#include "tests/support/load-support.h"

static int open_path(const char *path)
{
	hoist_checkpoint *checkpoint = NULL;
	int err = hoist_checkpoint_open(path, 0, &checkpoint);
	if (err != 0 && (err != -ENOMEM || checkpoint != NULL))
		sweep_wrong("%d is an unexpected error", err);
	hoist_checkpoint_close(checkpoint);
	return err;
}

static bool write_parts(void)
{
	write_gguf("m-00001-of-00003.gguf", "c", 0, 3, 3);
	write_gguf("m-00002-of-00003.gguf", "b", 1, 3, 3);
	write_gguf("m-00003-of-00003.gguf", "a", 2, 3, 3);
	return true;
}

static int open_parts(void)
{
	return open_path(in_folder("m-00001-of-00003.gguf"));
}

static bool write_index(void)
{
	support_cleanup();
	write_gguf("a.bin", "a", 0, 0, 0);
	write_gguf("b.bin", "b", 0, 0, 0);
	write_text("pytorch_model.bin.index.json",
		   "{\"weight_map\":{\"a\":\"./a.bin\",\"b\":\"b.bin\"}}");
	return true;
}

static bool write_arrays(void)
{
	support_cleanup();
	write_npy("a.npy");
	write_npy("b.npy");
	write_npy("c.npy");
	write_npy("d.npy");
	return true;
}

static int open_folder(void)
{
	return open_path(support_folder());
}

static bool has_data(void)
{
	support_cleanup();
	return getenv("srcdir") != NULL;
}

static int open_archive(void)
{
	char path[512];
	snprintf(path, sizeof path, "%s/data/torch-train.pt", getenv("srcdir"));
	return open_path(path);
}

static int open_mixed(void)
{
	char path[512];
	hoist_checkpoint *checkpoint;
	snprintf(path, sizeof path, "%s/data/torch-mixed.pt", getenv("srcdir"));
	int err = hoist_checkpoint_open(path, HOIST_OPEN_SKIP_UNSUPPORTED, &checkpoint);
	if (err == 0)
		hoist_checkpoint_close(checkpoint);
	return err;
}

/* After a failure the old digests are there, or new ones. */
static int keep_digests(void)
{
	static const unsigned char digests[2][16];
	hoist_checkpoint *checkpoint = NULL;
	int err = hoist_checkpoint_open(support_folder(), 0, &checkpoint);
	if (err == 0)
		err = hoist_checkpoint_keep_digests(checkpoint, 2, digests);
	hoist_checkpoint_close(checkpoint);
	return err;
}

#define OPEN(text, before, open)                                                                   \
	{                                                                                          \
		.name = text, .kinds = SWEEP_COLD(SWEEP_OWN), .set_up = before, .run = open        \
	}

const struct sweep_scenario sweep_lib_checkpoint[] = {
	OPEN("lib-open-parts", write_parts, open_parts),
	OPEN("lib-open-index", write_index, open_folder),
	OPEN("lib-open-arrays", write_arrays, open_folder),
	OPEN("lib-open-archive", has_data, open_archive),
	OPEN("lib-open-mixed", has_data, open_mixed),
	OPEN("lib-keep-digests", write_index, keep_digests),
	{.name = NULL},
};
