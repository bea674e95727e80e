/* SPDX-License-Identifier: MIT */
/* Random checkpoints of all formats, read into buffers of the caller's: of any strides, of other
 * dtypes, views of larger buffers, on the host and on devices, to the end or not.  Every byte of
 * the larger buffers is looked at: the elements are those of the file, and nothing else has
 * changed. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include <hoist/layout.h>

#include "tests/support/lib-support.h"
#include "tests/support/load-model.h"
#include "tests/support/load-support.h"

enum { CPU, CUDA_0, CUDA_1, HIP_0, N_DEVICES, MOST_TARGETS = 3, N_ROUNDS = 60, LOADS_OF_ONE = 5 };

static hoist_device *devices[N_DEVICES];

/* One target: all its buffers are views of `whole`. */
struct place {
	struct load_choice choice;
	hoist_buffer *whole;
	unsigned char *before; /* the bytes of `whole` when the load begins */
	bool *ours;	       /* of these, the bytes of elements */
	size_t bytes;
	size_t n;
	hoist_load_into into[RANDOM_MOST_TENSORS];
	size_t tensor_of[RANDOM_MOST_TENSORS];
	size_t begin_of[RANDOM_MOST_TENSORS]; /* the range of `whole` that the buffer has */
	size_t end_of[RANDOM_MOST_TENSORS];
};

static struct place places[MOST_TARGETS]; /* large */
static size_t n_tied;			  /* tensors that share a place */

/* --- buffers --- */

static bool is_float(hoist_dtype dtype)
{
	return dtype == HOIST_F32 || dtype == HOIST_F16 || dtype == HOIST_BF16;
}

/* No two indices are one place of the file. */
static bool is_sound(const hoist_tensor_info *info)
{
	for (int a = 0; info->strides != NULL && a < info->rank; a++) {
		int64_t reach = 0;
		for (int b = 0; b < info->rank; b++)
			if (b != a && info->shape[b] > 1 &&
			    (info->strides[b] < info->strides[a] ||
			     (info->strides[b] == info->strides[a] && b > a)))
				reach += (info->shape[b] - 1) * info->strides[b];
		if (info->shape[a] > 1 && info->strides[a] <= reach)
			return false;
	}
	return true;
}

/* A layout with the axes in any order, steps, gaps, and directions. */
static void choose_layout(int rank, const int64_t *shape, size_t item, hoist_layout *ret)
{
	bool done[RANDOM_MOST_RANK] = {false};
	int64_t reach = 1;
	*ret = (hoist_layout){.rank = rank, .itemsize = (int64_t)item};
	for (int i = 0; i < rank; i++) {
		int a = chance(3) ? (int)below((uint64_t)rank) : rank - 1;
		while (done[a])
			a = (a + rank - 1) % rank;
		done[a] = true;
		int64_t step = chance(4) ? 1 + (int64_t)below(3) : 1;
		bool back = chance(6);
		ret->shape[a] = shape[a];
		ret->strides[a] = (back ? -step : step) * reach;
		ret->offset += back ? (shape[a] - 1) * step * reach : 0;
		reach *= shape[a] * step + (chance(4) ? (int64_t)below(3) : 0);
	}
}

static size_t items_of(const hoist_layout *layout)
{
	int64_t items = 1;
	for (int a = 0; a < layout->rank; a++)
		items += (layout->shape[a] - 1) *
			 (layout->strides[a] < 0 ? -layout->strides[a] : layout->strides[a]);
	return (size_t)items;
}

static void mark(struct place *place, const hoist_layout *layout, size_t at)
{
	int64_t index[RANDOM_MOST_RANK] = {0};
	for (;;) {
		int64_t item = layout->offset;
		for (int a = 0; a < layout->rank; a++)
			item += index[a] * layout->strides[a];
		size_t first = at + (size_t)(item * layout->itemsize);
		memset(place->ours + first, 1, (size_t)layout->itemsize);
		int a = layout->rank;
		while (a-- > 0 && ++index[a] == layout->shape[a])
			index[a] = 0;
		if (a < 0)
			return;
	}
}

