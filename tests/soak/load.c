/* SPDX-License-Identifier: MIT */
/* Loads of every kind, of files that others replace meanwhile, some of which are cancelled or left
 * in the middle: what arrives is what one save wrote. */
#include "config.h"

#include "tests/soak/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

struct ask {
	hoist_load_options o;
	hoist_load_slice slices[SOAK_MOST_TENSORS];
	const char *names[SOAK_MOST_TENSORS];
	bool wanted[SOAK_MOST_TENSORS];
	struct soak_box boxes[SOAK_MOST_TENSORS];
	hoist_device *replicas[1];
	bool maps;
};

/* --- what is asked for --- */

static void choose_slice(struct ask *ask, const struct soak_tensor *tensor, struct soak_box *box)
{
	hoist_load_slice *slice = &ask->slices[ask->o.n_slices++];
	int axis = (int)soak_below((uint64_t)tensor->rank);
	int64_t extent = tensor->shape[axis];
	int64_t begin = (int64_t)soak_below((uint64_t)extent + 1);
	int64_t end = begin + (int64_t)soak_below((uint64_t)(extent - begin) + 1);
	*slice = (hoist_load_slice){.tensor = tensor->name,
				    .axis = axis - (soak_chance(2) ? tensor->rank : 0),
				    .begin = begin,
				    .end = end == extent ? HOIST_SLICE_END : end};
	if (extent % 2 == 0 && soak_chance(2)) {
		slice->rank = (int)soak_below(2);
		slice->n_ranks = 2;
		begin = extent / 2 * slice->rank;
		end = begin + extent / 2;
	}
	box->begin[axis] = begin;
	box->end[axis] = end;
}

static void choose_parts(struct ask *ask, const struct soak_model *model)
{
	bool all = soak_chance(2);
	bool slices = soak_chance(3);
	ask->o.tensors = all ? NULL : ask->names;
	ask->o.slices = ask->slices;
	for (size_t t = 0; t < model->n; t++) {
		ask->boxes[t] = soak_whole(&model->tensors[t]);
		ask->wanted[t] = all || soak_chance(2);
		if (!all && ask->wanted[t])
			ask->names[ask->o.n_tensors++] = model->tensors[t].name;
		if (slices && soak_chance(2))
			choose_slice(ask, &model->tensors[t], &ask->boxes[t]);
	}
}

static void choose_place(struct ask *ask)
{
	static const int pools[] = {POOL_HOST, POOL_PINNED, POOL_DEVICE};
	hoist_load_options *o = &ask->o;
	int d = soak_chance(3) ? (int)soak_below(LIB_N_DEVICES) : CPU;
	if (soak_chance(8)) { /* memory of a pool: host's, pinned, cuda:1's */
		int pool = SOAK_PICK(pools);
		o->memory = soak_pools[pool];
		d = pool == POOL_DEVICE ? CUDA_1 : CPU;
	}
	o->device = d == CPU && soak_chance(2) ? NULL : soak_devices[d];
	if (d == CUDA_0 && soak_chance(2)) {
		ask->replicas[0] = soak_devices[CUDA_1];
		o->replicas = ask->replicas;
		o->n_replicas = 1;
	}
	o->io = (enum hoist_io)soak_below(o->memory != NULL ? 3 : 4);
	ask->maps = d == CPU && o->io == HOIST_IO_MAP;
	if (ask->maps)
		o->map = (enum hoist_map)soak_below(3);
}

static void choose_way(struct ask *ask)
{
	static const size_t chunks[] = {0, 0, 0, 4096, 20480, 65536, 1052672};
	static const unsigned depths[] = {0, 0, 0, 1, 2, 17, 200};
	static const size_t aligns[] = {0, 0, 1, 64, 4096};
	static const hoist_dtype dtypes[] = {0, 0, 0, HOIST_F32, HOIST_F16, HOIST_BF16};
	hoist_load_options *o = &ask->o;
	o->engine = soak_chance(2) ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS;
	o->budget = soak_chance(8) ? NULL : soak_budget;
	o->dtype = ask->maps ? 0 : SOAK_PICK(dtypes);
	o->chunk_bytes = SOAK_PICK(chunks);
	o->depth = SOAK_PICK(depths);
	o->tensor_align = SOAK_PICK(aligns);
	if (soak_chance(3))
		o->flags |= HOIST_LOAD_POPULATE;
	if (soak_chance(12))
		o->flags |= HOIST_LOAD_DROP_CACHE;
	if (o->n_slices == 0 && !ask->maps && soak_chance(2))
		o->flags |= soak_chance(3) ? HOIST_LOAD_VERIFY : HOIST_LOAD_DIGEST;
	if (soak_chance(3))
		o->flags |= HOIST_LOAD_CALLER_DRIVEN;
}

