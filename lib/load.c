/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "lib/load.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "lib/objects.h"

#define DEFAULT_TENSOR_ALIGN 256
#define MAX_TENSOR_ALIGN 4096

/* --- start --- */

static int check_options(const hoist_load_options *o)
{
	if ((unsigned)o->engine > HOIST_ENGINE_THREADS)
		return hoist__fail(-EINVAL, "hoist_load_options.engine is %d; it is 0 to 2",
				   (int)o->engine);
	if ((unsigned)o->io > HOIST_IO_MAP)
		return hoist__fail(-EINVAL, "hoist_load_options.io is %d; it is 0 to 3",
				   (int)o->io);
	if ((o->flags & ~HOIST_LOAD_CALLER_DRIVEN) != 0)
		return hoist__fail(-EINVAL, "hoist_load_options.flags has unknown bits: 0x%x",
				   o->flags);
	if (o->tensor_align > MAX_TENSOR_ALIGN ||
	    (o->tensor_align != 0 && !hoist__is_power_of_two(o->tensor_align)))
		return hoist__fail(-EINVAL, "tensor_align is %zu; it is a power of two up to %d",
				   o->tensor_align, MAX_TENSOR_ALIGN);
	if (o->n_tensors > 0 && o->tensors == NULL)
		return hoist__fail(-EINVAL, "n_tensors is %zu, but tensors is NULL", o->n_tensors);
	for (size_t i = 0; i < o->n_tensors; i++)
		if (o->tensors[i] == NULL)
			return hoist__fail(-EINVAL, "tensors[%zu] is NULL", i);
	if (o->stream != NULL && o->device != NULL && hoist_stream_device(o->stream) != o->device)
		return hoist__fail(-EINVAL, "the stream belongs to %s, the load goes to %s",
				   hoist_device_spec(hoist_stream_device(o->stream)),
				   hoist_device_spec(o->device));
	return 0;
}

/* The device, and for accelerators a stream: the caller's, or one of the load's own. */
static int take_device(struct hoist_load *load, const hoist_load_options *o)
{
	int err = 0;
	if (o->device != NULL)
		load->device = hoist_device_ref(o->device);
	else if (o->stream != NULL)
		load->device = hoist_device_ref(hoist_stream_device(o->stream));
	else
		err = hoist_device_open("cpu", &load->device);
	if (err < 0)
		return err;
	load->to_host = hoist__dev_api(hoist__device_dev(load->device)) == HOIST__API_CPU;
	if (load->to_host)
		return 0;
	if (o->stream != NULL) {
		load->stream = hoist_stream_ref(o->stream);
		return 0;
	}
	return hoist_stream_create(load->device, &load->stream);
}

static int take_budget(struct hoist_load *load, const hoist_load_options *o)
{
	if (o->budget != NULL) {
		load->budget = hoist_budget_ref(o->budget);
		return 0;
	}
	return hoist_budget_create(HOIST_BUDGET_DEFAULT, &load->budget);
}

/* One private map a file, from its first selected byte to its last. */
static int map_files(struct hoist_load *load)
{
	const struct hoist__plan *plan = &load->plan;
	for (size_t e = 0; e < plan->n_extents;) {
		size_t file = plan->extents[e].file;
		uint64_t begin = plan->extents[e].begin;
		uint64_t end = begin;
		for (; e < plan->n_extents && plan->extents[e].file == file; e++)
			end = plan->extents[e].end;
		struct hoist__map map;
		int err = hoist__map_open(load->checkpoint->files[file].file,
					  HOIST__MAP_COPY_ON_WRITE, begin, (size_t)(end - begin),
					  &map);
		if (err < 0)
			return err;
		err = hoist__storage_map(load->device, &map, false, &load->storages[file]);
		if (err < 0) {
			hoist__map_close(&map);
			return err;
		}
	}
	/* From here on a target is the distance from its file's first selected byte. */
	uint64_t begin = 0;
	size_t file = SIZE_MAX;
	for (size_t i = 0; i < plan->n_tensors; i++) {
		const struct hoist__entry *entry = &load->checkpoint->tensors[plan->tensors[i]];
		if (entry->tensor->bytes == 0)
			continue;
		if (entry->file != file)
			begin = entry->tensor->offset;
		file = entry->file;
		plan->targets[i] = entry->tensor->offset - begin;
	}
	return 0;
}

