/* SPDX-License-Identifier: MIT */
/* lib/plan/digest.h - digests of whole tensors, made while the chunks of a plan pass.
 *
 * The chunks of each disk come in the order of the plan, so a tensor's bytes come in order, too:
 * those that pass with its own tier.  Bytes of other tiers that lie in a gap are read once more.  A
 * chunk may begin before the end of the one before (`passed`).  Tensors may overlap: each has a
 * state of its own from its first byte that passes to its last.
 *
 * The expected digests are in the metadata "hoist.xxh3_128" of each file: 32 hexadecimal digits for
 * each tensor, in the order of the tensors' bytes.
 *
 * Threads: one at a time; the checkpoint and the plan outlive the digests.
 */
#ifndef HOIST_LIB_PLAN_DIGEST_H
#define HOIST_LIB_PLAN_DIGEST_H

#include "lib/plan/plan.h"

struct hoist__digests;

/* Makes the table of digests of the tensors that any want has; with @verify, finds the expected
 * ones in the checkpoint.
 * Returns: 0; -ENODATA (the checkpoint holds none, or not one for each tensor); -ENOMEM;
 * -EBADMSG as below, of an empty tensor. */
int hoist__digests_create(const hoist_checkpoint *checkpoint, const struct hoist__plan *plan,
			  bool verify, struct hoist__digests **ret);
void hoist__digests_destroy(struct hoist__digests *digests); /* takes NULL */

/* Digests the next chunk of a disk, whose bytes in memory are those of the file.  @bytes NULL: a
 * touch of them could fault, so they are read from the file.
 * Returns: 0; -EBADMSG (a tensor's digest is not the expected one; the text has both); -ENOMEM;
 * the error of a read. */
int hoist__digests_pass(struct hoist__digests *digests, unsigned disk,
			const struct hoist__chunk *chunk, const unsigned char *bytes);

/* The tensor whose digest was not the expected one; NULL: none was. */
const struct hoist__checkpoint_tensor *hoist__digests_damaged(const struct hoist__digests *digests);

/* Gives the digest of tensor @index of the checkpoint.  Pre: a want has the tensor, and all of its
 * bytes have passed. */
void hoist__digests_get(const struct hoist__digests *digests, size_t index, unsigned char ret[16]);

#endif
