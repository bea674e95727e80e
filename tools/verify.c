/* SPDX-License-Identifier: MIT */
/* tools/verify.c - compares every loaded byte with the files, which are read another way.
 * The contract is in tools/verify.h. */
#include "config.h"

#include "tools/verify.h"
#include "tools/selection.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/progress.h"

struct verify {
	hoist_checkpoint *checkpoint;
	const hoist_load_slice *slices; /* of the target that is looked at */
	size_t n_slices;
	unsigned char *expected; /* OPERATION_PIECE_BYTES */
	unsigned char *packed;	 /* of a tensor that is sliced or has strides in the file, packed */
	bool is_packed;		 /* the tensor is one of these */
	int fd;			 /* of the file below, or -1; tensors come file by file */
	size_t file;
	const char *path;
};

static int open_file(struct verify *verify, size_t index)
{
	hoist_file_info file = {.size = sizeof file};
	if (hoist_checkpoint_file(verify->checkpoint, index, &file) != 0)
		return fail_library();
	int fd = open(file.path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fail("verifying: opening %s: %s", file.path, strerror(errno));
	if (verify->fd >= 0)
		(void)close(verify->fd);
	verify->fd = fd;
	verify->file = index;
	verify->path = file.path;
	return STATUS_OK;
}

/* Reads with plain system calls: the verification must not rely on the reads that are verified. */
static int read_file(const struct verify *verify, uint64_t offset, unsigned char *to, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = pread(verify->fd, to + done, n - done, (off_t)(offset + done));
		if (got == 0)
			return fail("verifying: %s ends at byte %" PRIu64
				    ": the file became shorter during the load",
				    verify->path, offset + done);
		if (got < 0 && errno != EINTR)
			return fail("verifying: reading %s at byte %" PRIu64 ": %s", verify->path,
				    offset + done, strerror(errno));
		if (got > 0)
			done += (size_t)got;
	}
	return STATUS_OK;
}

/* Fills the ranges of all axes of the tensor.  Returns: true if one of them is sliced. */
static bool cut(const struct verify *verify, const hoist_tensor_info *tensor, hoist_slice *axes)
{
	bool any = false;
	for (int a = 0; a < tensor->rank; a++)
		axes[a] = (hoist_slice)HOIST_ALL;
	for (size_t i = 0; i < verify->n_slices; i++) {
		const hoist_load_slice *slice = &verify->slices[i];
		if (!selection_matches(verify->checkpoint, slice->tensor, tensor->name))
			continue;
		int axis = slice->axis < 0 ? slice->axis + tensor->rank : slice->axis;
		int64_t extent = tensor->shape[axis];
		int64_t begin = slice->begin < 0 ? slice->begin + extent : slice->begin;
		int64_t end = slice->end == HOIST_SLICE_END ? extent
			      : slice->end < 0		    ? slice->end + extent
							    : slice->end;
		if (slice->n_ranks > 0) {
			begin = extent / slice->n_ranks * slice->rank;
			end = begin + extent / slice->n_ranks;
		}
		axes[axis] = (hoist_slice)HOIST_RANGE(begin, end);
		any = true;
	}
	return any;
}

/* Replaces *@view by what the slices leave of it. */
static int narrow(const struct verify *verify, const hoist_tensor_info *tensor, hoist_buffer **view)
{
	hoist_slice axes[HOIST_MAX_RANK];
	hoist_buffer *part = NULL;
	if (!cut(verify, tensor, axes))
		return STATUS_OK;
	if (hoist_buffer_slice(*view, tensor->rank, axes, &part) != 0)
		return fail_library();
	hoist_buffer_unref(*view);
	*view = part;
	return STATUS_OK;
}

/* Gives the file's bytes of a tensor with strides or slices, in the order in which it was loaded.
 */
