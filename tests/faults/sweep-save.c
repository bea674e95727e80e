/* SPDX-License-Identifier: MIT */
/* Scenarios: saves.  Each replaces what the one before wrote; after a failure what is there is one
 * or the other, whole, and nothing else is in the folder. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned old_model; /* what lies there, if anything */
static bool has_old;

/* --- what is written --- */

static int add(hoist_save *save, hoist_device *device, size_t tensor, unsigned model)
{
	static unsigned char bytes[SWEEP_MOST_BYTES];
	int64_t shape[2];
	hoist_buffer *buffer = NULL;
	int rank = sweep_shape(tensor, shape);
	sweep_fill(tensor, model, bytes);
	int err = hoist_buffer_create(device, sweep_dtypes[tensor], rank, shape, 0, &buffer);
	STEP(err, hoist_buffer_copy_in(buffer, bytes, sweep_bytes(tensor)));
	STEP(err, hoist_save_add(save, sweep_names[tensor], buffer));
	hoist_buffer_unref(buffer);
	return err;
}

static int add_all(hoist_save *save, const char *on, unsigned model)
{
	hoist_device *device = NULL;
	int err = hoist_device_open(on, &device);
	for (size_t i = 0; err == 0 && i < SWEEP_N_TENSORS; i++)
		err = add(save, device, i, model);
	hoist_device_unref(device);
	return err;
}

static int add_checkpoint(hoist_save *save, const char *path)
{
	hoist_checkpoint *checkpoint = NULL;
	int err = hoist_checkpoint_open(path, 0, &checkpoint);
	for (size_t i = 0; err == 0 && i < hoist_checkpoint_n_tensors(checkpoint); i++)
		err = hoist_save_add_tensor(save, NULL, checkpoint, i);
	STEP(err, hoist_save_metadata_of(save, checkpoint));
	hoist_checkpoint_close(checkpoint);
	return err;
}

enum how { WAITED_FOR, POLLED, CANCELLED, LEFT };

/* @on NULL: the tensors of the checkpoint @of, that lies beside. */
static int save_as(const char *name, const char *on, const char *of, hoist_save_options o,
		   enum how how)
{
	hoist_save *save = NULL;
	o.size = sizeof o;
	o.budget = sweep_budget;
	int err = hoist_save_create(sweep_path(name), &o, &save);
	STEP(err,
	     on != NULL ? add_all(save, on, old_model + 1) : add_checkpoint(save, sweep_path(of)));
	STEP(err, hoist_save_metadata(save, "who", "the sweep"));
	STEP(err, hoist_save_start(save));
	if (err == 0 && how == CANCELLED)
		hoist_save_cancel(save);
	if (err == 0 && how == POLLED) {
		int fd = hoist_save_fd(save);
		err = fd < 0 ? fd : 0;
	}
	if (err == 0 && how != LEFT)
		err = hoist_save_wait(save);
	if (err == -ECANCELED && how == CANCELLED) {
		sweep_check_text(err);
		err = 0;
	}
	hoist_save_destroy(save);
	return err;
}

static int save_to(const char *name, const char *on, hoist_save_options o)
{
	return save_as(name, on, "m.safetensors", o, WAITED_FOR);
}

/* --- what lies there --- */

static int model_of_tensor(hoist_load *load, size_t i)
{
	static unsigned char got[SWEEP_MOST_BYTES];
	static unsigned char want[SWEEP_MOST_BYTES];
	hoist_buffer *buffer = NULL;
	size_t tensor = 0;
	int model = -1;
	if (hoist_load_tensor(load, i, &tensor, &buffer) != 0 ||
	    hoist_buffer_bytes(buffer) != sweep_bytes(tensor) ||
	    hoist_buffer_copy_out(buffer, got, sweep_bytes(tensor)) != 0)
		sweep_wrong("tensor %zu cannot be read (%s)", i, hoist_error());
	for (unsigned m = old_model; m <= old_model + 1 && model < 0; m++) {
		sweep_fill(tensor, m, want);
		if (memcmp(got, want, sweep_bytes(tensor)) == 0)
			model = (int)m;
	}
	hoist_buffer_unref(buffer);
	return model;
}

