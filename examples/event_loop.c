/* SPDX-License-Identifier: MIT */
/* event_loop MODEL [DEVICE]: a program with a loop of its own drives a load from that loop, without a
 * thread of the load's; here the loop's other work is a timer that reports progress.
 *
 *     cc event_loop.c $(pkg-config --cflags --libs hoist) -o event_loop
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <hoist/hoist.h>

static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hoist_error());
	exit(1);
}

/* The loop's other work: takes no time. */
static void on_timer(int timer, const hoist_load *load)
{
	struct pollfd event = {.fd = timer, .events = POLLIN};
	uint64_t ticks, done, total;

	if (poll(&event, 1, 0) <= 0 || read(timer, &ticks, sizeof ticks) != sizeof ticks)
		return;
	hoist_load_progress(load, &done, &total);
	printf("%" PRIu64 " of %" PRIu64 " bytes\n", done, total);
}

int main(int argc, char **argv)
{
	const struct itimerspec every = {{0, 20 * 1000 * 1000}, {0, 1}};
	hoist_device *device;
	hoist_checkpoint *checkpoint;
	hoist_load *load;

	if (argc < 2) {
		fprintf(stderr, "usage: %s MODEL [DEVICE]\n", argv[0]);
		return 2;
	}
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	if (timer < 0 || timerfd_settime(timer, 0, &every, NULL) < 0) {
		perror("timer");
		return 1;
	}
	check(hoist_device_open(argc > 2 ? argv[2] : "gpu:0", &device), "device");
	check(hoist_checkpoint_open(argv[1], 0, &checkpoint), "checkpoint");
	const hoist_load_options options = {
		.size = sizeof options, .device = device, .flags = HOIST_LOAD_CALLER_DRIVEN};
	check(hoist_load_start(checkpoint, &options, &load), "load");

	/* One round of the loop: the load's part of it, at most 5 ms, then the rest. */
	int ended;
	do {
		ended = hoist_load_step(load, 5 * 1000 * 1000);
		check(ended, "load");
		on_timer(timer, load);
	} while (ended == 0);
	check(hoist_load_wait(load), "load"); /* waits no more; says how it went */
	printf("loaded\n");

	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	close(timer);
	return 0;
}
