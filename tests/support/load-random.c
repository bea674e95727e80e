/* SPDX-License-Identifier: MIT */
/* Writes checkpoints of all formats from random numbers. */
#include "config.h"

#include "tests/support/load-random.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/format-archive.h"
#include "tests/support/load-support.h"
#include "tests/support/random.h"

#define MOST_RANK RANDOM_MOST_RANK

static uint64_t state;

void random_seed(uint64_t seed)
{
	state = seed;
}

uint64_t random_state(void)
{
	return state;
}

uint64_t below(uint64_t n)
{
	return random_below(&state, n);
}

bool chance(unsigned of)
{
	return below(of) == 0;
}

void random_bytes(void *to, size_t n)
{
	random_fill(&state, to, n);
}

static void put_random(struct bytes *to, size_t n)
{
	size_t at = to->n;
	put_zeros(to, n);
	random_bytes(to->p + at, n);
}

static char path[512]; /* of what is to be opened */

static void write_whole(const char *name, const struct bytes *bytes)
{
	char to[512];
	(void)snprintf(to, sizeof to, "%s/%s", support_folder(), name);
	int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && write(fd, bytes->p, bytes->n) == (ssize_t)bytes->n);
	if (chance(2))
		CHECK(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	OK(close(fd));
}

/* --- shapes --- */

struct type {
	const char *name; /* safetensors' */
	uint32_t gguf;
	unsigned unit; /* elements of the smallest part that has an address, */
	unsigned unit_bytes;
};

static bool are_small; /* the tensors of the file that is made */

static int some_shape(unsigned unit, unsigned unit_bytes, int64_t *shape)
{
	int rank = 1 + (int)below(MOST_RANK);
	uint64_t most = (are_small ? 1200 : chance(3) ? 400000 : 20000) / unit_bytes;
	for (int a = 0; a < rank; a++) {
		shape[a] = 1 + (int64_t)below(a == rank - 1 ? most : 9);
		most /= (uint64_t)shape[a];
		most = most > 0 ? most : 1;
	}
	if (chance(12))
		shape[below((uint64_t)rank)] = 0;
	if (rank > 1 && chance(3)) { /* many short rows */
		int64_t last = shape[rank - 1];
		shape[rank - 1] = shape[rank - 2];
		shape[rank - 2] = last;
	}
	shape[rank - 1] *= unit;
	return rank;
}

static size_t units_of(int rank, const int64_t *shape, unsigned unit)
{
	size_t n = 1;
	for (int a = 0; a < rank; a++)
		n *= (size_t)shape[a];
	return n / unit;
}

/* --- files --- */

static const struct type safe_types[] = {
	{"F32", 0, 1, 4}, {"F16", 0, 1, 2}, {"BF16", 0, 1, 2}, {"F32", 0, 1, 4},
	{"U8", 0, 1, 1},  {"F64", 0, 1, 8}, {"F4", 0, 2, 1},   {"F6_E2M3", 0, 4, 3},
};

/* Tensors @first, @first + 1, ... of a file. */
static void write_safetensors(const char *name, int first, int n)
{
	struct bytes header = {.n = 0};
	struct bytes file = {.n = 0};
	size_t offset = 0;
	put_text(&header, "{");
	for (int i = 0; i < n; i++) {
		const struct type *type = &PICK(safe_types);
		int64_t shape[MOST_RANK];
		int rank = some_shape(type->unit, type->unit_bytes, shape);
		size_t bytes = units_of(rank, shape, type->unit) * type->unit_bytes;
		char text[256];
		int at = snprintf(text, sizeof text, "%s\"t%06d\":{\"dtype\":\"%s\",\"shape\":[",
				  i > 0 ? "," : "", first + i, type->name);
		for (int a = 0; a < rank; a++)
			at += snprintf(text + at, sizeof text - (size_t)at, "%s%lld",
				       a > 0 ? "," : "", (long long)shape[a]);
		(void)snprintf(text + at, sizeof text - (size_t)at, "],\"data_offsets\":[%zu,%zu]}",
			       offset, offset + bytes);
		put_text(&header, text);
		offset += bytes;
	}
	put_text(&header, "}");
	for (uint64_t spaces = below(16); spaces > 0; spaces--)
		put_text(&header, " ");
	put_number(&file, header.n, 8);
	put(&file, header.p, header.n);
	put_random(&file, offset);
	write_whole(name, &file);
	bytes_free(&header);
	bytes_free(&file);
}

static void make_safetensors(void)
{
	are_small = chance(2);
	write_safetensors("m.safetensors", 0, are_small ? 40 + (int)below(100) : 1 + (int)below(9));
	are_small = false;
	(void)snprintf(path, sizeof path, "%s/m.safetensors", support_folder());
}

