/* SPDX-License-Identifier: MIT */
/* Copies to a device, to a stream, and to several, made only where they are needed. */
#include "config.h"

#include <errno.h>

#include "hoist/compat.h"
#include "tests/lib/copy/places.h"

/* proves: S0.22 S0.24 S0.25 V031 V034 V086 V091 V099 */
Test(copy_to, a_device_is_made_only_if_needed, .init = open_places)
{
	hoist_buffer *host = create_counting(devices[0], 1, SHAPE(3), 5);
	hoist_buffer *same[2] = {NULL};
	OK(hoist_buffer_to(host, devices[0], &same[0]));
	OK(hoist_buffer_to_all(host, 1, &devices[0], &same[1]));
	cr_expect_eq(same[0], host, "V031");
	cr_expect_eq(same[1], host, "V031");
	drop_buffers(same, 2);
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_buffer *there = NULL;
		hoist_buffer *back = NULL;
		OK(hoist_buffer_to(host, devices[i], &there));
		OK(hoist_buffer_to(there, devices[0], &back));
		cr_expect_eq(hoist_buffer_device(there), devices[i], "V086");
		cr_expect_eq(hoist_buffer_device(host), devices[0]);
		cr_expect_not(hoist_buffer_is_pinned(there), "V034");
		cr_expect_not(hoist_buffer_is_pinned(back), "V034");
		expect_values(back, (const int32_t[]){5, 6, 7}, 3); /* V091 */
		DROP(there, back);
	}
	/* V099 */
	hoist_buffer *gpu = NULL;
	hoist_buffer *all[3] = {NULL};
	OK(hoist_buffer_to(host, devices[1], &gpu));
	OK(hoist_buffer_to_all(gpu, 3, devices, all));
	for (int i = 0; i < 3; i++)
		cr_expect_eq(hoist_buffer_device(all[i]), devices[i], "V099");
	cr_expect_eq(all[1], gpu);
	expect_values(all[2], (const int32_t[]){5, 6, 7}, 3);
	drop_buffers(all, 3);
	DROP(gpu, host);
	close_places();
}

/* proves: S0.25 S0.23 */
Test(copy_to, pinned_memory_is_copied_into_its_own_device, .init = open_places)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_buffer *made = NULL;
		hoist_buffer *on = NULL;
		hoist_buffer *pinned =
			make_buffer(devices[i], HOIST_I32, 1, SHAPE(3), HOIST_BUFFER_PINNED);
		OK(hoist_buffer_copy_in(pinned, (const int32_t[]){1, 2, 3}, 12));
		OK(hoist_buffer_to(pinned, devices[i], &made));
		cr_expect_neq(made, pinned);
		cr_expect_not(hoist_buffer_is_pinned(made));
		cr_expect_eq(hoist_buffer_device(made), devices[i]);
		expect_values(made, (const int32_t[]){1, 2, 3}, 3);
		/* Another stream never copies. */
		hoist_stream *stream = places[2 + 3 * (i - 1)].stream;
		OK(hoist_buffer_to_stream(pinned, stream, &on));
		cr_expect(hoist_buffer_is_pinned(on));
		cr_expect_eq(hoist_buffer_data(on), hoist_buffer_data(pinned));
		DROP(pinned, made, on);
	}
	close_places();
}

/* proves: S0.24 */
Test(copy_to, a_stream_is_made_only_for_another_device, .init = open_places)
{
	hoist_stream *streams[] = {places[2].stream, places[3].stream, places[5].stream,
				   places[0].stream};
	hoist_buffer *all[4] = {NULL};
	hoist_buffer *first = make_buffer_on(streams[0], HOIST_I32, 1, SHAPE(3), 0);
	OK(hoist_buffer_copy_in(first, (const int32_t[]){1, 2, 3}, 12));
	OK(hoist_buffer_to_streams(first, 4, streams, all));
	cr_expect_eq(all[0], first);
	cr_expect_neq(all[1], first);
	cr_expect_eq(hoist_buffer_address(all[1]), hoist_buffer_address(first));
	for (int i = 0; i < 4; i++) {
		hoist_stream *stream = stream_of(all[i]);
		cr_expect_eq(stream, streams[i]);
		cr_expect_eq(hoist_buffer_device(all[i]), hoist_stream_device(streams[i]));
		expect_values(all[i], (const int32_t[]){1, 2, 3}, 3);
	}
	drop_buffers(all, 4);
	hoist_buffer_unref(first);
	close_places();
}

/* proves: S0.24 */
Test(copy_to, a_list_is_all_or_nothing, .init = open_places)
{
	hoist_buffer *host = create_counting(devices[0], 1, SHAPE(3), 5);
	hoist_buffer *rets[2] = {NULL};
	hoist_device *const broken[] = {devices[1], NULL};
	REFUSED(hoist_buffer_to_all(host, 2, broken, rets), -EINVAL,
		"1 of 2: the device to bring a buffer to is NULL");
	cr_expect_null(rets[0]);
	cr_expect_eq(hoist_buffer_to_all(host, 2, NULL, rets), -EINVAL);
	cr_expect_eq(hoist_buffer_to_all(host, 0, NULL, NULL), 0, "none");
	OK(hoist_buffer_to_streams(host, 0, NULL, NULL));
	hoist_stream *const no_stream[] = {NULL};
	cr_expect_eq(hoist_buffer_to_streams(host, 1, no_stream, rets), -EINVAL);
	cr_expect_eq(hoist_buffer_to(host, NULL, rets), -EINVAL);
	cr_expect_eq(hoist_buffer_to(NULL, devices[0], rets), -EINVAL);
	hoist_buffer_unref(host);
	close_places();
}
