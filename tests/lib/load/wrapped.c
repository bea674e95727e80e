/* SPDX-License-Identifier: MIT */
/* Loads in a world that is rarely met: the linker sends some of the library's
 * calls through this program (--wrap).  Reads that a broken ring abandoned, file
 * systems of large blocks, a kernel or a device that is busy for long. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/engine.h"
#include "io/file.h"
#include "lib/memory/device-memory.h"
#include "tests/support/load-support.h"
#include "tests/support/wrap.h"

#define MIB ((size_t)1 << 20)

static char path[512];

static void write_one(size_t bytes)
{
	const size_t sizes[] = {1234, bytes, 99};
	snprintf(path, sizeof path, "%s/m.safetensors", support_folder());
	support_write("m.safetensors", 0, 3, sizes, -1);
}

/* --- abandoned reads --- */

static bool abandoned;

bool __wrap_hoist__engine_abandoned(const struct hoist__engine *engine);
bool __wrap_hoist__engine_abandoned(const struct hoist__engine *engine)
{
	return engine != NULL && abandoned;
}

static size_t host_bytes(hoist_device *device)
{
	hoist_memory *memory;
	hoist_memory_statistics statistics = {.size = sizeof statistics};
	OK(hoist__device_buffers(device, false, &memory));
	OK(hoist_memory_get_statistics(memory, &statistics));
	return statistics.requested_bytes;
}

/* Memory that the kernel may still write to is neither freed nor uncharged. */
static void abandoned_memory_stays(void)
{
	static const char *const specs[] = {"cpu", "cuda:0"};
	write_one(9 * MIB);
	for (int i = 0; i < 4; i++) {
		hoist_load_options o = {.size = sizeof o, .device = support_device(specs[i / 2])};
		hoist_checkpoint *checkpoint = support_open(path);
		hoist_load *load;
		size_t before = host_bytes(o.device);
		OK(hoist_budget_create(16 * MIB, &o.budget));
		abandoned = i % 2 != 0;
		OK(hoist_load_start(checkpoint, &o, &load));
		OK(hoist_load_wait(load));
		hoist_load_destroy(load);
		CHECK((hoist_budget_used(o.budget) > 0) == (abandoned && i / 2 == 1));
		CHECK((host_bytes(o.device) > before) == (abandoned && i / 2 == 0));
		hoist_checkpoint_close(checkpoint);
		hoist_budget_unref(o.budget);
		hoist_device_unref(o.device);
	}
	abandoned = false;
	support_cleanup();
}

/* --- alignment --- */

/* The two fields' places, fixed by the kernel; older headers do not know them. */
#define DIO_MASK 0x2000u
#define DIO_MEM_ALIGN 0x98
#define DIO_OFFSET_ALIGN 0x9c

static uint32_t wanted_align; /* 0: what the kernel says */

static _Atomic unsigned n_asked_anew;

WRAP(int, statx, (int fd, const char *name, int flags, unsigned mask, struct statx *stx))
{
	int err = __real_statx(fd, name, flags, mask, stx);
	n_asked_anew += (flags & AT_STATX_SYNC_TYPE) == AT_STATX_FORCE_SYNC;
	if (err == 0 && wanted_align != 0) {
		stx->stx_mask |= DIO_MASK;
		memcpy((char *)stx + DIO_MEM_ALIGN, &wanted_align, sizeof wanted_align);
		memcpy((char *)stx + DIO_OFFSET_ALIGN, &wanted_align, sizeof wanted_align);
	}
	return err;
}

/* The smallest budget has slots of 64 KiB: a read that they cannot serve is not direct. */
static void large_blocks_are_served(void)
{
	static const char *const specs[] = {"cpu", "cuda:0"};
	write_one(3 * MIB);
	for (wanted_align = 4096; wanted_align <= MIB; wanted_align *= 2)
		for (int i = 0; i < 2; i++) {
			hoist_load_options o = {.size = sizeof o,
						.device = support_device(specs[i]),
						.io = HOIST_IO_DIRECT};
			hoist_load_report report;
			OK(hoist_budget_create(128 << 10, &o.budget));
			support_load_and_compare(path, &o, &report);
			hoist_budget_unref(o.budget);
			/* A budget for slots of half the size, which is no number of large blocks.
			 */
			o.chunk_bytes = 192 << 10;
			OK(hoist_budget_create(300 << 10, &o.budget));
			support_load_and_compare(path, &o, &report);
			if (wanted_align > HOIST__FILE_MAX_ALIGN)
				CHECK(report.direct_bytes == 0);
			hoist_budget_unref(o.budget);
			hoist_device_unref(o.device);
		}
	wanted_align = 0;
	support_cleanup();
}

/* Half-precision numbers, behind a header of 4 KiB less 8 bytes. */
#define N_HALVES 700001

