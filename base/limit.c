/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "base/limit.h"

#include <errno.h>
#include <sys/resource.h>

#include "base/error.h"

int hoist__check_file_bytes(uint64_t bytes, const char *what)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
	    bytes <= limit.rlim_cur)
		return 0;
	return hoist__fail(-EFBIG,
			   "%s: it needs %llu bytes, but RLIMIT_FSIZE is %llu; raise it with "
			   "`ulimit -f`",
			   what, (unsigned long long)bytes, (unsigned long long)limit.rlim_cur);
}
