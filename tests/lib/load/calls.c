/* SPDX-License-Identifier: MIT */
/* The cost of a chunk of 2 MiB on its way to a device, in calls: system calls that the library's
 * own code makes, which the linker (--wrap) sends through here, and driver calls that the stand-ins
 * count.  And the caller's current device, which every call of hoist's leaves as it was.
 *
 * The cost of one chunk is the difference between a load of two tensors and a load of one, divided
 * by the chunks of the second.  Waits of threads for each other are not counted: the library does
 * not see whether the C library asks the kernel for them. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/checked.h"
#include "device/cuda-types.h"
#include "device/device.h"
#include "device/hip-types.h"
#include "io/file.h"
#include "tests/support/load-support.h"
#include "tests/support/page-cache.h"
#include "tests/support/patience.h"
#include "tests/support/wrap-syscall.h"
#include "tests/support/wrap-uring.h"

#define CHUNK ((size_t)2 << 20)
#define N_CHUNKS 50u /* of each tensor: more than there are slots */
#define MOST_SYSTEM_CALLS 3.0
#define MOST_DRIVER_CALLS 12.0
/* The threads of a program that sanitizers slow down end one by one, and each wakes the owner: the
 * two bars are about the product.  A load's switches, and the caller's state, are judged always. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_CALLS false
#else
#define COUNTS_CALLS true
#endif

/* --- system calls --- */

static atomic_uint n_system;

static bool refuses(long number)
{
	(void)number;
	atomic_fetch_add(&n_system, 1);
	return false;
}

#define COUNTED(result, name, parameters, arguments)                                               \
	WRAP(result, name, parameters)                                                             \
	{                                                                                          \
		atomic_fetch_add(&n_system, 1);                                                    \
		return __real_##name arguments;                                                    \
	}

/* A wait whose time is over is a call for so many milliseconds, not for a chunk. */
#define ENTER(name, parameters, arguments)                                                         \
	WRAP(int, name, parameters)                                                                \
	{                                                                                          \
		int err = __real_##name arguments;                                                 \
		if (err != -ETIME)                                                                 \
			atomic_fetch_add(&n_system, 1);                                            \
		return err;                                                                        \
	}

URING_ENTERS(ENTER)
COUNTED(ssize_t, read, (int fd, void *to, size_t bytes), (fd, to, bytes))
COUNTED(ssize_t, write, (int fd, const void *from, size_t bytes), (fd, from, bytes))
COUNTED(ssize_t, pread, (int fd, void *to, size_t bytes, off_t at), (fd, to, bytes, at))
COUNTED(ssize_t, preadv2, (int fd, const struct iovec *to, int n, off_t at, int flags),
	(fd, to, n, at, flags))
COUNTED(int, posix_fadvise, (int fd, off_t at, off_t bytes, int advice), (fd, at, bytes, advice))
COUNTED(pid_t, getpid, (void), ())
COUNTED(int, nanosleep, (const struct timespec *time, struct timespec *left), (time, left))

/* --- pages that leave the cache --- */

static atomic_bool pages_left;

/* The library asks in one place how much of a chunk is cached. */
WRAP(int, hoist__file_resident_ahead,
     (const struct hoist__file *file, struct hoist__resident_window *window, uint64_t offset,
      uint64_t bytes, uint64_t end, uint64_t *ret))
{
	int err = __real_hoist__file_resident_ahead(file, window, offset, bytes, end, ret);
	if (err == 0 && *ret < bytes)
		atomic_store(&pages_left, true);
	return err;
}

/* --- the calling thread's current device --- */

static struct {
	hoist__cu_result (*context)(hoist__cu_context *);
	hoist__hip_error (*device)(int *);
	hoist__hip_error (*set_device)(int);
	unsigned (*exchange[2])(unsigned *mode); /* as both drivers have it, by our types */
} driver;

static void find(enum hoist__api api, const char *name, void *pointer)
{
	void *symbol = dlsym(dlopen(hoist__api_library(api), RTLD_NOW | RTLD_NOLOAD), name);
	CHECK(symbol != NULL);
	memcpy(pointer, &symbol, sizeof symbol);
}

static void find_drivers(void)
{
	find(HOIST__API_CUDA, "cuCtxGetCurrent", &driver.context);
	find(HOIST__API_CUDA, "cuThreadExchangeStreamCaptureMode", &driver.exchange[0]);
	find(HOIST__API_HIP, "hipGetDevice", &driver.device);
	find(HOIST__API_HIP, "hipSetDevice", &driver.set_device);
	find(HOIST__API_HIP, "hipThreadExchangeStreamCaptureMode", &driver.exchange[1]);
}

struct state {
	hoist__cu_context context;
	int device;
	unsigned modes[2];
};

static struct state state_now(void)
{
	struct state state = {.device = -1};
	OK(driver.context(&state.context));
	OK(driver.device(&state.device));
	for (int api = 0; api < 2; api++) {
		unsigned mode = state.modes[api] = 1;
		OK(driver.exchange[api](&state.modes[api]));
		mode = state.modes[api];
		OK(driver.exchange[api](&mode));
	}
	return state;
}

