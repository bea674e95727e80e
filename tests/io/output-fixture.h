/* SPDX-License-Identifier: MIT */
/* tests/io/output-fixture.h - a folder, files in it that the library writes, and calls that fail
 * for it, by the linker's --wrap. */
#ifndef HOIST_TESTS_IO_OUTPUT_FIXTURE_H
#define HOIST_TESTS_IO_OUTPUT_FIXTURE_H

#include <sys/stat.h>

#include "io/output.h"

enum call { NONE, NAMELESS, FALLOCATE, FSYNC, FTRUNCATE, LINKAT, RENAMEAT, LGETXATTR, CLOSE };

/* Each such call fails from now on with errno @err; NONE: no call fails. */
void let_fail(enum call call, int err);

extern unsigned n_fsyncs;
extern mode_t created; /* all bits that the library made files with */
extern gid_t group;    /* that a server or a mount gives to new files; 0: none does */

extern char output_folder[512];
extern char output_path[1024]; /* of a file in it, which is to be written */

void make_folder(void);
unsigned n_names(void); /* in the folder */
unsigned n_descriptors(void);

void put_file(const char *name, const char *text, mode_t mode);
void expect_file(const char *name, const char *text, mode_t mode);

/* Creates an output at output_path, and writes @text to it. */
struct hoist__output *begin(const char *text, unsigned flags);

/* The file gets its name. */
void publish(struct hoist__output *output);

/* The whole way.  Returns: the first error. */
int write_file(const char *text, unsigned flags);

/* No output can be created at output_path, and nothing stays open. */
void expect_refused(unsigned flags, int code, const char *text);

#endif
