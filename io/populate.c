/* SPDX-License-Identifier: MIT */
/* Shares memory out in slices, and populates them in the order of the readers' need.
 * The contract is in io/populate.h. */
#include "config.h"

#include "io/populate.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc/region.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/wait.h"
#include "io/worker.h"
#include "numa/processors.h"

/* Long enough to hide the lock and a wake-up, short enough that the reader starts
 * early: 1-2 ms.  Slices are cut at multiples of this in the address space, so
 * that no huge page is populated by two threads. */
#define SLICE_BYTES (16 * HOIST__MIB)

_Static_assert(HOIST__POPULATOR_READERS <= 8, "a bit of a byte for each reader");

enum { FREE, CLAIMED, DONE };

struct slice {
	unsigned char readers; /* a bit for each */
	unsigned char state;
};

/* Slices are counted from the start.  Slices before `next` are taken or another reader's; slices
 * before `prefix` are done or another reader's; slices before `wanted` have been asked for. */
struct reader {
	size_t next;
	size_t prefix;
	size_t wanted;
	size_t n_taken; /* of the reader's slices, also those taken for another reader */
	size_t n_wanted;
	size_t passed; /* slices before it were passed by, where that was possible */
};

struct hoist__populator {
	uintptr_t start;
	uintptr_t end;
	size_t n_slices;
	pid_t pid;
	struct hoist__processors processors; /* that the threads run on */
	int (*populate)(void *context, void *address, size_t bytes);
	void *context;
	size_t n_holes;
	struct hoist__populator_hole *holes;

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t progress;
	struct slice *slices;
	struct reader readers[HOIST__POPULATOR_READERS];
	int err;
	bool stop;
	char text[HOIST__ERROR_BYTES];

	unsigned n_threads;
	pthread_t threads[HOIST__PROCESSORS_POPULATE];
};

/* Where slice @i begins; slice n_slices begins at the end. */
static uintptr_t slice_start(const struct hoist__populator *p, size_t i)
{
	uintptr_t grid = hoist__round_down(p->start, SLICE_BYTES);
	uintptr_t at = i == p->n_slices ? p->end : grid + i * SLICE_BYTES;
	return at < p->start ? p->start : at;
}

/* The slice that has byte @at from the start, or the last. */
static size_t slice_at(const struct hoist__populator *p, size_t at)
{
	uintptr_t grid = hoist__round_down(p->start, SLICE_BYTES);
	return (size_t)hoist__min_u64((p->start + at - grid) / SLICE_BYTES, p->n_slices - 1);
}

static bool is_of(const struct hoist__populator *p, size_t slice, unsigned reader)
{
	return (p->slices[slice].readers & 1u << reader) != 0;
}

/* Sets the readers of each slice. */
static void share_out(struct hoist__populator *p, const struct hoist__populator_options *options)
{
	size_t filled = 0;
	unsigned reader = options->n_parts > 0 ? options->parts[0].reader : 0;
	for (size_t i = 0; i < options->n_parts; i++) {
		const struct hoist__populator_part *part = &options->parts[i];
		size_t first = slice_at(p, part->begin);
		size_t last = slice_at(p, part->end > part->begin ? part->end - 1 : part->begin);
		HOIST__ASSERT(part->begin <= part->end && part->end <= p->end - p->start);
		HOIST__ASSERT(part->reader < HOIST__POPULATOR_READERS && filled <= last + 1);
		for (; filled < first; filled++)
			p->slices[filled].readers = (unsigned char)(1u << reader);
		reader = part->reader;
		for (size_t s = first; s <= last; s++)
			p->slices[s].readers |= (unsigned char)(1u << reader);
		filled = last + 1;
	}
	for (; filled < p->n_slices; filled++)
		p->slices[filled].readers = (unsigned char)(1u << reader);
}

/* Moves the reader to its next slice that no thread has taken; false: there is none. */
static bool find_next(struct hoist__populator *p, unsigned index)
{
	struct reader *reader = &p->readers[index];
	for (; reader->next < p->n_slices; reader->next++) {
		if (!is_of(p, reader->next, index))
			continue;
		if (p->slices[reader->next].state == FREE)
			return true;
		reader->n_taken++;
	}
	return false;
}

/* Takes the next slice of the reader that has the fewest slices ahead.  False: all are taken, or
 * the threads are to end. */