/* Each of its tensors is whole; @mixed: some may be of the model before.  -1: it is none. */
static int model_there(const char *path, bool mixed, bool digests)
{
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	const hoist_load_options o = {.size = sizeof o,
				      .flags = digests ? HOIST_LOAD_VERIFY : 0,
				      .engine = HOIST_ENGINE_THREADS};
	int model = -1;
	int err = hoist_checkpoint_open(path, 0, &checkpoint);
	STEP(err, hoist_load_start(checkpoint, &o, &load));
	STEP(err, hoist_load_wait(load));
	if (err != 0 || hoist_load_n_tensors(load) != SWEEP_N_TENSORS)
		sweep_wrong("what was saved cannot be loaded (%s)", hoist_error());
	for (size_t i = 0; err == 0 && i < SWEEP_N_TENSORS; i++) {
		int one = model_of_tensor(load, i);
		bool tells = sweep_bytes(i) > 0;
		if (one < 0 || (tells && model >= 0 && one != model && !mixed))
			sweep_wrong("tensor %zu is of model %d, others of %d (%u was there)", i,
				    one, model, old_model);
		if (tells)
			model = one;
	}
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	return model;
}

/* A hidden file stays only where it could not be removed. */
static void check_names(unsigned most)
{
	unsigned n = 0;
	DIR *folder = opendir(sweep_path("run"));
	if (folder == NULL)
		sweep_die("%s", sweep_path("run"));
	for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		n++;
		if (entry->d_name[0] != '.')
			continue;
		int nr = atomic_load(&sweep->nr);
		bool helpless = nr == SYS_unlinkat;
#ifdef SYS_unlink
		helpless |= nr == SYS_unlink;
#endif
		if (helpless)
			n--;
		else
			sweep_wrong("%s is left", entry->d_name);
		(void)unlinkat(dirfd(folder), entry->d_name, 0);
	}
	(void)closedir(folder);
	if (n > most)
		sweep_wrong("%u files are there", n);
}

static void check_model(const char *name, int err, bool sharded, bool digests)
{
	if (!has_old && err != 0 && access(sweep_path(name), F_OK) < 0)
		return;
	int model = model_there(sweep_path(name), sharded && err != 0, digests);
	if (err == 0 && model != (int)old_model + 1)
		sweep_wrong("the save gave 0, but the old file is there");
	if (model >= 0)
		old_model = (unsigned)model;
	has_old = true;
	check_names(sharded ? 4 : 1);
}

static void clean(void)
{
	DIR *folder = opendir(sweep_path("run"));
	for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
		if (entry->d_type == DT_REG)
			(void)unlinkat(dirfd(folder), entry->d_name, 0);
	(void)closedir(folder);
	old_model = 4;
	has_old = false;
}

/* --- the scenarios --- */

static int save_host(void)
{
	const hoist_save_options o = {.flags = HOIST_SAVE_DIGEST};
	return save_to("run/s.safetensors", "cpu", o);
}

static int save_host_threads(void)
{
	const hoist_save_options o = {.engine = HOIST_ENGINE_THREADS, .io = HOIST_IO_CACHED};
	return save_to("run/s.safetensors", "cpu", o);
}

static int save_device(void)
{
	const hoist_save_options o = {.io = HOIST_IO_AUTO};
	return save_as("run/s.safetensors", "cuda:1", NULL, o, POLLED);
}

static void check_digests(int err)
{
	check_model("run/s.safetensors", err, false, true);
}

static void check_plain(int err)
{
	check_model("run/s.safetensors", err, false, false);
}

static int save_shards(void)
{
	const hoist_save_options o = {.shard_bytes = 150000};
	return save_to("run/s.safetensors", "hip:0", o);
}

