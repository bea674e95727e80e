/* SPDX-License-Identifier: MIT */
/* The checkpoints of the tests on a file system that fails, the ways to load them, and a comparison
 * that survives bus errors. */
#include "config.h"

#include "tests/faults/fuse-model.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/count.h"

struct model models[] = {
	{.format = "safetensors", .name = "m.safetensors", .n_tensors = 4},
	{.format = "gguf", .name = "m.gguf", .n_tensors = 3},
	{.format = "npy", .name = "m.npy", .n_tensors = 1},
	{.format = "safetensors",
	 .name = "s.safetensors.index.json",
	 .shard_bytes = 700000,
	 .n_tensors = 5},
};
const unsigned n_models = sizeof models / sizeof models[0];

#define URING HOIST_ENGINE_URING
#define THREADS HOIST_ENGINE_THREADS
const struct way ways[] = {
	{"io_uring cpu auto", URING, false, HOIST_IO_AUTO, 0},
	{"io_uring cpu direct", URING, false, HOIST_IO_DIRECT, 0},
	{"io_uring device cached", URING, true, HOIST_IO_CACHED, 0},
	{"io_uring device direct", URING, true, HOIST_IO_DIRECT, 0},
	{"threads cpu auto", THREADS, false, HOIST_IO_AUTO, 0},
	{"threads cpu direct", THREADS, false, HOIST_IO_DIRECT, 0},
	{"threads device cached", THREADS, true, HOIST_IO_CACHED, 0},
	{"threads device direct", THREADS, true, HOIST_IO_DIRECT, 0},
	{"map", HOIST_ENGINE_AUTO, false, HOIST_IO_MAP, 0},
	{"map, populated", HOIST_ENGINE_AUTO, false, HOIST_IO_MAP, HOIST_LOAD_POPULATE},
};
const unsigned n_ways = sizeof ways / sizeof ways[0];

bool model_long_form;
bool model_quiet;

static uint64_t state;
static hoist_device *device;
static hoist_device *cpu;
static hoist_budget *budget;
static bool no_ring;

#define BUDGET_BYTES ((size_t)8 << 20)

uint64_t model_random(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

void model_begin(void)
{
	const char *form = getenv("HOIST_TEST_FORM");
	const char *seed = getenv("HOIST_TEST_SEED");
	model_long_form = form == NULL || strcmp(form, "short") != 0;
	state = seed != NULL ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) * 2654435761u + 1;
	printf("HOIST_TEST_SEED=%llu\n", (unsigned long long)state);
	for (unsigned m = 0; m < n_models; m++) {
		models[m].seed = m * 7 + 1;
		for (unsigned t = 0; t < models[m].n_tensors; t++)
			models[m].n[t] = (int64_t)(model_random(4) == 0 ? 1 + model_random(3000)
									: 1 + model_random(180000));
		models[m].n[0] = 60000 + (int64_t)model_random(120000);
	}
	CHECK(hoist_device_open("cpu", &cpu) == 0);
	CHECK(hoist_device_open("cuda:0", &device) == 0);
	CHECK(hoist_budget_create(BUDGET_BYTES, &budget) == 0);
}

bool model_has_way(const struct way *way)
{
	return !no_ring || way->engine != URING;
}

/* --- what is in a tensor --- */

static void fill(unsigned char *to, size_t n, unsigned seed, unsigned tensor)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (unsigned char)(i * 31 + i / 4096 * 7 + seed * 101 + tensor * 13);
}

const char *model_path(const struct model *model)
{
	static char path[700];
	(void)snprintf(path, sizeof path, "%s/%s", ffs_folder, model->name);
	return path;
}

const char *model_file(const struct model *model)
{
	static char first[64];
	if (model->shard_bytes == 0)
		return model->name;
	for (unsigned i = 0; i < FFS_NODES; i++)
		if (faultfs->nodes[i].used &&
		    strncmp(faultfs->nodes[i].name, "s-00001-of-", 11) == 0)
			(void)snprintf(first, sizeof first, "%.60s", faultfs->nodes[i].name);
	return first;
}

