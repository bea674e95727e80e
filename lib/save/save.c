/* SPDX-License-Identifier: MIT */
/* The object that callers of saves hold: options, adding, start, wait, cancel, end.
 * The contract is in hoist/save.h; the state is in lib/save/save.h. */
#include "config.h"

#include "lib/save/save.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "lib/core/options.h"
#include "lib/device/device.h"

/* --- creating --- */

static int check_options(const char *path, const hoist_save_options *o,
			 const struct hoist__save_format *format)
{
	const unsigned known = HOIST_SAVE_DIGEST | HOIST_SAVE_NO_SYNC | HOIST_SAVE_NO_REPLACE;
	if ((unsigned)o->engine > HOIST_ENGINE_THREADS)
		return hoist__fail(-EINVAL, "hoist_save_options.engine is %d; it is 0 to 2",
				   (int)o->engine);
	if ((unsigned)o->io > HOIST_IO_CACHED)
		return hoist__fail(-EINVAL,
				   "hoist_save_options.io is %d; it is 0 to 2: files are not "
				   "written through maps",
				   (int)o->io);
	if ((o->flags & ~known) != 0)
		return hoist__fail(-EINVAL, "hoist_save_options.flags has unknown bits: 0x%x",
				   o->flags);
	if (o->shard_bytes != 0 && format->format != HOIST__SAFETENSORS)
		return hoist__fail(
			-EINVAL,
			"saving %s: only safetensors files are written in shards; leave out the "
			"size of a shard (shard_bytes, --shard-bytes), or save as safetensors",
			path);
	if ((o->flags & HOIST_SAVE_DIGEST) != 0 && !format->has_metadata)
		return hoist__fail(
			-EINVAL,
			"saving %s: this format has no place for digests; save as safetensors, or "
			"leave out the digests (HOIST_SAVE_DIGEST, --digest)",
			path);
	return 0;
}

void hoist__save_free_source(struct hoist__save_source *source)
{
	free(source->name);
	free(source->dims);
	hoist_buffer_unref(source->buffer);
	hoist_checkpoint_close(source->checkpoint);
}

static void free_save(struct hoist_save *save)
{
	hoist__save_unplan(save);
	for (size_t i = 0; i < save->n_sources; i++)
		hoist__save_free_source(&save->sources[i]);
	free(save->sources);
	for (size_t i = 0; i < 2 * save->n_metadata; i++)
		free(save->strings[i]);
	free(save->strings);
	free(save->metadata);
	hoist_checkpoint_close(save->like);
	free(save->path);
	hoist__job_fini(&save->job);
	pthread_mutex_destroy(&save->packing);
	pthread_mutex_destroy(&save->feed.lock);
	free(save);
}

int hoist_save_create(const char *path, const hoist_save_options *options, hoist_save **ret)
{
	hoist_save_options o;
	const struct hoist__save_format *format = NULL;
	if (path == NULL || path[0] == '\0' || ret == NULL)
		return hoist__fail(-EINVAL, "creating a save: the path or the result is missing");
	int err = hoist__options_in("hoist_save_options", options, &o, sizeof o);
	if (err == 0)
		err = hoist__save_format_find(path, o.format, &format);
	if (err == 0)
		err = check_options(path, &o, format);
	if (err < 0)
		return err;
	struct hoist_save *save = calloc(1, sizeof *save);
	if (save == NULL)
		return hoist__fail_nomem("a save", sizeof *save);
	err = hoist__job_init(&save->job, &hoist__save_kind, o.budget);
	if (err < 0) {
		free(save);
		return err;
	}
	/* Locks of the default kind need no memory. */
	save->packing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	save->feed.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	save->format = format;
	save->engine_kind = o.engine;
	save->io = o.io;
	save->shard_bytes = o.shard_bytes;
	save->flags = o.flags;
	save->path = strdup(path);
	if (save->path == NULL) {
		free_save(save);
		return hoist__fail_nomem("a path", strlen(path) + 1);
	}
	*ret = save;
	return 0;
}

const char *hoist_save_format(const hoist_save *save)
{
	return save->format->name;
}

/* --- adding --- */

int hoist__save_check_open(const struct hoist_save *save)
{
	if (save == NULL)
		return hoist__fail(-EINVAL, "the save is NULL");
	int err = hoist__job_check_process(&save->job);
	if (err < 0)
		return err;
	if (atomic_load_explicit(&save->started, memory_order_acquire))
		return hoist__fail(-EINVAL, "the save of %s has been started; make another one",
				   save->path);
	return 0;
}

