/* SPDX-License-Identifier: MIT */
/* Gives the tensors of a load one by one.
 * The contract is in hoist/load.h; lib/load/give.h tells how lots become ready. */
#include "config.h"

#include <sys/eventfd.h>

#include "base/assert.h"
#include "base/wait.h"
#include "lib/core/options.h"
#include "lib/load/give.h"

enum look { LOOK_WAIT, LOOK_GIVEN, LOOK_FAILED, LOOK_OVER };

/* --- one tensor --- */

/* The first target from @from on that has the want; n_targets: none. */
static unsigned target_of(const struct hoist_load *load, unsigned want, unsigned from)
{
	while (from < load->n_targets && load->targets[from].want != want)
		from++;
	return from;
}

/* Steps to the next target of the tensor, or to the next tensor, or lot. */
static void step_on(struct hoist_load *load, unsigned want)
{
	struct hoist__give *give = load->give;
	size_t lot = give->line[give->n_gone];
	give->at_target = target_of(load, want, give->at_target + 1);
	if (give->at_target < load->n_targets)
		return;
	give->at_target = 0;
	give->at++;
	if (give->first_of[lot] + give->at < give->first_of[lot + 1])
		return;
	give->at = 0;
	give->n_gone++;
}

/* Makes the buffer of the tensor that is next in line.  *drop: the load's reference to its lot, if
 * the tensor is the lot's last.  Pre: locked; the line is not empty. */
static int give_one(struct hoist_load *load, hoist_load_item *ret, struct hoist__storage **drop)
{
	struct hoist__give *give = load->give;
	size_t lot = give->line[give->n_gone];
	size_t last = give->first_of[lot + 1] - give->first_of[lot] - 1;
	size_t index = give->tensor_of[give->first_of[lot] + give->at];
	const struct hoist__plan_tensor *planned = &load->plan.tensors[index];
	unsigned t = target_of(load, planned->want, give->at_target);
	HOIST__ASSERT(give->at <= last && t < load->n_targets);
	hoist_buffer *buffer = NULL;
	int err = hoist__load_make_buffer(load, index, t, &buffer);
	if (err < 0)
		return err;
	struct hoist__target *target = &load->targets[t];
	if (give->at == last && lot < load->plan.n_lots && target->storages != NULL) {
		*drop = target->storages[lot];
		target->storages[lot] = NULL;
	}
	*ret = (hoist_load_item){
		.size = sizeof *ret,
		.target = t,
		.tensor = planned->index,
		.buffer = buffer,
		.index = index - load->plan.wants[planned->want].first_tensor,
	};
	give->at_target = t;
	step_on(load, planned->want);
	hoist__give_tell(give);
	return 0;
}

/* --- a full window --- */

/* Pre: locked. */
static int fail_full(const struct hoist_load *load)
{
	const struct hoist__give *give = load->give;
	unsigned full = 0;
	size_t largest = SIZE_MAX;
	size_t n = 0;
	while (hoist__give_fits_on(give, full, true))
		full++;
	for (size_t i = 0; i < give->n_line; i++) {
		size_t lot = give->line[i];
		if (lot == load->plan.n_lots || !hoist__give_place(load, full, lot)->out)
			continue;
		n++;
		if (largest == SIZE_MAX ||
		    load->plan.lots[lot].bytes > load->plan.lots[largest].bytes)
			largest = lot;
	}
	HOIST__ASSERT(n > 0);
	const struct hoist__give_window *window = &give->windows[full];
	return hoist__fail(
		-ENOBUFS,
		"the window of %llu bytes on %s is full: the caller holds %llu bytes in %zu "
		"blocks, the largest of %llu bytes (\"%.200s\"), and the next tensor, \"%.200s\", "
		"needs %llu; drop buffers, or raise window_bytes",
		(unsigned long long)give->window_bytes,
		hoist_device_spec(load->targets[full].device), (unsigned long long)window->out, n,
		(unsigned long long)load->plan.lots[largest].bytes, hoist__give_name(load, largest),
		hoist__give_name(load, give->due), (unsigned long long)window->needs);
}

/* --- the calls --- */

/* Pre: locked. */
static enum look look(struct hoist_load *load, hoist_load_item *ret, struct hoist__storage **drop,
		      int *err)
{
	const struct hoist__give *give = load->give;
	if (give->over && (load->job.err < 0 || give->n_gone == give->n_line))
		return LOOK_OVER;
	if (give->n_gone < give->n_line) {
		*err = give_one(load, ret, drop);
		return *err < 0 ? LOOK_FAILED : LOOK_GIVEN;
	}
	if (!hoist__give_speaks(give))
		return LOOK_WAIT;
	*err = fail_full(load);
	return LOOK_FAILED;
}

