/* SPDX-License-Identifier: MIT */
/* Repeated work costs nothing that stays: for each kind of work, the second half of
 * many turns leaves no more memory, maps and descriptors in use than the first half did.
 *
 * The library's stock for the next time (regions, descriptions of slabs, idle threads' stacks) is
 * there after a few turns, and is measured with the rest.  malloc keeps nothing of its own here
 * (see as_measured()).  Under a sanitizer, whose malloc tells nothing, descriptors alone are
 * judged: it finds leaks by itself.
 *
 * Exit: 0, 1, 77. */
#include "config.h"

#include <inttypes.h>
#include <malloc.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/count.h"
#include "tests/support/lib-cache.h"
#include "tests/support/lib-support.h"
#include "tests/support/load-random.h"
#include "tests/support/patience.h"
#include "tests/support/quiet-fork.h"
#include "tests/support/under-tsan.h"

#include "lib/memory/device-memory.h"
#include "tests/support/load-support.h"

/* The least block of malloc's has 32 bytes, and an eighth of that is once in eight turns.  One
 * description more, of a slab or of a queue, is no growth yet. */
#define BYTES_A_TURN 4
#define BYTES_IN_ALL 3072
#define MAPS_IN_ALL 6 /* threads' stacks, which the C library keeps for other threads */

#if UNDER_TSAN || defined(QUIET_FORKS)
#define WATCHED true
#else
#define WATCHED false
#endif

enum { CPU, CUDA_0, CUDA_1, HIP_0 };
static hoist_device *devices[LIB_N_DEVICES];
static char paths[RANDOM_N_FORMATS][512];
static char saved[512];
static char cached[512];

/* --- what there is --- */

struct held {
	uint64_t bytes;
	uint64_t maps;
	uint64_t fds;
};

static struct held look(void)
{
	struct held held = {.fds = count_entries("/proc/self/fd"),
			    .maps = count_lines("/proc/self/maps")};
	struct mallinfo2 heap = mallinfo2();
	held.bytes = heap.uordblks + heap.hblkhd;
	return held;
}

static bool is_more(const struct held *now, const struct held *before, unsigned turns)
{
	if (now->fds > before->fds)
		return true;
	return !WATCHED &&
	       (now->maps > before->maps + MAPS_IN_ALL ||
		now->bytes > before->bytes + BYTES_IN_ALL + (uint64_t)BYTES_A_TURN * turns);
}

/* Work behind streams, or in threads that were told to end, ends soon. */
static struct held look_until_quiet(const struct held *before, unsigned turns)
{
	struct held now = {0};
	uint64_t until = 0;
	for (int tries = 0;; tries++) {
		for (int d = 0; d < LIB_N_DEVICES; d++) {
			OK(hoist_device_synchronize(devices[d]));
			hoist__device_trim(devices[d]);
		}
		now = look();
		if (before != NULL ? !is_more(&now, before, turns) : tries >= 20)
			break;
		if (!patience(&until))
			break;
	}
	return now;
}

/* --- the kinds of work --- */

static void open_all_formats(unsigned turn)
{
	hoist_checkpoint *checkpoint = NULL;
	OK(hoist_checkpoint_open(paths[turn % RANDOM_N_FORMATS], 0, &checkpoint));
	hoist_checkpoint_close(checkpoint);
}

