/* SPDX-License-Identifier: MIT */
/* tests/soak/model.h - checkpoints of which a seed says all: how many tensors, their dtypes and
 * shapes, and every element, by itself.  So a reader of the seed in a file's metadata knows each
 * part of the file, also converted, without reading the part. */
#ifndef HOIST_TESTS_SOAK_MODEL_H
#define HOIST_TESTS_SOAK_MODEL_H

#include "tests/soak/board.h"

#define SOAK_MOST_TENSORS 10
#define SOAK_MOST_RANK 3
#define SOAK_SEED_KEY "soak.seed"

struct soak_tensor {
	char name[40]; /* of this seed's alone: shards of two saves do not fit together */
	hoist_dtype dtype;
	int rank;
	int64_t shape[SOAK_MOST_RANK];
	int64_t elements;
	size_t bytes;
};

struct soak_model {
	uint64_t seed;
	size_t n;
	struct soak_tensor tensors[SOAK_MOST_TENSORS];
};

/* A part of a tensor. */
struct soak_box {
	int64_t begin[SOAK_MOST_RANK];
	int64_t end[SOAK_MOST_RANK];
};

void soak_model_make(uint64_t seed, struct soak_model *ret);
struct soak_box soak_whole(const struct soak_tensor *tensor);

/* f32, f16 and bf16 can become each other: all values are whole numbers from -128 to 127. */
bool soak_converts(hoist_dtype dtype);
size_t soak_item(hoist_dtype dtype);

/* Elements [first, first + n) of the @t-th tensor as @as, which is its dtype unless it converts. */
void soak_fill(const struct soak_model *model, size_t t, hoist_dtype as, int64_t first, int64_t n,
	       void *out);

/* XXH3-128 in its canonical form, of the @t-th tensor. */
void soak_digest(const struct soak_model *model, size_t t, unsigned char ret[16]);

/* The buffer is this part of the tensor, as @as: its dtype, shape, and, by digest, its bytes; and
 * that is counted.  soak_is() only looks, and says false if the bytes are others. */
void soak_check(const struct soak_model *model, size_t t, hoist_dtype as,
		const struct soak_box *box, hoist_buffer *buffer);
bool soak_is(const struct soak_model *model, size_t t, hoist_dtype as, const struct soak_box *box,
	     hoist_buffer *buffer);
void soak_check_whole(const struct soak_model *model, size_t t, hoist_buffer *buffer);

/* Writes it as safetensors, without hoist, and renames it to @path. */
void soak_write(const struct soak_model *model, const char *path);

/* Metadata as text to a model.  Returns: it was one. */
bool soak_model_read(const char *text, struct soak_model *ret);

/* The tensors that an opened checkpoint lists are the model's. */
void soak_check_list(hoist_checkpoint *checkpoint, const struct soak_model *model);

#endif
