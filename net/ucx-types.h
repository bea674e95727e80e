/* SPDX-License-Identifier: MIT */
/* net/ucx-types.h - the types and constants of UCX that hoist uses, so that hoist builds without
 * UCX's headers.  net/ucx-abi.c compares them with ucp/api/ucp.h, where configure finds it.
 *
 * Structs are as UCX 1.13 has them.  UCX adds fields at their ends, and reads a field only if
 * `field_mask` (`op_attr_mask`, `recv_attr`) has its bit: a newer library takes an older struct.
 */
#ifndef HOIST_NET_UCX_TYPES_H
#define HOIST_NET_UCX_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* UCX packs the enumeration into a byte. */
typedef signed char hoist__ucs_status;
typedef void *hoist__ucs_status_ptr;

typedef struct hoist__ucp_config hoist__ucp_config;
typedef struct hoist__ucp_address hoist__ucp_address;
typedef struct hoist__ucp_context *hoist__ucp_context;
typedef struct hoist__ucp_worker *hoist__ucp_worker;
typedef struct hoist__ucp_ep *hoist__ucp_ep;
typedef struct hoist__ucp_mem *hoist__ucp_mem;
typedef unsigned int hoist__ucs_memory_type;
typedef unsigned int hoist__ucs_thread_mode;
typedef unsigned int hoist__ucp_err_mode;

/* X(constant, value, UCX's name) */
#define HOIST__UCX_CONSTANTS(X)                                                                    \
	X(HOIST__UCS_OK, 0, UCS_OK)                                                                \
	X(HOIST__UCS_INPROGRESS, 1, UCS_INPROGRESS)                                                \
	X(HOIST__UCS_ERR_NO_MEMORY, -4, UCS_ERR_NO_MEMORY)                                         \
	X(HOIST__UCS_ERR_INVALID_PARAM, -5, UCS_ERR_INVALID_PARAM)                                 \
	X(HOIST__UCS_ERR_UNREACHABLE, -6, UCS_ERR_UNREACHABLE)                                     \
	X(HOIST__UCS_ERR_INVALID_ADDR, -7, UCS_ERR_INVALID_ADDR)                                   \
	X(HOIST__UCS_ERR_MESSAGE_TRUNCATED, -9, UCS_ERR_MESSAGE_TRUNCATED)                         \
	X(HOIST__UCS_ERR_NO_ELEM, -12, UCS_ERR_NO_ELEM)                                            \
	X(HOIST__UCS_ERR_NO_DEVICE, -14, UCS_ERR_NO_DEVICE)                                        \
	X(HOIST__UCS_ERR_BUSY, -15, UCS_ERR_BUSY)                                                  \
	X(HOIST__UCS_ERR_CANCELED, -16, UCS_ERR_CANCELED)                                          \
	X(HOIST__UCS_ERR_TIMED_OUT, -20, UCS_ERR_TIMED_OUT)                                        \
	X(HOIST__UCS_ERR_UNSUPPORTED, -22, UCS_ERR_UNSUPPORTED)                                    \
	X(HOIST__UCS_ERR_REJECTED, -23, UCS_ERR_REJECTED)                                          \
	X(HOIST__UCS_ERR_CONNECTION_RESET, -25, UCS_ERR_CONNECTION_RESET)                          \
	X(HOIST__UCS_ERR_ENDPOINT_TIMEOUT, -80, UCS_ERR_ENDPOINT_TIMEOUT)                          \
	X(HOIST__UCS_ERR_LAST, -100, UCS_ERR_LAST)                                                 \
	X(HOIST__UCP_PARAM_FEATURES, 1, UCP_PARAM_FIELD_FEATURES)                                  \
	X(HOIST__UCP_FEATURE_WAKEUP, 16, UCP_FEATURE_WAKEUP)                                       \
	X(HOIST__UCP_FEATURE_AM, 64, UCP_FEATURE_AM)                                               \
	X(HOIST__UCP_MEM_ADDRESS, 1, UCP_MEM_MAP_PARAM_FIELD_ADDRESS)                              \
	X(HOIST__UCP_MEM_LENGTH, 2, UCP_MEM_MAP_PARAM_FIELD_LENGTH)                                \
	X(HOIST__UCP_MEM_TYPE, 16, UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE)                            \
	X(HOIST__UCS_MEMORY_HOST, 0, UCS_MEMORY_TYPE_HOST)                                         \
	X(HOIST__UCP_WORKER_THREAD_MODE, 1, UCP_WORKER_PARAM_FIELD_THREAD_MODE)                    \
	X(HOIST__UCS_THREAD_SINGLE, 0, UCS_THREAD_MODE_SINGLE)                                     \
	X(HOIST__UCP_AM_ID, 1, UCP_AM_HANDLER_PARAM_FIELD_ID)                                      \
	X(HOIST__UCP_AM_FLAGS, 2, UCP_AM_HANDLER_PARAM_FIELD_FLAGS)                                \
	X(HOIST__UCP_AM_CB, 4, UCP_AM_HANDLER_PARAM_FIELD_CB)                                      \
	X(HOIST__UCP_AM_ARG, 8, UCP_AM_HANDLER_PARAM_FIELD_ARG)                                    \
	X(HOIST__UCP_AM_WHOLE, 1, UCP_AM_FLAG_WHOLE_MSG)                                           \
	X(HOIST__UCP_AM_RECV_RNDV, 1 << 17, UCP_AM_RECV_ATTR_FLAG_RNDV)                            \
	X(HOIST__UCP_AM_SEND_RNDV, 4, UCP_AM_SEND_FLAG_RNDV)                                       \
	X(HOIST__UCP_EP_ADDRESS, 1, UCP_EP_PARAM_FIELD_REMOTE_ADDRESS)                             \
	X(HOIST__UCP_EP_ERR_MODE, 2, UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE)                         \
	X(HOIST__UCP_EP_ERR_HANDLER, 4, UCP_EP_PARAM_FIELD_ERR_HANDLER)                            \
	X(HOIST__UCP_ERR_MODE_PEER, 1, UCP_ERR_HANDLING_MODE_PEER)                                 \
	X(HOIST__UCP_EP_CLOSE_FORCE, 1, UCP_EP_CLOSE_FLAG_FORCE)                                   \
	X(HOIST__UCP_OP_CALLBACK, 2, UCP_OP_ATTR_FIELD_CALLBACK)                                   \
	X(HOIST__UCP_OP_USER_DATA, 4, UCP_OP_ATTR_FIELD_USER_DATA)                                 \
	X(HOIST__UCP_OP_FLAGS, 16, UCP_OP_ATTR_FIELD_FLAGS)                                        \
	X(HOIST__UCP_OP_MEMORY_TYPE, 64, UCP_OP_ATTR_FIELD_MEMORY_TYPE)                            \
	X(HOIST__UCP_OP_MEMH, 256, UCP_OP_ATTR_FIELD_MEMH)

