/* SPDX-License-Identifier: MIT */
/* Every allocation of hoist's own and every driver call of a scenario that shares memory fails
 * once, in turn: the scenario says so, nothing stays open, and the next one works.  What is
 * imported comes from a process that is there all the time. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "hoist/ipc.h"
#include "tests/support/count.h"
#include "tests/support/lib-failing.h"
#include "tests/support/lib-support.h"
#include "tests/support/patience.h"

#define MANY 5000
#define BYTES 3000

/* --- the other process --- */

struct offer {
	hoist_ipc_descriptor plain;
	hoist_ipc_descriptor pooled;
	int fd; /* of the pool: as the peer knows it, then our own */
};

static struct offer offers[2]; /* cuda, hip */
static const char *const specs[2] = {"cuda:0", "hip:0"};
static const char *const apis[2] = {"cuda", "hip"};

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
		lib_die("%s", specs[i]);
	options.device = device;
	if (hoist_buffer_create(device, HOIST_U8, 1, shape, HOIST_BUFFER_ZERO, &plain) != 0 ||
	    hoist_memory_create(&options, &pool) != 0 ||
	    hoist_buffer_create_from(pool, NULL, HOIST_U8, 1, shape, 0, &pooled) != 0 ||
	    hoist_ipc_export(plain, &offers[i].plain, &none) != 0 ||
	    hoist_ipc_export(pooled, &offers[i].pooled, &offers[i].fd) != 0)
		lib_die("an offer on %s", specs[i]);
}

/* It ends with this process. */
static void start_peer(void)
{
	int told[2];
	int ended[2];
	if (pipe2(told, O_CLOEXEC) < 0 || pipe2(ended, O_CLOEXEC) < 0)
		lib_die("pipe");
	pid_t pid = fork();
	if (pid < 0)
		lib_die("fork");
	if (pid == 0) {
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
			lib_die("the peer has ended");
		got += (size_t)n;
	}
	close(told[0]);
	for (int i = 0; i < 2; i++) {
		char path[64];
		(void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, offers[i].fd);
		offers[i].fd = open(path, O_RDONLY | O_CLOEXEC);
		if (offers[i].fd < 0)
			lib_die("%s", path);
	}
}

/* --- the scenario --- */

static hoist_device *devices[LIB_N_DEVICES];
static int ends[2];

static int read_and_drop(hoist_buffer *buffer, int err)
{
	unsigned char bytes[BYTES];
	if (err == 0)
		err = hoist_buffer_read(buffer, 0, bytes, BYTES);
	hoist_buffer_unref(buffer);
	return err;
}

/* Of the peer: twice, with its resource found by name the second time. */
static int import_offer(const struct offer *offer)
{
	hoist_buffer *buffers[3] = {NULL, NULL, NULL};
	int err = hoist_ipc_import(&offer->plain, sizeof offer->plain, -1, NULL, &buffers[0]);
	if (err == 0)
		err = hoist_ipc_import(&offer->pooled, sizeof offer->pooled, offer->fd, NULL,
				       &buffers[1]);
	if (err == 0)
		err = hoist_ipc_import(&offer->pooled, sizeof offer->pooled, -1, NULL, &buffers[2]);
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
	if (err == 0)
		err = hoist_ipc_receive(ends[1], 1000, &got);
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
	if (err == 0)
		err = pass(buffer);
	hoist_buffer_unref(buffer);
	return err;
}

static int run(int i)
{
	hoist_device *device = devices[i == 0 ? 1 : 3];
	hoist_memory *pool = NULL;
	const hoist_memory_options options = {.size = sizeof options,
					      .kind = HOIST_MEMORY_DRIVER_POOL,
					      .flags = HOIST_MEMORY_SHAREABLE,
					      .device = device};
	int err = pass_new(devices[0], NULL, HOIST_BUFFER_SHAREABLE);
	if (err == 0)
		err = pass_new(device, NULL, 0);
	if (err == 0)
		err = hoist_memory_create(&options, &pool);
	if (err == 0)
		err = pass_new(device, pool, 0);
	hoist_memory_unref(pool);
	return err == 0 ? import_offer(&offers[i]) : err;
}

/* --- sweeps --- */

/* A stream that could not be waited for before it was destroyed frees a little later. */
static void check_clean(const char *what, unsigned long n, unsigned n_fds)
{
	for (uint64_t until = 0; !lib_nothing_outstanding(devices);)
		if (!patience(&until))
			lib_die("%s %lu: something is left", what, n);
	for (int i = 0; i < 2; i++)
		if (lib_counters(apis[i]).live_imports != 0)
			lib_die("%s %lu: an import stays open", what, n);
	if (!lib_drivers_content())
		lib_die("%s %lu: the drivers saw a misuse", what, n);
	/* The stand-in keeps one for the device whose memory it shares. */
	if (count_entries("/proc/self/fd") > n_fds)
		lib_die("%s %lu: a file descriptor is left: %u, not %u", what, n,
			count_entries("/proc/self/fd"), n_fds);
}

static void sweep_driver(int i)
{
	unsigned long n = 1;
	unsigned n_fds = count_entries("/proc/self/fd");
	for (; n < MANY; n++) {
		char fault[64];
		(void)snprintf(fault, sizeof fault, "any:%lu", n);
		if (lib_fail(apis[i], fault) != 0)
			lib_die("%s is not understood", fault);
		int err = run(i);
		if (err != 0 && (!lib_is_failure(err) || hoist_error()[0] == '\0'))
			lib_die("%s %s: an unexpected error, %d", apis[i], fault, err);
		bool struck = lib_counters(apis[i]).injected_failures != 0;
		check_clean(fault, n, n_fds);
		lib_reset(apis[i]);
		if (!struck)
			break;
	}
	if (n == MANY || n < 20)
		lib_die("%s: the sweep ended at %lu", apis[i], n);
	if (run(i) != 0)
		lib_die("%s: does not work any more", apis[i]);
	printf("%s: %lu calls failed in turn\n", apis[i], n - 1);
}

static void open_all(void)
{
	lib_open_all(devices);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		lib_die("socketpair");
}

static void run_alone(unsigned long n)
{
	open_all();
	unsigned n_fds = count_entries("/proc/self/fd") + 2;
	lib_fail_allocation(n);
	int err = run(0);
	lib_fail_allocation(0);
	if (err != 0 && !lib_is_failure(err))
		lib_die("allocation %lu: an unexpected error, %d", n, err);
	check_clean("allocation", n, n_fds);
	if (run(0) != 0)
		lib_die("after allocation %lu: does not work any more", n);
	check_clean("after allocation", n, n_fds);
}

int main(void)
{
	int fd = memfd_create("probe", MFD_CLOEXEC);
	if (fd < 0 || !lib_emulate()) {
		printf("skipped: no memfd_create(), or the emulators are not built\n");
		return 77;
	}
	close(fd);
	start_peer();
	(void)fflush(stdout);
	setenv("HOIST_EMULATE_LATENCY", "0", 1);
	lib_sweep_allocations(run_alone, MANY);
	open_all();
	if (run(0) != 0 || run(1) != 0)
		lib_die("without failures");
	sweep_driver(0);
	sweep_driver(1);
	return 0;
}