/* The shape of the chosen part of tensor @t, and its dtype in the buffer. */
static hoist_dtype shape_of(const struct load_choice *choice, size_t t,
			    const hoist_tensor_info *info, int64_t *shape, bool *empty)
{
	static const hoist_dtype floats[] = {HOIST_F32, HOIST_F16, HOIST_BF16};
	*empty = false;
	for (int a = 0; a < info->rank; a++) {
		shape[a] = choice->end[t][a] - choice->begin[t][a];
		*empty = *empty || shape[a] == 0;
	}
	return is_float(info->dtype) && chance(2) ? PICK(floats) : info->dtype;
}

/* The layouts are chosen first, and the memory for all of them is made then. */
struct shaped {
	hoist_dtype dtype;
	int64_t shape[RANDOM_MOST_RANK];
	hoist_layout layout;
	bool strided;
};

static void add_buffer(struct place *place, size_t i, const hoist_tensor_info *info,
		       const struct shaped *shaped)
{
	size_t at = place->begin_of[i];
	hoist_buffer *line = NULL;
	hoist_buffer *made = NULL;
	if (!shaped->strided) {
		OK(hoist_buffer_view(place->whole, at, shaped->dtype, info->rank, shaped->shape,
				     &made));
		memset(place->ours + at, 1, hoist_buffer_bytes(made));
	} else {
		const int64_t items = (int64_t)items_of(&shaped->layout);
		OK(hoist_buffer_view(place->whole, at, shaped->dtype, 1, &items, &line));
		OK(hoist_buffer_with_layout(line, &shaped->layout, shaped->dtype, &made));
		mark(place, &shaped->layout, at);
		hoist_buffer_unref(line);
	}
	place->into[i] = (hoist_load_into){info->name, made};
}

/* A tensor before, of those that have a buffer, that is the same bytes in the same form; n: none.
 */
static size_t find_tied(hoist_checkpoint *checkpoint, const struct place *place, size_t t)
{
	const hoist_tensor_info info = load_info_of(checkpoint, t);
	const struct load_choice *choice = &place->choice;
	for (size_t i = 0; i < place->n; i++) {
		size_t other = place->tensor_of[i];
		const hoist_tensor_info was = load_info_of(checkpoint, other);
		bool same = was.file == info.file && was.offset == info.offset &&
			    was.dtype == info.dtype && was.rank == info.rank && info.bytes > 0 &&
			    info.strides == NULL && was.strides == NULL;
		for (int a = 0; a < info.rank && same; a++)
			same = was.shape[a] == info.shape[a] &&
			       choice->begin[t][a] == choice->begin[other][a] &&
			       choice->end[t][a] == choice->end[other][a];
		if (same)
			return i;
	}
	return place->n;
}

static void choose_buffers(hoist_checkpoint *checkpoint, hoist_device *device, struct place *place)
{
	static struct shaped shaped[RANDOM_MOST_TENSORS];
	size_t at = below(5000);
	place->n = 0;
	for (size_t t = 0; t < hoist_checkpoint_n_tensors(checkpoint); t++) {
		const hoist_tensor_info info = load_info_of(checkpoint, t);
		struct shaped *s = &shaped[place->n];
		bool empty;
		if (!place->choice.wanted[t] || !is_sound(&info))
			continue;
		size_t like = find_tied(checkpoint, place, t);
		if (like < place->n && chance(2)) {
			*s = shaped[like];
			place->tensor_of[place->n] = t;
			place->begin_of[place->n] = place->begin_of[like];
			place->end_of[place->n++] = place->end_of[like];
			n_tied++;
			continue;
		}
		s->dtype = shape_of(&place->choice, t, &info, s->shape, &empty);
		unsigned bits = hoist_dtype_bits(s->dtype);
		s->strided = !empty && bits > 0 && bits % 8 == 0 && chance(2);
		if (s->strided)
			choose_layout(info.rank, s->shape, bits / 8, &s->layout);
		place->tensor_of[place->n] = t;
		place->begin_of[place->n] = at;
		at += s->strided ? items_of(&s->layout) * (bits / 8) : (size_t)info.bytes * 2 + 8;
		place->end_of[place->n++] = at;
		at += chance(2) ? below(300) : 0;
	}
	const int64_t bytes = (int64_t)at + 100;
	place->bytes = (size_t)bytes;
	OK(hoist_buffer_create(device, HOIST_U8, 1, &bytes, 0, &place->whole));
	place->before = malloc(place->bytes);
	place->ours = calloc(place->bytes, sizeof *place->ours);
	CHECK(place->before != NULL && place->ours != NULL);
	random_bytes(place->before, place->bytes);
	OK(hoist_buffer_copy_in(place->whole, place->before, place->bytes));
	for (size_t i = 0; i < place->n; i++) {
		const hoist_tensor_info info = load_info_of(checkpoint, place->tensor_of[i]);
		add_buffer(place, i, &info, &shaped[i]);
	}
}

