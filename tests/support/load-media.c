/* SPDX-License-Identifier: MIT */
/* The model on a disk with bad places, the ways to load it, and the checks of loads and saves. */
#include "config.h"

#include "hoist/compat.h"
#include "tests/support/count.h"
#include "tests/support/load-media.h"
#include "tests/support/save-support.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

const struct media_tensor media_tensors[MEDIA_TENSORS] = {
	{"first", 1, {100001}},	 {"gap", 1, {14000}},
	{"middle", 1, {300007}}, {"rows", 2, {40, MEDIA_ROW_BYTES}},
	{"last", 1, {1500000}},
};

#define MAPS HOIST_LOAD_POPULATE
const struct media_way media_ways[] = {
	{"cpu", HOIST_ENGINE_URING, HOIST_IO_DIRECT, 0, false},
	{"cpu", HOIST_ENGINE_THREADS, HOIST_IO_DIRECT, 0, false},
	{"cpu", HOIST_ENGINE_URING, HOIST_IO_CACHED, 0, false},
	{"cpu", HOIST_ENGINE_THREADS, HOIST_IO_CACHED, 0, true},
	{"cpu", HOIST_ENGINE_AUTO, HOIST_IO_AUTO, HOIST_LOAD_VERIFY, true},
	{"cpu", HOIST_ENGINE_URING, HOIST_IO_AUTO, HOIST_LOAD_CALLER_DRIVEN, false},
	{"cpu", HOIST_ENGINE_AUTO, HOIST_IO_MAP, MAPS, false},
	{"cuda:0", HOIST_ENGINE_URING, HOIST_IO_DIRECT, 0, true},
	{"cuda:0", HOIST_ENGINE_THREADS, HOIST_IO_DIRECT, HOIST_LOAD_CALLER_DRIVEN, false},
	{"cuda:0", HOIST_ENGINE_URING, HOIST_IO_CACHED, HOIST_LOAD_DIGEST, false},
	{"hip:0", HOIST_ENGINE_THREADS, HOIST_IO_CACHED, 0, true},
	{"hip:0", HOIST_ENGINE_URING, HOIST_IO_AUTO, HOIST_LOAD_DROP_CACHE, false},
};
const size_t media_n_ways = sizeof media_ways / sizeof *media_ways;

/* --- the model --- */

static size_t bytes_of(size_t tensor)
{
	const struct media_tensor *t = &media_tensors[tensor];
	return (size_t)(t->shape[0] * (t->rank == 2 ? t->shape[1] : 1));
}

/* No two pages are alike, so that one can be found on a disk by what it holds. */
void media_fill(unsigned char *to, size_t n, unsigned seed, size_t tensor, size_t from)
{
	for (size_t at = from, end = from + n; at < end;) {
		uint64_t word = at / 8 + ((uint64_t)tensor << 40) + ((uint64_t)seed << 48);
		word *= UINT64_C(0x9e3779b97f4a7c15);
		word ^= word >> 29;
		size_t bytes = 8 - at % 8 < end - at ? 8 - at % 8 : end - at;
		memcpy(to + (at - from), (const unsigned char *)&word + at % 8, bytes);
		at += bytes;
	}
}

int media_save(const char *path, unsigned seed, hoist_save_options *options)
{
	options->size = sizeof *options;
	options->flags |= HOIST_SAVE_DIGEST;
	hoist_device *cpu;
	hoist_save *save;
	OK(hoist_device_open("cpu", &cpu));
	OK(hoist_save_create(path, options, &save));
	for (size_t i = 0; i < MEDIA_TENSORS; i++) {
		hoist_buffer *buffer;
		OK(hoist_buffer_create(cpu, HOIST_U8, media_tensors[i].rank, media_tensors[i].shape,
				       0, &buffer));
		media_fill(hoist_buffer_data(buffer), bytes_of(i), seed, i, 0);
		OK(hoist_save_add(save, media_tensors[i].name, buffer));
		hoist_buffer_unref(buffer);
	}
	hoist_device_unref(cpu);
	return saved_run(save);
}

void media_make(const char *path, unsigned seed)
{
	hoist_save_options options = {0};
	OK(media_save(path, seed, &options));
}

uint64_t media_place(const char *path, const char *tensor, uint64_t at)
{
	hoist_checkpoint *checkpoint;
	hoist_tensor_info info = {.size = sizeof info};
	size_t index;
	OK(hoist_checkpoint_open(path, 0, &checkpoint));
	OK(hoist_checkpoint_find(checkpoint, tensor, &index));
	OK(hoist_checkpoint_tensor(checkpoint, index, &info));
	hoist_checkpoint_close(checkpoint);
	return info.offset + at;
}

/* --- what it says --- */

