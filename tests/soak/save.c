/* SPDX-License-Identifier: MIT */
/* Saves over files that others load and save at the same time; some are cancelled, some left, and
 * the process is killed in the middle of others. */
#include "config.h"

#include "tests/soak/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* --- buffers --- */

/* Memory whose axes lie in another order. */
static hoist_buffer *make_turned(hoist_device *device, const struct soak_tensor *tensor)
{
	int64_t shape[SOAK_MOST_RANK];
	int axes[SOAK_MOST_RANK];
	hoist_buffer *buffer = NULL;
	hoist_buffer *view = NULL;
	int turn = (int)soak_below((uint64_t)tensor->rank);
	for (int a = 0; a < tensor->rank; a++) {
		axes[a] = (a + turn) % tensor->rank;
		shape[axes[a]] = tensor->shape[a];
	}
	OK(hoist_buffer_create(device, tensor->dtype, tensor->rank, shape, 0, &buffer));
	OK(hoist_buffer_permute(buffer, axes, &view));
	hoist_buffer_unref(buffer);
	return view;
}

static hoist_buffer *make_somewhere(const struct soak_tensor *tensor)
{
	static const unsigned flags[] = {0, 0, HOIST_BUFFER_LAZY, HOIST_BUFFER_PINNED,
					 HOIST_BUFFER_ZERO};
	hoist_device *device = soak_devices[soak_below(LIB_N_DEVICES)];
	hoist_buffer *buffer = NULL;
	if (soak_chance(4))
		return make_turned(device, tensor);
	unsigned how = SOAK_PICK(flags);
	if (soak_chance(8)) {
		device = soak_devices[CPU];
		how = HOIST_BUFFER_SHAREABLE;
	}
	int err = hoist_buffer_create(device, tensor->dtype, tensor->rank, tensor->shape, how,
				      &buffer);
	if (err == -EPERM && how == HOIST_BUFFER_PINNED) /* RLIMIT_MEMLOCK */
		OK(hoist_buffer_create(device, tensor->dtype, tensor->rank, tensor->shape, 0,
				       &buffer));
	else
		CHECK(err == 0);
	return buffer;
}

hoist_buffer *soak_make_buffer(const struct soak_model *model, size_t t)
{
	const struct soak_tensor *tensor = &model->tensors[t];
	hoist_buffer *buffer = make_somewhere(tensor);
	unsigned char *bytes = malloc(tensor->bytes);
	CHECK(bytes != NULL);
	soak_fill(model, t, tensor->dtype, 0, tensor->elements, bytes);
	OK(hoist_buffer_copy_in(buffer, bytes, tensor->bytes));
	free(bytes);
	return buffer;
}

/* --- one save --- */

static hoist_save_options some_options(void)
{
	hoist_save_options o = {.size = sizeof o};
	o.engine = soak_chance(2) ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS;
	o.io = (enum hoist_io)soak_below(3);
	o.budget = soak_chance(8) ? NULL : soak_budget;
	o.flags |= soak_chance(2) ? HOIST_SAVE_DIGEST : 0;
	o.flags |= soak_chance(3) ? 0 : HOIST_SAVE_NO_SYNC;
	return o;
}

static void add_model(hoist_save *save, const struct soak_model *model)
{
	char seed[24];
	(void)snprintf(seed, sizeof seed, "%" PRIu64, model->seed);
	OK(hoist_save_metadata(save, SOAK_SEED_KEY, seed));
	for (size_t t = 0; t < model->n; t++) {
		hoist_buffer *buffer = soak_make_buffer(model, t);
		OK(hoist_save_add(save, model->tensors[t].name, buffer));
		hoist_buffer_unref(buffer);
	}
}

/* Starts it and waits for it, or not.  Returns: 0; -ECANCELED; 1: nobody waited. */
static int run(hoist_save *save)
{
	bool leave = soak_chance(6);
	OK(hoist_save_start(save));
	if (leave) {
		(void)usleep((useconds_t)soak_below(4000));
		if (soak_chance(2)) {
			soak_count(SOAK_N_left, 1);
			return 1;
		}
		hoist_save_cancel(save);
	}
	int err = hoist_save_wait(save);
	CHECK(err == 0 || (leave && err == -ECANCELED));
	if (err != 0)
		soak_count(SOAK_N_cancelled, 1);
	return err;
}

