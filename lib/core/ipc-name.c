/* SPDX-License-Identifier: MIT */
/* lib/core/ipc-name.c - makes random names.
 * The contract is in lib/core/ipc-name.h. */
#include "config.h"

#include "lib/core/ipc-name.h"

#include <errno.h>
#include <sys/random.h>

#include "base/error.h"

int hoist__ipc_name_make(struct hoist__ipc_name *ret)
{
	struct hoist__ipc_name made;
	ssize_t n;
	do
		n = getrandom(made.bytes, sizeof made.bytes, 0);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof made.bytes) /* so few bytes come whole, or not at all */
		return hoist__fail_errno(n < 0 ? -errno : -EIO, "a random name (getrandom)");
	*ret = made;
	return 0;
}
