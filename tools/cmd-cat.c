/* SPDX-License-Identifier: MIT */
/* tools/cmd-cat.c - hoist cat: the raw bytes of a tensor, read back from where it was loaded.
 * The contract is in tools/tool.h. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/interrupt.h"
#include "tools/operation.h"
#include "tools/unconverted.h"

/* Waits until stdout has room.  A write that finds no room would not end for a signal; this wait
 * does.  A signal that comes just before the wait is noticed at the time-out. */
static int wait_for_room(void)
{
	for (;;) {
		struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
		if (interrupted())
			return fail("cancelled");
		int n = poll(&out, 1, 100);
		if (n > 0)
			return STATUS_OK; /* also on errors: the write will name them */
		if (n < 0 && errno != EINTR)
			return fail("waiting for standard output: %s", strerror(errno));
	}
}

static int write_piece(void *context, const hoist_tensor_info *tensor, const unsigned char *bytes,
		       size_t n, uint64_t offset)
{
	(void)context;
	(void)tensor;
	(void)offset;
	while (n > 0) {
		int status = wait_for_room();
		if (status != STATUS_OK)
			return status;
		ssize_t written = write(STDOUT_FILENO, bytes, n);
		if (written < 0 && errno == EPIPE)
			return STATUS_FAILED; /* the reader has taken all it wanted */
		if (written < 0 && errno != EINTR && errno != EAGAIN)
			return fail("writing to standard output: %s", strerror(errno));
		if (written > 0) {
			bytes += written;
			n -= (size_t)written;
		}
	}
	return STATUS_OK;
}

static int cat(struct operation *op, const struct args *args)
{
	const char *name = args->operands[1];
	size_t index;
	if (hoist_checkpoint_find(op->checkpoint, name, &index) != 0)
		return fail("%s; `hoist ls` lists its tensors", hoist_error());
	op->names = calloc(1, sizeof *op->names);
	if (op->names == NULL)
		return fail_memory();
	op->names[0] = name;
	op->n_names = 1;
	int status = operation_load(op, args);
	if (status == STATUS_OK)
		status = unconverted_note(args->load.dtype, op->load);
	hoist_tensor_info tensor;
	return status == STATUS_OK ? operation_read(op, 0, 0, &tensor, write_piece, NULL) : status;
}

int cmd_cat(const struct args *args)
{
	if (!args->force && isatty(STDOUT_FILENO))
		return fail("not writing a tensor's raw bytes to a terminal; redirect standard "
			    "output, or give --force");
	struct operation op;
	int status = operation_open(&op, args);
	if (status == STATUS_OK)
		status = cat(&op, args);
	operation_close(&op);
	return status;
}