enum {
#define X(constant, value, vendor) constant = value,
	HOIST__UCX_CONSTANTS(X)
#undef X
};

/* The version of the interface that net/ucx.c asks ucp_init_version() for. */
#define HOIST__UCP_API_MAJOR 1u
#define HOIST__UCP_API_MINOR 13u

struct hoist__ucp_params {
	uint64_t field_mask;
	uint64_t features;
	size_t request_size;
	void (*request_init)(void *request);
	void (*request_cleanup)(void *request);
	uint64_t tag_sender_mask;
	int mt_workers_shared;
	size_t estimated_num_eps;
	size_t estimated_num_ppn;
	const char *name;
};

struct hoist__ucp_worker_params {
	uint64_t field_mask;
	hoist__ucs_thread_mode thread_mode;
	unsigned long cpu_mask[16];
	unsigned events;
	void *user_data;
	int event_fd;
	uint64_t flags;
	const char *name;
	size_t am_alignment;
	uint64_t client_id;
};

struct hoist__ucp_mem_params {
	uint64_t field_mask;
	void *address;
	size_t length;
	unsigned flags;
	unsigned prot;
	hoist__ucs_memory_type memory_type;
};

typedef void (*hoist__ucp_err_cb)(void *arg, hoist__ucp_ep ep, hoist__ucs_status status);

struct hoist__ucp_err_handler {
	hoist__ucp_err_cb cb;
	void *arg;
};

struct hoist__ucs_sock_addr {
	const void *addr;
	unsigned addrlen;
};

struct hoist__ucp_ep_params {
	uint64_t field_mask;
	const hoist__ucp_address *address;
	hoist__ucp_err_mode err_mode;
	struct hoist__ucp_err_handler err_handler;
	void *user_data;
	unsigned flags;
	struct hoist__ucs_sock_addr sockaddr;
	void *conn_request;
	const char *name;
	struct hoist__ucs_sock_addr local_sockaddr;
};

typedef void (*hoist__ucp_send_cb)(void *request, hoist__ucs_status status, void *user_data);
typedef void (*hoist__ucp_recv_am_cb)(void *request, hoist__ucs_status status, size_t length,
				      void *user_data);

/* No tag, as UCX has it. */
typedef struct {
	uint32_t op_attr_mask;
	uint32_t flags;
	void *request;
	union {
		hoist__ucp_send_cb send;
		hoist__ucp_recv_am_cb recv_am;
	} cb;
	uint64_t datatype;
	void *user_data;
	void *reply_buffer;
	hoist__ucs_memory_type memory_type;
	void *recv_info;
	hoist__ucp_mem memh;
} hoist__ucp_request_param;

struct hoist__ucp_am_recv_param {
	uint64_t recv_attr;
	hoist__ucp_ep reply_ep;
};

typedef hoist__ucs_status (*hoist__ucp_am_recv_cb)(void *arg, const void *header,
						   size_t header_length, void *data, size_t length,
						   const struct hoist__ucp_am_recv_param *param);

struct hoist__ucp_am_handler_param {
	uint64_t field_mask;
	unsigned id;
	uint32_t flags;
	hoist__ucp_am_recv_cb cb;
	void *arg;
};

#endif
