/* SPDX-License-Identifier: MIT */
/* Every loaded byte against the files, read another way. */
#include "config.h"

#include "tools/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/progress.h"

struct verify {
	const hoist_checkpoint *checkpoint;
	unsigned char *expected; /* OPERATION_PIECE_BYTES */
	int fd;			 /* of the file below, or -1: tensors come file by file */
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

static int read_expected(struct verify *verify, uint64_t offset, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = pread(verify->fd, verify->expected + done, n - done,
				    (off_t)(offset + done));
		if (got == 0)
			return fail("verifying: %s ends at byte %" PRIu64
				    ": it became shorter while it was loaded",
				    verify->path, offset + done);
		if (got < 0 && errno != EINTR)
			return fail("verifying: reading %s at byte %" PRIu64 ": %s", verify->path,
				    offset + done, strerror(errno));
		if (got > 0)
			done += (size_t)got;
	}
	return STATUS_OK;
}

static int compare_piece(void *context, const hoist_tensor_info *tensor,
			 const unsigned char *bytes, size_t n, uint64_t offset)
{
	struct verify *verify = context;
	if (verify->fd < 0 || verify->file != tensor->file) {
		int status = open_file(verify, tensor->file);
		if (status != STATUS_OK)
			return status;
	}
	int status = read_expected(verify, tensor->offset + offset, n);
	if (status != STATUS_OK || memcmp(bytes, verify->expected, n) == 0)
		return status;
	size_t i = 0;
	while (bytes[i] == verify->expected[i])
		i++;
	return fail("verifying: tensor '%s' differs from %s at byte %" PRIu64
		    " of the tensor (byte %" PRIu64
		    " of the file): loaded 0x%02x, the file has 0x%02x; the file changed, or this "
		    "is a defect of hoist or of the machine",
		    tensor->name, verify->path, offset + i, tensor->offset + offset + i, bytes[i],
		    verify->expected[i]);
}

int verify_loaded(struct operation *op)
{
	struct verify verify = {.checkpoint = op->checkpoint, .fd = -1};
	verify.expected = malloc(OPERATION_PIECE_BYTES);
	if (verify.expected == NULL)
		return fail_memory();
	int status = STATUS_OK;
	size_t n = hoist_load_n_tensors(op->load);
	progress_begin("verifying");
	for (size_t i = 0; i < n && status == STATUS_OK; i++) {
		hoist_tensor_info tensor;
		status = operation_read(op, i, &tensor, compare_piece, &verify);
	}
	progress_end();
	if (verify.fd >= 0)
		(void)close(verify.fd);
	free(verify.expected);
	return status;
}
