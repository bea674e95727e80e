/* SPDX-License-Identifier: MIT */
/* tests/support/load-model.h - tensors, slices and a dtype chosen by chance, and the comparison of
 * what a load brought with the bytes of the files, element by element. */
#ifndef HOIST_TESTS_LOAD_MODEL_H
#define HOIST_TESTS_LOAD_MODEL_H

#include <stdbool.h>

#include <hoist/hoist.h>

#include "tests/support/format-archive.h"
#include "tests/support/lib-support.h"
#include "tests/support/load-random.h"

/* The tensors, slices and dtype that one target asks for. */
struct load_choice {
	hoist_load_slice slices[RANDOM_MOST_TENSORS * RANDOM_MOST_RANK];
	size_t n_slices;
	const char *names[RANDOM_MOST_TENSORS];
	size_t n_names;
	bool all; /* without names */
	hoist_dtype dtype;
	bool wanted[RANDOM_MOST_TENSORS];
	int64_t begin[RANDOM_MOST_TENSORS][RANDOM_MOST_RANK];
	int64_t end[RANDOM_MOST_TENSORS][RANDOM_MOST_RANK];
};

struct load_files {
	struct bytes bytes[2];
	size_t n;
};

hoist_tensor_info load_info_of(hoist_checkpoint *checkpoint, size_t t);

/* Chooses tensors, and slices of them if @slices. */
void load_choose_parts(hoist_checkpoint *checkpoint, bool slices, struct load_choice *choice);

/* Compares the buffer with the chosen part of tensor @t.  False: the text in @what says where they
 * differ. */
bool load_compare(const struct load_choice *choice, size_t t, const hoist_tensor_info *info,
		  const struct load_files *files, hoist_buffer *buffer, char what[static 64]);

#endif
