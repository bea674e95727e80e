/* SPDX-License-Identifier: MIT */
/* The two sides of ipc.c: an exporter and an importer, each a process with a device, a stream, and
 * bytes with a pattern, and their words to each other. */
#ifndef HOIST_TESTS_DEVICE_IPC_SIDES_H
#define HOIST_TESTS_DEVICE_IPC_SIDES_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "device/ipc.h"
#include "tests/support/check.h"
#include "tests/support/emulator-driver.h"
#include "tests/support/pass-fd.h"

/* Not whole pages, and not at their beginning: the stand-ins place blocks at multiples of 512. */
#define BYTES ((size_t)70000)

static struct hoist__dev *dev;
static struct hoist__dev_stream *stream;
static struct control control; /* of a stand-in */
static unsigned char *host;    /* registered; BYTES */
static int peer;

/* --- the two processes --- */

struct message {
	struct hoist__ipc_handle handle;
	size_t offset;
};

static inline void tell(const void *data, size_t bytes)
{
	CHECK(write(peer, data, bytes) == (ssize_t)bytes);
}

static inline void hear(void *data, size_t bytes)
{
	CHECK(recv(peer, data, bytes, MSG_WAITALL) == (ssize_t)bytes);
}

static inline void tell_done(void)
{
	tell("d", 1);
}

static inline void hear_done(void)
{
	char word = 0;
	hear(&word, 1);
	CHECK(word == 'd');
}

/* --- devices --- */

static inline void open_device(enum hoist__api api)
{
	OK(hoist__dev_get(api, 0, &dev));
	if (hoist__api_emulated(api))
		control_of(api, &control);
	OK(hoist__dev_stream_create(dev, &stream));
	host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(host != MAP_FAILED);
	OK(hoist__dev_host_register(dev, host, BYTES));
}

static inline void close_device(void)
{
	OK(hoist__dev_host_unregister(dev, host, BYTES));
	hoist__dev_stream_destroy(stream);
	if (!hoist__api_emulated(hoist__dev_api(dev)))
		return;
	struct hoist_emulator_counters left = counters_of(&control);
	CHECK(left.live_imports == 0 && left.live_allocations == 0 && left.live_pools == 0);
	CHECK(left.use_after_free == 0 && left.bad_frees == 0);
}

static inline void copy(enum hoist__copy kind, uintptr_t dst, uintptr_t src)
{
	OK(hoist__copy_async(stream, kind, dst, src, BYTES));
	OK(hoist__dev_stream_synchronize(stream));
}

static inline unsigned char pattern(size_t i, unsigned seed)
{
	return (unsigned char)(i * 31 + (i >> 8) + seed);
}

static inline void write_pattern(uintptr_t address, unsigned seed)
{
	for (size_t i = 0; i < BYTES; i++)
		host[i] = pattern(i, seed);
	copy(HOIST__COPY_HOST_TO_DEVICE, address, (uintptr_t)host);
}

static inline void check_pattern(uintptr_t address, unsigned seed)
{
	memset(host, 0, BYTES);
	copy(HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)host, address);
	for (size_t i = 0; i < BYTES; i++)
		CHECK(host[i] == pattern(i, seed));
}

static inline void run_side(enum hoist__api api, int socket, void (*body)(void))
{
	peer = socket;
	alarm(60);
	open_device(api);
	body();
	close_device();
	exit(0);
}

static inline void run_pair(enum hoist__api api, void (*exporter)(void), void (*importer)(void))
{
	int sockets[2];
	pid_t children[2];
	OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets));
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			close(sockets[!i]);
			run_side(api, sockets[i], i == 0 ? exporter : importer);
		}
	}
	close(sockets[0]);
	close(sockets[1]);
	for (int i = 0; i < 2; i++) {
		int status = -1;
		CHECK(waitpid(children[i], &status, 0) == children[i]);
		CHECK(status == 0);
	}
}

#endif