static bool claim(struct hoist__populator *p, size_t *ret)
{
	struct reader *first = NULL;
	for (unsigned i = 0; i < HOIST__POPULATOR_READERS; i++) {
		struct reader *reader = &p->readers[i];
		/* Compares n_taken - n_wanted of both; sums, since a difference may be negative. */
		if (find_next(p, i) && (first == NULL || reader->n_taken + first->n_wanted <
								 first->n_taken + reader->n_wanted))
			first = reader;
	}
	if (first == NULL || p->stop)
		return false;
	*ret = first->next++;
	first->n_taken++;
	HOIST__ASSERT(hoist__mutex_held(&p->mutex) && *ret < p->n_slices);
	HOIST__ASSERT(p->slices[*ret].state == FREE && first->n_taken <= p->n_slices);
	p->slices[*ret].state = CLAIMED;
	return true;
}

static void finish_slice(struct hoist__populator *p, size_t i, int err)
{
	HOIST__ASSERT(hoist__mutex_held(&p->mutex) && p->slices[i].state == CLAIMED);
	if (err != 0) {
		if (p->err == 0) {
			p->err = err;
			hoist__error_copy(p->text, sizeof p->text);
		}
		p->stop = true;
	} else {
		p->slices[i].state = DONE;
	}
	pthread_cond_broadcast(&p->progress);
}

static int populate_range(const struct hoist__populator *p, size_t begin, size_t end)
{
	void *address = (void *)(p->start + begin);
	return p->populate != NULL ? p->populate(p->context, address, end - begin)
				   : hoist__populate(address, end - begin);
}

/* Populates the slice around its holes. */
static int populate_slice(const struct hoist__populator *p, size_t i)
{
	size_t at = slice_start(p, i) - p->start;
	size_t end = slice_start(p, i + 1) - p->start;
	int err = 0;
	for (size_t h = 0; h < p->n_holes && p->holes[h].begin < end && err == 0; h++) {
		if (p->holes[h].end <= at)
			continue;
		if (p->holes[h].begin > at)
			err = populate_range(p, at, p->holes[h].begin);
		at = (size_t)hoist__min_u64(p->holes[h].end, end);
	}
	return err == 0 && at < end ? populate_range(p, at, end) : err;
}

static void *populate(void *argument)
{
	struct hoist__populator *p = argument;
	size_t i;
	hoist__processors_stay(&p->processors);
	pthread_mutex_lock(&p->mutex);
	while (claim(p, &i)) {
		pthread_mutex_unlock(&p->mutex);
		int err = populate_slice(p, i);
		pthread_mutex_lock(&p->mutex);
		finish_slice(p, i, err);
	}
	pthread_mutex_unlock(&p->mutex);
	return NULL;
}

static int init_locks(struct hoist__populator *p)
{
	int err = -pthread_mutex_init(&p->mutex, NULL);
	if (err != 0)
		return err;
	err = hoist__condition_init(&p->progress);
	if (err != 0)
		pthread_mutex_destroy(&p->mutex);
	return err;
}

static struct hoist__populator *make(const struct hoist__populator_options *options)
{
	struct hoist__populator *p = calloc(1, sizeof *p);
	if (p == NULL)
		return NULL;
	p->start = (uintptr_t)options->address;
	p->end = p->start + options->bytes;
	p->pid = getpid();
	uintptr_t grid = hoist__round_down(p->start, SLICE_BYTES);
	p->n_slices = (p->end - grid + SLICE_BYTES - 1) / SLICE_BYTES;
	p->slices = calloc(p->n_slices, sizeof *p->slices);
	p->populate = options->populate;
	p->context = options->context;
	p->n_holes = options->n_holes;
	p->holes = calloc(p->n_holes + 1, sizeof *p->holes);
	if (p->slices == NULL || p->holes == NULL || init_locks(p) != 0) {
		free(p->slices);
		free(p->holes);
		free(p);
		return NULL;
	}
	if (p->n_holes > 0)
		memcpy(p->holes, options->holes, p->n_holes * sizeof *p->holes);
	share_out(p, options);
	return p;
}

