/* SPDX-License-Identifier: MIT */
/* tests/lib/load/model.h - shared by the model's files: model.c chooses loads and compares what
 * arrives, model-stream.c takes tensors one by one. */
#ifndef HOIST_TESTS_LIB_LOAD_MODEL_H
#define HOIST_TESTS_LIB_LOAD_MODEL_H

#include <hoist/hoist.h>

#include "tests/support/load-model.h"

enum { MOST_TARGETS = 4, MOST_ORDER = 4 };

/* One target, or several. */
struct trial {
	hoist_load_options o;
	struct load_choice choices[MOST_TARGETS];
	hoist_load_target targets[MOST_TARGETS];
	const hoist_load_target *pointers[MOST_TARGETS];
	hoist_device *replicas[1];
	bool maps;
	const char *order[MOST_ORDER];
	char globs[MOST_ORDER][4];
	size_t tier[RANDOM_MOST_TENSORS]; /* the first entry of the order that names the tensor */
	hoist_stream *stream;		  /* on which streamed buffers of target 0 are dropped */
};

void show(const struct trial *trial, const char *name, const char *what);

/* The buffer has the elements of the tensor that the choice asks for. */
void compare(const struct trial *trial, const struct load_choice *choice, size_t t,
	     const hoist_tensor_info *info, const struct load_files *files, hoist_buffer *buffer);
void compare_digest(hoist_load *load, size_t i, const hoist_tensor_info *info,
		    const struct load_files *files);

/* Forecasts the load.  Questions about the page cache get their answers from a pattern from now on,
 * or from the kernel. */
void forecast_begin(hoist_checkpoint *checkpoint, const struct trial *trial, hoist_forecast *ret);

/* The load has succeeded, and has done what the forecast says. */
void forecast_end(const struct trial *trial, const hoist_forecast *forecast, hoist_load *load);

/* The replicas of a load without targets have what the first target has. */
static inline const struct load_choice *choice_of(const struct trial *trial, size_t target)
{
	return &trial->choices[trial->o.n_targets > 0 ? target : 0];
}

static inline size_t n_targets_of(const struct trial *trial)
{
	return trial->o.n_targets > 0 ? trial->o.n_targets : 1 + trial->o.n_replicas;
}

/* Takes the tensors of a streaming load, and ends the load. */
void stream_once(hoist_checkpoint *checkpoint, const struct trial *trial,
		 const struct load_files *files, const hoist_forecast *forecast, hoist_load *load);

#endif