static bool same(const struct state *a, const struct state *b)
{
	return a->context == b->context && a->device == b->device && a->modes[0] == b->modes[0] &&
	       a->modes[1] == b->modes[1];
}

/* --- loads --- */

static const struct way {
	const char *spec;
	const char *replica; /* NULL: none */
	bool hot;
	bool stepped;
	enum hoist_engine engine;
	enum { PLAIN, STREAMS, TARGETS, INTO } kind; /* TARGETS: two of the device */
} ways[] = {
	{"cuda:0", NULL, false, false, HOIST_ENGINE_AUTO, PLAIN},
	{"cuda:0", NULL, true, false, HOIST_ENGINE_AUTO, PLAIN},
	{"cuda:0", NULL, false, true, HOIST_ENGINE_AUTO, PLAIN},
	{"cuda:0", NULL, true, true, HOIST_ENGINE_AUTO, PLAIN},
	{"cuda:0", NULL, false, false, HOIST_ENGINE_THREADS, PLAIN},
	{"cuda:0", "cuda:1", true, false, HOIST_ENGINE_AUTO, PLAIN},
	{"hip:0", NULL, false, false, HOIST_ENGINE_AUTO, PLAIN},
	{"hip:0", NULL, true, true, HOIST_ENGINE_AUTO, PLAIN},
	{"cuda:0", NULL, false, false, HOIST_ENGINE_AUTO, STREAMS},
	{"cuda:0", NULL, true, true, HOIST_ENGINE_AUTO, STREAMS},
	{"cuda:0", NULL, false, false, HOIST_ENGINE_AUTO, TARGETS},
	{"cuda:0", NULL, true, false, HOIST_ENGINE_AUTO, TARGETS},
	{"cuda:0", NULL, false, false, HOIST_ENGINE_AUTO, INTO},
	{"cuda:0", NULL, true, false, HOIST_ENGINE_AUTO, INTO},
	{"hip:0", NULL, true, false, HOIST_ENGINE_AUTO, INTO},
};

static const char *const kinds[] = {"", ", streamed", ", two targets", ", in place"};

struct cost {
	double system;
	double driver;
	double switches; /* of the driver calls, those to the context */
};

static double n_switches(const char *api)
{
	if (strcmp(api, "hip") == 0)
		return (double)lib_calls(api, "hipSetDevice");
	return (double)lib_calls(api, "cuCtxPushCurrent") +
	       (double)lib_calls(api, "cuThreadExchangeStreamCaptureMode");
}

/* The test's own questions to the driver switch, too: state_now() makes three calls to each driver,
 * two of them to the mode. */
static double own_switches(const struct way *way, uint64_t asked)
{
	return strncmp(way->spec, "cuda", 4) == 0 ? 2.0 / 3 * (double)asked : 0;
}

static const char *const names[] = {"t000000", "t000001"};

/* The devices, targets and buffers that the options of a load refer to. */
struct parts {
	hoist_device *device;
	hoist_device *replica;
	hoist_load_target target; /* two of it */
	const hoist_load_target *targets[2];
	hoist_load_into into[2];
};

/* The options of a load of the first @n tensors. */
static hoist_load_options options_of(const struct way *way, size_t n, struct parts *parts)
{
	const int64_t shape[] = {(int64_t)(N_CHUNKS * CHUNK)};
	hoist_load_options o = {.size = sizeof o, .engine = way->engine};
	*parts = (struct parts){.device = support_device(way->spec)};
	o.flags = (way->stepped ? HOIST_LOAD_CALLER_DRIVEN : 0) |
		  (way->kind == STREAMS ? HOIST_LOAD_STREAM : 0);
	if (way->kind == TARGETS) {
		parts->target = (hoist_load_target){.size = sizeof parts->target,
						    .device = parts->device,
						    .tensors = names,
						    .n_tensors = n};
		parts->targets[0] = parts->targets[1] = &parts->target;
		o.targets = parts->targets;
		o.n_targets = 2;
		return o;
	}
	if (way->replica != NULL)
		parts->replica = support_device(way->replica);
	o.replicas = &parts->replica;
	o.n_replicas = way->replica != NULL;
	o.tensors = names;
	o.n_tensors = n;
	o.device = parts->device;
	for (size_t i = 0; way->kind == INTO && i < n; i++) {
		parts->into[i].tensor = names[i];
		OK(hoist_buffer_create(parts->device, HOIST_U8, 1, shape, 0,
				       &parts->into[i].buffer));
		o.into = parts->into;
		o.n_into = n;
		o.device = NULL;
		o.tensors = NULL;
		o.n_tensors = 0;
	}
	return o;
}

static void drop(struct parts *parts)
{
	for (int i = 0; i < 2; i++)
		hoist_buffer_unref(parts->into[i].buffer);
	hoist_device_unref(parts->device);
	hoist_device_unref(parts->replica);
}

