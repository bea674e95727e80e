/* SPDX-License-Identifier: MIT */
/* tests/mkcheckpoint-options.h - the command line of mkcheckpoint. */
#ifndef HOIST_TESTS_MKCHECKPOINT_OPTIONS_H
#define HOIST_TESTS_MKCHECKPOINT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define N_DTYPES 22u

extern const struct dtype {
	const char *name;
	unsigned bits;
} dtypes[N_DTYPES];

struct options {
	uint64_t bytes;
	uint64_t seed;
	size_t n_tensors; /* SIZE_MAX: not said */
	unsigned shards;
	const struct dtype *dtypes[N_DTYPES];
	size_t n_dtypes;
	bool all;
	bool odd;
	bool empty;
	bool equal;
	uint64_t columns; /* 0: some power of two */
	const char *folder;
};

/* Ends the program with a message and status 1. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Ends the program where the options are wrong, or ask for help. */
void parse_options(int argc, char **argv, struct options *o);

#endif
