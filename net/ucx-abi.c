/* SPDX-License-Identifier: MIT */
/* net/ucx-abi.c - compares ucx-table.h and ucx-types.h with UCX's ucp.h.
 * The compared declarations are in net/ucx-table.h and net/ucx-types.h.
 *
 * Compiled only where configure found ucp/api/ucp.h.  This file makes no code.  If a row, a
 * constant or a type disagrees with UCX's, this file does not compile.
 *
 * A struct of a newer UCX may be larger than hoist's, never smaller: UCX reads only the fields that
 * a mask names, and appends new ones.
 */
#include "config.h"

#include <stddef.h>
#include <ucp/api/ucp.h>

#include "net/ucx-types.h"

/* hoist's types have the size and kind of UCX's ... */
_Static_assert(sizeof(hoist__ucs_status) == sizeof(ucs_status_t), "ucs_status_t");
_Static_assert((ucs_status_t)-1 < 0, "ucs_status_t is signed");
_Static_assert(sizeof(hoist__ucs_memory_type) == sizeof(ucs_memory_type_t), "ucs_memory_type_t");
_Static_assert(sizeof(hoist__ucs_thread_mode) == sizeof(ucs_thread_mode_t), "ucs_thread_mode_t");
_Static_assert(sizeof(hoist__ucp_err_mode) == sizeof(ucp_err_handling_mode_t), "err mode");
_Static_assert(sizeof(hoist__ucp_context) == sizeof(ucp_context_h), "ucp_context_h");

#define X(constant, value, vendor) _Static_assert((long)(constant) == (long)(vendor), #vendor);
HOIST__UCX_CONSTANTS(X)
#undef X

#define SAME(ours, vendor)                                                                         \
	_Static_assert(offsetof(OURS, ours) == offsetof(VENDOR, vendor) &&                         \
			       sizeof(((OURS *)0)->ours) == sizeof(((VENDOR *)0)->vendor),         \
		       #vendor);
#define CHECK_SIZE() _Static_assert(sizeof(OURS) <= sizeof(VENDOR), "the size")

#define OURS struct hoist__ucp_params
#define VENDOR ucp_params_t
SAME(field_mask, field_mask)
SAME(features, features)
SAME(request_size, request_size)
SAME(request_init, request_init)
SAME(request_cleanup, request_cleanup)
SAME(tag_sender_mask, tag_sender_mask)
SAME(mt_workers_shared, mt_workers_shared)
SAME(estimated_num_eps, estimated_num_eps)
SAME(estimated_num_ppn, estimated_num_ppn)
SAME(name, name)
CHECK_SIZE();
#undef OURS
#undef VENDOR

#define OURS struct hoist__ucp_worker_params
#define VENDOR ucp_worker_params_t
SAME(field_mask, field_mask)
SAME(thread_mode, thread_mode)
SAME(cpu_mask, cpu_mask)
SAME(events, events)
SAME(user_data, user_data)
SAME(event_fd, event_fd)
SAME(flags, flags)
SAME(name, name)
SAME(am_alignment, am_alignment)
SAME(client_id, client_id)
CHECK_SIZE();
#undef OURS
#undef VENDOR

#define OURS struct hoist__ucp_mem_params
#define VENDOR ucp_mem_map_params_t
SAME(field_mask, field_mask)
SAME(address, address)
SAME(length, length)
SAME(flags, flags)
SAME(prot, prot)
SAME(memory_type, memory_type)
CHECK_SIZE();
#undef OURS
#undef VENDOR

#define OURS struct hoist__ucp_ep_params
#define VENDOR ucp_ep_params_t
SAME(field_mask, field_mask)
SAME(address, address)
SAME(err_mode, err_mode)
SAME(err_handler, err_handler)
SAME(err_handler.cb, err_handler.cb)
SAME(err_handler.arg, err_handler.arg)
SAME(user_data, user_data)
SAME(flags, flags)
SAME(sockaddr, sockaddr)
SAME(conn_request, conn_request)
SAME(name, name)
SAME(local_sockaddr, local_sockaddr)
CHECK_SIZE();
#undef OURS
#undef VENDOR

#define OURS hoist__ucp_request_param
#define VENDOR ucp_request_param_t
SAME(op_attr_mask, op_attr_mask)
SAME(flags, flags)
SAME(request, request)
SAME(cb, cb)
SAME(cb.send, cb.send)
SAME(cb.recv_am, cb.recv_am)
SAME(datatype, datatype)
SAME(user_data, user_data)
SAME(reply_buffer, reply_buffer)
SAME(memory_type, memory_type)
SAME(recv_info, recv_info)
SAME(memh, memh)
CHECK_SIZE();
#undef OURS
#undef VENDOR

#define OURS struct hoist__ucp_am_recv_param
#define VENDOR ucp_am_recv_param_t
SAME(recv_attr, recv_attr)
SAME(reply_ep, reply_ep)
CHECK_SIZE();
#undef OURS
#undef VENDOR

#define OURS struct hoist__ucp_am_handler_param
#define VENDOR ucp_am_handler_param_t
SAME(field_mask, field_mask)
SAME(id, id)
SAME(flags, flags)
SAME(cb, cb)
SAME(arg, arg)
CHECK_SIZE();
#undef OURS
#undef VENDOR

/* ... the handlers that UCX calls have these types ... */
#define HANDLER(ours, vendor, result, arguments)                                                   \
	_Static_assert(__builtin_types_compatible_p(vendor, result(*) arguments) &&                \
			       sizeof(ours) == sizeof(vendor),                                     \
		       #vendor)
HANDLER(hoist__ucp_err_cb, ucp_err_handler_cb_t, void, (void *, ucp_ep_h, ucs_status_t));
HANDLER(hoist__ucp_send_cb, ucp_send_nbx_callback_t, void, (void *, ucs_status_t, void *));
HANDLER(hoist__ucp_recv_am_cb, ucp_am_recv_data_nbx_callback_t, void,
	(void *, ucs_status_t, size_t, void *));
HANDLER(hoist__ucp_am_recv_cb, ucp_am_recv_callback_t, ucs_status_t,
	(void *, const void *, size_t, void *, size_t, const ucp_am_recv_param_t *));

/* ... so with UCX's types in their place every row must be UCX's declaration. */
#define hoist__ucs_status ucs_status_t
#define hoist__ucs_status_ptr ucs_status_ptr_t
#define hoist__ucp_config ucp_config_t
#define hoist__ucp_address ucp_address_t
#define hoist__ucp_context ucp_context_h
#define hoist__ucp_worker ucp_worker_h
#define hoist__ucp_ep ucp_ep_h
#define hoist__ucp_mem ucp_mem_h
#define hoist__ucp_params ucp_params
#define hoist__ucp_worker_params ucp_worker_params
#define hoist__ucp_mem_params ucp_mem_map_params
#define hoist__ucp_ep_params ucp_ep_params
#define hoist__ucp_request_param ucp_request_param_t
#define hoist__ucp_am_handler_param ucp_am_handler_param

#include "net/ucx-table.h"

#define X(name, result, arguments)                                                                 \
	_Static_assert(__builtin_types_compatible_p(result arguments, __typeof__(name)), #name);
HOIST__UCX_TABLE(X)
#undef X