static void drop_buffers(struct place *place)
{
	for (size_t i = 0; i < place->n; i++)
		hoist_buffer_unref(place->into[i].buffer);
	hoist_buffer_unref(place->whole);
	free(place->before);
	free(place->ours);
}

/* --- what is there afterwards --- */

static void compare_one(hoist_checkpoint *checkpoint, struct place *place, size_t i,
			const struct load_files *files, enum hoist_into_state state,
			const unsigned char *after)
{
	const hoist_tensor_info info = load_info_of(checkpoint, place->tensor_of[i]);
	char what[64] = "";
	if (state == HOIST_INTO_UNTOUCHED)
		CHECK(memcmp(after + place->begin_of[i], place->before + place->begin_of[i],
			     place->end_of[i] - place->begin_of[i]) == 0);
	if (state != HOIST_INTO_WHOLE)
		return;
	place->choice.dtype = hoist_buffer_dtype(place->into[i].buffer);
	bool same = load_compare(&place->choice, place->tensor_of[i], &info, files,
				 place->into[i].buffer, what);
	if (!same)
		(void)fprintf(stderr, "%s: %s\n", info.name, what);
	CHECK(same);
}

static void compare_digest(hoist_checkpoint *checkpoint, hoist_load *load, size_t i,
			   const struct load_files *files)
{
	unsigned char is[16];
	XXH128_canonical_t should;
	hoist_buffer *buffer = NULL;
	size_t t = 0;
	OK(hoist_load_tensor(load, i, &t, &buffer));
	hoist_buffer_unref(buffer);
	const hoist_tensor_info info = load_info_of(checkpoint, t);
	XXH128_canonicalFromHash(
		&should, XXH3_128bits(files->bytes[info.file].p + info.offset, (size_t)info.bytes));
	OK(hoist_load_digest(load, i, is));
	CHECK(memcmp(is, &should, sizeof is) == 0);
}

static void compare_place(hoist_checkpoint *checkpoint, struct place *place, size_t target,
			  const struct load_files *files, hoist_load *load, bool whole,
			  bool digests)
{
	unsigned char *after = malloc(place->bytes);
	enum hoist_into_state state;
	CHECK(after != NULL);
	OK(hoist_buffer_copy_out(place->whole, after, place->bytes));
	for (size_t i = 0; i < place->bytes; i++)
		CHECK(place->ours[i] || after[i] == place->before[i]);
	for (size_t i = 0; i < place->n; i++) {
		OK(hoist_load_into_state(load, target, i, &state));
		CHECK(!whole || state == HOIST_INTO_WHOLE);
		compare_one(checkpoint, place, i, files, state, after);
	}
	CHECK(hoist_load_into_state(load, target, place->n, &state) == -EINVAL);
	for (size_t i = 0; whole && i < place->n; i++) {
		hoist_buffer *buffer = NULL;
		OK(hoist_load_target_tensor(load, target, i, NULL, &buffer));
		size_t k = 0;
		while (k < place->n && place->into[k].buffer != buffer)
			k++;
		CHECK(k < place->n);
		hoist_buffer_unref(buffer);
	}
	free(after);
	for (size_t i = 0; whole && target == 0 && digests && i < place->n; i++)
		compare_digest(checkpoint, load, i, files);
}

