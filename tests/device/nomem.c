/* SPDX-License-Identifier: MIT */
/* Work on streams while host memory runs out: each allocation of device/ fails in turn.  Work that
 * could not be queued has not begun, its call is not made, and the stream goes on.  Plain C; exit:
 * 0, 1. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "device/device.h"
#include "tests/support/check.h"
#include "tests/support/emulator-driver.h"
#include "tests/support/failing-calls.h"

static int n_called;

static int count(void *context)
{
	(void)context;
	n_called++;
	return 0;
}

static int fails(void *context)
{
	n_called++;
	return hoist__fail(-EILSEQ, "call %d", *(int *)context);
}

enum { N_STEPS = 6 };

/* One thing after the other on a stream of its own: *accepted has a bit for each that was. */
static int work(struct hoist__dev *dev, uintptr_t memory, unsigned *accepted)
{
	struct hoist__dev_stream *stream = NULL;
	const struct hoist__box box = {
		.dst = memory,
		.src = memory + 4096,
		.width = 3,
		.rows = 2,
		.planes = 1,
		.dst_pitch = 5,
		.src_pitch = 6,
	};
	static int which = 3;
	int err = hoist__dev_stream_create(dev, &stream);
	if (err < 0)
		return err;
	int results[N_STEPS];
	n_called = 0;
	results[0] = hoist__fill_async(stream, memory, 1, 1, 8192);
	results[1] = hoist__copy_box_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, &box);
	results[2] = hoist__dev_stream_call(stream, count, NULL);
	results[3] = hoist__dev_stream_call(stream, fails, &which);
	results[4] = hoist__dev_stream_call(stream, count, NULL);
	results[5] = hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, memory, memory + 4096,
				       4096);
	*accepted = 0;
	for (int i = 0; i < N_STEPS; i++) {
		*accepted |= (unsigned)(results[i] == 0) << i;
		err = err < 0 ? err : results[i];
	}
	int done = hoist__dev_stream_synchronize(stream);
	CHECK(done == (results[3] == 0 ? -EILSEQ : 0));
	CHECK(done == 0 || strcmp(hoist__error_text(), "call 3") == 0);
	CHECK(n_called == (results[2] == 0) + (results[3] == 0) + (results[4] == 0));
	CHECK(hoist__dev_stream_query(stream) == 0);
	hoist__dev_stream_destroy(stream);
	return err;
}

static void sweep(enum hoist__api api)
{
	struct hoist__dev *dev = NULL;
	uintptr_t memory = 0;
	unsigned accepted = 0;
	unsigned long n = 0;
	CHECK(hoist__dev_get(api, 0, &dev) == 0);
	CHECK(hoist__dev_mem_alloc(dev, 8192, &memory) == 0);
	for (bool over = false; !over; n++) {
		CHECK(n < 50);
		failing.n_calls = 0;
		failing.at = (long)n + 1;
		int err = work(dev, memory, &accepted);
		over = !failing_is_over();
		failing.at = 0;
		CHECK(err == (over ? 0 : -ENOMEM));
	}
	CHECK(accepted == (1u << N_STEPS) - 1);
	CHECK(hoist__dev_mem_free(dev, memory, 8192) == 0);
	printf("%s: %lu allocations\n", hoist__api_name(api), n - 1);
	CHECK(n > (api == HOIST__API_CPU ? 8 : 4));
}

int main(void)
{
	failing.kinds = FAIL_ALLOCATIONS;
	sweep(HOIST__API_CPU);
	if (!have_stand_ins()) {
		printf("no stand-ins: the CPU alone\n");
		return 0;
	}
	setenv("HOIST_EMULATE", "cuda:1,hip:1", 1);
	sweep(HOIST__API_CUDA);
	sweep(HOIST__API_HIP);
	return 0;
}
