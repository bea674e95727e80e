/* SPDX-License-Identifier: MIT */
/* Members that have no neighbours.
 * The contract is in tests/lib/group/by-ucx.h. */
#include "config.h"

#include "tests/lib/group/by-ucx.h"

#include "net/neighbour.h"
#include "tests/support/check.h"
#include "tests/support/wrap.h"

bool by_ucx;

/* Without a machine's number nobody is a neighbour. */
WRAP(void, hoist__neighbour_describe,
     (const struct hoist__secret *secret, int fd, struct hoist__neighbour *ret))
{
	__real_hoist__neighbour_describe(secret, fd, ret);
	CHECK(ret->machine != 0);
	if (by_ucx)
		ret->machine = 0;
}
