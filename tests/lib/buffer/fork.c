/* SPDX-License-Identifier: MIT */
/* Views of one storage, over another one. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "tests/support/lib-unit.h"

#define N 3

static void drop(hoist_buffer **buffers)
{
	for (int i = 0; i < N; i++)
		hoist_buffer_unref(buffers[i]);
}

/* The whole of 4 x 6 bytes that count, two rows of it from behind, and one byte. */
static void make(hoist_device *device, unsigned flags, hoist_buffer **ret)
{
	unsigned char bytes[24];
	const hoist_slice rows[] = {HOIST_STEP(2, 0, -1), HOIST_RANGE(1, 4)};
	const hoist_slice one[] = {HOIST_AT(3), HOIST_AT(5)};
	for (unsigned i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)i;
	OK(hoist_buffer_create(device, HOIST_U8, 2, SHAPE(4, 6), flags, &ret[0]));
	OK(hoist_buffer_slice(ret[0], 2, rows, &ret[1]));
	OK(hoist_buffer_slice(ret[0], 2, one, &ret[2]));
	if (!(flags & HOIST_BUFFER_LAZY))
		OK(hoist_buffer_copy_in(ret[0], bytes, sizeof bytes));
}

/* proves: S4.24 S4.05 */
Test(fork, has_the_same_windows_over_memory_of_its_own, .init = open_all)
{
	for (int i = 0; i < 2 * LIB_N_DEVICES; i++) {
		hoist_buffer *old[N];
		hoist_buffer *new[N];
		unsigned char seen[6];
		make(devices[i / 2], i % 2 ? HOIST_BUFFER_PINNED : 0, old);
		OK(hoist_buffer_freeze(old[0]));
		OK(hoist_buffer_fork(N, old, 1, new));
		for (int k = 0; k < N; k++) {
			hoist_buffer_info was = info_of(old[k]);
			hoist_buffer_info is = info_of(new[k]);
			cr_expect_neq(is.id, was.id);
			cr_expect_neq(is.storage_id, was.storage_id);
			cr_expect_eq(is.storage_id, info_of(new[0]).storage_id);
			cr_expect_eq(is.storage_bytes, was.storage_bytes);
			cr_expect_eq(is.offset, was.offset);
			cr_expect_eq(is.memory, was.memory);
			cr_expect_eq(is.is_read_only, 0);
			cr_expect_eq(hoist_buffer_device(new[k]), devices[i / 2]);
			cr_expect_eq(hoist_buffer_is_pinned(new[k]), i % 2);
		}
		OK(hoist_buffer_fill(new[2], "\xff", 1));
		OK(hoist_buffer_copy_out(old[2], seen, 1));
		cr_expect_eq(seen[0], 23, "the old storage keeps its bytes");
		drop(old);
		OK(hoist_buffer_copy_out(new[1], seen, sizeof seen));
		cr_expect_arr_eq(seen, ((unsigned char[]){13, 14, 15, 7, 8, 9}), sizeof seen);
		OK(hoist_buffer_read(new[0], 23, seen, 1));
		cr_expect_eq(seen[0], 0xff, "the new views share one storage");
		drop(new);
	}
	expect_all_given_back();
}

/* proves: S4.24 */
Test(fork, lazy_buffers_get_lazy_copies, .init = open_all)
{
	hoist_buffer *old[N];
	hoist_buffer *new[N];
	unsigned char seen[24];
	make(devices[1], HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO, old);
	OK(hoist_buffer_fork(N, old, 0, new));
	cr_expect_eq(info_of(old[0]).is_allocated, 0);
	cr_expect_eq(info_of(new[0]).is_allocated, 0);
	drop(new);
	OK(hoist_buffer_fork(N, old, 1, new));
	OK(hoist_buffer_copy_out(new[0], seen, sizeof seen));
	cr_expect_arr_eq(seen, (unsigned char[24]){0}, sizeof seen);
	drop(new);
	drop(old);

	static unsigned char data[24] = {5};
	OK(hoist_buffer_wrap(
		SOURCE(.address = (uintptr_t)data, .bytes = sizeof data, .is_read_only = 1),
		HOIST_U8, 1, SHAPE(24), NULL, &old[0]));
	OK(hoist_buffer_fork(1, old, 1, new));
	cr_expect_neq(hoist_buffer_data(new[0]), data);
	cr_expect_eq(((const unsigned char *)hoist_buffer_data(new[0]))[0], 5);
	cr_expect_eq(info_of(new[0]).is_read_only, 0);
	DROP(new[0], old[0]);

	OK(hoist_buffer_create(devices[1], HOIST_F32, 1, SHAPE(0), 0, &old[0]));
	OK(hoist_buffer_fork(1, old, 1, new));
	cr_expect_eq(hoist_buffer_elements(new[0]), 0);
	DROP(new[0], old[0]);
	cr_assert(lib_nothing_outstanding(devices));
}

/* proves: S4.24 */
Test(fork, several_storages_are_refused, .init = open_all)
{
	hoist_buffer *a[N];
	hoist_buffer *b[N];
	hoist_buffer *made[2] = {NULL, NULL};
	make(devices[0], 0, a);
	make(devices[0], 0, b);
	hoist_buffer *pair[] = {a[1], b[0]};
	REFUSED(hoist_buffer_fork(2, pair, 1, made), -EINVAL, "buffer 1 to fork is over storage");
	pair[1] = NULL;
	cr_expect_eq(hoist_buffer_fork(2, pair, 1, made), -EINVAL);
	cr_expect_eq(hoist_buffer_fork(2, NULL, 1, made), -EINVAL);
	cr_expect_eq(hoist_buffer_fork(1, pair, 1, NULL), -EINVAL);
	OK(hoist_buffer_fork(0, NULL, 1, NULL));
	hoist_buffer_close(b[0], NULL);
	pair[1] = b[0];
	cr_expect_eq(hoist_buffer_fork(2, pair, 1, made), -EBADF);
	cr_expect_null(made[0]);
	drop(a);
	drop(b);
}
