/* SPDX-License-Identifier: MIT */
/* tests/support/failing-ucx.h - UCX's functions, any of which can be made to fail.
 *
 *     failing_ucx_begin(fails);   // fails("ucp_ep_create") is asked before each such call
 */
#ifndef HOIST_TESTS_FAILING_UCX_H
#define HOIST_TESTS_FAILING_UCX_H

#include <stdbool.h>

#include "net/ucx.h"

/* The result of calls that fail. */
extern hoist__ucs_status failing_ucx_status;

/* Replaces the functions in UCX's table.  Pre: UCX is loaded. */
void failing_ucx_begin(bool (*fails)(const char *name));

#endif