static int pack_expected(struct verify *verify, const hoist_tensor_info *tensor)
{
	unsigned char *span = malloc(tensor->bytes > 0 ? tensor->bytes : 1);
	hoist_buffer *view = NULL;
	if (span == NULL)
		return fail_memory();
	const hoist_buffer_source source = {.size = sizeof source,
					    .address = (uintptr_t)span,
					    .bytes = tensor->bytes,
					    .is_read_only = 1};
	int status = read_file(verify, tensor->offset, span, tensor->bytes);
	if (status == STATUS_OK && hoist_buffer_wrap(&source, tensor->dtype, tensor->rank,
						     tensor->shape, tensor->strides, &view) != 0)
		status = fail_library();
	if (status == STATUS_OK)
		status = narrow(verify, tensor, &view);
	if (status == STATUS_OK) {
		size_t n = hoist_buffer_bytes(view);
		free(verify->packed);
		verify->packed = malloc(n > 0 ? n : 1);
		if (verify->packed == NULL)
			status = fail_memory();
		else if (hoist_buffer_copy_out(view, verify->packed, n) != 0)
			status = fail_library();
	}
	hoist_buffer_unref(view);
	free(span);
	return status;
}

/* Gives the bytes of a tensor from @offset on, as they must be. */
static int read_expected(struct verify *verify, const hoist_tensor_info *tensor, size_t n,
			 uint64_t offset, const unsigned char **ret)
{
	int status = STATUS_OK;
	if (offset == 0) {
		hoist_slice axes[HOIST_MAX_RANK];
		verify->is_packed = tensor->strides != NULL || cut(verify, tensor, axes);
		status = verify->is_packed ? pack_expected(verify, tensor) : STATUS_OK;
	}
	if (status == STATUS_OK && !verify->is_packed)
		status = read_file(verify, tensor->offset + offset, verify->expected, n);
	if (status == STATUS_OK)
		*ret = verify->is_packed ? verify->packed + offset : verify->expected;
	return status;
}

static int compare_piece(void *context, const hoist_tensor_info *tensor, const unsigned char *bytes,
			 size_t n, uint64_t offset)
{
	struct verify *verify = context;
	if (verify->fd < 0 || verify->file != tensor->file) {
		int status = open_file(verify, tensor->file);
		if (status != STATUS_OK)
			return status;
	}
	const unsigned char *expected = NULL;
	int status = read_expected(verify, tensor, n, offset, &expected);
	if (status != STATUS_OK || memcmp(bytes, expected, n) == 0)
		return status;
	size_t i = 0;
	while (bytes[i] == expected[i])
		i++;
	/* A loaded byte of a packed tensor is elsewhere in the file: no place in the file is
	 * named. */
	if (verify->is_packed)
		return fail("verifying: tensor '%s', %s, differs from %s at byte "
			    "%" PRIu64 ": loaded 0x%02x, the file has 0x%02x; the file changed, "
			    "or this is a defect of hoist or of the machine",
			    tensor->name,
			    tensor->strides != NULL ? "without its strides" : "sliced",
			    verify->path, offset + i, bytes[i], expected[i]);
	return fail("verifying: tensor '%s' differs from %s at byte %" PRIu64
		    " of the tensor (byte %" PRIu64
		    " of the file): loaded 0x%02x, the file has 0x%02x; the file changed, or this "
		    "is a defect of hoist or of the machine",
		    tensor->name, verify->path, offset + i, tensor->offset + offset + i, bytes[i],
		    expected[i]);
}

/* The tensors of one target; with replicas, of one device. */
static int verify_target(struct operation *op, struct verify *verify, size_t target)
{
	bool own = target < op->n_targets;
	size_t n = hoist_load_target_n_tensors(op->load, target);
	int status = STATUS_OK;
	verify->slices = own ? op->targets[target].slices : op->slices;
	verify->n_slices = own ? op->targets[target].n_slices : op->n_slices;
	for (size_t i = 0; i < n && status == STATUS_OK; i++) {
		hoist_tensor_info tensor;
		status = operation_read(op, target, i, &tensor, compare_piece, verify);
	}
	return status;
}

int verify_loaded(struct operation *op)
{
	struct verify verify = {.checkpoint = op->checkpoint, .fd = -1};
	verify.expected = malloc(OPERATION_PIECE_BYTES);
	if (verify.expected == NULL)
		return fail_memory();
	int status = STATUS_OK;
	size_t n = hoist_load_n_targets(op->load);
	progress_begin("verifying");
	for (size_t t = 0; t < n && status == STATUS_OK; t++)
		status = verify_target(op, &verify, t);
	progress_end();
	if (verify.fd >= 0)
		(void)close(verify.fd);
	free(verify.expected);
	free(verify.packed);
	return status;
}