void media_said(const char *text)
{
	if (strstr(hoist_error(), text) != NULL)
		return;
	fprintf(stderr, "it does not say '%s': %s\n", text, hoist_error());
	exit(1);
}

/* A number of the text is within [low, high]. */
static bool has_number(const char *text, uint64_t low, uint64_t high)
{
	for (const char *at = text; *at != '\0'; at++) {
		if (!isdigit((unsigned char)*at) || (at > text && isdigit((unsigned char)at[-1])))
			continue;
		uint64_t value = strtoull(at, NULL, 10);
		if (value >= low && value <= high)
			return true;
	}
	return false;
}

/* The page of @place is what cannot be read; of it, what @bad has. */
static void check_text(const char *path, const char *bad, uint64_t place)
{
	char quoted[64];
	snprintf(quoted, sizeof quoted, "\"%s\"", bad);
	media_said(path);
	media_said(quoted);
	if (has_number(hoist_error(), place - place % MEDIA_PAGE, place))
		return;
	fprintf(stderr, "no byte up to %llu: %s\n", (unsigned long long)place, hoist_error());
	exit(1);
}

/* --- loads --- */

static hoist_load_options options_of(const struct media_way *way, const struct media_choice *choice)
{
	hoist_load_options o = {
		.size = sizeof o,
		.engine = way->engine,
		.io = way->io,
		.flags = way->flags,
		.chunk_bytes = way->small ? 128 << 10 : 0,
	};
	OK(hoist_device_open(way->device, &o.device));
	OK(hoist_budget_create(way->small ? 1 << 20 : 64 << 20, &o.budget));
	if (choice != NULL && choice->slice != NULL) {
		o.slices = choice->slice;
		o.n_slices = 1;
		o.flags &= ~(HOIST_LOAD_VERIFY | HOIST_LOAD_DIGEST);
	}
	if (choice != NULL) {
		o.tensors = choice->tensors;
		o.n_tensors = choice->n;
	}
	return o;
}

/* Rows of @width bytes, which are those from column @begin on of the tensor's. */
static void compare_rows(const unsigned char *got, size_t bytes, unsigned seed, size_t tensor,
			 size_t begin, size_t width)
{
	size_t stride = width;
	unsigned char *want = malloc(width);
	CHECK(want != NULL && bytes % width == 0);
	if (begin > 0)
		stride = (size_t)media_tensors[tensor].shape[1];
	for (size_t row = 0; row < bytes / width; row++) {
		media_fill(want, width, seed, tensor, row * stride + begin);
		CHECK(memcmp(got + row * width, want, width) == 0);
	}
	free(want);
}

static void compare_one(hoist_buffer *buffer, const char *name, unsigned seed,
			const hoist_load_slice *slice)
{
	size_t bytes = hoist_buffer_bytes(buffer);
	size_t t = 0;
	unsigned char *got = malloc(bytes);
	hoist_buffer *packed;
	hoist_device *cpu;
	while (strcmp(media_tensors[t].name, name) != 0)
		t++;
	CHECK(got != NULL && hoist_device_open("cpu", &cpu) == 0);
	OK(hoist_buffer_contiguous(buffer, cpu, &packed));
	OK(hoist_buffer_read(packed, 0, got, bytes));
	if (slice != NULL && strcmp(slice->tensor, name) == 0)
		compare_rows(got, bytes, seed, t, (size_t)slice->begin,
			     (size_t)(slice->end - slice->begin));
	else
		compare_rows(got, bytes, seed, t, 0, bytes);
	free(got);
	hoist_buffer_unref(packed);
	hoist_device_unref(cpu);
}

static void compare(hoist_load *load, hoist_checkpoint *checkpoint, unsigned seed,
		    const struct media_choice *choice)
{
	size_t n = hoist_load_n_tensors(load);
	CHECK(n > 0);
	for (size_t i = 0; i < n; i++) {
		hoist_buffer *buffer;
		hoist_tensor_info info = {.size = sizeof info};
		size_t index;
		OK(hoist_load_tensor(load, i, &index, &buffer));
		OK(hoist_checkpoint_tensor(checkpoint, index, &info));
		compare_one(buffer, info.name, seed, choice != NULL ? choice->slice : NULL);
		hoist_buffer_unref(buffer);
	}
}

static int wait_for(hoist_load *load, unsigned flags)
{
	if ((flags & HOIST_LOAD_CALLER_DRIVEN) != 0)
		while (hoist_load_step(load, 1000000) == 0)
			continue;
	return hoist_load_wait(load);
}