static void make_shards(void)
{
	const char *const names[] = {"a.safetensors", "b.safetensors"};
	size_t first[] = {0, 1 + below(5), 0};
	first[2] = first[1] + 1 + below(5);
	for (size_t f = 0; f < 2; f++)
		write_safetensors(names[f], (int)first[f], (int)(first[f + 1] - first[f]));
	support_write_index(names, first, 2);
	(void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", support_folder());
}

static void make_gguf(void)
{
	static const struct type types[] = {{"", 0, 1, 4},   {"", 1, 1, 2},   {"", 30, 1, 2},
					    {"", 2, 32, 18}, {"", 8, 32, 34}, {"", 14, 256, 210},
					    {"", 24, 1, 1}};
	struct bytes file = {.n = 0};
	struct bytes data = {.n = 0};
	int n = 1 + (int)below(8);
	put_text(&file, "GGUF");
	put_number(&file, 3, 4);
	put_number(&file, (uint64_t)n, 8);
	put_number(&file, 0, 8);
	for (int i = 0; i < n; i++) {
		const struct type *type = &PICK(types);
		int64_t shape[MOST_RANK];
		int rank = 0;
		do {
			rank = some_shape(type->unit, type->unit_bytes, shape);
		} while (units_of(rank, shape, type->unit) == 0);
		put_number(&file, 3, 8);
		char name[8];
		(void)snprintf(name, sizeof name, "t%02d", i);
		put(&file, name, 3);
		put_number(&file, (uint64_t)rank, 4);
		for (int a = rank; a-- > 0;)
			put_number(&file, (uint64_t)shape[a], 8);
		put_number(&file, type->gguf, 4);
		put_number(&file, data.n, 8);
		put_random(&data, units_of(rank, shape, type->unit) * type->unit_bytes);
		put_zeros(&data, (32 - data.n % 32) % 32);
	}
	put_zeros(&file, (32 - file.n % 32) % 32);
	put(&file, data.p, data.n);
	write_whole("m.gguf", &file);
	bytes_free(&file);
	bytes_free(&data);
	(void)snprintf(path, sizeof path, "%s/m.gguf", support_folder());
}

static void put_npy(struct bytes *file)
{
	static const struct {
		const char *descr;
		unsigned bytes;
	} types[] = {{"<f4", 4}, {"<f2", 2}, {"<i8", 8}};
	size_t type = below(3);
	int64_t shape[MOST_RANK];
	int rank = some_shape(1, types[type].bytes, shape);
	char text[160];
	int at = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': %s, 'shape': (",
			  types[type].descr, chance(3) ? "False" : "True");
	for (int a = 0; a < rank; a++)
		at += snprintf(text + at, sizeof text - (size_t)at, "%lld, ", (long long)shape[a]);
	at += snprintf(text + at, sizeof text - (size_t)at, "), }");
	put_text(file, "\x93NUMPY");
	put_number(file, 1, 2);
	put_number(file, 192 - 10, 2);
	put_text(file, text);
	while (file->n < 191)
		put_text(file, " ");
	put_text(file, "\n");
	put_random(file, units_of(rank, shape, 1) * types[type].bytes);
}

static void make_npy(void)
{
	struct bytes file = {.n = 0};
	put_npy(&file);
	write_whole("m.npy", &file);
	bytes_free(&file);
	(void)snprintf(path, sizeof path, "%s/m.npy", support_folder());
}

static void make_npz(void)
{
	struct archive archive = {.n = 0};
	uint64_t n = 1 + below(6);
	for (uint64_t i = 0; i < n; i++) {
		struct bytes entry = {.n = 0};
		char name[16];
		(void)snprintf(name, sizeof name, "t%02d.npy", (int)i);
		put_npy(&entry);
		(void)archive_add(&archive, name, entry.p, entry.n);
		bytes_free(&entry);
	}
	archive_end(&archive, "");
	write_whole("m.npz", &archive.file);
	archive_free(&archive);
	(void)snprintf(path, sizeof path, "%s/m.npz", support_folder());
}

static void make_max(void)
{
	static const struct {
		unsigned code;
		unsigned bytes;
	} types[] = {{79, 2}, {80, 2}, {81, 4}, {82, 8}};
	struct bytes file = {.n = 0};
	uint64_t offset = 0;
	uint64_t n = 1 + below(8);
	put_text(&file, "\x93\xf0\x9f\x94\xa5\x2b\x2b\x93");
	put_number(&file, 0, 4);
	put_number(&file, 1, 4);
	put_number(&file, 0, 8); /* set below: bytes of the entries */
	for (uint64_t i = 0; i < n; i++) {
		size_t type = below(4);
		int64_t shape[MOST_RANK];
		int rank = some_shape(1, types[type].bytes, shape);
		char name[8];
		(void)snprintf(name, sizeof name, "t%02d", (int)i);
		put_number(&file, 3, 4);
		put(&file, name, 3);
		put_number(&file, types[type].code, 1);
		put_number(&file, (uint64_t)rank, 1);
		for (int a = 0; a < rank; a++)
			put_number(&file, (uint64_t)shape[a], 4);
		put_number(&file, offset, 8); /* from the first tensor on, until all is known */
		offset += units_of(rank, shape, 1) * types[type].bytes;
	}
	set_number(&file, 16, file.n - 24, 8);
	for (size_t at = 24, i = 0, data = file.n; i < n; i++) {
		at += 4 + 3 + 2 + (size_t)4 * file.p[at + 8];
		uint64_t from_first = 0;
		memcpy(&from_first, file.p + at, 8);
		set_number(&file, at, data + from_first, 8);
		at += 8;
	}
	put_random(&file, offset);
	write_whole("m.max", &file);
	bytes_free(&file);
	(void)snprintf(path, sizeof path, "%s/m.max", support_folder());
}