/* Looks, and once more after a wait that something has ended. */
static enum look look_until(struct hoist_load *load, uint64_t deadline, hoist_load_item *ret,
			    int *err)
{
	struct hoist__give *give = load->give;
	struct hoist__storage *drop = NULL;
	enum look found;
	pthread_mutex_lock(&give->lock);
	found = look(load, ret, &drop, err);
	if (found == LOOK_WAIT && hoist__deadline_left(deadline) > 0) {
		(void)hoist__condition_wait(&give->changed, &give->lock, deadline);
		found = look(load, ret, &drop, err);
	}
	pthread_mutex_unlock(&give->lock);
	hoist__storage_unref(drop);
	return found;
}

/* True if the next tensor is not one of a lot that has been begun. */
static bool is_between(struct hoist__give *give)
{
	pthread_mutex_lock(&give->lock);
	bool between = give->at == 0 && give->at_target == 0;
	pthread_mutex_unlock(&give->lock);
	return between;
}

/* A load that its caller drives moves on with each lot, even if tensors are ready. */
static enum look drive_and_look(struct hoist_load *load, uint64_t deadline, bool again,
				hoist_load_item *ret, int *err)
{
	if (!load->job.caller_driven)
		return look_until(load, deadline, ret, err);
	if (is_between(load->give))
		(void)hoist__job_step(&load->job, again ? hoist__deadline_left(deadline) : 0);
	return look_until(load, 0, ret, err);
}

static int check(const struct hoist_load *load)
{
	int err = hoist__job_check_process(&load->job);
	if (err == 0 && load->give == NULL)
		err = hoist__fail(-EINVAL, "the load gives its tensors at its end; a load that "
					   "gives them one by one is started with "
					   "HOIST_LOAD_STREAM");
	return err;
}

int hoist_load_next(hoist_load *load, uint64_t timeout_ns, hoist_load_item *item)
{
	hoist_load_item made = {.size = sizeof made};
	int err = check(load);
	if (err == 0)
		err = hoist__options_check("hoist_load_item", item, sizeof made);
	if (err < 0)
		return err;
	uint64_t deadline = hoist__deadline(timeout_ns);
	enum look found = drive_and_look(load, deadline, false, &made, &err);
	while (found == LOOK_WAIT && hoist__deadline_left(deadline) > 0)
		found = drive_and_look(load, deadline, true, &made, &err);
	if (found == LOOK_WAIT)
		return hoist__fail(-ETIMEDOUT, "no further tensor has arrived yet");
	/* Only the last step of the load may be missing. */
	if (found == LOOK_OVER)
		err = hoist__job_wait(&load->job, UINT64_MAX);
	if (found == LOOK_OVER || found == LOOK_FAILED)
		return err == -ETIMEDOUT ? -ECONNRESET : err; /* it would mean: nothing yet */
	(void)hoist__options_out("hoist_load_item", item, &made, sizeof made);
	return 1;
}

int hoist_load_fd(hoist_load *load)
{
	int err = hoist__job_check_process(&load->job);
	if (err < 0)
		return err;
	if (load->job.caller_driven)
		return hoist__fail(-EINVAL, "the caller drives the load, so nothing happens that a "
					    "descriptor could tell; call hoist_load_next() or "
					    "hoist_load_step()");
	if (load->give == NULL)
		return hoist__job_fd(&load->job);
	struct hoist__give *give = load->give;
	pthread_mutex_lock(&give->lock);
	if (give->fd < 0) {
		give->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (give->fd < 0)
			err = hoist__fail_errno(-errno, "making a descriptor for a load");
		else
			hoist__give_tell(give);
	}
	int fd = give->fd;
	pthread_mutex_unlock(&give->lock);
	return err < 0 ? err : fd;
}

bool hoist__load_has_given_all(struct hoist_load *load)
{
	struct hoist__give *give = load->give;
	pthread_mutex_lock(&give->lock);
	size_t n = load->plan.n_lots + (give->first_of[load->plan.n_lots] < load->plan.n_tensors);
	bool all = give->n_gone == n;
	pthread_mutex_unlock(&give->lock);
	return all;
}
