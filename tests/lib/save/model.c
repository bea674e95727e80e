/* SPDX-License-Identifier: MIT */
/* Random sets of buffers, with random strides on random devices, and of tensors of checkpoints in
 * random formats, saved in random ways, and compared element by element with the bytes at the
 * places that shapes and strides give.  The next rounds read the file of a round, and often write
 * over it. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <hoist/layout.h>

#include "tests/support/lib-support.h"
#include "tests/support/load-random.h"
#include "tests/support/save-support.h"
#include "tests/support/under-tsan.h"

#define N_ROUNDS (UNDER_TSAN ? 25 : 120)
#define MOST_TENSORS 40
#define MOST_RANK 4
#define MOST_FILES 60

static uint64_t round_seed; /* shown when something is wrong */

enum { CPU, CUDA_0, CUDA_1, HIP_0, N_DEVICES };
static hoist_device *devices[N_DEVICES];

/* --- the tensors that the files must have --- */

struct expected {
	char name[40];
	hoist_dtype dtype;
	int rank;
	int64_t shape[MOST_RANK];
	unsigned char *bytes;
	size_t n;
};
static struct expected expected[MOST_TENSORS];
static size_t n_expected;

static hoist_dtype_info info_of(hoist_dtype dtype)
{
	hoist_dtype_info info = {.size = sizeof info};
	OK(hoist_dtype_get_info(dtype, &info));
	return info;
}

/* Bit by bit from @from, where the first element is bit @first; strides in elements. */
static void pack(struct expected *e, const unsigned char *from, size_t first,
		 const int64_t *strides)
{
	size_t bits = info_of(e->dtype).bits;
	int64_t index[MOST_RANK] = {0};
	for (size_t to = 0; to < e->n * 8 / bits * bits; to += bits) {
		int64_t at = (int64_t)first;
		for (int k = 0; k < e->rank; k++)
			at += index[k] * strides[k] * (int64_t)bits;
		if (bits % 8 == 0)
			memcpy(e->bytes + to / 8, from + at / 8, bits / 8);
		for (size_t b = 0; bits % 8 != 0 && b < bits; b++)
			if ((from[((size_t)at + b) / 8] >> ((size_t)at + b) % 8 & 1) != 0)
				e->bytes[(to + b) / 8] |= (unsigned char)(1u << (to + b) % 8);
		int k = e->rank - 1;
		for (; k >= 0 && ++index[k] == e->shape[k]; k--)
			index[k] = 0;
		if (k < 0)
			break;
	}
}

static struct expected *new_expected(hoist_dtype dtype, int rank, const int64_t *shape, size_t n)
{
	static const char *const odd[] = {"", "*", "[a-z]", "\"\\/", "\xc3\xa9", " ?", "\n"};
	struct expected *e = &expected[n_expected];
	CHECK(n_expected < MOST_TENSORS && rank <= MOST_RANK);
	*e = (struct expected){.dtype = dtype, .rank = rank, .n = n};
	if (rank > 0)
		memcpy(e->shape, shape, (size_t)rank * sizeof *shape);
	(void)snprintf(e->name, sizeof e->name, "t%zu%s", n_expected, odd[below(7)]);
	e->bytes = calloc(n + 1, 1);
	CHECK(e->bytes != NULL);
	n_expected++;
	return e;
}

static void forget_expected(void)
{
	while (n_expected > 0)
		free(expected[--n_expected].bytes);
}

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

static hoist_buffer *filled(hoist_dtype dtype, int rank, const int64_t *shape,
			    unsigned char **ret_bytes)
{
	hoist_buffer *buffer;
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
	OK(hoist_buffer_write(buffer, 0, bytes, n));
	*ret_bytes = bytes;
	return buffer;
}

static int some_shape(size_t bits, int64_t *shape)
{
	static const uint64_t most[] = {1, 30, 5000, 40000, 300000};
	int rank = (int)below((uint64_t)format->most_rank + 1);
	uint64_t left = most[below(5)] * 8 / bits + 1;
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

static unsigned char *read_at(const char *path, uint64_t offset, size_t n)
{
	unsigned char *bytes = malloc(n + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(bytes != NULL && fd >= 0);
	for (size_t at = 0; at < n;) {
		ssize_t got = pread(fd, bytes + at, n - at, (off_t)(offset + at));
		CHECK(got > 0);
		at += (size_t)got;
	}
	close(fd);
	return bytes;
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

static void differs(const struct expected *e, const unsigned char *got)
{
	size_t at = 0;
	while (got[at] == e->bytes[at])
		at++;
	fprintf(stderr, "seed %llu: \"%s\" differs at byte %zu of %zu\n",
		(unsigned long long)round_seed, e->name, at, e->n);
	exit(1);
}

/* The name as JSON has it. */
static void quote(const char *name, char *to)
{
	for (; *name != '\0'; name++) {
		if (*name == '"' || *name == '\\')
			*to++ = '\\';
		if (*name == '\n')
			to += sprintf(to, "\\u000a");
		else
			*to++ = *name;
	}
	*to = '\0';
}

static void check_safetensors(const char *path, size_t *next)
{
	struct saved saved;
	OK(saved_read(path, &saved));
	while (*next < n_expected) {
		const struct expected *e = &expected[*next];
		char shape[100] = "";
		char name[80];
		char key[100];
		int n = 0;
		quote(e->name, name);
		(void)snprintf(key, sizeof key, "\"%s\":{", name);
		if (strstr(saved.header, key) == NULL)
			break;
		for (int k = 0; k < e->rank; k++)
			n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld",
				      k > 0 ? "," : "", (long long)e->shape[k]);
		const unsigned char *got =
			saved_tensor(&saved, name, info_of(e->dtype).safetensors, shape, e->n);
		if (memcmp(got, e->bytes, e->n) != 0)
			differs(e, got);
		++*next;
	}
	saved_free(&saved);
}

/* Where tensors are is asked of hoist, whose readers have tests of their own. */
static void check_others(hoist_checkpoint *checkpoint)
{
	CHECK(hoist_checkpoint_n_tensors(checkpoint) == n_expected);
	for (size_t i = 0; i < n_expected; i++) {
		const struct expected *e = &expected[i];
		hoist_tensor_info tensor = {.size = sizeof tensor};
		hoist_file_info file = {.size = sizeof file};
		size_t index = 0;
		if (strcmp(format->name, "npy") != 0)
			OK(hoist_checkpoint_find(checkpoint, e->name, &index));
		OK(hoist_checkpoint_tensor(checkpoint, index, &tensor));
		OK(hoist_checkpoint_file(checkpoint, tensor.file, &file));
		CHECK(tensor.dtype == e->dtype && tensor.rank == e->rank && tensor.bytes == e->n);
		CHECK(e->rank == 0 ||
		      memcmp(tensor.shape, e->shape, (size_t)e->rank * sizeof *e->shape) == 0);
		CHECK(tensor.strides == NULL || e->n == 0);
		unsigned char *got = read_at(file.path, tensor.offset, e->n);
		if (memcmp(got, e->bytes, e->n) != 0)
			differs(e, got);
		free(got);
	}
}

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
	check_others(checkpoint);
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
	hoist_save_destroy(save);
	hoist_budget_unref(budget);
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
	for (int i = 0; i < N_DEVICES; i++)
		hoist_device_unref(devices[i]);
	support_cleanup();
	return 0;
}
