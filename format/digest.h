/* SPDX-License-Identifier: MIT */
/* format/digest.h - digests in the form that files hold: a save writes them and a load compares;
 * see hoist/save.h.
 *
 * The metadata HOIST__DIGEST_KEY has HOIST__DIGEST_HEX lower-case hexadecimal digits for each
 * tensor, in the order of the tensors' bytes: the tensor's XXH3-128 in canonical form. */
#ifndef HOIST_FORMAT_DIGEST_H
#define HOIST_FORMAT_DIGEST_H

#define HOIST__DIGEST_KEY "hoist.xxh3_128"
#define HOIST__DIGEST_BYTES 16
#define HOIST__DIGEST_HEX 32

/* Writes the digits without a terminating NUL. */
static inline void hoist__digest_hex(const unsigned char digest[HOIST__DIGEST_BYTES], char *to)
{
	static const char digits[] = "0123456789abcdef";
	for (int i = 0; i < HOIST__DIGEST_BYTES; i++) {
		*to++ = digits[digest[i] >> 4];
		*to++ = digits[digest[i] & 15];
	}
}

/* Reads HOIST__DIGEST_HEX digits. */
static inline void hoist__digest_from_hex(const char *hex, unsigned char ret[HOIST__DIGEST_BYTES])
{
	for (int i = 0; i < HOIST__DIGEST_BYTES; i++, hex += 2) {
		int high = hex[0] <= '9' ? hex[0] - '0' : hex[0] - 'a' + 10;
		int low = hex[1] <= '9' ? hex[1] - '0' : hex[1] - 'a' + 10;
		ret[i] = (unsigned char)(high << 4 | low);
	}
}

#endif
