/* SPDX-License-Identifier: MIT */
/* Groups of 1 to 4 processes, of which each loads what it chose by chance, compared with the files'
 * bytes; and the bytes that they read together. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "net/neighbour.h"
#include "tests/lib/group/by-ucx.h"
#include "tests/lib/group/ranks.h"
#include "tests/support/load-model.h"
#include "tests/support/load-support.h"
#include "tests/support/net-fabric.h"
#include "tests/support/patience.h"

#define N_ROUNDS 30
#define MOST_TARGETS 3
#define NOBODY MOST_RANKS

enum { SEVERAL = 1, IN_PLACE = 2, STREAMS = 4, DIGESTS = 8 }; /* marks of ranks */

static unsigned n_ranks;
static uint64_t round_seed;
static const char *path;
static unsigned canceller; /* the rank that cancels; NOBODY */
static bool is_midway;	   /* the canceller drives its load, and ends it at its first bytes */
static hoist_load_options options;

static const char *kind_name(void)
{
	return !ranks_are_far() ? "" : by_ucx ? ".far" : ".near";
}

/* --- each rank's own choice, all formats --- */

/* One target of this rank. */
struct aim {
	struct load_choice choice;
	bool in_place;
	hoist_load_into into[RANDOM_MOST_TENSORS];
	size_t tensor_of[RANDOM_MOST_TENSORS]; /* of the buffers */
	size_t n_into;
	hoist_load_target target;
};

static struct aim aims[MOST_TARGETS]; /* large */
static struct load_files files;

static void compare_buffer(hoist_checkpoint *checkpoint, size_t target, size_t t,
			   hoist_buffer *buffer)
{
	char what[64];
	hoist_tensor_info info = load_info_of(checkpoint, t);
	check_at("seed %llu, %s, target %zu, tensor %s", (unsigned long long)round_seed, path,
		 target, info.name);
	CHECK(load_compare(&aims[target].choice, t, &info, &files, buffer, what));
}

static void compare_target(hoist_checkpoint *checkpoint, hoist_load *load, size_t target)
{
	for (size_t i = 0; i < hoist_load_target_n_tensors(load, target); i++) {
		size_t t = 0;
		hoist_buffer *buffer = NULL;
		OK(hoist_load_target_tensor(load, target, i, &t, &buffer));
		compare_buffer(checkpoint, target, t, buffer);
		hoist_buffer_unref(buffer);
	}
}

static void compare_digests(hoist_checkpoint *checkpoint, hoist_load *load)
{
	for (size_t i = 0; i < hoist_load_target_n_tensors(load, 0); i++) {
		unsigned char is[16];
		XXH128_canonical_t should;
		size_t t = 0;
		hoist_buffer *buffer = NULL;
		OK(hoist_load_target_tensor(load, 0, i, &t, &buffer));
		hoist_buffer_unref(buffer);
		const hoist_tensor_info info = load_info_of(checkpoint, t);
		XXH128_canonicalFromHash(
			&should,
			XXH3_128bits(files.bytes[info.file].p + info.offset, (size_t)info.bytes));
		OK(hoist_load_digest(load, i, is));
		CHECK(memcmp(is, &should, sizeof is) == 0);
	}
}

/* Buffers are what their states say, however the load has ended. */
static void compare_states(hoist_checkpoint *checkpoint, hoist_load *load, int err, size_t target)
{
	const struct aim *aim = &aims[target];
	for (size_t i = 0; i < aim->n_into; i++) {
		enum hoist_into_state state;
		OK(hoist_load_into_state(load, target, i, &state));
		CHECK(err < 0 || state == HOIST_INTO_WHOLE);
		if (state == HOIST_INTO_WHOLE)
			compare_buffer(checkpoint, target, aim->tensor_of[i], aim->into[i].buffer);
		else if (state == HOIST_INTO_UNTOUCHED)
			CHECK(ranks_untouched(aim->into[i].buffer));
	}
}

static void compare(hoist_checkpoint *checkpoint, hoist_load *load, int err)
{
	bool streams = (options.flags & HOIST_LOAD_STREAM) != 0;
	for (size_t d = 0; d < options.n_targets; d++) {
		if (aims[d].in_place)
			compare_states(checkpoint, load, err, d);
		else if (err == 0 && !streams)
			compare_target(checkpoint, load, d);
	}
	if (err == 0 && !streams && (options.flags & HOIST_LOAD_DIGEST) != 0)
		compare_digests(checkpoint, load);
}

