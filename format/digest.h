/* SPDX-License-Identifier: MIT */
/* format/digest.h - digests as files hold them: what a save writes and a load compares; see
 * hoist/save.h.
 *
 * Metadata HOIST__DIGEST_KEY is HOIST__DIGEST_HEX lower-case hexadecimal digits a tensor, of its
 * XXH3-128 in canonical form, in the order of the tensors' bytes. */
#ifndef HOIST_LIB_DIGEST_H
#define HOIST_LIB_DIGEST_H

#define HOIST__DIGEST_KEY "hoist.xxh3_128"
#define HOIST__DIGEST_BYTES 16
#define HOIST__DIGEST_HEX 32

/* Writes the digits; nothing ends them. */
static inline void hoist__digest_hex(const unsigned char digest[HOIST__DIGEST_BYTES], char *to)
{
	static const char digits[] = "0123456789abcdef";
	for (int i = 0; i < HOIST__DIGEST_BYTES; i++) {
		*to++ = digits[digest[i] >> 4];
		*to++ = digits[digest[i] & 15];
	}
}

#endif
