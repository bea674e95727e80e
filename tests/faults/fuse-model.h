/* SPDX-License-Identifier: MIT */
/* tests/faults/fuse-model.h - checkpoints on fuse.h's file system, every way to load them, and
 * what must be as it was afterwards. */
#ifndef HOIST_TESTS_FAULT_FUSE_MODEL_H
#define HOIST_TESTS_FAULT_FUSE_MODEL_H

#include <hoist/hoist.h>

#include "tests/faults/fuse.h"
#include "tests/support/load-support.h"

#define MODEL_TENSORS 5

/* Every byte is told by seed, tensor and place. */
struct model {
	const char *format; /* of hoist_save_options */
	const char *name;   /* of the file that is opened */
	uint64_t shard_bytes;
	unsigned n_tensors;
	int64_t n[MODEL_TENSORS]; /* elements, of f32 */
	unsigned seed;
};

/* safetensors, GGUF, npy and shards; the last is NULL's.  Their sizes are random. */
extern struct model models[];
extern const unsigned n_models;

struct way {
	const char *name;
	enum hoist_engine engine;
	bool device; /* an emulated one */
	enum hoist_io io;
	unsigned flags;
};

extern const struct way ways[];
extern const unsigned n_ways;

/* Long or short form; the seed is printed. */
extern bool model_long_form;
extern bool model_quiet; /* of bytes that differ nothing is said */
void model_begin(void);
uint64_t model_random(uint64_t below);

/* Writes it through the mount; no faults.  Returns: what the save did. */
int model_save(const struct model *model, const hoist_save_options *options);
void model_save_all(void);
const char *model_path(const struct model *model); /* good until the next call */
const char *model_file(const struct model *model); /* the name of its (first) data file */

/* Compares all tensors of an ended load.  Returns: 0, -EFAULT if a touch was SIGBUS, or -EILSEQ. */
int model_compare(const struct model *model, hoist_load *load);

struct model_result {
	int err;	/* the first: of opening, starting, waiting, touching */
	bool touched;	/* it was a touch's: SIGBUS */
	char text[512]; /* hoist_error() */
	bool opened;
	uint64_t n_short; /* answers that were, after it was opened */
	hoist_load_report report;
};

void model_options(const struct way *way, hoist_load_options *ret);

/* Opens, loads, compares, gives all back. */
struct model_result model_load(const struct model *model, const struct way *way);

/* The process must hold as much as at model_begin(), or as after the first load of each way. */
void model_check_nothing_left(void);

/* Without faults, the load of @model by @way must give every byte. */
void model_check_healthy(const struct model *model, const struct way *way);

/* One part of the test, after @before; says how long it took. */
void model_part(const char *name, void (*before)(void), void (*run)(void));

/* The ring is refused here: its ways are left out. */
bool model_has_way(const struct way *way);

#endif
