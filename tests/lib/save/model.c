/* SPDX-License-Identifier: MIT */
/* Random sets of buffers, with random strides on random devices, and of tensors of checkpoints in
 * random formats, saved in random ways, and compared element by element with the bytes at the
 * places that shapes and strides give.  The next rounds read the file of a round, and often write
 * over it. */
#include "config.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <hoist/layout.h>

#include "tests/lib/save/expected.h"
#include "tests/support/lib-support.h"
#include "tests/support/load-random.h"
#include "tests/support/under-tsan.h"

#define N_ROUNDS (UNDER_TSAN ? 25 : 120)

enum { CPU, CUDA_0, CUDA_1, HIP_0, N_DEVICES };
static hoist_device *devices[N_DEVICES];

/* --- formats --- */

static const struct format {
	const char *name;
	size_t most_tensors;
	int most_rank;
	bool (*holds)(const hoist_dtype_info *info);
} * format;

static bool safetensors_holds(const hoist_dtype_info *info)
{
	return info->safetensors != NULL;
}

static bool gguf_holds(const hoist_dtype_info *info)
{
	return info->gguf >= 0;
}

static bool npy_holds(const hoist_dtype_info *info)
{
	return info->numpy != NULL && info->numpy_native != 0 && info->bits % 8 == 0;
}

static bool max_holds(const hoist_dtype_info *info)
{
	return info->max_code >= 0 && info->bits % 8 == 0;
}

static const struct format formats[] = {
	{"safetensors", MOST_TENSORS, MOST_RANK, safetensors_holds},
	{"safetensors", MOST_TENSORS, MOST_RANK, safetensors_holds},
	{"gguf", MOST_TENSORS, 4, gguf_holds},
	{"npy", 1, MOST_RANK, npy_holds},
	{"max", MOST_TENSORS, MOST_RANK, max_holds},
};

static hoist_dtype some_dtype(void)
{
	for (;;) {
		hoist_dtype dtype = (hoist_dtype)below(256);
		hoist_dtype_info info = {.size = sizeof info};
		if (hoist_dtype_get_info(dtype, &info) == 0 && format->holds(&info) &&
		    info.bits != 0)
			return dtype;
	}
}

/* --- buffers --- */

/* Memory of the test's own, at any alignment, often one tensor behind the other. */
static _Alignas(4096) unsigned char arena[8 << 20];
static size_t arena_used;
static uint64_t straight_bytes; /* written from there, in all rounds */

/* NULL: the arena is full. */
static hoist_buffer *wrapped(hoist_dtype dtype, int rank, const int64_t *shape,
			     const unsigned char *bytes, size_t n)
{
	hoist_buffer *buffer;
	if (chance(3))
		arena_used += below(6000);
	if (n > sizeof arena - 6000 || arena_used > sizeof arena - 6000 - n)
		return NULL;
	memcpy(arena + arena_used, bytes, n);
	const hoist_buffer_source source = {
		.size = sizeof source,
		.address = (uintptr_t)(arena + arena_used),
		.bytes = n,
		.device = devices[CPU],
	};
	OK(hoist_buffer_wrap(&source, dtype, rank, shape, NULL, &buffer));
	arena_used += n;
	return buffer;
}

static hoist_buffer *filled(hoist_dtype dtype, int rank, const int64_t *shape,
			    unsigned char **ret_bytes)
{
	hoist_buffer *buffer;
	hoist_buffer *other = NULL;
	size_t device = below(N_DEVICES);
	unsigned flags = device != CPU && chance(4) ? HOIST_BUFFER_PINNED : 0;
	OK(hoist_buffer_create(devices[device], dtype, rank, shape, flags, &buffer));
	size_t n = hoist_buffer_bytes(buffer);
	unsigned char *bytes = malloc(n + 8);
	CHECK(bytes != NULL);
	random_bytes(bytes, n);
	/* Behind the last element there is nothing. */
	size_t bits = hoist_buffer_elements(buffer) * info_of(dtype).bits;
	if (bits % 8 != 0)
		bytes[n - 1] &= (unsigned char)((1u << bits % 8) - 1);
	*ret_bytes = bytes;
	if (device == CPU && chance(2))
		other = wrapped(dtype, rank, shape, bytes, n);
	if (other != NULL) {
		hoist_buffer_unref(buffer);
		return other;
	}
	OK(hoist_buffer_write(buffer, 0, bytes, n));
	return buffer;
}

