/* SPDX-License-Identifier: MIT */
/* Random checkpoints of all formats, loaded in random ways to random devices, at once or tensor by
 * tensor through a window, and compared element by element with the files' bytes at the places that
 * shapes, strides and ranges give. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "tests/lib/load/model.h"
#include "tests/support/lib-support.h"
#include "tests/support/load-support.h"

#define N_ROUNDS 45
#define LOADS_OF_ONE 6

static uint64_t round_seed; /* shown when something is wrong */
static bool talks;
static unsigned n_streams, n_windows, n_target_loads; /* of the loads that were tried */

static const char *path;

/* --- the options of a load --- */

enum { CPU, CUDA_0, CUDA_1, HIP_0, N_DEVICES };
static hoist_device *devices[N_DEVICES];
static hoist_memory *lone; /* each block from 64 KiB on has a region to itself */

static hoist_dtype some_dtype(void)
{
	static const hoist_dtype dtypes[] = {0, 0, HOIST_F32, HOIST_F16, HOIST_BF16};
	return PICK(dtypes);
}

static void choose_way(struct trial *trial, bool slices)
{
	static const size_t chunks[] = {0, 0, 4096, 8192, 12288, 20480, 65536, 1052672};
	static const unsigned depths[] = {0, 0, 1, 2, 3, 17, 200};
	static const size_t aligns[] = {0, 0, 1, 64, 4096};
	hoist_load_options *o = &trial->o;
	int d = (int)below(N_DEVICES);
	o->device = d == CPU && chance(2) ? NULL : devices[d];
	if ((d == CUDA_0 || d == CUDA_1) && chance(2)) {
		trial->replicas[0] = devices[CUDA_0 + CUDA_1 - d];
		o->replicas = trial->replicas;
		o->n_replicas = 1;
	}
	o->engine = chance(2) ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS;
	o->io = (enum hoist_io)below(HOIST_IO_ADAPTIVE + 1);
	o->map = (enum hoist_map)below(2);
	trial->maps = d == CPU && o->io == HOIST_IO_MAP;
	o->memory = d == CPU && !trial->maps && chance(2) ? lone : NULL;
	o->chunk_bytes = PICK(chunks);
	o->depth = PICK(depths);
	o->tensor_align = PICK(aligns);
	if (chance(4))
		o->flags |= HOIST_LOAD_POPULATE;
	if (chance(8) && o->io != HOIST_IO_ADAPTIVE)
		o->flags |= HOIST_LOAD_DROP_CACHE;
	if (!slices && !trial->maps && chance(2))
		o->flags |= HOIST_LOAD_DIGEST;
	if (chance(2))
		o->flags |= HOIST_LOAD_CALLER_DRIVEN;
	if (chance(3))
		o->flags |= HOIST_LOAD_SPLIT;
}

/* Windows of no tensor, of some, and of all. */
static void choose_stream(struct trial *trial)
{
	static const size_t windows[] = {0, 1, 5000, 20000, 60000, 200000, 1 << 20};
	hoist_load_options *o = &trial->o;
	o->flags |= HOIST_LOAD_STREAM;
	if (!trial->maps)
		o->window_bytes = PICK(windows);
	if (o->device == NULL || o->device == devices[CPU])
		return;
	OK(hoist_stream_create(o->device, &trial->stream));
	if (chance(2))
		o->stream = trial->stream;
}

static void choose_one(hoist_checkpoint *checkpoint, struct trial *trial, bool slices)
{
	struct load_choice *choice = &trial->choices[0];
	load_choose_parts(checkpoint, slices, choice);
	choice->dtype = trial->maps ? 0 : some_dtype();
	trial->o.tensors = choice->all ? NULL : choice->names;
	trial->o.n_tensors = choice->n_names;
	trial->o.slices = choice->slices;
	trial->o.n_slices = choice->n_slices;
	trial->o.dtype = choice->dtype;
}

/* Names, and globs of one letter. */
static void choose_order(hoist_checkpoint *checkpoint, struct trial *trial)
{
	size_t n = hoist_checkpoint_n_tensors(checkpoint);
	size_t n_order = n > 0 && chance(2) ? 1 + below(MOST_ORDER) : 0;
	for (size_t t = 0; t < n; t++)
		trial->tier[t] = n_order;
	for (size_t p = 0; p < n_order; p++) {
		const char *name = load_info_of(checkpoint, below(n)).name;
		bool glob = name[0] != '\0' && isalnum((unsigned char)name[0]) && chance(2);
		(void)snprintf(trial->globs[p], sizeof trial->globs[p], "%c*",
			       glob ? name[0] : '*');
		trial->order[p] = glob ? trial->globs[p] : name;
		for (size_t t = 0; t < n; t++) {
			const char *is = load_info_of(checkpoint, t).name;
			bool named = glob ? is[0] == name[0] : strcmp(is, name) == 0;
			if (named && trial->tier[t] == n_order)
				trial->tier[t] = p;
		}
	}
	trial->o.order = trial->order;
	trial->o.n_order = n_order;
}

