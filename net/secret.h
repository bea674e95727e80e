/* SPDX-License-Identifier: MIT */
/* net/secret.h - the secret of a group, and HMAC-SHA-256 with it, by libsodium.
 *
 * Where the secret comes from, the first that is there:
 *
 *     given                        a text of the caller's, 16 bytes and more
 *     HOIST_GROUP_SECRET           the same in the environment
 *     HOIST_GROUP_SECRET_FILE      a file, whose last line end does not count.  A file that others
 *                                  than its owner may open, or that is neither this user's nor
 *                                  root's, is refused
 *     the user's own               a file of 32 random bytes, made when it is first needed, that
 *                                  only this user can read: hoist/group-secret in
 *                                  $XDG_RUNTIME_DIR or /run/user/UID, the first that is this
 *                                  user's folder, else /dev/shm/hoist-UID/group-secret.  The file
 *                                  proves "the same user of the same machine", so `local` is set:
 *                                  the caller must refuse all addresses but loopback
 *
 * A variable that is set to nothing is there: its secret is too short.  The text itself is not
 * kept: a key of 32 bytes is computed from it.  A listener can try texts against a proof, so a text
 * should be random.
 */
#ifndef HOIST_NET_SECRET_H
#define HOIST_NET_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOIST__SECRET_BYTES 32u
#define HOIST__SECRET_LEAST 16u /* bytes of a text or a file */

struct hoist__secret {
	unsigned char key[HOIST__SECRET_BYTES];
	bool local;
};

/* Returns: 0; -EINVAL (a text or file of less than HOIST__SECRET_LEAST bytes, or more than 4096; no
 * ordinary file); -EACCES (a file or folder that others may open, or that is another user's); what
 * open() and read() give for the file and, for the user's own, mkdir(), write() and link(). */
int hoist__secret_find(const char *given, struct hoist__secret *ret);

/* Forgets the key. */
void hoist__secret_fini(struct hoist__secret *secret);

/* HMAC-SHA-256 of some pieces, one behind the other. */
struct hoist__piece {
	const void *bytes;
	size_t n_bytes;
};
void hoist__secret_sign(const unsigned char key[static HOIST__SECRET_BYTES],
			const struct hoist__piece *pieces, unsigned n_pieces,
			unsigned char ret[static HOIST__SECRET_BYTES]);

/* Compares in a time that does not depend on the bytes. */
bool hoist__secret_same(const unsigned char *a, const unsigned char *b, size_t n_bytes);

/* Random bytes from the kernel. */
void hoist__secret_random(void *ret, size_t n_bytes);

#endif