int media_load(const char *path, unsigned seed, const struct media_way *way,
	       const struct media_choice *choice, const char *bad, uint64_t place)
{
	hoist_load_options o = options_of(way, choice);
	hoist_checkpoint *checkpoint;
	hoist_load *load;
	OK(hoist_checkpoint_open(path, 0, &checkpoint));
	OK(hoist_load_start(checkpoint, &o, &load));
	int err = wait_for(load, o.flags);
	if (bad == NULL) {
		OK(err);
		compare(load, checkpoint, seed, choice);
	} else {
		CHECK(err == -EIO);
		check_text(path, bad, place);
		hoist_buffer *none = NULL;
		CHECK(hoist_load_tensor(load, 0, NULL, &none) == -EIO && none == NULL);
	}
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	CHECK(hoist_budget_used(o.budget) == 0);
	hoist_budget_unref(o.budget);
	hoist_device_unref(o.device);
	return err;
}

#define MAX_SEED 16u

static unsigned seed_of(hoist_load *load, hoist_checkpoint *checkpoint)
{
	hoist_buffer *buffer;
	hoist_tensor_info info = {.size = sizeof info};
	size_t index;
	size_t t = 0;
	unsigned char got[64], want[64];
	OK(hoist_load_tensor(load, 0, &index, &buffer));
	OK(hoist_checkpoint_tensor(checkpoint, index, &info));
	OK(hoist_buffer_read(buffer, 0, got, sizeof got));
	hoist_buffer_unref(buffer);
	while (strcmp(media_tensors[t].name, info.name) != 0)
		t++;
	unsigned seed = 0;
	do
		media_fill(want, sizeof want, ++seed, t, 0);
	while (seed < MAX_SEED && memcmp(got, want, sizeof got) != 0);
	return seed;
}

unsigned media_seed(const char *path)
{
	const hoist_load_options o = {.size = sizeof o, .flags = HOIST_LOAD_VERIFY};
	hoist_checkpoint *checkpoint;
	hoist_load *load;
	int err = hoist_checkpoint_open(path, 0, &checkpoint);
	if (err == -ENOENT)
		return 0;
	OK(err);
	CHECK(hoist_load_start(checkpoint, &o, &load) == 0 && hoist_load_wait(load) == 0);
	unsigned seed = seed_of(load, checkpoint);
	compare(load, checkpoint, seed, NULL);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	return seed;
}

/* --- saves --- */

int media_save_from(const char *path, const char *to, enum hoist_engine engine, enum hoist_io io,
		    const char *const *tensors, size_t n, const char *bad, uint64_t place)
{
	hoist_save_options options = {.size = sizeof options, .engine = engine, .io = io};
	hoist_checkpoint *checkpoint;
	hoist_save *save;
	OK(hoist_checkpoint_open(path, 0, &checkpoint));
	OK(hoist_budget_create(64 << 20, &options.budget));
	OK(hoist_save_create(to, &options, &save));
	size_t all = hoist_checkpoint_n_tensors(checkpoint);
	for (size_t i = 0; i < (tensors != NULL ? n : all); i++) {
		size_t index = i;
		if (tensors != NULL)
			OK(hoist_checkpoint_find(checkpoint, tensors[i], &index));
		OK(hoist_save_add_tensor(save, NULL, checkpoint, index));
	}
	OK(hoist_save_start(save));
	int err = hoist_save_wait(save);
	CHECK(err == (bad != NULL ? -EIO : 0));
	if (bad != NULL)
		check_text(path, bad, place);
	hoist_save_destroy(save);
	hoist_checkpoint_close(checkpoint);
	CHECK(hoist_budget_used(options.budget) == 0);
	hoist_budget_unref(options.budget);
	return err;
}

/* --- what is left --- */

static struct hoist_emulator_counters ask(const char *api)
{
	struct hoist_emulator_counters none = {0};
	return support_control(api, "hoist_emulator_counters") != NULL ? support_counters(api)
								       : none;
}

struct media_left media_look(const char *folder)
{
	return (struct media_left){
		.n_fds = count_entries("/proc/self/fd"),
		.n_maps = count_lines_with("/proc/self/maps", folder),
		.cuda = ask("cuda"),
		.hip = ask("hip"),
	};
}

static void same_counts(const struct hoist_emulator_counters *a,
			const struct hoist_emulator_counters *b)
{
	CHECK(a->live_allocations == b->live_allocations && a->live_bytes == b->live_bytes);
	CHECK(a->live_registrations == b->live_registrations);
	CHECK(a->live_streams == b->live_streams && a->live_events == b->live_events);
	CHECK(b->bad_copies == 0 && b->bad_frees == 0 && b->use_after_free == 0);
}

void media_same(const struct media_left *before, const struct media_left *now)
{
	CHECK(now->n_fds == before->n_fds);
	CHECK(now->n_maps == before->n_maps);
	same_counts(&before->cuda, &now->cuda);
	same_counts(&before->hip, &now->hip);
}