/* Targets on devices of one API and on the CPU, some of which ask for the same. */
static void choose_targets(hoist_checkpoint *checkpoint, struct trial *trial, bool slices)
{
	static const int cuda[] = {CPU, CUDA_0, CUDA_1, CUDA_0, CUDA_1};
	static const int hip[] = {CPU, HIP_0, HIP_0};
	bool is_hip = chance(4);
	trial->o.device = NULL;
	trial->o.n_replicas = 0;
	trial->o.memory = NULL;
	trial->o.targets = trial->pointers;
	trial->o.n_targets = 1 + below(MOST_TARGETS);
	trial->maps = false;
	for (size_t t = 0; t < trial->o.n_targets; t++) {
		struct load_choice *choice = &trial->choices[t];
		int d = is_hip ? PICK(hip) : PICK(cuda);
		trial->maps = trial->o.n_targets == 1 && d == CPU && trial->o.io == HOIST_IO_MAP;
		if (trial->maps)
			trial->o.flags &= ~HOIST_LOAD_DIGEST;
		if (t > 0 && chance(4)) {
			*choice = trial->choices[t - 1];
		} else {
			load_choose_parts(checkpoint, slices, choice);
			choice->dtype = trial->maps ? 0 : some_dtype();
		}
		trial->targets[t] = (hoist_load_target){
			.size = sizeof trial->targets[t],
			.device = d == CPU && chance(2) ? NULL : devices[d],
			.tensors = choice->all ? NULL : choice->names,
			.n_tensors = choice->n_names,
			.slices = choice->slices,
			.n_slices = choice->n_slices,
			.dtype = choice->dtype,
			.memory = d == CPU && !trial->maps && chance(2) ? lone : NULL,
		};
		trial->pointers[t] = &trial->targets[t];
	}
}

/* --- the tensors that arrive --- */

static void read_files(hoist_checkpoint *checkpoint, struct load_files *files)
{
	*files = (struct load_files){.n = hoist_checkpoint_n_files(checkpoint)};
	CHECK(files->n <= 2);
	for (size_t f = 0; f < files->n; f++) {
		hoist_file_info info = {.size = sizeof info};
		OK(hoist_checkpoint_file(checkpoint, f, &info));
		CHECK(bytes_load(&files->bytes[f], info.path));
	}
}

void show(const struct trial *trial, const char *name, const char *what)
{
	(void)fprintf(stderr,
		      "%s of seed %llu: %s: %s; to %s, %zu replicas, %zu targets, engine %d, io "
		      "%d, dtype %d, "
		      "chunk %zu, depth %u, align %zu, flags %#x, %zu slices, %zu of names, "
		      "order of %zu\n",
		      path, (unsigned long long)round_seed, name, what,
		      trial->o.device != NULL ? hoist_device_spec(trial->o.device) : "NULL",
		      trial->o.n_replicas, trial->o.n_targets, (int)trial->o.engine,
		      (int)trial->o.io, (int)trial->o.dtype, trial->o.chunk_bytes, trial->o.depth,
		      trial->o.tensor_align, trial->o.flags, trial->o.n_slices, trial->o.n_tensors,
		      trial->o.n_order);
}

void compare_digest(hoist_load *load, size_t i, const hoist_tensor_info *info,
		    const struct load_files *files)
{
	unsigned char is[16];
	XXH128_canonical_t should;
	XXH128_canonicalFromHash(&should, XXH3_128bits(files->bytes[info->file].p + info->offset,
						       (size_t)info->bytes));
	OK(hoist_load_digest(load, i, is));
	CHECK(memcmp(is, &should, 16) == 0);
}

void compare(const struct trial *trial, const struct load_choice *choice, size_t t,
	     const hoist_tensor_info *info, const struct load_files *files, hoist_buffer *buffer)
{
	char what[64];
	bool same = load_compare(choice, t, info, files, buffer, what);
	if (!same)
		show(trial, info->name, what);
	CHECK(same);
}

