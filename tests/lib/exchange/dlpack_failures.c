/* SPDX-License-Identifier: MIT */
/* Every allocation and every driver call fails once, in turn, while tensors go out and come in:
 * what failed was not taken, its deleter not called; nothing is left over. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/cai.h"
#include "hoist/dlpack.h"
#include "hoist/hoist.h"
#include "tests/support/lib-dlpack.h"
#include "tests/support/lib-failing.h"
#include "tests/support/lib-support.h"

#define MANY 2000

static hoist_device *devices[LIB_N_DEVICES];
static const int64_t shape[] = {64};

static int open_devices(void)
{
	int err = 0;
	for (int i = 0; err == 0 && i < LIB_N_DEVICES; i++)
		err = hoist_device_open(lib_specs[i], &devices[i]);
	return err;
}

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
		lib_die("import: %d, and %u calls of the deleter", err, offer.n_deleted);
	hoist_buffer_unref(b);
	if (offer.n_deleted != (err == 0))
		lib_die("after the import: %u calls of the deleter", offer.n_deleted);
	return err;
}

/* With work of that stream in flight. */
static int buffer_on(hoist_stream *stream, unsigned kind, hoist_buffer **ret)
{
	const unsigned char seven = 7;
	hoist_buffer *made = NULL;
	hoist_buffer *b = NULL;
	int err = hoist_buffer_create(hoist_stream_device(stream), HOIST_U8, 1, shape, kind, &made);
	if (err == 0)
		err = hoist_buffer_on_stream(made, stream, &b);
	if (err == 0)
		err = hoist_buffer_fill_on(b, &seven, 1, stream);
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
	if (err == 0)
		err = hoist_stream_create(device, &consumer);
	if (err == 0)
		err = buffer_on(producer, kind, &b);
	if (err == 0)
		err = hoist_stream_to_dlpack(consumer, &options.stream);
	if (err == 0)
		err = hoist_buffer_to_dlpack(b, &options, &tensor);
	if (err == 0) {
		err = hoist_buffer_from_dlpack(tensor, consumer, copy ? HOIST_DLPACK_COPY : 0,
					       &back);
		if (err < 0)
			hoist_dlpack_release(tensor);
	}
	if (err == 0)
		err = hoist_stream_synchronize(consumer);
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
	if (err == 0)
		err = buffer_on(producer, 0, &b);
	if (err == 0)
		err = hoist_buffer_to_cai(b, &cai);
	if (err == 0)
		err = hoist_stream_create(device, &consumer);
	if (err == 0)
		err = hoist_buffer_from_cai(&cai, &owner, consumer, 0, &back);
	if (released != 0)
		lib_die("released by a call that gave %d", err);
	hoist_buffer_unref(back);
	if (released != (back != NULL))
		lib_die("released %u times", released);
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

static int use_all(void)
{
	int err = take_offer(0);
	if (err == 0)
		err = take_offer(HOIST_DLPACK_COPY);
	for (int i = 1; err == 0 && i < LIB_N_DEVICES; i += 2) {
		err = go_round(devices[i], 0, HOIST_DLPACK_COPY_IF_NEEDED);
		if (err == 0)
			err = go_round(devices[i], HOIST_BUFFER_PINNED, HOIST_DLPACK_COPY_ALWAYS);
		if (err == 0)
			err = by_cai(devices[i]);
	}
	if (err == 0)
		err = by_table((hoist_dl_device){HOIST_DL_CPU, 0});
	if (err == 0)
		err = by_table((hoist_dl_device){HOIST_DL_CUDA_MANAGED, 0});
	return err;
}

static void run_once(const char *what, unsigned long n)
{
	int err = use_all();
	if (err != 0 && !lib_is_failure(err))
		lib_die("%s %lu: an unexpected error, %d", what, n, err);
	if (err != 0 && hoist_error()[0] == '\0')
		lib_die("%s %lu: no text", what, n);
}

static void must_work(const char *what, unsigned long n)
{
	int err = use_all();
	if (err != 0)
		lib_die("after %s %lu: does not work any more: %d", what, n, err);
	if (!lib_nothing_outstanding(devices) || !lib_drivers_content())
		lib_die("after %s %lu: something is left", what, n);
}

static void sweep_driver(const char *api)
{
	unsigned long n = 1;
	for (; n < MANY; n++) {
		char fault[64];
		(void)snprintf(fault, sizeof fault, "any:%lu", n);
		if (lib_fail(api, fault) != 0)
			lib_die("%s: %s is not understood", api, fault);
		uint64_t before = lib_counters(api).injected_failures;
		run_once(fault, n);
		bool struck = lib_counters(api).injected_failures != before;
		if (!lib_nothing_outstanding(devices) || !lib_drivers_content())
			lib_die("%s %s: something is left", api, fault);
		lib_reset(api);
		if (!struck)
			break;
	}
	if (n == MANY || n < 10)
		lib_die("%s: the sweep ended at %lu", api, n);
	must_work(api, n);
	printf("%s: %lu driver calls failed in turn\n", api, n - 1);
}

/* Where hoist was never used before. */
static void run_alone(unsigned long n)
{
	lib_fail_allocation(n);
	int err = open_devices();
	if (err == 0)
		run_once("allocation", n);
	else if (!lib_is_failure(err))
		lib_die("allocation %lu: opening: %d", n, err);
	lib_fail_allocation(0);
	/* A driver that could not be opened stays so: that is remembered. */
	if (err == 0 || open_devices() == 0)
		must_work("allocation", n);
}

/* proves: S5.04 S5.06 */
int main(void)
{
	if (!lib_emulate()) {
		printf("skipped: the emulators are not built\n");
		return 77;
	}
	(void)fflush(stdout);
	lib_sweep_allocations(run_alone, MANY);
	if (open_devices() != 0)
		lib_die("opening the devices");
	must_work("nothing", 0);
	sweep_driver("cuda");
	sweep_driver("hip");
	return 0;
}
