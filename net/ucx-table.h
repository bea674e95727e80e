/* SPDX-License-Identifier: MIT */
/* net/ucx-table.h - every function of UCX that hoist calls, once.
 *
 *   X(name, result, (arguments))
 *
 * UCX 1.13 and all newer ones have every row: a library that lacks one is refused.  The names that
 * begin with ucs_ are libucs', the others libucp's, which needs libucs.
 *
 * Used by net/ucx.h (the members), net/ucx.c (what to load) and net/ucx-abi.c (compared with
 * ucp/api/ucp.h).
 */
#ifndef HOIST_NET_UCX_TABLE_H
#define HOIST_NET_UCX_TABLE_H

#include "net/ucx-types.h"

#define HOIST__UCX_TABLE(X)                                                                        \
	/* The library. */                                                                         \
	X(ucp_get_version, void, (unsigned *, unsigned *, unsigned *))                             \
	X(ucs_status_string, const char *, (hoist__ucs_status))                                    \
	/* The context. */                                                                         \
	X(ucp_config_read, hoist__ucs_status, (const char *, const char *, hoist__ucp_config **))  \
	X(ucp_config_modify, hoist__ucs_status, (hoist__ucp_config *, const char *, const char *)) \
	X(ucp_config_release, void, (hoist__ucp_config *))                                         \
	X(ucp_init_version, hoist__ucs_status,                                                     \
	  (unsigned, unsigned, const struct hoist__ucp_params *, const hoist__ucp_config *,        \
	   hoist__ucp_context *))                                                                  \
	X(ucp_context_print_info, void, (const hoist__ucp_context, FILE *))                        \
	X(ucp_cleanup, void, (hoist__ucp_context))                                                 \
	X(ucp_mem_map, hoist__ucs_status,                                                          \
	  (hoist__ucp_context, const struct hoist__ucp_mem_params *, hoist__ucp_mem *))            \
	X(ucp_mem_unmap, hoist__ucs_status, (hoist__ucp_context, hoist__ucp_mem))                  \
	/* The worker. */                                                                          \
	X(ucp_worker_create, hoist__ucs_status,                                                    \
	  (hoist__ucp_context, const struct hoist__ucp_worker_params *, hoist__ucp_worker *))      \
	X(ucp_worker_destroy, void, (hoist__ucp_worker))                                           \
	X(ucp_worker_get_address, hoist__ucs_status,                                               \
	  (hoist__ucp_worker, hoist__ucp_address **, size_t *))                                    \
	X(ucp_worker_release_address, void, (hoist__ucp_worker, hoist__ucp_address *))             \
	X(ucp_worker_get_efd, hoist__ucs_status, (hoist__ucp_worker, int *))                       \
	X(ucp_worker_arm, hoist__ucs_status, (hoist__ucp_worker))                                  \
	X(ucp_worker_progress, unsigned, (hoist__ucp_worker))                                      \
	X(ucp_worker_set_am_recv_handler, hoist__ucs_status,                                       \
	  (hoist__ucp_worker, const struct hoist__ucp_am_handler_param *))                         \
	/* Endpoints and transfers. */                                                             \
	X(ucp_ep_create, hoist__ucs_status,                                                        \
	  (hoist__ucp_worker, const struct hoist__ucp_ep_params *, hoist__ucp_ep *))               \
	X(ucp_ep_print_info, void, (hoist__ucp_ep, FILE *))                                        \
	X(ucp_ep_close_nbx, hoist__ucs_status_ptr,                                                 \
	  (hoist__ucp_ep, const hoist__ucp_request_param *))                                       \
	X(ucp_am_send_nbx, hoist__ucs_status_ptr,                                                  \
	  (hoist__ucp_ep, unsigned, const void *, size_t, const void *, size_t,                    \
	   const hoist__ucp_request_param *))                                                      \
	X(ucp_am_recv_data_nbx, hoist__ucs_status_ptr,                                             \
	  (hoist__ucp_worker, void *, void *, size_t, const hoist__ucp_request_param *))           \
	X(ucp_request_free, void, (void *))

#endif
