/* SPDX-License-Identifier: MIT */
/* tests/fuzz/fuzz-support.h - what the fuzz targets share: a file that is an input, what a parser
 * promises of its result, and the memory that parsing takes.
 *
 * A target is one fuzz_NAME.c with LLVMFuzzerTestOneInput(); tests/fuzz/build.mk builds it.  A
 * broken promise ends it with abort(), which libFuzzer reports with the input. */
#ifndef HOIST_TESTS_FUZZ_SUPPORT_H
#define HOIST_TESTS_FUZZ_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "format/format.h"

/* Not assert(): NDEBUG is no business of a fuzzer's. */
#define HOLDS(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(stderr, "%s:%d: does not hold: %s (%s)\n", __FILE__,         \
				      __LINE__, #condition, hoist_error());                        \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* libFuzzer's side. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t room);

/* --- bytes that decide --- */

/* The rest of an input; zeros from its end on. */
struct fuzz_bytes {
	const uint8_t *p;
	size_t n;
};

uint64_t fuzz_take(struct fuzz_bytes *from, unsigned n); /* n bytes, little-endian */
uint64_t fuzz_below(struct fuzz_bytes *from, uint64_t n);

/* --- files --- */

struct fuzz_file {
	const uint8_t *bytes;
	size_t n;
	bool *read; /* of each byte; NULL: not asked for */
	bool lenient;
};

/* Reading beyond its end ends the target: parsers must check first. */
struct hoist__reader fuzz_reader(struct fuzz_file *file);

/* Finds out what it is, and parses it: a manifest, an index or neither, by what is returned; with
 * all that can be said of it checked, and of the memory that it took. */
struct fuzz_parsed {
	enum hoist__format format;
	struct hoist__manifest *manifest;
	struct hoist__index *index;
};
int fuzz_parse(const uint8_t *bytes, size_t n, struct fuzz_parsed *ret);
void fuzz_parsed_free(struct fuzz_parsed *parsed);

/* The same of one that is said to be of a format, whatever its content is like, by a reader that is
 * lenient, too. */
void fuzz_format(const uint8_t *bytes, size_t n, enum hoist__format format);

void fuzz_check_text(const char *text);
void fuzz_check_manifest(const struct hoist__manifest *manifest, size_t file_bytes);
void fuzz_check_index(const struct hoist__index *index);

/* --- what is left behind --- */

/* How many descriptors are open. */
size_t fuzz_n_fds(void);

/* No file with that in its path (for a memfd, "/memfd:") is mapped.  Looks at every 256th call,
 * since that takes as long as some inputs do, and at the end: the input that is reported need not
 * be the one that left it. */
void fuzz_check_mappings(const char *of);

/* --- memory --- */

/* From now on this thread's allocations are counted; until then, the most that lived at once. */
void fuzz_memory_begin(void);
size_t fuzz_memory_end(void);

/* The promise of format.h: the most that parsing takes is below so many times the bytes that it had
 * to read, and so many more. */
#define FUZZ_MEMORY_TIMES 12
#define FUZZ_MEMORY_TIMES_TORCH 33
#define FUZZ_MEMORY_BYTES ((size_t)72 << 10)
#define FUZZ_MEMORY_BYTES_TORCH ((size_t)1 << 20)

/* No input, of 1 MiB at most, takes longer. */
#define FUZZ_SECONDS 1.0

#endif
