/* SPDX-License-Identifier: MIT */
/* Forks in the middle of whatever the other threads do.  The child has no thread but one; whatever
 * lock another one had in that moment, the library is to be of use there: with files, with host
 * memory and with the cache; what needs a driver says that it is the parent's. */
#include "config.h"

#include "tests/soak/worker.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

bool soak_in_child;

struct held {
	hoist_checkpoint *checkpoint;
	hoist_load *load;
	hoist_buffer *on_device;
	struct soak_parcel *parcel;
};

static void let_go(const struct held *held)
{
	hoist_load_destroy(held->load);
	hoist_buffer_unref(held->on_device);
	hoist_checkpoint_close(held->checkpoint);
	if (held->parcel != NULL)
		hoist_buffer_unref(held->parcel->buffer);
	free(held->parcel);
}

/* The host's bytes are there as they were; the others' are there, or cannot be read. */
static void look_at_parcel(const struct soak_parcel *parcel)
{
	unsigned char byte = 0;
	if (parcel == NULL || hoist_buffer_bytes(parcel->buffer) == 0)
		return;
	int err = hoist_buffer_is_contiguous(parcel->buffer)
			  ? hoist_buffer_read(parcel->buffer, 0, &byte, 1)
			  : 0;
	CHECK(err == 0 || (err == -ESTALE && !hoist_buffer_is_host(parcel->buffer)));
	if (hoist_buffer_is_host(parcel->buffer))
		soak_check(&parcel->model, parcel->t, parcel->as, &parcel->box, parcel->buffer);
}

static void refuse_drivers(const struct held *held)
{
	const int64_t shape[] = {100};
	unsigned char byte = 0;
	hoist_buffer *none = NULL;
	CHECK(hoist_buffer_create(soak_devices[CUDA_0], HOIST_I8, 1, shape, 0, &none) == -ESTALE);
	CHECK(hoist_buffer_read(held->on_device, 0, &byte, 1) == -ESTALE);
	CHECK(hoist_load_wait(held->load) == -ESTALE);
}

static void use_files(void)
{
	hoist_checkpoint *checkpoint = NULL;
	struct soak_model model;
	OK(soak_open((unsigned)soak_below(4), &checkpoint, &model));
	soak_load_plainly(checkpoint, &model);
	hoist_checkpoint_close(checkpoint);
}

static void be_child(const struct held *held)
{
	static struct soak_beat own;
	own = (struct soak_beat){.since_ns = 0};
	atomic_store(&own.action, SOAK_fork);
	atomic_store(&own.seed, atomic_load(&self.beat->seed));
	self.beat = &own;
	soak_in_child = true;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	switch (soak_below(6)) {
	case 0:
		break;
	case 1:
		refuse_drivers(held);
		break;
	case 2:
		use_files();
		break;
	case 3:
		soak_attach();
		break;
	case 4:
		look_at_parcel(held->parcel);
		break;
	default:
		refuse_drivers(held);
		look_at_parcel(held->parcel);
		use_files();
	}
	if (soak_chance(2))
		let_go(held);
	_exit(0);
}

static void fork_with(const struct held *held)
{
	int status = -1;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		be_child(held);
	/* A search for the process that hangs finds it as this thread's child. */
	pid_t ended = 0;
	while ((ended = waitpid(child, &status, WNOHANG)) == 0)
		(void)usleep(2000);
	if (ended != child || status != 0)
		(void)fprintf(stderr, "the child %d ended with status %#x\n", (int)child, status);
	CHECK(ended == child && status == 0);
}

void soak_fork(void)
{
	struct held held = {.load = NULL};
	struct soak_model model;
	hoist_load_options o = {.size = sizeof o, .budget = soak_budget};
	if (soak_open((unsigned)soak_below(SOAK_FILES), &held.checkpoint, &model) != 0)
		return;
	o.device = soak_devices[soak_below(LIB_N_DEVICES)];
	size_t t = soak_below(model.n);
	held.parcel = soak_parcel_take();
	hoist_buffer *made = soak_make_buffer(&model, t);
	OK(hoist_buffer_copy(made, soak_devices[CUDA_0], &held.on_device));
	hoist_buffer_unref(made);
	OK(hoist_load_start(held.checkpoint, &o, &held.load));
	fork_with(&held);
	/* The buffers that the child let go of are still here. */
	OK(hoist_load_wait(held.load));
	hoist_buffer *buffer = NULL;
	OK(hoist_load_buffer(held.load, model.tensors[t].name, &buffer));
	soak_check_whole(&model, t, buffer);
	soak_check_whole(&model, t, held.on_device);
	hoist_buffer_unref(buffer);
	if (held.parcel != NULL)
		soak_check(&held.parcel->model, held.parcel->t, held.parcel->as, &held.parcel->box,
			   held.parcel->buffer);
	let_go(&held);
}