static void check_shards(int err)
{
	check_model("run/s.safetensors.index.json", err, true, false);
}

/* From file to file. */
static int save_copy(void)
{
	const hoist_save_options o = {.flags = HOIST_SAVE_DIGEST};
	return save_to("run/s.safetensors", NULL, o);
}

/* Every one is the model of the file that lies beside. */
static void check_copy(int err)
{
	old_model = 0;
	if (!has_old && err != 0 && access(sweep_path("run/s.safetensors"), F_OK) < 0)
		return;
	if (model_there(sweep_path("run/s.safetensors"), false, true) != 0)
		sweep_wrong("it is not what it was made of");
	has_old = true;
	check_names(1);
}

/* It may be there or not, but as a whole. */
static int save_cancelled(void)
{
	const hoist_save_options o = {.flags = HOIST_SAVE_NO_SYNC};
	return save_as("run/s.safetensors", "cpu", NULL, o, CANCELLED);
}

static int save_left(void)
{
	const hoist_save_options o = {.flags = HOIST_SAVE_NO_SYNC, .engine = HOIST_ENGINE_THREADS};
	return save_as("run/s.safetensors", "cuda:0", NULL, o, LEFT);
}

/* Some come as far as this: what is then kept is there before anything fails. */
static void save_all(void)
{
	const hoist_save_options o = {.engine = HOIST_ENGINE_THREADS};
	clean();
	for (int i = 0; i < 2; i++) {
		int err = i == 0 ? save_host()
				 : save_as("run/s.safetensors", "cuda:0", NULL, o, WAITED_FOR);
		if (err != 0)
			sweep_die("a save in the beginning");
		check_plain(0);
	}
}

static void check_ended(int err)
{
	(void)err;
	check_model("run/s.safetensors", -ECANCELED, false, false);
}

static int save_gguf(void)
{
	const hoist_save_options o = {.flags = HOIST_SAVE_DIGEST};
	return save_as("run/s.gguf", NULL, "m.gguf", o, WAITED_FOR);
}

static void check_gguf(int err)
{
	const char *path = sweep_path("run/s.gguf");
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	hoist_buffer *buffer = NULL;
	const hoist_load_options o = {.size = sizeof o, .flags = HOIST_LOAD_VERIFY};
	if (!has_old && err != 0 && access(path, F_OK) < 0)
		return;
	has_old = true;
	err = hoist_checkpoint_open(path, 0, &checkpoint);
	STEP(err, hoist_load_start(checkpoint, &o, &load));
	STEP(err, hoist_load_wait(load));
	STEP(err, hoist_load_buffer(load, "a", &buffer));
	STEP(err, sweep_compare_gguf(buffer, 0));
	if (err != 0)
		sweep_wrong("what was saved cannot be loaded (%s)", hoist_error());
	hoist_buffer_unref(buffer);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	check_names(1);
}

const struct sweep_scenario sweep_saves[] = {
	{.name = "save-host", .prepare = clean, .run = save_host, .check = check_digests},
	{.name = "save-host-threads",
	 .prepare = clean,
	 .run = save_host_threads,
	 .check = check_plain},
	{.name = "save-cuda",
	 .api = "cuda",
	 .prepare = clean,
	 .run = save_device,
	 .check = check_plain},
	{.name = "save-shards",
	 .api = "hip",
	 .prepare = clean,
	 .run = save_shards,
	 .check = check_shards},
	{.name = "save-copy", .prepare = clean, .run = save_copy, .check = check_copy},
	{.name = "save-gguf", .prepare = clean, .run = save_gguf, .check = check_gguf},
	{.name = "save-cancel",
	 .prepare = save_all,
	 .run = save_cancelled,
	 .check = check_ended,
	 .varies = true},
	{.name = "save-destroy",
	 .api = "cuda",
	 .prepare = save_all,
	 .run = save_left,
	 .check = check_ended,
	 .varies = true},
	{.name = NULL},
};
