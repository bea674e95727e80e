/* SPDX-License-Identifier: MIT */
/* io/output-blocks.h - the blocks of a new file, before anything is written to it. */
#ifndef HOIST_IO_OUTPUT_BLOCKS_H
#define HOIST_IO_OUTPUT_BLOCKS_H

#include "io/file.h"

/* @file, whose `fd` is open and empty, is to hold @bytes: they are allocated, a last block padded,
 * where its file system can; and all of @file is set, with a direct descriptor if @direct and if
 * there can be one.
 * Returns: 0; -ENOSPC, -EDQUOT with how many bytes are free; -EFBIG; what looking gave. */
int hoist__output_lay_out(struct hoist__file *file, bool direct, uint64_t bytes);

#endif
