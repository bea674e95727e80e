/* SPDX-License-Identifier: MIT */
/* tests/support/save-support.h - running saves, and reading their files without hoist: a
 * safetensors reader that checks all that the format says, and a count of the folder's names. */
#ifndef HOIST_TESTS_SAVE_SUPPORT_H
#define HOIST_TESTS_SAVE_SUPPORT_H

#include "tests/support/load-support.h"

struct saved {
	unsigned char *bytes;
	size_t n;
	size_t data;  /* where tensors begin */
	char *header; /* the JSON, terminated */
};

/* Starts a save, waits for its end and destroys it.  Returns: the first error, with a text. */
int saved_run(hoist_save *save);

/* 0, or -1 and a line on stderr that says why. */
int saved_read(const char *path, struct saved *ret);
void saved_free(struct saved *saved);

/* A tensor's bytes; dtype and shape are as the header has them: "F32", "2,3". */
const unsigned char *saved_tensor(const struct saved *saved, const char *name, const char *dtype,
				  const char *shape, size_t bytes);

/* The digests that the file carries are those of its tensors, which are @names in the order of
 * their bytes. */
void saved_check_digests(const struct saved *saved, const char *const *names, size_t n);

/* How many names are in the test's folder. */
unsigned saved_n_names(void);

#endif