/* --- loads --- */

static size_t choose_targets(hoist_checkpoint *checkpoint, bool slices, hoist_load_target *targets)
{
	bool is_hip = chance(4);
	size_t n = 1 + below(MOST_TARGETS);
	size_t kept = 0;
	for (size_t t = 0; t < n; t++) {
		struct place *place = &places[kept];
		int d = chance(2) ? CPU : is_hip ? HIP_0 : CUDA_0 + (int)below(2);
		*place = (struct place){0};
		load_choose_parts(checkpoint, slices, &place->choice);
		choose_buffers(checkpoint, devices[d], place);
		if (place->n == 0) {
			drop_buffers(place);
			continue;
		}
		/* The order of the list does not matter. */
		targets[kept++] = (hoist_load_target){
			.size = sizeof targets[t],
			.device = chance(2) ? devices[d] : NULL,
			.slices = place->choice.slices,
			.n_slices = place->choice.n_slices,
			.into = place->into,
			.n_into = place->n,
		};
	}
	return kept;
}

static int drive(hoist_load *load, const hoist_load_options *o, bool leave)
{
	uint64_t steps = leave ? below(30) : UINT64_MAX;
	while ((o->flags & HOIST_LOAD_CALLER_DRIVEN) != 0 && steps-- > 0 &&
	       hoist_load_step(load, 1000) == 0)
		continue;
	if (leave)
		hoist_load_cancel(load);
	return hoist_load_wait(load);
}

static const char *any_name(hoist_checkpoint *checkpoint)
{
	return load_info_of(checkpoint, below(hoist_checkpoint_n_tensors(checkpoint))).name;
}

static void try_once(hoist_checkpoint *checkpoint, const struct load_files *files)
{
	static const size_t chunks[] = {0, 0, 4096, 12288, 65536};
	static const char *const faults[] = {"cuMemcpyHtoDAsync_v2:2", "cuMemcpy2DAsync_v2:3",
					     "async:4"};
	static const enum hoist_io ways[] = {HOIST_IO_AUTO, HOIST_IO_DIRECT, HOIST_IO_CACHED,
					     HOIST_IO_ADAPTIVE};
	const char *order[] = {any_name(checkpoint), any_name(checkpoint)};
	hoist_load_target targets[MOST_TARGETS];
	const hoist_load_target *pointers[MOST_TARGETS];
	hoist_load *load = NULL;
	bool slices = chance(2);
	size_t n = choose_targets(checkpoint, slices, targets);
	if (n == 0)
		return;
	for (size_t t = 0; t < n; t++)
		pointers[t] = &targets[t];
	hoist_load_options o = {
		.size = sizeof o,
		.engine = chance(2) ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS,
		.io = PICK(ways),
		.order = order,
		.n_order = below(3),
		.chunk_bytes = PICK(chunks),
		.flags = (slices || chance(2) ? 0 : HOIST_LOAD_DIGEST) |
			 (chance(4) ? HOIST_LOAD_SPLIT : 0) |
			 (chance(2) ? HOIST_LOAD_CALLER_DRIVEN : 0),
	};
	if (n == 1) {
		o.device = targets[0].device;
		o.slices = targets[0].slices;
		o.n_slices = targets[0].n_slices;
		o.into = targets[0].into;
		o.n_into = targets[0].n_into;
	} else {
		o.targets = pointers;
		o.n_targets = n;
	}
	bool leave = chance(4);
	bool fault = !leave && chance(5);
	OK(hoist_load_start(checkpoint, &o, &load));
	if (fault)
		support_fail("cuda", PICK(faults));
	int err = drive(load, &o, leave);
	if (err < 0 && !(leave && err == -ECANCELED) && !fault)
		(void)fprintf(stderr, "%s\n", hoist_error());
	CHECK(err == 0 || (leave && err == -ECANCELED) || fault);
	CHECK(err == 0 || strstr(hoist_error(), "buffers of this load in place") != NULL);
	support_fail("cuda", "");
	if (fault && err < 0)
		support_reset("cuda");
	for (size_t t = 0; t < n; t++)
		compare_place(checkpoint, &places[t], t, files, load, err == 0,
			      (o.flags & HOIST_LOAD_DIGEST) != 0);
	for (size_t t = 0; t < n; t++)
		drop_buffers(&places[t]);
	hoist_load_destroy(load);
}

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

