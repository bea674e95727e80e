/* SPDX-License-Identifier: MIT */
/* tests/support/load-random.h - pseudo-random numbers, and checkpoints of all formats made of them,
 * byte by byte: tensors of all kinds of dtypes and shapes; PyTorch's also as views that overlap,
 * are tied, strided and expanded. */
#ifndef HOIST_TESTS_LOAD_RANDOM_H
#define HOIST_TESTS_LOAD_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANDOM_MOST_TENSORS 144
#define RANDOM_MOST_RANK 3

void random_seed(uint64_t seed);
uint64_t random_state(void); /* a seed with which all goes on as it does now */

uint64_t below(uint64_t n);
bool chance(unsigned of); /* one of so many */

void random_bytes(void *to, size_t n);

#define PICK(table) ((table)[below(sizeof(table) / sizeof((table)[0]))])

/* All that hoist reads: PyTorch's, safetensors, shards with an index, GGUF, .npy, .npz, .max. */
#define RANDOM_N_FORMATS 7u

/* In support_folder(); of up to 2 files.  Returns: what to open, until the next call. */
const char *random_checkpoint(void);
const char *random_checkpoint_of(unsigned format);

#endif
