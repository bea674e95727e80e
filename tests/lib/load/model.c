/* SPDX-License-Identifier: MIT */
/* Random checkpoints of all formats, loaded in random ways to random devices, and compared element
 * by element with the files' bytes at the places that shapes, strides and ranges give. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdalign.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "hoist/number.h"
#include "tests/support/format-archive.h"
#include "tests/support/lib-support.h"
#include "tests/support/load-random.h"
#include "tests/support/load-support.h"

#define MOST_TENSORS RANDOM_MOST_TENSORS
#define MOST_RANK RANDOM_MOST_RANK
#define N_ROUNDS 45
#define LOADS_OF_ONE 6

static uint64_t round_seed; /* shown when something is wrong */
static bool talks;

static const char *path;

/* --- the options of a load --- */

enum { CPU, CUDA_0, CUDA_1, HIP_0, N_DEVICES };
static hoist_device *devices[N_DEVICES];

struct trial {
	hoist_load_options o;
	hoist_load_slice slices[MOST_TENSORS * MOST_RANK];
	const char *names[MOST_TENSORS];
	bool wanted[MOST_TENSORS];
	int64_t begin[MOST_TENSORS][MOST_RANK];
	int64_t end[MOST_TENSORS][MOST_RANK];
	hoist_device *replicas[1];
	bool maps;
};

static hoist_tensor_info info_of(hoist_checkpoint *checkpoint, size_t t)
{
	hoist_tensor_info info = {.size = sizeof info};
	OK(hoist_checkpoint_tensor(checkpoint, t, &info));
	return info;
}

/* Elements that share bytes. */
static unsigned unit_of(hoist_dtype dtype, unsigned *bytes)
{
	hoist_dtype_info info = {.size = sizeof info};
	OK(hoist_dtype_get_info(dtype, &info));
	unsigned unit = 1;
	if (info.block_elements > 1)
		unit = (unsigned)info.block_elements;
	else
		while (unit * hoist_dtype_bits(dtype) % 8 != 0)
			unit++;
	size_t n = 0;
	CHECK(hoist_dtype_bytes(dtype, unit, &n) == 0);
	*bytes = (unsigned)n;
	return unit;
}

static void slice_axis(struct trial *trial, size_t t, const hoist_tensor_info *info, int axis)
{
	unsigned bytes;
	int64_t unit = axis == info->rank - 1 ? unit_of(info->dtype, &bytes) : 1;
	int64_t extent = info->shape[axis] / unit;
	int64_t begin = (int64_t)below((uint64_t)extent + 1);
	int64_t end = begin + (int64_t)below((uint64_t)(extent - begin) + 1);
	hoist_load_slice *slice = &trial->slices[trial->o.n_slices++];
	*slice = (hoist_load_slice){.tensor = info->name,
				    .axis = axis - (chance(2) ? info->rank : 0)};
	if (extent % 2 == 0 && chance(3)) {
		slice->rank = (int)below(2);
		slice->n_ranks = 2;
		begin = extent / 2 * slice->rank;
		end = begin + extent / 2;
	} else {
		slice->begin = begin * unit;
		slice->end = end == extent && chance(2) ? HOIST_SLICE_END : end * unit;
		if (begin < extent && chance(3))
			slice->begin -= extent * unit;
	}
	trial->begin[t][axis] = begin * unit;
	trial->end[t][axis] = end * unit;
}

static void choose_parts(hoist_checkpoint *checkpoint, struct trial *trial)
{
	size_t n = hoist_checkpoint_n_tensors(checkpoint);
	bool all = chance(2);
	bool slices = chance(2);
	CHECK(n <= MOST_TENSORS);
	trial->o.tensors = all ? NULL : trial->names;
	trial->o.slices = trial->slices;
	for (size_t t = 0; t < n; t++) {
		const hoist_tensor_info info = info_of(checkpoint, t);
		trial->wanted[t] = all || chance(2);
		if (!all && trial->wanted[t])
			trial->names[trial->o.n_tensors++] = info.name;
		for (int a = 0; a < info.rank; a++) {
			trial->begin[t][a] = 0;
			trial->end[t][a] = info.shape[a];
			if (slices && info.strides == NULL && chance(2))
				slice_axis(trial, t, &info, a);
		}
	}
}

