/* SPDX-License-Identifier: MIT */
/* tests/soak/worker.h - one process of the soak: what its threads share, and what they do. */
#ifndef HOIST_TESTS_SOAK_WORKER_H
#define HOIST_TESTS_SOAK_WORKER_H

#include "tests/support/lib-support.h"
#include "tests/soak/model.h"

#define SOAK_FILES 6	/* f0.safetensors ... and g4.gguf, g5.gguf, which all save to */
#define SOAK_CACHED 3	/* c0.safetensors ..., which are in the cache at times */
#define SOAK_STATICS 14 /* two of each format, which nobody changes */
#define SOAK_INDEX "s.safetensors.index.json"

enum { CPU, CUDA_0, CUDA_1, HIP_0 };
extern hoist_device *soak_devices[LIB_N_DEVICES];
extern bool soak_in_child;	  /* of fork: devices' buffers are not its own */
extern hoist_budget *soak_budget; /* loads and saves of the process share it */

/* For a while: new ones after each rest. */
enum { POOL_HOST, POOL_PINNED, POOL_DEVICE, POOL_DRIVER, SOAK_N_POOLS };
extern hoist_memory *soak_pools[SOAK_N_POOLS];

/* The roles of the program: soak/mixed ROLE ARGUMENT... */
int soak_worker(int slot, uint64_t seed, const char *folder);

/* --- files.c --- */

/* The @file-th of those that all save to, with what it must be.  Returns: 0; -EAGAIN nobody has
 * saved it yet. */
int soak_open(unsigned file, hoist_checkpoint **ret, struct soak_model *model);
const char *soak_file(unsigned file);
int soak_open_as_model(const char *path, hoist_checkpoint **ret, struct soak_model *model);

/* Between processes: held for as long as the descriptor is open. */
int soak_lock_shards(bool alone);

/* Checkpoints of all formats in turn, which the parent makes; and what their tensors' digests are.
 */
void soak_make_statics(uint64_t seed);
void soak_check_static(hoist_checkpoint *checkpoint, size_t t, hoist_buffer *buffer);
const char *soak_static(unsigned which);

/* --- actions --- */
void soak_load(void);
void soak_load_static(void);
void soak_load_private(void);
void soak_save(void);
void soak_save_private(void);
void soak_save_shards(void);
void soak_save_again(void);
void soak_attach(void);
void soak_add(void);
void soak_drop(void);
void soak_copy(void);
void soak_pool(void);
void soak_parcel(void);
void soak_send(void);
void soak_fork(void);

/* Loads it in a way that is chosen at random, maybe not to the end, and compares what came. */
void soak_load_somehow(hoist_checkpoint *checkpoint, const struct soak_model *model);
/* All of it to the CPU, by a program that cannot be refused anything. */
void soak_load_plainly(hoist_checkpoint *checkpoint, const struct soak_model *model);

/* A buffer that is the @t-th tensor: on any device, of any strides. */
hoist_buffer *soak_make_buffer(const struct soak_model *model, size_t t);

/* --- parcel.c: buffers that change hands between threads --- */

struct soak_parcel {
	struct soak_model model;
	size_t t;
	hoist_dtype as;
	struct soak_box box;
	hoist_buffer *buffer;
};

/* Takes the buffer's reference; whatever was in its place is checked, and let go. */
void soak_parcel_give(const struct soak_parcel *parcel);
void soak_parcels_clear(void);
/* One of them, which is nobody else's from then on; NULL. */
struct soak_parcel *soak_parcel_take(void);
void soak_parcel_end(struct soak_parcel *parcel); /* takes NULL */

/* --- ipc.c --- */
void soak_listen(void);
/* Takes what one sibling sends, if there is one within 50 ms. */
void soak_take(void);

/* --- rest.c: what the process holds, while nobody does anything --- */
void soak_rest(void);
void soak_rest_last(void); /* there will be no other */

/* The part of malloc's memory that a pool (NULL: none) keeps until its end: descriptions of as many
 * slabs, of each class, as there ever were at once, and what threads that live have of it. */
struct hoist__pool;
uint64_t soak_kept_by(struct hoist__pool *pool);

#endif
