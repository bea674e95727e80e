/* SPDX-License-Identifier: MIT */
/* base/json-out.h - writes JSON to a file descriptor through a buffer of fixed size.
 *
 *     hoist__out_open(&out, "{");
 *     hoist__out_key(&out, "bytes");
 *     hoist__out_u64(&out, 4096);
 *     hoist__out_close(&out, "}");
 *     err = hoist__out_end(&out);
 *
 * The commas are written automatically.  The first failure is kept, and nothing is written after
 * it.
 */
#ifndef HOIST_BASE_JSON_OUT_H
#define HOIST_BASE_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOIST__JSON_BUFFER_BYTES ((size_t)64 << 10)

struct hoist__json_out {
	int fd;
	int err;
	bool comma; /* due before the next value */
	size_t n;
	char buffer[HOIST__JSON_BUFFER_BYTES];
};

void hoist__out_start(struct hoist__json_out *out, int fd); /* the buffer needs no zeroing */
/* Open with "{" or "[", close with "}" or "]". */
void hoist__out_open(struct hoist__json_out *out, const char *bracket);
void hoist__out_close(struct hoist__json_out *out, const char *bracket);
/* @key is written as it is, without escapes. */
void hoist__out_key(struct hoist__json_out *out, const char *key);
/* The same for any text, as hoist__out_string() writes it. */
void hoist__out_name(struct hoist__json_out *out, const char *name);
void hoist__out_u64(struct hoist__json_out *out, uint64_t value);
void hoist__out_i64(struct hoist__json_out *out, int64_t value);
void hoist__out_bool(struct hoist__json_out *out, bool value);
void hoist__out_null(struct hoist__json_out *out);
/* Writes a number from 0 to 1 with six digits. */
void hoist__out_share(struct hoist__json_out *out, double share);
/* Bytes that are not UTF-8 become U+FFFD. */
void hoist__out_string(struct hoist__json_out *out, const char *text);

/* Writes a newline and the rest of the buffer.
 * Returns: 0; the first failure of write(2). */
int hoist__out_end(struct hoist__json_out *out);

#endif