static int some_shape(size_t bits, int64_t *shape)
{
	static const uint64_t most[] = {1, 30, 5000, 40000, 300000, 1200000};
	int rank = (int)below((uint64_t)format->most_rank + 1);
	uint64_t left = most[below(6)] * 8 / bits + 1;
	for (int k = 0; k < rank; k++) {
		shape[k] = 1 + (int64_t)below(k == rank - 1 || chance(3) ? left : 7);
		left = left / (uint64_t)shape[k] + 1;
	}
	if (rank > 0 && chance(15))
		shape[below((uint64_t)rank)] = 0;
	/* Whole bytes. */
	if (rank == 0)
		return bits % 8 == 0 ? 0 : (shape[0] = 8, 1);
	if (bits % 8 != 0)
		shape[rank - 1] *= 8;
	return rank;
}

/* Parts of each axis, in either direction, or one step of it many times. */
static hoist_buffer *cut(hoist_buffer *base, hoist_layout *layout)
{
	hoist_buffer *view;
	OK(hoist_buffer_get_layout(base, layout));
	for (int k = 0; k < layout->rank; k++) {
		int64_t extent = layout->shape[k];
		int64_t begin = (int64_t)below((uint64_t)extent + 1);
		int64_t step = 1 + (int64_t)below(3);
		int64_t n = (extent - begin + step - 1) / step;
		if (n == 0 || chance(2))
			continue;
		layout->shape[k] = n;
		layout->offset += begin * layout->strides[k];
		if (chance(2)) {
			layout->offset += (n - 1) * step * layout->strides[k];
			step = -step;
		}
		layout->strides[k] *= step;
		if (n < 4 && chance(3)) {
			layout->shape[k] = 1 + (int64_t)below(5);
			layout->strides[k] = 0;
		}
	}
	OK(hoist_buffer_with_layout(base, layout, hoist_buffer_dtype(base), &view));
	return view;
}

static hoist_buffer *turn(hoist_buffer *base)
{
	int axes[MOST_RANK] = {0, 1, 2, 3};
	int rank = hoist_buffer_rank(base);
	hoist_buffer *view;
	for (int k = 0; k < rank; k++) {
		int other = (int)below((uint64_t)rank);
		int axis = axes[k];
		axes[k] = axes[other];
		axes[other] = axis;
	}
	OK(hoist_buffer_permute(base, axes, &view));
	return view;
}

static hoist_buffer *some_view(hoist_buffer *base, size_t bits, size_t *first)
{
	hoist_buffer *view = hoist_buffer_ref(base);
	*first = 0;
	if (bits % 8 == 0 && hoist_buffer_elements(base) > 0 && chance(2)) {
		hoist_layout layout;
		hoist_buffer_unref(view);
		view = cut(base, &layout);
		*first = (size_t)layout.offset * bits;
	}
	if (chance(2)) {
		hoist_buffer *turned = turn(view);
		hoist_buffer_unref(view);
		view = turned;
	}
	return view;
}

static void add_buffer(hoist_save *save)
{
	hoist_dtype dtype = some_dtype();
	size_t bits = info_of(dtype).bits;
	int64_t shape[MOST_RANK];
	unsigned char *bytes;
	size_t first;
	int rank = some_shape(bits, shape);
	hoist_buffer *base = filled(dtype, rank, shape, &bytes);
	hoist_buffer *view = some_view(base, bits, &first);
	struct expected *e =
		new_expected(dtype, rank, hoist_buffer_shape(view), hoist_buffer_bytes(view));
	if (e->n > 0)
		pack(e, bytes, first, hoist_buffer_strides(view));
	OK(hoist_save_add(save, e->name, view));
	hoist_buffer_unref(view);
	hoist_buffer_unref(base);
	free(bytes);
}

/* --- checkpoints --- */

