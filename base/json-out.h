/* SPDX-License-Identifier: MIT */
/* base/json-out.h - JSON, written to a file descriptor through a buffer of fixed size.
 *
 *     hoist__out_open(&out, "{");
 *     hoist__out_key(&out, "bytes");
 *     hoist__out_u64(&out, 4096);
 *     hoist__out_close(&out, "}");
 *     err = hoist__out_end(&out);
 *
 * Commas come by themselves.  The first failure stays, and nothing is written after it.
 */
#ifndef HOIST_LIB_JSON_OUT_H
#define HOIST_LIB_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOIST__JSON_BUFFER_BYTES ((size_t)64 << 10)

struct hoist__json_out {
	int fd;
	int err;
	bool comma; /* is due before the next value */
	size_t n;
	char buffer[HOIST__JSON_BUFFER_BYTES];
};

void hoist__out_start(struct hoist__json_out *out, int fd); /* the buffer needs no zeroing */
/* "{" and "["; "}" and "]". */
void hoist__out_open(struct hoist__json_out *out, const char *bracket);
void hoist__out_close(struct hoist__json_out *out, const char *bracket);
/* @key is written as it is. */
void hoist__out_key(struct hoist__json_out *out, const char *key);
void hoist__out_u64(struct hoist__json_out *out, uint64_t value);
void hoist__out_i64(struct hoist__json_out *out, int64_t value);
void hoist__out_bool(struct hoist__json_out *out, bool value);
void hoist__out_null(struct hoist__json_out *out);
/* From 0 to 1, to six digits. */
void hoist__out_share(struct hoist__json_out *out, double share);
/* What is no UTF-8 becomes U+FFFD. */
void hoist__out_string(struct hoist__json_out *out, const char *text);

/* A new line, and what is left in the buffer.  Returns: 0; the first failure of write(2). */
int hoist__out_end(struct hoist__json_out *out);

#endif
