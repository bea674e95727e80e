/* SPDX-License-Identifier: MIT */
/* Groups of 1 to 4 processes, of which each loads what it chose by chance, compared with the files'
 * bytes; and the bytes that they read together. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/group/ranks.h"
#include "tests/support/load-model.h"
#include "tests/support/load-support.h"

#define N_ROUNDS 24
#define MOST_TARGETS 3

static unsigned n_ranks;
static uint64_t round_seed;
static const char *path;
static struct load_choice choices[MOST_TARGETS]; /* of this rank's targets */
static hoist_load_options options;

/* --- each rank's own choice, all formats --- */

static void compare_target(hoist_checkpoint *checkpoint, hoist_load *load, size_t target,
			   const struct load_files *files)
{
	for (size_t i = 0; i < hoist_load_target_n_tensors(load, target); i++) {
		size_t t = 0;
		char what[64];
		hoist_buffer *buffer = NULL;
		OK(hoist_load_target_tensor(load, target, i, &t, &buffer));
		hoist_tensor_info info = load_info_of(checkpoint, t);
		check_at("seed %llu, %s, target %zu, tensor %s", (unsigned long long)round_seed,
			 path, target, info.name);
		CHECK(load_compare(&choices[target], t, &info, files, buffer, what));
		hoist_buffer_unref(buffer);
	}
}

static void compare(hoist_checkpoint *checkpoint, hoist_load *load)
{
	struct load_files files = {.n = hoist_checkpoint_n_files(checkpoint)};
	for (size_t f = 0; f < files.n; f++) {
		hoist_file_info info = {.size = sizeof info};
		OK(hoist_checkpoint_file(checkpoint, f, &info));
		CHECK(bytes_load(&files.bytes[f], info.path));
	}
	for (size_t d = 0; d < hoist_load_n_targets(load); d++)
		compare_target(checkpoint, load, d, &files);
	for (size_t f = 0; f < files.n; f++)
		bytes_free(&files.bytes[f]);
}

static void choose_way(void)
{
	static const size_t chunks[] = {0, 0, 4096, 20480, 65536, 2097152};
	static const unsigned depths[] = {0, 0, 1, 2, 3, 40};
	options.chunk_bytes = PICK(chunks);
	options.depth = PICK(depths);
	options.engine = chance(2) ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS;
	options.io = (enum hoist_io)below(3);
	options.flags = (chance(3) ? HOIST_LOAD_SPLIT : 0) |
			(chance(8) ? HOIST_LOAD_DROP_CACHE : 0) |
			(chance(4) ? HOIST_LOAD_CALLER_DRIVEN : 0);
}

/* Each target has tensors, slices and a dtype of its own. */
static void choose_target(hoist_checkpoint *checkpoint, struct load_choice *choice,
			  hoist_load_target *ret)
{
	static const hoist_dtype dtypes[] = {0, 0, HOIST_F32, HOIST_BF16};
	load_choose_parts(checkpoint, chance(2), choice);
	choice->dtype = PICK(dtypes);
	*ret = (hoist_load_target){.size = sizeof *ret,
				   .device = chance(3) ? support_device("cuda:0") : NULL,
				   .tensors = choice->all ? NULL : choice->names,
				   .n_tensors = choice->n_names,
				   .slices = choice->slices,
				   .n_slices = choice->n_slices,
				   .dtype = choice->dtype};
}

static void random_rank(unsigned rank)
{
	hoist_group group = ranks_group(rank, n_ranks);
	hoist_load_target targets[MOST_TARGETS];
	const hoist_load_target *list[MOST_TARGETS];
	random_seed(round_seed + rank * 1000003);
	hoist_checkpoint *checkpoint = support_open(path);
	size_t n = 1 + (size_t)below(MOST_TARGETS);
	options = (hoist_load_options){.size = sizeof options};
	choose_way();
	for (size_t d = 0; d < n; d++) {
		choose_target(checkpoint, &choices[d], &targets[d]);
		list[d] = &targets[d];
	}
	options.targets = list;
	options.n_targets = n;
	ranks_load(&group, path, &options, compare);
	hoist_checkpoint_close(checkpoint);
	for (size_t d = 0; d < n; d++)
		hoist_device_unref(targets[d].device);
	/* Bytes that are read several times, as they overlap or are converted in several ways, are
	 * refused, in all ranks. */
	bool refused = strstr(said->text[rank], "overlap") != NULL;
	CHECK(said->err[rank] == 0 || refused);
	said->marks[rank] = (unsigned)n;
}