/* --- PyTorch: views of storages, overlapping, strided, expanded --- */

static void put_int(struct bytes *to, uint64_t value)
{
	put(to, "\x8a\x08", 2);
	put_number(to, value, 8);
}

static void put_string(struct bytes *to, const char *text)
{
	put_text(to, "X");
	put_number(to, strlen(text), 4);
	put_text(to, text);
}

static void put_ints(struct bytes *to, int n, const int64_t *values)
{
	put_text(to, "(");
	for (int i = 0; i < n; i++)
		put_int(to, (uint64_t)values[i]);
	put_text(to, "t");
}

struct torch_view {
	uint64_t offset;
	int rank;
	int64_t shape[MOST_RANK];
	int64_t strides[MOST_RANK];
};

static void put_view(struct bytes *pickle, int name, const char *class, const char *key,
		     uint64_t elements, const struct torch_view *view)
{
	char text[32];
	(void)snprintf(text, sizeof text, "t%02d", name);
	put_string(pickle, text);
	put_text(pickle, "ctorch._utils\n_rebuild_tensor_v2\n((");
	put_string(pickle, "storage");
	(void)snprintf(text, sizeof text, "ctorch\n%s\n", class);
	put_text(pickle, text);
	put_string(pickle, key);
	put_string(pickle, "cpu");
	put_int(pickle, elements);
	put_text(pickle, "tQ");
	put_int(pickle, view->offset);
	put_ints(pickle, view->rank, view->shape);
	put_ints(pickle, view->rank, view->strides);
	put_text(pickle, "\x89"
			 "ccollections\nOrderedDict\n)RtRs");
}

/* A view of a storage of @n elements. */
static struct torch_view some_view(uint64_t n)
{
	struct torch_view v = {.rank = 2};
	int64_t rows = 1 + (int64_t)below(20);
	int64_t columns = (int64_t)n / rows;
	switch (below(6)) {
	case 0: /* all of it */
		return (struct torch_view){0, 1, {(int64_t)n}, {1}};
	case 1: /* transposed */
		return (struct torch_view){0, 2, {columns, rows}, {1, columns}};
	case 2: /* a column of it, expanded */
		return (struct torch_view){below(n), 2, {3, 7}, {0, 0}};
	case 3: /* every other row */
		return (struct torch_view){0, 2, {(rows + 1) / 2, columns}, {2 * columns, 1}};
	default: /* some of it, dense */
		v.offset = below(n);
		v.shape[0] = 1 + (int64_t)below(n - v.offset);
		return (struct torch_view){v.offset, 1, {v.shape[0]}, {1}};
	}
}

static void make_torch(void)
{
	static const struct {
		const char *class;
		unsigned bytes;
	} types[] = {{"FloatStorage", 4},
		     {"HalfStorage", 2},
		     {"BFloat16Storage", 2},
		     {"ByteStorage", 1}};
	struct bytes pickle = {.n = 0};
	struct bytes data[3] = {{.n = 0}};
	struct archive archive = {.align = 64, .flags = 0x800};
	size_t n_storages = 1 + below(3);
	int name = 0;
	put(&pickle, "\x80\2}", 3);
	for (size_t s = 0; s < n_storages; s++) {
		size_t type = below(4);
		uint64_t n = 1 + below(chance(3) ? 150000 : 6000);
		struct torch_view view = some_view(n);
		char key[2] = {(char)('0' + s), '\0'};
		for (uint64_t views = 1 + below(6); views > 0; views--) {
			/* Tied: the same again. */
			if (!chance(3))
				view = some_view(n);
			put_view(&pickle, name++, types[type].class, key, n, &view);
		}
		put_random(&data[s], n * types[type].bytes);
	}
	put_text(&pickle, ".");
	archive_add(&archive, "m/data.pkl", pickle.p, pickle.n);
	for (size_t s = 0; s < n_storages; s++) {
		char entry[] = "m/data/0";
		entry[7] = (char)('0' + s);
		archive_add(&archive, entry, data[s].p, data[s].n);
		bytes_free(&data[s]);
	}
	archive_end(&archive, "");
	write_whole("m.pt", &archive.file);
	archive_free(&archive);
	bytes_free(&pickle);
	(void)snprintf(path, sizeof path, "%s/m.pt", support_folder());
}

static void (*const makers[RANDOM_N_FORMATS])(void) = {
	make_torch, make_safetensors, make_shards, make_gguf, make_npy, make_npz, make_max};

const char *random_checkpoint_of(unsigned format)
{
	makers[format]();
	return path;
}

/* PyTorch's, the most different, comes twice as often. */
const char *random_checkpoint(void)
{
	return random_checkpoint_of((unsigned)below(RANDOM_N_FORMATS + 1) % RANDOM_N_FORMATS);
}
