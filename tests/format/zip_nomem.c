/* SPDX-License-Identifier: MIT */
/* Every allocation of the readers of zip archives and arrays, and of their writers, fails once: the
 * answer is -ENOMEM and nothing is left behind.  The same counters say what memory large files and
 * hostile ones take: zip.h and pickle.h have the bounds.
 *
 * A plain program, linked with --wrap for malloc and its like (format/build.am), so that hoist's own
 * allocations are counted and no others. */
#include "config.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tests/support/format-archive.h"
#include "format/npy.h"
#include "format/torch.h"
#include "format/write.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void __wrap_free(void *memory);

static bool counting;
static long fail_at; /* the call that fails, from 0; -1: none */
static long n_calls;
static long n_live;
static size_t live_bytes;
static size_t peak_bytes;

static bool must_fail(void)
{
	return counting && n_calls++ == fail_at;
}

static void *count(void *memory)
{
	if (memory != NULL && counting) {
		n_live++;
		live_bytes += malloc_usable_size(memory);
		if (live_bytes > peak_bytes)
			peak_bytes = live_bytes;
	}
	return memory;
}

static void uncount(void *memory)
{
	if (memory != NULL && counting) {
		n_live--;
		live_bytes -= malloc_usable_size(memory);
	}
}

void *__wrap_malloc(size_t bytes)
{
	return must_fail() ? NULL : count(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return must_fail() ? NULL : count(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	if (must_fail())
		return NULL;
	/* Both may exist for a while. */
	size_t before = memory != NULL && counting ? malloc_usable_size(memory) : 0;
	void *grown = count(__real_realloc(memory, bytes));
	if (grown != NULL && before > 0) {
		n_live--;
		live_bytes -= before;
	}
	return grown;
}

void __wrap_free(void *memory)
{
	uncount(memory);
	__real_free(memory);
}

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, hoist_error()); \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

static void start_counting(long which)
{
	fail_at = which;
	n_calls = n_live = 0;
	live_bytes = peak_bytes = 0;
	counting = true;
}

/* --- every allocation fails --- */

typedef int parser(const struct hoist__reader *reader, struct hoist__manifest **ret);

static int parse_once(parser *parse, const struct hoist__reader *reader)
{
	struct hoist__manifest *manifest = NULL;
	int err = parse(reader, &manifest);
	if (err == 0)
		hoist__manifest_destroy(manifest);
	return err;
}

static int sweep(const char *name, parser *parse, long least)
{
	const char *folder = getenv("srcdir");
	char path[4096];
	struct bytes file = {.n = 0};
	snprintf(path, sizeof path, "%s/data/%s", folder != NULL ? folder : ".", name);
	CHECK(bytes_load(&file, path));
	struct hoist__reader reader = reader_of(&file, name);
	int err = -ENOMEM;
	long which = 0;
	for (; err == -ENOMEM; which++) {
		start_counting(which);
		err = parse_once(parse, &reader);
		counting = false;
		CHECK(err == 0 || err == -ENOMEM);
		CHECK(err == 0 || strstr(hoist_error(), "host memory is exhausted") != NULL);
		CHECK(n_live == 0);
	}
	CHECK(which > least);
	bytes_free(&file);
	return 0;
}

static int sweep_writer(int (*write)(struct hoist__out_file *))
{
	static const int64_t shape[] = {3};
	struct hoist__out_tensor tensor = {
		.name = "x", .dtype = HOIST_F32, .rank = 1, .shape = shape, .bytes = 12};
	int err = -ENOMEM;
	long which = 0;
	for (; err == -ENOMEM; which++) {
		struct hoist__out_file out = {.name = "m", .n_tensors = 1, .tensors = &tensor};
		start_counting(which);
		err = write(&out);
		if (err == 0)
			free(out.header);
		counting = false;
		CHECK(err == 0 || (err == -ENOMEM && out.header == NULL));
		CHECK(n_live == 0);
	}
	CHECK(which > 1);
	return 0;
}

/* --- what they take --- */

#define SLACK (1 << 20) /* the tail of an archive, and what small vectors begin with */

static double most_npz;
static double most_torch;

static int measure(const char *what, struct archive *archive, parser *parse, int expected,
		   size_t bytes, double most)
{
	archive_end(archive, "");
	struct hoist__reader reader = reader_of(&archive->file, "m");
	start_counting(-1);
	int err = parse_once(parse, &reader);
	counting = false;
	CHECK(err == expected);
	CHECK(n_live == 0);
	double ratio = peak_bytes > SLACK ? (double)(peak_bytes - SLACK) / (double)bytes : 0;
	printf("%-28s %.2f bytes of memory per byte\n", what, ratio);
	CHECK(ratio <= most);
	double *of_all = parse == hoist__npz_parse ? &most_npz : &most_torch;
	*of_all = ratio > *of_all ? ratio : *of_all;
	archive_free(archive);
	return 0;
}

/* The directory and its entries; names, shapes and tensors are the result. */
static int measure_npz(void)
{
	static const char array[] = "\x93NUMPY\1\0\65\0"
				    "{'descr':'|u1','fortran_order':True,'shape':(0,0,0),}";
	struct archive archive = {.n = 0};
	char name[32];
	for (int i = 0; i < 40000; i++) {
		snprintf(name, sizeof name, "%05d.npy", i);
		archive_add(&archive, name, array, sizeof array - 1);
	}
	return measure("40,000 arrays", &archive, hoist__npz_parse, 0, archive.directory.n, 8);
}

static int measure_pickle(const char *what, struct bytes *pickle, int expected, double most)
{
	struct archive archive = {.n = 0};
	archive_add(&archive, "m/data.pkl", pickle->p, pickle->n);
	archive_add(&archive, "m/data/0", "0123", 4);
	int failed = measure(what, &archive, hoist__torch_parse, expected, pickle->n, most);
	bytes_free(pickle);
	return failed;
}

/* As torch.save writes them: each tensor its storage's id, and everything in the memo. */
static int measure_torch(void)
{
	struct bytes pickle = {.n = 0};
	static const char rebuild[] = "ctorch._utils\n_rebuild_tensor_v2\n";
	static const char storage[] = "((X\7\0\0\0storage\x94"
				      "ctorch\nFloatStorage\n"
				      "X\1\0\0\0"
				      "0\x94X\3\0\0\0cpu\x94K\1t\x94QK\0";
	static const char rest[] = "K\1\x85\x94K\1\x85\x94\x89"
				   "ccollections\nOrderedDict\n)R\x94t"
				   "\x94R\x94";
	put(&pickle, "\x80\2}(", 4);
	for (int i = 0; i < 20000; i++) {
		char name[32];
		snprintf(name, sizeof name, "model.layers.%05d.up.weight", i);
		put_text(&pickle, "X");
		put_number(&pickle, strlen(name), 4);
		put_text(&pickle, name);
		put(&pickle, "\x94", 1);
		put(&pickle, rebuild, sizeof rebuild - 1);
		put(&pickle, storage, sizeof storage - 1);
		put(&pickle, rest, sizeof rest - 1);
	}
	put_text(&pickle, "u.");
	return measure_pickle("20,000 tensors of PyTorch", &pickle, 0, 16);
}

static int measure_hostile(const char *what, const char *piece, size_t n)
{
	struct bytes pickle = {.n = 0};
	put_text(&pickle, "N");
	for (int i = 0; i < 1000000; i++)
		put(&pickle, piece, n);
	return measure_pickle(what, &pickle, -EBADMSG, HOIST__PICKLE_FACTOR + 1);
}

/* One tensor, or one number, under many keys of @key_bytes: what is looked at last takes the most.
 */
static int measure_keys(const char *what, bool tensors, int key_bytes, int expected)
{
	static const char tensor[] = "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storage"
				     "ctorch\nFloatStorage\nX\1\0\0\0"
				     "0X\3\0\0\0cpuK\1tQK\0))\x89NtR\x94";
	struct bytes pickle = {.n = 0};
	put_text(&pickle, "}X");
	put_number(&pickle, 1, 4);
	put_text(&pickle, "t");
	put(&pickle, tensor, sizeof tensor - 1);
	put_text(&pickle, "s(");
	for (int i = 0; i < 100000; i++) {
		char name[32];
		snprintf(name, sizeof name, "%0*d", key_bytes, key_bytes > 5 ? i : i % 10);
		put_text(&pickle, "X");
		put_number(&pickle, strlen(name), 4);
		put_text(&pickle, name);
		put(&pickle, tensors ? "h\0" : "K\1", 2);
	}
	put_text(&pickle, "u.");
	return measure_pickle(what, &pickle, expected, HOIST__PICKLE_FACTOR + 1);
}

int main(void)
{
	if (sweep("numpy-fortran.npy", hoist__npy_parse, 3) ||
	    sweep("numpy-stored.npz", hoist__npz_parse, 5) ||
	    sweep("torch-train.pt", hoist__torch_parse, 15) || sweep_writer(hoist__npy_write) ||
	    sweep_writer(hoist__max_write) || measure_npz() || measure_torch() ||
	    measure_hostile("a memo of a million", "\x94", 1) ||
	    measure_hostile("a million dicts", "}", 1) ||
	    measure_hostile("a million tuples", "\x85\x94", 2) ||
	    measure_hostile("a million marks", "(", 1) ||
	    measure_keys("100,000 names of a tensor", true, 6, 0) ||
	    measure_keys("and short ones", true, 1, -EBADMSG) ||
	    measure_keys("100,000 numbers", false, 6, 0))
		return 1;
	printf("figure: format.memory.npz .npz: %.1f times the directory's bytes beyond 1 MiB, at "
	       "most\n",
	       most_npz);
	printf("figure: format.memory.torch PyTorch: %.1f times the pickle's beyond 1 MiB, at "
	       "most\n",
	       most_torch);
	return 0;
}