/* An array in Fortran's order. */
static void write_npy(void)
{
	const int64_t rows = 1 + (int64_t)below(300);
	const int64_t columns = 1 + (int64_t)below(400);
	char header[129];
	int n = snprintf(header, sizeof header,
			 "%cNUMPY%c%cv%c{'descr': '<f4', 'fortran_order': True, 'shape': (%lld, "
			 "%lld), }",
			 0x93, 1, 0, 0, (long long)rows, (long long)columns);
	memset(header + n, ' ', sizeof header - (size_t)n);
	header[127] = '\n';
	FILE *file = fopen(support_path("fortran.npy"), "wb");
	/* Version 1.0, 118 bytes. */
	header[6] = 1;
	header[7] = 0;
	CHECK(file != NULL && fwrite(header, 1, 128, file) == 128);
	for (int64_t i = 0; i < rows * columns; i++) {
		float value;
		random_bytes(&value, sizeof value);
		CHECK(fwrite(&value, 1, 4, file) == 4);
	}
	OK(fclose(file));
}

static void write_safetensors(void)
{
	size_t sizes[12];
	size_t n = 1 + below(12);
	for (size_t i = 0; i < n; i++)
		sizes[i] = below(chance(4) ? 900000 : chance(2) ? 70000 : 300);
	support_write("source.safetensors", 0, n, sizes, chance(2) ? (int)below(4096) : -1);
	int fd = open(support_path("source.safetensors"), O_RDONLY | O_CLOEXEC);
	if (chance(2))
		OK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	close(fd);
}

static char written[256]; /* what the round before wrote; "": nothing */

static hoist_checkpoint *some_checkpoint(void)
{
	hoist_checkpoint *checkpoint;
	const char *path = support_path(written);
	if (written[0] == '\0' || chance(3)) {
		bool npy = chance(3);
		/* The one before may be open. */
		(void)unlink(support_path("source.safetensors"));
		(void)unlink(support_path("fortran.npy"));
		if (npy)
			write_npy();
		else
			write_safetensors();
		path = support_path(npy ? "fortran.npy" : "source.safetensors");
	}
	OK(hoist_checkpoint_open(path, 0, &checkpoint));
	return checkpoint;
}

static void add_tensor(hoist_save *save, hoist_checkpoint *checkpoint, size_t index)
{
	hoist_tensor_info tensor = {.size = sizeof tensor};
	hoist_file_info file = {.size = sizeof file};
	OK(hoist_checkpoint_tensor(checkpoint, index, &tensor));
	OK(hoist_checkpoint_file(checkpoint, tensor.file, &file));
	hoist_dtype_info info = info_of(tensor.dtype);
	if (!format->holds(&info) || tensor.rank > format->most_rank)
		return;
	unsigned char *bytes = read_at(file.path, tensor.offset, (size_t)tensor.bytes);
	struct expected *e =
		new_expected(tensor.dtype, tensor.rank, tensor.shape, (size_t)tensor.bytes);
	if (tensor.strides == NULL && e->n > 0)
		memcpy(e->bytes, bytes, e->n);
	else if (e->n > 0)
		pack(e, bytes, 0, tensor.strides);
	OK(hoist_save_add_tensor(save, e->name, checkpoint, index));
	free(bytes);
}

static void add_tensors(hoist_save *save)
{
	hoist_checkpoint *checkpoint = some_checkpoint();
	size_t n = hoist_checkpoint_n_tensors(checkpoint);
	bool in_order = chance(2);
	if (chance(2))
		OK(hoist_save_metadata_of(save, checkpoint));
	for (size_t i = 0; i < n && n_expected < MOST_TENSORS; i++)
		if (n_expected < format->most_tensors && !chance(4))
			add_tensor(save, checkpoint, in_order ? i : below(n));
	hoist_checkpoint_close(checkpoint);
}

/* --- reading it back --- */

static void verify_digests(hoist_checkpoint *checkpoint)
{
	const hoist_load_options options = {.size = sizeof options, .flags = HOIST_LOAD_VERIFY};
	hoist_load *load;
	OK(hoist_load_start(checkpoint, &options, &load));
	OK(hoist_load_wait(load));
	hoist_load_destroy(load);
}

