/* SPDX-License-Identifier: MIT */
/* Allocations of the readers of zip archives and arrays, and of their writers. */
#include "config.h"

#include "tests/format/nomem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/npy.h"
#include "format/torch.h"
#include "format/write.h"
#include "tests/support/check.h"
#include "tests/support/format-archive.h"

typedef int parser(const struct hoist__reader *reader, struct hoist__manifest **ret);

struct parsing {
	parser *parse;
	const struct hoist__reader *reader;
};

static int parse_once(void *context)
{
	const struct parsing *parsing = context;
	struct hoist__manifest *manifest = NULL;
	int err = parsing->parse(parsing->reader, &manifest);
	if (err == 0)
		hoist__manifest_destroy(manifest);
	return err;
}

static void sweep(const char *name, parser *parse, long least)
{
	struct bytes file = {.n = 0};
	CHECK(bytes_load_data(&file, name));
	struct hoist__reader reader = reader_of(&file, name);
	fail_each(parse_once, &(struct parsing){parse, &reader}, 0, least);
	bytes_free(&file);
}

typedef int writer(struct hoist__out_file *out);

static int write_once(void *write)
{
	static const int64_t shape[] = {3};
	struct hoist__out_tensor tensor = {
		.name = "x", .dtype = HOIST_F32, .rank = 1, .shape = shape, .bytes = 12};
	struct hoist__out_file out = {.name = "m", .n_tensors = 1, .tensors = &tensor};
	int err = (*(writer **)write)(&out);
	CHECK(err == 0 || out.header == NULL);
	free(out.header);
	return err;
}

/* --- the memory that parsers take --- */

#define SLACK (1 << 20) /* the tail of an archive, and what small vectors begin with */

static double most_npz;
static double most_torch;

static void measure(const char *what, struct archive *archive, parser *parse, int expected,
		    size_t bytes, double most)
{
	archive_end(archive, "");
	struct hoist__reader reader = reader_of(&archive->file, "m");
	count_begin(-1);
	CHECK(parse_once(&(struct parsing){parse, &reader}) == expected);
	count_end();
	double ratio = counted_peak > SLACK ? (double)(counted_peak - SLACK) / (double)bytes : 0;
	printf("%-28s %.2f bytes of memory per byte\n", what, ratio);
	CHECK(ratio <= most);
	double *of_all = parse == hoist__npz_parse ? &most_npz : &most_torch;
	*of_all = ratio > *of_all ? ratio : *of_all;
	archive_free(archive);
}

/* The directory and its entries; names, shapes and tensors are the result. */
static void measure_npz(void)
{
	static const char array[] = "\x93NUMPY\1\0\65\0"
				    "{'descr':'|u1','fortran_order':True,'shape':(0,0,0),}";
	struct archive archive = {.n = 0};
	for (int i = 0; i < 40000; i++) {
		char name[16];
		snprintf(name, sizeof name, "%05d.npy", i);
		archive_add(&archive, name, array, sizeof array - 1);
	}
	measure("40,000 arrays", &archive, hoist__npz_parse, 0, archive.directory.n, 8);
}

static void measure_pickle(const char *what, struct bytes *pickle, int expected, double most)
{
	struct archive archive = {.n = 0};
	archive_add(&archive, "m/data.pkl", pickle->p, pickle->n);
	archive_add(&archive, "m/data/0", "0123", 4);
	measure(what, &archive, hoist__torch_parse, expected, pickle->n, most);
	bytes_free(pickle);
}

/* As torch.save writes them: each tensor its storage's id, and everything in the memo. */
static void measure_torch(void)
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
	measure_pickle("20,000 tensors of PyTorch", &pickle, 0, 16);
}

static int parse_lenient(const struct hoist__reader *reader, struct hoist__manifest **ret)
{
	struct hoist__reader lenient = *reader;
	lenient.lenient = true;
	return hoist__torch_parse(&lenient, ret);
}

#define NET "cnet\nNet\n)\x81"

/* Each value is listed, and has a state with a value that is listed. */
static void measure_skipped(void)
{
	struct bytes pickle = {.n = 0};
	put(&pickle, "\x80\2}(", 4);
	for (int i = 0; i < 20000; i++) {
		char key[16];
		snprintf(key, sizeof key, "\x8c\5%05d", i);
		put_text(&pickle, key);
		put_text(&pickle, NET "}\x8c\1a" NET "sb");
	}
	put_text(&pickle, "u.");
	struct archive archive = {.n = 0};
	archive_add(&archive, "m/data.pkl", pickle.p, pickle.n);
	measure("40,000 skipped values", &archive, parse_lenient, 0, pickle.n,
		HOIST__PICKLE_FACTOR + 1);
	bytes_free(&pickle);
}

static void sweep_skipped(void)
{
	static const char pickle[] = "\x80\2}(\x8c\1a" NET "}\x8c\1b" NET "sb\x8c\1c\x8fu.";
	struct archive archive = {.n = 0};
	archive_add(&archive, "m/data.pkl", pickle, sizeof pickle - 1);
	archive_end(&archive, "");
	struct hoist__reader reader = reader_of(&archive.file, "m");
	fail_each(parse_once, &(struct parsing){parse_lenient, &reader}, 0, 8);
	archive_free(&archive);
	struct bytes old = {.n = 0};
	put_text(&old, "\x80\2.");
	reader = reader_of(&old, "old");
	fail_each(parse_once, &(struct parsing){parse_lenient, &reader}, 0, 1);
	bytes_free(&old);
}

static void measure_hostile(const char *what, const char *piece, size_t n)
{
	struct bytes pickle = {.n = 0};
	put_text(&pickle, "N");
	for (int i = 0; i < 1000000; i++)
		put(&pickle, piece, n);
	measure_pickle(what, &pickle, -EBADMSG, HOIST__PICKLE_FACTOR + 1);
}

/* One tensor, or one number, under many keys of @key_bytes: the last step takes the most. */
static void measure_keys(const char *what, bool tensors, int key_bytes, int expected)
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
	measure_pickle(what, &pickle, expected, HOIST__PICKLE_FACTOR + 1);
}

void test_archives(void)
{
	writer *const writers[] = {hoist__npy_write, hoist__max_write};
	sweep("numpy-fortran.npy", hoist__npy_parse, 3);
	sweep("numpy-stored.npz", hoist__npz_parse, 5);
	sweep("torch-train.pt", hoist__torch_parse, 15);
	sweep_skipped();
	for (size_t i = 0; i < 2; i++)
		fail_each(write_once, (void *)(uintptr_t)&writers[i], 0, 1);
	measure_npz();
	measure_torch();
	measure_skipped();
	measure_hostile("a memo of a million", "\x94", 1);
	measure_hostile("a million dicts", "}", 1);
	measure_hostile("a million tuples", "\x85\x94", 2);
	measure_hostile("a million marks", "(", 1);
	measure_keys("100,000 names of a tensor", true, 6, 0);
	measure_keys("100,000 short names of a tensor", true, 1, -EBADMSG);
	measure_keys("100,000 numbers", false, 6, 0);
	printf("figure: format.memory.npz .npz: %.1f times the directory's bytes beyond 1 MiB, at "
	       "most\n",
	       most_npz);
	printf("figure: format.memory.torch PyTorch: %.1f times the pickle's beyond 1 MiB, at "
	       "most\n",
	       most_torch);
}
