/* SPDX-License-Identifier: MIT */
/* UCX's functions, any of which can be made to fail.
 * The contract is in tests/support/failing-ucx.h. */
#include "config.h"

#include "tests/support/failing-ucx.h"

hoist__ucs_status failing_ucx_status = HOIST__UCS_ERR_NO_MEMORY;
static bool (*ask)(const char *name);
static struct hoist__ucx_table real;

#define STATUS(name, parameters, arguments)                                                        \
	static hoist__ucs_status name parameters                                                   \
	{                                                                                          \
		return ask(#name) ? failing_ucx_status : real.name arguments;                      \
	}
#define POINTER(name, parameters, arguments)                                                       \
	static hoist__ucs_status_ptr name parameters                                               \
	{                                                                                          \
		/* NOLINTNEXTLINE(performance-no-int-to-ptr): UCX's way */                         \
		return ask(#name) ? (void *)(intptr_t)failing_ucx_status : real.name arguments;    \
	}
STATUS(ucp_config_read, (const char *a, const char *b, hoist__ucp_config **c), (a, b, c))
STATUS(ucp_config_modify, (hoist__ucp_config * a, const char *b, const char *c), (a, b, c))
STATUS(ucp_init_version,
       (unsigned a, unsigned b, const struct hoist__ucp_params *c, const hoist__ucp_config *d,
	hoist__ucp_context *e),
       (a, b, c, d, e))
STATUS(ucp_mem_map,
       (hoist__ucp_context a, const struct hoist__ucp_mem_params *b, hoist__ucp_mem *c), (a, b, c))
STATUS(ucp_worker_create,
       (hoist__ucp_context a, const struct hoist__ucp_worker_params *b, hoist__ucp_worker *c),
       (a, b, c))
STATUS(ucp_worker_get_address, (hoist__ucp_worker a, hoist__ucp_address **b, size_t *c), (a, b, c))
STATUS(ucp_worker_get_efd, (hoist__ucp_worker a, int *b), (a, b))
STATUS(ucp_worker_arm, (hoist__ucp_worker a), (a))
STATUS(ucp_worker_set_am_recv_handler,
       (hoist__ucp_worker a, const struct hoist__ucp_am_handler_param *b), (a, b))
STATUS(ucp_ep_create, (hoist__ucp_worker a, const struct hoist__ucp_ep_params *b, hoist__ucp_ep *c),
       (a, b, c))
POINTER(ucp_ep_close_nbx, (hoist__ucp_ep a, const hoist__ucp_request_param *b), (a, b))
POINTER(ucp_am_send_nbx,
	(hoist__ucp_ep a, unsigned b, const void *c, size_t d, const void *e, size_t f,
	 const hoist__ucp_request_param *g),
	(a, b, c, d, e, f, g))
POINTER(ucp_am_recv_data_nbx,
	(hoist__ucp_worker a, void *b, void *c, size_t d, const hoist__ucp_request_param *e),
	(a, b, c, d, e))

void failing_ucx_begin(bool (*fails)(const char *name))
{
	ask = fails;
	real = hoist__ucx;
#define TAKE(name) hoist__ucx.name = name
	TAKE(ucp_config_read);
	TAKE(ucp_config_modify);
	TAKE(ucp_init_version);
	TAKE(ucp_mem_map);
	TAKE(ucp_worker_create);
	TAKE(ucp_worker_get_address);
	TAKE(ucp_worker_get_efd);
	TAKE(ucp_worker_arm);
	TAKE(ucp_worker_set_am_recv_handler);
	TAKE(ucp_ep_create);
	TAKE(ucp_ep_close_nbx);
	TAKE(ucp_am_send_nbx);
	TAKE(ucp_am_recv_data_nbx);
#undef TAKE
}