/* --- what comes --- */

static void check_digest(hoist_load *load, size_t i, const struct soak_model *model, size_t t)
{
	unsigned char is[16];
	unsigned char should[16];
	OK(hoist_load_digest(load, i, is));
	soak_digest(model, t, should);
	CHECK(memcmp(is, should, sizeof is) == 0);
}

static void check_one(const struct ask *ask, const struct soak_model *model, size_t t, size_t i,
		      hoist_load *load)
{
	const struct soak_tensor *tensor = &model->tensors[t];
	hoist_dtype as =
		ask->o.dtype != 0 && soak_converts(tensor->dtype) ? ask->o.dtype : tensor->dtype;
	size_t which = SIZE_MAX;
	hoist_buffer *buffer = NULL;
	OK(hoist_load_tensor(load, i, &which, &buffer));
	soak_check(model, t, as, &ask->boxes[t], buffer);
	if (ask->maps && ask->o.map == HOIST_MAP_COPY_ON_WRITE && hoist_buffer_bytes(buffer) > 0 &&
	    hoist_buffer_is_contiguous(buffer)) {
		/* Nobody else sees it: all look at every byte of this file. */
		unsigned char byte = 0x55;
		OK(hoist_buffer_write(buffer, hoist_buffer_bytes(buffer) - 1, &byte, 1));
		hoist_buffer_unref(buffer);
	} else if (soak_chance(4)) {
		soak_parcel_give(&(struct soak_parcel){*model, t, as, ask->boxes[t], buffer});
	} else {
		hoist_buffer_unref(buffer);
	}
	if (ask->o.n_replicas > 0) {
		OK(hoist_load_replica(load, 0, i, &buffer));
		soak_check(model, t, as, &ask->boxes[t], buffer);
		hoist_buffer_unref(buffer);
	}
	if ((ask->o.flags & (HOIST_LOAD_DIGEST | HOIST_LOAD_VERIFY)) != 0)
		check_digest(load, i, model, t);
}

/* The load's own order of tensors is the checkpoint's, not the model's. */
static void check_all(const struct ask *ask, hoist_checkpoint *checkpoint,
		      const struct soak_model *model, hoist_load *load)
{
	size_t n = 0;
	for (size_t t = 0; t < model->n; t++)
		n += ask->wanted[t];
	CHECK(hoist_load_n_tensors(load) == n);
	for (size_t i = 0; i < n; i++) {
		hoist_tensor_info info = {.size = sizeof info};
		size_t which = SIZE_MAX;
		size_t t = 0;
		hoist_buffer *buffer = NULL;
		OK(hoist_load_tensor(load, i, &which, &buffer));
		hoist_buffer_unref(buffer);
		OK(hoist_checkpoint_tensor(checkpoint, which, &info));
		while (t < model->n && strcmp(model->tensors[t].name, info.name) != 0)
			t++;
		CHECK(t < model->n && ask->wanted[t]);
		check_one(ask, model, t, i, load);
	}
	uint64_t done = 0;
	uint64_t total = 1;
	hoist_load_progress(load, &done, &total);
	CHECK(done == total);
	soak_count(SOAK_N_gigantic, total);
}

/* To its end or, if it is to be left, not.  Returns: what waiting gave; 1: nobody waited. */
static int drive(unsigned flags, hoist_load *load, bool leave)
{
	static const uint64_t timeouts[] = {0, 0, 1000, 1000000, UINT64_MAX};
	uint64_t steps = leave ? soak_below(20) : UINT64_MAX;
	if ((flags & HOIST_LOAD_CALLER_DRIVEN) != 0)
		while (steps-- > 0 && hoist_load_step(load, SOAK_PICK(timeouts)) == 0)
			soak_beat();
	else if (leave)
		(void)usleep((useconds_t)soak_below(3000));
	if (leave && soak_chance(2)) {
		soak_count(SOAK_N_left, 1);
		return 1;
	}
	if (leave)
		hoist_load_cancel(load);
	int err = hoist_load_wait(load);
	CHECK(err == 0 || (leave && err == -ECANCELED));
	if (err != 0)
		soak_count(SOAK_N_cancelled, 1);
	return err;
}

/* The limit of a pool that all threads share may be met, and a file have no digests. */
static bool may_fail(const struct ask *ask, int err)
{
	if (err == -ENODATA)
		return (ask->o.flags & HOIST_LOAD_VERIFY) != 0;
	if (ask->o.memory == NULL || (err != -EDQUOT && err != -EPERM))
		return false;
	soak_count(SOAK_N_no_memory, 1);
	return true;
}

