/* SPDX-License-Identifier: MIT */
/* tests/support/lib-ipc-message.h - a shareable buffer of the CPU's, its descriptor, and a pair of
 * sockets, for each test of what a peer may send. */
#ifndef HOIST_TESTS_LIB_IPC_MESSAGE_H
#define HOIST_TESTS_LIB_IPC_MESSAGE_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hoist/ipc.h"
#include "tests/support/count.h"
#include "tests/support/lib-unit.h"

#define N 5000
#define SOON 5000 /* ms: nothing waits as long */

static int ends[2]; /* a connected pair of sockets */
static hoist_buffer *buffer;
static hoist_ipc_descriptor good;
static int good_fd;
static unsigned n_open; /* file descriptors, before what the test does */

static inline void set_up_type(int type)
{
	const int64_t shape[] = {N};
	hoist_device *cpu = open_device("cpu");
	int probe = memfd_create("probe", MFD_CLOEXEC);
	if (probe < 0)
		cr_skip_test("memfd_create() is forbidden here");
	close(probe);
	cr_assert_eq(socketpair(AF_UNIX, type, 0, ends), 0);
	buffer = make_buffer(cpu, HOIST_U8, 1, shape, HOIST_BUFFER_SHAREABLE);
	OK(hoist_ipc_export(buffer, &good, &good_fd));
	memset(hoist_buffer_data(buffer), 0x33, N);
	n_open = count_entries("/proc/self/fd");
}

static inline void set_up(void)
{
	set_up_type(SOCK_STREAM);
}

static inline void tear_down(void)
{
	hoist_buffer_unref(buffer);
	close(good_fd);
	close(ends[0]);
	close(ends[1]);
}

static inline void import_refused(const hoist_ipc_descriptor *d, int fd, int code,
				  const char *words)
{
	hoist_buffer *got = NULL;
	REFUSED(hoist_ipc_import(d, sizeof *d, fd, NULL, &got), code, words);
	cr_expect_null(got);
}

#endif
