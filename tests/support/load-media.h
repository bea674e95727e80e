/* SPDX-License-Identifier: MIT */
/* tests/support/load-media.h - a model on a disk that has bad places: what it holds, and loads and
 * saves of it, each of which ends as it must and leaves nothing behind. */
#ifndef HOIST_TESTS_LOAD_MEDIA_H
#define HOIST_TESTS_LOAD_MEDIA_H

#include "tests/support/load-support.h"

/* In the order of their bytes.  "gap" is small enough to be read through between its neighbours,
 * and has a page of its own; of "rows", a few columns are many reads with wide gaps. */
#define MEDIA_TENSORS 5
struct media_tensor {
	const char *name;
	int rank;
	int64_t shape[2];
};
extern const struct media_tensor media_tensors[MEDIA_TENSORS];

#define MEDIA_PAGE 4096u
#define MEDIA_ROW_BYTES 65536u

/* How a load goes. */
struct media_way {
	const char *device; /* "cpu", "cuda:0", "hip:0" */
	enum hoist_engine engine;
	enum hoist_io io;
	unsigned flags;
	bool small; /* a small budget, and small reads */
};
extern const struct media_way media_ways[];
extern const size_t media_n_ways;

/* Bytes [@from, @from + @n) of tensor @tensor of the model @seed. */
void media_fill(unsigned char *to, size_t n, unsigned seed, size_t tensor, size_t from);

/* Saves the model, its digests with it, as @options say.  Returns: the save's. */
int media_save(const char *path, unsigned seed, hoist_save_options *options);
void media_make(const char *path, unsigned seed);

/* Loads and compares all of a file.  Returns: the seed of its model; 0: there is no such file. */
unsigned media_seed(const char *path);

/* Where byte @at of a tensor is in its file. */
uint64_t media_place(const char *path, const char *tensor, uint64_t at);

/* The tensors that are loaded: all, or these. */
struct media_choice {
	const char *const *tensors;
	size_t n;
	const hoist_load_slice *slice;
};

/* Loads so, and compares; or, with @bad, fails: the text names the file, tensor @bad, and byte
 * @place of the file or the first of the tensor in its page.  Returns: the load's. */
int media_load(const char *path, unsigned seed, const struct media_way *way,
	       const struct media_choice *choice, const char *bad, uint64_t place);

/* The same for a save of tensors (NULL: all) of @path to @to. */
int media_save_from(const char *path, const char *to, enum hoist_engine engine, enum hoist_io io,
		    const char *const *tensors, size_t n, const char *bad, uint64_t place);

/* Fails the test if hoist_error() does not have @text. */
void media_said(const char *text);

/* The state that must be as it was: descriptors, maps of files in @folder, the stand-in drivers'
 * objects. */
struct media_left {
	unsigned n_fds;
	unsigned n_maps;
	struct hoist_emulator_counters cuda, hip;
};
struct media_left media_look(const char *folder);
void media_same(const struct media_left *before, const struct media_left *now);

#endif
