/* SPDX-License-Identifier: MIT */
/* Buffers that two processes use: host memory, device memory, pools.  On the stand-ins, and on the
 * real driver where there is one.  Exit: 0, 1, 77. */
#include "config.h"

#include "hoist/ipc.h"
#include "tests/support/lib-ipc.h"

/* --- both sides, with any kind of memory --- */

static void export_buffer(hoist_buffer *buffer)
{
	const hoist_slice part[] = {HOIST_STEP(2000, 500, -3)};
	hoist_buffer *view = NULL;
	hoist_buffer *back = NULL;
	write_pattern(buffer, 1);
	OK(hoist_ipc_send(peer, buffer, ANY_TIME));
	hear();
	check_pattern(buffer, 2);
	/* A view with negative strides, from the middle. */
	OK(hoist_buffer_slice(buffer, 1, part, &view));
	OK(hoist_ipc_send(peer, view, ANY_TIME));
	/* A buffer that comes back has this process's own address. */
	back = get();
	CHECK(hoist_buffer_address(back) == hoist_buffer_address(view));
	CHECK(hoist_buffer_strides(back)[0] == -3);
	hoist_buffer_unref(back);
	hoist_buffer_unref(view);
	hear();
	check_pattern(buffer, 3);
}

/* proves: S2.19 V157 */
static void import_buffer(void)
{
	hoist_buffer *got = get();
	hoist_buffer *again = NULL;
	CHECK(hoist_buffer_dtype(got) == HOIST_U16 && hoist_buffer_rank(got) == 1);
	CHECK(hoist_buffer_shape(got)[0] == N && hoist_buffer_is_contiguous(got));
	CHECK(hoist_buffer_device(got) == device);
	CHECK(info_of(got).is_mapped && !info_of(got).is_read_only);
	check_pattern(got, 1);
	write_pattern(got, 2);
	uintptr_t address = hoist_buffer_address(got);
	tell();
	hoist_buffer *view = get();
	CHECK(hoist_buffer_shape(view)[0] == 500 && hoist_buffer_strides(view)[0] == -3);
	/* One mapping, as long as any of them is open. */
	CHECK(hoist_buffer_address(view) == address + 2000 * 2);
	OK(hoist_ipc_send(peer, view, ANY_TIME));
	hoist_buffer_unref(view);
	again = hoist_buffer_ref(got);
	write_pattern(again, 3);
	hoist_buffer_unref(again);
	OK(hoist_buffer_close(got, NULL));
	hoist_buffer_unref(got);
	tell();
}

/* --- host memory --- */

static void export_host(void)
{
	hoist_buffer *buffer = make_numbers(device, HOIST_BUFFER_SHAREABLE);
	export_buffer(buffer);
	hoist_buffer_unref(buffer);
}

/* The exporter drops the buffer and ends: the bytes stay. Empty buffers travel as well. */
static void export_host_and_end(void)
{
	hoist_buffer *buffer = make_numbers(device, HOIST_BUFFER_SHAREABLE);
	hoist_buffer *empty = make_buffer(device, HOIST_F64, 2, SHAPE(4, 0), 0);
	write_pattern(buffer, 8);
	OK(hoist_ipc_send(peer, empty, ANY_TIME));
	OK(hoist_ipc_send(peer, buffer, ANY_TIME));
	hoist_buffer_unref(empty);
	hoist_buffer_unref(buffer);
}

static void import_host_that_ends(void)
{
	hoist_buffer *none = NULL;
	char end = 0;
	hoist_buffer *empty = get();
	CHECK(hoist_buffer_rank(empty) == 2 && hoist_buffer_shape(empty)[0] == 4);
	CHECK(hoist_buffer_elements(empty) == 0 && hoist_buffer_dtype(empty) == HOIST_F64);
	hoist_buffer *got = get();
	CHECK(recv(peer, &end, 1, 0) == 0);
	check_pattern(got, 8);
	write_pattern(got, 9);
	check_pattern(got, 9);
	hoist_buffer_unref(got);
	hoist_buffer_unref(empty);
	REFUSED(hoist_ipc_receive(peer, ANY_TIME, &none), -EPIPE, "closed");
	CHECK(none == NULL);
}