static void try_round(void)
{
	struct load_files files;
	hoist_checkpoint *checkpoint = NULL;
	printf("seed %llu\n", (unsigned long long)random_state());
	(void)fflush(stdout);
	check_at("seed %llu", (unsigned long long)random_state());
	OK(hoist_checkpoint_open(random_checkpoint(), 0, &checkpoint));
	read_files(checkpoint, &files);
	for (int i = 0; i < LOADS_OF_ONE; i++)
		try_once(checkpoint, &files);
	for (size_t f = 0; f < files.n; f++)
		bytes_free(&files.bytes[f]);
	hoist_checkpoint_close(checkpoint);
}

/* --- small tensors --- */

enum { N_SMALL = 48, APART = 256 };

/* So many small tensors follow each other, at such distances, that a load into memory of its own
 * would fill what lies between them with zeros. */
static void bytes_between_small_tensors_stay(void)
{
	static unsigned char before[N_SMALL * APART];
	static unsigned char after[sizeof before];
	const int64_t bytes = sizeof before;
	size_t sizes[N_SMALL];
	hoist_load_into into[N_SMALL];
	struct load_files files;
	hoist_buffer *whole = NULL;
	for (size_t i = 0; i < N_SMALL; i++)
		sizes[i] = 1 + i;
	support_write("small.safetensors", 0, N_SMALL, sizes, -1);
	hoist_checkpoint *checkpoint = support_open("small.safetensors");
	read_files(checkpoint, &files);
	memset(before, 0xab, sizeof before);
	OK(hoist_buffer_create(devices[CUDA_0], HOIST_U8, 1, &bytes, 0, &whole));
	OK(hoist_buffer_copy_in(whole, before, sizeof before));
	for (size_t i = 0; i < N_SMALL; i++) {
		const hoist_tensor_info info = load_info_of(checkpoint, i);
		into[i].tensor = info.name;
		OK(hoist_buffer_view(whole, i * APART, HOIST_U8, 1, info.shape, &into[i].buffer));
		memcpy(before + i * APART, files.bytes[0].p + info.offset, (size_t)info.bytes);
	}
	const hoist_load_options o = {.size = sizeof o, .into = into, .n_into = N_SMALL};
	hoist_load *load = NULL;
	OK(hoist_load_start(checkpoint, &o, &load));
	OK(hoist_load_wait(load));
	OK(hoist_buffer_copy_out(whole, after, sizeof after));
	CHECK(memcmp(before, after, sizeof before) == 0);
	hoist_load_destroy(load);
	for (size_t i = 0; i < N_SMALL; i++)
		hoist_buffer_unref(into[i].buffer);
	hoist_buffer_unref(whole);
	bytes_free(&files.bytes[0]);
	hoist_checkpoint_close(checkpoint);
}

/* One argument: the seed that a failure showed, and then one round alone. */
int main(int argc, char **argv)
{
	support_emulate("cuda:2,hip:1");
	setenv("HOIST_EMULATE_LATENCY", "0..60", 1);
	lib_open_all(devices);
	random_seed(argc > 1 ? strtoull(argv[1], NULL, 0) : 20261123);
	for (int i = 0; i < (argc > 1 ? 1 : N_ROUNDS); i++)
		try_round();
	CHECK(n_tied > 0 || argc > 1);
	CASE(bytes_between_small_tensors_stay);
	for (int d = 0; d < N_DEVICES; d++)
		hoist_device_unref(devices[d]);
	support_cleanup();
	return 0;
}