static void load_with(const char *path, const hoist_load_options *o, bool cancel)
{
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load = NULL;
	OK(hoist_load_start(checkpoint, o, &load));
	if (cancel) {
		hoist_load_cancel(load);
	} else {
		OK(hoist_load_wait(load));
		for (size_t i = 0; i < hoist_load_n_tensors(load); i++) {
			hoist_buffer *buffer = NULL;
			size_t which = 0;
			unsigned char byte = 0;
			OK(hoist_load_tensor(load, i, &which, &buffer));
			if (hoist_buffer_bytes(buffer) > 0 && hoist_buffer_is_contiguous(buffer))
				OK(hoist_buffer_read(buffer, 0, &byte, 1));
			hoist_buffer_unref(buffer);
		}
	}
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

static enum hoist_engine engine_of(unsigned turn)
{
	return turn / RANDOM_N_FORMATS % 2 == 0 ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS;
}

static void load_to_host(unsigned turn)
{
	const hoist_load_options o = {.size = sizeof o,
				      .engine = engine_of(turn),
				      .io = turn % 2 == 0 ? HOIST_IO_AUTO : HOIST_IO_CACHED,
				      .flags = HOIST_LOAD_DIGEST};
	load_with(paths[turn % RANDOM_N_FORMATS], &o, false);
}

/* Each waits for a disk. */
static void load_directly(unsigned turn)
{
	const hoist_load_options o = {
		.size = sizeof o, .engine = engine_of(turn), .io = HOIST_IO_DIRECT};
	load_with(paths[turn % RANDOM_N_FORMATS], &o, false);
}

static void load_to_device(unsigned turn)
{
	hoist_load_options o = {
		.size = sizeof o, .engine = engine_of(turn), .device = devices[1 + turn % 3]};
	if (turn % 3 == 0) {
		o.replicas = &devices[CUDA_1];
		o.n_replicas = 1;
	}
	load_with(paths[turn % RANDOM_N_FORMATS], &o, false);
}

static void load_and_cancel(unsigned turn)
{
	const hoist_load_options o = {.size = sizeof o,
				      .engine = engine_of(turn),
				      .device = devices[turn % 2 == 0 ? CPU : CUDA_0]};
	load_with(paths[turn % RANDOM_N_FORMATS], &o, true);
}

/* The file is the one that is saved below. */
static void load_a_slice(unsigned turn)
{
	const hoist_load_slice slice = {
		.tensor = "*", .axis = 0, .rank = (int)turn % 2, .n_ranks = 2};
	const hoist_load_options o = {.size = sizeof o,
				      .device = devices[turn % 3 == 0 ? CUDA_0 : CPU],
				      .engine = engine_of(turn),
				      .slices = &slice,
				      .n_slices = 1,
				      .dtype = HOIST_F16};
	load_with(saved, &o, false);
}

static void map(unsigned turn)
{
	const hoist_load_options o = {.size = sizeof o,
				      .io = HOIST_IO_MAP,
				      .flags = turn % 2 == 0 ? 0 : HOIST_LOAD_POPULATE};
	load_with(paths[turn % RANDOM_N_FORMATS], &o, false);
}

/* Nobody waits for the end of every third one. */
static void save(unsigned turn)
{
	const hoist_save_options o = {.size = sizeof o,
				      .engine = engine_of(turn),
				      .flags = HOIST_SAVE_NO_SYNC | HOIST_SAVE_DIGEST};
	const int64_t shape[] = {64, 64};
	hoist_save *save = NULL;
	OK(hoist_save_create(saved, &o, &save));
	for (int d = 0; d < LIB_N_DEVICES; d++) {
		hoist_buffer *buffer = NULL;
		OK(hoist_buffer_create(devices[d], HOIST_F32, 2, shape, HOIST_BUFFER_ZERO,
				       &buffer));
		OK(hoist_save_add(save, lib_specs[d], buffer));
		hoist_buffer_unref(buffer);
	}
	OK(hoist_save_metadata(save, "turn", "again"));
	OK(hoist_save_start(save));
	if (turn == 0 || turn % 3 != 0)
		OK(hoist_save_wait(save));
	hoist_save_destroy(save);
}

static void attach(unsigned turn)
{
	hoist_image *image = NULL;
	(void)turn;
	OK(hoist_cache_attach(cached, 0, &image));
	for (size_t i = 0; i < hoist_image_n_tensors(image); i++) {
		hoist_buffer *buffer = NULL;
		OK(hoist_image_buffer(image, i, &buffer));
		hoist_buffer_unref(buffer);
	}
	hoist_image_close(image);
}

static void add(unsigned turn)
{
	const hoist_cache_options o = {.size = sizeof o,
				       .flags = turn % 2 == 0 ? HOIST_CACHE_REPLACE : 0};
	hoist_image *image = NULL;
	OK(hoist_cache_add(cached, &o, &image));
	hoist_image_close(image);
}

static void copy(unsigned turn)
{
	const int64_t shape[] = {1 + turn % 5, 700};
	hoist_buffer *from = NULL;
	hoist_buffer *to = NULL;
	hoist_stream *stream = NULL;
	OK(hoist_stream_create(devices[(turn + 1) % LIB_N_DEVICES], &stream));
	OK(hoist_buffer_create(devices[turn % LIB_N_DEVICES], HOIST_F32, 2, shape,
			       HOIST_BUFFER_ZERO, &from));
	OK(hoist_buffer_copy_to_stream(from, stream, &to));
	hoist_stream_unref(stream);
	hoist_buffer_unref(from);
	OK(hoist_buffer_copy(to, devices[CPU], &from));
	hoist_buffer_unref(from);
	hoist_buffer_unref(to);
}

static void make_pools(unsigned turn)
{
	static const int kinds[] = {HOIST_MEMORY_HOST, HOIST_MEMORY_PINNED, HOIST_MEMORY_DEVICE,
				    HOIST_MEMORY_DRIVER_POOL};
	static const int on[] = {CPU, CUDA_0, CUDA_1, HIP_0};
	const hoist_memory_options o = {
		.size = sizeof o, .kind = kinds[turn % 4], .device = devices[on[turn % 4]]};
	hoist_memory *memory = NULL;
	uintptr_t address = 0;
	OK(hoist_memory_create(&o, &memory));
	OK(hoist_memory_alloc(memory, 1000 + turn % 3 * 70000, 0, &address));
	OK(hoist_memory_free(memory, address));
	hoist_memory_unref(memory);
}

static const struct kind {
	const char *name;
	unsigned turns;
	void (*run)(unsigned turn);
} kinds[] = {
	{"opening", 2000, open_all_formats},
	{"saves", 400, save},
	{"loads to the host", 300, load_to_host},
	{"loads past the page cache", 60, load_directly},
	{"loads to devices", 300, load_to_device},
	{"loads that are cancelled", 400, load_and_cancel},
	{"slices, converted", 300, load_a_slice},
	{"maps", 400, map},
	{"attaching to the cache", 600, attach},
	{"adding to the cache", 300, add},
	{"copies", 1000, copy},
	{"pools", 600, make_pools},
};

/* --- the whole --- */

/* On a busy machine a peak may come late: what is lost is lost each time. */
#define MOST_HALVES 4

/* In the last half of each kind. */
static struct {
	unsigned turns;
	int64_t bytes, maps, fds;
} in_all;

static bool is_steady(const struct kind *kind)
{
	unsigned half = kind->turns / (WATCHED ? 20 : 2);
	for (unsigned turn = 0; turn < half; turn++)
		kind->run(turn);
	struct held before = look_until_quiet(NULL, 0);
	for (int tries = 0; tries < MOST_HALVES; tries++) {
		for (unsigned turn = 0; turn < half; turn++)
			kind->run(turn);
		const struct held after = look_until_quiet(&before, half);
		printf("%s: %u turns more: %" PRId64 " bytes, %" PRId64 " maps, %" PRId64
		       " descriptors more\n",
		       kind->name, half, (int64_t)(after.bytes - before.bytes),
		       (int64_t)(after.maps - before.maps), (int64_t)(after.fds - before.fds));
		(void)fflush(stdout);
		if (!is_more(&after, &before, half)) {
			in_all.turns += half;
			in_all.bytes += (int64_t)(after.bytes - before.bytes);
			in_all.maps += (int64_t)(after.maps - before.maps);
			in_all.fds += (int64_t)(after.fds - before.fds);
			return true;
		}
		before = after;
	}
	printf("  it grows\n");
	return false;
}

/* Memory that threads keep for their next allocation would look as if it were in use, and a thread
 * more at one time than ever before would have an arena of its own: malloc is told to do without.
 */
static void as_measured(char **argv)
{
	static const char tunables[] = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1";
	const char *is = getenv("GLIBC_TUNABLES");
	if (WATCHED || (is != NULL && strcmp(is, tunables) == 0))
		return;
	OK(setenv("GLIBC_TUNABLES", tunables, 1));
	(void)execv("/proc/self/exe", argv);
	CHECK(false);
}

static void make_files(void)
{
	random_seed(88172645463325252u);
	for (unsigned f = 0; f < RANDOM_N_FORMATS; f++)
		(void)snprintf(paths[f], sizeof paths[f], "%s", random_checkpoint_of(f));
	(void)snprintf(saved, sizeof saved, "%s/saved.safetensors", support_folder());
	(void)snprintf(cached, sizeof cached, "%s", cache_path("c.safetensors"));
	cache_write(cached, 5, 3000, 1);
	add(1);
}

int main(int argc, char **argv)
{
	bool well = true;
	if (argc == 1)
		as_measured(argv);
	(void)cache_test_begin(argc, argv);
	if (!lib_emulate()) {
		printf("skipped: the stand-in drivers are not built\n");
		return 77;
	}
	lib_open_all(devices);
	make_files();
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
		well &= is_steady(&kinds[k]);
	well &= lib_drivers_content();
	if (!WATCHED)
		printf("figure: steady.growth %" PRId64 " bytes, %" PRId64 " maps, %" PRId64
		       " descriptors for %u turns more of %zu kinds of work\n",
		       in_all.bytes, in_all.maps, in_all.fds, in_all.turns,
		       sizeof kinds / sizeof kinds[0]);
	support_cleanup();
	return well ? 0 : 1;
}
