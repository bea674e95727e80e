/* SPDX-License-Identifier: MIT */
/* tests/support/load-files.h - small checkpoints in support_folder(), written byte by byte.  A
 * folder chooses the files that it opens by their names, whatever their format. */
#ifndef HOIST_TESTS_LOAD_FILES_H
#define HOIST_TESTS_LOAD_FILES_H

/* "<folder>/<name>", until the next call. */
const char *in_folder(const char *name);

void write_text(const char *name, const char *text);

/* One tensor [2] of i8 called @tensor; part @no of @count, unless that is 0. */
void write_gguf(const char *name, const char *tensor, unsigned no, unsigned count,
		unsigned n_tensors);

/* [2, 3] of i16 in Fortran's order. */
void write_npy(const char *name);

#endif