/* One of the targets; the replicas of a load without targets have what the first has. */
static void compare_target(hoist_checkpoint *checkpoint, const struct trial *trial,
			   const struct load_files *files, hoist_load *load, size_t target)
{
	const struct load_choice *choice = choice_of(trial, target);
	size_t i = 0;
	for (size_t t = 0; t < hoist_checkpoint_n_tensors(checkpoint); t++) {
		if (!choice->wanted[t])
			continue;
		const hoist_tensor_info info = load_info_of(checkpoint, t);
		size_t which = SIZE_MAX;
		hoist_buffer *buffer = NULL;
		OK(hoist_load_target_tensor(load, target, i, &which, &buffer));
		CHECK(which == t);
		compare(trial, choice, t, &info, files, buffer);
		hoist_buffer_unref(buffer);
		if (target == 0) {
			CHECK(hoist_load_tensor(load, i, &which, &buffer) == 0 && which == t);
			compare(trial, choice, t, &info, files, buffer);
			hoist_buffer_unref(buffer);
		}
		for (size_t r = 0; target == 0 && r < trial->o.n_replicas; r++) {
			OK(hoist_load_replica(load, r, i, &buffer));
			compare(trial, choice, t, &info, files, buffer);
			hoist_buffer_unref(buffer);
		}
		if (target == 0 && (trial->o.flags & HOIST_LOAD_DIGEST) != 0)
			compare_digest(load, i, &info, files);
		i++;
	}
	CHECK(hoist_load_target_n_tensors(load, target) == i);
	CHECK(target > 0 || hoist_load_n_tensors(load) == i);
}

static void compare_all(hoist_checkpoint *checkpoint, const struct trial *trial,
			const struct load_files *files, hoist_load *load)
{
	size_t n = n_targets_of(trial);
	CHECK(hoist_load_n_targets(load) == n && hoist_load_target_n_tensors(load, n) == 0);
	for (size_t target = 0; target < n; target++)
		compare_target(checkpoint, trial, files, load, target);
	uint64_t done = 0;
	uint64_t total = 1;
	hoist_load_progress(load, &done, &total);
	if (done != total)
		show(trial, "all", "not all has arrived");
	CHECK(done == total);
}

/* The buffers of the first target, which live on without their load, go one by one: the others keep
 * their bytes. */
static void end_and_drop(hoist_checkpoint *checkpoint, const struct trial *trial,
			 const struct load_files *files, hoist_load *load)
{
	hoist_buffer *buffers[RANDOM_MOST_TENSORS];
	size_t which[RANDOM_MOST_TENSORS];
	size_t n = hoist_load_n_tensors(load);
	for (size_t i = 0; i < n; i++)
		OK(hoist_load_tensor(load, i, &which[i], &buffers[i]));
	hoist_load_destroy(load);
	for (; n > 0; n--) {
		size_t i = (size_t)below(n);
		hoist_buffer_unref(buffers[i]);
		buffers[i] = buffers[n - 1];
		which[i] = which[n - 1];
		for (size_t k = n > 30 ? below(n / 3) : 0; k < n - 1; k += 1 + n / 30) {
			const hoist_tensor_info info = load_info_of(checkpoint, which[k]);
			compare(trial, &trial->choices[0], which[k], &info, files, buffers[k]);
		}
	}
}

/* To its end or, by chance, not.  Returns what waiting gave; 1: it was not waited for. */
static int drive(const struct trial *trial, hoist_load *load, bool leave)
{
	static const uint64_t timeouts[] = {0, 0, 1000, 1000000, UINT64_MAX};
	uint64_t when = leave ? below(40) : UINT64_MAX;
	const uint64_t before = random_state(); /* how many steps there are depends on time */
	if ((trial->o.flags & HOIST_LOAD_CALLER_DRIVEN) == 0 && leave)
		(void)usleep((useconds_t)below(1500));
	else if ((trial->o.flags & HOIST_LOAD_CALLER_DRIVEN) != 0)
		for (uint64_t s = 0; s < when && hoist_load_step(load, PICK(timeouts)) == 0; s++)
			continue;
	random_seed(before);
	if (leave && chance(2))
		return 1;
	if (leave)
		hoist_load_cancel(load);
	return hoist_load_wait(load);
}

static void load_once(hoist_checkpoint *checkpoint, const struct trial *trial,
		      const struct load_files *files, const hoist_forecast *forecast,
		      hoist_load *load)
{
	bool leave = chance(8);
	int err = drive(trial, load, leave);
	if (err < 0 && !(leave && err == -ECANCELED))
		show(trial, "wait", hoist_error());
	CHECK(err >= 0 || (leave && err == -ECANCELED));
	if (err == 0)
		forecast_end(trial, forecast, load);
	if (err == 0)
		compare_all(checkpoint, trial, files, load);
	if (err == 0 && chance(2))
		end_and_drop(checkpoint, trial, files, load);
	else
		hoist_load_destroy(load);
}