/* Takes the tensors as they come.  Returns: 0; the load's failure. */
static int take_all(hoist_checkpoint *checkpoint, hoist_load *load, uint64_t n)
{
	hoist_load_item item = {.size = sizeof item};
	int got = 1;
	for (uint64_t i = 0; got == 1 && i < n; i++) {
		got = hoist_load_next(load, UINT64_MAX, &item);
		if (got < 1)
			break;
		compare_buffer(checkpoint, item.target, item.tensor, item.buffer);
		hoist_buffer_unref(item.buffer);
	}
	return got < 0 ? got : 0;
}

/* Goes on until the first bytes have arrived, and so all ranks have come: one that is cancelled
 * before it came is only waited for.  Then some steps or some time more. */
static void go_on(hoist_load *load, uint64_t n)
{
	bool steps = (options.flags & HOIST_LOAD_CALLER_DRIVEN) != 0;
	uint64_t done = 0;
	uint64_t total = 0;
	for (uint64_t until = 0; done == 0 && patience(&until);) {
		if (steps)
			CHECK(hoist_load_step(load, 1000000) >= 0);
		hoist_load_progress(load, &done, &total);
	}
	CHECK(done > 0);
	for (uint64_t s = 0; steps && s < n && hoist_load_step(load, 1000000) == 0; s++)
		continue;
	if (!steps)
		(void)usleep((useconds_t)(n * n * 40));
}