static int save_model(const char *path, const struct soak_model *model,
		      const hoist_save_options *options)
{
	hoist_save *save = NULL;
	OK(hoist_save_create(path, options, &save));
	add_model(save, model);
	int ended = run(save);
	hoist_save_destroy(save);
	return ended;
}

/* --- actions --- */

void soak_save(void)
{
	const hoist_save_options options = some_options();
	struct soak_model model;
	soak_model_make(soak_random(), &model);
	const char *path = soak_chance(8)
				   ? soak_path("c%u.safetensors", (unsigned)soak_below(SOAK_CACHED))
				   : soak_file((unsigned)soak_below(SOAK_FILES));
	(void)save_model(path, &model, &options);
}

/* Nobody else saves there: it is known what must be there after each. */
static uint64_t seed_of(const char *path)
{
	struct soak_model model;
	hoist_checkpoint *checkpoint = NULL;
	int err = soak_open_as_model(path, &checkpoint, &model);
	CHECK(err == 0 || err == -ENOENT);
	if (err == 0 && soak_chance(2))
		soak_load_plainly(checkpoint, &model);
	hoist_checkpoint_close(checkpoint);
	return err == 0 ? model.seed : 0;
}

void soak_save_private(void)
{
	struct soak_own *own = &board->slots[self.slot].own[self.thread];
	const char *path = soak_path("own%d-%d.safetensors", self.slot, self.thread);
	const hoist_save_options options = some_options();
	uint64_t was = atomic_load(&own->seed);
	uint64_t next = atomic_load(&own->next);
	struct soak_model model;
	if (next != 0) { /* the last worker that saved here was killed */
		uint64_t is = seed_of(path);
		CHECK(is == was || is == next);
		was = is;
		atomic_store(&own->seed, was);
	}
	soak_model_make(soak_random() | 1, &model);
	atomic_store(&own->next, model.seed);
	int ended = save_model(path, &model, &options);
	uint64_t is = seed_of(path);
	CHECK(is == model.seed || (ended != 0 && is == was));
	CHECK(ended != -ECANCELED || is == was);
	atomic_store(&own->seed, is);
	atomic_store(&own->next, 0);
}

/* Others may load them meanwhile, and see some of each. */
void soak_save_shards(void)
{
	hoist_save_options options = some_options();
	struct soak_model model;
	hoist_checkpoint *checkpoint = NULL;
	int lock = soak_lock_shards(true);
	if (lock < 0)
		return;
	soak_model_make(soak_random(), &model);
	options.shard_bytes = 1000 + soak_below(300000);
	atomic_store(&board->shards_whole, false);
	int ended = save_model(soak_path(SOAK_INDEX), &model, &options);
	if (ended == 0) {
		struct soak_model is;
		OK(soak_open_as_model(soak_path(SOAK_INDEX), &checkpoint, &is));
		CHECK(is.seed == model.seed);
		soak_load_plainly(checkpoint, &model);
		hoist_checkpoint_close(checkpoint);
		atomic_store(&board->shards_whole, true);
	}
	close(lock);
}

/* The tensors of one file into another, or into the same, with what it says of itself. */
void soak_save_again(void)
{
	const hoist_save_options options = some_options();
	hoist_checkpoint *checkpoint = NULL;
	hoist_save *save = NULL;
	struct soak_model model;
	if (soak_open((unsigned)soak_below(SOAK_FILES), &checkpoint, &model) != 0)
		return;
	OK(hoist_save_create(soak_file((unsigned)soak_below(SOAK_FILES)), &options, &save));
	OK(hoist_save_metadata_of(save, checkpoint));
	for (size_t t = 0; t < hoist_checkpoint_n_tensors(checkpoint); t++)
		OK(hoist_save_add_tensor(save, NULL, checkpoint, t));
	if (soak_chance(2)) { /* the save keeps what it needs of it */
		hoist_checkpoint_close(checkpoint);
		checkpoint = NULL;
	}
	(void)run(save);
	hoist_save_destroy(save);
	hoist_checkpoint_close(checkpoint);
}
