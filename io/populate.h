/* SPDX-License-Identifier: MIT */
/* io/populate.h - threads that fault memory in ahead of the reads into it.
 *
 * First touch is several times slower than a read from the page cache and costs
 * a direct read its large pages, so fresh destinations are populated in order by
 * other threads while the reader follows.  The populated prefix only grows:
 *
 *     base [======= done =======|-- in work --|............] base + bytes
 *
 * Threads: one owner, who may wait; stop is the owner's too.
 */
#ifndef HOIST_IO_POPULATE_H
#define HOIST_IO_POPULATE_H

#include <stddef.h>
#include <stdint.h>

struct hoist__populator;

/* Starts populating [address, address+bytes) (page-aligned, a LAZY block) with
 * @n_threads threads (0: by the machine, 1..4).
 * Returns: 0; -ENOMEM, also if there can be no more threads; -EPERM if a filter refuses them. */
int hoist__populator_start(void *address, size_t bytes, unsigned n_threads,
			   struct hoist__populator **ret);

/* Bytes from the start that are populated now.  Never blocks.
 * Returns: 0; the error of the populating thread (-ENOMEM), with its text. */
int hoist__populator_done(struct hoist__populator *populator, size_t *ret);

/* Waits until at least @bytes are populated, or @timeout_ns has passed.
 * Returns: 0; -EAGAIN on time-out; -ENOMEM as above. */
int hoist__populator_wait(struct hoist__populator *populator, size_t bytes, uint64_t timeout_ns);

/* Ends the threads (after the slice they are at) and frees.  Takes NULL. */
void hoist__populator_stop(struct hoist__populator *populator);

#endif
