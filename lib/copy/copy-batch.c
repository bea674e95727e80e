/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-batch.c - many copies, checked before the first. */
#include "config.h"

#include <stdlib.h>

#include "base/error.h"
#include "hoist/copy.h"
#include "lib/copy/copy.h"

struct entry {
	struct hoist__pair pair;
	size_t number;
	bool skipped;
};

/* By source and destination, the first of equals first. */
static int compare(const void *left, const void *right)
{
	const struct entry *a = *(struct entry *const *)left;
	const struct entry *b = *(struct entry *const *)right;
	const uintptr_t order[3][2] = {
		{(uintptr_t)a->pair.dst, (uintptr_t)b->pair.dst},
		{(uintptr_t)a->pair.src, (uintptr_t)b->pair.src},
		{a->number, b->number},
	};
	for (int i = 0; i < 3; i++)
		if (order[i][0] != order[i][1])
			return order[i][0] < order[i][1] ? -1 : 1;
	return 0;
}

static int skip_repeated(struct entry *entries, size_t n)
{
	struct entry **sorted = malloc(n * sizeof *sorted);
	if (sorted == NULL)
		return hoist__fail_nomem("a batch of copies", n * sizeof *sorted);
	for (size_t i = 0; i < n; i++)
		sorted[i] = &entries[i];
	qsort(sorted, n, sizeof(struct entry *), compare);
	for (size_t i = 1; i < n; i++)
		if (sorted[i]->pair.dst == sorted[i - 1]->pair.dst &&
		    sorted[i]->pair.src == sorted[i - 1]->pair.src)
			sorted[i]->skipped = true;
	free(sorted);
	return 0;
}

static int name_pair(const struct entry *entry, int err)
{
	return err < 0 ? hoist__fail_in(err, "pair %zu", entry->number) : err;
}

/* Before what says less of it. */
static int check_devices(const struct entry *entries, size_t n)
{
	const struct entry *first = NULL;
	for (size_t i = 0; i < n; i++) {
		const struct hoist__pair *pair = &entries[i].pair;
		int err = hoist__buffer_check(pair->dst, "the destination");
		if (err < 0)
			return name_pair(&entries[i], err);
		if (pair->dst == pair->src || pair->dst->bytes == 0)
			continue;
		if (first == NULL)
			first = &entries[i];
		if (first->pair.dst->device != pair->dst->device)
			return hoist__fail(
				-EINVAL,
				"destination %zu is on %s and destination %zu on %s; those "
				"of a batch on a stream must be on the same device",
				first->number, hoist_device_spec(first->pair.dst->device), i,
				hoist_device_spec(pair->dst->device));
	}
	return 0;
}

static int check(struct entry *entries, size_t n, hoist_stream *stream)
{
	int err = stream != NULL ? check_devices(entries, n) : 0;
	for (size_t i = 0; err == 0 && i < n; i++) {
		int checked = hoist__pair_check(&entries[i].pair, stream);
		err = checked < 0 ? name_pair(&entries[i], checked) : 0;
		entries[i].skipped = checked > 0;
	}
	return err;
}

/* The lane that the last copies were queued on. */
struct open_lane {
	hoist_device *device; /* NULL: none */
	struct hoist__lane *lane;
};

static int close_lane(struct open_lane *open, int err)
{
	if (open->device == NULL)
		return err;
	err = hoist__lane_release(open->device, open->lane, err);
	open->device = NULL;
	return err;
}

/* What one lane can do is queued there and not waited for; all else waits for what is there. */
static int copy_one(const struct hoist__pair *pair, struct open_lane *open)
{
	struct hoist__move move;
	hoist_device *device;
	bool direct = hoist__move_plan(pair->dst, pair->src, &move) &&
		      hoist__move_is_direct(&move, &device);
	if (!direct || open->device != device) {
		int err = close_lane(open, 0);
		if (err < 0 || !direct)
			return err < 0 ? err : hoist__pair_copy(pair, NULL);
		err = hoist__lane_acquire(device, &open->lane);
		if (err < 0)
			return err;
		open->device = device;
	}
	return hoist__move_queue_direct(&move, open->lane->stream);
}

static int copy_all(const struct entry *entries, size_t n, hoist_stream *stream)
{
	struct open_lane open = {NULL, NULL};
	int err = 0;
	for (size_t i = 0; err == 0 && i < n; i++)
		if (!entries[i].skipped)
			err = name_pair(&entries[i],
					stream != NULL ? hoist__pair_copy(&entries[i].pair, stream)
						       : copy_one(&entries[i].pair, &open));
	return close_lane(&open, err);
}

static int prepare(const struct entry *entry, hoist_stream *stream)
{
	int err = hoist__pair_prepare(&entry->pair, stream);
	if (err == 0 && stream != NULL)
		err = hoist__pair_check_capture(&entry->pair, stream);
	return name_pair(entry, err);
}

static int run(struct entry *entries, size_t n, hoist_stream *stream)
{
	int err = check(entries, n, stream);
	if (err == 0)
		err = skip_repeated(entries, n);
	for (size_t i = 0; err == 0 && i < n; i++)
		if (!entries[i].skipped)
			err = prepare(&entries[i], stream);
	return err < 0 ? err : copy_all(entries, n, stream);
}

int hoist_buffer_copy_batch(size_t n, hoist_buffer *const *dsts, hoist_buffer *const *srcs,
			    hoist_stream *stream)
{
	if (n == 0)
		return 0;
	if (dsts == NULL || srcs == NULL)
		return hoist__fail(-EINVAL, "a list of %zu buffers is NULL", n);
	struct entry *entries = calloc(n, sizeof *entries);
	if (entries == NULL)
		return hoist__fail_nomem("a batch of copies", n * sizeof *entries);
	for (size_t i = 0; i < n; i++)
		entries[i] = (struct entry){{dsts[i], srcs[i], 0, NULL}, i, false};
	int err = run(entries, n, stream);
	free(entries);
	return err;
}