static void check_files(uint64_t n_files, unsigned flags)
{
	hoist_checkpoint *checkpoint;
	size_t next = 0;
	if (strcmp(format->name, "safetensors") == 0) {
		char name[64] = "m.safetensors";
		for (size_t f = 0; f < n_files; f++) {
			if (n_files > 1)
				(void)snprintf(name, sizeof name, "m-%05zu-of-%05zu.safetensors",
					       f + 1, (size_t)n_files);
			check_safetensors(support_path(name), &next);
		}
		CHECK(next == n_expected);
	}
	(void)snprintf(written, sizeof written, "m.%s%s", format->name,
		       n_files > 1 ? ".index.json" : "");
	OK(hoist_checkpoint_open(support_path(written), 0, &checkpoint));
	check_checkpoint(checkpoint, strcmp(format->name, "npy") != 0);
	if ((flags & HOIST_SAVE_DIGEST) != 0 && n_expected > 0)
		verify_digests(checkpoint);
	hoist_checkpoint_close(checkpoint);
}

/* --- a round --- */

static hoist_save *create(hoist_budget **budget, unsigned *flags)
{
	static const size_t budgets[] = {128 << 10, 200000, 700 << 10, 3 << 20, 100 << 20};
	static const enum hoist_io ways[] = {HOIST_IO_AUTO, HOIST_IO_DIRECT, HOIST_IO_CACHED};
	hoist_save *save;
	char path[64];
	format = &formats[below(5)];
	bool safetensors = strcmp(format->name, "safetensors") == 0;
	OK(hoist_budget_create(budgets[below(5)], budget));
	*flags = chance(2) ? HOIST_SAVE_NO_SYNC : 0;
	if (chance(2) && (safetensors || strcmp(format->name, "gguf") == 0))
		*flags |= HOIST_SAVE_DIGEST;
	const hoist_save_options options = {
		.size = sizeof options,
		.engine = chance(2) ? HOIST_ENGINE_THREADS : HOIST_ENGINE_AUTO,
		.io = ways[below(3)],
		.budget = *budget,
		.shard_bytes = safetensors && chance(2) ? 1 + below(900000) : 0,
		.flags = *flags,
	};
	(void)snprintf(path, sizeof path, "m.%s", format->name);
	OK(hoist_save_create(support_path(path), &options, &save));
	return save;
}

static void round_of(void)
{
	hoist_budget *budget;
	unsigned flags;
	hoist_save *save = create(&budget, &flags);
	size_t most = format->most_tensors < 14 ? format->most_tensors : 14;
	for (size_t n = most == 1 ? 1 : below(most), i = 0; i < n && n_expected < most; i++)
		if (chance(5))
			add_tensors(save);
		else
			add_buffer(save);
	if (strcmp(format->name, "npy") == 0 && n_expected == 0)
		add_buffer(save);
	OK(hoist_save_start(save));
	OK(hoist_save_wait(save));
	hoist_save_report report = {.size = sizeof report};
	OK(hoist_save_get_report(save, &report));
	CHECK(report.n_tensors == n_expected);
	CHECK(hoist_budget_peak(budget) <= report.budget_bytes);
	CHECK(hoist_budget_used(budget) == 0);
	straight_bytes += report.straight_bytes;
	CHECK(report.straight_bytes <= report.bytes);
	hoist_save_destroy(save);
	hoist_budget_unref(budget);
	arena_used = 0;
	check_files(report.n_files, flags);
	forget_expected();
}

int main(void)
{
	const char *rounds = getenv("HOIST_TEST_ROUNDS");
	const char *seed = getenv("HOIST_TEST_SEED");
	int n = rounds != NULL ? atoi(rounds) : N_ROUNDS;
	support_emulate("cuda:2,hip:1");
	lib_open_all(devices);
	random_seed(seed != NULL ? strtoull(seed, NULL, 10) : 88172645463325252u);
	for (int i = 0; i < n; i++) {
		round_seed = random_state();
		round_of();
	}
	printf("%llu bytes from where they were\n", (unsigned long long)straight_bytes);
	CHECK(straight_bytes > 0 || n < N_ROUNDS || seed != NULL);
	for (int i = 0; i < N_DEVICES; i++)
		hoist_device_unref(devices[i]);
	support_cleanup();
	return 0;
}
