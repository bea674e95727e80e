/* SPDX-License-Identifier: MIT */
/* tests/support/lib-ipc.h - pairs of processes, one that exports and one that imports, for tests
 * that are programs of their own.  Both are children of a process that opens nothing. */
#ifndef HOIST_TESTS_LIB_IPC_H
#define HOIST_TESTS_LIB_IPC_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hoist/ipc.h"
#include "tests/support/check.h"
#include "tests/support/child.h"
#include "tests/support/lib-make.h"
#include "tests/support/lib-support.h"
#include "tests/support/under-tsan.h"

/* A call that must fail with @code and a text that contains @words. */
#define REFUSED(call, code, words)                                                                 \
	do {                                                                                       \
		CHECK((call) == (code));                                                           \
		CHECK(strstr(hoist_error(), words) != NULL);                                       \
	} while (0)

#define N 3000 /* elements of u16 */
#define BYTES (2 * (size_t)N)
#define ANY_TIME 20000

static const char *spec; /* the pair's device */
static hoist_device *device;
static int peer;

/* --- the two processes --- */

static inline void tell(void)
{
	CHECK(write(peer, "d", 1) == 1);
}

static inline void hear(void)
{
	char word = 0;
	CHECK(recv(peer, &word, 1, 0) == 1 && word == 'd');
}

static inline void run_side(int socket, void (*body)(void))
{
	peer = socket;
	alarm(60);
	device = open_device(spec);
	body();
	hoist_device_unref(device);
	exit(0);
}

static inline void run_pair_over(int type, const char *on, void (*exporter)(void),
				 void (*importer)(void))
{
	int sockets[2];
	pid_t children[2];
	spec = on;
	OK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sockets));
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			close(sockets[!i]);
			run_side(sockets[i], i == 0 ? exporter : importer);
		}
	}
	close(sockets[0]);
	close(sockets[1]);
	for (int i = 0; i < 2; i++)
		CHECK(child_status(children[i]) == 0);
}

static inline void run_pair(const char *on, void (*exporter)(void), void (*importer)(void))
{
	run_pair_over(SOCK_STREAM, on, exporter, importer);
}

/* --- bytes --- */

static inline void make_pattern(unsigned seed, unsigned char *bytes)
{
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)(i * 7 + (i >> 8) + seed);
}

static inline void write_pattern(hoist_buffer *buffer, unsigned seed)
{
	unsigned char bytes[BYTES];
	make_pattern(seed, bytes);
	OK(hoist_buffer_write(buffer, 0, bytes, BYTES));
}

static inline void check_pattern(hoist_buffer *buffer, unsigned seed)
{
	unsigned char expected[BYTES];
	unsigned char bytes[BYTES];
	make_pattern(seed, expected);
	OK(hoist_buffer_read(buffer, 0, bytes, BYTES));
	CHECK(memcmp(bytes, expected, BYTES) == 0);
}

static inline hoist_buffer *make_numbers(hoist_device *on, unsigned flags)
{
	return make_buffer(on, HOIST_U16, 1, SHAPE(N), flags);
}

static inline hoist_buffer *make_from(hoist_memory *memory)
{
	return make_buffer_from(memory, NULL, HOIST_U16, 1, SHAPE(N), 0);
}

static inline hoist_buffer *get(void)
{
	hoist_buffer *got = NULL;
	OK(hoist_ipc_receive(peer, ANY_TIME, &got));
	return got;
}

static inline hoist_memory *make_pool(unsigned flags)
{
	return make_memory(
		OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .flags = flags, .device = device));
}

/* --- programs --- */

static inline bool has_real(const char *api)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		int n = 0;
		_exit(hoist_device_count(api, &n) == 0 ? 0 : 1);
	}
	return child_status(child) == 0;
}

/* Why there is nothing to test; NULL: there is. */
static inline const char *why_not(void)
{
	int fd = memfd_create("probe", MFD_CLOEXEC);
	if (fd < 0)
		return "memfd_create() is forbidden here";
	close(fd);
	return UNDER_TSAN ? "ThreadSanitizer cannot start threads in a child of fork" : NULL;
}

/* @run_device for each device there is: real ones, and the stand-ins'. */
static inline int run_devices(void (*run_device)(const char *on, bool emulated))
{
	unsetenv("HOIST_EMULATE");
	if (has_real("cuda"))
		run_device("cuda:0", false);
	if (has_real("hip"))
		run_device("hip:0", false);
	if (!lib_emulate()) {
		printf("the stand-in drivers are not built\n");
		return 0;
	}
	run_device("cuda:1", true);
	run_device("hip:0", true);
	return 0;
}

#endif