/* A frozen buffer is read-only for the importer, and in the kernel. */
static void export_frozen(void)
{
	hoist_ipc_descriptor d;
	int fd = -1;
	hoist_buffer *buffer = make_numbers(device, HOIST_BUFFER_SHAREABLE);
	write_pattern(buffer, 5);
	OK(hoist_buffer_freeze(buffer));
	OK(hoist_ipc_send(peer, buffer, ANY_TIME));
	OK(hoist_ipc_export(buffer, &d, &fd));
	CHECK((d.flags & HOIST_IPC_READ_ONLY) != 0);
	CHECK(mmap(NULL, BYTES, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	close(fd);
	hear();
	check_pattern(buffer, 5);
	hoist_buffer_unref(buffer);
}

static void import_frozen(void)
{
	unsigned char byte = 0;
	hoist_buffer *got = get();
	CHECK(info_of(got).is_read_only);
	check_pattern(got, 5);
	CHECK(hoist_buffer_write(got, 0, &byte, 1) == -EROFS);
	hoist_buffer_unref(got);
	tell();
}

/* --- device memory --- */

static void export_plain(void)
{
	hoist_buffer *neighbour = make_numbers(device, HOIST_BUFFER_ZERO);
	hoist_buffer *buffer = make_numbers(device, 0);
	unsigned char bytes[BYTES];
	unsigned char zeros[BYTES];
	export_buffer(buffer);
	memset(zeros, 0, BYTES);
	OK(hoist_buffer_read(neighbour, 0, bytes, BYTES));
	CHECK(memcmp(bytes, zeros, BYTES) == 0);
	hoist_buffer_unref(buffer);
	hoist_buffer_unref(neighbour);
}

/* proves: S2.22 */
static void export_pooled(void)
{
	hoist_memory *pool = make_pool(HOIST_MEMORY_SHAREABLE);
	hoist_memory_info info = memory_info_of(pool);
	CHECK(info.is_shareable && !info.is_mapped);
	hoist_buffer *buffer = make_from(pool);
	export_buffer(buffer);
	hoist_buffer_unref(buffer);
	hoist_memory_unref(pool);
}

/* Plain memory of the driver's whose regions come from a shareable pool. */
static void export_carved(void)
{
	hoist_memory *pool = make_pool(HOIST_MEMORY_SHAREABLE);
	hoist_memory *memory =
		make_memory(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .region_bytes = (size_t)4 << 20,
				    .device = device, .upstream = pool));
	hoist_buffer *buffer = make_from(memory);
	export_buffer(buffer);
	hoist_buffer_unref(buffer);
	hoist_memory_unref(memory);
	hoist_memory_unref(pool);
}

/* --- fork --- */

static void import_and_fork(void)
{
	hoist_buffer *none = NULL;
	hoist_buffer *got = get();
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		unsigned char byte = 0;
		hoist_ipc_descriptor d;
		CHECK(hoist_buffer_read(got, 0, &byte, 1) == -ESTALE);
		CHECK(hoist_ipc_export(got, &d, NULL) == -ESTALE);
		hoist_buffer_unref(got);
		_exit(0);
	}
	CHECK(child_status(child) == 0);
	check_pattern(got, 1); /* the import is still open */
	hoist_buffer_unref(got);
	CHECK(none == NULL);
	tell();
}

static void export_simply(void)
{
	hoist_buffer *buffer = make_numbers(device, 0);
	write_pattern(buffer, 1);
	OK(hoist_ipc_send(peer, buffer, ANY_TIME));
	hear();
	hoist_buffer_unref(buffer);
}

/* --- the program --- */

static void run_device(const char *on, bool emulated)
{
	(void)emulated;
	run_pair(on, export_plain, import_buffer);
	run_pair(on, export_pooled, import_buffer);
	run_pair(on, export_carved, import_buffer);
	run_pair(on, export_simply, import_and_fork);
}

int main(void)
{
	if (why_not() != NULL) {
		printf("skipped: %s\n", why_not());
		return 77;
	}
	unsetenv("HOIST_EMULATE");
	run_pair("cpu", export_host, import_buffer);
	run_pair_over(SOCK_SEQPACKET, "cpu", export_host, import_buffer);
	run_pair("cpu", export_host_and_end, import_host_that_ends);
	run_pair("cpu", export_frozen, import_frozen);
	return run_devices(run_device);
}
