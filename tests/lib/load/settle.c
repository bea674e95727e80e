/* SPDX-License-Identifier: MIT */
/* Conversions by the threads that copy: several chunks at once; a cancel and a failure while a
 * chunk is converted; engines that take no work, and have no threads.  The linker sends calls of
 * the library's through here (--wrap). */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/convert.h"
#include "io/crew.h"
#include "tests/support/load-support.h"
#include "tests/support/patience.h"
#include "tests/support/wrap.h"

#define N_FLOATS ((size_t)3 << 20)

static char path[512];

/* Floats whose upper halves count, and whose lower halves are 0. */
static void write_file(void)
{
	char header[128];
	uint32_t *floats = malloc(N_FLOATS * 4);
	CHECK(floats != NULL);
	for (size_t i = 0; i < N_FLOATS; i++)
		floats[i] = (uint32_t)(i * 7 % 0x7f00) << 16;
	(void)snprintf(header, sizeof header,
		       "{\"a\":{\"dtype\":\"F32\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
		       N_FLOATS, N_FLOATS * 4);
	(void)snprintf(path, sizeof path, "%s/floats.safetensors", support_folder());
	support_put_safetensors("floats.safetensors", header, floats, N_FLOATS * 4);
	free(floats);
}

/* --- the calls --- */

static atomic_uint n_inside, most_inside, n_here;
static atomic_uint wanted;  /* threads that a conversion waits for */
static atomic_bool held;    /* conversions wait */
static atomic_bool refuses; /* the engine takes no work */
static atomic_bool no_crew;
static atomic_uint n_reads; /* that were submitted */
static pthread_t caller;

WRAP(void, hoist__convert,
     (void *to, hoist_dtype to_type, const void *from, hoist_dtype from_type, size_t n))
{
	unsigned inside = atomic_fetch_add(&n_inside, 1) + 1;
	if (inside > most_inside)
		most_inside = inside;
	n_here += pthread_equal(pthread_self(), caller) != 0;
	while (atomic_load(&held))
		usleep(100);
	for (uint64_t until = 0; most_inside < wanted && patience(&until);)
		continue;
	__real_hoist__convert(to, to_type, from, from_type, n);
	atomic_fetch_sub(&n_inside, 1);
}

WRAP(int, hoist__engine_submit,
     (struct hoist__engine * engine, struct hoist__request *const *requests, unsigned n))
{
	if (refuses && requests[0]->work != NULL)
		return -EIO;
	for (unsigned i = 0; i < n; i++)
		n_reads += requests[i]->work == NULL;
	return __real_hoist__engine_submit(engine, requests, n);
}

WRAP(int, hoist__crew_create, (const struct hoist__crew_options *options, struct hoist__crew **ret))
{
	return no_crew ? -ENOMEM : __real_hoist__crew_create(options, ret);
}

/* --- loads --- */

static unsigned depth; /* 0: as usual */

static hoist_load *begin(const char *device, enum hoist_engine engine, bool driven)
{
	hoist_load_options o = {.size = sizeof o,
				.device = support_device(device),
				.engine = engine,
				.dtype = HOIST_BF16,
				.chunk_bytes = 1 << 20,
				.depth = depth,
				.flags = driven ? HOIST_LOAD_CALLER_DRIVEN : 0};
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	caller = pthread_self();
	n_here = most_inside = 0;
	OK(hoist_load_start(checkpoint, &o, &load));
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(o.device);
	return load;
}

static void check_values(hoist_load *load)
{
	hoist_buffer *buffer, *here;
	hoist_device *cpu = support_device("cpu");
	OK(hoist_load_buffer(load, "a", &buffer));
	OK(hoist_buffer_to(buffer, cpu, &here));
	const uint16_t *halves = (const uint16_t *)hoist_buffer_address(here);
	for (size_t i = 0; i < N_FLOATS; i++)
		CHECK(halves[i] == i * 7 % 0x7f00);
	hoist_buffer_unref(here);
	hoist_buffer_unref(buffer);
	hoist_device_unref(cpu);
}

static const char *const devices[] = {"cpu", "cuda:0"};

static void several_at_once(void)
{
	for (int i = 0; i < 4; i++) {
		enum hoist_engine engine = i / 2 == 0 ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS;
		wanted = i / 2 == 0 && sysconf(_SC_NPROCESSORS_ONLN) < 2 ? 0 : 2;
		hoist_load *load = begin(devices[i % 2], engine, true);
		OK(hoist_load_wait(load));
		/* The last chunk has the header's length of bytes: too few for another thread. */
		CHECK(most_inside >= wanted && n_here <= 1);
		wanted = 0;
		check_values(load);
		hoist_load_destroy(load);
	}
}

/* The caller's thread does what no other thread can. */
static void by_the_caller(void)
{
	for (int i = 0; i < 4; i++) {
		refuses = i < 2;
		no_crew = i >= 2;
		hoist_load *load = begin(devices[i % 2], HOIST_ENGINE_AUTO, true);
		int err = hoist_load_wait(load);
		/* An engine of threads only cannot be made without. */
		CHECK(err == 0 || (no_crew && err == -ENOMEM));
		if (err == 0) {
			CHECK(n_here > 0 && most_inside == 1);
			check_values(load);
		}
		hoist_load_destroy(load);
	}
	refuses = no_crew = false;
}

/* Chunks that are converted take no read from their disk's depth: two more are read meanwhile. */
static void reads_go_on_meanwhile(void)
{
	depth = 2;
	for (int i = 0; i < 4; i++) {
		uint64_t until = 0;
		held = true;
		n_reads = 0;
		hoist_load *load =
			begin(devices[i % 2], i / 2 == 0 ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS,
			      true);
		/* The last read may be submitted before a thread has begun to convert the first. */
		while ((n_reads < 2 * depth || n_inside == 0) && patience(&until))
			CHECK(hoist_load_step(load, 1000000) == 0);
		CHECK(n_reads == 2 * depth && n_inside > 0);
		held = false;
		OK(hoist_load_wait(load));
		check_values(load);
		hoist_load_destroy(load);
	}
	depth = 0;
}

static void *open_gate(void *nothing)
{
	usleep(20000);
	atomic_store(&held, false);
	return nothing;
}

/* A cancel, and a file that ends early, while threads convert: the load ends after them. */
static void ends_early(void)
{
	for (int i = 0; i < 8; i++) {
		bool cut = i >= 4;
		pthread_t thread;
		held = true;
		hoist_load *load =
			begin(devices[i % 2], i % 4 < 2 ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS,
			      false);
		while (atomic_load(&n_inside) == 0)
			usleep(100);
		if (cut)
			OK(truncate(path, 4096));
		else
			hoist_load_cancel(load);
		OK(pthread_create(&thread, NULL, open_gate, NULL));
		int err = hoist_load_wait(load);
		/* If all was read before the cut, the end of the load finds the file changed. */
		CHECK(cut ? err == -ENODATA || err == -EBADMSG : err == -ECANCELED);
		OK(pthread_join(thread, NULL));
		CHECK(n_inside == 0);
		hoist_load_destroy(load);
		if (cut)
			write_file();
	}
}

int main(void)
{
	support_emulate("cuda:1");
	write_file();
	several_at_once();
	by_the_caller();
	reads_go_on_meanwhile();
	ends_early();
	support_cleanup();
	return 0;
}