static int allocate(struct hoist_load *load)
{
	bool map = load->to_host && load->io == HOIST_IO_MAP;
	load->n_storages = map ? load->checkpoint->n_files : 1;
	load->storages =
		calloc(load->n_storages > 0 ? load->n_storages : 1, sizeof *load->storages);
	if (load->storages == NULL)
		return hoist__fail_nomem("a load", load->n_storages * sizeof *load->storages);
	if (map)
		return map_files(load);
	hoist_memory *memory;
	int err = hoist__device_buffers(load->device, false, &memory);
	if (err < 0)
		return err;
	bool lazy = hoist__load_is_lazy(load);
	size_t align = lazy	       ? HOIST__HUGE_PAGE_BYTES
		       : load->to_host ? (size_t)load->plan.align
				       : MAX_TENSOR_ALIGN;
	err = hoist__storage_create(memory, NULL, (size_t)load->plan.destination_bytes, align,
				    lazy ? HOIST__STORAGE_UNPOPULATED : 0, &load->storages[0]);
	if (err < 0)
		return hoist__fail_in(err, "the destination of %llu tensors on %s",
				      (unsigned long long)load->plan.n_tensors,
				      hoist_device_spec(load->device));
	return 0;
}

static int prepare(struct hoist_load *load, const hoist_load_options *o)
{
	int err = take_device(load, o);
	if (err == 0)
		err = take_budget(load, o);
	if (err == 0)
		err = hoist__plan_select(load->checkpoint, o->tensors, o->n_tensors, &load->plan);
	if (err == 0)
		err = hoist__plan_lay_out(
			load->checkpoint, load->to_host ? HOIST__PLAN_HOST : HOIST__PLAN_DEVICE,
			o->tensor_align != 0 ? o->tensor_align : DEFAULT_TENSOR_ALIGN, &load->plan);
	if (err < 0)
		return err;
	size_t n = load->checkpoint->n_files;
	load->files = calloc(n > 0 ? n : 1, sizeof *load->files);
	if (load->files == NULL)
		return hoist__fail_nomem("a load", n * sizeof *load->files);
	for (size_t f = 0; f < n; f++)
		load->files[f] = load->checkpoint->files[f].file;
	return allocate(load);
}

/* Locks, and a condition on the monotonic clock is not needed: waits have no limit. */
static int init_locks(struct hoist_load *load)
{
	int err = pthread_mutex_init(&load->lock, NULL);
	if (err != 0)
		return hoist__fail_errno(-err, "creating a mutex");
	err = pthread_mutex_init(&load->driving, NULL);
	if (err != 0) {
		pthread_mutex_destroy(&load->lock);
		return hoist__fail_errno(-err, "creating a mutex");
	}
	err = pthread_cond_init(&load->ended, NULL);
	if (err != 0) {
		pthread_mutex_destroy(&load->lock);
		pthread_mutex_destroy(&load->driving);
		return hoist__fail_errno(-err, "creating a condition variable");
	}
	return 0;
}

static void free_load(struct hoist_load *load)
{
	for (size_t i = 0; load->storages != NULL && i < load->n_storages; i++)
		hoist__storage_unref(load->storages[i]);
	free(load->storages);
	free(load->files);
	free(load->slots);
	free(load->copying);
	free(load->inflight);
	hoist__plan_fini(&load->plan);
	hoist_stream_unref(load->stream);
	hoist_budget_unref(load->budget);
	hoist_device_unref(load->device);
	hoist_checkpoint_close(load->checkpoint);
	pthread_cond_destroy(&load->ended);
	pthread_mutex_destroy(&load->driving);
	pthread_mutex_destroy(&load->lock);
	free(load);
}

/* --- driving --- */

static void announce_end(struct hoist_load *load)
{
	pthread_mutex_lock(&load->lock);
	atomic_store_explicit(&load->done, true, memory_order_release);
	pthread_cond_broadcast(&load->ended);
	pthread_mutex_unlock(&load->lock);
}