static void try_once(hoist_checkpoint *checkpoint, const struct load_files *files)
{
	static const size_t budgets[] = {128 << 10, 128 << 10, 200 << 10, 1 << 20};
	static struct trial trial; /* large */
	trial = (struct trial){.o = {.size = sizeof trial.o}};
	hoist_load *load = NULL;
	bool slices = chance(2);
	choose_way(&trial, slices);
	if (chance(2))
		choose_targets(checkpoint, &trial, slices);
	else
		choose_one(checkpoint, &trial, slices);
	choose_order(checkpoint, &trial);
	if (chance(2))
		choose_stream(&trial);
	/* Two slots of 18 blocks: a chunk of two, and four forms of it, each twice as wide. */
	size_t more = trial.o.n_targets > 3 ? 16 << 10 : 0;
	if (chance(2))
		OK(hoist_budget_create(PICK(budgets) + more, &trial.o.budget));
	n_streams += (trial.o.flags & HOIST_LOAD_STREAM) != 0;
	n_windows += trial.o.window_bytes > 0;
	n_target_loads += trial.o.n_targets > 1;
	if (talks)
		show(&trial, "all", "begins");
	hoist_forecast forecast;
	forecast_begin(checkpoint, &trial, &forecast);
	if (hoist_load_start(checkpoint, &trial.o, &load) != 0)
		show(&trial, "start", hoist_error());
	CHECK(load != NULL);
	if ((trial.o.flags & HOIST_LOAD_STREAM) != 0)
		stream_once(checkpoint, &trial, files, &forecast, load);
	else
		load_once(checkpoint, &trial, files, &forecast, load);
	if (trial.o.budget != NULL)
		CHECK(hoist_budget_used(trial.o.budget) == 0);
	hoist_budget_unref(trial.o.budget);
}

static void try_round(void)
{
	struct load_files files;
	hoist_checkpoint *checkpoint = NULL;
	round_seed = random_state();
	printf("seed %llu\n", (unsigned long long)round_seed);
	(void)fflush(stdout);
	path = random_checkpoint();
	if (hoist_checkpoint_open(path, 0, &checkpoint) != 0)
		(void)fprintf(stderr, "%s of seed %llu: %s\n", path, (unsigned long long)round_seed,
			      hoist_error());
	CHECK(checkpoint != NULL);
	read_files(checkpoint, &files);
	for (int i = 0; i < LOADS_OF_ONE; i++)
		try_once(checkpoint, &files);
	for (size_t f = 0; f < files.n; f++)
		bytes_free(&files.bytes[f]);
	hoist_checkpoint_close(checkpoint);
}

static void check_drivers(void)
{
	static const char *const apis[] = {"cuda", "hip"};
	for (size_t i = 0; i < 2; i++) {
		const struct hoist_emulator_counters seen = support_counters(apis[i]);
		CHECK(seen.use_after_free == 0 && seen.bad_frees == 0);
		CHECK(seen.pageable_copies == 0 && seen.copies > 0);
	}
}

/* One argument: the seed that a failure showed, and then one round alone. */
int main(int argc, char **argv)
{
	const hoist_memory_options options = {
		.size = sizeof options, .region_bytes = 128 << 10, .keep_bytes = 1};
	support_emulate("cuda:2,hip:1");
	setenv("HOIST_EMULATE_LATENCY", "0..60", 1);
	lib_open_all(devices);
	OK(hoist_memory_create(&options, &lone));
	talks = argc > 1;
	/* Small tensors of two kinds, widened and not, in a slot that has no room to lay them. */
	random_seed(90437);
	if (argc == 1)
		try_round();
	random_seed(argc > 1 ? strtoull(argv[1], NULL, 0) : 20261121);
	for (int i = 0; i < (argc > 1 ? 1 : N_ROUNDS); i++)
		try_round();
	if (argc == 1)
		check_drivers();
	printf("figure: model.streams %u streams of random tensors, %u of them through windows\n",
	       n_streams, n_windows);
	printf("figure: model.targets %u loads to several random targets\n", n_target_loads);
	hoist_memory_unref(lone);
	for (int d = 0; d < N_DEVICES; d++)
		hoist_device_unref(devices[d]);
	support_cleanup();
	return 0;
}