static void write_halves(void)
{
	static uint16_t halves[N_HALVES];
	char header[4081];
	memset(header, ' ', sizeof header);
	int n = snprintf(header, sizeof header,
			 "{\"w\":{\"dtype\":\"F16\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
			 N_HALVES, 2 * N_HALVES);
	header[n] = ' ';
	header[4080] = '\0';
	for (int i = 0; i < N_HALVES; i++)
		halves[i] = (uint16_t)(0x3c00 + i % 1024); /* 1 + (i % 1024) / 1024 */
	snprintf(path, sizeof path, "%s", support_path("h.safetensors"));
	support_put_safetensors(path, header, halves, sizeof halves);
}

static void check_halves(hoist_load *load)
{
	static float values[N_HALVES];
	hoist_buffer *buffer;
	OK(hoist_load_buffer(load, "w", &buffer));
	OK(hoist_buffer_copy_out(buffer, values, sizeof values));
	hoist_buffer_unref(buffer);
	for (int i = 0; i < N_HALVES; i++)
		CHECK(values[i] == 1 + (float)(i % 1024) / 1024);
}

/* Slots that are too small for this load because another has the rest are no reason to fail. */
static void large_blocks_wait_for_their_budget(void)
{
	write_halves();
	wanted_align = HOIST__FILE_MAX_ALIGN;
	hoist_load_options o = {.size = sizeof o,
				.device = support_device("cuda:0"),
				.io = HOIST_IO_DIRECT,
				.flags = HOIST_LOAD_CALLER_DRIVEN,
				.chunk_bytes = 64 << 10};
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *first;
	hoist_load *second;
	OK(hoist_budget_create(1836 << 10, &o.budget));
	OK(hoist_load_start(checkpoint, &o, &first));
	OK(hoist_load_step(first, 0));
	size_t left = (1836 << 10) - hoist_budget_used(o.budget);
	CHECK(left >= 128 << 10 && left < 512 << 10);
	o.dtype = HOIST_F32;
	/* Slots are larger, and lie at multiples of 64 KiB all the same. */
	o.chunk_bytes = 68 << 10;
	OK(hoist_load_start(checkpoint, &o, &second));
	for (int i = 0; i < 3; i++)
		OK(hoist_load_step(second, 1000000));
	OK(hoist_load_wait(first));
	OK(hoist_load_wait(second));
	check_halves(second);
	hoist_load_destroy(first);
	hoist_load_destroy(second);
	CHECK(hoist_budget_used(o.budget) == 0);
	hoist_budget_unref(o.budget);
	OK(hoist_budget_create(300 << 10, &o.budget));
	OK(hoist_load_start(checkpoint, &o, &first));
	CHECK(hoist_load_wait(first) == -EDQUOT && strstr(hoist_error(), "65536") != NULL);
	hoist_load_destroy(first);
	hoist_checkpoint_close(checkpoint);
	hoist_budget_unref(o.budget);
	hoist_device_unref(o.device);
	wanted_align = 0;
	support_cleanup();
}

/* --- a network's file system, which another machine writes to --- */

/* This machine may remember an old state of the file: the file system is asked when a file is
 * opened, and again once it has been read. */
static void attributes_are_asked_for_anew(void)
{
	write_one(MIB);
	unsigned before = n_asked_anew;
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	CHECK(n_asked_anew == before + 1);
	OK(hoist_load_start(checkpoint, NULL, &load));
	OK(hoist_load_wait(load));
	CHECK(n_asked_anew == before + 2);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	support_cleanup();
}

/* --- a kernel that never has time --- */

static _Atomic bool too_busy;

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
	if (!too_busy)
		return __real_pread(fd, to, bytes, offset);
	errno = EAGAIN;
	return -1;
}

/* "Not yet" would have the caller wait for ever: it is an error, with a place. */
static void endless_refusals_are_an_error(void)
{
	write_one(MIB);
	hoist_load_options o = {.size = sizeof o, .engine = HOIST_ENGINE_THREADS};
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	too_busy = true;
	OK(hoist_load_start(checkpoint, &o, &load));
	CHECK(hoist_load_wait(load) == -EIO);
	too_busy = false;
	support_said("m.safetensors");
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	support_cleanup();
}

/* --- a busy device --- */

/* A step that waited for copies would wait for ever. */
static void a_step_keeps_its_time(void)
{
	write_one(MIB);
	hoist_load_options o = {.size = sizeof o,
				.device = support_device("cuda:0"),
				.flags = HOIST_LOAD_CALLER_DRIVEN};
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	OK(hoist_load_start(checkpoint, &o, &load));
	support_hold("cuda", 1);
	for (int i = 0; i < 300; i++)
		OK(hoist_load_step(load, HOIST__NS_PER_S / 1000));
	support_hold("cuda", 0);
	OK(hoist_load_wait(load));
	support_compare(checkpoint, load);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(o.device);
	support_cleanup();
}

int main(void)
{
	support_emulate("cuda:1");
	large_blocks_are_served();
	large_blocks_wait_for_their_budget();
	attributes_are_asked_for_anew();
	endless_refusals_are_an_error();
	a_step_keeps_its_time();
	abandoned_memory_stays();
	/* A leak checker would find what has to stay. */
	_exit(0);
}