static void *drive(void *argument)
{
	struct hoist_load *load = argument;
	while (!hoist__pump_step(load, UINT64_MAX))
		continue;
	announce_end(load);
	return NULL;
}

/* Signals are the program's: none is delivered to the load's threads. */
static int start_thread(struct hoist_load *load)
{
	sigset_t all;
	sigset_t before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int err = pthread_create(&load->thread, NULL, drive, load);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	/* EAGAIN is what the kernel says; to our callers it would mean "busy". */
	if (err != 0)
		return hoist__fail_errno(err == EAGAIN ? -ENOMEM : -err,
					 "starting the load's thread");
	load->has_thread = true;
	return 0;
}

int hoist_load_start(hoist_checkpoint *checkpoint, const hoist_load_options *options,
		     hoist_load **ret)
{
	hoist_load_options o = {.size = sizeof o};
	if (checkpoint == NULL || ret == NULL)
		return hoist__fail(-EINVAL,
				   "starting a load: the checkpoint or the result is NULL");
	int err = options != NULL ? hoist__options_in("hoist_load_options", options, &o, sizeof o)
				  : 0;
	if (err == 0)
		err = check_options(&o);
	if (err < 0)
		return err;
	struct hoist_load *load = calloc(1, sizeof *load);
	if (load == NULL)
		return hoist__fail_nomem("a load", sizeof *load);
	err = init_locks(load);
	if (err < 0) {
		free(load);
		return err;
	}
	load->checkpoint = hoist__checkpoint_ref(checkpoint);
	load->engine_kind = o.engine;
	load->io = o.io;
	load->caller_driven = (o.flags & HOIST_LOAD_CALLER_DRIVEN) != 0;
	load->pid = getpid();
	load->start_ns = hoist__now_ns();
	load->start_cpu_ns = hoist__cpu_ns();
	err = prepare(load, &o);
	if (err == 0 && !load->caller_driven)
		err = start_thread(load);
	if (err < 0) {
		free_load(load);
		return err;
	}
	*ret = load;
	return 0;
}

static int check_process(const struct hoist_load *load)
{
	if (load->pid == getpid())
		return 0;
	return hoist__fail(-ESTALE, "the load belongs to process %d, which forked this one",
			   (int)load->pid);
}

bool hoist__load_is_done(const struct hoist_load *load)
{
	return atomic_load_explicit(&load->done, memory_order_acquire);
}

static bool step(struct hoist_load *load, uint64_t timeout_ns)
{
	pthread_mutex_lock(&load->driving);
	bool done = hoist__load_is_done(load);
	if (!done) {
		done = hoist__pump_step(load, timeout_ns);
		if (done)
			announce_end(load);
	}
	pthread_mutex_unlock(&load->driving);
	return done;
}

int hoist_load_step(hoist_load *load, uint64_t timeout_ns)
{
	int err = check_process(load);
	if (err < 0)
		return err;
	if (!load->caller_driven)
		return hoist__fail(-EINVAL,
				   "the load drives itself; start it with HOIST_LOAD_CALLER_DRIVEN "
				   "to drive it");
	return step(load, timeout_ns) ? 1 : 0;
}

int hoist__load_outcome(const struct hoist_load *load)
{
	return load->err < 0 ? hoist__fail(load->err, "%s", load->text) : 0;
}

int hoist_load_wait(hoist_load *load)
{
	int err = check_process(load);
	if (err < 0)
		return err;
	while (load->caller_driven && !step(load, UINT64_MAX))
		continue;
	pthread_mutex_lock(&load->lock);
	while (!hoist__load_is_done(load))
		pthread_cond_wait(&load->ended, &load->lock);
	pthread_mutex_unlock(&load->lock);
	return hoist__load_outcome(load);
}

void hoist_load_cancel(hoist_load *load)
{
	atomic_store_explicit(&load->cancelled, true, memory_order_relaxed);
}

void hoist_load_destroy(hoist_load *load)
{
	if (load == NULL)
		return;
	/* In a forked child the thread does not exist and its locks may be held: the
	 * child's copy of the memory is left as it is. */
	if (load->pid != getpid())
		return;
	hoist_load_cancel(load);
	(void)hoist_load_wait(load);
	if (load->has_thread)
		pthread_join(load->thread, NULL);
	free_load(load);
}