/* Takes and drops each tensor; other tests compare what comes. */
static void take(hoist_load *loading, size_t n)
{
	hoist_load_item item = {.size = sizeof item};
	size_t n_given = 0;
	int got;
	while ((got = hoist_load_next(loading, UINT64_MAX, &item)) == 1) {
		n_given++;
		CHECK(hoist_buffer_bytes(item.buffer) == N_CHUNKS * CHUNK);
		hoist_buffer_unref(item.buffer);
	}
	CHECK(got == 0 && n_given == n);
}

/* Loads the first @n tensors; what the load did, from its first step to its end. */
static struct cost load(const struct way *way, size_t n)
{
	const char *api = strncmp(way->spec, "hip", 3) == 0 ? "hip" : "cuda";
	struct parts parts;
	const hoist_load_options o = options_of(way, n, &parts);
	hoist_checkpoint *checkpoint = support_open("m.safetensors");
	hoist_load *loading = NULL;
	if (way->hot)
		page_cache_fill(support_path("m.safetensors"));
	else
		page_cache_drop(support_path("m.safetensors"), 0, 0);
	struct state before = state_now();
	double driver_before = (double)support_counters(api).calls;
	double switches = n_switches(api);
	unsigned system_before = atomic_load(&n_system);
	OK(hoist_load_start(checkpoint, &o, &loading));
	int done = 0;
	uint64_t asked = 0; /* driver calls of the test's own */
	if (way->kind == STREAMS)
		take(loading, n);
	while (way->stepped && way->kind != STREAMS && done == 0) {
		done = hoist_load_step(loading, UINT64_C(1000000000));
		struct state now = state_now();
		CHECK(done >= 0 && same(&before, &now));
		asked += 3;
	}
	OK(hoist_load_wait(loading));
	struct cost cost = {
		.system = atomic_load(&n_system) - system_before,
		.driver = (double)support_counters(api).calls - driver_before - (double)asked,
		.switches = n_switches(api) - switches - own_switches(way, asked),
	};
	if (way->kind != STREAMS)
		support_compare(checkpoint, loading);
	struct state after = state_now();
	CHECK(same(&before, &after));
	hoist_load_destroy(loading);
	hoist_checkpoint_close(checkpoint);
	drop(&parts);
	return cost;
}

static double per_chunk(double two, double one)
{
	return (two - one) / N_CHUNKS;
}

/* The cost of a chunk, measured again while pages leave the cache that a hot load should find. */
static struct cost chunk_cost(const struct way *way)
{
	unsigned n_targets = way->replica != NULL || way->kind == TARGETS ? 2 : 1;
	struct cost one, two;
	uint64_t until = 0;
	do {
		atomic_store(&pages_left, false);
		one = load(way, 1);
		two = load(way, 2);
	} while (way->hot && atomic_load(&pages_left) && patience(&until));
	return (struct cost){per_chunk(two.system, one.system),
			     per_chunk(two.driver, one.driver) / n_targets,
			     per_chunk(two.switches, one.switches) / n_targets};
}

static bool holds(const struct way *way, struct cost cost)
{
	/* A load's own thread has its device current all the time. */
	bool switches = way->stepped || way->replica != NULL || cost.switches <= 0.1;
	bool calls = cost.system <= MOST_SYSTEM_CALLS && cost.driver <= MOST_DRIVER_CALLS;
	return switches && (calls || !COUNTS_CALLS);
}

/* On a machine that is busy, threads wake each other one by one, and each wake costs calls.  So the
 * verdict is not that of one try: the bar holds if any try keeps it. */
static void hold_the_bar(const struct way *way)
{
	struct cost cost;
	unsigned n_tries = 0;
	uint64_t until = 0;
	(void)load(way, 1); /* memory is pinned, once */
	do {
		cost = chunk_cost(way);
		n_tries++;
	} while (!holds(way, cost) && patience(&until));
	printf("%s%s%s, %s, %s, %s%s: %.2f system calls, %.2f driver calls, of these %.2f switches "
	       "(try %u)\n",
	       way->spec, way->replica != NULL ? " and " : "",
	       way->replica != NULL ? way->replica : "", way->hot ? "hot" : "cold",
	       way->stepped ? "stepped" : "own thread",
	       way->engine == HOIST_ENGINE_THREADS ? "threads" : "auto", kinds[way->kind],
	       cost.system, cost.driver, cost.switches, n_tries);
	CHECK(holds(way, cost));
}

int main(void)
{
	const size_t sizes[] = {N_CHUNKS * CHUNK, N_CHUNKS * CHUNK};
	unsigned mode = 1;
	lib_need_emulators();
	hoist_device *devices[LIB_N_DEVICES];
	lib_open_all(devices);
	find_drivers();
	/* The caller has a context, a device and modes that a load would not choose. */
	lib_enter_context(1);
	OK(driver.exchange[0](&mode));
	support_write("m.safetensors", 0, 2, sizes, 0);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(ways); i++)
		hold_the_bar(&ways[i]);
	lib_leave_context(1);
	CHECK(lib_drivers_content());
	for (int d = 0; d < LIB_N_DEVICES; d++)
		hoist_device_unref(devices[d]);
	support_cleanup();
	return 0;
}