static hoist_buffer *make_tensor(const struct model *model, unsigned tensor)
{
	hoist_buffer *buffer;
	CHECK(hoist_buffer_create(cpu, HOIST_F32, 1, &model->n[tensor], 0, &buffer) == 0);
	fill(hoist_buffer_data(buffer), (size_t)model->n[tensor] * 4, model->seed, tensor);
	return buffer;
}

int model_save(const struct model *model, const hoist_save_options *options)
{
	hoist_save_options o = {.size = sizeof o};
	if (options != NULL)
		o = *options;
	o.format = model->format;
	o.shard_bytes = model->shard_bytes;
	o.budget = budget;
	hoist_save *save;
	CHECK(hoist_save_create(model_path(model), &o, &save) == 0);
	for (unsigned t = 0; t < model->n_tensors; t++) {
		char name[16];
		(void)snprintf(name, sizeof name, "t%u", t);
		hoist_buffer *buffer = make_tensor(model, t);
		CHECK(hoist_save_add(save, name, buffer) == 0);
		hoist_buffer_unref(buffer);
	}
	int err = hoist_save_start(save);
	if (err == 0)
		err = hoist_save_wait(save);
	char text[512];
	(void)snprintf(text, sizeof text, "%s", hoist_error());
	CHECK(err == 0 || text[0] != '\0');
	hoist_save_destroy(save);
	CHECK(hoist_budget_used(budget) == 0);
	return err;
}

/* --- loading --- */

static sigjmp_buf back;

static void jump(int number)
{
	(void)number;
	siglongjmp(back, 1);
}

static void say_difference(const unsigned char *got, const unsigned char *want, size_t n,
			   unsigned tensor)
{
	size_t first = 0, last = n, wrong = 0;
	while (first < n && got[first] == want[first])
		first++;
	while (last > first && got[last - 1] == want[last - 1])
		last--;
	for (size_t i = first; i < last; i++)
		wrong += got[i] != want[i];
	fprintf(stderr,
		"tensor %u of %zu bytes: %zu wrong in [%zu, %zu), the first is %u, not %u\n",
		tensor, n, wrong, first, last, got[first], want[first]);
}

/* -EFAULT: SIGBUS. */
static int touch_all(const unsigned char *got, const unsigned char *want, size_t n, unsigned tensor)
{
	struct sigaction action = {.sa_handler = jump}, before;
	CHECK(sigaction(SIGBUS, &action, &before) == 0);
	int err = -EFAULT;
	if (sigsetjmp(back, 1) == 0) {
		if (!model_quiet && memcmp(got, want, n) != 0)
			say_difference(got, want, n, tensor);
		err = memcmp(got, want, n) == 0 ? 0 : -EILSEQ;
	}
	sigaction(SIGBUS, &before, NULL);
	return err;
}

static int compare(const struct model *model, unsigned tensor, hoist_buffer *buffer)
{
	size_t bytes = (size_t)model->n[tensor] * 4;
	CHECK(hoist_buffer_bytes(buffer) == bytes);
	unsigned char *want = malloc(bytes);
	unsigned char *got = malloc(bytes);
	CHECK(want != NULL && got != NULL);
	fill(want, bytes, model->seed, tensor);
	const unsigned char *data = hoist_buffer_data(buffer);
	if (data == NULL)
		CHECK(hoist_buffer_read(buffer, 0, got, bytes) == 0);
	int err = touch_all(data != NULL ? data : got, want, bytes, tensor);
	free(want);
	free(got);
	return err;
}

int model_compare(const struct model *model, hoist_load *load)
{
	CHECK(hoist_load_n_tensors(load) == model->n_tensors);
	for (unsigned t = 0; t < model->n_tensors; t++) {
		char name[16];
		hoist_buffer *buffer;
		(void)snprintf(name, sizeof name, "t%u", t);
		if (strcmp(model->format, "npy") == 0)
			(void)snprintf(name, sizeof name, "arr_0");
		int err = hoist_load_buffer(load, name, &buffer);
		if (err < 0)
			return err;
		err = compare(model, t, buffer);
		hoist_buffer_unref(buffer);
		if (err < 0)
			return err;
	}
	return 0;
}

