/* SPDX-License-Identifier: MIT */
/* net/ucx.h - the opened library of UCX; private to net/ucx.c and net/fabric*.c.
 *
 * The libraries are opened once and never closed: UCX leaves a thread behind, and its handlers run
 * at exit.  A failure to open them is tried again by the next call.
 *
 * Threads: any.
 */
#ifndef HOIST_NET_UCX_H
#define HOIST_NET_UCX_H

#include <stdbool.h>

#include "base/error.h"
#include "net/ucx-table.h"

struct hoist__ucx_table {
#define X(name, result, arguments) result(*name) arguments;
	HOIST__UCX_TABLE(X)
#undef X
};

/* Filled by hoist__ucx_open(), constant afterwards; tests replace its members. */
extern struct hoist__ucx_table hoist__ucx;

/* @ret_path, if not NULL, is the path of libucp.
 * Returns: 0; -ENOSYS (a library is missing, or lacks a function of the table: the text names
 * which, and the package). */
int hoist__ucx_open(const char **ret_path);

/* True for a UCX older than 1.16, which ends the process where net/fabric.h says.  Pre: UCX is
 * open. */
bool hoist__ucx_before_1_16(void);

/* Opens the libraries and makes a context of UCX.  @transports: UCX_TLS; NULL: as the environment
 * has it.  Signal handlers that UCX installs are put back.
 * Returns: 0; as hoist__ucx_open(); -ENODEV (no transport, or none of @transports); as
 * hoist__ucx_error(). */
int hoist__ucx_init(const char *transports, hoist__ucp_context *ret);

/* The negative errno value of an error of UCX. */
int hoist__ucx_error(hoist__ucs_status status);

/* Sets the text "UCX: <what>: <UCX's text>", and returns hoist__ucx_error(). */
int hoist__ucx_fail(hoist__ucs_status status, const char *what);

/* UCX returns NULL, a request, or a status as a pointer. */
static inline bool hoist__ucx_is_error(hoist__ucs_status_ptr answer)
{
	return (uintptr_t)answer >= (uintptr_t)(intptr_t)HOIST__UCS_ERR_LAST;
}

static inline hoist__ucs_status hoist__ucx_status(hoist__ucs_status_ptr answer)
{
	return (hoist__ucs_status)(intptr_t)answer;
}

#endif
