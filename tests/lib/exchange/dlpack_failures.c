/* SPDX-License-Identifier: MIT */
/* Scenario of the failure sweep (tests/faults/sweep.h): tensors go out and come in.  A tensor whose
 * import failed was not taken, and its deleter not called. */
#include "config.h"

#include <errno.h>

#include "hoist/cai.h"
#include "hoist/dlpack.h"
#include "hoist/hoist.h"
#include "tests/faults/sweep.h"
#include "tests/support/lib-dlpack.h"

static const int64_t shape[] = {64};

/* A tensor of the test's own: its deleter is called at most once, and only if it was taken. */
static int take_offer(unsigned flags)
{
	static unsigned char array[64];
	struct lib_offer offer;
	hoist_buffer *b = NULL;
	lib_offer(&offer, array, HOIST_U8, 1, shape, NULL);
	int err = hoist_buffer_from_dlpack(lib_managed(&offer), NULL, flags, &b);
	unsigned early = err == 0 && flags & HOIST_DLPACK_COPY;
	if (offer.n_deleted != early)
		sweep_die("import: %d, and %u calls of the deleter", err, offer.n_deleted);
	hoist_buffer_unref(b);
	if (offer.n_deleted != (err == 0))
		sweep_die("after the import: %u calls of the deleter", offer.n_deleted);
	return err;
}

/* With work of that stream in flight. */
static int buffer_on(hoist_stream *stream, unsigned kind, hoist_buffer **ret)
{
	const unsigned char seven = 7;
	hoist_buffer *made = NULL;
	hoist_buffer *b = NULL;
	int err = hoist_buffer_create(hoist_stream_device(stream), HOIST_U8, 1, shape, kind, &made);
	STEP(err, hoist_buffer_on_stream(made, stream, &b));
	STEP(err, hoist_buffer_fill_on(b, &seven, 1, stream));
	hoist_buffer_unref(made);
	if (err < 0)
		hoist_buffer_unref(b);
	else
		*ret = b;
	return err;
}

/* Out to a consumer's stream, and in again. */
static int go_round(hoist_device *device, unsigned kind, int copy)
{
	hoist_stream *producer = NULL;
	hoist_stream *consumer = NULL;
	hoist_buffer *b = NULL;
	hoist_buffer *back = NULL;
	struct DLManagedTensorVersioned *tensor = NULL;
	hoist_dlpack_options options = {.size = sizeof options, .copy = copy, .has_stream = 1};
	int err = hoist_stream_create(device, &producer);
	STEP(err, hoist_stream_create(device, &consumer));
	STEP(err, buffer_on(producer, kind, &b));
	STEP(err, hoist_stream_to_dlpack(consumer, &options.stream));
	STEP(err, hoist_buffer_to_dlpack(b, &options, &tensor));
	if (err == 0) {
		err = hoist_buffer_from_dlpack(tensor, consumer, copy ? HOIST_DLPACK_COPY : 0,
					       &back);
		if (err < 0)
			hoist_dlpack_release(tensor);
	}
	STEP(err, hoist_stream_synchronize(consumer));
	hoist_buffer_unref(back);
	hoist_buffer_unref(b);
	hoist_stream_unref(producer);
	hoist_stream_unref(consumer);
	return err;
}

static void count(void *context)
{
	++*(unsigned *)context;
}

static int by_cai(hoist_device *device)
{
	hoist_buffer *b = NULL;
	hoist_buffer *back = NULL;
	hoist_stream *producer = NULL;
	hoist_stream *consumer = NULL;
	unsigned released = 0;
	const hoist_cai_owner owner = {count, &released};
	hoist_cai cai = {.size = sizeof cai};
	int err = hoist_stream_create(device, &producer);
	STEP(err, buffer_on(producer, 0, &b));
	STEP(err, hoist_buffer_to_cai(b, &cai));
	STEP(err, hoist_stream_create(device, &consumer));
	STEP(err, hoist_buffer_from_cai(&cai, &owner, consumer, 0, &back));
	if (released != 0)
		sweep_die("released by a call that gave %d", err);
	hoist_buffer_unref(back);
	if (released != (back != NULL))
		sweep_die("released %u times", released);
	hoist_buffer_unref(b);
	hoist_stream_unref(producer);
	hoist_stream_unref(consumer);
	return err;
}

static int by_table(hoist_dl_device where)
{
	const hoist_dl_exchange *table =
		(const hoist_dl_exchange *)(const void *)hoist_dlpack_exchange_api();
	struct lib_offer offer;
	struct DLManagedTensorVersioned *made = NULL;
	void *object = NULL;
	hoist_dl_tensor *prototype = lib_offer(&offer, NULL, HOIST_U8, 1, shape, NULL);
	prototype->device = where;
	if (table->allocate(prototype, &made, NULL, NULL) != 0)
		return -ENOMEM;
	if (table->from_managed(made, &object) != 0) /* ended by it */
		return -ENOMEM;
	hoist_buffer_unref(object);
	return 0;
}

/* proves: S5.04 S5.06 */
static int every_exchange(void)
{
	int err = sweep_open_devices();
	STEP(err, take_offer(0));
	STEP(err, take_offer(HOIST_DLPACK_COPY));
	for (int i = 1; err == 0 && i < 4; i += 2) {
		err = go_round(sweep_devices[i], 0, HOIST_DLPACK_COPY_IF_NEEDED);
		STEP(err,
		     go_round(sweep_devices[i], HOIST_BUFFER_PINNED, HOIST_DLPACK_COPY_ALWAYS));
		STEP(err, by_cai(sweep_devices[i]));
	}
	STEP(err, by_table((hoist_dl_device){HOIST_DL_CPU, 0}));
	STEP(err, by_table((hoist_dl_device){HOIST_DL_CUDA_MANAGED, 0}));
	return err;
}

const struct sweep_scenario sweep_lib_dlpack[] = {
	SWEEP_BOTH("lib-dlpack", 0, 0, .run = every_exchange, .check = sweep_check_devices),
	{.name = NULL},
};
