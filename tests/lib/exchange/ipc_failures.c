/* SPDX-License-Identifier: MIT */
/* Scenario of the failure sweep (tests/faults/sweep.h): memory is shared.  The imports come from a
 * process that is there all the time. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "hoist/ipc.h"
#include "tests/faults/sweep.h"

#define BYTES 3000

/* --- the other process --- */

struct offer {
	hoist_ipc_descriptor plain;
	hoist_ipc_descriptor pooled;
	int fd; /* of the pool: as the peer knows it, then our own */
};

static struct offer offers[2]; /* cuda, hip */
static const char *const specs[2] = {"cuda:0", "hip:0"};

static void make_offer(int i)
{
	const int64_t shape[] = {BYTES};
	hoist_device *device = NULL;
	hoist_memory *pool = NULL;
	hoist_buffer *plain = NULL;
	hoist_buffer *pooled = NULL;
	int none = -1;
	hoist_memory_options options = {.size = sizeof options,
					.kind = HOIST_MEMORY_DRIVER_POOL,
					.flags = HOIST_MEMORY_SHAREABLE};
	if (hoist_device_open(specs[i], &device) != 0)
		sweep_die("%s", specs[i]);
	options.device = device;
	if (hoist_buffer_create(device, HOIST_U8, 1, shape, HOIST_BUFFER_ZERO, &plain) != 0 ||
	    hoist_memory_create(&options, &pool) != 0 ||
	    hoist_buffer_create_from(pool, NULL, HOIST_U8, 1, shape, 0, &pooled) != 0 ||
	    hoist_ipc_export(plain, &offers[i].plain, &none) != 0 ||
	    hoist_ipc_export(pooled, &offers[i].pooled, &offers[i].fd) != 0)
		sweep_die("an offer on %s", specs[i]);
}

/* It ends with this process.  False: there is no memory to share. */
static bool start_peer(void)
{
	int told[2];
	int ended[2];
	int fd = memfd_create("probe", MFD_CLOEXEC);
	if (fd < 0)
		return false;
	close(fd);
	if (sweep_peer != 0)
		return true;
	if (pipe2(told, O_CLOEXEC) < 0 || pipe2(ended, O_CLOEXEC) < 0)
		sweep_die("pipe");
	sweep_peer = fork();
	if (sweep_peer < 0)
		sweep_die("fork");
	if (sweep_peer == 0) {
		char byte = 0;
		close(ended[1]);
		make_offer(0);
		make_offer(1);
		if (write(told[1], offers, sizeof offers) != (ssize_t)sizeof offers)
			_exit(1);
		(void)!read(ended[0], &byte, 1);
		_exit(0);
	}
	close(told[1]);
	close(ended[0]);
	for (size_t got = 0; got < sizeof offers;) {
		ssize_t n = read(told[0], (char *)offers + got, sizeof offers - got);
		if (n <= 0)
			sweep_die("the peer has ended");
		got += (size_t)n;
	}
	close(told[0]);
	for (int i = 0; i < 2; i++) {
		char path[64];
		(void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)sweep_peer, offers[i].fd);
		offers[i].fd = open(path, O_RDONLY | O_CLOEXEC);
		if (offers[i].fd < 0)
			sweep_die("%s", path);
	}
	return true;
}

/* --- the scenario --- */

static int ends[2];

static int read_and_drop(hoist_buffer *buffer, int err)
{
	unsigned char bytes[BYTES];
	STEP(err, hoist_buffer_read(buffer, 0, bytes, BYTES));
	hoist_buffer_unref(buffer);
	return err;
}

/* Imports the peer's memory twice; the second time, its resource is found by name. */
static int import_offer(const struct offer *offer)
{
	hoist_buffer *buffers[3] = {NULL, NULL, NULL};
	int err = hoist_ipc_import(&offer->plain, sizeof offer->plain, -1, NULL, &buffers[0]);
	STEP(err,
	     hoist_ipc_import(&offer->pooled, sizeof offer->pooled, offer->fd, NULL, &buffers[1]));
	STEP(err, hoist_ipc_import(&offer->pooled, sizeof offer->pooled, -1, NULL, &buffers[2]));
	for (int i = 0; i < 3; i++)
		err = read_and_drop(buffers[i], err);
	return err;
}

/* Over a socket to this process itself. */
static int pass(hoist_buffer *buffer)
{
	hoist_buffer *got = NULL;
	char rest[sizeof(hoist_ipc_descriptor)];
	int err = hoist_ipc_send(ends[0], buffer, 1000);
	STEP(err, hoist_ipc_receive(ends[1], 1000, &got));
	while (recv(ends[1], rest, sizeof rest, MSG_DONTWAIT) > 0)
		;
	return read_and_drop(got, err);
}

static int pass_new(hoist_device *device, hoist_memory *memory, unsigned flags)
{
	const int64_t shape[] = {BYTES};
	hoist_buffer *buffer = NULL;
	int err = memory != NULL ? hoist_buffer_create_from(memory, NULL, HOIST_U8, 1, shape, flags,
							    &buffer)
				 : hoist_buffer_create(device, HOIST_U8, 1, shape, flags, &buffer);
	STEP(err, pass(buffer));
	hoist_buffer_unref(buffer);
	return err;
}

static void prepare(void)
{
	sweep_need_devices();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		sweep_die("socketpair");
}

static int memory_is_shared(void)
{
	hoist_device *device = sweep_devices[sweep_device];
	hoist_memory *pool = NULL;
	const hoist_memory_options options = {.size = sizeof options,
					      .kind = HOIST_MEMORY_DRIVER_POOL,
					      .flags = HOIST_MEMORY_SHAREABLE,
					      .device = device};
	int err = pass_new(sweep_devices[0], NULL, HOIST_BUFFER_SHAREABLE);
	STEP(err, pass_new(device, NULL, 0));
	STEP(err, hoist_memory_create(&options, &pool));
	STEP(err, pass_new(device, pool, 0));
	hoist_memory_unref(pool);
	return err == 0 ? import_offer(&offers[sweep_device == 3]) : err;
}

const struct sweep_scenario sweep_lib_ipc[] = {
	SWEEP_BOTH("lib-ipc", 1, 3, .set_up = start_peer, .prepare = prepare,
		   .run = memory_is_shared, .check = sweep_check_devices),
	{.name = NULL},
};
