/* SPDX-License-Identifier: MIT */
/* io/output-blocks.h - allocates the blocks of a new file, before the first write. */
#ifndef HOIST_IO_OUTPUT_BLOCKS_H
#define HOIST_IO_OUTPUT_BLOCKS_H

#include "io/file.h"

/* Prepares @file, whose `fd` is open and empty, for @bytes: allocates them, the last block padded,
 * where the file system can, and fills @file, with a direct descriptor if @direct and if the file
 * system allows one.
 * Returns: 0; -ENOSPC, -EDQUOT, with the number of free bytes; -EFBIG; the error of fstat(2). */
int hoist__output_lay_out(struct hoist__file *file, bool direct, uint64_t bytes);

#endif