void soak_load_somehow(hoist_checkpoint *checkpoint, const struct soak_model *model)
{
	struct ask ask = {.o = {.size = sizeof ask.o}};
	hoist_load *load = NULL;
	choose_parts(&ask, model);
	choose_place(&ask);
	choose_way(&ask);
	int err = hoist_load_start(checkpoint, &ask.o, &load);
	if (may_fail(&ask, err))
		return;
	CHECK(err == 0);
	err = drive(ask.o.flags, load, soak_chance(6));
	if (err == 0)
		check_all(&ask, checkpoint, model, load);
	hoist_load_destroy(load);
}

void soak_load_plainly(hoist_checkpoint *checkpoint, const struct soak_model *model)
{
	const hoist_load_options o = {.size = sizeof o, .flags = HOIST_LOAD_DIGEST};
	hoist_load *load = NULL;
	OK(hoist_load_start(checkpoint, &o, &load));
	OK(hoist_load_wait(load));
	for (size_t t = 0; t < model->n; t++) {
		hoist_buffer *buffer = NULL;
		OK(hoist_load_buffer(load, model->tensors[t].name, &buffer));
		soak_check_whole(model, t, buffer);
		hoist_buffer_unref(buffer);
	}
	hoist_load_destroy(load);
}

/* --- actions --- */

/* The shards are whole while nobody saves there, unless a process was killed while it saved. */
static void load_shards(void)
{
	hoist_checkpoint *checkpoint = NULL;
	struct soak_model model;
	int lock = soak_chance(2) ? soak_lock_shards(false) : -1;
	bool strict = lock >= 0 && atomic_load(&board->shards_whole);
	int err = soak_open_as_model(soak_path(SOAK_INDEX), &checkpoint, &model);
	CHECK(err == 0 || !strict);
	if (err == 0)
		soak_load_somehow(checkpoint, &model);
	else
		soak_count(err == -ENOENT ? SOAK_N_not_there : SOAK_N_mixed, 1);
	hoist_checkpoint_close(checkpoint);
	if (lock >= 0)
		close(lock);
}

void soak_load(void)
{
	hoist_checkpoint *checkpoint = NULL;
	struct soak_model model;
	if (soak_chance(8)) {
		load_shards();
		return;
	}
	if (soak_open((unsigned)soak_below(SOAK_FILES), &checkpoint, &model) != 0)
		return;
	for (uint64_t n = 1 + soak_below(3); n > 0; n--)
		soak_load_somehow(checkpoint, &model);
	hoist_checkpoint_close(checkpoint);
}

/* Files of all formats; whole tensors, compared with the file. */
void soak_load_static(void)
{
	struct ask ask = {.o = {.size = sizeof ask.o}};
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	OK(hoist_checkpoint_open(soak_static((unsigned)soak_below(SOAK_STATICS)), 0, &checkpoint));
	choose_place(&ask);
	choose_way(&ask);
	ask.o.dtype = 0;
	int err = hoist_load_start(checkpoint, &ask.o, &load);
	CHECK(err == 0 || may_fail(&ask, err));
	if (err == 0 && drive(ask.o.flags, load, soak_chance(6)) == 0)
		for (size_t t = 0; t < hoist_checkpoint_n_tensors(checkpoint); t++) {
			hoist_buffer *buffer = NULL;
			size_t which = SIZE_MAX;
			OK(hoist_load_tensor(load, t, &which, &buffer));
			CHECK(which == t);
			soak_check_static(checkpoint, t, buffer);
			hoist_buffer_unref(buffer);
		}
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

/* The file that this thread, or one that was killed in its place, saved last. */
void soak_load_private(void)
{
	struct soak_own *own = &board->slots[self.slot].own[self.thread];
	uint64_t seed = atomic_load(&own->seed);
	uint64_t next = atomic_load(&own->next);
	hoist_checkpoint *checkpoint = NULL;
	struct soak_model model;
	int err = soak_open_as_model(soak_path("own%d-%d.safetensors", self.slot, self.thread),
				     &checkpoint, &model);
	if (err == -ENOENT && seed == 0) {
		soak_count(SOAK_N_not_there, 1);
		return;
	}
	CHECK(err == 0);
	CHECK(model.seed == seed || (next != 0 && model.seed == next));
	soak_load_somehow(checkpoint, &model);
	hoist_checkpoint_close(checkpoint);
}
