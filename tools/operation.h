/* SPDX-License-Identifier: MIT */
/* tools/operation.h - one load, as load, cat and digest need it.
 *
 *     operation_open(&op, args)                  checkpoint, device
 *     operation_forecast(&op, args, &forecast)   what a load would do
 *     operation_load(&op, args)                  to its end, with progress
 *     operation_again(&op, args)                 once more, into the same memory
 *     operation_read(&op, t, i, ..., take)       reads bytes back from where they are
 *     operation_close(&op)                       always
 *
 * Each prints its failure and returns a STATUS_*.  The load is driven from here, in steps, so that
 * a signal is noticed within a tenth of a second.
 */
#ifndef HOIST_TOOLS_OPERATION_H
#define HOIST_TOOLS_OPERATION_H

#include <hoist/group.h>
#include <hoist/hoist.h>

#include "tools/args.h"

struct operation {
	hoist_checkpoint *checkpoint;
	hoist_device *device;
	hoist_device **replicas; /* of --replica */
	size_t n_replicas;
	hoist_load_target *targets; /* of --target, with their devices */
	const hoist_load_target **target_list;
	size_t n_targets;
	const hoist_load_slice *slices; /* of --slice; the targets have their own */
	size_t n_slices;
	const char **names; /* of the tensors that --tensor and --exclude leave; NULL: all */
	size_t n_names;
	hoist_budget *budget; /* NULL: the library's default */
	hoist_load *load;
	/* --stream: called for each tensor of target 0 that has come, before it is dropped.  NULL:
	 * nothing is called. */
	void (*given)(void *context, hoist_buffer *buffer);
	void *given_context;
	uint64_t first_ns;	  /* --stream: from the start to the first tensor with bytes */
	hoist_load_report report; /* filled once loaded */
	hoist_group_report group; /* likewise; its note is NULL without a group of several machines */
	hoist_load_report seen;	  /* the times of a load that runs, at the last line of progress */
	uint64_t read_bytes;	  /* by all operation_read() so far, for progress */
	unsigned char *piece;	  /* OPERATION_PIECE_BYTES, made on first use */
};

/* The second load of a group, operation_again(), is that of the group NAME.into: some of the ranks
 * may still be at the end of the first.  NAME has so many bytes at most then. */
#define OPERATION_AGAIN ".into"
#define OPERATION_NAME (63 - strlen(OPERATION_AGAIN))

/* How much operation_read() reads at a time. */
#define OPERATION_PIECE_BYTES ((size_t)4 << 20)

int operation_open(struct operation *op, const struct args *args);
/* Loads the selected tensors. */
int operation_load(struct operation *op, const struct args *args);
/* Says what operation_load() would do. */
int operation_forecast(struct operation *op, const struct args *args, hoist_forecast *ret);
/* Loads once more, into the buffers of the load.  The new load and its report replace the first. */
int operation_again(struct operation *op, const struct args *args);
void operation_close(struct operation *op);

/* Takes @n bytes that begin @offset bytes into the tensor, row-major, whatever its strides in the
 * file.  Returns a STATUS_*; any but OK ends the reading, with its message printed. */
typedef int take_piece(void *context, const hoist_tensor_info *tensor, const unsigned char *bytes,
		       size_t n, uint64_t offset);

/* Reads the bytes of the @index-th loaded tensor of target @target back, in pieces, and gives each
 * to
 * @take; *tensor gets its info. */
int operation_read(struct operation *op, size_t target, size_t index, hoist_tensor_info *tensor,
		   take_piece *take, void *context);

#endif