int hoist__populator_start(const struct hoist__populator_options *options,
			   struct hoist__populator **ret)
{
	struct hoist__populator *p = make(options);
	unsigned n_threads = options->n_threads;
	if (p == NULL)
		return hoist__fail_nomem("a populator", sizeof *p);
	if (n_threads == 0 || n_threads > HOIST__PROCESSORS_POPULATE)
		n_threads = HOIST__PROCESSORS_POPULATE;
	hoist__processors_for(options->address, &p->processors);
	n_threads = (unsigned)hoist__min_u64(n_threads, p->processors.n);
	n_threads = (unsigned)hoist__min_u64(n_threads, p->n_slices);
	int err = 0;
	while (p->n_threads < n_threads && err == 0) {
		err = hoist__worker_start(&p->threads[p->n_threads], populate, p);
		if (err == 0)
			p->n_threads++;
	}
	/* Fewer threads than asked for are enough. */
	if (p->n_threads == 0 && err != 0) {
		hoist__populator_stop(p);
		return hoist__fail_thread(err, "starting a populating thread");
	}
	*ret = p;
	return 0;
}

/* Under the lock: notes that the reader wants @want bytes. */
static void ask_for(struct hoist__populator *p, unsigned index, size_t want)
{
	struct reader *reader = &p->readers[index];
	HOIST__ASSERT(hoist__mutex_held(&p->mutex) && want <= p->end - p->start);
	for (; slice_start(p, reader->wanted) - p->start < want; reader->wanted++)
		reader->n_wanted += is_of(p, reader->wanted, index);
	HOIST__ASSERT(reader->wanted <= p->n_slices && reader->n_wanted <= reader->wanted);
}

/* Under the lock: notes that the reader wants @want bytes.  *ret: the reader's populated prefix.
 * Returns: 0; the failure of a populating thread. */
static int look(struct hoist__populator *p, unsigned index, size_t want, size_t *ret)
{
	struct reader *reader = &p->readers[index];
	if (p->err != 0)
		return hoist__fail(p->err, "%s", p->text);
	ask_for(p, index, want);
	while (reader->prefix < p->n_slices &&
	       (!is_of(p, reader->prefix, index) || p->slices[reader->prefix].state == DONE))
		reader->prefix++;
	HOIST__ASSERT(reader->prefix <= p->n_slices);
	*ret = slice_start(p, reader->prefix) - p->start;
	return 0;
}

int hoist__populator_done(struct hoist__populator *populator, unsigned reader, size_t want,
			  size_t *ret)
{
	size_t bytes = populator->end - populator->start;
	pthread_mutex_lock(&populator->mutex);
	int err = look(populator, reader, (size_t)hoist__min_u64(want, bytes), ret);
	pthread_mutex_unlock(&populator->mutex);
	return err;
}

void hoist__populator_pass(struct hoist__populator *populator, unsigned reader, size_t end)
{
	struct hoist__populator *p = populator;
	pthread_mutex_lock(&p->mutex);
	struct reader *own = &p->readers[reader];
	HOIST__ASSERT(end <= p->end - p->start);
	for (; own->passed < p->n_slices && slice_start(p, own->passed + 1) - p->start <= end;
	     own->passed++) {
		struct slice *slice = &p->slices[own->passed];
		if (slice->state == FREE && slice->readers == 1u << reader)
			slice->state = DONE;
	}
	ask_for(p, reader, end);
	pthread_mutex_unlock(&p->mutex);
}

int hoist__populator_wait(struct hoist__populator *populator, unsigned reader, size_t want,
			  uint64_t timeout_ns)
{
	struct hoist__populator *p = populator;
	uint64_t deadline = hoist__deadline(timeout_ns);
	size_t done = 0;
	want = hoist__min_u64(want, p->end - p->start);
	pthread_mutex_lock(&p->mutex);
	int err = look(p, reader, want, &done);
	while (err == 0 && done < want) {
		int waited = hoist__condition_wait(&p->progress, &p->mutex, deadline);
		err = look(p, reader, want, &done);
		if (err == 0 && done < want && waited != 0)
			err = hoist__fail(-EAGAIN, "%zu of %zu bytes are populated so far", done,
					  want);
	}
	pthread_mutex_unlock(&p->mutex);
	return err;
}

void hoist__populator_stop(struct hoist__populator *populator)
{
	struct hoist__populator *p = populator;
	if (p == NULL)
		return;
	/* A forked child does not have these threads, and one of them may have held the lock. */
	if (p->pid == getpid()) {
		pthread_mutex_lock(&p->mutex);
		p->stop = true;
		pthread_mutex_unlock(&p->mutex);
		for (unsigned i = 0; i < p->n_threads; i++)
			pthread_join(p->threads[i], NULL);
		pthread_cond_destroy(&p->progress);
		pthread_mutex_destroy(&p->mutex);
	}
	free(p->slices);
	free(p->holes);
	free(p);
}
