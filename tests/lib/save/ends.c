/* SPDX-License-Identifier: MIT */
/* hoist_save_fd(): the descriptor tells the end of a save, however the save ended and whenever the
 * descriptor is asked for. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/save-support.h"

static hoist_device *device;
static hoist_buffer *buffer;

static bool is_readable(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	int n = poll(&poll_fd, 1, 0);
	CHECK(n >= 0);
	return n == 1;
}

static hoist_save *make(void)
{
	const hoist_save_options o = {.size = sizeof o, .flags = HOIST_SAVE_NO_SYNC};
	hoist_save *save;
	OK(hoist_save_create(support_path("m.safetensors"), &o, &save));
	OK(hoist_save_add(save, "a", buffer));
	return save;
}

/* The device ends no copy while it is held, so that the save runs on. */
static void the_end_makes_the_descriptor_readable(void)
{
	hoist_save_report report = {.size = sizeof report};
	for (int cancelled = 0; cancelled < 2; cancelled++) {
		hoist_save *save = make();
		support_hold("cuda", true);
		OK(hoist_save_start(save));
		int fd = hoist_save_fd(save);
		CHECK(fd >= 0 && hoist_save_fd(save) == fd && !is_readable(fd));
		CHECK(hoist_save_wait_for(save, 1000) == -ETIMEDOUT);
		if (cancelled)
			hoist_save_cancel(save);
		support_hold("cuda", false);
		struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
		CHECK(poll(&poll_fd, 1, -1) == 1);
		OK(hoist_save_get_report(save, &report)); /* not -EAGAIN: the save is done */
		CHECK(hoist_save_wait(save) == (cancelled ? -ECANCELED : 0));
		CHECK(hoist_save_wait_for(save, 0) == (cancelled ? -ECANCELED : 0));
		CHECK(is_readable(fd));
		hoist_save_destroy(save);
	}
}

static void a_save_that_is_done_has_a_readable_descriptor(void)
{
	hoist_save *save = make();
	OK(hoist_save_start(save));
	OK(hoist_save_wait(save));
	CHECK(is_readable(hoist_save_fd(save)));
	hoist_save_destroy(save);
}

static void a_save_that_was_not_started_has_none(void)
{
	hoist_save *save = make();
	CHECK(hoist_save_fd(save) == -EINVAL);
	support_said("has not been started");
	hoist_save_destroy(save);
}

static void a_forked_child_is_told(void)
{
	hoist_save *save = make();
	OK(hoist_save_start(save));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(hoist_save_fd(save) == -ESTALE);
		hoist_save_destroy(save);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	OK(hoist_save_wait(save));
	hoist_save_destroy(save);
}

int main(void)
{
	const int64_t n = 300000;
	support_emulate("cuda:1");
	device = support_device("cuda:0");
	OK(hoist_buffer_create(device, HOIST_U8, 1, &n, HOIST_BUFFER_ZERO, &buffer));
	the_end_makes_the_descriptor_readable();
	a_save_that_is_done_has_a_readable_descriptor();
	a_save_that_was_not_started_has_none();
	a_forked_child_is_told();
	hoist_buffer_unref(buffer);
	hoist_device_unref(device);
	support_cleanup();
	return 0;
}