int hoist__save_new_source(struct hoist_save *save, const char *name,
			   struct hoist__save_source **ret)
{
	if (name[0] == '\0')
		return hoist__fail(-EINVAL, "saving %s: the name of tensor %zu is empty",
				   save->path, save->n_sources);
	if (save->n_sources == save->sources_room) {
		size_t room = save->sources_room == 0 ? 64 : 2 * save->sources_room;
		struct hoist__save_source *sources = realloc(save->sources, room * sizeof *sources);
		if (sources == NULL)
			return hoist__fail_nomem("a list of tensors", room * sizeof *sources);
		save->sources = sources;
		save->sources_room = room;
	}
	struct hoist__save_source *source = &save->sources[save->n_sources];
	*source = (struct hoist__save_source){.name = strdup(name)};
	if (source->name == NULL)
		return hoist__fail_nomem("a name", strlen(name) + 1);
	*ret = source;
	return 0;
}

int hoist_save_add(hoist_save *save, const char *name, hoist_buffer *buffer)
{
	struct hoist__save_source *source;
	int err = hoist__save_check_open(save);
	if (err == 0 && name == NULL)
		err = hoist__fail(-EINVAL, "saving %s: a name is NULL", save->path);
	if (err == 0)
		err = hoist__buffer_check(buffer, "the buffer");
	if (err == 0 && !hoist__storage_has_access(buffer->storage))
		err = hoist__fail(-EINVAL,
				  "saving tensor \"%.200s\": neither host nor device may touch the "
				  "memory that it is in",
				  name);
	if (err == 0)
		err = hoist__save_new_source(save, name, &source);
	if (err < 0)
		return err;
	source->buffer = hoist_buffer_ref(buffer);
	save->n_sources++;
	return 0;
}

/* --- driving --- */

int hoist_save_start(hoist_save *save)
{
	int err = hoist__save_check_open(save);
	if (err < 0)
		return err;
	hoist__job_set_start(&save->job);
	err = hoist__save_plan(save);
	atomic_store_explicit(&save->started, err == 0, memory_order_release);
	if (err == 0 && save->n_streams > 0)
		save->job.dev = hoist__device_dev(hoist_stream_device(save->streams[0]));
	if (err == 0)
		err = hoist__job_start(&save->job);
	if (err < 0) {
		atomic_store_explicit(&save->started, false, memory_order_release);
		hoist__save_unplan(save);
	}
	return err;
}

/* Returns: 0; -ESTALE; -EINVAL: the save has no end, as it has not been started. */
static int check_started(const struct hoist_save *save)
{
	int err = hoist__job_check_process(&save->job);
	if (err < 0)
		return err;
	if (!atomic_load_explicit(&save->started, memory_order_acquire))
		return hoist__fail(-EINVAL, "the save of %s has not been started", save->path);
	return 0;
}

int hoist_save_wait(hoist_save *save)
{
	int err = check_started(save);
	return err < 0 ? err : hoist__job_wait(&save->job, UINT64_MAX);
}

int hoist_save_wait_for(hoist_save *save, uint64_t timeout_ns)
{
	int err = check_started(save);
	if (err == 0)
		err = hoist__job_wait(&save->job, timeout_ns);
	return err == 1 ? hoist__fail(-ETIMEDOUT, "the save has not ended yet") : err;
}

int hoist_save_fd(hoist_save *save)
{
	int err = check_started(save);
	return err < 0 ? err : hoist__job_fd(&save->job);
}

void hoist_save_cancel(hoist_save *save)
{
	hoist__job_cancel(&save->job);
}

void hoist_save_progress(const hoist_save *save, uint64_t *done, uint64_t *total)
{
	bool started = atomic_load_explicit(&save->started, memory_order_acquire);
	if (done != NULL)
		*done = atomic_load_explicit(&save->written, memory_order_relaxed);
	if (total != NULL)
		*total = started ? save->total_bytes : 0;
}

int hoist_save_get_report(hoist_save *save, hoist_save_report *report)
{
	if (!hoist__job_is_done(&save->job))
		return hoist__fail(-EAGAIN,
				   "the save has not ended yet; its report is not complete");
	return hoist__options_out("hoist_save_report", report, &save->report, sizeof save->report);
}

void hoist_save_destroy(hoist_save *save)
{
	if (save != NULL && hoist__job_stop(&save->job))
		free_save(save);
}