static void choose_way(struct trial *trial)
{
	static const size_t chunks[] = {0, 0, 4096, 8192, 12288, 20480, 65536, 1052672};
	static const unsigned depths[] = {0, 0, 1, 2, 3, 17, 200};
	static const size_t aligns[] = {0, 0, 1, 64, 4096};
	static const hoist_dtype dtypes[] = {0, 0, HOIST_F32, HOIST_F16, HOIST_BF16};
	hoist_load_options *o = &trial->o;
	int d = (int)below(N_DEVICES);
	o->device = d == CPU && chance(2) ? NULL : devices[d];
	if ((d == CUDA_0 || d == CUDA_1) && chance(2)) {
		trial->replicas[0] = devices[CUDA_0 + CUDA_1 - d];
		o->replicas = trial->replicas;
		o->n_replicas = 1;
	}
	o->engine = chance(2) ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS;
	o->io = (enum hoist_io)below(4);
	o->map = (enum hoist_map)below(2);
	trial->maps = d == CPU && o->io == HOIST_IO_MAP;
	o->dtype = trial->maps ? 0 : PICK(dtypes);
	o->chunk_bytes = PICK(chunks);
	o->depth = PICK(depths);
	o->tensor_align = PICK(aligns);
	if (chance(4))
		o->flags |= HOIST_LOAD_POPULATE;
	if (chance(8))
		o->flags |= HOIST_LOAD_DROP_CACHE;
	if (o->n_slices == 0 && !trial->maps && chance(2))
		o->flags |= HOIST_LOAD_DIGEST;
	if (chance(2))
		o->flags |= HOIST_LOAD_CALLER_DRIVEN;
}

/* --- the tensors that arrive --- */

struct files {
	struct bytes bytes[2];
	size_t n;
};

static void read_files(hoist_checkpoint *checkpoint, struct files *files)
{
	*files = (struct files){.n = hoist_checkpoint_n_files(checkpoint)};
	CHECK(files->n <= 2);
	for (size_t f = 0; f < files->n; f++) {
		hoist_file_info info = {.size = sizeof info};
		OK(hoist_checkpoint_file(checkpoint, f, &info));
		CHECK(bytes_load(&files->bytes[f], info.path));
	}
}

static void show(const struct trial *trial, const char *name, const char *what)
{
	(void)fprintf(stderr,
		      "%s of seed %llu: %s: %s; to %s, %zu replicas, engine %d, io %d, dtype %d, "
		      "chunk %zu, depth %u, align %zu, flags %#x, %zu slices, %zu of names\n",
		      path, (unsigned long long)round_seed, name, what,
		      trial->o.device != NULL ? hoist_device_spec(trial->o.device) : "NULL",
		      trial->o.n_replicas, (int)trial->o.engine, (int)trial->o.io,
		      (int)trial->o.dtype, trial->o.chunk_bytes, trial->o.depth,
		      trial->o.tensor_align, trial->o.flags, trial->o.n_slices, trial->o.n_tensors);
}

static bool is_float(hoist_dtype dtype)
{
	return dtype == HOIST_F32 || dtype == HOIST_F16 || dtype == HOIST_BF16;
}

/* One element as another; a NaN has any payload. */
static bool same_value(const unsigned char *is, hoist_dtype to, const unsigned char *was,
		       hoist_dtype from)
{
	alignas(8) unsigned char should[8] = {0};
	hoist_number number;
	OK(hoist_number_decode(was, from, 0, &number));
	OK(hoist_number_encode(number, 0, should, to, 0));
	if (memcmp(is, should, hoist_dtype_bits(to) / 8) == 0)
		return true;
	hoist_number got;
	OK(hoist_number_decode(is, to, 0, &got));
	return isnan(number.as.f64) && isnan(got.as.f64);
}

/* Walks along the elements in C order. */
static void compare(const struct trial *trial, size_t t, const hoist_tensor_info *info,
		    const struct files *files, hoist_buffer *buffer)
{
	hoist_dtype to =
		is_float(info->dtype) && trial->o.dtype != 0 ? trial->o.dtype : info->dtype;
	unsigned unit_bytes;
	unsigned to_bytes;
	int64_t unit = unit_of(info->dtype, &unit_bytes);
	(void)unit_of(to, &to_bytes);
	int64_t index[MOST_RANK] = {0};
	size_t n = 1;
	CHECK(hoist_buffer_dtype(buffer) == to && hoist_buffer_rank(buffer) == info->rank);
	for (int a = 0; a < info->rank; a++) {
		index[a] = trial->begin[t][a];
		n *= (size_t)(trial->end[t][a] - trial->begin[t][a]);
		CHECK(hoist_buffer_shape(buffer)[a] == trial->end[t][a] - trial->begin[t][a]);
	}
	n /= (size_t)unit;
	size_t bytes = hoist_buffer_bytes(buffer);
	CHECK(bytes == n * to_bytes);
	unsigned char *out = malloc(bytes + 1);
	CHECK(out != NULL && hoist_buffer_copy_out(buffer, out, bytes) == 0);
	const unsigned char *file = files->bytes[info->file].p;
	for (size_t i = 0; i < n; i++) {
		int64_t flat = 0;
		for (int a = 0; a < info->rank; a++)
			flat = info->strides != NULL ? flat + index[a] * info->strides[a]
						     : flat * info->shape[a] + index[a];
		const unsigned char *was = file + info->offset + (size_t)(flat / unit) * unit_bytes;
		bool same = to == info->dtype
				    ? memcmp(out + i * to_bytes, was, to_bytes) == 0
				    : same_value(out + i * to_bytes, to, was, info->dtype);
		if (!same) {
			char what[64];
			(void)snprintf(what, sizeof what, "element %zu of %zu is wrong", i, n);
			show(trial, info->name, what);
		}
		CHECK(same);
		for (int a = info->rank; a-- > 0;) {
			index[a] += a == info->rank - 1 ? unit : 1;
			if (index[a] < trial->end[t][a])
				break;
			index[a] = trial->begin[t][a];
		}
	}
	free(out);
}

