/* SPDX-License-Identifier: MIT */
/* Loads that map: what a file that shrinks, is written to, or must not be written to, comes to, for
 * whichever process loads and touches. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/load-support.h"
#include "tests/support/touch.h"

#define MIB ((size_t)1 << 20)

static char path[512];
static hoist_checkpoint *checkpoint;
static unsigned char *was; /* what the file held */
static uint64_t first;	   /* where the first tensor begins in it */

enum { N = 8 }; /* tensors of 2 MiB */

static void open_checkpoint(void)
{
	size_t sizes[N];
	for (int i = 0; i < N; i++)
		sizes[i] = 2 * MIB;
	(void)snprintf(path, sizeof path, "%s/m.safetensors", support_folder());
	support_write("m.safetensors", 0, N, sizes, 512);
	OK(hoist_checkpoint_open(path, 0, &checkpoint));
	hoist_tensor_info tensor = {.size = sizeof tensor};
	OK(hoist_checkpoint_tensor(checkpoint, 0, &tensor));
	first = tensor.offset;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	was = malloc(N * 2 * MIB);
	CHECK(fd >= 0 && was != NULL);
	CHECK(pread(fd, was, N * 2 * MIB, (off_t)first) == (ssize_t)(N * 2 * MIB));
	close(fd);
}

static void close_checkpoint(void)
{
	hoist_checkpoint_close(checkpoint);
	free(was);
	support_cleanup();
}

static hoist_load *start(enum hoist_io io, enum hoist_map map, unsigned flags)
{
	const hoist_load_options o = {.size = sizeof o, .io = io, .map = map, .flags = flags};
	hoist_load *load;
	OK(hoist_load_start(checkpoint, &o, &load));
	return load;
}

static hoist_buffer *tensor(hoist_load *load, int t)
{
	char name[16];
	hoist_buffer *buffer;
	(void)snprintf(name, sizeof name, "t%06d", t);
	OK(hoist_load_buffer(load, name, &buffer));
	return buffer;
}

static int touch_at(hoist_buffer *buffer, size_t at)
{
	return touch((const unsigned char *)hoist_buffer_data(buffer) + at);
}

/* --- cases --- */

static void populating_says_so(void)
{
	for (int driven = 0; driven < 2; driven++) {
		open_checkpoint();
		unsigned flags = HOIST_LOAD_POPULATE | (driven ? HOIST_LOAD_CALLER_DRIVEN : 0);
		hoist_load *load = start(HOIST_IO_MAP, 0, flags);
		OK(hoist_load_wait(load));
		uint64_t done, total;
		hoist_load_progress(load, &done, &total);
		CHECK(done == total && total == N * 2 * MIB);
		support_compare(checkpoint, load);
		hoist_load_destroy(load);
		/* Shorter than when it was opened. */
		OK(truncate(path, (off_t)(first + 3 * MIB)));
		const hoist_load_options o = {.size = sizeof o, .io = HOIST_IO_MAP, .flags = flags};
		CHECK(hoist_load_start(checkpoint, &o, &load) == -ENODATA);
		support_said("m.safetensors");
		close_checkpoint();
	}
}

static void a_map_that_is_touched(void)
{
	for (int map = HOIST_MAP_COPY_ON_WRITE; map <= HOIST_MAP_READ_WRITE; map++) {
		open_checkpoint();
		hoist_load *load = start(HOIST_IO_MAP, (enum hoist_map)map, 0);
		OK(hoist_load_wait(load));
		hoist_buffer *low = tensor(load, 0), *high = tensor(load, 6);
		CHECK(touch_at(high, 5) == was[12 * MIB + 5]);
		unsigned char byte = (unsigned char)~was[12 * MIB + 9];
		int err = hoist_buffer_write(high, 9, &byte, 1);
		CHECK(err == (map == HOIST_MAP_READ_ONLY ? -EROFS : 0));
		OK(truncate(path, (off_t)(first + 3 * MIB)));
		CHECK(touch_at(low, 5) == was[5]);
		CHECK(touch_at(high, 5) == -SIGBUS && touch_at(high, 9) == -SIGBUS);
		hoist_buffer_unref(low);
		hoist_buffer_unref(high);
		hoist_load_destroy(load);
		close_checkpoint();
	}
}

static void a_cancel_is_one(void)
{
	open_checkpoint();
	hoist_load *load = start(HOIST_IO_MAP, 0, HOIST_LOAD_POPULATE | HOIST_LOAD_CALLER_DRIVEN);
	hoist_load_cancel(load);
	CHECK(hoist_load_wait(load) == -ECANCELED);
	hoist_load_destroy(load);
	hoist_load_destroy(start(HOIST_IO_MAP, 0, HOIST_LOAD_POPULATE));
	close_checkpoint();
}

/* The file is written to through one load, and by a program: the other's pages show it. */
static void writes_are_seen(void)
{
	open_checkpoint();
	hoist_load *shared = start(HOIST_IO_MAP, HOIST_MAP_READ_WRITE, HOIST_LOAD_POPULATE);
	hoist_load *private = start(HOIST_IO_MAP, HOIST_MAP_COPY_ON_WRITE, 0);
	CHECK(hoist_load_wait(private) == 0 && hoist_load_wait(shared) == 0);
	hoist_buffer *to = tensor(shared, 2), *from = tensor(private, 2);
	unsigned char byte = (unsigned char)~was[4 * MIB];
	OK(hoist_buffer_write(to, 0, &byte, 1));
	CHECK(touch_at(from, 0) == byte);
	hoist_buffer_unref(to);
	hoist_buffer_unref(from);
	hoist_load_destroy(shared);
	hoist_load_destroy(private);
	close_checkpoint();
}

int main(void)
{
	populating_says_so();
	a_map_that_is_touched();
	a_cancel_is_one();
	writes_are_seen();
	return 0;
}
