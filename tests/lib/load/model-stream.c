/* SPDX-License-Identifier: MIT */
/* The model's streaming loads: tensors are taken one by one, through windows of any size, held and
 * dropped in any order, and compared when they are dropped. */
#include "config.h"

#include <errno.h>

#include "tests/lib/load/model.h"
#include "tests/support/load-support.h"

struct taking {
	hoist_checkpoint *checkpoint;
	const struct trial *trial;
	const struct load_files *files;
	hoist_load_item held[RANDOM_MOST_TENSORS * MOST_TARGETS];
	size_t n_held;
	bool given[MOST_TARGETS][RANDOM_MOST_TENSORS];
	size_t n_given;
	size_t order[RANDOM_MOST_TENSORS * MOST_TARGETS]; /* those of some bytes, as they came */
	size_t n_ordered;
};

static bool overlap(const hoist_tensor_info *a, const hoist_tensor_info *b)
{
	return a->file == b->file && a->offset < b->offset + b->bytes &&
	       b->offset < a->offset + a->bytes;
}

/* No tensor comes behind one of a later entry, unless tensors that overlap may have drawn that one
 * to the front.  Tensors of no bytes come first. */
static void check_order(const struct taking *taking)
{
	size_t n = hoist_checkpoint_n_tensors(taking->checkpoint);
	hoist_tensor_info infos[RANDOM_MOST_TENSORS];
	size_t drawn[RANDOM_MOST_TENSORS];
	for (size_t t = 0; t < n; t++) {
		infos[t] = load_info_of(taking->checkpoint, t);
		drawn[t] = taking->trial->tier[t];
	}
	for (size_t round = 0; round < n; round++)
		for (size_t a = 0; a < n; a++)
			for (size_t b = 0; b < n; b++)
				if (drawn[b] < drawn[a] && overlap(&infos[a], &infos[b]))
					drawn[a] = drawn[b];
	for (size_t i = 0; i < taking->n_ordered; i++)
		for (size_t k = i + 1; k < taking->n_ordered; k++)
			CHECK(taking->trial->tier[taking->order[k]] >= drawn[taking->order[i]]);
}

/* A tensor is right as long as it is held. */
static void drop_one(struct taking *taking)
{
	size_t i = below(taking->n_held);
	hoist_load_item item = taking->held[i];
	hoist_stream *stream = item.target == 0 && chance(2) ? taking->trial->stream : NULL;
	const hoist_tensor_info info = load_info_of(taking->checkpoint, item.tensor);
	taking->held[i] = taking->held[--taking->n_held];
	compare(taking->trial, choice_of(taking->trial, item.target), item.tensor, &info,
		taking->files, item.buffer);
	OK(hoist_buffer_close(item.buffer, stream));
	hoist_buffer_unref(item.buffer);
}

static void note(struct taking *taking, const hoist_load_item *item)
{
	CHECK(item->target < n_targets_of(taking->trial) && item->tensor < RANDOM_MOST_TENSORS);
	CHECK(choice_of(taking->trial, item->target)->wanted[item->tensor]);
	CHECK(!taking->given[item->target][item->tensor]);
	taking->given[item->target][item->tensor] = true;
	if (hoist_buffer_bytes(item->buffer) > 0)
		taking->order[taking->n_ordered++] = item->tensor;
	taking->n_given++;
	taking->held[taking->n_held++] = *item;
}

static size_t n_wanted(const struct trial *trial)
{
	size_t n = 0;
	for (size_t target = 0; target < n_targets_of(trial); target++)
		for (size_t t = 0; t < RANDOM_MOST_TENSORS; t++)
			n += choice_of(trial, target)->wanted[t];
	return n;
}

/* Takes tensors, holds some, and drops them in any order.  False: it left in
 * the middle. */
static bool take_all(struct taking *taking, hoist_load *load, bool leave)
{
	static const uint64_t timeouts[] = {0, 1000, 1000000, UINT64_MAX};
	size_t when = leave ? below(RANDOM_MOST_TENSORS) : SIZE_MAX;
	const uint64_t before = random_state(); /* how often nothing has come depends on time */
	int got = 1;
	while ((got > 0 || got == -ETIMEDOUT || got == -ENOBUFS) && taking->n_given < when) {
		hoist_load_item item = {.size = sizeof item};
		got = hoist_load_next(load, PICK(timeouts), &item);
		if (got == 1)
			note(taking, &item);
		CHECK(got != -ENOBUFS || (taking->trial->o.window_bytes > 0 && taking->n_held > 0));
		if (got == -ENOBUFS || (got == 1 && chance(2)))
			drop_one(taking);
	}
	random_seed(before);
	if (got < 0 && got != -ETIMEDOUT && got != -ENOBUFS)
		show(taking->trial, "next", hoist_error());
	CHECK(got >= 0 || got == -ETIMEDOUT || got == -ENOBUFS);
	if (got != 0) {
		bool all = taking->n_given == n_wanted(taking->trial);
		CHECK(taking->trial->o.window_bytes == 0 || all ||
		      hoist_load_wait(load) == -EINVAL);
		if (chance(2)) {
			hoist_load_cancel(load);
			int err = hoist_load_wait(load);
			CHECK(err == -ECANCELED || err == 0);
		}
	}
	return got == 0;
}

static void check_taken(const struct taking *taking, hoist_load *load)
{
	CHECK(taking->n_given == n_wanted(taking->trial));
	for (size_t i = 0; i < taking->n_held && (taking->trial->o.flags & HOIST_LOAD_DIGEST);
	     i++) {
		if (taking->held[i].target > 0)
			continue; /* digests are asked for by the index of target 0 */
		const hoist_tensor_info info =
			load_info_of(taking->checkpoint, taking->held[i].tensor);
		compare_digest(load, taking->held[i].index, &info, taking->files);
	}
	OK(hoist_load_wait(load));
	hoist_load_report report = support_report(load);
	CHECK((report.window_peak_bytes > 0) <= (taking->trial->o.window_bytes > 0));
}

void stream_once(hoist_checkpoint *checkpoint, const struct trial *trial,
		 const struct load_files *files, const hoist_forecast *forecast, hoist_load *load)
{
	struct taking taking = {.checkpoint = checkpoint, .trial = trial, .files = files};
	bool leave = chance(6);
	bool all = take_all(&taking, load, leave);
	check_order(&taking);
	CHECK(all || leave);
	if (all)
		check_taken(&taking, load);
	if (all)
		forecast_end(trial, forecast, load);
	bool first = chance(2);
	if (first)
		hoist_load_destroy(load);
	while (taking.n_held > 0)
		drop_one(&taking);
	if (!first)
		hoist_load_destroy(load);
	hoist_stream_unref(trial->stream);
}