static void compare_digest(hoist_load *load, size_t i, const hoist_tensor_info *info,
			   const struct files *files)
{
	unsigned char is[16];
	XXH128_canonical_t should;
	XXH128_canonicalFromHash(&should, XXH3_128bits(files->bytes[info->file].p + info->offset,
						       (size_t)info->bytes));
	OK(hoist_load_digest(load, i, is));
	CHECK(memcmp(is, &should, 16) == 0);
}

static void compare_all(hoist_checkpoint *checkpoint, const struct trial *trial,
			const struct files *files, hoist_load *load)
{
	size_t i = 0;
	for (size_t t = 0; t < hoist_checkpoint_n_tensors(checkpoint); t++) {
		if (!trial->wanted[t])
			continue;
		const hoist_tensor_info info = info_of(checkpoint, t);
		size_t which = SIZE_MAX;
		hoist_buffer *buffer = NULL;
		CHECK(hoist_load_tensor(load, i, &which, &buffer) == 0 && which == t);
		compare(trial, t, &info, files, buffer);
		hoist_buffer_unref(buffer);
		for (size_t r = 0; r < trial->o.n_replicas; r++) {
			OK(hoist_load_replica(load, r, i, &buffer));
			compare(trial, t, &info, files, buffer);
			hoist_buffer_unref(buffer);
		}
		if ((trial->o.flags & HOIST_LOAD_DIGEST) != 0)
			compare_digest(load, i, &info, files);
		i++;
	}
	CHECK(hoist_load_n_tensors(load) == i);
	uint64_t done = 0;
	uint64_t total = 1;
	hoist_load_progress(load, &done, &total);
	if (done != total)
		show(trial, "all", "not all has arrived");
	CHECK(done == total);
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

static void try_once(hoist_checkpoint *checkpoint, const struct files *files)
{
	static const size_t budgets[] = {128 << 10, 128 << 10, 200 << 10, 1 << 20};
	struct trial trial = {.o = {.size = sizeof trial.o}};
	hoist_load *load = NULL;
	choose_parts(checkpoint, &trial);
	choose_way(&trial);
	if (chance(2))
		OK(hoist_budget_create(PICK(budgets), &trial.o.budget));
	if (talks)
		show(&trial, "all", "begins");
	if (hoist_load_start(checkpoint, &trial.o, &load) != 0)
		show(&trial, "start", hoist_error());
	CHECK(load != NULL);
	bool leave = chance(8);
	int err = drive(&trial, load, leave);
	if (err < 0 && !(leave && err == -ECANCELED))
		show(&trial, "wait", hoist_error());
	CHECK(err >= 0 || (leave && err == -ECANCELED));
	if (err == 0)
		compare_all(checkpoint, &trial, files, load);
	hoist_load_destroy(load);
	if (trial.o.budget != NULL)
		CHECK(hoist_budget_used(trial.o.budget) == 0);
	hoist_budget_unref(trial.o.budget);
}

static void try_round(void)
{
	struct files files;
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
	support_emulate("cuda:2,hip:1");
	setenv("HOIST_EMULATE_LATENCY", "0..60", 1);
	lib_open_all(devices);
	talks = argc > 1;
	random_seed(argc > 1 ? strtoull(argv[1], NULL, 0) : 20261121);
	for (int i = 0; i < (argc > 1 ? 1 : N_ROUNDS); i++)
		try_round();
	if (argc == 1)
		check_drivers();
	for (int d = 0; d < N_DEVICES; d++)
		hoist_device_unref(devices[d]);
	support_cleanup();
	return 0;
}
