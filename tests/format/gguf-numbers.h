/* SPDX-License-Identifier: MIT */
/* tests/format/gguf-numbers.h - numbers below 256 as GGUF has them, with a byte given as a string. */
#ifndef HOIST_TESTS_FORMAT_GGUF_NUMBERS_H
#define HOIST_TESTS_FORMAT_GGUF_NUMBERS_H

#define N4(byte) byte "\0\0\0"
#define N8(byte) byte "\0\0\0\0\0\0\0"

#endif