static int drive(hoist_checkpoint *checkpoint, hoist_load *load, unsigned rank)
{
	bool streams = (options.flags & HOIST_LOAD_STREAM) != 0;
	uint64_t done = 0;
	uint64_t total = 0;
	hoist_load_progress(load, &done, &total);
	bool cancels = rank == canceller && total > 0;
	uint64_t n = below(30);
	if (streams) {
		int err = take_all(checkpoint, load, cancels ? n : UINT64_MAX);
		if (err < 0)
			return err;
	}
	if (cancels)
		go_on(load, streams || is_midway ? 0 : n);
	if (cancels)
		hoist_load_cancel(load);
	return hoist_load_wait(load);
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

/* A buffer for each chosen tensor. */
static void choose_into(hoist_checkpoint *checkpoint, struct aim *aim)
{
	struct load_choice *choice = &aim->choice;
	for (size_t t = 0; t < hoist_checkpoint_n_tensors(checkpoint); t++) {
		const hoist_tensor_info info = load_info_of(checkpoint, t);
		int64_t shape[RANDOM_MOST_RANK] = {0};
		bool is_float = info.dtype == HOIST_F32 || info.dtype == HOIST_F16 ||
				info.dtype == HOIST_BF16;
		hoist_dtype dtype = is_float && choice->dtype != 0 ? choice->dtype : info.dtype;
		/* Elements that overlap in the file are refused. */
		if (!choice->wanted[t] || info.strides != NULL)
			continue;
		for (int a = 0; a < info.rank; a++)
			shape[a] = choice->end[t][a] - choice->begin[t][a];
		hoist_load_into *into = &aim->into[aim->n_into];
		into->tensor = info.name;
		into->buffer = ranks_buffer(aim->target.device, dtype, info.rank, shape);
		aim->tensor_of[aim->n_into++] = t;
	}
	aim->target.tensors = NULL;
	aim->target.n_tensors = 0;
	aim->target.dtype = 0;
	aim->target.into = aim->into;
	aim->target.n_into = aim->n_into;
	aim->in_place = true;
}

/* Each target has tensors, slices and a dtype of its own. */
static void choose_target(hoist_checkpoint *checkpoint, bool slices, bool hip, struct aim *aim)
{
	static const hoist_dtype dtypes[] = {0, 0, HOIST_F32, HOIST_BF16};
	static const char *const specs[2][4] = {{NULL, "cpu", "cuda:0", "cuda:1"},
						{NULL, "cpu", "hip:0", "hip:0"}};
	const char *spec = PICK(specs[hip]);
	struct load_choice *choice = &aim->choice;
	*aim = (struct aim){.in_place = false};
	load_choose_parts(checkpoint, slices, choice);
	choice->dtype = PICK(dtypes);
	aim->target = (hoist_load_target){.size = sizeof aim->target,
					  .device = spec != NULL ? support_device(spec) : NULL,
					  .tensors = choice->all ? NULL : choice->names,
					  .n_tensors = choice->n_names,
					  .slices = choice->slices,
					  .n_slices = choice->n_slices,
					  .dtype = choice->dtype};
	if (chance(4))
		choose_into(checkpoint, aim);
	/* A list without entries means all tensors. */
	if (aim->in_place && aim->n_into == 0)
		*aim = (struct aim){.choice = aim->choice,
				    .target = {.size = sizeof aim->target,
					       .device = aim->target.device,
					       .tensors = choice->names}};
}

static void choose_all(hoist_checkpoint *checkpoint, const hoist_load_target **list)
{
	bool slices = chance(2);
	bool hip = chance(4);
	bool any_in_place = false;
	options = (hoist_load_options){.size = sizeof options,
				       .targets = list,
				       .n_targets = 1 + (size_t)below(MOST_TARGETS)};
	choose_way();
	for (size_t d = 0; d < options.n_targets; d++) {
		choose_target(checkpoint, slices, hip, &aims[d]);
		list[d] = &aims[d].target;
		any_in_place = any_in_place || aims[d].in_place;
	}
	if (!any_in_place && chance(3))
		options.flags |= HOIST_LOAD_STREAM;
	if (!slices && chance(2))
		options.flags |= HOIST_LOAD_DIGEST;
}

static void random_rank(unsigned rank)
{
	hoist_group group = ranks_group(rank, n_ranks);
	const hoist_load_target *list[MOST_TARGETS];
	random_seed(round_seed + rank * 1000003);
	hoist_checkpoint *checkpoint = support_open(path);
	files.n = hoist_checkpoint_n_files(checkpoint);
	for (size_t f = 0; f < files.n; f++) {
		hoist_file_info info = {.size = sizeof info};
		OK(hoist_checkpoint_file(checkpoint, f, &info));
		CHECK(bytes_load(&files.bytes[f], info.path));
	}
	choose_all(checkpoint, list);
	if (is_midway && rank == canceller) {
		options.flags |= HOIST_LOAD_CALLER_DRIVEN;
		options.flags &= ~(unsigned)HOIST_LOAD_STREAM;
	}
	ranks_load_driven(&group, path, &options, drive, compare);
	said->marks[rank] = (options.n_targets > 1 ? SEVERAL : 0) |
			    ((options.flags & HOIST_LOAD_STREAM) != 0 ? STREAMS : 0) |
			    ((options.flags & HOIST_LOAD_DIGEST) != 0 ? DIGESTS : 0);
	for (size_t d = 0; d < options.n_targets; d++) {
		for (size_t i = 0; i < aims[d].n_into; i++)
			hoist_buffer_unref(aims[d].into[i].buffer);
		said->marks[rank] |= aims[d].in_place ? IN_PLACE : 0;
		hoist_device_unref(aims[d].target.device);
	}
	for (size_t f = 0; f < files.n; f++)
		bytes_free(&files.bytes[f]);
	hoist_checkpoint_close(checkpoint);
}

/* All have succeeded, unless one was cancelled: then the others have, or name that one. */
static void check_results(void)
{
	char name[16];
	(void)snprintf(name, sizeof name, "rank %u", canceller);
	for (unsigned r = 0; r < n_ranks; r++) {
		int err = said->err[r];
		check_at("seed %llu, %s, rank %u of %u, %s cancels: %d, %s",
			 (unsigned long long)round_seed, path, r, n_ranks,
			 canceller < n_ranks ? name : "nobody", err, said->text[r]);
		if (canceller >= n_ranks || said->err[canceller] == 0)
			CHECK(err == 0);
		else if (r == canceller)
			CHECK(err == -ECANCELED);
		else
			CHECK(err == 0 || (!ranks_are_far() && err == -ECONNRESET &&
					   strstr(said->text[r], name) != NULL));
	}
}

static void random_rounds(void)
{
	static const unsigned marks[] = {SEVERAL, IN_PLACE, STREAMS, DIGESTS};
	unsigned n[4] = {0}; /* ranks of each mark that succeeded */
	unsigned n_cancelled = 0;
	for (unsigned i = 0; i < N_ROUNDS; i++) {
		round_seed = 977 * i + 5;
		random_seed(round_seed);
		ranks_next_group();
		bool cancels = i % 5 == 4;
		/* A cancel needs a load that takes long enough. */
		const char *plain = cancels ? ranks_big() : ranks_quarter();
		path = i % 2 == 0 ? random_checkpoint() : i % 6 == 5 ? ranks_floats() : plain;
		n_ranks = 1 + (unsigned)below(MOST_RANKS);
		canceller = cancels ? (unsigned)below(n_ranks) : NOBODY;
		/* Round 19 has a large file, too: its cancel comes at any time. */
		is_midway = i % 20 == 9;
		ranks_run(n_ranks, random_rank, 0);
		check_results();
		n_cancelled += canceller < n_ranks && said->err[canceller] < 0;
		for (unsigned r = 0; r < n_ranks; r++)
			for (size_t m = 0; m < 4; m++)
				n[m] += said->err[r] == 0 && (said->marks[r] & marks[m]) != 0;
	}
	check_at("ranks with several targets %u, in place %u, streams %u, digests %u; cancelled %u",
		 n[0], n[1], n[2], n[3], n_cancelled);
	CHECK(n[0] > 10 && n[1] > 10 && n[2] > 5 && n[3] > 5 && n_cancelled > 1);
	printf("figure: group.model%s %u groups, %u cancelled; %u ranks with several targets, %u "
	       "in "
	       "place, %u streams: every byte compared\n",
	       kind_name(), N_ROUNDS, n_cancelled, n[0], n[1], n[2]);
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
	printf("figure: group.once%s groups of 4 read %.3f bytes at most for each byte of the "
	       "file\n",
	       kind_name(), worst);
}

/* --- conversions of bytes that overlap --- */

/* Columns of a tensor and all of it, each as bf16 on a device: bytes in a slot can be converted in
 * one way only, so each rank passes them twice. */
static void twice_rank(unsigned rank)
{
	hoist_group group = ranks_group(rank, n_ranks);
	const hoist_load_slice columns = {
		.tensor = "f", .axis = 1, .rank = (int)rank, .n_ranks = (int)n_ranks};
	const hoist_load_target some = {.size = sizeof some,
					.device = support_device("cuda:0"),
					.slices = &columns,
					.n_slices = 1,
					.dtype = HOIST_BF16};
	const hoist_load_target all = {
		.size = sizeof all, .device = support_device("cuda:1"), .dtype = HOIST_BF16};
	const hoist_load_target *const list[] = {&some, &all};
	hoist_load_options o = {.size = sizeof o, .targets = list, .n_targets = 2};
	ranks_load(&group, path, &o, NULL);
	check_at("rank %u: %s", rank, said->text[rank]);
	CHECK(said->err[rank] == 0);
	hoist_device_unref(some.device);
	hoist_device_unref(all.device);
}

static void bytes_that_are_converted_twice_are_read_once(void)
{
	uint64_t sum = 0;
	path = ranks_floats();
	n_ranks = MOST_RANKS;
	ranks_next_group();
	ranks_run(n_ranks, twice_rank, 0);
	for (unsigned r = 0; r < n_ranks; r++)
		sum += said->read_bytes[r];
	CHECK(sum >= FLOATS_BYTES && (double)sum <= 1.02 * (double)FLOATS_BYTES);
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
	path = ranks_big();
	ranks_next_group();
	ranks_run(3, idle_rank, 0);
	/* It reads for the others, but for those of other machines. */
	CHECK(ranks_are_far() || said->read_bytes[1] > BIG_BYTES / 4);
}

int main(void)
{
	support_emulate("cuda:2,hip:1");
	ranks_begin();
	int n_kinds = ucx_of_child() != 0 ? 3 : 1; /* groups of several machines need UCX */
	for (int kind = 0; kind < n_kinds; kind++) {
		ranks_use(kind != 0);
		by_ucx = kind == 2;
		CASE(each_byte_is_read_once);
		CASE(bytes_that_are_converted_twice_are_read_once);
		CASE(one_wants_nothing);
		CASE(random_rounds);
	}
	support_cleanup();
	return 0;
}
