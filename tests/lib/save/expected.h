/* SPDX-License-Identifier: MIT */
/* tests/lib/save/expected.h - the tensors that the files of a save must have, and the comparison of
 * the files with them. */
#ifndef HOIST_TESTS_LIB_SAVE_EXPECTED_H
#define HOIST_TESTS_LIB_SAVE_EXPECTED_H

#include "tests/support/save-support.h"

#define MOST_TENSORS 40
#define MOST_RANK 4

extern uint64_t round_seed; /* shown when something is wrong */

struct expected {
	char name[40];
	hoist_dtype dtype;
	int rank;
	int64_t shape[MOST_RANK];
	unsigned char *bytes;
	size_t n;
};
extern size_t n_expected;

hoist_dtype_info info_of(hoist_dtype dtype);

/* The next tensor, of @n bytes, which are 0. */
struct expected *new_expected(hoist_dtype dtype, int rank, const int64_t *shape, size_t n);
void forget_expected(void);

/* Bit by bit from @from, where the first element is bit @first; strides in elements. */
void pack(struct expected *e, const unsigned char *from, size_t first, const int64_t *strides);

/* @n bytes of the file, to be freed. */
unsigned char *read_at(const char *path, uint64_t offset, size_t n);

/* Compares the safetensors file's tensors, from the tensor *@next on, which goes to the next file's
 * first. */
void check_safetensors(const char *path, size_t *next);

/* Compares the tensors of a checkpoint of any format.  Where tensors are is asked of hoist, whose
 * readers have tests of their own. */
void check_checkpoint(hoist_checkpoint *checkpoint, bool has_names);

#endif