static void random_rounds(void)
{
	unsigned n_with_targets = 0; /* ranks */
	for (unsigned i = 0; i < N_ROUNDS; i++) {
		round_seed = 977 * i + 5;
		random_seed(round_seed);
		ranks_next_group();
		path = i % 2 == 0 ? random_checkpoint() : ranks_big();
		n_ranks = 1 + (unsigned)below(MOST_RANKS);
		check_at("seed %llu, %u ranks", (unsigned long long)round_seed, n_ranks);
		ranks_run(n_ranks, random_rank, 0);
		for (unsigned r = 1; r < n_ranks; r++)
			CHECK((said->err[r] == 0) == (said->err[0] == 0));
		for (unsigned r = 0; r < n_ranks; r++)
			n_with_targets += said->err[r] == 0 && said->marks[r] > 1;
	}
	CHECK(n_with_targets > 5);
	printf("figure: group.model %u groups, %u ranks of them with several targets: every byte "
	       "compared\n",
	       N_ROUNDS, n_with_targets);
}

/* --- each byte is read once --- */

static hoist_load_slice parts[2];
static size_t n_parts;

static void once_rank(unsigned rank)
{
	hoist_group group = ranks_group(rank, n_ranks);
	for (size_t s = 0; s < n_parts; s++)
		parts[s].rank = (int)rank;
	options.size = sizeof options;
	options.slices = parts;
	options.n_slices = n_parts;
	ranks_load(&group, path, &options, n_parts == 0 ? support_compare : NULL);
	CHECK(said->err[rank] == 0);
}

static double worst; /* bytes that a group read for each byte that it wants */

static void read_once(const char *what, size_t n_slices, int axis, uint64_t union_bytes)
{
	uint64_t sum = 0;
	check_at("%s", what);
	n_ranks = MOST_RANKS;
	n_parts = n_slices;
	parts[0] = (hoist_load_slice){.tensor = "a", .axis = axis, .n_ranks = (int)n_ranks};
	parts[1] = (hoist_load_slice){.tensor = "b", .axis = axis, .n_ranks = (int)n_ranks};
	ranks_next_group();
	ranks_run(n_ranks, once_rank, 0);
	for (unsigned r = 0; r < n_ranks; r++)
		sum += said->read_bytes[r];
	CHECK(sum >= union_bytes);
	CHECK((double)sum <= 1.02 * (double)union_bytes);
	worst = (double)sum / (double)union_bytes > worst ? (double)sum / (double)union_bytes
							  : worst;
}

static void each_byte_is_read_once(void)
{
	path = ranks_big();
	options = (hoist_load_options){0};
	read_once("each everything", 0, 0, BIG_BYTES);
	read_once("a quarter of the rows each", 2, 0, BIG_BYTES);
	read_once("a quarter of the columns each", 2, 1, BIG_BYTES);
	options.io = HOIST_IO_CACHED;
	read_once("each everything, through the page cache", 0, 0, BIG_BYTES);
	printf("figure: group.once groups of 4 read %.3f bytes at most for each byte of the file\n",
	       worst);
}

/* --- a rank that wants nothing takes part --- */

static void idle_rank(unsigned rank)
{
	static const char *none[1];
	hoist_group group = ranks_group(rank, 3);
	hoist_load_options o = {.size = sizeof o, .tensors = rank == 1 ? none : NULL};
	ranks_load(&group, path, &o, support_compare);
	CHECK(said->err[rank] == 0);
}

static void one_wants_nothing(void)
{
	ranks_next_group();
	ranks_run(3, idle_rank, 0);
	CHECK(said->read_bytes[1] > BIG_BYTES / 4); /* it reads for the others */
}

int main(void)
{
	support_emulate("cuda:1");
	ranks_begin();
	CASE(each_byte_is_read_once);
	CASE(one_wants_nothing);
	CASE(random_rounds);
	support_cleanup();
	return 0;
}
