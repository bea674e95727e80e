/* SPDX-License-Identifier: MIT */
/* Every allocation of hoist's own and every driver call of saves fails once, in turn: the save says
 * so, nothing is left in memory or in the folder, and the next one works. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "tests/support/lib-failing.h"
#include "tests/support/lib-support.h"

static char path[512];
static char shards[512];

static int finish(hoist_save *save, int err)
{
	if (err == 0)
		err = hoist_save_start(save);
	if (err == 0)
		err = hoist_save_wait(save);
	if (err < 0 && hoist_error()[0] == '\0')
		lib_die("a failure without a text");
	hoist_save_destroy(save);
	return err;
}

/* Two devices of one driver, one of another; whole, and with strides. */
static int save_buffers(int i, hoist_budget *budget)
{
	static const int turned[] = {1, 0};
	const int64_t shape[] = {30, 50};
	const hoist_save_options options = {
		.size = sizeof options,
		.engine = HOIST_ENGINE_THREADS,
		.budget = budget,
		.flags = HOIST_SAVE_DIGEST | HOIST_SAVE_NO_SYNC,
	};
	hoist_device *const devices[] = {lib_swept[i], lib_swept[i == 1 ? 2 : 0], lib_swept[4 - i]};
	hoist_save *save = NULL;
	int err = hoist_save_create(path, &options, &save);
	for (int k = 0; err == 0 && k < 3; k++) {
		char name[8];
		hoist_buffer *buffer = NULL;
		hoist_buffer *view = NULL;
		hoist_device *device = devices[k];
		err = hoist_buffer_create(device, HOIST_F32, 2, shape, HOIST_BUFFER_ZERO, &buffer);
		if (err == 0)
			err = hoist_buffer_permute(buffer, turned, &view);
		(void)snprintf(name, sizeof name, "v%d", k);
		if (err == 0)
			err = hoist_save_add(save, name, view);
		if (err == 0)
			err = hoist_save_add(save, name + 1, buffer);
		hoist_buffer_unref(view);
		hoist_buffer_unref(buffer);
	}
	if (err == 0)
		err = hoist_save_metadata(save, "key", "value");
	if (save != NULL)
		err = finish(save, err);
	return err;
}

/* What was saved, in shards. */
static int save_checkpoint(hoist_budget *budget)
{
	const hoist_save_options options = {
		.size = sizeof options,
		.engine = HOIST_ENGINE_THREADS,
		.budget = budget,
		.shard_bytes = 7000,
		.flags = HOIST_SAVE_NO_SYNC,
	};
	hoist_checkpoint *checkpoint = NULL;
	hoist_save *save = NULL;
	int err = hoist_checkpoint_open(path, 0, &checkpoint);
	if (err == 0)
		err = hoist_save_create(shards, &options, &save);
	for (size_t t = 0; err == 0 && t < hoist_checkpoint_n_tensors(checkpoint); t++)
		err = hoist_save_add_tensor(save, NULL, checkpoint, t);
	if (err == 0)
		err = hoist_save_metadata_of(save, checkpoint);
	hoist_checkpoint_close(checkpoint);
	if (save != NULL)
		err = finish(save, err);
	return err;
}

static int run(int i)
{
	hoist_budget *budget = NULL;
	int err = hoist_budget_create(256 << 10, &budget);
	if (err == 0)
		err = save_buffers(i, budget);
	if (err == 0)
		err = save_checkpoint(budget);
	if (budget != NULL && hoist_budget_used(budget) != 0)
		lib_die("%zu bytes of the budget are in use", hoist_budget_used(budget));
	hoist_budget_unref(budget);
	return err;
}

int main(void)
{
	char folder[256];
	char command[300];
	const char *base = getenv("TMPDIR");
	(void)snprintf(folder, sizeof folder, "%.200s/save.XXXXXX", base != NULL ? base : "/tmp");
	if (mkdtemp(folder) == NULL)
		lib_die("mkdtemp: %s", strerror(errno));
	(void)snprintf(path, sizeof path, "%s/m.safetensors", folder);
	(void)snprintf(shards, sizeof shards, "%s/s.safetensors", folder);
	int status = lib_sweep_failures(run, 1, 3);
	/* The file, six shards, their index. */
	(void)snprintf(command, sizeof command, "test $(ls -A '%s' | wc -l) -eq %d", folder,
		       status == 0 ? 8 : 0);
	if (system(command) != 0)
		lib_die("something else is in the folder");
	(void)snprintf(command, sizeof command, "rm -r '%s'", folder);
	if (system(command) != 0)
		lib_die("the folder stays");
	return status;
}