void model_options(const struct way *way, hoist_load_options *ret)
{
	*ret = (hoist_load_options){.size = sizeof *ret};
	ret->device = way->device ? device : NULL;
	ret->engine = way->engine;
	ret->io = way->io;
	ret->flags = way->flags;
	ret->budget = budget;
	ret->chunk_bytes = 256 << 10;
}

struct model_result model_load(const struct model *model, const struct way *way)
{
	struct model_result result = {.report.size = sizeof result.report};
	hoist_load_options o;
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	model_options(way, &o);
	result.err = hoist_checkpoint_open(model_path(model), 0, &checkpoint);
	result.opened = result.err == 0;
	uint64_t n_short = atomic_load(&faultfs->n_short);
	if (result.err == 0)
		result.err = hoist_load_start(checkpoint, &o, &load);
	if (result.err == 0)
		result.err = hoist_load_wait(load);
	if (result.err == 0) {
		CHECK(hoist_load_get_report(load, &result.report) == 0);
		result.err = model_compare(model, load);
		result.touched = result.err == -EFAULT;
	}
	result.n_short = atomic_load(&faultfs->n_short) - n_short;
	if (result.err < 0)
		(void)snprintf(result.text, sizeof result.text, "%s", hoist_error());
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	return result;
}

/* --- afterwards --- */

static unsigned count_descriptors(void)
{
	unsigned n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static unsigned count_maps(void)
{
	return count_lines_with("/proc/self/maps", ffs_folder);
}

static struct hoist_emulator_counters idle;
static unsigned idle_descriptors;

void model_check_nothing_left(void)
{
	struct hoist_emulator_counters now = support_counters("cuda");
	CHECK(count_descriptors() == idle_descriptors);
	CHECK(count_maps() == 0);
	CHECK(hoist_budget_used(budget) == 0);
	CHECK(now.live_allocations <= idle.live_allocations);
	CHECK(now.live_streams <= idle.live_streams);
	CHECK(now.live_events <= idle.live_events);
	/* Pools keep a budget's worth for the next one. */
	CHECK(now.live_registered_bytes <= idle.live_registered_bytes + BUDGET_BYTES);
	CHECK(now.use_after_free == 0 && now.bad_frees == 0);
}

void model_check_healthy(const struct model *model, const struct way *way)
{
	struct model_result result = model_load(model, way);
	if (result.err != 0)
		fprintf(stderr, "healthy: %s, %s: %d %s\n", model->name, way->name, result.err,
			result.text);
	CHECK(result.err == 0);
	model_check_nothing_left();
}

void model_save_all(void)
{
	for (unsigned m = 0; m < n_models; m++)
		CHECK(model_save(&models[m], NULL) == 0);
	/* The first of each keeps what all that follow use: pools, threads, drivers. */
	for (unsigned m = 0; m < n_models; m++)
		for (unsigned w = 0; w < n_ways; w++) {
			struct model_result first = model_load(&models[m], &ways[w]);
			if (first.err == -EPERM || first.err == -ENOSYS)
				no_ring = true;
			else if (first.err != 0)
				fprintf(stderr, "%s: %s\n", ways[w].name, first.text);
			CHECK(first.err == 0 || !model_has_way(&ways[w]));
		}
	idle_descriptors = count_descriptors();
	idle = support_counters("cuda");
}

void model_part(const char *name, void (*before)(void), void (*run)(void))
{
	struct timespec start, end;
	clock_gettime(CLOCK_MONOTONIC, &start);
	printf("%s ...\n", name);
	fflush(stdout);
	before();
	run();
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%s: %.1f s\n", name,
	       (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec));
}
