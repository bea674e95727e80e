/* SPDX-License-Identifier: MIT */
/* tests/support/lib-cache.h - helpers of the tests of the cache: a folder of their own for the
 * holder, which is this very program and ends with it; and checkpoints, written by hand. */
#ifndef HOIST_TESTS_LIB_CACHE_H
#define HOIST_TESTS_LIB_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <hoist/hoist.h>

#include "tests/support/check.h"

/* It fails with @err, and the text holds @text. */
#define REFUSED(call, err, text)                                                                   \
	do {                                                                                       \
		CHECK((call) == (err));                                                            \
		CHECK(strstr(hoist_error(), (text)) != NULL);                                      \
	} while (0)

/* The first thing that main() does: becomes the holder if that is what the program was started for;
 * else makes the folder, of which it gives the path, and sees to the holder's and the folder's end.
 */
const char *cache_test_begin(int argc, char **argv);

/* "<folder>/<name>"; the result is good until the 64th call after it. */
const char *cache_path(const char *name);

/* A safetensors file of @n tensors "t000000", ... of u8, of @bytes each; byte i of tensor t is
 * cache_byte(t, i, seed). */
void cache_write(const char *path, size_t n, size_t bytes, unsigned seed);
unsigned char cache_byte(size_t tensor, size_t i, unsigned seed);

/* All bytes of all tensors. */
void cache_check(hoist_image *image, size_t n, size_t bytes, unsigned seed);

/* The holder's process, which has its lock; 0: none. */
int cache_holder(void);

/* Waits until there is none. */
void cache_wait_for_end(void);

/* The holder has ended, and nothing is left where its folder was. */
void cache_wait_for_no_folder(void);

#endif
